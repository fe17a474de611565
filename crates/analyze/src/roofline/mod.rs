//! The least time that a decode step can take, from the model's config and the GPU's limits.
//!
//! ```text
//! T = sum over parts max(bytes / (BW eta), FLOP / peak)  +  sum over collectives n max(latency, ring / link)
//! ```
//!
//! per rank, without overlap between parts. Bytes are those that device memory must deliver: weights
//! once per step (routed experts by the expected number of distinct ones), the KV cache, and the
//! norms' activations. [`roofline`] also lists every assumption, to be shown beside the bound.
//!
//! ```text
//! config.json, hf_quant_config.json -> ModelConfig --+
//! hardware.toml -> Gpu, Measured --------------------+--> Roofline { components, collectives, .. }
//! tp, batch, context, .. -> Deployment --------------+
//! ```

mod assumptions;
mod cast;
mod collectives;
mod config;
mod deployment;
mod experts;
mod fields;
mod hardware;
mod layers;
mod measured;
mod pattern;
mod per_layer;
mod quant;
mod step;
mod weights;

use schemars::JsonSchema;
use serde::Serialize;

pub use cast::{PoolCast, pool_cast};
pub use collectives::Collective;
pub use config::{Attention, ConfigError, Indexer, Layer, LinearAttention, ModelConfig, Moe, Span};
pub use deployment::{Deployment, Precision, RooflineError, Sharding, Speculation};
pub use experts::{busiest_group, distinct_experts};
pub use hardware::{Figure, Gpu, Hardware, HardwareError, OtherFigure, Realism};
pub use measured::{Measured, MeasuredAllReduce, MeasuredError, MeasuredOperation};
pub use per_layer::{LayerBounds, layer_bounds};
pub use quant::{ComputeType, Format, Quantization};
pub use step::Placement;
pub use weights::{Parameters, Part};

use step::{Row, Step};

/// No decode step takes an hour: a longer bound is of a batch, context or latency that was mistyped.
const LONGEST_STEP_NS: i64 = 3_600_000_000_000;

/// The bound of a decode step on one rank.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Roofline {
    /// The model's type.
    pub model: String,
    /// The GPU's name.
    pub gpu: String,
    /// How it is served.
    pub deployment: Deployment,
    /// Parameter counts.
    pub parameters: Parameters,
    /// Memory bandwidth that was used, in bytes a second, `memory_bandwidth_ratio` not yet applied.
    pub memory_bytes_per_s: f64,
    /// Weights that lie on one rank, all experts included.
    pub resident_weights_bytes: u64,
    /// Experts that the step touches, if the model has some.
    pub experts: Option<ExpertLoad>,
    /// The parts of the step.
    pub components: Vec<Component>,
    /// Its collectives.
    pub collectives: Vec<Collective>,
    /// Bytes of all components.
    pub memory_bytes: u64,
    /// FLOP of all components.
    pub total_flops: u64,
    /// Time of all components.
    pub components_ns: i64,
    /// Time of all collectives.
    pub collectives_ns: i64,
    /// The least time of a step: components and collectives.
    pub step_ns: i64,
    /// Tokens a second of all requests: batch / step, with speculation the accepted ones.
    pub tokens_per_s: f64,
    /// Speculative decoding, if it was asked for.
    pub speculation: Option<SpeculationBound>,
    /// All that was assumed.
    pub assumptions: Vec<String>,
}

/// One part of the step, summed over the layers that have it in this format.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Component {
    /// Which part.
    pub part: Part,
    /// Which matrix or access of the part.
    pub name: String,
    /// How its values are stored.
    pub format: String,
    /// How it lies on the ranks.
    pub placement: Placement,
    /// Layers that have it; 1 for what the model has once.
    pub layers: u32,
    /// Bytes that one rank reads and writes.
    pub memory_bytes: u64,
    /// FLOP of one rank.
    pub total_flops: u64,
    /// `max(bytes / bandwidth, FLOP / peak)`.
    pub time_ns: i64,
    /// Which of the two it is.
    pub bound: Bound,
}

