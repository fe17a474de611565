//! The step put together from operations that were measured alone.

use crate::results::{Alone, AloneRow, Component};
use crate::roofline::{
    Attention, Deployment, Measured, MeasuredOperation, ModelConfig, Part, Roofline, Span,
};

/// An operation of the step.
struct Operation {
    component: Component,
    group: &'static str,
    /// Its name in the measurements, without the type.
    name: &'static str,
    /// The part whose format says in which type it runs; `None` for what has one type only.
    part: Option<Part>,
    calls: u64,
}

/// Adds up what the operations of a step took alone; `None` when none was measured.
///
/// Operations are those that `steptally bench` measures, under its names. They do not make a whole
/// step: attention over the cache, and all that a model does not state, are not among them.
pub(super) fn alone(model: &ModelConfig, measured: &Measured, bound: &Roofline) -> Option<Alone> {
    if measured.measurements.is_empty() {
        return None;
    }
    let device = measured.device.clone();
    if let Some(reason) = mismatch(model, measured, &bound.deployment) {
        return Some(Alone { not_comparable: Some(reason), device, ..Alone::default() });
    }
    let mut result = Alone { device, ..Alone::default() };
    for operation in operations(model).into_iter().filter(|operation| operation.calls > 0) {
        let found = find(&operation, measured, bound);
        match found {
            Some(found) => result.rows.push(AloneRow {
                component: operation.component,
                name: found.name.clone(),
                each_ns: found.median_ns,
                calls_per_step: operation.calls,
                ns_per_step: found.median_ns * operation.calls as f64,
            }),
            None => result.not_measured.push(operation.name.to_owned()),
        }
    }
    for collective in &bound.collectives {
        let bytes = collective.message_bytes as f64;
        match measured.all_reduce_ns(collective.ranks, bytes) {
            Some(each_ns) => result.rows.push(AloneRow {
                component: Component::Communication,
                name: collective.name.clone(),
                each_ns,
                calls_per_step: collective.count,
                ns_per_step: each_ns * collective.count as f64,
            }),
            None => result.not_measured.push(collective.name.clone()),
        }
    }
    result.not_measured.push("attention over the KV cache".to_owned());
    result.rows.sort_by(|a, b| b.ns_per_step.total_cmp(&a.ns_per_step));
    result.ns_per_step = result.rows.iter().map(|row| row.ns_per_step).sum();
    Some(result)
}

/// Why the measurements are not of this step.
fn mismatch(model: &ModelConfig, measured: &Measured, served: &Deployment) -> Option<String> {
    let name = measured.model.as_deref().unwrap_or("an unknown model");
    if name != model.model_type {
        return Some(format!("they are in the shapes of {name}, not of {}", model.model_type));
    }
    // The output head's shape tells models of one type apart.
    let head = format!("n={} k={}", model.vocab.div_ceil(u64::from(served.tp)), model.hidden);
    let measured_head = measured.measurements.iter().find(|of| of.name.starts_with("lm_head "));
    if let Some(other) = measured_head.filter(|of| !of.shape.ends_with(&head)) {
        return Some(format!("their output head is {}, not {head}", other.shape));
    }
    let sizes = [
        ("batch", measured.batch, served.batch),
        ("tensor parallelism", measured.tp, u64::from(served.tp)),
    ];
    let other = |(what, measured, served): (&str, Option<u64>, u64)| {
        let measured = measured.filter(|measured| *measured != served)?;
        Some(format!("they are for {what} {measured}, not {served}"))
    };
    sizes.into_iter().find_map(other)
}

/// The measurement of an operation: in the type in which most of its part's bytes are, else in BF16.
/// What has one type is measured in several sizes, of which the step's is the smallest.
fn find<'m>(
    operation: &Operation,
    measured: &'m Measured,
    bound: &Roofline,
) -> Option<&'m MeasuredOperation> {
    let group = || measured.measurements.iter().filter(|of| of.group == operation.group);
    let Some(part) = operation.part else {
        let sizes = group().filter(|of| of.name == operation.name);
        return sizes.min_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
    };
    let rows = bound.components.iter().filter(|row| row.part == part);
    let format = rows.max_by_key(|row| row.memory_bytes).map_or("", |row| row.format.as_str());
    let narrow = match format {
        format if format.contains("fp4") => "nvfp4",
        format if format.contains("fp8") => "fp8",
        _ => "bf16",
    };
    [narrow, "bf16"].into_iter().find_map(|kind| {
        let name = format!("{} {kind}", operation.name);
        group().find(|of| of.name == name)
    })
}

