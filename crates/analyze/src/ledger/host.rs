//! What the host did while the GPU waited for it.
//!
//! The thread that launched the next work is followed through its nested events; each stretch goes
//! to the innermost one:
//!
//! ```text
//!   range     |--scheduler.run_batch---------------|
//!   frame       |--forward----------------|
//!   op             |--aten::mm------|
//!   api               |sync|
//!   account   hhhhhhhhbbbbbbhhhhhhhhhhhhhhhhhhhhhhh   b host blocked, h host launched late
//! ```
//!
//! Time inside a blocking call is `idle.host_blocked`. The rest is `idle.between_steps` when it is
//! outside any mark of a step (without marks: when the next work begins a step), else
//! `idle.host_launched_late`.

use hashbrown::HashMap;
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{StringId, ThreadId, Timestamp, Trace};

use super::accounts::AccountId;
use super::gaps::GapBook;
use super::idle::HostTime;
use crate::view::LaneView;

/// What kind of event the host was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ActivityKind {
    Api,
    Op,
    Frame,
    Range,
    Profiler,
    Nothing,
}

impl ActivityKind {
    pub(super) fn code(self) -> &'static str {
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

/// What the host was in, and the account its time is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Activity<'a> {
    pub(super) account: AccountId,
    pub(super) kind: ActivityKind,
    pub(super) name: &'a str,
    pub(super) within: &'a str,
}

/// Adds the host's time to its accounts and to its gaps; returns it by activity.
pub(super) fn attribute<'a>(
    view: &LaneView<'a>,
    mut host_time: Vec<HostTime>,
    amounts: &mut [Vec<i64>],
    gaps: &mut GapBook<'a>,
) -> HashMap<Activity<'a>, i64> {
    let trace = view.lane.trace;
    let marks = StepMarks::new(view);
    let blocking = view.api.blocking_calls(trace);
    let mut sums: HashMap<Key, i64> = HashMap::new();
    host_time.sort_by_key(|time| (time.thread, time.interval.start));
    for of_thread in host_time.chunk_by(|a, b| a.thread == b.thread) {
        let thread = of_thread[0].thread;
        let mut timeline = Timeline::new(trace, thread, &blocking, &marks);
        for time in of_thread {
            timeline.walk(time.interval, |within, state| {
                let account = if state.blocked {
                    AccountId::HOST_BLOCKED
                } else if marks.is_between(time, state) {
                    AccountId::BETWEEN
                } else {
                    AccountId::HOST_LATE
                };
                let ns = within.length().as_ns();
                amounts[time.window][account.index()] += ns;
                let key = Key { account, kind: state.kind, name: state.name, within: state.within };
                *sums.entry(key).or_default() += ns;
                gaps.add_host(time.gap, account, key.kind, key.name, key.within, ns);
            });
        }
    }
    let text = |id| trace.text(id);
    let activity = |key: Key| Activity {
        account: key.account,
        kind: key.kind,
        name: text(key.name),
        within: text(key.within),
    };
    sums.into_iter().map(|(key, ns)| (activity(key), ns)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    account: AccountId,
    kind: ActivityKind,
    name: StringId,
    within: StringId,
}

/// The marks of the steps: their names and threads.
struct StepMarks {
    threads: Vec<ThreadId>,
    /// (start, thread), sorted, of every mark.
    starts: Vec<(Timestamp, ThreadId)>,
}

impl StepMarks {
    fn new(view: &LaneView<'_>) -> Self {
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

    fn is_between(&self, time: &HostTime, state: State) -> bool {
        if self.threads.contains(&time.thread) { !state.in_step } else { time.at_boundary }
    }
}

/// What the thread is in at some time.
#[derive(Clone, Copy)]
struct State {
    kind: ActivityKind,
    name: StringId,
    within: StringId,
    blocked: bool,
    in_step: bool,
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
struct Timeline<'a> {
    trace: &'a Trace,
    thread: ThreadId,
    blocking: &'a [bool],
    marks: &'a StepMarks,
    /// Next row of: ranges, frames, ops, API calls, overheads. Outer kinds first.
    next: [usize; 5],
    open: Vec<Event>,
}

impl<'a> Timeline<'a> {
    fn new(trace: &'a Trace, thread: ThreadId, blocking: &'a [bool], marks: &'a StepMarks) -> Self {
        Self { trace, thread, blocking, marks, next: [0; 5], open: Vec::new() }
    }

    /// Calls `visit` for each stretch of `interval` with what the thread was in. Intervals come in
    /// order of time.
    fn walk(&mut self, interval: Interval, mut visit: impl FnMut(Interval, State)) {
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
