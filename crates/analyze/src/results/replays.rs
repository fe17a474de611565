//! CUDA graphs as they were replayed.

use schemars::JsonSchema;
use serde::Serialize;

use super::Distribution;

/// One CUDA graph over its replays that begin in the selected steps. Replays of equal kernels and
/// launch configurations, also of other ranks, count as one graph.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GraphReplays {
    /// How many replays there are.
    pub replays: u64,
    /// The same per step.
    pub replays_per_step: f64,
    /// Kernels, copies and fills of a replay.
    pub node_count: u64,
    /// What tells nodes apart: `graph_node_id`, in the order in which they were created, or
    /// `position` in the order of their starts.
    pub nodes_by: String,
    /// How long the call that launches it takes on the host.
    pub call_ns: Distribution,
    /// From the start of that call to the start of the first node.
    pub delay_ns: Distribution,
    /// From the start of the first node to the end of the last.
    pub span_ns: Distribution,
    /// Time in which a node runs.
    pub busy_ns: Distribution,
    /// The rest of the span: no node runs.
    pub gap_ns: Distribution,
    /// Its nodes, over the replays.
    pub nodes: Vec<GraphNode>,
}

/// One node of a graph over its replays.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GraphNode {
    /// Graph node id; `null` when nodes are told apart by position, and of several ranks that of the
    /// first.
    pub graph_node: Option<u64>,
    /// Name of the kernel or copy.
    pub name: String,
    /// Its category.
    pub category: String,
    /// Median duration.
    pub median_ns: f64,
    /// Its 90th percentile.
    pub p90_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// Median time between the end of all earlier nodes and its start; zero where it overlaps one.
    pub gap_before_ns: f64,
}
