//! Distributions over steps and calls.

use crate::results::Distribution;

/// The distribution of `values`, in any order; `None` when there are none.
///
/// Percentile p is the nearest rank: the value at position ceil(p n) of the sorted values. The
/// median of an even number is the mean of the middle two.
#[must_use]
pub fn distribution(values: impl IntoIterator<Item = i64>) -> Option<Distribution> {
    let mut sorted: Vec<i64> = values.into_iter().collect();
    sorted.sort_unstable();
    let n = sorted.len();
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    let nearest_rank = |percent: usize| sorted[(percent * n).div_ceil(100).max(1) - 1] as f64;
    let sum: i128 = sorted.iter().map(|&value| i128::from(value)).sum();
    Some(Distribution {
        n: n as u64,
        median: median_of_sorted(&sorted),
        p90: nearest_rank(90),
        p99: nearest_rank(99),
        min: min as f64,
        max: max as f64,
        mean: sum as f64 / n as f64,
    })
}

/// The median of `values`, which are reordered; `None` when there are none.
pub(crate) fn median(values: &mut [i64]) -> Option<f64> {
    values.sort_unstable();
    (!values.is_empty()).then(|| median_of_sorted(values))
}

fn median_of_sorted(sorted: &[i64]) -> f64 {
    let n = sorted.len();
    let upper = sorted[n / 2] as f64;
    if n % 2 == 1 { upper } else { (sorted[n / 2 - 1] as f64 + upper) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        // 1..=10: median (5+6)/2; p90 = 9th; p99 = ceil(9.9) = 10th.
        let d = distribution((1..=10).rev()).unwrap();
        assert_eq!((d.n, d.median, d.p90, d.p99), (10, 5.5, 9.0, 10.0));
        assert_eq!((d.min, d.max, d.mean), (1.0, 10.0, 5.5));
    }

    #[test]
    fn one_value_is_every_percentile_and_none_is_none() {
        let d = distribution([7]).unwrap();
        assert_eq!((d.median, d.p90, d.p99, d.mean), (7.0, 7.0, 7.0, 7.0));
        assert_eq!(distribution([]), None);
    }
}
