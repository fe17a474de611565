//! What a host thread was in at any time: its nested ranges, frames, operators and API calls, walked
//! in order of time.

use steptally_trace_model::interval::Interval;
use steptally_trace_model::{StringId, ThreadId, Timestamp, Trace};

use crate::view::LaneView;

/// What kind of event the host was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ActivityKind {
    Api,
    Op,
    Frame,
    Range,
    Profiler,
    Nothing,
}

impl ActivityKind {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Op => "op",
            Self::Frame => "frame",
            Self::Range => "range",
            Self::Profiler => "profiler",
            Self::Nothing => "nothing_recorded",
        }
    }
}

/// The marks of the steps: their names and threads.
pub(crate) struct StepMarks {
    threads: Vec<ThreadId>,
    /// (start, thread), sorted, of every mark.
    starts: Vec<(Timestamp, ThreadId)>,
}

impl StepMarks {
    pub(crate) fn new(view: &LaneView<'_>) -> Self {
        let steps = view.steps.map_or(&[][..], |steps| &steps.steps);
        let mut starts: Vec<_> = steps
            .iter()
            .filter_map(|step| step.mark)
            .map(|mark| (mark.interval.start, mark.thread))
            .collect();
        starts.sort_unstable();
        let mut threads: Vec<ThreadId> = starts.iter().map(|(_, thread)| *thread).collect();
        threads.sort_unstable();
        threads.dedup();
        Self { threads, starts }
    }

    fn is_mark(&self, start: Timestamp, thread: ThreadId) -> bool {
        self.starts.binary_search(&(start, thread)).is_ok()
    }

    /// Whether the thread is between two steps: outside any mark, or, when it has no marks, as
    /// `at_boundary` says.
    pub(crate) fn is_between(&self, thread: ThreadId, at_boundary: bool, state: State) -> bool {
        at_boundary || (self.threads.contains(&thread) && !state.in_step)
    }
}

/// What the thread is in at some time.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// The innermost event's.
    pub(crate) kind: ActivityKind,
    pub(crate) name: StringId,
    /// The innermost range that is no step's mark.
    pub(crate) within: StringId,
    pub(crate) blocked: bool,
    pub(crate) in_step: bool,
}

#[derive(Clone, Copy)]
struct Event {
    end: Timestamp,
    kind: ActivityKind,
    name: StringId,
    blocking: bool,
    step_mark: bool,
}

/// The nested events of one thread, walked in order of time.
pub(crate) struct Timeline<'a> {
    trace: &'a Trace,
    thread: ThreadId,
    blocking: &'a [bool],
    marks: &'a StepMarks,
    /// Next row of: ranges, frames, ops, API calls, overheads. Outer kinds first.
    next: [usize; 5],
    open: Vec<Event>,
}

impl<'a> Timeline<'a> {
    pub(crate) fn new(
        trace: &'a Trace,
        thread: ThreadId,
        blocking: &'a [bool],
        marks: &'a StepMarks,
    ) -> Self {
        Self { trace, thread, blocking, marks, next: [0; 5], open: Vec::new() }
    }

    /// Calls `visit` for each stretch of `interval` with what the thread was in. Intervals come in
    /// order of time.
    pub(crate) fn walk(&mut self, interval: Interval, mut visit: impl FnMut(Interval, State)) {
        let mut at = interval.start;
        while at < interval.end {
            self.open_until(at);
            self.open.retain(|event| event.end > at);
            let innermost_end = self.open.iter().map(|event| event.end).min();
            let next_start = self.peek().map(|(start, _)| start);
            let until = [innermost_end, next_start]
                .into_iter()
                .flatten()
                .fold(interval.end, Timestamp::min);
            visit(Interval { start: at, end: until }, self.state());
            at = until;
        }
    }

    fn open_until(&mut self, at: Timestamp) {
        while let Some((_, table)) = self.peek().filter(|(start, _)| *start <= at) {
            let event = self.event(table);
            self.next[table] += 1;
            if event.end > at {
                self.open.push(event);
            }
        }
    }

    /// Start and table of this thread's next event.
    fn peek(&mut self) -> Option<(Timestamp, usize)> {
        let trace = self.trace;
        let tables: [(&[Timestamp], &[ThreadId]); 5] = [
            (&trace.ranges.start, &trace.ranges.thread),
            (&trace.frames.start, &trace.frames.thread),
            (&trace.cpu_ops.start, &trace.cpu_ops.thread),
            (&trace.api_calls.start, &trace.api_calls.thread),
            (&trace.overheads.start, &[]),
        ];
        let mut first: Option<(Timestamp, usize)> = None;
        for (table, (starts, threads)) in tables.into_iter().enumerate() {
            // The recorder's own work holds up every thread: its rows count for all.
            while threads.get(self.next[table]).is_some_and(|thread| *thread != self.thread) {
                self.next[table] += 1;
            }
            if let Some(&start) = starts.get(self.next[table])
                && first.is_none_or(|(earliest, _)| start < earliest)
            {
                first = Some((start, table));
            }
        }
        first
    }

    fn event(&self, table: usize) -> Event {
        let (trace, row) = (self.trace, self.next[table]);
        let plain = |end, kind, name| Event { end, kind, name, blocking: false, step_mark: false };
        match table {
            0 => {
                let (start, thread) = (trace.ranges.start[row], trace.ranges.thread[row]);
                let end = trace.ranges.end(row);
                let step_mark = self.marks.is_mark(start, thread);
                Event { step_mark, ..plain(end, ActivityKind::Range, trace.ranges.name[row]) }
            }
            1 => plain(trace.frames.end(row), ActivityKind::Frame, trace.frames.name[row]),
            2 => plain(trace.cpu_ops.end(row), ActivityKind::Op, trace.cpu_ops.name[row]),
            3 => {
                let (end, name) = (trace.api_calls.end(row), trace.api_calls.name[row]);
                let blocking = self.blocking[row];
                Event { blocking, ..plain(end, ActivityKind::Api, name) }
            }
            _ => plain(trace.overheads.end(row), ActivityKind::Profiler, trace.overheads.name[row]),
        }
    }

    fn state(&self) -> State {
        let innermost = self.open.last();
        let range = self
            .open
            .iter()
            .rev()
            .find(|event| event.kind == ActivityKind::Range && !event.step_mark);
        State {
            kind: innermost.map_or(ActivityKind::Nothing, |event| event.kind),
            name: innermost.map_or(StringId::default(), |event| event.name),
            within: range.map_or(StringId::default(), |event| event.name),
            blocked: self.open.iter().any(|event| event.blocking),
            in_step: self.open.iter().any(|event| event.step_mark),
        }
    }
}