/// What a time is due to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Bytes over memory bandwidth.
    Memory,
    /// FLOP over peak.
    Compute,
    /// A constant per operation.
    Latency,
    /// Bytes over the link between GPUs.
    Link,
}

/// Distinct routed experts that one layer's step touches, expected under uniform routing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExpertLoad {
    /// Of the whole model.
    pub distinct: f64,
    /// On each group of ranks that holds whole experts, on average. This is what the bound counts.
    pub per_group: f64,
    /// On the busiest of those groups.
    pub busiest_group: f64,
}

/// The bound of a step with speculation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SpeculationBound {
    /// Verifying: the step with `draft_tokens + 1` tokens per request.
    pub verify_ns: i64,
    /// Drafting: `draft_tokens` passes through the draft layer and the output head.
    pub draft_ns: i64,
    /// Time per accepted token of one request: `(verify + draft) / accepted_tokens`.
    pub accepted_token_ns: f64,
}

/// The least time of a decode step of `model` on GPUs of kind `gpu` served as `deployment` states.
/// What was measured comes before the data file's figures, what the deployment states before both.
///
/// With [`Deployment::speculation`] the components and collectives are those of the verifying step,
/// and `step_ns` holds drafting too.
///
/// # Errors
/// [`RooflineError`] when the deployment is not possible.
pub fn roofline(
    model: &ModelConfig,
    gpu: &Gpu,
    deployment: &Deployment,
    measured: &Measured,
) -> Result<Roofline, RooflineError> {
    deployment.check()?;
    let limits = Limits::new(gpu, deployment, measured);
    let tokens_each = deployment.speculation.map_or(1.0, |s| f64::from(s.draft_tokens) + 1.0);
    let components = limits.components(Step::rows(model, deployment, tokens_each));
    let collectives = collectives::collectives(model, gpu, deployment, measured, tokens_each);
    let components_ns = components.iter().fold(0, |ns: i64, c| ns.saturating_add(c.time_ns));
    let collectives_ns = collectives.iter().fold(0, |ns: i64, c| ns.saturating_add(c.time_ns));
    let verify_ns = components_ns.saturating_add(collectives_ns);
    if verify_ns > LONGEST_STEP_NS {
        return Err(RooflineError::TooLong { seconds: verify_ns as f64 / 1e9 });
    }
    let speculation = deployment.speculation.map(|plan| {
        let draft_ns = draft_pass_ns(model, &limits).saturating_mul(i64::from(plan.draft_tokens));
        let accepted_token_ns = verify_ns.saturating_add(draft_ns) as f64 / plan.accepted_tokens;
        SpeculationBound { verify_ns, draft_ns, accepted_token_ns }
    });
    let step_ns = verify_ns.saturating_add(speculation.as_ref().map_or(0, |s| s.draft_ns));
    if step_ns > LONGEST_STEP_NS {
        return Err(RooflineError::TooLong { seconds: step_ns as f64 / 1e9 });
    }
    let accepted = deployment.speculation.map_or(1.0, |plan| plan.accepted_tokens);
    let resident = model.weights().into_iter().map(|weight| {
        let format = step::format_of(model, deployment, &weight);
        let share = step::share(model, deployment, weight.split).0;
        weight.elements * weight.copies * share * format.bytes()
    });
    let table = if model.tied_embeddings { 0.0 } else { 1.0 } / f64::from(deployment.tp);
    let table = model.hidden as f64 * model.vocab as f64 * model.base.bytes() * table;
    let mut result = Roofline {
        model: model.model_type.clone(),
        gpu: gpu.name.clone(),
        deployment: deployment.clone(),
        parameters: model.parameters(),
        memory_bytes_per_s: limits.memory_bytes_per_s,
        resident_weights_bytes: (resident.sum::<f64>() + table).round() as u64,
        experts: expert_load(model, deployment, tokens_each),
        memory_bytes: components.iter().map(|c| c.memory_bytes).fold(0, u64::saturating_add),
        total_flops: components.iter().map(|c| c.total_flops).fold(0, u64::saturating_add),
        components,
        collectives,
        components_ns,
        collectives_ns,
        step_ns,
        tokens_per_s: deployment.batch as f64 * accepted / (step_ns.max(1) as f64 / 1e9),
        speculation,
        assumptions: Vec::new(),
    };
    result.assumptions = assumptions::assumptions(model, gpu, measured, &result);
    Ok(result)
}

