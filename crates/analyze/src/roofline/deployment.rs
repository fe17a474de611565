//! How a model is served, and what to assume about it.

use schemars::JsonSchema;
use serde::Serialize;

use super::quant::Format;
use super::weights::Part;

/// How a model is served. One rank is one GPU.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Deployment {
    /// Ranks of one tensor-parallel group: all GPUs of the deployment.
    pub tp: u32,
    /// Groups that hold different experts; 1 splits every expert over all ranks.
    pub ep: u32,
    /// Groups that attend to different requests (data-parallel attention); 1 without it.
    pub attention_dp: u32,
    /// Requests in one decode step, over all ranks.
    pub batch: u64,
    /// Tokens of each request that are in the KV cache.
    pub context: u64,
    /// The KV cache's format; `None`: what the checkpoint asks for, else the model's type.
    pub kv_format: Option<Format>,
    /// Share of the memory bandwidth that is taken as reachable (0..=1).
    pub memory_bandwidth_ratio: f64,
    /// Memory bandwidth to use instead of the measured one and of the data file's.
    pub memory_bytes_per_s: Option<f64>,
    /// Least time of one collective, to use instead of the measured one and of the data file's.
    pub all_reduce_ns: Option<i64>,
    /// In which precision the weights are.
    pub precision: Precision,
    /// Which weights every rank reads in full.
    pub sharding: Sharding,
    /// Parts that are left out.
    pub exclude: Vec<Part>,
    /// Speculative decoding with the model's own draft layer.
    pub speculation: Option<Speculation>,
}

/// In which precision the weights are.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// As the checkpoint states, module by module.
    Published,
    /// Every matrix in one format, but the router and the output head in the model's own type.
    Uniform(Format),
}

/// Which weights every rank reads in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// As serving engines do: the low-rank projections of latent attention, the indexer and the
    /// router are replicated, key/value heads too where there are fewer of them than ranks.
    Served,
    /// Every matrix is split evenly over all ranks.
    Ideal,
}

/// Speculative decoding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Speculation {
    /// Tokens drafted per step; the step then verifies one more.
    pub draft_tokens: u32,
    /// Tokens that a step yields per request on average, the verified one included.
    pub accepted_tokens: f64,
}

impl Deployment {
    /// A tensor-parallel deployment with nothing else assumed.
    #[must_use]
    pub fn new(tp: u32, batch: u64, context: u64) -> Self {
        Self {
            tp,
            ep: 1,
            attention_dp: 1,
            batch,
            context,
            kv_format: None,
            memory_bandwidth_ratio: 1.0,
            memory_bytes_per_s: None,
            all_reduce_ns: None,
            precision: Precision::Published,
            sharding: Sharding::Served,
            exclude: Vec::new(),
            speculation: None,
        }
    }

    /// Ranks that share the attention of one request.
    #[must_use]
    pub fn attention_tp(&self) -> u32 {
        self.tp / self.attention_dp.max(1)
    }

    /// Requests of the busiest attention group.
    pub(crate) fn group_batch(&self) -> u64 {
        self.batch.div_ceil(u64::from(self.attention_dp.max(1)))
    }

    pub(crate) fn check(&self) -> Result<(), RooflineError> {
        let positive = [
            ("tp", u64::from(self.tp)),
            ("ep", u64::from(self.ep)),
            ("attention_dp", u64::from(self.attention_dp)),
            ("batch", self.batch),
        ];
        if let Some((field, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(RooflineError::Zero { field });
        }
        for (field, groups) in [("ep", self.ep), ("attention_dp", self.attention_dp)] {
            if !self.tp.is_multiple_of(groups) {
                return Err(RooflineError::Uneven { field, groups, tp: self.tp });
            }
        }
        let ratio = self.memory_bandwidth_ratio;
        if !(ratio > 0.0 && ratio <= 1.0) {
            return Err(RooflineError::Range {
                field: "memory_bandwidth_ratio",
                value: ratio,
                range: "above 0 and at most 1",
            });
        }
        let bandwidth = self.memory_bytes_per_s.filter(|b| !(b.is_finite() && *b > 0.0));
        if let Some(value) = bandwidth {
            let range = "a positive number";
            return Err(RooflineError::Range { field: "memory_bytes_per_s", value, range });
        }
        if let Some(value) = self.all_reduce_ns.filter(|ns| *ns < 0) {
            let (field, value, range) = ("all_reduce_ns", value as f64, "at least 0");
            return Err(RooflineError::Range { field, value, range });
        }
        if let Some(speculation) = self.speculation {
            let most = f64::from(speculation.draft_tokens) + 1.0;
            let value = speculation.accepted_tokens;
            if !(1.0..=most).contains(&value) {
                let range = "between 1 and the drafted tokens plus one";
                return Err(RooflineError::Range { field: "accepted_tokens", value, range });
            }
        }
        Ok(())
    }
}

/// Why no bound can be given.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RooflineError {
    /// A count is zero.
    #[error("roofline: `{field}` is 0")]
    Zero {
        /// The count's name.
        field: &'static str,
    },
    /// Groups do not divide the ranks.
    #[error("roofline: {tp} ranks cannot form {groups} equal groups (`{field}`)")]
    Uneven {
        /// Which groups.
        field: &'static str,
        /// How many.
        groups: u32,
        /// The ranks.
        tp: u32,
    },
    /// A number is outside its range.
    #[error("roofline: `{field}` is {value}, must be {range}")]
    Range {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        range: &'static str,
    },
    /// The bound is no time that a decode step takes.
    #[error(
        "roofline: a step would take at least {seconds:.3e} s, which no decode step does\nhint: check \
         the batch size, the context, the bandwidth and the time of an all-reduce"
    )]
    TooLong {
        /// The bound in seconds.
        seconds: f64,
    },
}
