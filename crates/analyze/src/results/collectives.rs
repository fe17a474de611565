//! Communication between ranks: what it costs, and who waits for whom.

use schemars::JsonSchema;
use serde::Serialize;

use super::Distribution;

/// The communication kernels of the selected steps.
///
/// A step whose first collective mostly waits for another rank's recording to begin (see
/// [`WindowStart`]) is in `steps` but in no mean or distribution here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Collectives {
    /// Number of communication kernels over all ranks and steps, those of left-out steps included.
    pub count: u64,
    /// How many of them are in steps that are left out because of the window's start.
    pub left_out_count: u64,
    /// Per rank and device.
    pub ranks: Vec<RankCollectives>,
    /// By category, message size and place in the step, most time first.
    pub sizes: Vec<CollectiveSize>,
    /// Collectives at a window's start that mostly wait for another rank's recording to begin.
    pub window_starts: Vec<WindowStart>,
    /// Ranks against each other; `null` when `no_cross_rank` says why not.
    pub cross_rank: Option<CrossRank>,
    /// Why waiting cannot be told from transfer.
    pub no_cross_rank: Option<String>,
    /// Every step of every rank.
    pub steps: Vec<StepCollectives>,
}

/// Communication of one rank. Means are over its steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankCollectives {
    /// Global rank.
    pub rank: Option<u32>,
    /// Device.
    pub device: Option<u32>,
    /// Number of steps.
    pub n: u64,
    /// Communication kernels per step.
    pub count_per_step: f64,
    /// Message bytes per step; `null` when the size of any of them is not known.
    pub bytes_per_step: Option<f64>,
    /// Sum of durations per step.
    pub ns_per_step: f64,
    /// Part of it during which no compute kernel ran on the device.
    pub exposed_ns_per_step: f64,
    /// Part of it during which a compute kernel ran on the device.
    pub hidden_ns_per_step: f64,
}

/// Communication of one rank in one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepCollectives {
    /// Global rank.
    pub rank: Option<u32>,
    /// Device.
    pub device: Option<u32>,
    /// The step's `index` among the steps of the rank; `null` for a whole window.
    pub step: Option<u64>,
    /// Communication kernels.
    pub count: u64,
    /// Message bytes; `null` when the size of any of them is not known.
    pub bytes: Option<u64>,
    /// Sum of durations: `exposed_ns` + `hidden_ns`.
    pub total_ns: i64,
    /// Part without a compute kernel beside it.
    pub exposed_ns: i64,
    /// Part with one.
    pub hidden_ns: i64,
    /// Kernels that were matched over ranks.
    pub matched_count: u64,
    /// Of the matched kernels' durations: until the last rank arrived. With `transfer_ns` it is
    /// the sum of their durations.
    pub wait_ns: i64,
    /// Of the matched kernels' durations: after the last rank arrived.
    pub transfer_ns: i64,
    /// Whether means and distributions do without it, see [`WindowStart`].
    pub left_out: bool,
}

/// Where in its step a collective is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectivePlace {
    /// The rank's first of the step: it takes up what the ranks drifted apart between steps.
    FirstOfStep,
    /// Any other.
    Steady,
}

/// Communication kernels of one category, message size and place.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CollectiveSize {
    /// Category of kernel.
    pub category: String,
    /// Message size: elements x size of the type, the larger of what is given and received; `null`
    /// when neither the recorded collective nor the launching operator's shapes say.
    pub bytes: Option<u64>,
    /// Ranks that take part; `null` when not known.
    pub group_size: Option<u32>,
    /// First of the step, or another.
    pub place: CollectivePlace,
    /// Duration of a kernel, waiting included.
    pub duration_ns: Distribution,
    /// Sum of durations.
    pub total_ns: i64,
    /// Part of it without a compute kernel beside it.
    pub exposed_ns: i64,
    /// Duration after the last rank arrived, of the kernels that were matched over ranks.
    pub transfer_ns: Option<Distribution>,
    /// Bytes over time: over the median of `transfer_ns`, else of `duration_ns`.
    pub algbw_bytes_per_s: Option<f64>,
    /// What each link carries: `algbw` x 2(n-1)/n for an all-reduce, x (n-1)/n for all-gather,
    /// reduce-scatter and all-to-all, x 1 for point-to-point; `null` when n is not known.
    pub busbw_bytes_per_s: Option<f64>,
    /// Whether the two bandwidths are over transfer alone; else waiting is in them.
    pub bandwidth_of_transfer: bool,
}

