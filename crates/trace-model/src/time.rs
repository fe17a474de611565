//! Points in time and lengths of time, both in integer nanoseconds.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// A point on a trace's clock, in nanoseconds. Its origin is the trace's own (see
/// [`TraceMeta::base_time_ns`](crate::TraceMeta::base_time_ns)).
///
/// The difference of two points is a [`Nanos`]; two points cannot be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A signed length of time, in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(i64);

impl Timestamp {
    /// The earliest point that can be represented.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest point that can be represented.
    pub const MAX: Self = Self(i64::MAX);

    /// The point `ns` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_ns(self) -> i64 {
        self.0
    }
}

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A length of `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    /// The length in nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> i64 {
        self.0
    }

    /// This length, or zero when it is negative.
    #[must_use]
    pub const fn clamp_to_zero(self) -> Self {
        if self.0 < 0 { Self(0) } else { self }
    }

    /// `self / whole` as a number, `None` when `whole` is zero.
    #[must_use]
    pub fn ratio_of(self, whole: Self) -> Option<f64> {
        (whole.0 != 0).then(|| self.0 as f64 / whole.0 as f64)
    }
}

// Arithmetic saturates: a corrupt event at the edge of the number range must not stop an analysis.

impl Sub for Timestamp {
    type Output = Nanos;
    fn sub(self, other: Self) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add<Nanos> for Timestamp {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Sub<Nanos> for Timestamp {
    type Output = Self;
    fn sub(self, length: Nanos) -> Self {
        Self(self.0.saturating_sub(length.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for Nanos {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(lengths: I) -> Self {
        lengths.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_points_is_a_length() {
        assert_eq!(Timestamp::from_ns(30) - Timestamp::from_ns(50), Nanos::from_ns(-20));
        assert_eq!(Timestamp::from_ns(30) + Nanos::from_ns(5), Timestamp::from_ns(35));
    }

    #[test]
    fn arithmetic_at_the_edge_saturates() {
        assert_eq!(Timestamp::MIN - Timestamp::MAX, Nanos::from_ns(i64::MIN));
        assert_eq!(Timestamp::MAX + Nanos::from_ns(1), Timestamp::MAX);
    }

    #[test]
    fn a_ratio_of_nothing_is_unknown() {
        assert_eq!(Nanos::from_ns(1).ratio_of(Nanos::ZERO), None);
        assert_eq!(Nanos::from_ns(1).ratio_of(Nanos::from_ns(4)), Some(0.25));
    }
}
