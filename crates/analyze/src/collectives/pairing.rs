//! Which points in time of one rank belong to which of another: steps by the end of their last
//! collective, whose ends the ranks share.
//!
//! A recording may begin a few steps earlier on one rank. Of the possible shifts, the right one is
//! that with which the ends keep the same distance throughout:
//!
//! ```text
//!   rank 0        |e0     |e1   |e2         |e3
//!   rank 1    |   .   |   .   | .       |            shift 1: distances all alike
//! ```
//!
//! Where several shifts do as well (periods all alike), the clock decides if the ranks share one,
//! else equal counts, else the last ones are taken for the same.

use crate::results::StepsMatchedBy;
use crate::stats;

/// Shifts this far around each likely one are tried.
const REACH: isize = 8;
/// A shift is taken from the ends when its spread is so many times below every other's.
const CLEARLY: i64 = 2;

/// A pairing of one rank's points with the reference's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pairing {
    pub(super) by: StepsMatchedBy,
    /// The other's point `i + shift` is the reference's point `i`, as far as none is missing.
    pub(super) shift: isize,
    /// For each point of the other, the reference's.
    pub(super) of_other: Vec<Option<usize>>,
}

/// Pairs points in order of time, in ns; `None` when there are none to pair.
pub(super) fn pair(reference: &[i64], other: &[i64], shared_clock: bool) -> Option<Pairing> {
    if reference.is_empty() || other.is_empty() {
        return None;
    }
    let (len, other_len) = (reference.len() as isize, other.len() as isize);
    let by_clock = shared_clock.then(|| nearest(reference, other));
    let from_end = other_len - len;
    let likely = [Some(0), Some(from_end), by_clock];
    let mut shifts: Vec<isize> =
        likely.into_iter().flatten().flat_map(|shift| shift - REACH..=shift + REACH).collect();
    shifts.sort_unstable();
    shifts.dedup();
    // Half of the shorter list must overlap; of a short list three quarters, for few pairs are alike
    // by chance.
    let shorter = reference.len().min(other.len());
    let least = if shorter < 8 { (shorter * 3).div_ceil(4) } else { shorter.div_ceil(2) }.max(2);
    let mut scored: Vec<(i64, isize)> = shifts
        .into_iter()
        .filter_map(|shift| {
            let mut distances = distances(reference, other, shift);
            (distances.len() >= least).then(|| (spread(&mut distances).1, shift))
        })
        .collect();
    scored.sort_unstable();
    let (shift, by) = match scored.as_slice() {
        [(best, shift), (next, _), ..] if best.saturating_mul(CLEARLY) < *next => {
            (*shift, StepsMatchedBy::CollectiveEnds)
        }
        _ => match by_clock.filter(|&shift| is_close(reference, other, shift)) {
            Some(shift) => (shift, StepsMatchedBy::Clock),
            None if from_end == 0 => (0, StepsMatchedBy::Order),
            None => (from_end, StepsMatchedBy::OrderFromEnd),
        },
    };
    Some(Pairing { by, shift, of_other: pair_shifted(reference, other, shift) })
}

/// The shift that puts the point of `other` nearest to the middle of the reference on it.
fn nearest(reference: &[i64], other: &[i64]) -> isize {
    let middle = reference.len() / 2;
    let at = reference[middle];
    let after = other.partition_point(|&point| point < at);
    let before = after.saturating_sub(1);
    let distance = |index: usize| other.get(index).map_or(i64::MAX, |p| p.saturating_sub(at).abs());
    let index = if distance(before) <= distance(after) { before } else { after };
    index as isize - middle as isize
}

/// Other minus reference for every pair under `shift`.
fn distances(reference: &[i64], other: &[i64], shift: isize) -> Vec<i64> {
    (0isize..)
        .zip(reference)
        .filter_map(|(index, point)| {
            let partner = other.get(usize::try_from(index + shift).ok()?)?;
            Some(partner.saturating_sub(*point))
        })
        .collect()
}

/// Median, and 90th percentile of the distance from it. `values` are reordered; not empty.
pub(super) fn spread(values: &mut [i64]) -> (i64, i64) {
    let median = stats::median(values).map_or(0, |median| median.round() as i64);
    let distance = values.iter().map(|value| value.saturating_sub(median).saturating_abs());
    let p90 = stats::distribution(distance).map_or(0, |d| d.p90 as i64);
    (median, p90)
}

/// Whether points under `shift` are nearer to one another than to the next ones.
fn is_close(reference: &[i64], other: &[i64], shift: isize) -> bool {
    let mut distances = distances(reference, other, shift);
    let median = stats::median(&mut distances);
    let period = period(reference).or_else(|| period(other));
    match (median, period) {
        (Some(median), Some(period)) => median.abs() * 4.0 < period,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn period(points: &[i64]) -> Option<f64> {
    let mut periods: Vec<i64> = points.windows(2).map(|p| p[1].saturating_sub(p[0])).collect();
    stats::median(&mut periods)
}

/// Pairs each point with the reference's that is within a quarter of a period under the shift's
/// median distance, so that a point missing in the middle does not shift the rest.
fn pair_shifted(reference: &[i64], other: &[i64], shift: isize) -> Vec<Option<usize>> {
    let mut of_other = vec![None; other.len()];
    let mut distances = distances(reference, other, shift);
    if distances.is_empty() {
        return of_other;
    }
    let (median, _) = spread(&mut distances);
    let tolerance = period(reference).map_or(i64::MAX, |period| (period / 4.0) as i64);
    let (mut r, mut o) = (0, 0);
    while r < reference.len() && o < other.len() {
        let distance = other[o].saturating_sub(median).saturating_sub(reference[r]);
        if distance.saturating_abs() <= tolerance {
            of_other[o] = Some(r);
            (r, o) = (r + 1, o + 1);
        } else if distance > 0 {
            r += 1;
        } else {
            o += 1;
        }
    }
    of_other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_with_equal_distances_is_found_without_a_clock() {
        // Periods 100, 130, 90, 140; the other begins one point earlier and its clock is 5000 ahead.
        let reference = [0, 100, 230, 320, 460];
        let other = [4880, 5000, 5100, 5231, 5320];
        let pairing = pair(&reference, &other, false).unwrap();
        assert_eq!((pairing.by, pairing.shift), (StepsMatchedBy::CollectiveEnds, 1));
        assert_eq!(pairing.of_other, [None, Some(0), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn equal_periods_are_paired_by_the_clock_then_by_number_then_from_the_end() {
        let reference = [0, 100, 200, 300];
        let clock = pair(&reference, &[-98, 3, 102, 203], true).unwrap();
        assert_eq!((clock.by, clock.shift), (StepsMatchedBy::Clock, 1));
        let order = pair(&reference, &[7000, 7100, 7200, 7300], false).unwrap();
        assert_eq!((order.by, order.shift), (StepsMatchedBy::Order, 0));
        let end = pair(&reference, &[7000, 7100, 7200], false).unwrap();
        assert_eq!((end.by, end.shift), (StepsMatchedBy::OrderFromEnd, -1));
        assert_eq!(end.of_other, [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn a_point_missing_in_the_middle_does_not_shift_the_rest() {
        let reference = [0, 100, 230, 320, 460, 570];
        let pairing = pair(&reference, &[10, 110, 330, 470, 580], true).unwrap();
        assert_eq!(pairing.of_other, [Some(0), Some(1), Some(3), Some(4), Some(5)]);
    }

    #[test]
    fn nothing_pairs_with_nothing() {
        assert_eq!(pair(&[], &[1], true), None);
    }
}
