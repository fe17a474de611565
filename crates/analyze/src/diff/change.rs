//! How far a median changed, and whether that is more than noise.

use std::collections::BTreeMap;

use crate::results::{Baseline, Change, Effect, Step, StepTable, TpotSpread};
use crate::stats::median;

/// Changes up to this share of A are noise: runs of the same server differ by as much.
const NOISE: f64 = 0.02;

/// Fewer steps than this on a side say nothing about their spread.
const LEAST_STEPS: usize = 3;

/// Bootstrap samples, at most and at least; fewer when there are many steps.
const RESAMPLES: (usize, usize) = (2000, 200);

/// Values to draw over all samples, as far as `RESAMPLES` allows.
const DRAWS: usize = 4_000_000;

/// Where the drawing of random numbers begins: always here, so that the same input gives the same
/// interval.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which time of a step.
pub(super) type Pick = fn(&Step) -> Option<i64>;

/// The selected steps' values. Steps at the same position on all ranks are one entry: ranks wait
/// for each other, so their times are not independent.
pub(super) fn samples(steps: &StepTable, pick: Pick) -> Vec<Vec<i64>> {
    let mut positions: BTreeMap<(Option<u32>, Option<u32>), usize> = BTreeMap::new();
    let mut samples: Vec<Vec<i64>> = Vec::new();
    for step in steps.steps.iter().filter(|step| step.selected) {
        let position = positions.entry((step.rank, step.device)).or_default();
        if samples.len() <= *position {
            samples.push(Vec::new());
        }
        samples[*position].extend(pick(step));
        *position += 1;
    }
    samples.retain(|values| !values.is_empty());
    samples
}

/// Change of the median over steps; `None` when a side has no values.
pub(super) fn of_steps(a: &[Vec<i64>], b: &[Vec<i64>]) -> Option<Change> {
    let (mut all_a, mut all_b) = (a.concat(), b.concat());
    let (a_ns, b_ns) = (median(&mut all_a)?, median(&mut all_b)?);
    let spread = deviation(&all_a, a_ns).max(deviation(&all_b, b_ns));
    let noise_floor_ns = spread.max(NOISE * a_ns.abs());
    let enough = a.len() >= LEAST_STEPS && b.len() >= LEAST_STEPS;
    let interval = enough.then(|| bootstrap(a, b));
    let change_ns = b_ns - a_ns;
    let effect = match interval {
        Some((low, high)) if change_ns > noise_floor_ns && low > 0.0 && high > 0.0 => {
            Effect::Longer
        }
        Some((low, high)) if change_ns < -noise_floor_ns && low < 0.0 && high < 0.0 => {
            Effect::Shorter
        }
        Some((low, high)) if low >= -noise_floor_ns && high <= noise_floor_ns => Effect::Unchanged,
        _ => Effect::Unclear,
    };
    Some(change(a_ns, b_ns, interval, noise_floor_ns, effect))
}

/// Change of the median TPOT; `None` unless both sides have one.
pub(super) fn of_tpot(a: Option<&Baseline>, b: Option<&Baseline>) -> Option<Change> {
    let (a, b) = (a?.tpot_ns, b?.tpot_ns);
    let spread = |of: TpotSpread| (of.p90.unwrap_or(of.max) - of.min) / 2.0;
    let floor = spread(a).max(spread(b)).max(NOISE * a.median);
    let effect = match b.median - a.median {
        more if more > floor => Effect::Longer,
        less if less < -floor => Effect::Shorter,
        _ => Effect::Unchanged,
    };
    Some(change(a.median, b.median, None, floor, effect))
}

fn change(a: f64, b: f64, interval: Option<(f64, f64)>, floor: f64, effect: Effect) -> Change {
    Change {
        a_ns: a,
        b_ns: b,
        change_ns: b - a,
        change_ratio: (a != 0.0).then(|| (b - a) / a),
        interval_ns: interval,
        noise_floor_ns: floor,
        effect,
    }
}

/// Median absolute deviation from `center`.
fn deviation(values: &[i64], center: f64) -> f64 {
    // Twice the distances are whole numbers: a median may end in .5.
    let mut twice: Vec<i64> =
        values.iter().map(|&value| (2.0 * (value as f64 - center)).abs() as i64).collect();
    median(&mut twice).unwrap_or(0.0) / 2.0
}

/// The 2.5th and 97.5th percentile of the change of the median when the steps of both sides are
/// drawn anew, with replacement (percentile bootstrap: Efron and Tibshirani, An Introduction to
/// the Bootstrap, 1993, section 13.3).
fn bootstrap(a: &[Vec<i64>], b: &[Vec<i64>]) -> (f64, f64) {
    let values: usize = a.iter().chain(b).map(Vec::len).sum();
    let resamples = (DRAWS / values.max(1)).clamp(RESAMPLES.1, RESAMPLES.0);
    let mut random = Xorshift(SEED);
    let mut drawn = Vec::with_capacity(values);
    let mut median_of = |steps: &[Vec<i64>]| {
        drawn.clear();
        for _ in steps {
            drawn.extend_from_slice(&steps[random.below(steps.len())]);
        }
        median(&mut drawn).unwrap_or(0.0)
    };
    let mut changes: Vec<f64> = (0..resamples)
        .map(|_| {
            let before = median_of(a);
            median_of(b) - before
        })
        .collect();
    changes.sort_by(f64::total_cmp);
    let cut = resamples / 40;
    (changes[cut], changes[resamples - 1 - cut])
}

