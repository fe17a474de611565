//! The timeline: where events go, and the events.

use std::ops::Range;

use steptally_trace_model::{
    ApiRow, CollectiveId, CopyKind, CopyRow, CounterRow, CpuOpRow, DeviceProperties, FlowPhase,
    FlowRow, FrameRow, GpuRangeRow, GraphNodeRow, GraphTraceRow, InputsId, KernelRow,
    LaunchConfigId, Nanos, OpInputs, OptionalId, OverheadRow, ProcessId, RangeKind, RangeRow, Rank,
    RankSource, Stream, StreamId, StringId, SyncRow, ThreadId, Timestamp, Trace, TraceBuilder,
    TraceFormat, Window,
};

/// Correlation ids that the DSL hands out itself start here, out of the way of a test's own.
const FIRST_OWN_CORRELATION: u64 = 1_000_000;

/// A trace written as a timeline. All times are nanoseconds on the trace's clock.
///
/// An event goes to the current thread, or to the current stream of the current device; those are
/// set by [`process`](Self::process), [`thread`](Self::thread), [`device`](Self::device) and
/// [`stream`](Self::stream) for everything that follows. A modifier such as
/// [`correlation`](Self::correlation) changes the event just written, and panics where that kind of
/// event has no such column.
///
/// ```
/// use steptally_testkit::TraceDsl;
///
/// // One decode step: the host launches two kernels, then waits for a copy.
/// let trace = TraceDsl::rank(0)
///     .gpu("NVIDIA H200")
///     .range("step[DECODE bs=1]", 0..100)
///     .op("aten::mm", 5..40, "[[1, 2], [2, 3]]").external(1)
///     .launch("cudaLaunchKernel", 10..15, 7).external(1)
///     .kernel("gemm", 20..60).correlation(7).external(1).grid([4, 1, 1]).block([128, 1, 1])
///     .launch_kernel("norm", 45..50, 60..70)
///     .launch("cudaMemcpyAsync", 70..120, 8)
///     .memcpy_d2h(80..118, 4).correlation(8)
///     .build();
/// assert_eq!(trace.kernels.len(), 2);
/// assert_eq!(trace.kernels.end(1).as_ns(), 70);
/// ```
#[derive(Clone, Debug)]
pub struct TraceDsl {
    pub(crate) builder: TraceBuilder,
    pub(crate) last: Last,
    pid: String,
    tid: String,
    device: u32,
    stream: u64,
    next_correlation: u64,
}

/// Which table the event just written is in: always its last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Nothing,
    Kernel,
    Copy,
    GraphTrace,
    Api,
    CpuOp,
    Range,
    GpuRange,
    Frame,
    Sync,
    Overhead,
    GraphNode,
    Counter,
    Flow,
}

/// The collective of a communication kernel or op, see [`TraceDsl::collective`].
#[derive(Clone, Copy, Debug)]
pub struct AllReduce {
    /// Elements given and received.
    pub elements: u64,
    /// `dtype`, `BFloat16`.
    pub dtype: &'static str,
    /// Name of the process group.
    pub process_group: &'static str,
    /// Number of ranks: the group is ranks `0..group_size`.
    pub group_size: u32,
    /// Position within the process group, when recorded.
    pub sequence: Option<u64>,
}

impl Default for TraceDsl {
    fn default() -> Self {
        Self {
            builder: TraceBuilder::default(),
            last: Last::Nothing,
            pid: "500".into(),
            tid: "500".into(),
            device: 0,
            stream: 7,
            next_correlation: FIRST_OWN_CORRELATION,
        }
    }
}

/// Start and duration of a half-open range of nanoseconds.
fn span(time: &Range<i64>) -> (Timestamp, Nanos) {
    assert!(time.start <= time.end, "an event cannot end before it starts: {time:?}");
    (Timestamp::from_ns(time.start), Nanos::from_ns(time.end - time.start))
}

/// Where things go, and what the trace says about itself.
impl TraceDsl {
    /// An empty trace of no particular rank: process 500, thread 500, device 0, stream 7.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty trace of one rank, as `distributedInfo` would give it.
    #[must_use]
    pub fn rank(number: u32) -> Self {
        let mut dsl = Self::default();
        let rank = Rank { number, source: RankSource::DistributedInfo, label: String::new() };
        dsl.builder.meta.rank = Some(rank);
        dsl
    }

