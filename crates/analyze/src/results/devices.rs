//! Ranks and devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Union of the times in which a kernel, copy or fill ran.
    pub gpu_busy_ns: i64,
    /// From the first start to the last end of a kernel, copy or fill.
    pub gpu_span_ns: i64,
    /// Number of graph replays that were recorded as a whole, without their kernels.
    pub opaque_graph_count: u64,
    /// Sum of their durations. The ledger has them as the account `graph.opaque`.
    pub opaque_graph_sum_ns: i64,
    /// What the quality gate leaves out of all later numbers.
    pub left_out: LeftOut,
}

/// GPU events that later numbers do without, or with a shorter duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Events at time zero while the rest is not.
    pub zero_time_count: u64,
    /// Events recorded twice: equal in start, duration, name, stream and correlation id.
    pub duplicate_count: u64,
    /// Events far away from the rest.
    pub stray_count: u64,
    /// Events that run far past the next start on their stream; they are cut there.
    pub clipped_count: u64,
    /// How much duration was cut.
    pub clipped_ns: i64,
}
