//! Half-open intervals `[start, end)` on one clock, and their unions.

use crate::{Nanos, Timestamp};

/// A half-open interval. Empty when `end <= start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// The first point inside.
    pub start: Timestamp,
    /// The first point after it.
    pub end: Timestamp,
}

impl Interval {
    /// `[start, start + length)`.
    #[must_use]
    pub fn new(start: Timestamp, length: Nanos) -> Self {
        Self { start, end: start + length }
    }

    /// Its length, zero when it is empty.
    #[must_use]
    pub fn length(self) -> Nanos {
        (self.end - self.start).clamp_to_zero()
    }

    /// The part of it inside `other` (possibly empty).
    #[must_use]
    pub fn clip(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// Whether it has no point.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// Merges intervals that are sorted by start into disjoint, non-touching ones.
///
/// ```text
///  ###   ####
///    ###   #     ##
///  =====  ====   ==
/// ```
pub fn merge_sorted(sorted: impl IntoIterator<Item = Interval>) -> Vec<Interval> {
    let mut merged: Vec<Interval> = Vec::new();
    for interval in sorted.into_iter().filter(|interval| !interval.is_empty()) {
        match merged.last_mut() {
            Some(last) if interval.start <= last.end => last.end = last.end.max(interval.end),
            _ => merged.push(interval),
        }
    }
    merged
}

/// The length of the union of intervals that are sorted by start, without storing it.
pub fn union_length_sorted(sorted: impl IntoIterator<Item = Interval>) -> Nanos {
    let mut total = Nanos::ZERO;
    let mut reached = Timestamp::MIN;
    for interval in sorted {
        let start = interval.start.max(reached);
        if interval.end > start {
            total += interval.end - start;
            reached = interval.end;
        }
    }
    total
}

/// The parts of `within` that no interval of `merged` (sorted, disjoint) covers.
#[must_use]
pub fn complement(merged: &[Interval], within: Interval) -> Vec<Interval> {
    let mut gaps = Vec::new();
    let mut at = within.start;
    for interval in merged {
        let gap = Interval { start: at, end: interval.start }.clip(within);
        if !gap.is_empty() {
            gaps.push(gap);
        }
        at = at.max(interval.end);
    }
    let rest = Interval { start: at, end: within.end }.clip(within);
    if !rest.is_empty() {
        gaps.push(rest);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(start: i64, end: i64) -> Interval {
        Interval { start: Timestamp::from_ns(start), end: Timestamp::from_ns(end) }
    }

    #[test]
    fn overlapping_and_touching_intervals_merge() {
        let merged = merge_sorted([at(0, 10), at(8, 12), at(12, 13), at(20, 20), at(30, 31)]);
        assert_eq!(merged, [at(0, 13), at(30, 31)]);
    }

    #[test]
    fn an_interval_inside_another_adds_nothing() {
        // 0-100 and 50-60: 100 ns, not 110.
        assert_eq!(union_length_sorted([at(0, 100), at(50, 60)]), Nanos::from_ns(100));
    }

    proptest! {
        #[test]
        fn union_and_complement_partition_the_window(
            mut raw in prop::collection::vec((0i64..1000, 0i64..100), 0..40)
        ) {
            raw.sort_unstable();
            let intervals: Vec<_> = raw.iter().map(|&(s, l)| at(s, s + l)).collect();
            let merged = merge_sorted(intervals.iter().copied());
            let window = at(-10, 1200);
            // Each nanosecond counted by hand.
            let covered = (-10..1200)
                .filter(|&t| raw.iter().any(|&(s, l)| s <= t && t < s + l))
                .count() as i64;
            prop_assert_eq!(union_length_sorted(intervals), Nanos::from_ns(covered));
            prop_assert_eq!(merged.iter().map(|i| i.length()).sum::<Nanos>(), Nanos::from_ns(covered));
            let idle: Nanos = complement(&merged, window).iter().map(|i| i.length()).sum();
            prop_assert_eq!(idle.as_ns(), 1210 - covered);
        }
    }
}