/// A collective at the start of a rank's recording that is far longer than the later ones.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WindowStart {
    /// The rank that waits.
    pub rank: Option<u32>,
    /// Its device.
    pub device: Option<u32>,
    /// The rank that arrives last; `null` when that cannot be told.
    pub late_rank: Option<u32>,
    /// Category of the kernel.
    pub category: String,
    /// How long it waits; its whole duration when waiting cannot be told from transfer.
    pub window_start_wait_ns: i64,
    /// Median of the same figure over the comparable collectives later.
    pub steady_ns: f64,
    /// `index` of the step it is in, which is left out of means and distributions on every rank
    /// that takes part; `null` for a whole window, of which only this collective is left out.
    pub step: Option<u64>,
}

/// How collectives, or steps, of different ranks were taken to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MatchedBy {
    /// Process group and sequence number, as recorded.
    Sequence,
    /// Order within the step, per process group (if recorded) and category.
    OrderInStep,
    /// Order within the whole window, per process group (if recorded) and category.
    OrderInWindow,
    /// Some by sequence number, others by order.
    Mixed,
}

/// How the steps of a rank were matched with those of the reference rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepsMatchedBy {
    /// It is the reference.
    Reference,
    /// Only with this offset do the collectives end together.
    CollectiveEnds,
    /// By the clock, which the ranks share.
    Clock,
    /// By number; the counts are equal.
    Order,
    /// By number from the end; the counts differ and no clock is shared.
    OrderFromEnd,
}

/// Ranks against each other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CrossRank {
    /// How collectives were matched.
    pub matched_by: MatchedBy,
    /// Collectives matched over ranks.
    pub matched_count: u64,
    /// Kernels without a partner.
    pub unmatched_count: u64,
    /// Steps and kinds of collective whose number differs between ranks (their collectives are
    /// among the unmatched): the first 20.
    pub mismatches: Vec<CollectiveMismatch>,
    /// How many such there are.
    pub mismatch_count: u64,
    /// How the clocks were aligned.
    pub clocks: Vec<RankClock>,
    /// Largest uncertainty of any clock: shorter lateness is not told apart from none.
    pub uncertainty_ns: i64,
    /// Number of matched collectives that the figures below are about.
    pub n: u64,
    /// Collectives at which no rank was last by more than the uncertainty.
    pub together_count: u64,
    /// From the first rank's arrival to the last one's.
    pub skew_ns: Option<Distribution>,
    /// Who waits and who is waited for.
    pub ranks: Vec<RankArrival>,
    /// What the hosts of late ranks were doing.
    pub late: Vec<LateRank>,
    /// By place in the step, where steps are alike: in which layer the ranks drift apart.
    pub positions: Vec<PositionWait>,
}

/// Collectives of one kind whose number differs between ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CollectiveMismatch {
    /// `index` of the step on the first rank of `counts`; `null` for a whole window.
    pub step: Option<u64>,
    /// Category of kernel.
    pub category: String,
    /// Process group; empty when not recorded.
    pub process_group: String,
    /// (rank, number of them).
    pub counts: Vec<(Option<u32>, u64)>,
}

