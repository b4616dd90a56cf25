//! Bytes, rates and cable lengths.

use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

use crate::time::Span;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Bytes(u64);

/// A data rate in bits per second. Never zero, so that every time to send is finite.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rate(NonZeroU64);

/// The length of a cable in millimetres.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Length(u64);

/// Signals in fibre and copper cover this many metres in a second. Source: SONiC's headroom
/// calculation (sonic-swss `buffer_headroom_mellanox.lua`) uses 198,000,000.
const METRES_PER_SECOND: u64 = 198_000_000;

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than anything.
    pub const MAX: Self = Self(u64::MAX);

    /// So many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many times 1,024 bytes.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// So many times 1,048,576 bytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes as a float.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// The difference, or zero if `other` is more.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Rate {
    /// So many bits per second, which must not be zero.
    pub const fn from_bps(bps: u64) -> Self {
        Self(NonZeroU64::new(bps).expect("a rate of zero"))
    }

    /// So many times 10⁹ bits per second.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self::from_bps(gbps * 1_000_000_000)
    }

    /// The nearest rate to `bps` bits per second, at least 1 bit/s.
    pub fn from_bps_f64(bps: f64) -> Self {
        assert!(!bps.is_nan(), "a rate of NaN");
        Self::from_bps((bps.round() as u64).max(1))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0.get()
    }

    /// Bits per second as a float.
    pub fn as_bps_f64(self) -> f64 {
        self.0.get() as f64
    }

    /// Bytes per second as a float.
    pub fn bytes_per_s(self) -> f64 {
        self.as_bps_f64() / 8.0
    }

    /// How long `bytes` take at this rate, rounded up to a picosecond.
    pub fn time_to_send(self, bytes: Bytes) -> Span {
        const PS_BITS: u64 = 8 * 1_000_000_000_000;
        let rate = self.0.get();
        if let Some(scaled) = bytes.get().checked_mul(PS_BITS) {
            return Span::from_ps(scaled.div_ceil(rate));
        }
        let scaled = u128::from(bytes.get()) * u128::from(PS_BITS);
        let ps = scaled.div_ceil(u128::from(rate));
        Span::from_ps(u64::try_from(ps).expect("sending takes longer than 213 days"))
    }

    /// How many whole bytes pass in `span`.
    pub fn bytes_in(self, span: Span) -> Bytes {
        let bits = u128::from(self.0.get()) * u128::from(span.as_ps()) / 1_000_000_000_000;
        Bytes(u64::try_from(bits / 8).expect("more bytes than 64 bits count"))
    }

    /// This rate times a positive factor, rounded, at least 1 bit/s.
    pub fn scaled(self, factor: f64) -> Self {
        Self::from_bps_f64(self.as_bps_f64() * factor)
    }
}

impl Length {
    /// No length: a backplane trace.
    pub const ZERO: Self = Self(0);

    /// So many metres.
    pub const fn from_metres(metres: u64) -> Self {
        Self(metres * 1_000)
    }

    /// So many millimetres.
    pub const fn from_mm(mm: u64) -> Self {
        Self(mm)
    }

    /// Millimetres.
    pub const fn as_mm(self) -> u64 {
        self.0
    }

    /// Metres.
    pub fn as_metres_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// How long a signal takes from end to end, rounded up.
    pub const fn propagation(self) -> Span {
        let ps = (self.0 as u128 * 1_000_000_000).div_ceil(METRES_PER_SECOND as u128);
        Span::from_ps(if ps < u64::MAX as u128 { ps as u64 } else { u64::MAX })
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.checked_add(other.0).expect("more bytes than 64 bits count"))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.checked_sub(other.0).expect("fewer than zero bytes"))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u64> for Bytes {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.checked_mul(times).expect("more bytes than 64 bits count"))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_rounds_up_and_survives_huge_sizes() {
        assert_eq!(Rate::from_gbps(400).time_to_send(Bytes::new(1)), Span::from_ps(20));
        assert_eq!(Rate::from_bps(3).time_to_send(Bytes::new(1)), Span::from_ps(2_666_666_666_667));
        let day_of_400g = Bytes::new(50_000_000_000 * 86_400);
        let day = Span::from_ms(86_400_000);
        assert_eq!(Rate::from_gbps(400).time_to_send(day_of_400g), day);
        assert_eq!(Rate::from_gbps(400).bytes_in(day), day_of_400g);
    }

    #[test]
    fn a_metre_takes_five_nanoseconds() {
        assert_eq!(Length::from_metres(198).propagation(), Span::from_us(1));
        assert_eq!(Length::from_metres(1).propagation(), Span::from_ps(5_051));
    }

    #[test]
    #[should_panic(expected = "64 bits")]
    fn too_many_bytes_are_never_silent() {
        let _ = Bytes::MAX + Bytes::new(1);
    }
}
