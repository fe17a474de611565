//! What one rank reads and computes in a decode step, part by part.

use schemars::JsonSchema;
use serde::Serialize;

use super::config::{Attention, LinearAttention, ModelConfig, Span};
use super::deployment::{Deployment, Precision, Sharding};
use super::experts::distinct_experts;
use super::quant::{ComputeType, Format};
use super::weights::{Part, Split, Weight};

/// How a part lies on the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Every rank has its own part of it.
    Sharded,
    /// Every rank of a group reads all of it.
    Replicated,
}

/// One row of the step before times are known: sums over the layers that have it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) part: Part,
    pub(crate) name: &'static str,
    pub(crate) format: Format,
    pub(crate) placement: Placement,
    pub(crate) layers: u32,
    pub(crate) bytes: f64,
    pub(crate) flops: f64,
}

/// The rows of one step; equal ones of several layers are added up.
pub(crate) struct Step<'a> {
    model: &'a ModelConfig,
    deployment: &'a Deployment,
    /// Requests of one attention group, and tokens per request.
    requests: f64,
    tokens_each: f64,
    rows: Vec<Row>,
}

impl<'a> Step<'a> {
    /// The step in which every request brings `tokens_each` new tokens.
    pub(crate) fn rows(
        model: &'a ModelConfig,
        deployment: &'a Deployment,
        tokens_each: f64,
    ) -> Vec<Row> {
        let requests = deployment.group_batch() as f64;
        let mut step = Self { model, deployment, requests, tokens_each, rows: Vec::new() };
        step.embedding();
        step.norms();
        for weight in model.weights() {
            step.weight(&weight);
        }
        for layer in &model.layers {
            step.cache(layer.attention, layer.indexer);
        }
        step.rows.retain(|row| !deployment.exclude.contains(&row.part));
        step.rows.sort_by_key(|row| row.part);
        step.rows
    }

    /// Tokens of one attention group.
    fn group_tokens(&self) -> f64 {
        self.requests * self.tokens_each
    }

    /// Tokens of all groups.
    fn all_tokens(&self) -> f64 {
        self.deployment.batch as f64 * self.tokens_each
    }

    fn add(&mut self, row: Row) {
        let same = |other: &&mut Row| {
            (other.part, other.name, other.placement) == (row.part, row.name, row.placement)
                && other.format == row.format
        };
        match self.rows.iter_mut().find(same) {
            Some(found) => {
                found.layers += row.layers;
                found.bytes += row.bytes;
                found.flops += row.flops;
            }
            None => self.rows.push(row),
        }
    }

    /// One row of the table per token.
    fn embedding(&mut self) {
        let format = self.model.base.clone();
        self.add(Row {
            part: Part::Embedding,
            name: "embedding row",
            placement: Placement::Replicated,
            layers: 1,
            bytes: self.group_tokens() * self.model.hidden as f64 * format.bytes(),
            flops: 0.0,
            format,
        });
    }

    /// Two norms a layer and the last one over the residual stream, and those over the low-rank
    /// query and the latent. Each reads its weight and its input and writes its output; 4 FLOP an
    /// element.
    fn norms(&mut self) {
        let layers = self.model.layers.len() as f64;
        let mut widths = (2.0 * layers + 1.0) * self.model.hidden as f64;
        if let Attention::Latent { q_rank, kv_rank, .. } = self.model.attention {
            widths += layers * (q_rank.unwrap_or(0) + kv_rank) as f64;
        }
        let format = self.model.base.clone();
        let tokens = self.group_tokens();
        self.add(Row {
            part: Part::Norms,
            name: "norms",
            placement: Placement::Replicated,
            layers: self.model.layers.len() as u32,
            bytes: widths * (1.0 + 2.0 * tokens) * format.bytes(),
            flops: 4.0 * widths * tokens,
            format,
        });
    }

    fn weight(&mut self, weight: &Weight) {
        let format = format_of(self.model, self.deployment, weight);
        let (share, placement) = share(self.model, self.deployment, weight.split);
        let (read, computed) = match weight.split {
            Split::Experts => {
                let tokens = self.all_tokens();
                let distinct = distinct_experts(weight.copies, weight.used, tokens);
                (distinct, weight.used * tokens)
            }
            Split::Ranks => (1.0, self.all_tokens()),
            Split::Replicated if weight.part == Part::Router => (1.0, self.all_tokens()),
            Split::Heads | Split::KvHeads | Split::Replicated => (1.0, self.group_tokens()),
        };
        self.add(Row {
            part: weight.part,
            name: weight.name,
            placement,
            layers: 1,
            bytes: weight.elements * share * read * format.bytes(),
            flops: 2.0 * weight.elements * share * computed,
            format,
        });
    }

