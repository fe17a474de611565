//! What an analysis yields, as plain data. Field names are those of the JSON report.
//!
//! Lengths are integer nanoseconds (`_ns`), sizes bytes (`_bytes`), shares 0..1 (`_ratio`, `ratio`).
//! A mean over steps is a number of nanoseconds with a fraction. What is unknown is `null`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Everything that one run of the analysis found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Analysis {
    /// How far the numbers can be trusted.
    pub quality: Quality,
    /// The ranks that were read.
    pub ranks: Vec<RankSummary>,
    /// GPU use as recorded, one entry per rank and device; nothing is left out or repaired.
    pub devices: Vec<DeviceUse>,
    /// The steps.
    pub steps: StepTable,
    /// Where the time of the selected steps went.
    pub ledger: Ledger,
    /// Kernels and copies of the selected steps by name, most time first.
    pub kernels: Vec<KernelSummary>,
    /// Operators of the selected steps by name and input shapes, most GPU time first.
    pub ops: Vec<OpSummary>,
}

/// How far the numbers can be trusted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Quality {
    /// `A` (nothing found) to `E`; `F` when no verdict is supported.
    pub grade: Grade,
    /// Why no verdict about steps or utilisation can be given, if none can.
    pub refused: Option<Refusal>,
    /// Every check that was made.
    pub checks: Vec<Check>,
}

/// Trust in the numbers, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Grade {
    /// Nothing was found that changes a number.
    A,
    /// Up to 1 % of the events are affected.
    B,
    /// Up to 5 %.
    C,
    /// Up to 20 %.
    D,
    /// More.
    E,
    /// No verdict is supported.
    F,
}

/// A verdict that the trace cannot support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    /// Stable code: `gpu_not_traced`, `no_gpu_events`, `no_load`, `steps_without_gpu_events`.
    pub code: String,
    /// What is the matter, in one sentence.
    pub reason: String,
    /// What to do about it.
    pub hint: String,
}

/// Outcome of one quality check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// Nothing found.
    Pass,
    /// Found, and worth knowing; no number changes.
    Note,
    /// Found, and numbers change.
    Warn,
    /// The trace does not have what the check looks at.
    NotApplicable,
}

/// One quality check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// Stable code, such as `launches_without_gpu_work`.
    pub code: String,
    /// Its outcome.
    pub status: CheckStatus,
    /// How many events (or steps) are affected.
    pub count: u64,
    /// Of how many, where that makes sense.
    pub of: Option<u64>,
    /// What was found and what it does to the numbers, in one sentence.
    pub effect: String,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankSummary {
    /// Global rank; `null` when nothing says which.
    pub rank: Option<u32>,
    /// Where the rank was read: `distributed_info`, `process_prefix`, `file_name`,
    /// `process_title`, `device_order`.
    pub rank_source: Option<String>,
    /// The label of the rank in a merged trace or file name (`TP00-DP01`).
    pub label: Option<String>,
    /// The device with most GPU time, as the process numbers it.
    pub device: Option<u32>,
    /// Its product name.
    pub gpu_name: Option<String>,
    /// Ranks in the job.
    pub world_size: Option<u32>,
    /// Name of the process, where recorded.
    pub process_name: Option<String>,
    /// Number of events in the typed tables.
    pub event_count: u64,
    /// Whether part of its input could not be read.
    pub partial: bool,
}

/// GPU use of one device by one rank over the whole trace, raw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceUse {
    /// Global rank; `null` when unknown.
    pub rank: Option<u32>,
    /// Device ordinal as recorded; `null` when not recorded.
    pub device: Option<u32>,
    /// Number of kernels.
    pub kernel_count: u64,
    /// Number of copies and fills.
    pub copy_count: u64,
    /// Sum of kernel durations; overlaps count twice.
    pub kernel_sum_ns: i64,
    /// Union of the times in which a kernel ran.
    pub kernel_busy_ns: i64,
    /// Union of the times in which a kernel, copy or fill ran, or an opaque graph replay.
    pub gpu_busy_ns: i64,
    /// From the first start to the last end of any GPU work.
    pub gpu_span_ns: i64,
    /// What the quality gate leaves out of all later numbers.
    pub left_out: LeftOut,
}

