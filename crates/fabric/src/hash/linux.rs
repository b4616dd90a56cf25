//! The hash of Linux's multipath routing, and how it becomes a next hop.
//!
//! SipHash-2-4 over the kernel's `flow_keys`, with the seed of `fib_multipath_hash_seed` in every
//! half of the key; policy 3 puts Jenkins' hash of two words on top. Addresses and ports are put
//! in order first, each for itself, so both directions hash alike. IPv4 addresses and ports are
//! compared as a little-endian machine has them in its memory, IPv6 addresses byte by byte.
//!
//! Source: Linux 6.18 `net/ipv4/route.c` (`fib_multipath_hash`), `net/core/flow_dissector.c`
//! (`__flow_hash_from_keys`), `net/ipv4/fib_semantics.c` (`fib_select_multipath`). Held against a
//! running kernel, flow by flow, by `tests/live`.

/// The bytes that are hashed, for addresses of 4 or 16 bytes; protocol and ports (source,
/// destination), unless only addresses count.
pub fn key(src: &[u8], dst: &[u8], five: Option<(u8, [u16; 2])>) -> Vec<u8> {
    let mut bytes = vec![0; 40 + 2 * src.len()];
    if let Some((protocol, ports)) = five {
        bytes[2] = protocol;
        let [src, dst] = ports.map(u16::to_be_bytes);
        let swapped = u16::from_le_bytes(dst) < u16::from_le_bytes(src);
        let (first, second) = if swapped { (dst, src) } else { (src, dst) };
        bytes[28..30].copy_from_slice(&first);
        bytes[30..32].copy_from_slice(&second);
    }
    let swapped = match (<[u8; 4]>::try_from(src), <[u8; 4]>::try_from(dst)) {
        (Ok(src), Ok(dst)) => u32::from_le_bytes(dst) < u32::from_le_bytes(src),
        _ => dst < src,
    };
    let (first, second) = if swapped { (dst, src) } else { (src, dst) };
    bytes[36..36 + src.len()].copy_from_slice(first);
    bytes[36 + src.len()..36 + 2 * src.len()].copy_from_slice(second);
    bytes
}

/// The seed that a router is given for a switch's: 0 would mean a random one.
pub fn seed(seed: u32) -> u32 {
    seed.max(1)
}

/// What the kernel makes of them.
pub fn hash(bytes: &[u8], seed: u32) -> u32 {
    let seed = self::seed(seed);
    let half = u64::from(seed) << 32 | u64::from(seed);
    (siphash(bytes, [half, half]) as u32).max(1)
}

/// What policy 3 does on top: `jhash_2words(hash, 0, 0)`.
pub fn custom(hash: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(2 << 2);
    let [mut a, mut b, mut c] = [start.wrapping_add(hash), start, start];
    for (round, turn) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (x, y) = match round % 3 {
            0 => (&mut c, b),
            1 => (&mut a, c),
            _ => (&mut b, a),
        };
        *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    }
    c
}

/// The next hop of `count` equal ones that a hash of 31 bits falls on: each has an equal part of
/// the range.
pub fn next_hop(hash: u32, count: usize) -> usize {
    let bound = |at: usize| {
        let (part, all) = ((at as u64 + 1) << 31, count as u64);
        (part + all / 2) / all
    };
    (0..count).find(|at| u64::from(hash) < bound(*at)).unwrap_or(count - 1)
}

/// SipHash-2-4.
fn siphash(bytes: &[u8], [low, high]: [u64; 2]) -> u64 {
    let mut v = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let chunks = bytes.chunks_exact(8);
    let mut last = (bytes.len() as u64) << 56;
    for (at, byte) in chunks.remainder().iter().enumerate() {
        last |= u64::from(*byte) << (8 * at);
    }
    let words = chunks.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    for word in words.chain([last]) {
        v[3] ^= word;
        (0..2).for_each(|_| round(&mut v));
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: the vectors of the SipHash paper, appendix A, and of its reference code (the first
    /// of `vectors_sip64`, an empty message).
    #[test]
    fn siphash_has_its_published_values() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(&message, key), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash(&[], key), 0x726f_db47_dd0e_0e31);
    }

    /// Both directions of a flow, with ports and addresses swapped, hash alike.
    #[test]
    fn directions_hash_alike() {
        let (a, b) = ([10, 0, 0, 2], [10, 0, 0, 66]);
        let there = key(&a, &b, Some((17, [0xc123, 4791])));
        let back = key(&b, &a, Some((17, [4791, 0xc123])));
        assert_eq!(there, back);
        assert_eq!(there.len(), 48);
        assert_eq!(key(&[1; 16], &[2; 16], None).len(), 72);
    }

    /// Every next hop has an equal part of the range, and the last number falls on the last.
    #[test]
    fn next_hops_share_the_range() {
        for count in 1..9 {
            let mut seen = vec![0; count];
            for step in 0..10_000_u64 {
                seen[next_hop((step * (1 << 31) / 10_000) as u32, count)] += 1;
            }
            let each = 10_000 / count as i64;
            assert!(seen.iter().all(|found: &i64| (found - each).abs() <= 1), "{seen:?}");
            assert_eq!(next_hop((1 << 31) - 1, count), count - 1);
        }
    }
}
