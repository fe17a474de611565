//! Casts, copies, concatenations and fills.

use schemars::JsonSchema;
use serde::Serialize;

/// What moves or converts data without computing, over the selected steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Copies {
    /// Peak bandwidth of the device's memory in bytes per second; `null` when unknown.
    pub memory_bandwidth_bytes_per_s: Option<f64>,
    /// Where that is from: `trace`, `hardware_table`.
    pub memory_bandwidth_source: Option<String>,
    /// Tokens in flight per step, as far as known: the batch size of the steps, else the smallest
    /// first dimension of a matrix product's input.
    pub tokens_in_flight: Option<u64>,
    /// Sum of durations per step.
    pub ns_per_step: f64,
    /// By kernel, operator, shapes and types, most time first.
    pub rows: Vec<CopySummary>,
}

/// How the size of a copy develops from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SizeTrend {
    /// The same in every step.
    Constant,
    /// Larger from step to step, never smaller: it grows with the context.
    Growing,
    /// Neither.
    Varying,
}

/// One kind of copy.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CopySummary {
    /// Kernel name or kind of copy, as recorded.
    pub name: String,
    /// Category, an account of the ledger.
    pub category: String,
    /// The operator that launches it.
    pub op: Option<String>,
    /// The operator's input shapes, as recorded.
    pub op_dims: Option<String>,
    /// The operator's input types, as recorded.
    pub op_types: Option<String>,
    /// Number of calls.
    pub calls: u64,
    /// Mean number of calls per step.
    pub calls_per_step: f64,
    /// Sum of durations.
    pub total_ns: i64,
    /// Mean over steps.
    pub ns_per_step: f64,
    /// Share of the period.
    pub ratio: f64,
    /// Median duration of a call.
    pub median_ns: f64,
    /// Elements that a call goes over, from its launch configuration and rounded up to whole blocks;
    /// only where no operator says what it moves (graph replays, operators that were not recorded).
    pub elements: Option<u64>,
    /// Whether a graph launch asks for it, and no operator.
    pub in_graph: bool,
    /// Bytes that a call reads (mean).
    pub read_bytes: Option<f64>,
    /// Bytes that a call writes (mean).
    pub written_bytes: Option<f64>,
    /// Why the bytes are not known, when they are not.
    pub bytes_unknown: Option<String>,
    /// Type of the elements read: `float8_e5m2`.
    pub source_dtype: Option<String>,
    /// Type of the elements written: `bfloat16`.
    pub destination_dtype: Option<String>,
    /// Bytes read and written over duration, in bytes per second.
    pub achieved_bytes_per_s: Option<f64>,
    /// Its share of the device's memory bandwidth; not for copies to or from the host.
    pub bandwidth_ratio: Option<f64>,
    /// How its size develops from step to step; `null` with one step or without sizes.
    pub size_trend: Option<SizeTrend>,
    /// The layers that ask for it; empty when layers are unknown or it is in none.
    pub layers: Vec<u64>,
    /// Whether it goes over a whole pool (a KV cache) instead of the tokens in flight.
    pub pool_sized: bool,
    /// What says so.
    pub pool_reason: Option<String>,
}
