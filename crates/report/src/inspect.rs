//! What a trace is, without analysing it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use steptally_trace_model::{Nanos, RankSource, Timestamp, Trace, TraceFormat};

use crate::{Input, SCHEMA_VERSION, Tool};

/// What `steptally inspect` has to say about its input.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Inspection {
    /// Version of this form, see [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: Tool,
    /// What was read.
    pub input: Input,
    /// Whether part of the input could not be read.
    pub partial: bool,
    /// The traces, one per rank.
    pub traces: Vec<TraceInspection>,
}

impl Inspection {
    /// What `traces`, read from `input`, are.
    #[must_use]
    pub fn new(tool: Tool, input: Input, traces: &[Trace]) -> Self {
        let partial = input.is_partial() || traces.iter().any(|trace| trace.meta.partial);
        let traces = traces.iter().map(TraceInspection::new).collect();
        Self { schema_version: SCHEMA_VERSION, tool, input, partial, traces }
    }
}

/// What one rank's trace is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TraceInspection {
    /// Global rank; `null` when nothing says which.
    pub rank: Option<u32>,
    /// Where the rank was read.
    pub rank_source: Option<String>,
    /// The label it was read from.
    pub label: Option<String>,
    /// Ranks in the job.
    pub world_size: Option<u32>,
    /// Which recorder wrote it: `torch_profiler` or `nsys_sqlite`.
    pub format: String,
    /// Names of the processes that were recorded.
    pub processes: Vec<String>,
    /// Versions and other self-descriptions, in file order.
    pub versions: Vec<Version>,
    /// Whether operators carry their input shapes; `null` when the file does not say.
    pub record_shapes: Option<bool>,
    /// Whether Python frames were recorded; `null` when the file does not say.
    pub with_stack: Option<bool>,
    /// Epoch time of the clock's origin.
    pub base_time_ns: Option<i64>,
    /// Length of the recorded window, when the file says so.
    pub window_ns: Option<i64>,
    /// From the first start to the last end of any host or GPU event with a time.
    pub events_span_ns: Option<i64>,
    /// Number of events by table.
    pub counts: EventCounts,
    /// The GPUs that the recorder knew, and any that events refer to.
    pub devices: Vec<DeviceInspection>,
    /// Notes of the recorder about its own trouble.
    pub diagnostics: Vec<String>,
    /// Whether part of its input could not be read.
    pub partial: bool,
}

/// A name and a value by which a trace describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Version {
    /// Such as `cuda_runtime_version`.
    pub name: String,
    /// As recorded.
    pub value: String,
}

/// One GPU of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeviceInspection {
    /// Its ordinal, as events refer to it.
    pub device: u32,
    /// Product name; `null` when not recorded.
    pub name: Option<String>,
    /// Size of its memory.
    pub total_memory_bytes: Option<u64>,
    /// Number of streaming multiprocessors.
    pub sm_count: Option<u32>,
    /// Number of kernels and copies that ran on it.
    pub gpu_event_count: u64,
}

