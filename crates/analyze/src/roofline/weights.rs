//! Every weight matrix of a model: its size, its module's name and how it is split over ranks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::{Attention, ModelConfig, Span};

/// A part of the decode step.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// One row of the embedding per token.
    Embedding,
    /// The norms over the residual stream and the latents.
    Norms,
    /// The matrices around attention.
    AttentionProjections,
    /// The matrices of the indexer.
    Indexer,
    /// The indexer's keys of the whole context.
    IndexKeys,
    /// Reading the KV cache, or the state of linear attention, and attention itself.
    KvRead,
    /// Writing the new tokens' keys and values.
    KvWrite,
    /// The router's matrix.
    Router,
    /// The experts that the tokens go to.
    RoutedExperts,
    /// The experts that every token goes to.
    SharedExperts,
    /// MLPs without experts.
    DenseMlp,
    /// The projection in front of a draft layer.
    DraftProjection,
    /// The output head.
    LmHead,
}

impl Part {
    /// All that is not a matrix: leaving these out gives the bound of the weights alone.
    pub const BESIDE_WEIGHTS: [Self; 5] =
        [Self::Embedding, Self::Norms, Self::IndexKeys, Self::KvRead, Self::KvWrite];
}

/// Which ranks hold a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Each of the attention's ranks holds a part of the heads.
    Heads,
    /// Each holds a part of the key/value heads, at least one.
    KvHeads,
    /// Every rank holds all of it.
    Replicated,
    /// Each of all ranks holds a part.
    Ranks,
    /// As [`Ranks`](Self::Ranks), with whole experts apart under expert parallelism.
    Experts,
}

/// One weight matrix (or all experts' matrices) of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    pub(crate) part: Part,
    pub(crate) name: &'static str,
    /// The module's name in the checkpoint.
    pub(crate) module: String,
    /// Elements of one copy.
    pub(crate) elements: f64,
    /// Copies, and copies that one token uses.
    pub(crate) copies: f64,
    pub(crate) used: f64,
    pub(crate) split: Split,
    /// Whether a quantised checkpoint may quantise it.
    pub(crate) convertible: bool,
}

/// Parameter counts, without the draft layers, biases and norms of single heads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Parameters {
    /// All of them.
    pub total: u64,
    /// Those that one token reads: the experts that it goes to, the output head, not the embedding.
    pub active: u64,
    /// Those of the indexer, which are in both numbers above.
    pub indexer: u64,
}

