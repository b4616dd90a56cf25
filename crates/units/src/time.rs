//! Instants and spans in integer picoseconds.
//!
//! One byte at 800 Gb/s takes 10 ps, so picoseconds keep every serialization time exact enough to
//! be compared for equality; 64 bits of them last 213 days.

use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// An instant of simulated time: picoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Span(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant so many picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Seconds since the start, rounded to the nearest float.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The span since `earlier`, which must not be later.
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.checked_sub(earlier.0).expect("an instant cannot precede an earlier one"))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any run.
    pub const MAX: Self = Self(u64::MAX);

    /// So many picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// So many nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1_000)
    }

    /// So many microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000_000)
    }

    /// So many milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000_000)
    }

    /// The nearest span to `secs` seconds; anything negative is zero, anything too long saturates.
    pub fn from_secs_f64(secs: f64) -> Self {
        assert!(!secs.is_nan(), "a span of NaN seconds");
        Self((secs * 1e12).round() as u64)
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Seconds, rounded to the nearest float.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.checked_add(span.0).expect("simulated time passed 213 days"))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.checked_sub(span.0).expect("an instant before the start of the run"))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.checked_add(other.0).expect("a span longer than 213 days"))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.checked_sub(other.0).expect("a span below zero"))
    }
}

impl SubAssign for Span {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.checked_mul(times).expect("a span longer than 213 days"))
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl std::iter::Sum for Span {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_spans_add_up() {
        let start = Time::from_ps(500);
        assert_eq!(start + Span::from_ns(1), Time::from_ps(1_500));
        assert_eq!((start + Span::from_ns(1)).since(start), Span::from_ns(1));
        assert_eq!(Span::from_us(3) * 2 - Span::from_us(1), Span::from_us(5));
        assert_eq!(Span::from_ns(1).saturating_sub(Span::from_ns(2)), Span::ZERO);
    }

    #[test]
    #[should_panic(expected = "213 days")]
    fn an_overflow_is_never_silent() {
        let _ = Time::MAX + Span::from_ps(1);
    }

    #[test]
    fn float_seconds_round_to_the_nearest_picosecond() {
        assert_eq!(Span::from_secs_f64(1.5e-12), Span::from_ps(2));
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
        assert_eq!(Span::from_secs_f64(1e30), Span::MAX);
        assert!((Span::from_ms(20).as_secs_f64() - 0.02).abs() < 1e-15);
    }
}
