//! How many experts a step touches.

/// Expected number of distinct experts among `experts` that `tokens` tokens touch when each chooses
/// `topk` of them uniformly: `E (1 - (1 - k/E)^B)`.
#[must_use]
pub fn distinct_experts(experts: f64, topk: f64, tokens: f64) -> f64 {
    experts * touched(experts, topk, tokens)
}

/// Expected number of distinct experts on the busiest of `groups` equal groups: the maximum of
/// `groups` binomial counts over `experts / groups` experts, each touched with
/// `p = 1 - (1 - k/E)^B`, taken as independent: `sum over x >= 0 of (1 - F(x)^groups)`, and never
/// more than the distinct experts of the model or than the `topk * tokens` choices.
#[must_use]
pub fn busiest_group(experts: f64, topk: f64, tokens: f64, groups: u32) -> f64 {
    let p = touched(experts, topk, tokens);
    let size = (experts / f64::from(groups)).ceil().max(1.0);
    if p >= 1.0 {
        return size;
    }
    // the binomial's terms, each from the one before
    let mut term = (1.0 - p).powf(size);
    let (mut below, mut expected, mut x) = (0.0_f64, 0.0, 0.0);
    while x < size {
        below = (below + term).min(1.0);
        expected += 1.0 - below.powi(groups.cast_signed());
        term *= (size - x) / (x + 1.0) * p / (1.0 - p);
        x += 1.0;
    }
    expected.min(experts * p).min(topk * tokens)
}

fn touched(experts: f64, topk: f64, tokens: f64) -> f64 {
    1.0 - (1.0 - (topk / experts).min(1.0)).powf(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn one_token_touches_its_own_choices() {
        near(distinct_experts(256.0, 8.0, 1.0), 8.0);
    }

    #[test]
    fn tokens_share_experts() {
        // E=4, k=1, B=2: 4 (1 - (3/4)^2) = 4 x 7/16 = 1.75
        near(distinct_experts(4.0, 1.0, 2.0), 1.75);
        near(distinct_experts(4.0, 4.0, 3.0), 4.0);
    }

    #[test]
    fn the_busiest_of_two_groups() {
        // E=2, k=1, B=1: p = 1/2, two groups of one expert; independent counts: max of two fair
        // coins = 1 - 1/4 = 0.75
        near(busiest_group(2.0, 1.0, 1.0, 2), 0.75);
        // E=4, k=2, B=1, two groups of 2, p = 1/2: F(0) = 1/4, F(1) = 3/4;
        // (1 - 1/16) + (1 - 9/16) = 15/16 + 7/16 = 1.375
        near(busiest_group(4.0, 2.0, 1.0, 2), 1.375);
        near(busiest_group(4.0, 4.0, 1.0, 2), 2.0);
    }
}