/// How one rank's clock relates to the reference's. Ranks that meet only one another have a
/// reference among themselves: the first of them, with a residual of 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RankClock {
    /// Global rank.
    pub rank: Option<u32>,
    /// Device.
    pub device: Option<u32>,
    /// How its steps were matched; `null` when it has none in common, or sequence numbers do.
    pub steps_matched_by: Option<StepsMatchedBy>,
    /// How many of its steps come before the reference's first one (negative: after).
    pub step_shift: i64,
    /// What the traces say: difference of the origins of their clocks; `null` when not recorded.
    pub base_offset_ns: Option<i64>,
    /// Median over matched collectives by how much this rank's ends come later than the
    /// reference's after that. It is taken out before ranks are compared.
    pub residual_ns: Option<i64>,
    /// 90th percentile of the distance from that median; `null` without an anchor.
    pub uncertainty_ns: Option<i64>,
    /// Number of collectives that anchor it.
    pub n: u64,
    /// Why the rank is not compared with others.
    pub not_aligned: Option<String>,
}

/// One rank's arrivals at collectives.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankArrival {
    /// Global rank.
    pub rank: Option<u32>,
    /// Device.
    pub device: Option<u32>,
    /// Matched kernels.
    pub n: u64,
    /// Total time in which it waited for a later rank.
    pub wait_ns: i64,
    /// The rest of its matched kernels' durations.
    pub transfer_ns: i64,
    /// `wait_ns` per step.
    pub wait_ns_per_step: f64,
    /// `transfer_ns` per step.
    pub transfer_ns_per_step: f64,
    /// Median transfer of a kernel.
    pub median_transfer_ns: f64,
    /// Collectives at which it was last by more than the uncertainty.
    pub last_count: u64,
    /// Their share of its matched collectives.
    pub last_ratio: f64,
    /// Mean of how much it came after the next to last rank, where it was last.
    pub lateness_ns: Option<f64>,
    /// Sum of that per step: what every other rank would gain if it were on time.
    pub lateness_ns_per_step: f64,
}

/// Why a rank is late, over the collectives at which it is last.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LateRank {
    /// Global rank.
    pub rank: Option<u32>,
    /// Device.
    pub device: Option<u32>,
    /// Collectives at which it is last.
    pub n: u64,
    /// Sum of its lateness.
    pub lateness_ns: i64,
    /// Of that, the host's: by so much more than the next to last rank's GPU its own stood idle for
    /// the next launch since the collective before.
    pub host_late_ns: i64,
    /// Of that, the rest: its GPU was busy, or started what was launched, for longer.
    pub gpu_late_ns: i64,
    /// Of that, where no launch call was recorded.
    pub unknown_ns: i64,
    /// Median launch delay: from the start of the launch call to the start of the kernel.
    pub median_launch_delay_ns: Option<f64>,
    /// Where the host is late: what it did while the GPU stood idle for the next launch since the
    /// collective before; the five that take most time.
    pub host_activity: Vec<LateActivity>,
}

/// What a late rank's host was doing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LateActivity {
    /// `api`, `op`, `frame`, `range`, `profiler` (its own overhead), or `nothing_recorded`.
    pub kind: String,
    /// Name of the innermost event on the launching thread; empty when nothing was recorded.
    pub name: String,
    /// The innermost range around it that is not the step's mark; empty when there is none.
    pub within: String,
    /// Total time.
    pub total_ns: i64,
    /// Mean over the rank's steps.
    pub ns_per_step: f64,
}

/// Waiting at one place of the step.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PositionWait {
    /// Position among the step's collectives, from 0.
    pub position: u64,
    /// Collectives in the step.
    pub of: u64,
    /// Category of kernel.
    pub category: String,
    /// Message size.
    pub bytes: Option<u64>,
    /// Matched collectives at this place.
    pub n: u64,
    /// Mean over them of the time from the first rank's arrival to the last one's.
    pub skew_ns: f64,
    /// Mean over ranks and collectives of the transfer.
    pub transfer_ns: f64,
    /// The rank that is last most often, if any is last by more than the uncertainty.
    pub late_rank: Option<u32>,
    /// Share of the collectives at which it is.
    pub late_ratio: f64,
}
