//! The host's clock in a replay: it moves along with the GPU work that the host waits for.

use hashbrown::HashMap;
use steptally_trace_model::{ThreadId, Timestamp};

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

    pub(super) fn clock(&self) -> Clock<'_> {
        Clock { host: self, next: 0, shifts: HashMap::new() }
    }
}

/// How far each thread's later events have moved, by captured time.
pub(super) struct Clock<'a> {
    host: &'a Host,
    next: usize,
    /// Per thread (from this captured time on, shift in ns), in order.
    shifts: HashMap<ThreadId, Vec<(Timestamp, i64)>>,
}

impl Clock<'_> {
    /// Takes in all waits that had returned by `until` of the captured clock. `ends` are the
    /// simulated ends of all work that had started by then.
    pub(super) fn advance(&mut self, until: Timestamp, ends: &[i64]) {
        while let Some(wait) = self.host.waits.get(self.next).filter(|wait| wait.end <= until) {
            self.next += 1;
            let shift = self.shift(wait.start, wait.thread);
            let start = wait.start.as_ns() + shift;
            let length = (wait.end - wait.start).as_ns();
            let waited_for = wait.work.and_then(|(work, end)| Some((*ends.get(work)?, end)));
            let end = match waited_for {
                Some((work_end, captured)) => {
                    let returned_after = (wait.end - captured).as_ns();
                    (start + length.min(LEAST_WAIT_NS)).max(work_end + returned_after)
                }
                None => start + length,
            };
            let shifts = self.shifts.entry(wait.thread).or_default();
            shifts.push((wait.end, end - wait.end.as_ns()));
        }
    }

    /// When an event of the captured time `at` happens.
    pub(super) fn shifted(&self, at: Timestamp, thread: ThreadId) -> i64 {
        at.as_ns() + self.shift(at, thread)
    }

    fn shift(&self, at: Timestamp, thread: ThreadId) -> i64 {
        let Some(shifts) = self.shifts.get(&thread) else { return 0 };
        let after = shifts.partition_point(|(from, _)| *from <= at);
        after.checked_sub(1).map_or(0, |last| shifts[last].1)
    }
}