    /// How many ranks the run has.
    #[must_use]
    pub fn world_size(mut self, ranks: u32) -> Self {
        self.builder.meta.world_size = Some(ranks);
        self
    }

    /// Which recorder the trace pretends to be of; torch.profiler unless said.
    #[must_use]
    pub fn format(mut self, format: TraceFormat) -> Self {
        self.builder.meta.format = format;
        self
    }

    /// Describes the current device as a GPU of this name.
    #[must_use]
    pub fn gpu(self, name: &str) -> Self {
        let device = self.device;
        self.device_properties(DeviceProperties {
            device,
            name: name.into(),
            ..DeviceProperties::default()
        })
    }

    /// Describes a GPU.
    #[must_use]
    pub fn device_properties(mut self, properties: DeviceProperties) -> Self {
        self.builder.meta.devices.push(properties);
        self
    }

    /// When the recorder was on.
    #[must_use]
    pub fn window(mut self, time: Range<i64>) -> Self {
        let (start, length) = span(&time);
        self.builder.meta.window = Some(Window { start, end: Some(start + length) });
        self
    }

    /// A version or other self-description, `("cuda_runtime_version", "13000")`.
    #[must_use]
    pub fn version(mut self, name: &str, value: &str) -> Self {
        self.builder.meta.versions.push((name.into(), value.into()));
        self
    }

    /// Changes the trace's metadata freely.
    #[must_use]
    pub fn meta(mut self, change: impl FnOnce(&mut steptally_trace_model::TraceMeta)) -> Self {
        change(&mut self.builder.meta);
        self
    }

    /// The process of the events that follow; its main thread has the same number.
    #[must_use]
    pub fn process(mut self, pid: impl ToString) -> Self {
        self.pid = pid.to_string();
        self.tid = self.pid.clone();
        self
    }

    /// The thread of the host events that follow.
    #[must_use]
    pub fn thread(mut self, tid: impl ToString) -> Self {
        self.tid = tid.to_string();
        self
    }

    /// The name of the current process.
    #[must_use]
    pub fn process_name(mut self, name: &str) -> Self {
        let process = self.builder.process(&self.pid);
        let name = self.builder.strings.intern(name);
        self.builder.process_names.insert(process, name);
        self
    }

    /// The name of the current thread.
    #[must_use]
    pub fn thread_name(mut self, name: &str) -> Self {
        let thread = self.thread_id();
        let name = self.builder.strings.intern(name);
        self.builder.thread_names.insert(thread, name);
        self
    }

    /// The device of the GPU events that follow.
    #[must_use]
    pub fn device(mut self, device: u32) -> Self {
        self.device = device;
        self
    }

    /// The stream of the GPU events that follow.
    #[must_use]
    pub fn stream(mut self, stream: u64) -> Self {
        self.stream = stream;
        self
    }

    /// Sorts and freezes the trace.
    #[must_use]
    pub fn build(self) -> Trace {
        self.builder.finish()
    }

    pub(crate) fn thread_id(&mut self) -> ThreadId {
        self.builder.thread(&self.pid, &self.tid)
    }

    pub(crate) fn text(&mut self, text: &str) -> StringId {
        self.builder.strings.intern(text)
    }

    /// The stream `stream` of the current device. As in a torch.profiler trace the process is the
    /// placeholder 0; the context is 1.
    pub(crate) fn stream_id(&mut self, stream: u64) -> StreamId {
        self.builder.streams.intern(Stream {
            process: ProcessId::default(),
            device: Some(self.device),
            context: OptionalId::some(1),
            stream: OptionalId::some(stream),
        })
    }

    fn current_stream(&mut self) -> StreamId {
        self.stream_id(self.stream)
    }
}

/// What happens on the GPU: written to the current stream.
impl TraceDsl {
    /// A kernel.
    #[must_use]
    pub fn kernel(mut self, name: &str, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let (name, stream) = (self.text(name), self.current_stream());
        self.builder.kernels.push(KernelRow {
            start,
            duration,
            name,
            stream,
            correlation: OptionalId::NONE,
            external: OptionalId::NONE,
            config: LaunchConfigId::default(),
            graph_node: OptionalId::NONE,
            graph: OptionalId::NONE,
            collective: CollectiveId::default(),
        });
        self.last = Last::Kernel;
        self
    }

