//! What an export says about the machine and the capture: GPUs, window, versions, diagnostics,
//! names of processes and threads. Of environment and command line only an allow-list is looked at.

use std::collections::{BTreeMap, HashMap};

use rusqlite::Connection;
use steptally_trace_model::{DeviceProperties, Issues, Nanos, Timestamp, Window};

use super::cells;
use super::source::{GlobalPid, Source, each_row, lossy, note_unreadable};

/// Rows of `META_DATA_EXPORT` that are kept, and what they are called in the trace.
pub(super) const EXPORT_VERSIONS: [(&str, &str); 5] = [
    ("EXPORT_PRODUCT_VERSION", "nsys_version"),
    ("EXPORT_SCHEMA_VERSION", "nsys_schema_version"),
    ("EXPORT_PLATFORM", "export_platform"),
    ("EXPORT_PARAM_TIME_NORMALIZE", "export_time_normalize"),
    ("EXPORT_PARAM_TIME_SHIFT", "export_time_shift"),
];

/// Rows of `META_DATA_CAPTURE` that are kept. Newer exports have no `PROCESS_0:` in front.
pub(super) const CAPTURE_FLAGS: [(&str, &str); 3] = [
    ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "cuda_graph_trace"),
    ("TRACE_AFTER_FORK_BEFORE_EXEC", "trace_fork_before_exec"),
    ("CUDA_TRACE_SCOPE", "cuda_trace_scope"),
];

/// Rows of `TARGET_INFO_SYSTEM_ENV` that are kept.
pub(super) const SYSTEM_VERSIONS: [(&str, &str); 3] = [
    ("NvDriverVersion", "driver_version"),
    ("CudaDriverVersion", "cuda_driver_version"),
    ("OsDescription", "os"),
];

/// Variables of the environment of which the value is read, when it is a number.
pub(super) const RANK_VARIABLES: [&str; 2] = ["RANK", "LOCAL_RANK"];

/// A GPU as the recorder numbers it.
#[derive(Clone, Debug, Default)]
pub(super) struct Gpu {
    pub(super) id: u32,
    /// Its ordinal for CUDA, as the recorder's own process saw it.
    cuda: Option<u32>,
    properties: DeviceProperties,
}

/// A remark of the recorder.
#[derive(Clone, Debug)]
pub(super) struct Diagnostic {
    process: GlobalPid,
    text: String,
}

/// Everything that is not an event.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) gpus: Vec<Gpu>,
    /// GPU by OS process id and CUDA ordinal within it.
    ordinals: HashMap<(i64, u32), u32>,
    /// GPUs described per process (2021): by OS process id (if known) and ordinal.
    by_process: Vec<(Option<i64>, DeviceProperties)>,
    pub(super) base_time_ns: Option<i64>,
    windows: Vec<(Option<i64>, Window)>,
    pub(super) versions: Vec<(String, String)>,
    diagnostics: Vec<Diagnostic>,
    /// Names of processes of the whole machine.
    pub(super) processes: BTreeMap<GlobalPid, String>,
    /// Ids of the names of threads of the whole machine, by `globalTid`.
    threads: HashMap<i64, i64>,
    /// `RANK` of the launched process, else its `LOCAL_RANK`.
    pub(super) environment_rank: Option<u32>,
}

