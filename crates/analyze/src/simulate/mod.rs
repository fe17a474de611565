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
//! Other ranks are not simulated: a collective keeps its duration.

mod delays;
mod host;

use hashbrown::HashMap;
use steptally_trace_model::{StreamId, Timestamp};

use crate::view::LaneView;
use delays::Delays;
use host::Host;

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
    view: &'a LaneView<'a>,
    works: Vec<Work>,
    delays: Delays,
    /// Work that begins each selected step, and the work that begins the step after it.
    bounds: Vec<(usize, usize)>,
    host: Host,
}

impl<'a> Replay<'a> {
    /// `None` when the lane has no selected steps.
    pub(crate) fn new(view: &'a LaneView<'a>) -> Option<Self> {
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
        Some(Self { view, works, delays, bounds, host })
    }

    /// Replays the lane with `change` applied to each of its ops.
    pub(crate) fn run(&self, change: impl Fn(usize) -> Change) -> Simulation {
        let trace = self.view.lane.trace;
        let mut starts: Vec<i64> = Vec::with_capacity(self.works.len());
        let mut ends: Vec<i64> = Vec::with_capacity(self.works.len());
        let mut clock = self.host.clock();
        let mut host_bound = 0usize;
        for (index, work) in self.works.iter().enumerate() {
            clock.advance(work.start, &ends);
            let after = |other: Option<usize>, delay: i64| other.map(|o| ends[o] + delay);
            let launched = work.call.map(|call| {
                let (at, thread) = (trace.api_calls.start[call], trace.api_calls.thread[call]);
                clock.shifted(at, thread) + self.delays.launch(index)
            });
            let queued = after(work.previous, self.delays.queue(index));
            let waited = after(work.other, self.delays.other(index));
            let start = [launched, queued, waited]
                .into_iter()
                .flatten()
                .max()
                .unwrap_or_else(|| work.start.as_ns());
            host_bound += usize::from(launched == Some(start) && queued < launched);
            let length = (work.end - work.start).as_ns();
            let end = match change(index) {
                Change::Keep => start + length,
                Change::Resize(length) => start + length,
                // What comes after it waits for what came before it.
                Change::Remove => after(work.previous, 0).or(launched).unwrap_or(start).min(start),
            };
            starts.push(start);
            ends.push(end);
        }
        let captured = |work: usize| self.works[work].start.as_ns();
        Simulation {
            before: self.bounds.iter().map(|&(a, b)| captured(b) - captured(a)).collect(),
            after: self.bounds.iter().map(|&(a, b)| starts[b] - starts[a]).collect(),
            host_bound_ratio: host_bound as f64 / self.works.len().max(1) as f64,
        }
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
mod tests;
