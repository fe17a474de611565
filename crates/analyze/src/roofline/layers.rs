//! Which layers are dense, sparse, sliding or linear.

use serde_json::Value;

use super::config::{Attention, ConfigError, EXPERTS, Indexer, Layer, Span};
use super::fields::{Fields, invalid};

/// The indexer of sparse attention, which reads the query's low-rank form.
pub(crate) fn read_indexer(
    fields: &Fields,
    attention: &Attention,
) -> Result<Option<Indexer>, ConfigError> {
    let latent = matches!(attention, Attention::Latent { q_rank: Some(_), .. });
    let Some(topk) = fields.number(&["index_topk"])?.filter(|k| *k > 0 && latent) else {
        return Ok(None);
    };
    Ok(Some(Indexer {
        heads: fields.required(&["index_n_heads"])?,
        head: fields.required(&["index_head_dim"])?,
        topk,
    }))
}

/// The layers of a model with `count` layers.
pub(crate) fn read_layers(
    fields: &Fields,
    model_type: &str,
    count: u64,
    indexer: Option<&Indexer>,
    notes: &mut Vec<String>,
) -> Result<Vec<Layer>, ConfigError> {
    let spans = spans(fields, model_type, count, indexer, notes)?;
    let indexed = indexed(fields, count)?;
    let sparse = sparse_mlps(fields, count)?;
    let layers = spans.into_iter().zip(indexed).zip(sparse).map(|((attention, full), moe)| Layer {
        attention,
        indexer: full && matches!(attention, Span::Sparse(_)),
        moe,
    });
    Ok(layers.collect())
}

fn spans(
    fields: &Fields,
    model_type: &str,
    count: u64,
    indexer: Option<&Indexer>,
    notes: &mut Vec<String>,
) -> Result<Vec<Span>, ConfigError> {
    let full = indexer.map_or(Span::Full, |indexer| Span::Sparse(indexer.topk));
    let window = fields.number(&["sliding_window", "attention_chunk_size"])?.filter(|w| *w > 0);
    let window = window.filter(|_| fields.flag("use_sliding_window") != Some(false));
    let sliding = window.map_or(full, Span::Sliding);
    if let Some(types) = fields.per_layer("layer_types", count)? {
        let mut unknown = None;
        let read = types.iter().map(|kind| match kind.as_str().unwrap_or_default() {
            "sliding_attention" | "chunked_attention" => sliding,
            "linear_attention" if fields.value("linear_num_key_heads").is_some() => Span::Linear,
            "full_attention" | "deepseek_sparse_attention" | "attention" => full,
            other => {
                unknown.get_or_insert_with(|| other.to_owned());
                full
            }
        });
        let read = read.collect();
        if let Some(kind) = unknown {
            notes.push(format!("layer type `{kind}` is not known: read as full attention"));
        }
        return Ok(read);
    }
    let interval = fields.number(&["full_attention_interval"])?.filter(|n| *n > 0);
    if let Some(interval) = interval.filter(|_| fields.value("linear_num_key_heads").is_some()) {
        let at = |i: u64| {
            if (i + 1).is_multiple_of(interval) { full } else { Span::Linear }
        };
        return Ok((0..count).map(at).collect());
    }
    let pattern = fields.number(&["sliding_window_pattern"])?.filter(|n| *n > 0);
    let first = match model_type.starts_with("qwen") {
        true => fields.number(&["max_window_layers"])?.unwrap_or(0),
        false => 0,
    };
    let slides = |i: u64| match (pattern, model_type) {
        (Some(pattern), _) => !(i + 1).is_multiple_of(pattern),
        (None, "gpt_oss" | "gemma2") => i.is_multiple_of(2),
        _ => i >= first,
    };
    Ok((0..count).map(|i| if slides(i) { sliding } else { full }).collect())
}

/// Which layers run the indexer themselves; the others reuse the picks of the one before. Without
/// the list: `indexer_types[i]` is full where `max(i - offset + 1, 0) % freq == 0`.
fn indexed(fields: &Fields, count: u64) -> Result<Vec<bool>, ConfigError> {
    if let Some(types) = fields.per_layer("indexer_types", count)? {
        return Ok(types.iter().map(|kind| kind.as_str() != Some("shared")).collect());
    }
    if let Some(pattern) = fields.text(&["index_topk_pattern"]) {
        let mut letters = pattern.chars();
        return Ok((0..count).map(|_| letters.next() != Some('S')).collect());
    }
    let every = fields.number(&["index_topk_freq"])?.unwrap_or(1).max(1);
    let offset = fields.number(&["index_skip_topk_offset"])?.unwrap_or(2);
    Ok((0..count).map(|i| (i + 1).saturating_sub(offset).is_multiple_of(every)).collect())
}

/// Which layers have experts.
fn sparse_mlps(fields: &Fields, count: u64) -> Result<Vec<bool>, ConfigError> {
    if fields.number(EXPERTS)?.unwrap_or(0) < 2 {
        return Ok(vec![false; count as usize]);
    }
    if let Some(types) = fields.per_layer("mlp_layer_types", count)? {
        return Ok(types.iter().map(|kind| kind.as_str() != Some("dense")).collect());
    }
    let first = fields.number(&["first_k_dense_replace", "moe_layer_start_index"])?.unwrap_or(0);
    let last = fields.number(&["moe_layer_end_index"])?.unwrap_or(u64::MAX);
    let names = ["decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"];
    let step = fields.number(&names)?.unwrap_or(1);
    let dense = fields.value("mlp_only_layers").and_then(Value::as_array);
    let dense: Vec<u64> = dense.into_iter().flatten().filter_map(Value::as_u64).collect();
    let by_list = match fields.value("moe_layer_freq") {
        Some(Value::Array(_)) => fields.per_layer("moe_layer_freq", count)?,
        _ => None,
    };
    let every = match by_list {
        Some(_) => 1,
        None => fields.number(&["moe_layer_freq"])?.unwrap_or(1),
    };
    if step == 0 || every == 0 {
        return Err(invalid("moe_layer_freq", &Value::from(0), "a positive number"));
    }
    let listed = |i: u64| by_list.is_none_or(|list| list[i as usize].as_u64() != Some(0));
    let rule = |i: u64| {
        (first..=last).contains(&i)
            && i.is_multiple_of(every)
            && (i + 1).is_multiple_of(step)
            && !dense.contains(&i)
            && listed(i)
    };
    Ok((0..count).map(rule).collect())
}
