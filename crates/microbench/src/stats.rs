//! Samples of a time, summed up.

use schemars::JsonSchema;
use serde::Serialize;

/// Median and spread of a time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// Number of samples.
    pub n: u64,
    /// The median.
    pub median_ns: f64,
    /// A tenth of the samples is below.
    pub p10_ns: f64,
    /// A tenth of the samples is above.
    pub p90_ns: f64,
}

impl Spread {
    /// Sums up samples in nanoseconds; quantiles are linear between samples, at `q (n - 1)`. `None`
    /// without samples, or with one that is not a positive number.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let at = q * (sorted.len() - 1) as f64;
            let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
            low + (high - low) * at.fract()
        };
        Some(Self {
            n: sorted.len() as u64,
            median_ns: quantile(0.5),
            p10_ns: quantile(0.1),
            p90_ns: quantile(0.9),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_samples() {
        // sorted 10 20 30 40 50 60: median at 2.5 = 35, p10 at 0.5 = 15, p90 at 4.5 = 55
        let spread = Spread::of(&[60.0, 10.0, 30.0, 20.0, 50.0, 40.0]).unwrap();
        assert_eq!(spread, Spread { n: 6, median_ns: 35.0, p10_ns: 15.0, p90_ns: 55.0 });
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.p10_ns, one.median_ns, one.p90_ns), (7.0, 7.0, 7.0));
    }

    #[test]
    fn no_time_is_no_spread() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, 0.0]), None);
        assert_eq!(Spread::of(&[f64::NAN]), None);
    }
}