/// One pass of one token per request through the draft layer, with its projection (two hidden states
/// to one) and the output head; nothing when the model has no draft layer.
fn draft_pass_ns(model: &ModelConfig, limits: &Limits<'_>) -> i64 {
    let Some(draft) = model.draft() else { return 0 };
    let deployment = limits.deployment;
    let mut rows = Step::rows(&draft, deployment, 1.0);
    let matrix = 2.0 * model.hidden as f64 * model.hidden as f64;
    rows.push(Row {
        part: Part::DraftProjection,
        name: "eh_proj",
        format: model.base.clone(),
        placement: Placement::Replicated,
        layers: 1,
        bytes: matrix * model.base.bytes(),
        flops: 2.0 * matrix * deployment.group_batch() as f64,
    });
    let components = limits.components(rows);
    let collectives =
        collectives::collectives(&draft, limits.gpu, deployment, limits.measured, 1.0);
    let times = components.iter().map(|c| c.time_ns);
    times.chain(collectives.iter().map(|c| c.time_ns)).fold(0, i64::saturating_add)
}

fn expert_load(
    model: &ModelConfig,
    deployment: &Deployment,
    tokens_each: f64,
) -> Option<ExpertLoad> {
    let moe = model.moe.as_ref()?;
    let tokens = deployment.batch as f64 * tokens_each;
    let (experts, topk) = (moe.experts as f64, moe.topk as f64);
    let distinct = distinct_experts(experts, topk, tokens);
    Some(ExpertLoad {
        distinct,
        per_group: distinct / f64::from(deployment.ep),
        busiest_group: busiest_group(experts, topk, tokens, deployment.ep),
    })
}

/// The rates that turn bytes and FLOP into time.
struct Limits<'a> {
    gpu: &'a Gpu,
    deployment: &'a Deployment,
    measured: &'a Measured,
    memory_bytes_per_s: f64,
}

impl<'a> Limits<'a> {
    fn new(gpu: &'a Gpu, deployment: &'a Deployment, measured: &'a Measured) -> Self {
        let stated = deployment.memory_bytes_per_s.or(measured.copy_bytes_per_s);
        let memory_bytes_per_s = stated.unwrap_or(gpu.memory_gb_s.value * 1e9);
        Self { gpu, deployment, measured, memory_bytes_per_s }
    }

    fn components(&self, rows: Vec<Row>) -> Vec<Component> {
        let bandwidth = self.memory_bytes_per_s * self.deployment.memory_bandwidth_ratio;
        let timed = rows.into_iter().map(|row| {
            let (peak, _) = self.gpu.peak(row.format.compute, self.measured);
            let (memory_s, compute_s) = (row.bytes / bandwidth, row.flops / peak);
            Component {
                part: row.part,
                name: row.name.to_owned(),
                format: row.format.name,
                placement: row.placement,
                layers: row.layers,
                memory_bytes: row.bytes.round() as u64,
                total_flops: row.flops.round() as u64,
                time_ns: (memory_s.max(compute_s) * 1e9).round() as i64,
                bound: if compute_s > memory_s { Bound::Compute } else { Bound::Memory },
            }
        });
        timed.collect()
    }
}