/// GPU events that later numbers do without, or with a shorter duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Events at time zero while the rest is not.
    pub zero_time_count: u64,
    /// Events far away from the rest.
    pub stray_count: u64,
    /// Events that run far past the next start on their stream; they are cut there.
    pub clipped_count: u64,
    /// How much duration was cut.
    pub clipped_ns: i64,
}

/// A distribution over steps. Percentiles are nearest-rank, except the median, which is the mean
/// of the middle two for an even `n`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Selected {
    /// Their kind.
    pub kind: String,
    /// How many, over all ranks.
    pub n: u64,
    /// Batch size, when all of them have the same.
    pub batch_size: Option<u64>,
}

/// Periods of one rank's selected steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
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
}

/// What a ledger covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LedgerScope {
    /// The selected steps. All `per_step` figures are means over them.
    Steps,
    /// No steps: the whole window of GPU work, counted as one step per rank and device.
    WholeWindow,
    /// Nothing to account for.
    Empty,
}

/// Every nanosecond of the selected steps, each in exactly one account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Ledger {
    /// What it covers.
    pub scope: LedgerScope,
    /// Number of steps over all ranks (of windows, for a whole window).
    pub n: u64,
    /// The accounts, most time first. Their times add up to `sum_ns`.
    pub accounts: Vec<Account>,
    /// Share of kernel time (of GPU busy time in the ledger) that no category rule knows.
    pub uncategorised_ratio: Option<f64>,
    /// Share of the period that is idle without a known cause.
    pub unknown_idle_ratio: Option<f64>,
    /// Sum over the accounts.
    pub sum_ns: i64,
    /// Sum over the steps' periods. Always equal to `sum_ns`.
    pub period_sum_ns: i64,
    /// Communication that ran while a compute kernel ran: shown beside, in no account.
    pub hidden_communication_ns_per_step: f64,
    /// Copies and fills that ran while a kernel ran: shown beside, in no account.
    pub hidden_copy_ns_per_step: f64,
    /// What the host was doing during idle time that is its own doing, most time first.
    pub host_activity: Vec<HostActivity>,
}

/// Whose time an account is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountGroup {
    /// A compute kernel ran.
    Compute,
    /// A communication kernel ran and no compute kernel.
    Communication,
    /// A copy or fill ran and no kernel.
    Memory,
    /// A graph replay that was recorded as a whole.
    OpaqueGraph,
    /// Nothing ran.
    Idle,
}

/// One account of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Account {
    /// Category of kernel, `memcpy.*`, `memset`, `graph.opaque`, or `idle.*`.
    pub account: String,
    /// Its group.
    pub group: AccountGroup,
    /// Mean over steps.
    pub ns_per_step: f64,
    /// Share of the period.
    pub ratio: f64,
    /// Total over steps.
    pub total_ns: i64,
    /// Distribution over steps.
    pub per_step_ns: Distribution,
    /// Smallest and largest mean over the ranks, when there are several.
    pub rank_range_ns: Option<(f64, f64)>,
    /// What the account means.
    pub meaning: String,
}

/// What the host was doing while the GPU waited for it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostActivity {
    /// The idle account that this time is in.
    pub account: String,
    /// `api`, `op`, `frame`, `range`, `profiler` (its own overhead), or `nothing_recorded`.
    pub kind: String,
    /// Name of the innermost event on the launching thread; empty when nothing was recorded.
    pub name: String,
    /// The innermost range around it that is not the step's mark (`scheduler.run_batch`); empty
    /// when there is none.
    pub within: String,
    /// Mean over steps.
    pub ns_per_step: f64,
}

/// One kernel name (or kind of copy) over the selected steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
    /// Bytes moved or filled, for copies.
    pub bytes: Option<u64>,
    /// The operator that launches most of them.
    pub op: Option<String>,
    /// Its input shapes, as recorded.
    pub op_dims: Option<String>,
}

/// One operator with one set of input shapes over the selected steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