/// Random numbers: xorshift64* (Marsaglia 2003, Vigna 2016).
struct Xorshift(u64);

impl Xorshift {
    /// A number below `end`, which must not be 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * end as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(values: &[i64]) -> Vec<Vec<i64>> {
        values.iter().map(|&value| vec![value]).collect()
    }

    fn effect(a: &[i64], b: &[i64]) -> (Effect, f64) {
        let change = of_steps(&steps(a), &steps(b)).unwrap();
        (change.effect, change.noise_floor_ns)
    }

    #[test]
    fn constant_steps_have_an_interval_of_no_width() {
        let change = of_steps(&steps(&[1000; 5]), &steps(&[1100; 4])).unwrap();
        assert_eq!((change.a_ns, change.b_ns, change.change_ns), (1000.0, 1100.0, 100.0));
        assert_eq!(change.interval_ns, Some((100.0, 100.0)));
        assert_eq!((change.change_ratio, change.noise_floor_ns), (Some(0.1), 20.0));
        assert_eq!(change.effect, Effect::Longer);
    }

    #[test]
    fn the_noise_floor_is_2_percent_or_the_spread() {
        // 2 % of 1000 = 20, and 20 is not above 20; 21 is.
        assert_eq!(effect(&[1000; 5], &[1020; 5]), (Effect::Unchanged, 20.0));
        assert_eq!(effect(&[1000; 5], &[979; 5]), (Effect::Shorter, 20.0));
        // Distances from 1000: 100 50 0 50 100, median 50.
        let wide = [900, 950, 1000, 1050, 1100];
        assert_eq!(effect(&wide, &[1040; 5]).1, 50.0);
        assert_eq!(effect(&[1000; 5], &wide).1, 50.0);
        assert_eq!(effect(&[1000; 5], &wide).0, Effect::Unclear);
    }

    #[test]
    fn few_steps_have_no_interval_and_no_effect() {
        let change = of_steps(&steps(&[1000; 2]), &steps(&[2000; 9])).unwrap();
        assert_eq!((change.interval_ns, change.effect), (None, Effect::Unclear));
        assert_eq!(of_steps(&[], &steps(&[1])), None);
    }

    #[test]
    fn the_interval_is_that_of_the_medians_law() {
        // Medians of 5 draws out of {0, 0, 0, 0, 100}: 100 needs 3 or more of 5 draws at 1/5 each:
        // 10 (1/5)^3 (4/5)^2 + 5 (1/5)^4 (4/5) + (1/5)^5 = 0.0579 > 2.5 %: the upper end is 100.
        let change = of_steps(&steps(&[0; 5]), &steps(&[0, 0, 0, 0, 100])).unwrap();
        assert_eq!(change.interval_ns, Some((0.0, 100.0)));
        // Out of 9 with one of 100: 5 or more of 9 draws at 1/9: 0.0015 < 2.5 %.
        let change = of_steps(&steps(&[0; 9]), &steps(&[0, 0, 0, 0, 0, 0, 0, 0, 100])).unwrap();
        assert_eq!(change.interval_ns, Some((0.0, 0.0)));
    }

    #[test]
    fn random_numbers_are_even_and_the_same_each_time() {
        let draw = || {
            let mut random = Xorshift(SEED);
            let mut counts = [0; 7];
            (0..70_000).for_each(|_| counts[random.below(7)] += 1);
            counts
        };
        assert_eq!(draw(), draw());
        // 10,000 each, standard deviation sqrt(70000 / 7 * 6 / 7) = 93.
        assert!(draw().iter().all(|count: &i32| (count - 10_000).abs() < 500), "{:?}", draw());
    }

    #[test]
    fn tpot_needs_more_than_its_own_spread() {
        let baseline = |median: f64, min: f64, max: f64| {
            let mut baseline = Baseline::given(median);
            baseline.tpot_ns = TpotSpread { n: 5, median, min, p90: None, max };
            baseline
        };
        let (a, b) = (baseline(100.0, 90.0, 110.0), baseline(109.0, 109.0, 109.0));
        let change = of_tpot(Some(&a), Some(&b)).unwrap();
        assert_eq!((change.noise_floor_ns, change.effect), (10.0, Effect::Unchanged));
        let change = of_tpot(Some(&a), Some(&Baseline::given(111.0))).unwrap();
        assert_eq!((change.change_ns, change.effect), (11.0, Effect::Longer));
        assert_eq!(of_tpot(Some(&a), None), None);
    }
}
