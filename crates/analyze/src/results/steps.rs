//! Steps and their distribution.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution over steps. Percentiles are nearest-rank, except the median, which is the mean
/// of the middle two for an even `n`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Number of values.
    pub n: u64,
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// How sure the step boundaries are.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// There are no steps.
    None,
    /// A guess.
    Low,
    /// A regular pattern of the GPU work.
    Medium,
    /// The engine marked them.
    High,
}

/// The steps of all ranks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StepTable {
    /// `marks.sglang`, `marks.vllm`, `marks.profiler_step`, `marks.pattern`, `marks.generic`,
    /// `graph_launches`, `kernel_sequence`, `gaps`, or `none`.
    pub detected_by: String,
    /// How sure.
    pub confidence: Confidence,
    /// How they were found, in one sentence.
    pub explanation: String,
    /// Number of steps by kind over all ranks, before any is left out. A step of a kind that is
    /// not known is under the mark's own name.
    pub kinds: BTreeMap<String, u64>,
    /// The steps that ledger, kernels and ops are about; `null` when there are none.
    pub selected: Option<Selected>,
    /// Steps that have no period and are left out: the last one of each rank, and first ones that
    /// began before the capture.
    pub cut_count: u64,
    /// Steps of the wanted kind that are left out as a collective in them waits for a rank whose
    /// recording began later (see `collectives.window_starts`).
    #[serde(default)]
    pub window_start_count: u64,
    /// Steps of the wanted kind that are left out as they take over 3 times the median of their
    /// rank and are at most one in ten (see [`Step::outlier`]); none where steps were asked for.
    #[serde(default)]
    pub outlier_count: u64,
    /// Period of the selected steps over all ranks: from the start of a step's first GPU work to
    /// the start of the next step's.
    pub period_ns: Option<Distribution>,
    /// Union of GPU work within the period.
    pub gpu_busy_ns: Option<Distribution>,
    /// The same per rank.
    pub ranks: Vec<RankSteps>,
    /// Every step, in order of rank and time.
    pub steps: Vec<Step>,
}

/// Which steps were selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Selected {
    /// Their kind.
    pub kind: String,
    /// How many, over all ranks.
    pub n: u64,
    /// Batch size, when all of them have the same.
    pub batch_size: Option<u64>,
}

/// Periods of one rank's selected steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankSteps {
    /// Global rank.
    pub rank: Option<u32>,
    /// Device the steps run on.
    pub device: Option<u32>,
    /// Period.
    pub period_ns: Distribution,
    /// Union of GPU work within it.
    pub gpu_busy_ns: Distribution,
}

/// One step of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Global rank.
    pub rank: Option<u32>,
    /// Device it runs on.
    pub device: Option<u32>,
    /// Position among the rank's steps of any kind.
    pub index: u64,
    /// `extend`, `decode`, `mixed`, `verify`, `draft`, `idle`, or the mark's own name.
    pub kind: String,
    /// Batch size, when the mark says so.
    pub batch_size: Option<u64>,
    /// Start of its first GPU work, on the trace's clock; `null` when it has none.
    pub start_ns: Option<i64>,
    /// Its period; `null` when it is cut.
    pub period_ns: Option<i64>,
    /// Union of GPU work within its period.
    pub gpu_busy_ns: Option<i64>,
    /// Whether it is among the selected.
    pub selected: bool,
    /// Whether it would be, but takes so long that it would falsify the means of the others.
    #[serde(default)]
    pub outlier: bool,
}
