//! Events into the tables of a [`TraceBuilder`], one per lane.

use steptally_trace_model::{
    ApiRow, Collective, CollectiveId, CopyRow, CpuOpRow, ExtraArg, FlowPhase, FlowRow, FrameRow,
    GpuRangeRow, GraphNodeRow, InputsId, Issues, KernelRow, LaunchConfig, LaunchConfigId, Nanos,
    OpInputs, OptionalId, OverheadRow, ProcessId, RangeKind, RangeRow, Severity, Stream, StreamId,
    StringId, SyncRow, TableKind, ThreadId, Timestamp, TraceBuilder,
};

use super::args::Args;
use super::category::{Kind, copy_kind, kind_of, npu_kind, pageable};
use super::event::{Event, Time};
use super::issue::excerpt;
use super::number;
use super::pairs::Mark;
use super::point;
use super::scan::{Scanner, Text};
use super::text::intern;
use super::window::WindowMarks;

/// The process of a stream, which this format does not tell. No process of a part has this number,
/// so that it becomes the placeholder of the trace model whatever processes the part has.
const UNKNOWN_PROCESS: ProcessId = ProcessId(u32::MAX);

/// What was read for one lane.
#[derive(Debug, Default)]
pub(super) struct LanePart<'t> {
    /// The prefix of its process ids.
    pub(super) prefix: Vec<u8>,
    pub(super) builder: TraceBuilder,
    pub(super) window: WindowMarks,
    /// The threads of the last events.
    recent: [Option<RecentThread<'t>>; 4],
    next_recent: usize,
}

/// The longest prefix of a process id that names a lane.
const MAX_PREFIX: usize = 128;

/// The most lanes of one file: no more ranks are merged into one.
pub(super) const MAX_LANES: usize = 1024;

/// A thread by the text of its process and its own.
type RecentThread<'t> = (&'t [u8], &'t [u8], ThreadId);

/// Puts events of one block into tables.
#[derive(Debug)]
pub(super) struct Store<'t> {
    pub(super) lanes: Vec<LanePart<'t>>,
    pub(super) issues: Issues,
    /// Begins and ends, in file order.
    pub(super) marks: Vec<Mark>,
    /// How many events there were, of whatever kind.
    pub(super) events: u64,
    current: usize,
    /// Offset of the block in the file.
    pub(super) base: u64,
    /// Arguments to keep beyond the typed columns.
    keep_args: &'t [String],
}

impl<'t> Store<'t> {
    pub(super) fn new(base: u64, keep_args: &'t [String]) -> Self {
        Self {
            lanes: Vec::new(),
            issues: Issues::default(),
            marks: Vec::new(),
            events: 0,
            current: 0,
            base,
            keep_args,
        }
    }

    /// Notes an issue of an event.
    #[cold]
    pub(super) fn note(
        &mut self,
        code: &'static str,
        severity: Severity,
        event: &Event<'_>,
        text: impl FnOnce() -> String,
    ) {
        self.issues.note(code, severity, Some(self.base + event.at as u64), text);
    }

    /// The lane of an event; takes the lane's prefix off its process id.
    #[inline(always)]
    fn lane(&mut self, event: &mut Event<'t>) -> usize {
        let plain = event.pid.bytes.first() != Some(&b'[');
        match self.lanes.get(self.current) {
            Some(lane) if plain && lane.prefix.is_empty() => self.current,
            _ => self.find_lane(event),
        }
    }

    fn find_lane(&mut self, event: &mut Event<'t>) -> usize {
        let mut prefix: &[u8] = b"";
        if let Some(inner) = event.pid.bytes.strip_prefix(b"[")
            && let Some(end) = memchr::memchr(b']', &inner[..inner.len().min(MAX_PREFIX)])
        {
            prefix = &inner[..end];
            event.pid.bytes = inner[end + 1..].trim_ascii_start();
        }
        let has_prefix = |lane: &LanePart<'_>| lane.prefix == prefix;
        if self.lanes.get(self.current).is_some_and(has_prefix) {
            return self.current;
        }
        if let Some(known) = self.lanes.iter().position(has_prefix) {
            self.current = known;
        } else if self.lanes.len() < MAX_LANES {
            self.current = self.lanes.len();
            self.lanes.push(LanePart { prefix: prefix.to_vec(), ..LanePart::default() });
        } else {
            self.note("too_many_lanes", Severity::Error, event, || excerpt(prefix));
        }
        self.current
    }

