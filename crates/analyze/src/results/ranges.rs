//! Ranges of the host projected onto the GPU.

use schemars::JsonSchema;
use serde::Serialize;

/// Ranges with the same text, projected onto the GPU: the work whose API call lies inside a range,
/// on the same thread. The whole trace counts, not only the selected steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RangeSummary {
    /// The text.
    pub text: String,
    /// `annotation`, `nvtx_push_pop`, `nvtx_start_end`.
    pub kind: String,
    /// NVTX domain; empty for the default domain.
    pub domain: String,
    /// Number of ranges, over all ranks.
    pub calls: u64,
    /// Number of projections: ranges with GPU work, once for each device that they work on.
    pub projections: u64,
    /// Kernels, copies, fills and opaque graph replays launched inside.
    pub gpu_ops: u64,
    /// Sum over the projections of the time from their first start to their last end.
    pub projected_ns: i64,
    /// Sum over the projections of the time in which their work ran (union).
    pub gpu_busy_ns: i64,
    /// Sum of the durations of that work.
    pub gpu_sum_ns: i64,
    /// Time on the host.
    pub host_ns: i64,
    /// The first start of GPU work, on the trace's clock.
    pub first_start_ns: Option<i64>,
    /// The last end of GPU work.
    pub last_end_ns: Option<i64>,
}