impl ModelConfig {
    /// Counts the model's parameters.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let (mut total, mut active, mut indexer) = (0.0, 0.0, 0.0);
        for weight in self.weights() {
            total += weight.elements * weight.copies;
            active += weight.elements * weight.used;
            if weight.part == Part::Indexer {
                indexer += weight.elements;
            }
        }
        if !self.tied_embeddings {
            total += self.hidden as f64 * self.vocab as f64;
        }
        Parameters { total: total as u64, active: active as u64, indexer: indexer as u64 }
    }

    /// The weights that a step reads, layer by layer, then the output head.
    pub(crate) fn weights(&self) -> Vec<Weight> {
        let mut list = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let prefix = format!("model.layers.{}", self.first_layer + at);
            match layer.attention {
                Span::Linear => self.linear_weights(&prefix, &mut list),
                _ => self.attention_weights(&prefix, &mut list),
            }
            if layer.indexer {
                self.indexer_weights(&prefix, &mut list);
            }
            self.mlp_weights(&prefix, layer.moe, &mut list);
        }
        let head = self.hidden as f64 * self.vocab as f64;
        let mut head = matrix(Part::LmHead, "lm_head", "lm_head".into(), head, Split::Ranks);
        head.convertible = !self.tied_embeddings;
        list.push(head);
        list
    }

    fn attention_weights(&self, prefix: &str, list: &mut Vec<Weight>) {
        let hidden = self.hidden as f64;
        let mut push = |name: &'static str, elements: f64, split: Split| {
            let module = format!("{prefix}.self_attn.{name}");
            list.push(matrix(Part::AttentionProjections, name, module, elements, split));
        };
        match self.attention {
            Attention::Grouped { heads, kv_heads, head, value_head, gated } => {
                let (heads, kv_heads) = (heads as f64, kv_heads as f64);
                let (head, value_head) = (head as f64, value_head as f64);
                let gate = if gated { heads * value_head } else { 0.0 };
                push("q_proj", hidden * (heads * head + gate), Split::Heads);
                push("k_proj", hidden * kv_heads * head, Split::KvHeads);
                push("v_proj", hidden * kv_heads * value_head, Split::KvHeads);
                push("o_proj", heads * value_head * hidden, Split::Heads);
            }
            Attention::Latent { heads, q_rank, kv_rank, nope, rope, value_head } => {
                let (heads, kv_rank) = (heads as f64, kv_rank as f64);
                let (nope, rope, value_head) = (nope as f64, rope as f64, value_head as f64);
                match q_rank.map(|rank| rank as f64) {
                    Some(rank) => {
                        push("q_a_proj", hidden * rank, Split::Replicated);
                        push("q_b_proj", rank * heads * (nope + rope), Split::Heads);
                    }
                    None => push("q_proj", hidden * heads * (nope + rope), Split::Heads),
                }
                push("kv_a_proj_with_mqa", hidden * (kv_rank + rope), Split::Replicated);
                push("kv_b_proj", kv_rank * heads * (nope + value_head), Split::Heads);
                push("o_proj", heads * value_head * hidden, Split::Heads);
            }
        }
    }

    fn linear_weights(&self, prefix: &str, list: &mut Vec<Weight>) {
        let Some(linear) = &self.linear else { return };
        let hidden = self.hidden as f64;
        let keys = (linear.key_heads * linear.key_head) as f64;
        let values = (linear.value_heads * linear.value_head) as f64;
        for (name, elements, convertible) in [
            ("in_proj_qkvz", hidden * 2.0 * (keys + values), true),
            ("in_proj_ba", hidden * 2.0 * linear.value_heads as f64, true),
            ("conv1d", (2.0 * keys + values) * linear.kernel as f64, false),
            ("out_proj", values * hidden, true),
        ] {
            let module = format!("{prefix}.linear_attn.{name}");
            let part = Part::AttentionProjections;
            list.push(Weight { convertible, ..matrix(part, name, module, elements, Split::Heads) });
        }
    }

    fn indexer_weights(&self, prefix: &str, list: &mut Vec<Weight>) {
        let Some(indexer) = &self.indexer else { return };
        let Attention::Latent { q_rank: Some(rank), .. } = self.attention else {
            return;
        };
        let (heads, head) = (indexer.heads as f64, indexer.head as f64);
        let hidden = self.hidden as f64;
        for (name, elements, convertible) in [
            ("wq_b", rank as f64 * heads * head, true),
            ("wk", hidden * head, true),
            ("weights_proj", hidden * heads, false),
        ] {
            let module = format!("{prefix}.self_attn.indexer.{name}");
            let weight = matrix(Part::Indexer, name, module, elements, Split::Replicated);
            list.push(Weight { convertible, ..weight });
        }
    }

    fn mlp_weights(&self, prefix: &str, sparse: bool, list: &mut Vec<Weight>) {
        let row = self.hidden as f64 * self.mlp_matrices as f64;
        let Some(moe) = self.moe.as_ref().filter(|_| sparse) else {
            let module = format!("{prefix}.mlp.down_proj");
            let elements = row * self.dense_width as f64;
            list.push(matrix(Part::DenseMlp, "mlp", module, elements, Split::Ranks));
            return;
        };
        let (experts, topk) = (moe.experts as f64, moe.topk as f64);
        let router = self.hidden as f64 * experts;
        let module = format!("{prefix}.mlp.gate");
        let router = matrix(Part::Router, "router", module, router, Split::Replicated);
        list.push(Weight { convertible: false, ..router });
        let module = format!("{prefix}.mlp.experts.0.down_proj");
        let elements = row * moe.width as f64;
        let routed = matrix(Part::RoutedExperts, "experts", module, elements, Split::Experts);
        list.push(Weight { copies: experts, used: topk, ..routed });
        if moe.shared_width > 0 {
            let one = self.model_type.starts_with("qwen");
            let experts = if one { "shared_expert" } else { "shared_experts" };
            let module = format!("{prefix}.mlp.{experts}.down_proj");
            let elements = row * moe.shared_width as f64;
            let part = Part::SharedExperts;
            list.push(matrix(part, "shared experts", module, elements, Split::Ranks));
        }
    }
}

fn matrix(part: Part, name: &'static str, module: String, elements: f64, split: Split) -> Weight {
    Weight { part, name, module, elements, copies: 1.0, used: 1.0, split, convertible: true }
}