fn operations(model: &ModelConfig) -> Vec<Operation> {
    let count = |keep: fn(&crate::roofline::Layer) -> bool| {
        model.layers.iter().filter(|layer| keep(layer)).count() as u64
    };
    let layers = model.layers.len() as u64;
    let attending = count(|layer| layer.attention != Span::Linear);
    let (experts, dense) = (count(|layer| layer.moe), count(|layer| !layer.moe));
    let shared = model.moe.as_ref().is_some_and(|moe| moe.shared_width > 0);
    let product = |name, part, calls| Operation {
        component: Component::DenseGemm,
        group: "gemm",
        name,
        part: Some(part),
        calls,
    };
    let other =
        |component, group, name, calls| Operation { component, group, name, part: None, calls };
    let mut list = Vec::new();
    let projections: &[&'static str] = match model.attention {
        Attention::Grouped { .. } => &["qkv_proj", "o_proj"],
        Attention::Latent { q_rank: Some(_), .. } => {
            &["qkv_a_proj", "q_b_proj", "kv_b_proj", "o_proj"]
        }
        Attention::Latent { q_rank: None, .. } => &["q_proj", "kv_a_proj", "kv_b_proj", "o_proj"],
    };
    list.extend(projections.iter().map(|n| product(n, Part::AttentionProjections, attending)));
    list.push(product("gate_up_proj", Part::DenseMlp, dense));
    list.push(product("down_proj", Part::DenseMlp, dense));
    let with_shared = if shared { experts } else { 0 };
    list.push(product("shared gate_up", Part::SharedExperts, with_shared));
    list.push(product("shared down", Part::SharedExperts, with_shared));
    list.push(product("router", Part::Router, experts));
    list.push(product("lm_head", Part::LmHead, 1));
    for name in ["experts gate_up", "experts down"] {
        let routed = product(name, Part::RoutedExperts, experts);
        list.push(Operation { component: Component::Experts, group: "moe-gemm", ..routed });
    }
    list.push(other(Component::Norms, "norm", "rms norm bf16", 2 * layers + 1));
    list.push(other(Component::Attention, "rope", "rope bf16", attending));
    for name in ["softmax and top-k", "sort by expert", "gather rows by expert"] {
        list.push(other(Component::Experts, "routing", name, experts));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::{Hardware, roofline};

    /// Two dense layers of width 64, two heads of 32, grouped; head 100 x 64.
    const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 64, "vocab_size": 100,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "intermediate_size": 128, "torch_dtype": "bfloat16"}"#;

    fn check(json: &str) -> Option<Alone> {
        let model = ModelConfig::parse(CONFIG, None).unwrap();
        let hardware = Hardware::built_in().unwrap();
        let measured = Measured::parse(json).unwrap();
        let gpu = hardware.find("H200").unwrap();
        let bound = roofline(&model, gpu, &Deployment::new(1, 1, 8), &measured).unwrap();
        alone(&model, &measured, &bound)
    }

    #[test]
    fn operations_are_added_up_over_the_layers() {
        let json = r#"{"device": "X", "model": "llama", "batch": 1, "tp": 1, "measurements": [
            {"group": "gemm", "name": "qkv_proj bf16", "median_ns": 3000},
            {"group": "gemm", "name": "qkv_proj fp8", "median_ns": 1},
            {"group": "gemm", "name": "gate_up_proj bf16", "median_ns": 5000},
            {"group": "gemm", "name": "lm_head bf16", "shape": "m=1 n=100 k=64", "median_ns": 7000},
            {"group": "norm", "name": "rms norm bf16", "shape": "16384 x 64", "median_ns": 50000},
            {"group": "norm", "name": "rms norm bf16", "shape": "1 x 64", "median_ns": 1000},
            {"group": "launch", "name": "empty", "median_ns": 9000}]}"#;
        let found = check(json).unwrap();
        // 2 x 3 + 2 x 5 + 7 + 5 norms x 1 = 28 us
        assert_eq!(found.ns_per_step, 28_000.0);
        assert_eq!(found.not_comparable, None);
        let rows: Vec<_> = found.rows.iter().map(|r| (r.name.as_str(), r.calls_per_step)).collect();
        assert_eq!(rows[..2], [("gate_up_proj bf16", 2), ("lm_head bf16", 1)]);
        assert_eq!(rows.len(), 4);
        let missing = ["o_proj", "down_proj", "rope bf16", "attention over the KV cache"];
        assert_eq!(found.not_measured, missing);
    }

    #[test]
    fn measurements_of_another_step_are_not_used() {
        let of = |model: &str, batch: u64, shape: &str| {
            let json = format!(
                r#"{{"model": "{model}", "batch": {batch}, "tp": 1, "measurements": [
                {{"group": "gemm", "name": "lm_head bf16", "shape": "{shape}", "median_ns": 7}}]}}"#
            );
            check(&json).unwrap().not_comparable.unwrap()
        };
        let shape = "m=1 n=100 k=64";
        assert_eq!(of("qwen3", 1, shape), "they are in the shapes of qwen3, not of llama");
        assert_eq!(of("llama", 4, shape), "they are for batch 4, not 1");
        let other = "their output head is m=1 n=200 k=64, not n=100 k=64";
        assert_eq!(of("llama", 1, "m=1 n=200 k=64"), other);
        assert_eq!(check(r#"{"copy_bytes_per_s": 1e12}"#), None);
    }
}