impl Target {
    pub(super) fn read(source: &Source, connection: &Connection, issues: &mut Issues) -> Self {
        let mut target = Self::default();
        let mut read = |target: &mut Self, table: &str, columns: &[&str], each: Each| {
            if let Some(sql) = source.schema.select(table, columns) {
                let result = each_row(connection, &sql, |row| each(target, row));
                note_unreadable(issues, table, result);
            }
        };
        read(&mut target, "TARGET_INFO_GPU", &GPU_COLUMNS, Self::gpu);
        read(&mut target, "TARGET_INFO_CUDA_GPU", &CUDA_GPU_COLUMNS, Self::cuda_gpu);
        let columns = ["gpuId", "cudaId", "pid"];
        read(&mut target, "TARGET_INFO_CUDA_DEVICE", &columns, |target, row| {
            if let (Some(gpu), Some(cuda), Some(pid)) =
                (cells::small(row, 0), cells::small(row, 1), cells::int(row, 2))
            {
                target.ordinals.insert((pid, cuda), gpu);
            }
        });
        read(&mut target, "TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |target, row| {
            target.base_time_ns = target.base_time_ns.or(cells::int(row, 0));
        });
        read(&mut target, "ANALYSIS_DETAILS", &["globalVid", "duration"], |target, row| {
            if let Some(duration) = cells::int(row, 1).filter(|&duration| duration > 0) {
                // The session's start is the origin of the clock.
                let end = Some(Timestamp::from_ns(duration));
                let window = Window { start: Timestamp::from_ns(0), end };
                target.windows.push((cells::int(row, 0), window));
            }
        });
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA"] {
            read(&mut target, table, &["name", "value"], |target, row| {
                target.version(row, &EXPORT_VERSIONS);
            });
        }
        read(&mut target, "META_DATA_CAPTURE", &["name", "value"], |target, row| {
            target.version(row, &CAPTURE_FLAGS);
            target.environment(row);
        });
        read(&mut target, "TARGET_INFO_SYSTEM_ENV", &["name", "value"], |target, row| {
            target.version(row, &SYSTEM_VERSIONS);
        });
        let columns = ["severity", "text", "globalPid"];
        read(&mut target, "DIAGNOSTIC_EVENT", &columns, Self::diagnostic);
        read(&mut target, "PROCESSES", &["globalPid", "name"], |target, row| {
            if let (Some(pid), Some(name)) = (cells::int(row, 0), cells::text(row, 1)) {
                target.processes.insert(GlobalPid::of(Some(pid)), name);
            }
        });
        read(&mut target, "ThreadNames", &["globalTid", "nameId"], |target, row| {
            if let (Some(thread), Some(name)) = (cells::int(row, 0), cells::int(row, 1)) {
                target.threads.insert(thread, name);
            }
        });
        target.gpus.sort_by_key(|gpu| gpu.id);
        target.settle_clock();
        target
    }

    /// Takes into account that the exporter was asked to move the clock's origin: to the epoch
    /// (`--ts-normalize`), or by a number of ns (`--ts-shift`).
    fn settle_clock(&mut self) {
        let setting = |name: &str| {
            self.versions.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        let shift: i64 =
            setting("export_time_shift").and_then(|value| value.parse().ok()).unwrap_or(0);
        let normalized = setting("export_time_normalize") == Some("true");
        let origin = if normalized { self.base_time_ns.unwrap_or(0) } else { 0 };
        let move_by = Nanos::from_ns(origin.saturating_add(shift));
        for (_, window) in &mut self.windows {
            window.start = window.start + move_by;
            window.end = window.end.map(|end| end + move_by);
        }
        self.base_time_ns = if normalized {
            None
        } else {
            self.base_time_ns.map(|base| base.saturating_sub(shift))
        };
    }

    fn gpu(&mut self, row: &rusqlite::Row<'_>) {
        let Some(id) = cells::small(row, 0).or_else(|| cells::small(row, 1)) else {
            return;
        };
        let name = cells::text(row, 2).unwrap_or_default();
        let some = |index| cells::int(row, index).filter(|&value| value > 0);
        let memory = some(3).and_then(|bytes| u64::try_from(bytes).ok());
        let sm_count = some(5).and_then(|count| u32::try_from(count).ok());
        // Windows lists adapters of other makers too. They have no SM.
        if cells::int(row, 5) == Some(0) && memory.is_none() {
            return;
        }
        self.gpus.push(Gpu {
            id,
            cuda: cells::small(row, 6),
            properties: DeviceProperties {
                device: id,
                name,
                total_memory_bytes: memory,
                sm_count,
                compute_capability: cells::small(row, 7)
                    .filter(|&major| major > 0)
                    .map(|major| (major, cells::small(row, 8).unwrap_or(0))),
                memory_bandwidth_bytes_per_s: some(4).and_then(|rate| u64::try_from(rate).ok()),
            },
        });
    }

    /// The description of 2021: bandwidth in kB/s, one row per process and device.
    fn cuda_gpu(&mut self, row: &rusqlite::Row<'_>) {
        let Some(device) = cells::small(row, 0) else {
            return;
        };
        let some = |index| cells::int(row, index).and_then(|value| u64::try_from(value).ok());
        let properties = DeviceProperties {
            device,
            name: cells::text(row, 2).unwrap_or_default(),
            total_memory_bytes: some(3),
            sm_count: cells::small(row, 5),
            compute_capability: cells::small(row, 6)
                .map(|major| (major, cells::small(row, 7).unwrap_or(0))),
            memory_bandwidth_bytes_per_s: some(4).map(|rate| rate.saturating_mul(1000)),
        };
        self.by_process.push((cells::int(row, 1), properties));
    }

    fn version(&mut self, row: &rusqlite::Row<'_>, allowed: &[(&str, &str)]) {
        let (Some(name), Some(value)) = (cells::text(row, 0), cells::text(row, 1)) else {
            return;
        };
        if let Some((_, shown)) = allowed_name(&name, allowed)
            && !value.is_empty()
            && self.versions.iter().all(|(known, _)| known != shown)
        {
            self.versions.push(((*shown).to_owned(), value));
        }
    }

    fn environment(&mut self, row: &rusqlite::Row<'_>) {
        let (Some(name), Some(value)) = (cells::text(row, 0), cells::text(row, 1)) else {
            return;
        };
        if !name.ends_with("ENVIRONMENT_VARIABLE") {
            return;
        }
        let Some(rank) = rank_variable(&value) else {
            return;
        };
        // `RANK` is looked for first and wins.
        if value.starts_with("RANK=") || self.environment_rank.is_none() {
            self.environment_rank = Some(rank);
        }
    }

    fn diagnostic(&mut self, row: &rusqlite::Row<'_>) {
        let Some(text) = cells::text(row, 1) else {
            return;
        };
        let severe = cells::int(row, 0).is_none_or(|severity| matches!(severity, 2 | 3));
        let telling = ["events produced: \t0", "events produced: 0", "might be lost"];
        if severe || telling.iter().any(|part| text.contains(part)) {
            let process = GlobalPid::of(cells::int(row, 2));
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            self.diagnostics.push(Diagnostic { process, text });
        }
    }

    /// What the recorder said about a process or about the whole capture; about all, for `None`.
    pub(super) fn diagnostics(&self, process: Option<GlobalPid>) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for diagnostic in &self.diagnostics {
            let owner = diagnostic.process;
            // Process 0 and the machine -2 (0xFE) stand for the whole capture.
            let whole = owner == GlobalPid::UNKNOWN || owner.number() == Some(0);
            let meant = whole || process.is_none_or(|process| process == owner);
            if meant && !texts.contains(&diagnostic.text) {
                texts.push(diagnostic.text.clone());
            }
        }
        texts
    }

    /// The window of the capture on the machine of a process.
    pub(super) fn window(&self, process: GlobalPid) -> Option<Window> {
        let machine = Some(process.machine());
        let own = self.windows.iter().find(|(machine_of, _)| *machine_of == machine);
        own.or(self.windows.first()).map(|(_, window)| *window)
    }

    /// The GPU that a process calls `ordinal`.
    pub(super) fn gpu_of(&self, process: GlobalPid, ordinal: u32) -> Option<u32> {
        let mapped = process.number().and_then(|pid| self.ordinals.get(&(pid, ordinal)).copied());
        mapped.or_else(|| {
            // Without a map: the order in which CUDA sees them, if it is known for all, else the
            // recorder's own.
            let mut cuda: Vec<u32> = self.gpus.iter().filter_map(|gpu| gpu.cuda).collect();
            cuda.sort_unstable();
            cuda.dedup();
            let by_cuda = !self.gpus.is_empty() && cuda.len() == self.gpus.len();
            let same = |gpu: &&Gpu| {
                if by_cuda { gpu.cuda == Some(ordinal) } else { gpu.id == ordinal }
            };
            self.gpus.iter().find(same).map(|gpu| gpu.id)
        })
    }

    /// The GPUs as a process numbers them: those it is known to see, else all.
    pub(super) fn devices(&self, process: GlobalPid) -> Vec<DeviceProperties> {
        let pid = process.number();
        let mut devices: Vec<DeviceProperties> = self
            .by_process
            .iter()
            .filter(|(owner, _)| owner.is_none() || pid.is_none() || *owner == pid)
            .map(|(_, properties)| properties.clone())
            .collect();
        if devices.is_empty() {
            let mut ordinals: Vec<u32> = self
                .ordinals
                .keys()
                .filter(|(owner, _)| Some(*owner) == pid)
                .map(|(_, ordinal)| *ordinal)
                .collect();
            if ordinals.is_empty() {
                ordinals = (0..self.gpus.len() as u32).collect();
                ordinals.extend(self.gpus.iter().map(|gpu| gpu.id));
            }
            for ordinal in ordinals {
                let gpu = self.gpu_of(process, ordinal);
                if let Some(gpu) = self.gpus.iter().find(|known| Some(known.id) == gpu) {
                    devices.push(DeviceProperties { device: ordinal, ..gpu.properties.clone() });
                }
            }
        }
        devices.sort_by_key(|properties| properties.device);
        devices.dedup_by_key(|properties| properties.device);
        devices
    }

    /// How many GPUs the recorder knew.
    pub(super) fn gpus_known(&self) -> usize {
        let described = self.by_process.iter().map(|(_, properties)| properties.device);
        let described: std::collections::BTreeSet<u32> = described.collect();
        self.gpus.len().max(described.len())
    }

    /// The name of the thread with a `globalTid`.
    pub(super) fn thread_name(
        &self,
        global: i64,
        names: &mut super::source::Names<'_>,
    ) -> Option<String> {
        self.threads.get(&global).and_then(|&id| names.fetch(id)).map(|bytes| lossy(&bytes))
    }
}

