//! What an analysis yields, as plain data. Field names are those of the JSON report.
//!
//! Lengths are integer nanoseconds (`_ns`), sizes bytes (`_bytes`), shares 0..1 (`_ratio`, `ratio`).
//! A mean over steps is a number of nanoseconds with a fraction. What is unknown is `null`.

mod baseline;
mod bound_gap;
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
mod replays;
mod steps;
mod work;

use schemars::JsonSchema;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::{Section, Sections};

pub use baseline::{Baseline, Dilation, TpotSpread};
pub use bound_gap::{
    Alone, AloneRow, BoundGap, Component, GapAccount, GapComponent, GapCopy, GapKind, GapLayer,
    GapLayers, GapRow, UnprofiledStep,
};
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
pub use findings::{
    EventCost, Evidence, Finding, Findings, ProfilerCost, ProfilerCostBasis, RuleOutcome, Saving,
    SavingMethod, UnprofiledSaving,
};
pub use launches::{ApiSummary, Launches};
pub use layers::{LayerRole, LayerTime, Layers, ModuleTime, Modules};
pub use ledger::{Account, AccountGroup, Gap, GapCause, HostActivity, Ledger, LedgerScope};
pub use quality::{Check, CheckStatus, Grade, Quality, Refusal};
pub use ranges::RangeSummary;
pub use replays::{GraphNode, GraphReplays};
pub use steps::{Confidence, Distribution, RankSteps, Selected, Step, StepTable};
pub use work::{KernelSummary, OpSummary};

/// Everything that one run of the analysis found.
///
/// Its JSON form leaves out the keys of the sections that were not asked for.
#[derive(Clone, Debug, JsonSchema)]
pub struct Analysis {
    /// The sections that are here; the keys of others are not, and their fields may be empty.
    #[schemars(with = "Vec<String>")]
    pub sections: Sections,
    /// How far the numbers can be trusted.
    pub quality: Quality,
    /// The ranks that were read.
    pub ranks: Vec<RankSummary>,
    /// GPU use as recorded, one entry per rank and device; nothing is left out or repaired.
    pub devices: Vec<DeviceUse>,
    /// The steps.
    pub steps: StepTable,
    /// The steps against what was measured without a profiler; `null` when nothing was, or nothing that
    /// is about these steps: the check `profiler_dilation` says which.
    pub dilation: Option<Dilation>,
    /// What is wrong, why, and what fixing it is worth.
    pub findings: Findings,
    /// Where the time of the selected steps went.
    pub ledger: Ledger,
    /// The gaps that make up 95 % of the idle time, by what runs before and after, most time first.
    pub gaps: Vec<Gap>,
    /// What the host asked of the GPU in the selected steps.
    pub launches: Launches,
    /// CUDA graphs replayed in the selected steps, with their nodes, most GPU time first.
    pub replays: Vec<GraphReplays>,
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

impl Serialize for Analysis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            sections,
            quality,
            ranks,
            devices,
            steps,
            dilation,
            findings,
            ledger,
            gaps,
            launches,
            replays,
            kernels,
            collectives,
            layers,
            copies,
            ranges,
            ops,
        } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sections", sections)?;
        map.serialize_entry("quality", quality)?;
        map.serialize_entry("ranks", ranks)?;
        map.serialize_entry("dilation", dilation)?;
        macro_rules! sections {
            ($($section:ident $field:ident),* $(,)?) => {$(
                if sections.has(Section::$section) {
                    map.serialize_entry(Section::$section.name(), $field)?;
                }
            )*};
        }
        sections! {
            Devices devices, Steps steps, Findings findings, Ledger ledger, Gaps gaps,
            Launches launches, Replays replays, Kernels kernels, Collectives collectives, Layers layers,
            Copies copies, Ranges ranges, Ops ops,
        }
        map.end()
    }
}
