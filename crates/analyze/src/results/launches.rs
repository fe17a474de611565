//! Launches and other API calls.

use schemars::JsonSchema;
use serde::Serialize;

use super::Distribution;

/// What the host asked of the GPU, over the selected steps.
///
/// A call belongs to a step when it begins between the step's mark and the next step's mark; without
/// marks, when it begins within the step's period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Launches {
    /// Calls that launch one kernel, per step.
    pub kernel_launches_per_step: f64,
    /// Calls that launch a graph, per step.
    pub graph_launches_per_step: f64,
    /// Share of the selected steps in which a graph was launched; `null` without API calls.
    pub graph_step_ratio: Option<f64>,
    /// Share of the GPU's time (sum of durations) in work that graph launches asked for; `null`
    /// without API calls or work.
    pub graph_time_ratio: Option<f64>,
    /// Calls in which the host waits for the GPU, per step.
    pub syncs_per_step: f64,
    /// Calls that allocate or free device memory, per step.
    pub allocations_per_step: f64,
    /// Time in all API calls, per step.
    pub api_ns_per_step: f64,
    /// From the start of a launch call to the start of the first work it launched.
    pub delay_ns: Option<Distribution>,
    /// The same where nothing was running or queued when the call was made: launch latency alone.
    pub latency_ns: Option<Distribution>,
    /// Work launched and not yet started, seen at each launch.
    pub queue_depth: Option<Distribution>,
    /// Share of the launches that were made when nothing was running or queued: the host was the
    /// bound.
    pub host_bound_ratio: Option<f64>,
    /// API calls by name, most time first.
    pub calls: Vec<ApiSummary>,
}

/// One API function over the selected steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ApiSummary {
    /// Function name.
    pub name: String,
    /// `launch`, `graph_launch`, `copy`, `blocking_copy`, `sync`, `allocation` or `other`.
    pub class: String,
    /// Mean number of calls per step.
    pub calls_per_step: f64,
    /// Mean time per step.
    pub ns_per_step: f64,
    /// Median duration of a call.
    pub median_ns: f64,
}