/// Handles one row of a table.
type Each = fn(&mut Target, &rusqlite::Row<'_>);

const GPU_COLUMNS: [&str; 9] = [
    "id",
    "deviceId",
    "name",
    "totalMemory",
    "memoryBandwidth",
    "smCount",
    "cuDevice",
    "computeMajor",
    "computeMinor",
];

const CUDA_GPU_COLUMNS: [&str; 8] = [
    "deviceId",
    "pid",
    "name",
    "globalMemorySize",
    "globalMemoryBandwidth",
    "numMultiprocessors",
    "computeCapabilityMajor",
    "computeCapabilityMinor",
];

/// The entry of an allow-list for a recorded name, which may have `PROCESS_0:` in front.
pub(super) fn allowed_name<'a>(
    name: &str,
    allowed: &'a [(&'a str, &'a str)],
) -> Option<&'a (&'a str, &'a str)> {
    let name = match name.split_once(':') {
        Some((process, rest)) if process.starts_with("PROCESS_") => rest,
        _ => name,
    };
    allowed.iter().find(|(recorded, _)| *recorded == name)
}

/// The number in `RANK="3"` or `LOCAL_RANK="3"`.
pub(super) fn rank_variable(assignment: &str) -> Option<u32> {
    let (name, value) = assignment.split_once('=')?;
    RANK_VARIABLES.contains(&name).then(|| value.trim_matches('"').parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranks_are_read_from_the_environment() {
        assert_eq!(rank_variable("RANK=\"3\""), Some(3));
        assert_eq!(rank_variable("LOCAL_RANK=2"), Some(2));
        assert_eq!(rank_variable("RANK=\"token\""), None);
        assert_eq!(rank_variable("SLURM_PROCID=\"3\""), None);
        assert_eq!(rank_variable("RANK"), None);
    }

    #[test]
    fn names_may_carry_their_process() {
        let shown = |name| allowed_name(name, &CAPTURE_FLAGS).map(|(_, shown)| *shown);
        assert_eq!(shown("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"), Some("cuda_graph_trace"));
        assert_eq!(shown("CUDA_GRAPH_TRACE_OPTIONS:MODE"), Some("cuda_graph_trace"));
        assert_eq!(shown("PROCESS_0:COMMAND"), None);
    }
}
