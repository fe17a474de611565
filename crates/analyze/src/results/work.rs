//! Kernels and operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One kernel name (or kind of copy) over the selected steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelSummary {
    /// Name as recorded.
    pub name: String,
    /// Category, an account of the ledger.
    pub category: String,
    /// Number of calls.
    pub calls: u64,
    /// Mean number of calls per step.
    pub calls_per_step: f64,
    /// Sum of durations.
    pub total_ns: i64,
    /// Mean over steps.
    pub ns_per_step: f64,
    /// Share of the period. Sums of durations: overlaps count twice.
    pub ratio: f64,
    /// Median duration of a call.
    pub median_ns: f64,
    /// The most frequent grid; `null` for copies or when not recorded.
    pub grid: Option<[u32; 3]>,
    /// The most frequent block.
    pub block: Option<[u32; 3]>,
    /// How many different grids or blocks occur.
    pub config_count: u64,
    /// Where its first call is among the pieces of GPU work of the first step that has it,
    /// counted from 0.
    #[serde(default)]
    pub first_position: Option<u64>,
    /// Bytes moved or filled, for copies.
    pub bytes: Option<u64>,
    /// The operator that launches most of them.
    pub op: Option<String>,
    /// Its input shapes, as recorded.
    pub op_dims: Option<String>,
}

/// One operator with one set of input shapes over the selected steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpSummary {
    /// Operator name.
    pub name: String,
    /// Input shapes as recorded; empty when not.
    pub dims: String,
    /// Input types as recorded; empty when not.
    pub types: String,
    /// Number of calls.
    pub calls: u64,
    /// Mean number of calls per step.
    pub calls_per_step: f64,
    /// Time on the host, children included.
    pub host_total_ns: i64,
    /// Time on the host without child operators.
    pub host_self_ns: i64,
    /// Duration of the GPU work launched by it directly, not by its children.
    pub gpu_self_ns: i64,
    /// Duration of the GPU work launched by it or its children.
    pub gpu_total_ns: i64,
    /// `gpu_self_ns` per step.
    pub gpu_self_ns_per_step: f64,
}
