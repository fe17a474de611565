//! Why the GPU was idle: each gap split by cause.
//!
//! The gap `[g0, g1)` before a piece of work N that call A launched:
//!
//! ```text
//!            g0                      g1
//!   GPU  ####|                       |NNNN
//!   A                [call]                    launched after g0: [g0, A) is the host's,
//!            |--host-|--latency------|         [A, g1) launch latency, up to 20 us after A's end
//!   A   [call]                                 launched before g0: dependency or queue,
//!            |--dependency-----------|         but for 20 us after A's end: latency
//! ```
//!
//! A gap between two nodes of one graph replay is a graph gap: both have the correlation id of one
//! graph launch, or of a call that was not recorded (0 is no id). Otherwise, without a known call, it
//! is unknown.
//! The host's part is split further by what the host did ([`host`](super::host)).

use hashbrown::HashSet;
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{Nanos, ThreadId};

use super::accounts::AccountId;
use super::sweep::Gap;
use crate::links::ApiClass;
use crate::view::LaneView;

/// An idle GPU starts work 2 to 10 us after its launch call returns; what takes longer than this
/// waits for something else.
const LAUNCH_LATENCY: Nanos = Nanos::from_ns(20_000);

/// A stretch in which the GPU waited for the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostTime {
    /// Index of the gap it is part of.
    pub(super) gap: usize,
    pub(super) window: usize,
    /// The thread that launches the next work.
    pub(super) thread: ThreadId,
    pub(super) interval: Interval,
    /// Whether the next work is the first of the next step.
    pub(super) at_boundary: bool,
}

pub(super) struct Causes<'a> {
    view: &'a LaneView<'a>,
    host_time: Vec<HostTime>,
    /// Correlation ids of launches whose first work has been seen, up to `seen_until`.
    begun: HashSet<u64>,
    seen_until: usize,
    hint: usize,
}

impl<'a> Causes<'a> {
    pub(super) fn new(view: &'a LaneView<'a>) -> Self {
        Self { view, host_time: Vec::new(), begun: HashSet::new(), seen_until: 0, hint: 0 }
    }

    /// Splits the gap of this index; gaps come in order of time. The host's part is kept for later.
    pub(super) fn split(&mut self, index: usize, gap: &Gap, mut add: impl FnMut(AccountId, i64)) {
        let length = gap.interval.length().as_ns();
        let Some(next) = gap.next else {
            return add(AccountId::UNKNOWN, length);
        };
        if self.continues_launch(next) {
            return add(AccountId::GRAPH_GAP, length);
        }
        let trace = self.view.lane.trace;
        let correlation = self.view.lane.ops[next].correlation(trace);
        let Some(call) = self.view.api.call_near(correlation, &mut self.hint) else {
            return add(AccountId::UNKNOWN, length);
        };
        let call = call as usize;
        let Interval { start, end } = gap.interval;
        // A clock skew may put the call after the work it launched.
        let called = trace.api_calls.start[call].clamp(start, end);
        let ready = (trace.api_calls.end(call) + LAUNCH_LATENCY).clamp(called, end);
        if called > start {
            self.host_time.push(HostTime {
                gap: index,
                window: gap.window,
                thread: trace.api_calls.thread[call],
                interval: Interval { start, end: called },
                at_boundary: gap.at_boundary,
            });
        }
        add(AccountId::LAUNCH, (ready - called).as_ns());
        add(AccountId::DEPENDENCY, (end - ready).as_ns());
    }

    pub(super) fn into_host_time(self) -> Vec<HostTime> {
        self.host_time
    }

    /// Whether an earlier piece of work has the same graph launch as `next`: true for all nodes of a
    /// graph but the first. Other calls may ask for several works too (a copy in parts).
    fn continues_launch(&mut self, next: usize) -> bool {
        let lane = self.view.lane;
        let id = |op: usize| lane.ops[op].correlation(lane.trace).value();
        for op in self.seen_until..next {
            // Only launches of several nodes need remembering; their works mostly follow one another.
            let repeats = op + 1 < lane.ops.len() && id(op) == id(op + 1);
            if let Some(id) = id(op).filter(|_| repeats || self.is_graph_launch(op)) {
                self.begun.insert(id);
            }
        }
        self.seen_until = self.seen_until.max(next);
        let continues = id(next).is_some_and(|id| self.begun.contains(&id));
        continues
            && match self.class_of_launch(next) {
                Some(class) => class == ApiClass::GraphLaunch,
                None => id(next) != Some(0),
            }
    }

    /// What kind of call launched it; `None` when the call was not recorded.
    fn class_of_launch(&self, op: usize) -> Option<ApiClass> {
        let correlation = self.view.lane.ops[op].correlation(self.view.lane.trace);
        self.view.api.class_of_launch(self.view.lane.trace, correlation)
    }

    fn is_graph_launch(&self, op: usize) -> bool {
        let trace = self.view.lane.trace;
        let previous = op.checked_sub(1).map(|p| self.view.lane.ops[p].correlation(trace));
        if previous == Some(self.view.lane.ops[op].correlation(trace)) {
            return false;
        }
        self.class_of_launch(op) == Some(ApiClass::GraphLaunch)
    }
}
