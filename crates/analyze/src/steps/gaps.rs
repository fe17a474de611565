//! Steps by gaps, the last resort: stretches of GPU work between long idle gaps that come at
//! regular intervals.

use steptally_trace_model::Timestamp;

use super::{Detection, sequence};
use crate::gpu::Lane;
use crate::results::Confidence;
use crate::stats;

/// A gap between steps is this many times the median gap.
const LONG_GAP: f64 = 20.0;
/// and at least this long.
const MIN_GAP_NS: i64 = 50_000;
/// Steps are regular when nine in ten periods are within this factor of the median period.
const REGULAR: f64 = 1.5;
/// Fewer steps than this are no pattern.
const MIN_STEPS: usize = 4;

pub(super) fn detect(lanes: &[Lane<'_>]) -> Option<Detection> {
    let starts: Vec<Vec<Timestamp>> = lanes.iter().map(regular_starts).collect();
    let count: usize = starts.iter().map(Vec::len).sum();
    (count > 0).then(|| Detection {
        detected_by: "gaps",
        confidence: Confidence::Low,
        explanation: format!(
            "no periodic kernel sequence; {count} stretches of GPU work at \
             regular intervals are taken for steps"
        ),
        lanes: starts.into_iter().map(sequence::unmarked).collect(),
    })
}

fn regular_starts(lane: &Lane<'_>) -> Vec<Timestamp> {
    let mut gaps: Vec<(i64, Timestamp)> = Vec::new();
    let Some(first) = lane.ops.first() else {
        return Vec::new();
    };
    let mut reached = first.end;
    for op in &lane.ops[1..] {
        let gap = (op.start - reached).as_ns();
        if gap > 0 {
            gaps.push((gap, op.start));
        }
        reached = reached.max(op.end);
    }
    let mut lengths: Vec<i64> = gaps.iter().map(|(gap, _)| *gap).collect();
    let Some(median) = stats::median(&mut lengths) else {
        return Vec::new();
    };
    let threshold = ((median * LONG_GAP) as i64).max(MIN_GAP_NS);
    let starts: Vec<Timestamp> = std::iter::once(first.start)
        .chain(gaps.iter().filter(|(gap, _)| *gap >= threshold).map(|(_, start)| *start))
        .collect();
    let mut periods: Vec<i64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_ns()).collect();
    let Some(median) = stats::median(&mut periods) else {
        return Vec::new();
    };
    let regular = periods
        .iter()
        .filter(|&&period| (median / REGULAR..=median * REGULAR).contains(&(period as f64)))
        .count();
    if starts.len() >= MIN_STEPS && regular * 10 >= periods.len() * 9 { starts } else { Vec::new() }
}
