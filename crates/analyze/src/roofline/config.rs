//! What a model is made of, read from its Hugging Face `config.json`.
//!
//! Every family names its fields in its own way; the names known here are in the code below. A model
//! type that is not known is read as a plain transformer, and a note says so. Biases and the small
//! norms of single heads are not counted.

use serde_json::Value;

use super::fields::{Fields, invalid, object};
use super::layers::{read_indexer, read_layers};
use super::quant::{Format, Quantization};

/// Model types whose layout is known.
const KNOWN: &[&str] = &[
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "kimi_k2",
    "glm",
    "glm4",
    "glm4_moe",
    "glm_moe_dsa",
    "gpt_oss",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "phi3",
    "olmo",
    "olmo2",
];

/// Why a config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file is not a JSON object.
    #[error("{file}: not a JSON object: {source}")]
    Json {
        /// Which file.
        file: &'static str,
        /// Where it breaks.
        source: serde_json::Error,
    },
    /// A field without which nothing can be counted is absent.
    #[error("config.json: no `{field}`{}", also(aliases))]
    Missing {
        /// Its usual name.
        field: String,
        /// The other names that were tried.
        aliases: Vec<String>,
    },
    /// A field holds something else than it should.
    #[error("config.json: `{field}` is {value}, expected {expected}")]
    Invalid {
        /// Its name.
        field: String,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// The checkpoint is quantised in a way that is not known.
    #[error(
        "quantisation: method `{method}` is not known\nhint: state one precision for all weights"
    )]
    UnknownQuantization {
        /// The method's name.
        method: String,
    },
    /// A pattern of module names cannot be read.
    #[error("quantisation: pattern `{pattern}` cannot be read: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why.
        source: Box<regex::Error>,
    },
}

fn also(aliases: &[String]) -> String {
    match aliases.is_empty() {
        true => String::new(),
        false => format!(" (nor {})", aliases.join(", ")),
    }
}

/// A model as far as a decode step's cost depends on it. Sizes are numbers of elements.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// `model_type`, or the architecture's name, or `unknown`.
    pub model_type: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the embedding and of the output head.
    pub vocab: u64,
    /// Whether the output head is the embedding table.
    pub tied_embeddings: bool,
    /// The type of what is not quantised.
    pub base: Format,
    /// Sizes of the attention.
    pub attention: Attention,
    /// The indexer of sparse attention.
    pub indexer: Option<Indexer>,
    /// Sizes of linear-attention layers.
    pub linear: Option<LinearAttention>,
    /// The experts, if any layer has some.
    pub moe: Option<Moe>,
    /// Inner width of a dense MLP.
    pub dense_width: u64,
    /// Matrices of an MLP: 3 with a gate, 2 without.
    pub mlp_matrices: u64,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// Number of multi-token-prediction layers.
    pub mtp_layers: u64,
    /// Index of `layers[0]` in the checkpoint's module names (draft layers follow the others).
    pub(crate) first_layer: usize,
    /// Precision of each module.
    pub quantization: Quantization,
    /// What was assumed while reading.
    pub notes: Vec<String>,
}

/// Sizes of softmax attention.
#[derive(Clone, Debug, PartialEq)]
pub enum Attention {
    /// Query heads that share key/value heads (MHA, GQA and MQA).
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key/value heads.
        kv_heads: u64,
        /// Elements of a query or key head.
        head: u64,
        /// Elements of a value head.
        value_head: u64,
        /// Whether the query projection also makes a gate of the output's size.
        gated: bool,
    },
    /// Multi-head latent attention: one latent per token for all heads.
    Latent {
        /// Heads.
        heads: u64,
        /// Rank of the query's low-rank form; `None` for one full matrix.
        q_rank: Option<u64>,
        /// Rank of the latent.
        kv_rank: u64,
        /// Elements of a head without position.
        nope: u64,
        /// Elements of a head with position, shared by all heads in the cache.
        rope: u64,
        /// Elements of a value head.
        value_head: u64,
    },
}

/// The indexer that picks the tokens sparse attention reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// Its heads.
    pub heads: u64,
    /// Elements of a head.
    pub head: u64,
    /// Tokens that it picks.
    pub topk: u64,
}

