//! Numbers as text: one unit per table, three significant digits in prose.

/// The unit that the times of one table are shown in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimeUnit {
    /// Its symbol.
    pub(crate) name: &'static str,
    ns: f64,
    decimals: usize,
}

impl TimeUnit {
    /// The unit in which `largest` nanoseconds read well. Digits go down to at least 0.1 us when
    /// the largest is below 10 ms, and to 1 us below 10 s.
    pub(crate) fn for_largest(largest: f64) -> Self {
        match largest.abs() {
            x if x < 10e6 => Self { name: "us", ns: 1e3, decimals: 1 },
            x if x < 10e9 => Self { name: "ms", ns: 1e6, decimals: 3 },
            _ => Self { name: "s", ns: 1e9, decimals: 3 },
        }
    }

    /// Microseconds with two decimals, for single kernels.
    pub(crate) const CALL: Self = Self { name: "us", ns: 1e3, decimals: 2 };

    /// `ns` nanoseconds in this unit, without the unit.
    pub(crate) fn format(self, ns: f64) -> String {
        format!("{:.*}", self.decimals, ns / self.ns)
    }

    /// Parts of a sum, rounded so that the shown parts add up to the shown sum. Each is within one
    /// of its last digit.
    pub(crate) fn format_parts(self, parts: &[f64]) -> Vec<String> {
        let digit = self.ns / 10f64.powi(i32::try_from(self.decimals).unwrap_or(0));
        let scaled: Vec<f64> = parts.iter().map(|ns| ns / digit).collect();
        let mut whole: Vec<f64> = scaled.iter().map(|x| x.floor()).collect();
        let sum = scaled.iter().sum::<f64>().round();
        let missing = (sum - whole.iter().sum::<f64>()).clamp(0.0, parts.len() as f64) as usize;
        let mut order: Vec<usize> = (0..parts.len()).collect();
        let remainder = |index: usize| scaled[index] - scaled[index].floor();
        order.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)));
        for &index in order.iter().take(missing) {
            whole[index] += 1.0;
        }
        whole.iter().map(|x| self.format(x * digit)).collect()
    }
}

/// A length of time with its unit and about three significant digits: `2.39 ms`.
pub(crate) fn duration(ns: f64) -> String {
    let magnitude = ns.abs();
    let (value, unit) = match magnitude {
        x if x < 999.5 => return format!("{ns:.0} ns"),
        x if x < 999.5e3 => (ns / 1e3, "us"),
        x if x < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// About three significant digits, without an exponent: `0.0512`, `2.39`, `95.1`, `1234`.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        x if x >= 99.95 => 0,
        x if x >= 9.995 => 1,
        x if x >= 0.9995 || x == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A share of 0..1 in percent with one decimal: `69.0 %`. A share too small to show but not zero
/// says so.
pub(crate) fn percent(ratio: f64) -> String {
    if ratio > 0.0 && ratio < 0.0005 {
        return "<0.1 %".to_owned();
    }
    format!("{:.1} %", ratio * 100.0)
}

/// A share of 0..1 in whole percent, for prose.
pub(crate) fn percent_rough(ratio: f64) -> String {
    match ratio * 100.0 {
        x if x > 0.0 && x < 0.5 => "under 1 %".to_owned(),
        x if (99.5..100.0).contains(&x) => "over 99 %".to_owned(),
        x => format!("{x:.0} %"),
    }
}

/// A size: `231 KB`, `1.20 GB` (powers of ten).
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} KB", three_digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", three_digits(value / 1e6)),
        _ => format!("{} GB", three_digits(value / 1e9)),
    }
}

/// A count with its digits in groups: `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 step`, `4 steps`; nouns of other plural are not used with it.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(n))
}

/// A mean number of calls: whole when it is.
pub(crate) fn calls(mean: f64) -> String {
    if (mean - mean.round()).abs() < 0.005 { format!("{mean:.0}") } else { format!("{mean:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_has_three_digits() {
        let shown: Vec<_> =
            [7.0, 512.0, 2_390_400.0, 95_120_000.0, 999_600.0, 12.34e9].map(duration).into();
        assert_eq!(shown, ["7 ns", "512 ns", "2.39 ms", "95.1 ms", "1.00 ms", "12.3 s"]);
        assert_eq!(three_digits(1234.4), "1234");
        assert_eq!(three_digits(0.0512), "0.051");
    }

    #[test]
    fn one_unit_serves_a_table() {
        assert_eq!(TimeUnit::for_largest(2.39e6).format(3_240.0), "3.2");
        assert_eq!(TimeUnit::for_largest(21.2e6).format(3_240.0), "0.003");
        assert_eq!(TimeUnit::for_largest(21.2e9).name, "s");
    }

    #[test]
    fn shown_parts_add_up() {
        // 3 x 33.35 us = 100.05 us, shown 100.1 (half to even may show 100.0): parts differ by 0.1.
        let unit = TimeUnit::for_largest(1e5);
        assert_eq!(unit.format_parts(&[33_340.0, 33_340.0, 33_340.0]), ["33.4", "33.3", "33.3"]);
        assert_eq!(unit.format(3.0 * 33_340.0), "100.0");
        assert_eq!(unit.format_parts(&[]), Vec::<String>::new());
    }

    #[test]
    fn shares_and_counts() {
        assert_eq!([0.0, 0.0001, 0.69, 1.0].map(percent), ["0.0 %", "<0.1 %", "69.0 %", "100.0 %"]);
        assert_eq!(
            [0.0, 0.003, 0.996, 1.0].map(percent_rough),
            ["0 %", "under 1 %", "over 99 %", "100 %"]
        );
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12, 231_000, 1_200_000_000].map(bytes), ["12 B", "231 KB", "1.20 GB"]);
        assert_eq!([1, 2].map(|n| counted(n, "step")), ["1 step", "2 steps"]);
        assert_eq!([14.0, 14.5].map(calls), ["14", "14.50"]);
    }
}
