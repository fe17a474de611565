//! What an analysis yields, as plain data. Field names are those of the JSON report.
//!
//! Lengths are integer nanoseconds (`_ns`), sizes bytes (`_bytes`), shares 0..1 (`_ratio`, `ratio`).
//! A mean over steps is a number of nanoseconds with a fraction. What is unknown is `null`.

mod baseline;
mod collectives;
mod copies;
mod devices;
mod diff;
mod findings;
mod launches;
mod layers;
mod ledger;
mod quality;
mod ranges;
mod steps;
mod work;

use schemars::JsonSchema;
use serde::Serialize;

pub use baseline::{Baseline, TpotSpread};
pub use collectives::{
    CollectiveMismatch, CollectivePlace, CollectiveSize, Collectives, CrossRank, LateActivity,
    LateRank, MatchedBy, PositionWait, RankArrival, RankClock, RankCollectives, StepCollectives,
    StepsMatchedBy, WindowStart,
};
pub use copies::{Copies, CopySummary, SizeTrend};
pub use devices::{DeviceUse, LeftOut, RankSummary};
pub use diff::{
    AccountDiff, Agreement, Bound, Change, Comparability, ComparabilityCheck, DecidedBy, Diff,
    DiffSide, Effect, Fate, GateOutcome, KernelDiff, KernelSide, PairedBy, Reason, Verdict,
    Waterfall,
};
pub use findings::{Evidence, Finding, Findings, RuleOutcome, Saving, SavingMethod};
pub use launches::{ApiSummary, Launches};
pub use layers::{LayerRole, LayerTime, Layers, ModuleTime, Modules};
pub use ledger::{Account, AccountGroup, Gap, GapCause, HostActivity, Ledger, LedgerScope};
pub use quality::{Check, CheckStatus, Grade, Quality, Refusal};
pub use ranges::RangeSummary;
pub use steps::{Confidence, Distribution, RankSteps, Selected, Step, StepTable};
pub use work::{KernelSummary, OpSummary};

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
    /// What is wrong, why, and what fixing it is worth.
    pub findings: Findings,
    /// Where the time of the selected steps went.
    pub ledger: Ledger,
    /// What the host asked of the GPU in the selected steps.
    pub launches: Launches,
    /// Kernels and copies of the selected steps by name, most time first.
    pub kernels: Vec<KernelSummary>,
    /// Communication between ranks in the selected steps, and who waits for whom.
    pub collectives: Collectives,
    /// The layers of the model in the selected steps; `null` when there are no steps or no layers.
    pub layers: Option<Layers>,
    /// What the selected steps cast, copy and fill.
    pub copies: Copies,
    /// Ranges of the host projected onto the GPU, most GPU time first.
    pub ranges: Vec<RangeSummary>,
    /// Operators of the selected steps by name and input shapes, most GPU time first.
    pub ops: Vec<OpSummary>,
}
