//! What if: the step re-simulated with some GPU work removed or resized.
//!
//! A saving is a change of the period, not a sum of durations: where the host is the bound, removing
//! GPU work changes nothing. The captured run is replayed in its own order with these rules:
//!
//! - The host issues its calls when it did, but a call in which it waited for the GPU returns when
//!   the work it waited for ends, and everything after it on that thread moves along.
//! - Work on a stream starts after the work before it on that stream, after its launch call, and
//!   after work of another stream that it evidently waited for; each with the delay that was
//!   captured. A delay that was not captured, because something else was later, is the median of
//!   those that were, at most what the capture allows.
//! - Nodes of a graph wait for the node before them only.
//!
//! ```text
//!   captured   call  |-latency-|XXXXXXXXXXXX||NNNN|      X removed: N starts at its own call plus
//!   call of N                      |                     latency, here earlier than X ended
//!   simulated                      |-latency-|NNNN|
//! ```
//!
//! Without any change the captured periods come out again; [`Simulation::error_ns`] is how far off.
//! Ranks are replayed together ([`ranks`]): one that got faster waits for the others in its collectives.
//! A collective that was not matched over ranks keeps its duration.

mod delays;
mod host;
mod ranks;

use hashbrown::HashMap;
use steptally_trace_model::interval::Interval;
use steptally_trace_model::{Nanos, StreamId, Timestamp};

use crate::view::LaneView;
use delays::Delays;
use host::Host;
pub(crate) use host::Pace;
pub(crate) use ranks::{MatchedCollective, MatchedKernel, run};

/// What happens to a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    Keep,
    /// It is not there.
    Remove,
    /// It takes this long, in ns.
    Resize(i64),
}

/// Periods of the selected steps of one lane, in ns, before and after.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Simulation {
    pub(crate) before: Vec<i64>,
    pub(crate) after: Vec<i64>,
    /// Share of the work (in number) that starts right after its own launch: the host is its bound.
    pub(crate) host_bound_ratio: f64,
}

impl Simulation {
    /// Largest difference between a captured and a simulated period. Meaningful where nothing was
    /// changed.
    pub(crate) fn error_ns(&self) -> i64 {
        self.before.iter().zip(&self.after).map(|(a, b)| (a - b).abs()).max().unwrap_or(0)
    }
}

/// Work as it was captured, with what it waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    start: Timestamp,
    end: Timestamp,
    stream: StreamId,
    /// The launch call and its thread; `None` for later nodes of a graph and for unknown calls.
    call: Option<usize>,
    /// Work before it on its stream.
    previous: Option<usize>,
    /// Work of another stream whose end it evidently waited for.
    other: Option<usize>,
}

/// A lane prepared for simulation; one preparation serves any number of changes.
pub(crate) struct Replay<'a> {
    /// Position of the lane among all views.
    index: usize,
    view: &'a LaneView<'a>,
    works: Vec<Work>,
    delays: Delays,
    /// Work that begins each selected step, and the work that begins the step after it.
    bounds: Vec<(usize, usize)>,
    host: Host,
}

impl<'a> Replay<'a> {
    /// Keeps the first steps only, with up to `most` pieces of work, but at least one step.
    pub(crate) fn shorten(&mut self, most: usize) {
        let kept = self.bounds.partition_point(|(_, end)| *end < most).max(1);
        self.bounds.truncate(kept);
        if let Some((_, end)) = self.bounds.last() {
            self.works.truncate(end + 1);
        }
    }

    /// Of each step, the time in which its host does not wait for the GPU.
    pub(crate) fn host_times(&self) -> Vec<i64> {
        let calls = &self.view.lane.trace.api_calls;
        let at = |work: usize| self.works[work].start;
        let thread = self.works.iter().find_map(|work| Some(calls.thread[work.call?]));
        let of_step = |&(first, next): &(usize, usize)| {
            let step = Interval { start: at(first), end: at(next) };
            let waited = thread.map_or(Nanos::ZERO, |thread| self.host.waited(thread, step));
            (step.length() - waited).as_ns()
        };
        self.bounds.iter().map(of_step).collect()
    }

    /// This lane's kernels of matched collectives.
    pub(crate) fn matched(
        &self,
        collectives: &'a [MatchedCollective],
    ) -> impl Iterator<Item = &'a MatchedKernel> {
        let index = self.index;
        let kernels = collectives.iter().flat_map(|collective| &collective.members);
        kernels.filter(move |kernel| kernel.view == index)
    }

    /// `view` is number `index` of all; `None` when the lane has no selected steps.
    pub(crate) fn new(index: usize, view: &'a LaneView<'a>) -> Option<Self> {
        let ops = &view.lane.ops;
        let at = |time: Timestamp| {
            let index = ops.partition_point(|op| op.start < time);
            ops.get(index).filter(|op| op.start == time).map(|_| index)
        };
        view.steps?;
        let bounds: Vec<_> = (view.windows.iter())
            .filter_map(|window| Some((at(window.start)?, at(window.end)?)))
            .collect();
        if bounds.is_empty() {
            return None;
        }
        let works = works(view);
        let delays = Delays::new(view, &works);
        let host = Host::new(view, &works);
        Some(Self { index, view, works, delays, bounds, host })
    }
}

/// A launch that a kernel of another stream ended this shortly before counts as waited for.
const EVIDENT_WAIT_NS: i64 = 20_000;

fn works(view: &LaneView<'_>) -> Vec<Work> {
    let trace = view.lane.trace;
    let mut last_on: HashMap<StreamId, usize> = HashMap::new();
    let mut begun: hashbrown::HashSet<u64> = hashbrown::HashSet::new();
    let (mut hint, mut last_to_end) = (0, None::<usize>);
    let mut works: Vec<Work> = Vec::with_capacity(view.lane.ops.len());
    for (index, op) in view.lane.ops.iter().enumerate() {
        let stream = op.stream(trace);
        let correlation = op.correlation(trace);
        let first_of_launch = correlation.value().is_none_or(|id| begun.insert(id));
        let call = view.api.call_near(correlation, &mut hint).filter(|_| first_of_launch);
        let call = call.map(|call| call as usize);
        let previous = last_on.insert(stream, index);
        // The last work to end before this start, if on another stream and later than all else.
        let known = [previous.map(|p| works[p].end), call.map(|call| trace.api_calls.end(call))];
        let known = known.into_iter().flatten().max();
        let other = last_to_end.filter(|&other: &usize| {
            let end = works[other].end;
            works[other].stream != stream
                && end <= op.start
                && known.is_none_or(|known| end > known)
                && (op.start - end).as_ns() <= EVIDENT_WAIT_NS
        });
        works.push(Work { start: op.start, end: op.end, stream, call, previous, other });
        if last_to_end.is_none_or(|last| works[last].end <= op.end) {
            last_to_end = Some(index);
        }
    }
    works
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod ranks_tests;
#[cfg(test)]
mod tests;