macro_rules! counts {
    ($($field:ident: $doc:literal;)*) => {
        /// Number of events by table.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
        pub struct EventCounts {
            $(#[doc = $doc] pub $field: u64,)*
        }

        impl EventCounts {
            fn of(trace: &Trace) -> Self {
                Self { $($field: trace.$field.len() as u64,)* }
            }

            /// Names and numbers, in a fixed order.
            pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

counts! {
    kernels: "Kernels.";
    copies: "Copies and fills.";
    graph_traces: "Graph replays recorded as a whole.";
    api_calls: "Runtime and driver calls.";
    os_calls: "Calls of the operating system's libraries.";
    cpu_ops: "Operators.";
    ranges: "Ranges on the host.";
    gpu_ranges: "Ranges mirrored onto streams.";
    frames: "Python frames.";
    syncs: "Synchronisation as the GPU side records it.";
    overheads: "The recorder's own time.";
    graph_nodes: "Graph nodes as created.";
    counters: "Counter samples.";
    flows: "Flow arrows.";
}

impl TraceInspection {
    /// What `trace` is.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let meta = &trace.meta;
        let rank = meta.rank.as_ref();
        let mut processes: Vec<String> =
            trace.process_names.values().map(|&name| trace.text(name).to_owned()).collect();
        processes.sort();
        processes.dedup();
        Self {
            rank: trace.rank(),
            rank_source: rank.map(|rank| source_name(rank.source).to_owned()),
            label: rank.map(|rank| rank.label.clone()).filter(|label| !label.is_empty()),
            world_size: meta.world_size,
            format: format_name(meta.format).to_owned(),
            processes,
            versions: meta
                .versions
                .iter()
                .map(|(name, value)| Version { name: name.clone(), value: value.clone() })
                .collect(),
            record_shapes: meta.record_shapes,
            with_stack: meta.with_stack,
            base_time_ns: meta.base_time_ns,
            window_ns: meta
                .window
                .and_then(|window| window.end.map(|end| (end - window.start).as_ns())),
            events_span_ns: events_span(trace).map(Nanos::as_ns),
            counts: EventCounts::of(trace),
            devices: devices(trace),
            diagnostics: meta.diagnostics.clone(),
            partial: meta.partial,
        }
    }
}

fn format_name(format: TraceFormat) -> &'static str {
    match format {
        TraceFormat::TorchProfiler => "torch_profiler",
        TraceFormat::NsysSqlite => "nsys_sqlite",
    }
}

fn source_name(source: RankSource) -> &'static str {
    match source {
        RankSource::DistributedInfo => "distributed_info",
        RankSource::ProcessPrefix => "process_prefix",
        RankSource::FileName => "file_name",
        RankSource::ProcessTitle => "process_title",
        RankSource::ThreadName => "thread_name",
        RankSource::RangeName => "range_name",
        RankSource::Environment => "environment",
        RankSource::DeviceOrder => "device_order",
    }
}

fn events_span(trace: &Trace) -> Option<Nanos> {
    let mut span: Option<(Timestamp, Timestamp)> = None;
    let mut extend = |starts: &[Timestamp], durations: &[Nanos]| {
        let ends = starts.iter().zip(durations).map(|(&start, &duration)| start + duration);
        if let (Some(&first), Some(last)) = (starts.first(), ends.max()) {
            let (start, end) = span.unwrap_or((first, last));
            span = Some((start.min(first), end.max(last)));
        }
    };
    extend(&trace.kernels.start, &trace.kernels.duration);
    extend(&trace.copies.start, &trace.copies.duration);
    extend(&trace.graph_traces.start, &trace.graph_traces.duration);
    extend(&trace.api_calls.start, &trace.api_calls.duration);
    extend(&trace.cpu_ops.start, &trace.cpu_ops.duration);
    extend(&trace.frames.start, &trace.frames.duration);
    span.map(|(start, end)| end - start)
}

fn devices(trace: &Trace) -> Vec<DeviceInspection> {
    let streams = || {
        let kernels = trace.kernels.stream.iter();
        kernels.chain(&trace.copies.stream).chain(&trace.graph_traces.stream)
    };
    let used = streams().filter_map(|&stream| trace.device_of(stream));
    let mut counts = std::collections::BTreeMap::new();
    for device in used {
        *counts.entry(device).or_insert(0_u64) += 1;
    }
    let known = trace.meta.devices.iter().map(|properties| properties.device);
    let all: BTreeSet<u32> = known.chain(counts.keys().copied()).collect();
    all.into_iter()
        .map(|device| {
            let properties = trace.meta.device(device);
            DeviceInspection {
                device,
                name: properties.map(|device| device.name.clone()).filter(|name| !name.is_empty()),
                total_memory_bytes: properties.and_then(|device| device.total_memory_bytes),
                sm_count: properties.and_then(|device| device.sm_count),
                gpu_event_count: counts.get(&device).copied().unwrap_or(0),
            }
        })
        .collect()
}