/// Sizes of gated delta-rule attention, whose state does not grow with the context.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearAttention {
    /// Key heads.
    pub key_heads: u64,
    /// Value heads.
    pub value_heads: u64,
    /// Elements of a key head.
    pub key_head: u64,
    /// Elements of a value head.
    pub value_head: u64,
    /// Taps of the short convolution.
    pub kernel: u64,
}

/// Sizes of a mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    /// Routed experts.
    pub experts: u64,
    /// Experts that a token goes to.
    pub topk: u64,
    /// Inner width of one routed expert.
    pub width: u64,
    /// Inner width of all shared experts together, 0 without any.
    pub shared_width: u64,
}

/// One decoder layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What it attends to.
    pub attention: Span,
    /// Whether it runs the indexer itself.
    pub indexer: bool,
    /// Whether its MLP is a mixture of experts.
    pub moe: bool,
}

/// What a layer's attention reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The whole context.
    Full,
    /// The last tokens only.
    Sliding(u64),
    /// The tokens that an indexer picks.
    Sparse(u64),
    /// A state of constant size.
    Linear,
}

impl ModelConfig {
    /// Reads a model from the text of its `config.json` and, if it has one, of its
    /// `hf_quant_config.json`.
    ///
    /// # Errors
    /// [`ConfigError`] names the file and the field.
    pub fn parse(config_json: &str, quant_json: Option<&str>) -> Result<Self, ConfigError> {
        let fields = Fields::parse(config_json)?;
        let separate = quant_json.map(|text| object(text, "hf_quant_config.json")).transpose()?;
        let quantization =
            Quantization::read(fields.value("quantization_config"), separate.as_ref())?;
        let mut notes = Vec::new();

        let architecture = fields.value("architectures").and_then(|list| list.get(0)?.as_str());
        let model_type = fields.text(&["model_type"]).or(architecture).unwrap_or("unknown");
        let model_type = model_type.to_owned();
        if !KNOWN.contains(&model_type.as_str()) {
            notes.push(format!(
                "model type `{model_type}` is not known: read as a plain decoder-only transformer"
            ));
        }
        let hidden = fields.required(&["hidden_size", "n_embd", "d_model", "dim"])?;
        let vocab = fields.required(&["vocab_size", "padded_vocab_size"])?;
        let count = fields.required(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?;
        if count > 10_000 {
            return Err(invalid("num_hidden_layers", &Value::from(count), "at most 10000"));
        }
        let attention = read_attention(&fields, &model_type, hidden)?;
        let linear = read_linear(&fields)?;
        let indexer = read_indexer(&fields, &attention)?;
        let layers = read_layers(&fields, &model_type, count, indexer.as_ref(), &mut notes)?;

        let dense =
            fields.number(&["intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim"])?;
        let moe = match layers.iter().any(|layer| layer.moe) {
            true => Some(read_moe(&fields, &model_type)?),
            false => None,
        };
        let dense_width = match dense {
            Some(width) => width,
            None if layers.iter().all(|layer| layer.moe) => 0,
            None if model_type == "gpt2" => 4 * hidden,
            None => fields.required(&["intermediate_size", "n_inner", "ffn_dim"])?,
        };
        let base = match fields.text(&["dtype", "torch_dtype"]) {
            Some(name) => Format::by_name(name).ok_or_else(|| {
                invalid("dtype", &Value::from(name), "a float type such as bfloat16")
            })?,
            None => {
                notes.push("the config states no dtype: bf16 assumed".to_owned());
                Format::bf16()
            }
        };
        let biased = ["attention_bias", "mlp_bias", "add_bias_linear", "use_bias"];
        if biased.iter().any(|name| fields.flag(name) == Some(true)) {
            notes.push("biases are not counted".to_owned());
        }
        if let Some(name) = fields.text(&["moe_router_dtype"])
            && Format::by_name(name).is_some_and(|format| format.bits > base.bits)
        {
            let counted = &base.name;
            notes.push(format!(
                "the router computes in {name}; its weights are counted as {counted}"
            ));
        }
        let tied = fields.flag("tie_word_embeddings");
        let tied_embeddings = tied.unwrap_or(model_type.starts_with("gemma"));
        let mtp_layers = fields
            .number(&["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"])?
            .unwrap_or(0);
        let ungated = ["gpt2", "opt", "gpt_neox", "falcon", "starcoder2", "nemotron", "bloom"];
        let mlp_matrices = if ungated.contains(&model_type.as_str()) { 2 } else { 3 };
        Ok(Self {
            model_type,
            hidden,
            vocab,
            tied_embeddings,
            base,
            attention,
            indexer,
            linear,
            moe,
            dense_width,
            mlp_matrices,
            layers,
            mtp_layers,
            first_layer: 0,
            quantization,
            notes,
        })
    }

    /// The draft model that the multi-token-prediction layer is: one layer like the last one, whose
    /// module names follow those of the other layers. `None` when the config has no such layer.
    #[must_use]
    pub fn draft(&self) -> Option<Self> {
        let last = (self.mtp_layers > 0).then(|| self.layers.last().copied()).flatten()?;
        let indexer = self.indexer.is_some() && matches!(last.attention, Span::Sparse(_));
        let layer = Layer { indexer, ..last };
        let first_layer = self.first_layer + self.layers.len();
        Some(Self { layers: vec![layer], first_layer, mtp_layers: 0, ..self.clone() })
    }
}

fn read_attention(
    fields: &Fields,
    model_type: &str,
    hidden: u64,
) -> Result<Attention, ConfigError> {
    let heads = fields.required(&["num_attention_heads", "n_head", "n_heads", "num_heads"])?;
    if let Some(kv_rank) = fields.number(&["kv_lora_rank"])?.filter(|rank| *rank > 0) {
        return Ok(Attention::Latent {
            heads,
            q_rank: fields.number(&["q_lora_rank"])?.filter(|rank| *rank > 0),
            kv_rank,
            nope: fields.required(&["qk_nope_head_dim"])?,
            rope: fields.required(&["qk_rope_head_dim"])?,
            value_head: fields.required(&["v_head_dim"])?,
        });
    }
    let stated = fields.number(&["head_dim", "attention_head_dim"])?.filter(|size| *size > 0);
    let head = stated.unwrap_or(hidden / heads).max(1);
    let names = ["num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"];
    let kv_heads = match fields.number(&names)? {
        Some(0) => return Err(invalid(names[0], &Value::from(0), "a positive number")),
        Some(kv_heads) => kv_heads,
        None if fields.flag("multi_query") == Some(true) => 1,
        None => heads,
    };
    let gated = fields.flag("attn_output_gate").unwrap_or(model_type == "qwen3_next");
    let value_head = fields.number(&["v_head_dim"])?.unwrap_or(head);
    Ok(Attention::Grouped { heads, kv_heads, head, value_head, gated })
}

fn read_linear(fields: &Fields) -> Result<Option<LinearAttention>, ConfigError> {
    let Some(key_heads) = fields.number(&["linear_num_key_heads"])? else {
        return Ok(None);
    };
    Ok(Some(LinearAttention {
        key_heads,
        value_heads: fields.required(&["linear_num_value_heads"])?,
        key_head: fields.required(&["linear_key_head_dim"])?,
        value_head: fields.required(&["linear_value_head_dim"])?,
        kernel: fields.number(&["linear_conv_kernel_dim"])?.unwrap_or(4),
    }))
}

/// The names under which families state the number of routed experts.
pub(crate) const EXPERTS: &[&str] =
    &["n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"];

fn read_moe(fields: &Fields, model_type: &str) -> Result<Moe, ConfigError> {
    let experts = fields.required(EXPERTS)?;
    let topk = fields.required(&[
        "num_experts_per_tok",
        "experts_per_token",
        "num_experts_per_token",
        "moe_topk",
        "moe_k",
        "top_k_experts",
    ])?;
    if topk > experts {
        return Err(invalid("num_experts_per_tok", &Value::from(topk), "at most the experts"));
    }
    let names = ["moe_intermediate_size", "expert_intermediate_size", "intermediate_size"];
    let width = fields.required(&names)?;
    let shared =
        fields.number(&["n_shared_experts", "num_shared_experts", "moe_num_shared_experts"])?;
    let shared_width = match fields.number(&["shared_expert_intermediate_size"])? {
        Some(width) => width,
        None if model_type.starts_with("llama4") => width,
        None => shared.unwrap_or(0) * width,
    };
    Ok(Moe { experts, topk, width, shared_width })
}