    /// Takes an event.
    #[inline]
    pub(super) fn event(&mut self, event: &mut Event<'t>) {
        self.events += 1;
        match event.phase {
            b'X' => self.complete(event),
            // These repeat the correlation ids.
            b's' | b't' | b'f' if event.category == b"ac2g" => {}
            b's' | b't' | b'f' => self.flow(event),
            b'B' | b'E' => self.mark(event),
            b'M' => point::metadata(self, event),
            b'C' => point::counter(self, event),
            b'i' | b'I' | b'R' => point::instant(self, event),
            phase => self.note("unknown_phase", Severity::Info, event, || match phase {
                0 => "no `ph`".into(),
                _ => format!("ph: {}", excerpt(&[phase])),
            }),
        }
    }

    /// The start of an event, unless it is missing or bad, which is noted.
    pub(super) fn start(&mut self, event: &Event<'t>) -> Option<Timestamp> {
        if let Time::At(start) = event.start {
            return Some(Timestamp::from_ns(start));
        }
        let missing = event.start == Time::Missing;
        self.note("bad_time", Severity::Warning, event, || {
            format!(
                "ts of `{}` {}",
                excerpt(event.name.bytes),
                if missing { "missing" } else { "is no time" }
            )
        });
        None
    }

    fn duration(&mut self, event: &Event<'t>) -> Option<Nanos> {
        let name = || excerpt(event.name.bytes);
        match event.duration {
            Time::At(duration) if duration >= 0 => return Some(Nanos::from_ns(duration)),
            Time::At(duration) => self.note("negative_duration", Severity::Warning, event, || {
                format!("`{}`: {duration} ns", name())
            }),
            Time::Missing => {
                self.note("missing_duration", Severity::Warning, event, name);
                return Some(Nanos::ZERO);
            }
            Time::Bad => self.note("bad_time", Severity::Warning, event, || {
                format!("dur of `{}` is no time", name())
            }),
        }
        None
    }

    fn complete(&mut self, event: &mut Event<'t>) {
        let mut kind = kind_of(event.category);
        if event.category.is_empty() {
            if event.pid.bytes == b"CUDA functions" {
                kind = Kind::Kernel;
            } else if !event.args.task_type.bytes.is_empty() && event.has_args {
                kind = npu_kind(event.args.task_type.bytes);
            }
        }
        match kind {
            Kind::Unknown => return self.unknown_category(event),
            Kind::Ignored => return,
            _ => {}
        }
        let Some(start) = self.start(event) else {
            return;
        };
        let Some(duration) = self.duration(event) else {
            return;
        };
        let lane = self.lane(event);
        if let Some(bad) = event.args.bad_id.filter(|_| event.has_args) {
            self.note("bad_id", Severity::Warning, event, || excerpt(bad.bytes));
        }
        // All that is known of a kernel's work is its name.
        if kind == Kind::Kernel && !event.has_name() {
            self.note("bad_name", Severity::Error, event, || match event.name.bytes {
                [] => "no `name`".into(),
                other => format!("name: {}", excerpt(other)),
            });
        }
        self.row(lane, kind, event, start, duration);
    }

    pub(super) fn unknown_category(&mut self, event: &Event<'t>) {
        self.note("unknown_category", Severity::Info, event, || excerpt(event.category));
    }

