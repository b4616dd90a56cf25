//! Packet sequence numbers: 24 bits on the wire, counted without end inside.

use crate::header::BITS_24;

/// Where counting begins for a first number: high enough that nothing before it is negative.
pub(crate) fn first(psn: u32) -> u64 {
    1 << 24 | u64::from(psn & BITS_24)
}

/// What the wire shows of a count.
pub(crate) fn wire(count: u64) -> u32 {
    count as u32 & BITS_24
}

/// The count nearest to `near` that the wire shows so: half the circle lies before, half after.
pub(crate) fn near(psn: u32, near: u64) -> u64 {
    let ahead = psn.wrapping_sub(wire(near)) & BITS_24;
    let behind = u64::from(BITS_24 + 1 - ahead);
    if ahead < 1 << 23 { near + u64::from(ahead) } else { near.saturating_sub(behind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers wrap round and are still found, a little before and after.
    #[test]
    fn counts_survive_the_wrap() {
        for start in [0, 5, BITS_24 - 2, BITS_24] {
            let count = first(start) + 10;
            for offset in -8_000_000_i64..=8_000_000 {
                if offset % 999_983 == 0 || offset.abs() < 3 {
                    let other = count.checked_add_signed(offset).expect("above zero");
                    assert_eq!(near(wire(other), count), other);
                }
            }
        }
    }
}
