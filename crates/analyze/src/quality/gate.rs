//! The quality gate: GPU events that would falsify every later number are left out or cut.
//!
//! ```text
//!   stray                      the work that the capture is about             stray
//!     #                        ## ## #### ## ### ## #### ##                     #
//!     |<- more than 10 spans ->|<------- span ------->|
//!
//!   impossible duration: an event that runs past its second successor on the stream, and 10 times
//!   as long as its kind does; it is cut at the next start. The last event of a stream: 1000 times as
//!   long as its kind; it is cut to the median
//!     stream 7  ############################# ...      ->   ######
//!                     ##   ##   ##   ##                           ##   ##   ##   ##
//! ```

use hashbrown::HashMap;
use steptally_trace_model::{Nanos, StreamId, StringId, Timestamp, Trace};

use crate::gpu::{GpuKind, GpuOp, Lane};
use crate::results::LeftOut;
use crate::stats;

/// A group at the edge is stray when it is further away than this many spans of the rest.
const STRAY_SPANS: i64 = 10;
/// and further than this,
const STRAY_GAP: Nanos = Nanos::from_ns(10_000_000);
/// and when it has at most this share of the events (at least one event is allowed).
const STRAY_SHARE: usize = 100;
/// Overlaps up to this are ordinary: programmatic dependent launch, rounding to microseconds.
const ORDINARY_OVERLAP: Nanos = Nanos::from_ns(20_000);
/// An impossible duration is this many times the median of its name.
const LONG_FACTOR: f64 = 10.0;
/// Without a median (fewer than 3 calls of that name): it runs past this many successors.
const LONG_SUCCESSORS: usize = 8;
/// The last event of a stream has no successor to tell by: it is impossible when it is this many
/// times the median of its name
const LAST_FACTOR: f64 = 1000.0;
/// and longer than this; it is then taken to last for the median.
const LAST_LENGTH: Nanos = Nanos::from_ns(100_000_000);
/// Epoch or boot clocks never show the first second: events there have no time.
const NO_TIME_BEFORE: Timestamp = Timestamp::from_ns(1_000_000_000);

/// Leaves out and cuts events of `lane`, and says how many.
pub(crate) fn apply(lane: &mut Lane<'_>) {
    let mut left_out = LeftOut {
        zero_time_count: drop_timeless(&mut lane.ops),
        duplicate_count: drop_duplicates(lane.trace, &mut lane.ops),
        stray_count: drop_stray(&mut lane.ops),
        ..LeftOut::default()
    };
    (left_out.clipped_count, left_out.clipped_ns) = clip_impossible(lane.trace, &mut lane.ops);
    lane.left_out = left_out;
}

/// Drops events at time zero (or below) when others are at a real time.
fn drop_timeless(ops: &mut Vec<GpuOp>) -> u64 {
    let zero = Timestamp::from_ns(0);
    let real = ops.last().is_some_and(|op| op.start >= NO_TIME_BEFORE);
    let timeless = if real { ops.partition_point(|op| op.start <= zero) } else { 0 };
    ops.drain(..timeless);
    timeless as u64
}

/// Drops all but the first of events that are equal in everything: one stream cannot begin two at
/// one time.
fn drop_duplicates(trace: &Trace, ops: &mut Vec<GpuOp>) -> u64 {
    let before = ops.len();
    let name = |op: GpuOp| match op.kind {
        GpuKind::Kernel => trace.kernels.name[op.row as usize],
        GpuKind::Copy => trace.copies.name[op.row as usize],
        GpuKind::OpaqueGraph => StringId::default(),
    };
    ops.dedup_by(|a, b| {
        (a.start, a.end, a.kind) == (b.start, b.end, b.kind)
            && a.end > a.start
            && a.stream(trace) == b.stream(trace)
            && a.correlation(trace) == b.correlation(trace)
            && name(*a) == name(*b)
    });
    (before - ops.len()) as u64
}

/// Drops small groups at either edge that lie far from the rest.
fn drop_stray(ops: &mut Vec<GpuOp>) -> u64 {
    let allowed = (ops.len() / STRAY_SHARE).max(1);
    if ops.len() < 10 {
        return 0;
    }
    let first = stray_prefix(ops, allowed);
    let kept = &ops[first..];
    let last = stray_suffix(kept, allowed);
    let stray = first + last;
    ops.truncate(ops.len() - last);
    ops.drain(..first);
    stray as u64
}