    fn row(
        &mut self,
        lane: usize,
        kind: Kind,
        event: &Event<'t>,
        start: Timestamp,
        duration: Nanos,
    ) {
        let args = &event.args;
        let (issues, base) = (&mut self.issues, self.base);
        let Some(part) = self.lanes.get_mut(lane) else {
            return;
        };
        if kind == Kind::Span {
            part.window.span(event.name.bytes, start, duration);
            return;
        }
        let name = intern(&mut part.builder.strings, issues, event.name, base);
        let (correlation, external) = (args.correlation, args.external);
        let table = match kind {
            Kind::Kernel => {
                let stream = part.stream(event);
                let (config, collective) = if event.has_args {
                    (part.launch_config(args), part.collective(args, issues, base))
                } else {
                    (LaunchConfigId::default(), CollectiveId::default())
                };
                part.builder.kernels.push(KernelRow {
                    start,
                    duration,
                    name,
                    stream,
                    correlation,
                    external,
                    config,
                    graph_node: args.graph_node,
                    graph: args.graph,
                    collective,
                });
                TableKind::Kernel
            }
            Kind::Copy => {
                let stream = part.stream(event);
                part.builder.copies.push(CopyRow {
                    start,
                    duration,
                    name,
                    kind: copy_kind(event.name.bytes, args.kind.bytes),
                    pageable: pageable(event.name.bytes),
                    stream,
                    correlation,
                    external,
                    bytes: args.bytes,
                    graph_node: args.graph_node,
                });
                TableKind::Copy
            }
            Kind::Api => {
                let thread = part.thread(event);
                let row = ApiRow { start, duration, name, thread, correlation, external };
                part.builder.api_calls.push(row);
                TableKind::Api
            }
            Kind::CpuOp => {
                let thread = part.thread(event);
                let (inputs, collective) = if event.has_args {
                    (part.inputs(args, issues, base), part.collective(args, issues, base))
                } else {
                    (InputsId::default(), CollectiveId::default())
                };
                let sequence = args.sequence;
                part.builder.cpu_ops.push(CpuOpRow {
                    start,
                    duration,
                    name,
                    thread,
                    external,
                    inputs,
                    sequence,
                    collective,
                });
                TableKind::CpuOp
            }
            Kind::Range => {
                let thread = part.thread(event);
                part.builder.ranges.push(RangeRow {
                    start,
                    duration,
                    name,
                    domain: StringId::default(),
                    thread,
                    external,
                    kind: RangeKind::Annotation,
                    open: false,
                });
                TableKind::Range
            }
            Kind::Frame => {
                let thread = part.thread(event);
                part.builder.frames.push(FrameRow {
                    start,
                    duration,
                    name,
                    thread,
                    python: args.python,
                    parent: args.python_parent,
                });
                TableKind::Frame
            }
            Kind::GpuRange => {
                let stream = part.stream(event);
                let row = GpuRangeRow { start, duration, name, stream, external };
                part.builder.gpu_ranges.push(row);
                return;
            }
            Kind::Sync => {
                let stream = part.stream(event);
                part.builder.syncs.push(SyncRow {
                    start,
                    duration,
                    name,
                    stream,
                    correlation,
                    wait_on_stream: args.wait_on_stream,
                    wait_on_correlation: args.wait_on_correlation,
                });
                return;
            }
            Kind::Overhead => {
                let thread = part.thread(event);
                part.builder.overheads.push(OverheadRow { start, duration, name, thread });
                return;
            }
            Kind::GraphNode => {
                let thread = part.thread(event);
                part.builder.graph_nodes.push(GraphNodeRow {
                    start,
                    duration,
                    name,
                    thread,
                    graph_node: args.graph_node,
                    graph: args.graph,
                    original_node: args.original_node,
                    correlation,
                });
                return;
            }
            Kind::Span | Kind::Ignored | Kind::Unknown => return,
        };
        if !self.keep_args.is_empty() && event.has_args {
            self.keep(lane, table, args.raw);
        }
    }

    /// Keeps the wanted arguments of the row that was just added.
    fn keep(&mut self, lane: usize, table: TableKind, raw: Text<'t>) {
        let (issues, base, keep_args) = (&mut self.issues, self.base, self.keep_args);
        let Some(part) = self.lanes.get_mut(lane) else {
            return;
        };
        let rows = match table {
            TableKind::Kernel => part.builder.kernels.len(),
            TableKind::Copy => part.builder.copies.len(),
            TableKind::Api => part.builder.api_calls.len(),
            TableKind::CpuOp => part.builder.cpu_ops.len(),
            TableKind::Range => part.builder.ranges.len(),
            TableKind::Frame => part.builder.frames.len(),
        };
        for_each_arg(raw, |key, value| {
            if keep_args.iter().any(|kept| kept.as_bytes() == key) {
                let key = part.builder.strings.intern(&String::from_utf8_lossy(key));
                let value = intern(&mut part.builder.strings, issues, value, base);
                let row = (rows - 1) as u32;
                part.builder.extra_args.push(ExtraArg { table, row, key, value });
            }
        });
    }

    fn flow(&mut self, event: &mut Event<'t>) {
        let Some(start) = self.start(event) else {
            return;
        };
        let lane = self.lane(event);
        let id = number::unsigned(event.id.bytes);
        if id.is_none() && !event.id.bytes.is_empty() {
            self.note("bad_id", Severity::Warning, event, || excerpt(event.id.bytes));
        }
        let (issues, base) = (&mut self.issues, self.base);
        let Some(part) = self.lanes.get_mut(lane) else {
            return;
        };
        let category = Text { bytes: event.category, at: event.at, ..Text::default() };
        let category = intern(&mut part.builder.strings, issues, category, base);
        let thread = part.thread(event);
        part.builder.flows.push(FlowRow {
            start,
            duration: Nanos::ZERO,
            category,
            thread,
            id: id.into(),
            phase: match event.phase {
                b's' => FlowPhase::Start,
                b't' => FlowPhase::Step,
                _ => FlowPhase::End,
            },
        });
    }

    fn mark(&mut self, event: &Event<'t>) {
        match kind_of(event.category) {
            Kind::Unknown => self.unknown_category(event),
            Kind::Ignored | Kind::Span => {}
            _ => {
                if let Some(at) = self.start(event) {
                    self.marks.push(Mark::new(event, at, self.base));
                }
            }
        }
    }