    /// A call of `cudaLaunchKernel` and the kernel that it launches, with a correlation id of
    /// their own. A modifier that follows changes the kernel.
    #[must_use]
    pub fn launch_kernel(mut self, name: &str, call: Range<i64>, time: Range<i64>) -> Self {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        self.launch("cudaLaunchKernel", call, correlation)
            .kernel(name, time)
            .correlation(correlation)
    }

    /// A copy of `bytes` from the device to pinned host memory; see
    /// [`pageable`](Self::pageable).
    #[must_use]
    pub fn memcpy_d2h(self, time: Range<i64>, bytes: u64) -> Self {
        self.copy(CopyKind::DeviceToHost, "Memcpy DtoH (Device -> Pinned)", time, bytes)
            .pageable(false)
    }

    /// A copy of `bytes` from pinned host memory to the device; see [`pageable`](Self::pageable).
    #[must_use]
    pub fn memcpy_h2d(self, time: Range<i64>, bytes: u64) -> Self {
        self.copy(CopyKind::HostToDevice, "Memcpy HtoD (Pinned -> Device)", time, bytes)
            .pageable(false)
    }

    /// A copy of `bytes` within the device.
    #[must_use]
    pub fn memcpy_d2d(self, time: Range<i64>, bytes: u64) -> Self {
        self.copy(CopyKind::DeviceToDevice, "Memcpy DtoD (Device -> Device)", time, bytes)
    }

    /// A fill of `bytes`.
    #[must_use]
    pub fn memset(self, time: Range<i64>, bytes: u64) -> Self {
        self.copy(CopyKind::Memset, "Memset (Device)", time, bytes)
    }

    fn copy(mut self, kind: CopyKind, name: &str, time: Range<i64>, bytes: u64) -> Self {
        let (start, duration) = span(&time);
        let (name, stream) = (self.text(name), self.current_stream());
        self.builder.copies.push(CopyRow {
            start,
            duration,
            name,
            kind,
            pageable: None,
            stream,
            correlation: OptionalId::NONE,
            external: OptionalId::NONE,
            bytes: OptionalId::some(bytes),
            graph_node: OptionalId::NONE,
        });
        self.last = Last::Copy;
        self
    }

    /// A graph replay recorded as a whole (nsys only).
    #[must_use]
    pub fn graph_trace(mut self, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let stream = self.current_stream();
        self.builder.graph_traces.push(GraphTraceRow {
            start,
            duration,
            stream,
            correlation: OptionalId::NONE,
            graph: OptionalId::NONE,
        });
        self.last = Last::GraphTrace;
        self
    }

    /// A range as mirrored onto the stream.
    #[must_use]
    pub fn gpu_range(mut self, name: &str, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let (name, stream) = (self.text(name), self.current_stream());
        self.builder.gpu_ranges.push(GpuRangeRow {
            start,
            duration,
            name,
            stream,
            external: OptionalId::NONE,
        });
        self.last = Last::GpuRange;
        self
    }

    /// Synchronisation as the GPU side records it.
    #[must_use]
    pub fn sync(mut self, name: &str, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let (name, stream) = (self.text(name), self.current_stream());
        self.builder.syncs.push(SyncRow {
            start,
            duration,
            name,
            stream,
            correlation: OptionalId::NONE,
            wait_on_stream: OptionalId::NONE,
            wait_on_correlation: OptionalId::NONE,
        });
        self.last = Last::Sync;
        self
    }

    /// A sample of a counter of the current device.
    #[must_use]
    pub fn counter(mut self, name: &str, at: i64, value: f64) -> Self {
        let (start, duration) = span(&(at..at));
        let name = self.text(name);
        let device = OptionalId::some(u64::from(self.device));
        self.builder.counters.push(CounterRow { start, duration, name, value, device });
        self.last = Last::Counter;
        self
    }
}

/// What happens on the host: written to the current thread.
impl TraceDsl {
    /// A range of the user or the engine, as `record_function` writes it.
    #[must_use]
    pub fn range(self, name: &str, time: Range<i64>) -> Self {
        self.range_of(RangeKind::Annotation, name, time)
    }