    /// Reading and writing a layer's cache. Tokens of one request share what is read.
    fn cache(&mut self, span: Span, indexes: bool) {
        let context = self.deployment.context as f64;
        let ranks = f64::from(self.deployment.attention_tp());
        let (name, read) = match span {
            Span::Full => ("full", context),
            Span::Sliding(window) => ("sliding window", context.min(window as f64)),
            Span::Sparse(topk) => ("selected tokens", context.min(topk as f64)),
            Span::Linear => return self.state(),
        };
        // elements of one token on one rank, and FLOP per query token and cached token
        let (width, flops, placement) = match self.model.attention {
            Attention::Grouped { heads, kv_heads, head, value_head, .. } => {
                let size = (head + value_head) as f64;
                let kept = (kv_heads as f64 / ranks).max(1.0);
                let split = kv_heads as f64 >= ranks;
                let placement = if split { Placement::Sharded } else { Placement::Replicated };
                (kept * size, 2.0 * heads as f64 / ranks * size, placement)
            }
            Attention::Latent { heads, kv_rank, rope, .. } => {
                // absorbed form: scores over latent and rope, values over the latent
                let scored = (kv_rank + rope) as f64;
                let flops = 2.0 * heads as f64 / ranks * (scored + kv_rank as f64);
                (scored, flops, Placement::Replicated)
            }
        };
        let format = kv_format(self.model, self.deployment);
        let (tokens, layers) = (self.group_tokens(), 1);
        let written = Row {
            part: Part::KvWrite,
            name: "new tokens",
            placement,
            layers,
            bytes: tokens * width * format.bytes(),
            flops: 0.0,
            format: format.clone(),
        };
        self.add(Row {
            part: Part::KvRead,
            name,
            placement,
            layers,
            bytes: self.requests * read * width * format.bytes(),
            flops: tokens * read * flops,
            format,
        });
        self.add(written);
        if indexes {
            self.index_keys(context);
        }
    }

    /// FP8 keys with one 32-bit scale per 128 elements; every rank scores all heads.
    fn index_keys(&mut self, context: f64) {
        let Some(indexer) = &self.model.indexer else {
            return;
        };
        let key = indexer.head as f64 + 4.0 * indexer.head.div_ceil(128) as f64;
        let flops = 2.0 * (indexer.heads * indexer.head) as f64;
        let tokens = self.group_tokens();
        let (requests, placement) = (self.requests, Placement::Replicated);
        let row = |part, name, bytes, flops| Row {
            part,
            name,
            placement,
            layers: 1,
            bytes,
            flops,
            format: Format::fp8(),
        };
        let read = requests * context * key;
        self.add(row(Part::IndexKeys, "index keys", read, tokens * context * flops));
        self.add(row(Part::KvWrite, "new index keys", tokens * key, 0.0));
    }

    /// A 32-bit state of `value heads x key head x value head` per request, read and written; three
    /// products with it per token.
    fn state(&mut self) {
        let Some(linear) = &self.model.linear else {
            return;
        };
        let LinearAttention { value_heads, key_head, value_head, .. } = *linear;
        let ranks = f64::from(self.deployment.attention_tp());
        let size = (value_heads * key_head * value_head) as f64 / ranks;
        let (requests, tokens) = (self.requests, self.group_tokens());
        let row = |part, flops| Row {
            part,
            name: "linear attention state",
            placement: Placement::Sharded,
            layers: 1,
            bytes: requests * size * 4.0,
            flops,
            format: Format::fp32(),
        };
        self.add(row(Part::KvRead, 6.0 * size * tokens));
        self.add(row(Part::KvWrite, 0.0));
    }
}

/// The format of a weight under the deployment's assumption.
pub(crate) fn format_of(model: &ModelConfig, deployment: &Deployment, weight: &Weight) -> Format {
    let converted = match &deployment.precision {
        Precision::Published if weight.convertible => model.quantization.format_of(&weight.module),
        Precision::Uniform(format) if weight.convertible && weight.part != Part::LmHead => {
            Some(format)
        }
        _ => None,
    };
    converted.unwrap_or(&model.base).clone()
}

/// The format of the KV cache.
pub(crate) fn kv_format(model: &ModelConfig, deployment: &Deployment) -> Format {
    let stated = deployment.kv_format.as_ref().or(match deployment.precision {
        Precision::Published => model.quantization.cache(),
        Precision::Uniform(_) => None,
    });
    let format = stated.unwrap_or(&model.base).clone();
    // products with a cached value narrower than 8 bits run in 8
    Format { compute: format.compute.min(ComputeType::Fp8), ..format }
}

/// The share of a weight that one rank reads.
pub(crate) fn share(
    model: &ModelConfig,
    deployment: &Deployment,
    split: Split,
) -> (f64, Placement) {
    let (ranks, group) = (f64::from(deployment.tp), f64::from(deployment.attention_tp()));
    if deployment.sharding == Sharding::Ideal {
        return (1.0 / ranks, Placement::Sharded);
    }
    match split {
        Split::Heads => (1.0 / group, Placement::Sharded),
        Split::KvHeads => match model.attention {
            Attention::Grouped { kv_heads, .. } if (kv_heads as f64) < group => {
                (1.0 / kv_heads as f64, Placement::Replicated)
            }
            _ => (1.0 / group, Placement::Sharded),
        },
        Split::Replicated => (1.0, Placement::Replicated),
        Split::Ranks | Split::Experts => (1.0 / ranks, Placement::Sharded),
    }
}
