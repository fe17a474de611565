//! The collectives of a decode step: how many, how large, how long at least.

use schemars::JsonSchema;
use serde::Serialize;

use super::Bound;
use super::config::ModelConfig;
use super::deployment::Deployment;
use super::hardware::Gpu;
use super::measured::Measured;

/// All collectives of one kind in a step.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Collective {
    /// What they do and where.
    pub name: String,
    /// How many a step has.
    pub count: u64,
    /// Ranks that take part in each.
    pub ranks: u32,
    /// Size of the vector that one is about.
    pub message_bytes: u64,
    /// `count x message_bytes`.
    pub payload_bytes: u64,
    /// What a ring sends per rank in a step: the payload times 2 (N-1)/N for an all-reduce, times
    /// (N-1)/N for an all-gather or a reduce-scatter.
    pub ring_bytes: u64,
    /// Least time of one without regard to its size.
    pub latency_ns: f64,
    /// Least time of all: `count x max(latency, ring bytes of one / link)`.
    pub time_ns: i64,
    /// What the time is due to.
    pub bound: Bound,
}

/// The collectives of a step in which every request brings `tokens_each` tokens: one all-reduce after
/// attention and one after the MLP of each layer; with data-parallel attention the MLP's is an
/// all-gather before it and a reduce-scatter after it.
pub(crate) fn collectives(
    model: &ModelConfig,
    gpu: &Gpu,
    deployment: &Deployment,
    measured: &Measured,
    tokens_each: f64,
) -> Vec<Collective> {
    let layers = model.layers.len() as u64;
    let row = model.hidden as f64 * model.base.bytes() * tokens_each;
    let group = deployment.group_batch() as f64 * row;
    let all = group * f64::from(deployment.attention_dp);
    let (tp, attention_tp) = (deployment.tp, deployment.attention_tp());
    let kinds: &[(&str, u64, u32, f64, f64)] = match deployment.attention_dp {
        1 => &[("all-reduce after attention and after MLP", 2 * layers, tp, all, 2.0)],
        _ => &[
            ("all-reduce after attention", layers, attention_tp, group, 2.0),
            ("all-gather before MLP", layers, tp, all, 1.0),
            ("reduce-scatter after MLP", layers, tp, all, 1.0),
        ],
    };
    let kinds = kinds.iter().filter(|(_, _, ranks, ..)| *ranks > 1);
    let read = kinds.map(|&(name, count, ranks, message, passes)| {
        let ring = message * passes * f64::from(ranks - 1) / f64::from(ranks);
        let known = deployment.all_reduce_ns.map(|ns| ns as f64);
        let timed = known.is_none().then(|| measured.all_reduce_ns(ranks, message)).flatten();
        let latency_ns = known.or(timed).unwrap_or(gpu.all_reduce_us.value * 1e3);
        let link_ns = match timed {
            Some(_) => 0.0, // the measured time has the transfer in it
            None => ring / gpu.link_gb_s.value,
        };
        Collective {
            name: name.to_owned(),
            count,
            ranks,
            message_bytes: message.round() as u64,
            payload_bytes: (message * count as f64).round() as u64,
            ring_bytes: (ring * count as f64).round() as u64,
            latency_ns,
            time_ns: (count as f64 * latency_ns.max(link_ns)).round() as i64,
            bound: if link_ns > latency_ns { Bound::Link } else { Bound::Latency },
        }
    });
    read.collect()
}