    /// An NVTX push/pop range in the default domain.
    #[must_use]
    pub fn nvtx(self, name: &str, time: Range<i64>) -> Self {
        self.range_of(RangeKind::NvtxPushPop, name, time)
    }

    /// A range of any kind.
    #[must_use]
    pub fn range_of(mut self, kind: RangeKind, name: &str, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let (name, thread) = (self.text(name), self.thread_id());
        self.builder.ranges.push(RangeRow {
            start,
            duration,
            name,
            domain: StringId::default(),
            thread,
            external: OptionalId::NONE,
            kind,
            open: false,
        });
        self.last = Last::Range;
        self
    }

    /// An operator with the JSON text of its `Input Dims`, empty when not recorded.
    #[must_use]
    pub fn op(mut self, name: &str, time: Range<i64>, dims: &str) -> Self {
        let (start, duration) = span(&time);
        let (name, thread, dims) = (self.text(name), self.thread_id(), self.text(dims));
        let inputs = self.builder.inputs.intern(OpInputs { dims, ..OpInputs::default() });
        self.builder.cpu_ops.push(CpuOpRow {
            start,
            duration,
            name,
            thread,
            external: OptionalId::NONE,
            inputs,
            sequence: OptionalId::NONE,
            collective: CollectiveId::default(),
        });
        self.last = Last::CpuOp;
        debug_assert!(inputs != InputsId::default() || dims == StringId::default());
        self
    }

    /// A call of the runtime or driver that enqueues nothing (`cudaEventQuery`), without a
    /// correlation id.
    #[must_use]
    pub fn api(mut self, name: &str, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let (name, thread) = (self.text(name), self.thread_id());
        self.builder.api_calls.push(ApiRow {
            start,
            duration,
            name,
            thread,
            correlation: OptionalId::NONE,
            external: OptionalId::NONE,
        });
        self.last = Last::Api;
        self
    }

    /// A call that enqueues GPU work, with its correlation id.
    #[must_use]
    pub fn launch(self, name: &str, time: Range<i64>, correlation: u64) -> Self {
        self.api(name, time).correlation(correlation)
    }

    /// `cudaGraphLaunch`: all kernels of the replay carry this correlation id.
    #[must_use]
    pub fn graph_launch(self, time: Range<i64>, correlation: u64) -> Self {
        self.launch("cudaGraphLaunch", time, correlation)
    }

    /// A Python frame.
    #[must_use]
    pub fn frame(mut self, name: &str, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let (name, thread) = (self.text(name), self.thread_id());
        self.builder.frames.push(FrameRow {
            start,
            duration,
            name,
            thread,
            python: OptionalId::NONE,
            parent: OptionalId::NONE,
        });
        self.last = Last::Frame;
        self
    }

    /// Time that the recorder itself took.
    #[must_use]
    pub fn overhead(mut self, name: &str, time: Range<i64>) -> Self {
        let (start, duration) = span(&time);
        let (name, thread) = (self.text(name), self.thread_id());
        self.builder.overheads.push(OverheadRow { start, duration, name, thread });
        self.last = Last::Overhead;
        self
    }

    /// A graph node as it was created.
    #[must_use]
    pub fn node_created(mut self, name: &str, time: Range<i64>, node: u64) -> Self {
        let (start, duration) = span(&time);
        let (name, thread) = (self.text(name), self.thread_id());
        self.builder.graph_nodes.push(GraphNodeRow {
            start,
            duration,
            name,
            thread,
            graph_node: OptionalId::some(node),
            graph: OptionalId::NONE,
            original_node: OptionalId::NONE,
            correlation: OptionalId::NONE,
        });
        self.last = Last::GraphNode;
        self
    }

    /// One end of a flow arrow.
    #[must_use]
    pub fn flow(mut self, category: &str, at: i64, id: u64, phase: FlowPhase) -> Self {
        let (start, duration) = span(&(at..at));
        let (category, thread) = (self.text(category), self.thread_id());
        let id = OptionalId::some(id);
        self.builder.flows.push(FlowRow { start, duration, category, thread, id, phase });
        self.last = Last::Flow;
        self
    }
}
