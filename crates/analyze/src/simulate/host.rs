//! The host's clock in a replay: it moves along with the GPU work that the host waits for.

use hashbrown::HashMap;
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{Nanos, ThreadId, Timestamp};

use super::Work;
use crate::view::LaneView;

/// A wait for work that has ended already still takes about this long.
const LEAST_WAIT_NS: i64 = 2_000;

/// A call in which the host waited for the GPU.
#[derive(Clone, Copy, Debug)]
struct Wait {
    thread: ThreadId,
    start: Timestamp,
    end: Timestamp,
    /// The work whose end it waited for, and that end as captured; `None` when it waited for none.
    work: Option<(usize, Timestamp)>,
}

/// All waits of a lane's host, by end.
pub(super) struct Host {
    waits: Vec<Wait>,
}

impl Host {
    pub(super) fn new(view: &LaneView<'_>, works: &[Work]) -> Self {
        let calls = &view.lane.trace.api_calls;
        let blocking = view.api.blocking_calls();
        let mut waits: Vec<Wait> = (0..calls.len())
            .filter(|&call| blocking[call])
            .map(|call| Wait {
                thread: calls.thread[call],
                start: calls.start[call],
                end: calls.end(call),
                work: None,
            })
            .collect();
        waits.sort_by_key(|wait| wait.end);
        // The last work to end before the call returned, if it ended while the call waited.
        let mut by_end: Vec<usize> = (0..works.len()).collect();
        by_end.sort_by_key(|&work| works[work].end);
        let mut next = 0;
        for wait in &mut waits {
            while by_end.get(next).is_some_and(|&work| works[work].end <= wait.end) {
                next += 1;
            }
            let last = next.checked_sub(1).map(|at| (by_end[at], works[by_end[at]].end));
            wait.work = last.filter(|&(_, end)| end > wait.start);
        }
        Self { waits }
    }

    /// How long a thread waits for GPU work within `within`.
    pub(super) fn waited(&self, thread: ThreadId, within: Interval) -> Nanos {
        let for_work = self.waits.iter().filter(|w| w.thread == thread && w.work.is_some());
        for_work
            .map(|wait| Interval { start: wait.start, end: wait.end }.clip(within).length())
            .sum()
    }

    /// A clock that begins at `origin` and runs at this pace.
    pub(super) fn clock(&self, origin: Timestamp, pace: Pace) -> Clock<'_> {
        Clock { host: self, next: 0, origin, pace, returns: HashMap::new() }
    }
}

/// How long the host takes for what took it a nanosecond in the capture: 1 as captured, less for a
/// host that is not slowed by a profiler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace(pub(crate) f64);

impl Pace {
    pub(crate) const CAPTURED: Self = Self(1.0);

    pub(super) fn scale(self, ns: i64) -> i64 {
        // Exactly, where nothing changes.
        if self == Self::CAPTURED { ns } else { (ns as f64 * self.0).round() as i64 }
    }
}

/// When each thread's events happen, by captured time.
pub(super) struct Clock<'a> {
    host: &'a Host,
    next: usize,
    origin: Timestamp,
    pace: Pace,
    /// Per thread: a wait returned at this captured time, and at that one here; in order.
    returns: HashMap<ThreadId, Vec<(Timestamp, i64)>>,
}

impl Clock<'_> {
    /// Takes in all waits that had returned by `until` of the captured clock. `ends` are the
    /// simulated ends of all work that had started by then.
    pub(super) fn advance(&mut self, until: Timestamp, ends: &[i64]) {
        while let Some(wait) = self.host.waits.get(self.next).filter(|wait| wait.end <= until) {
            self.next += 1;
            let start = self.at(wait.start, wait.thread);
            let length = (wait.end - wait.start).as_ns();
            let waited_for = wait.work.and_then(|(work, end)| Some((*ends.get(work)?, end)));
            let end = match waited_for {
                Some((work_end, captured)) => {
                    let returned_after = (wait.end - captured).as_ns();
                    (start + length.min(LEAST_WAIT_NS)).max(work_end + returned_after)
                }
                None => start + self.pace.scale(length),
            };
            self.returns.entry(wait.thread).or_default().push((wait.end, end));
        }
    }

    /// When an event of the captured time `at` happens.
    pub(super) fn at(&self, at: Timestamp, thread: ThreadId) -> i64 {
        let returns = self.returns.get(&thread).map_or(&[][..], Vec::as_slice);
        let after = returns.partition_point(|(captured, _)| *captured <= at);
        let last = after.checked_sub(1).map(|last| returns[last]);
        let (captured, here) = last.unwrap_or((self.origin, self.origin.as_ns()));
        here + self.pace.scale((at - captured).as_ns())
    }
}