fn stray_prefix(ops: &[GpuOp], allowed: usize) -> usize {
    let end = ops.iter().map(|op| op.start).max().unwrap_or_default();
    (1..=allowed)
        .rev()
        .find(|&n| is_far(ops[n].start - ops[n - 1].start, end - ops[n].start))
        .unwrap_or(0)
}

fn stray_suffix(ops: &[GpuOp], allowed: usize) -> usize {
    let start = ops.first().map(|op| op.start).unwrap_or_default();
    (1..=allowed.min(ops.len() - 1))
        .rev()
        .find(|&n| {
            let first_out = ops.len() - n;
            is_far(
                ops[first_out].start - ops[first_out - 1].start,
                ops[first_out - 1].start - start,
            )
        })
        .unwrap_or(0)
}

fn is_far(gap: Nanos, span_of_rest: Nanos) -> bool {
    gap > STRAY_GAP && gap.as_ns() / STRAY_SPANS > span_of_rest.as_ns()
}

/// Cuts events that run far past the next start on their stream; returns how many and how much.
fn clip_impossible(trace: &Trace, ops: &mut [GpuOp]) -> (u64, i64) {
    let suspects = suspects(trace, ops);
    let (mut count, mut cut) = clip_last(trace, ops);
    for suspect in suspects {
        let op = ops[suspect.op];
        let median = median_of_name(trace, op);
        let impossible = match median {
            Some(median) => (op.end - op.start).as_ns() as f64 > LONG_FACTOR * median,
            None => suspect.successors >= LONG_SUCCESSORS,
        };
        if impossible {
            count += 1;
            cut += (op.end - suspect.next_start).as_ns();
            ops[suspect.op].end = suspect.next_start;
        }
    }
    (count, cut)
}

/// Cuts the last event of each stream where nothing else can tell that it is impossible.
fn clip_last(trace: &Trace, ops: &mut [GpuOp]) -> (u64, i64) {
    let mut last: HashMap<StreamId, usize> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        last.insert(op.stream(trace), index);
    }
    let (mut count, mut cut) = (0, 0);
    for index in last.into_values() {
        let op = ops[index];
        let length = op.end - op.start;
        if length <= LAST_LENGTH {
            continue;
        }
        let median = median_of_name(trace, op);
        if let Some(median) = median.filter(|m| length.as_ns() as f64 > LAST_FACTOR * m.max(1.0)) {
            let end = op.start + Nanos::from_ns(median as i64);
            count += 1;
            cut += (op.end - end).as_ns();
            ops[index].end = end;
        }
    }
    (count, cut)
}

struct Suspect {
    op: usize,
    next_start: Timestamp,
    successors: usize,
}

/// Events whose end is past the start of their second successor on the stream by more than an
/// ordinary overlap.
fn suspects(trace: &Trace, ops: &[GpuOp]) -> Vec<Suspect> {
    let mut last_two: HashMap<StreamId, [Option<usize>; 2]> = HashMap::new();
    let mut open: Vec<(StreamId, Suspect)> = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let stream = op.stream(trace);
        for (_, suspect) in open.iter_mut().filter(|(s, _)| *s == stream) {
            suspect.successors += usize::from(ops[suspect.op].end > op.start);
        }
        let recent = last_two.entry(stream).or_default();
        if let [Some(before), Some(last)] = *recent {
            let overlap = ops[before].end - op.start;
            if overlap > ORDINARY_OVERLAP && !open.iter().any(|(_, s)| s.op == before) {
                let next_start = ops[last].start;
                open.push((stream, Suspect { op: before, next_start, successors: 2 }));
            }
        }
        *recent = [recent[1], Some(index)];
    }
    open.into_iter().map(|(_, suspect)| suspect).collect()
}

/// Median duration of the kernels of this name, if there are at least three.
fn median_of_name(trace: &Trace, op: GpuOp) -> Option<f64> {
    if op.kind != GpuKind::Kernel {
        return None;
    }
    let name = trace.kernels.name[op.row as usize];
    let mut durations: Vec<i64> = (trace.kernels.name.iter().zip(&trace.kernels.duration))
        .filter(|(other, _)| **other == name)
        .map(|(_, duration)| duration.as_ns())
        .collect();
    if durations.len() < 3 { None } else { stats::median(&mut durations) }
}
