//! Before against after.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AccountGroup, Baseline, Confidence, Distribution, Grade};

/// Two analyses against each other. Every change is B minus A.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// Whether a step takes longer in B.
    pub verdict: Verdict,
    /// What the verdict rests on.
    pub decided_by: DecidedBy,
    /// Why it is that, what decides first.
    pub reasons: Vec<Reason>,
    /// What a reader should know that does not change the verdict.
    pub cautions: Vec<Reason>,
    /// Whether both are the same capture.
    pub same_capture: bool,
    /// Whether the two can be compared.
    pub comparability: Comparability,
    /// The one before.
    pub a: DiffSide,
    /// The one after.
    pub b: DiffSide,
    /// Change of the median period, as profiled; `null` when a side has none.
    pub period: Option<Change>,
    /// Change of the median GPU busy time within a period.
    pub gpu_busy: Option<Change>,
    /// Change of the median TPOT without a profiler; `null` unless both sides have one.
    pub tpot: Option<Change>,
    /// Where the change of the mean period is; `null` when a side has no steps.
    pub waterfall: Option<Waterfall>,
    /// Kernels and copies of both sides, largest change first.
    pub kernels: Vec<KernelDiff>,
}

/// What became of a step's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It grew.
    Regression,
    /// It shrank.
    Improvement,
    /// It is the same within the noise.
    Neutral,
    /// The two captures do not tell.
    Inconclusive,
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// TPOT without a profiler.
    Tpot,
    /// Periods and GPU busy times as profiled.
    Profile,
    /// Nothing could be compared.
    Nothing,
}

/// One reason, or one caution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Stable code, such as `gpu_busy_differs`.
    pub code: String,
    /// What is the matter, in one sentence.
    pub text: String,
}

/// What can delay a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The GPU is busy for more than 90 % of the step.
    Gpu,
    /// The host: TPOT says that the profiler adds little.
    Host,
    /// The profiler: the step takes over 10 % longer than TPOT without it.
    Profiler,
    /// The GPU mostly waits for the host, and nothing tells how much of that is the profiler's.
    HostOrProfiler,
    /// Neither: dependencies, gaps within graphs, or unknown.
    Other,
}

/// One of the two, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiffSide {
    /// Kind of step.
    pub kind: Option<String>,
    /// Number of steps over all ranks.
    pub n: u64,
    /// Batch size.
    pub batch_size: Option<u64>,
    /// Number of ranks.
    pub rank_count: u64,
    /// Products that the ranks run on, each once.
    pub gpu_names: Vec<String>,
    /// Layers of the model, when found.
    pub layer_count: Option<u64>,
    /// Trust in the numbers.
    pub grade: Grade,
    /// How sure the step boundaries are.
    pub confidence: Confidence,
    /// Period, as profiled.
    pub period_ns: Option<Distribution>,
    /// Union of GPU work within it.
    pub gpu_busy_ns: Option<Distribution>,
    /// Median busy time over median period.
    pub busy_ratio: Option<f64>,
    /// Events that the profiler recorded, per step of any kind.
    pub events_per_step: Option<f64>,
    /// What was measured without a profiler.
    pub baseline: Option<Baseline>,
    /// Median period over median TPOT.
    pub dilation_ratio: Option<f64>,
    /// What bounds the step as profiled; `null` without steps.
    pub bound: Option<Bound>,
}

/// Whether two analyses are about the same kind of thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparability {
    /// 1 when nothing speaks against it; less by the `penalty` of each check, not below 0.
    pub score: f64,
    /// Below this score there is no verdict.
    pub threshold: f64,
    /// Whether the score reaches the threshold.
    pub comparable: bool,
    /// Whether the user wants a verdict all the same.
    pub forced: bool,
    /// What was compared.
    pub checks: Vec<ComparabilityCheck>,
}

/// One thing that two comparable captures share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparabilityCheck {
    /// Stable code: `kind`, `batch_size`, `context`, `model`, `layers`, `ranks`, `gpu`, `categories`,
    /// `kernel_names`, `detection`, `quality`.
    pub code: String,
    /// What was found.
    pub outcome: Agreement,
    /// What it takes off the score.
    pub penalty: f64,
    /// What A has.
    pub a: String,
    /// What B has.
    pub b: String,
    /// Share that both have, for sets.
    pub shared_ratio: Option<f64>,
}

/// Outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The same, or near enough.
    Same,
    /// Different.
    Differs,
    /// A side does not say.
    Unknown,
}

/// Change of a median from A to B.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Median of A.
    pub a_ns: f64,
    /// Median of B.
    pub b_ns: f64,
    /// B minus A.
    pub change_ns: f64,
    /// The same over A; `null` when A is 0.
    pub change_ratio: Option<f64>,
    /// 95 % interval of `change_ns`: bootstrap over steps, of all ranks together; `null` with fewer
    /// than 3 steps a side, and for TPOT.
    pub interval_ns: Option<(f64, f64)>,
    /// Changes up to this are noise: 2 % of A, or the spread within a side when that is larger (median
    /// absolute deviation over steps; for TPOT half of what lies between smallest and 90th percentile).
    pub noise_floor_ns: f64,
    /// What the change amounts to.
    pub effect: Effect,
}

/// What a change amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Longer: above the noise floor, and the interval does not hold 0.
    Longer,
    /// Shorter, likewise.
    Shorter,
    /// The interval lies within the noise floor.
    Unchanged,
    /// None of these.
    Unclear,
}

/// Where the change of the mean period is: the accounts of the two ledgers, one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waterfall {
    /// Steps of A.
    pub a_n: u64,
    /// Steps of B.
    pub b_n: u64,
    /// Sum over the periods of A.
    pub a_sum_ns: i64,
    /// Sum over the periods of B.
    pub b_sum_ns: i64,
    /// `b_sum_ns / b_n - a_sum_ns / a_n`, rounded to whole nanoseconds, half up.
    pub change_ns: i64,
    /// The accounts, largest change first. Their `change_ns` add up to the one above exactly.
    pub rows: Vec<AccountDiff>,
}

/// What became of an account or a kernel.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Only in B.
    Appeared,
    /// Only in A.
    Vanished,
    /// In both, with another time (over 2 % of the larger) or number of calls.
    Changed,
    /// In both, alike.
    Same,
}

/// One account of both ledgers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountDiff {
    /// The account.
    pub account: String,
    /// Its group.
    pub group: AccountGroup,
    /// What became of it.
    pub fate: Fate,
    /// Total over the steps of A.
    pub a_total_ns: i64,
    /// Total over the steps of B.
    pub b_total_ns: i64,
    /// Change of the mean per step in whole nanoseconds: rounded down or up, so that the rows add
    /// up (largest remainder).
    pub change_ns: i64,
}

/// How a kernel of A and one of B were taken to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PairedBy {
    /// The same name.
    Name,
    /// Another name with the same role: category, calls per step, place in the step, operator, grid.
    Role,
}

/// A kernel of A, one of B, or both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelDiff {
    /// What became of it.
    pub fate: Fate,
    /// How the two were paired; `null` when there is only one.
    pub paired_by: Option<PairedBy>,
    /// Whether the most frequent grid or block is another one.
    pub launch_changed: bool,
    /// In A.
    pub a: Option<KernelSide>,
    /// In B.
    pub b: Option<KernelSide>,
    /// Change of the sum of durations per step.
    pub change_ns_per_step: f64,
    /// Change of the number of calls per step.
    pub change_calls_per_step: f64,
}

/// A kernel on one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelSide {
    /// Name as recorded.
    pub name: String,
    /// Category.
    pub category: String,
    /// Mean number of calls per step.
    pub calls_per_step: f64,
    /// Sum of durations per step.
    pub ns_per_step: f64,
    /// Median duration of a call.
    pub median_ns: f64,
    /// The most frequent grid.
    pub grid: Option<[u32; 3]>,
    /// The most frequent block.
    pub block: Option<[u32; 3]>,
}

/// What came of a gate that the user asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateOutcome {
    /// The gate as written.
    pub gate: String,
    /// Whether it holds, which means failure.
    pub holds: bool,
    /// The measure in A; `null` when not known and not needed.
    pub a_ns: Option<f64>,
    /// The measure in B.
    pub b_ns: f64,
    /// What was compared with the limit: nanoseconds, or a share of A for limits in percent. `null`
    /// for a share of nothing: A is 0 and B is not.
    pub value: Option<f64>,
    /// Whether `value` is a share of A.
    pub relative: bool,
}
