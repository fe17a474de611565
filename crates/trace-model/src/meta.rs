//! What a trace says about itself: recorder, versions, rank, devices, window.

use crate::Timestamp;

/// Which recorder wrote the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TraceFormat {
    /// `torch.profiler` (Kineto) Chrome JSON.
    #[default]
    TorchProfiler,
    /// An SQLite export of NVIDIA Nsight Systems.
    NsysSqlite,
}

/// How the rank of a trace was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RankSource {
    /// `distributedInfo.rank` in the file.
    DistributedInfo,
    /// The process prefix of a merged trace, `[TP00-DP01] 83`.
    ProcessPrefix,
    /// The file's name.
    FileName,
    /// The title of the process, such as `sglang::scheduler_TP3`.
    ProcessTitle,
    /// The name of a thread of the process, such as `VllmWorker TP3`.
    ThreadName,
    /// An NVTX range or mark of the process that states its rank, such as `rank 3`.
    RangeName,
    /// `RANK` or `LOCAL_RANK` of the recorded environment.
    Environment,
    /// The order of the devices in a capture of several processes.
    DeviceOrder,
}

impl RankSource {
    /// The source in snake case, as reports name it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::DistributedInfo => "distributed_info",
            Self::ProcessPrefix => "process_prefix",
            Self::FileName => "file_name",
            Self::ProcessTitle => "process_title",
            Self::ThreadName => "thread_name",
            Self::RangeName => "range_name",
            Self::Environment => "environment",
            Self::DeviceOrder => "device_order",
        }
    }
}

/// The rank that a trace belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    /// Global rank; not the device ordinal.
    pub number: u32,
    /// Where it was read.
    pub source: RankSource,
    /// The label it was read from, when it says more than the number (`TP00-DP01`).
    pub label: String,
}

/// One GPU as the recorder describes it. Every field but the ordinal may be unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceProperties {
    /// The ordinal that events refer to.
    pub device: u32,
    /// Product name, `NVIDIA H200`.
    pub name: String,
    /// Memory size.
    pub total_memory_bytes: Option<u64>,
    /// Number of streaming multiprocessors.
    pub sm_count: Option<u32>,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Peak bandwidth of the device's memory, bytes per second.
    pub memory_bandwidth_bytes_per_s: Option<u64>,
}

/// One process group of `distributedInfo.pg_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessGroup {
    /// `pg_name`.
    pub name: String,
    /// `pg_desc`.
    pub description: String,
    /// Global ranks in the group.
    pub ranks: Vec<u32>,
}

/// The time during which the recorder was on, as far as it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When recording began.
    pub start: Timestamp,
    /// When it ended, if the trace says so.
    pub end: Option<Timestamp>,
}

/// Everything a trace says about itself.
#[derive(Clone, Debug, Default)]
pub struct TraceMeta {
    /// Which recorder wrote it.
    pub format: TraceFormat,
    /// The rank, if anything says which.
    pub rank: Option<Rank>,
    /// `distributedInfo.world_size`.
    pub world_size: Option<u32>,
    /// Process groups, in file order.
    pub process_groups: Vec<ProcessGroup>,
    /// The GPUs the recorder knew, used or not.
    pub devices: Vec<DeviceProperties>,
    /// Epoch time of the clock's origin in ns: epoch = this + timestamp. `None`: timestamps are
    /// absolute, or nothing is known.
    pub base_time_ns: Option<i64>,
    /// `None`: the file does not say.
    pub record_shapes: Option<bool>,
    /// `None`: the file does not say.
    pub with_stack: Option<bool>,
    /// The recorded window.
    pub window: Option<Window>,
    /// Versions and other self-descriptions that are safe to print, (name, value) in file order:
    /// `cuda_runtime_version`, `pytorch_version`, `nsys_version`, ...
    pub versions: Vec<(String, String)>,
    /// Notes of the recorder about its own trouble (dropped events, failed initialisation).
    pub diagnostics: Vec<String>,
    /// Whether part of the input could not be read.
    pub partial: bool,
}

impl TraceMeta {
    /// The properties of a device.
    #[must_use]
    pub fn device(&self, device: u32) -> Option<&DeviceProperties> {
        self.devices.iter().find(|properties| properties.device == device)
    }
}
