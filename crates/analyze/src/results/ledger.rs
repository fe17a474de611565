//! The ledger.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Distribution;

/// What a ledger covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// All gaps between the same two pieces of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The kernel or copy that ends before the gap; empty at the start of a window.
    pub after: String,
    /// The kernel or copy that ends the gap; empty at the end of the trace.
    pub before: String,
    /// Whether the gap ends at the first work of the next step.
    pub ends_step: bool,
    /// Mean number per step.
    pub count_per_step: f64,
    /// Mean time per step.
    pub ns_per_step: f64,
    /// Median length.
    pub median_ns: f64,
    /// Largest length.
    pub max_ns: i64,
    /// Its idle accounts, most time first.
    pub causes: Vec<GapCause>,
    /// What the host was doing in it, most time first, at most five.
    pub host_activity: Vec<HostActivity>,
}

/// An idle account's part of a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapCause {
    /// The account.
    pub account: String,
    /// Mean time per step.
    pub ns_per_step: f64,
}