    /// Adds a pair of `B` and `E` as one event.
    pub(super) fn pair(&mut self, begin: &mut Event<'t>, start: Timestamp, end: Timestamp) {
        begin.duration = Time::At((end - start).as_ns());
        let Some(duration) = self.duration(begin) else { return };
        let lane = self.lane(begin);
        self.row(lane, kind_of(begin.category), begin, start, duration);
    }

    /// The lane of an event that is not of phase `X`.
    pub(super) fn part(
        &mut self,
        event: &mut Event<'t>,
    ) -> Option<(&mut LanePart<'t>, &mut Issues)> {
        let lane = self.lane(event);
        self.lanes.get_mut(lane).map(|part| (part, &mut self.issues))
    }
}

/// Calls `visit` for each member of an argument object that was read before.
pub(super) fn for_each_arg<'t>(raw: Text<'t>, mut visit: impl FnMut(&'t [u8], Text<'t>)) {
    let mut scanner = Scanner::new(raw.bytes, 1);
    scanner.lenient = true;
    let mut more = scanner.next_member(true);
    while let Ok(true) = more {
        let member = scanner.key().and_then(|key| scanner.value().map(|value| (key, value)));
        let Ok((key, value)) = member else { return };
        visit(key, Text { at: raw.at + value.at, ..value });
        more = scanner.next_member(false);
    }
}

impl<'t> LanePart<'t> {
    /// The host thread of an event.
    #[inline]
    pub(super) fn thread(&mut self, event: &Event<'t>) -> ThreadId {
        let (pid, tid) = (event.pid.bytes, event.tid.bytes);
        for known in self.recent.iter().flatten() {
            if known.0 == pid && known.1 == tid {
                return known.2;
            }
        }
        let (pid_text, tid_text) = (String::from_utf8_lossy(pid), String::from_utf8_lossy(tid));
        let id = self.builder.thread(&pid_text, &tid_text);
        self.recent[self.next_recent % 4] = Some((pid, tid, id));
        self.next_recent += 1;
        id
    }

    /// The stream of an event of the GPU. Without arguments, the track it is drawn on says which:
    /// process = device, thread = stream.
    #[inline]
    fn stream(&mut self, event: &Event<'t>) -> StreamId {
        let Args { device, context, stream, .. } = event.args;
        // In old autograd traces the thread is the device.
        let track = if event.pid.bytes == b"CUDA functions" { event.tid } else { event.pid };
        let (device, stream) = if device.is_some() {
            (device.value(), stream)
        } else {
            let on_track = number::unsigned(event.tid.bytes);
            (number::unsigned(track.bytes), stream.value().or(on_track).into())
        };
        self.builder.streams.intern(Stream {
            process: UNKNOWN_PROCESS,
            device: device.and_then(|device| u32::try_from(device).ok()),
            context,
            stream,
        })
    }

    #[inline]
    fn launch_config(&mut self, args: &Args<'t>) -> LaunchConfigId {
        self.builder.configs.intern(LaunchConfig {
            grid: args.grid,
            block: args.block,
            registers: small(args.registers),
            shared_memory_bytes: small(args.shared_memory),
            occupancy_percent: small(args.occupancy),
        })
    }

    #[inline]
    fn inputs(&mut self, args: &Args<'t>, issues: &mut Issues, base: u64) -> InputsId {
        if args.dims.bytes.is_empty()
            && args.types.bytes.is_empty()
            && args.concrete.bytes.is_empty()
        {
            return InputsId::default();
        }
        let strings = &mut self.builder.strings;
        let inputs = OpInputs {
            dims: intern(strings, issues, args.dims, base),
            types: intern(strings, issues, args.types, base),
            concrete: intern(strings, issues, args.concrete, base),
        };
        self.builder.inputs.intern(inputs)
    }

    #[inline]
    fn collective(&mut self, args: &Args<'t>, issues: &mut Issues, base: u64) -> CollectiveId {
        if args.collective.bytes.is_empty() && args.group.bytes.is_empty() {
            return CollectiveId::default();
        }
        let strings = &mut self.builder.strings;
        let collective = Collective {
            name: intern(strings, issues, args.collective, base),
            process_group: intern(strings, issues, args.group, base),
            description: intern(strings, issues, args.group_description, base),
            ranks: intern(strings, issues, args.group_ranks, base),
            dtype: intern(strings, issues, args.dtype, base),
            in_elements: args.in_elements,
            out_elements: args.out_elements,
            group_size: small(args.group_size),
            sequence: args.collective_sequence,
        };
        self.builder.collectives.intern(collective)
    }
}

fn small(value: OptionalId) -> Option<u32> {
    value.value().and_then(|value| u32::try_from(value).ok())
}
