//! What a switch sees of a flow, and the functions with which it picks one of several equal links.
//!
//! A RoCEv2 packet shows a switch two addresses, the UDP protocol number, a source port that the
//! sender chose to carry entropy, the well-known destination port 4791 and, if the switch can be
//! told to look there, the destination queue pair number in the transport header. A [`Hasher`]
//! turns these into 32 bits with a named function and a seed.
//!
//! CRC and XOR are linear: another initial value permutes the members of a group but leaves the
//! same flows together (Zhang et al., "Hashing Linearity Enables Relative Path Control in Data
//! Centers", USENIX ATC 2021). Switches of different tiers are therefore also given different
//! offsets, which say which bits of the hash they use; here both come from the seed, the offset
//! from its upper five bits.
//!
//! Sources: CRC-16/XMODEM and CRC-32/ISO-HDLC as catalogued by Greg Cook, "Catalogue of
//! parametrised CRC algorithms"; Toeplitz as in Microsoft's "RSS hashing functions"; MurmurHash3
//! x86_32 by Austin Appleby; the same over the words of HPCC's ns-3, so that runs of that simulator
//! can be repeated path by path. UDP source ports: Linux `include/rdma/ib_verbs.h`,
//! `rdma_calc_flow_label` and `rdma_flow_label_to_udp_sport`.

pub mod linux;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::NodeId;

/// The UDP destination port of RoCEv2, assigned by IANA.
pub const ROCE_V2_PORT: u16 = 4791;

/// The protocol number of UDP.
pub const UDP: u8 = 17;

/// What identifies a flow on the wire, and between which NICs it runs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct FlowKey {
    /// The sending NIC. Not in the packet: policies that know the topology use it.
    pub from: NodeId,
    /// The receiving NIC. Not in the packet either.
    pub to: NodeId,
    /// Source address.
    pub src_ip: u32,
    /// Destination address.
    pub dst_ip: u32,
    /// Protocol number in the IP header.
    pub protocol: u8,
    /// Source port: where the sender puts its entropy.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Destination queue pair number, 24 bits.
    pub dst_qpn: u32,
}

impl FlowKey {
    /// The same flow with one of its other entropy values; 0 is its own.
    pub fn with_entropy(self, value: u16) -> Self {
        // An odd step runs through all ports before it comes back.
        Self { src_port: self.src_port.wrapping_add(value.wrapping_mul(0x9e37)), ..self }
    }
}

/// Which fields of a packet a switch hashes.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum HashFields {
    /// Source and destination address only.
    #[serde(rename = "src-dst")]
    Addresses,
    /// Addresses, ports and protocol: what every switch does unless told otherwise.
    #[default]
    #[serde(rename = "5-tuple")]
    FiveTuple,
    /// The 5-tuple and the destination queue pair number, by a user-defined field (E-ECMP).
    #[serde(rename = "5-tuple+qpn")]
    FiveTupleQpn,
    /// The 5-tuple and the Q_Key of datagrams, the only packets that carry one, in their DETH; each
    /// queue pair has one of its own, which is its number.
    #[serde(rename = "5-tuple+qkey")]
    FiveTupleQkey,
}

impl HashFields {
    /// Whether it tells queue pairs apart that share addresses and ports.
    pub fn sees_queue_pairs(self) -> bool {
        matches!(self, Self::FiveTupleQpn | Self::FiveTupleQkey)
    }
}

/// A hash function that switches offer.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum HashFunction {
    /// CRC-16 with the polynomial 0x1021. Linear.
    Crc16,
    /// CRC-32 with the polynomial 0x04c11db7. Linear.
    Crc32,
    /// All 16-bit words of the key, XORed. Linear, and blind to fields that cancel out.
    XorFold,
    /// Microsoft's Toeplitz hash; the seed changes its key.
    Toeplitz,
    /// MurmurHash3: as good as random, the yardstick for the others.
    #[default]
    Murmur3,
    /// MurmurHash3 of the fields without the protocol, as a little-endian machine has them in its
    /// memory: that of HPCC's ns-3 (`SwitchNode::EcmpHash`).
    Ns3,
    /// Linux's multipath routing: `fib_multipath_hash_policy` 1, or 0 for addresses alone; goes
    /// with `members = "threshold"`. Linux itself does not know queue pair numbers.
    Linux,
    /// The same with policy 3 and the same fields.
    LinuxCustom,
    /// Policy 1 (or 0) over IPv6, with the addresses of [`crate::address::ipv6`].
    LinuxIpv6,
    /// Policy 3 over IPv6.
    LinuxCustomIpv6,
}

impl HashFunction {
    /// All functions, for tests and help texts.
    pub const ALL: [Self; 10] = [
        Self::Crc16,
        Self::Crc32,
        Self::XorFold,
        Self::Toeplitz,
        Self::Murmur3,
        Self::Ns3,
        Self::Linux,
        Self::LinuxCustom,
        Self::LinuxIpv6,
        Self::LinuxCustomIpv6,
    ];

    /// Whether it is one of Linux's.
    pub fn is_linux(self) -> bool {
        matches!(self, Self::Linux | Self::LinuxCustom) || self.is_ipv6()
    }

    /// Whether it looks at IPv6 addresses.
    pub fn is_ipv6(self) -> bool {
        matches!(self, Self::LinuxIpv6 | Self::LinuxCustomIpv6)
    }

    /// Whether it is Linux's policy 3.
    pub fn is_custom(self) -> bool {
        matches!(self, Self::LinuxCustom | Self::LinuxCustomIpv6)
    }

    /// The plain function of these bytes, with the seed as its initial value or key.
    pub fn hash(self, bytes: &[u8], seed: u32) -> u32 {
        match self {
            Self::Crc16 => u32::from(crc16(bytes, seed as u16)),
            Self::Crc32 => crc32(bytes, seed),
            Self::XorFold => u32::from(xor_fold(bytes, seed as u16)),
            Self::Toeplitz => toeplitz(bytes, seed),
            Self::Murmur3 | Self::Ns3 => murmur3(bytes, seed),
            Self::Linux | Self::LinuxIpv6 => linux::hash(bytes, seed),
            Self::LinuxCustom | Self::LinuxCustomIpv6 => linux::custom(linux::hash(bytes, seed)),
        }
    }
}

/// How a switch hashes: which fields, with which function.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Hasher {
    /// Which fields it looks at.
    pub fields: HashFields,
    /// What it does with them.
    pub function: HashFunction,
}

impl Hasher {
    /// The hash of a flow at a switch with this seed, of which the low bits are to be used.
    pub fn hash(self, key: &FlowKey, seed: u32) -> u32 {
        if self.function.is_linux() {
            return self.function.hash(&self.linux_key(key), seed) >> 1;
        }
        let (bytes, length) = match self.function {
            HashFunction::Ns3 => self.fields.words(key),
            _ => self.fields.bytes(key),
        };
        let hash = self.function.hash(&bytes[..length], seed);
        let offset = seed >> 27;
        match self.function {
            HashFunction::Crc16 | HashFunction::XorFold => {
                u32::from((hash as u16).rotate_right(offset))
            }
            HashFunction::Crc32 => hash.rotate_right(offset),
            _ => hash,
        }
    }
}

impl Hasher {
    /// What Linux hashes of a flow.
    fn linux_key(self, key: &FlowKey) -> Vec<u8> {
        let five = (key.protocol, [key.src_port, key.dst_port]);
        let five = (self.fields != HashFields::Addresses).then_some(five);
        let addresses = [key.src_ip, key.dst_ip];
        let mut bytes = if self.function.is_ipv6() {
            let [src, dst] = addresses.map(|address| crate::address::ipv6(address).octets());
            linux::key(&src, &dst, five)
        } else {
            let [src, dst] = addresses.map(u32::to_be_bytes);
            linux::key(&src, &dst, five)
        };
        if self.fields.sees_queue_pairs() {
            // Where the kernel has zeros: what one that knew the number might do.
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(&key.dst_qpn.to_be_bytes());
        }
        bytes
    }
}

impl HashFields {
    /// The fields in network byte order, and how many bytes they are.
    fn bytes(self, key: &FlowKey) -> ([u8; 16], usize) {
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&key.src_ip.to_be_bytes());
        bytes[4..8].copy_from_slice(&key.dst_ip.to_be_bytes());
        bytes[8..10].copy_from_slice(&key.src_port.to_be_bytes());
        bytes[10..12].copy_from_slice(&key.dst_port.to_be_bytes());
        bytes[12] = key.protocol;
        bytes[13..16].copy_from_slice(&key.dst_qpn.to_be_bytes()[1..]);
        let length = match self {
            Self::Addresses => 8,
            Self::FiveTuple => 13,
            Self::FiveTupleQpn | Self::FiveTupleQkey => 16,
        };
        (bytes, length)
    }
}

impl HashFields {
    /// The fields as HPCC's ns-3 has them in memory, and how many bytes they are: no protocol, and
    /// the queue pair number, which that does not know, as one more word.
    fn words(self, key: &FlowKey) -> ([u8; 16], usize) {
        let ports = u32::from(key.src_port) | u32::from(key.dst_port) << 16;
        let mut bytes = [0; 16];
        for (at, word) in [key.src_ip, key.dst_ip, ports, key.dst_qpn].into_iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let length = match self {
            Self::Addresses => 8,
            Self::FiveTuple => 12,
            Self::FiveTupleQpn | Self::FiveTupleQkey => 16,
        };
        (bytes, length)
    }
}

/// How the sender chooses the UDP source port of a queue pair.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum UdpSource {
    /// From the two queue pair numbers, as Linux does and mlx5 (ConnectX) has done since 5.7.
    #[default]
    Linux,
    /// The device's lowest RoCE port for every queue pair, as mlx5 (ConnectX) did before.
    ConnectxFixed,
    /// One port for each pair of NICs: all flows of a pair look alike.
    PerPair,
    /// None: without UDP a packet has no port, as with RoCEv1.
    None,
    /// From 10,000 on for each pair of NICs, towards port 100 and between addresses 11.0.n.1: as
    /// HPCC's ns-3 numbers them, where answers swap the ports.
    Ns3,
}

/// Ports of HPCC's ns-3: a pair's first source port, and the destination port of the runs that are
/// compared with it.
const NS3_PORTS: (u16, u16) = (10_000, 100);

impl FlowKey {
    /// The same flow with the addresses and ports of HPCC's ns-3, as the `nth` between two hosts of
    /// these numbers.
    pub(crate) fn as_ns3(self, from: usize, to: usize, nth: u16) -> Self {
        let address = |host: usize| 0x0b00_0001 + ((host as u32 & 0xffff) << 8);
        let (src_ip, dst_ip) = (address(from), address(to));
        let (first, dst_port) = NS3_PORTS;
        Self { src_ip, dst_ip, src_port: first.wrapping_add(nth), dst_port, ..self }
    }

    /// What answers to this flow show. Linux derives the same source port at both ends; HPCC's ns-3
    /// swaps the two.
    pub fn reversed(self, udp_source: UdpSource) -> Self {
        let (src_port, dst_port) = match udp_source {
            UdpSource::Ns3 => (self.dst_port, self.src_port),
            _ => (self.src_port, self.dst_port),
        };
        let Self { from, to, src_ip, dst_ip, .. } = self;
        let (from, to, src_ip, dst_ip) = (to, from, dst_ip, src_ip);
        Self { from, to, src_ip, dst_ip, src_port, dst_port, ..self }
    }
}

impl UdpSource {
    /// The source port of a queue pair, given the addresses and the numbers at both ends.
    pub fn port(self, src_ip: u32, dst_ip: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
        match self {
            Self::Linux => flow_label_port(flow_label(local_qpn, remote_qpn)),
            Self::ConnectxFixed => 0xc000,
            Self::None => 0,
            Self::Ns3 => NS3_PORTS.0,
            Self::PerPair => flow_label_port(murmur3(&pair_bytes(src_ip, dst_ip), 0) & 0xf_ffff),
        }
    }
}

/// Linux's flow label of a queue pair whose user gave none: 20 bits from both numbers.
pub fn flow_label(local_qpn: u32, remote_qpn: u32) -> u32 {
    let mut label = u64::from(local_qpn) * u64::from(remote_qpn);
    label ^= label >> 20;
    label ^= label >> 40;
    (label & 0xf_ffff) as u32
}

/// Linux's UDP source port for a flow label: 14 bits in the dynamic range.
pub fn flow_label_port(label: u32) -> u16 {
    let (low, high) = (label & 0x3fff, label & 0xf_c000);
    ((low ^ (high >> 14)) | 0xc000) as u16
}

fn pair_bytes(src_ip: u32, dst_ip: u32) -> [u8; 8] {
    ((u64::from(src_ip) << 32) | u64::from(dst_ip)).to_be_bytes()
}

/// CRC-16/XMODEM, most significant bit first, with `seed` as the initial value.
fn crc16(bytes: &[u8], seed: u16) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut value = (at as u16) << 8;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 0x8000 == 0 { value << 1 } else { (value << 1) ^ 0x1021 };
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    let step = |crc: u16, byte: &u8| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)];
    bytes.iter().fold(seed, step)
}

/// CRC-32/ISO-HDLC, least significant bit first; `seed` 0 is the catalogued initial value.
fn crc32(bytes: &[u8], seed: u32) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut value = at as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 0 { value >> 1 } else { (value >> 1) ^ 0xedb8_8320 };
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(!seed, step)
}

/// All big-endian 16-bit words, XORed; a last odd byte is the upper half of a word.
fn xor_fold(bytes: &[u8], seed: u16) -> u16 {
    let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
    bytes.chunks(2).fold(seed, |fold, pair| fold ^ word(pair))
}

/// Microsoft's verification key.
const TOEPLITZ_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Toeplitz with Microsoft's key, stirred by the seed unless that is zero. At most 36 bytes.
fn toeplitz(bytes: &[u8], seed: u32) -> u32 {
    let stir = |at: usize| match seed {
        0 => 0,
        _ => murmur3(&[at as u8], seed) as u8,
    };
    let key = |at: usize| TOEPLITZ_KEY[at] ^ stir(at);
    // The window holds the 32 bits of the key that begin at the current bit, and the next 8.
    let mut window = (0..4).fold(0_u64, |window, at| (window << 8) | u64::from(key(at)));
    let mut hash = 0;
    for (at, byte) in bytes.iter().enumerate() {
        window = (window << 8) | u64::from(key(at + 4));
        for bit in 0..8 {
            if byte >> (7 - bit) & 1 == 1 {
                hash ^= (window >> (8 - bit)) as u32;
            }
        }
    }
    hash
}

/// MurmurHash3 x86_32.
fn murmur3(bytes: &[u8], seed: u32) -> u32 {
    let scramble =
        |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let blocks = bytes.chunks_exact(4);
    let tail = blocks.remainder();
    let mut hash = blocks.fold(seed, |hash, block| {
        let block = u32::from_le_bytes(block.try_into().expect("chunks of four"));
        (hash ^ scramble(block)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    if !tail.is_empty() {
        let block = tail.iter().rev().fold(0, |block, byte| (block << 8) | u32::from(*byte));
        hash ^= scramble(block);
    }
    finish(hash ^ bytes.len() as u32)
}

/// MurmurHash3's finaliser: every bit of the input reaches every bit of the output.
pub(crate) fn finish(hash: u32) -> u32 {
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use units::Id;

    use super::*;

    /// Oracle: the check values of the catalogue, and both initial values of CRC-16.
    #[test]
    fn crcs_have_their_catalogued_check_values() {
        let check = b"123456789";
        assert_eq!(HashFunction::Crc16.hash(check, 0), 0x31c3); // XMODEM
        assert_eq!(HashFunction::Crc16.hash(check, 0xffff), 0x29b1); // IBM-3740
        assert_eq!(HashFunction::Crc32.hash(check, 0), 0xcbf4_3926);
    }

    /// Oracle: the published vectors of MurmurHash3 x86_32.
    #[test]
    fn murmur3_has_its_published_values() {
        let check = |text: &str, seed, expected| {
            assert_eq!(HashFunction::Murmur3.hash(text.as_bytes(), seed), expected, "{text}");
        };
        check("", 0, 0);
        check("", 1, 0x514e_28b7);
        check("aaaa", 0x9747_b28c, 0x5a97_808a);
        check("test", 0, 0xba6b_d213);
        check("Hello, world!", 0, 0xc036_3e43);
        check("The quick brown fox jumps over the lazy dog", 0x9747_b28c, 0x2fa8_26cd);
    }

    fn key(src: ([u8; 4], u16), dst: ([u8; 4], u16)) -> FlowKey {
        let node = NodeId::from_index(0);
        let (src_ip, dst_ip) = (u32::from_be_bytes(src.0), u32::from_be_bytes(dst.0));
        let (from, to, protocol, dst_qpn) = (node, node, UDP, 0);
        FlowKey { from, to, src_ip, dst_ip, protocol, src_port: src.1, dst_port: dst.1, dst_qpn }
    }

    /// Oracle: Microsoft's verification suite, addresses alone and with ports.
    #[test]
    fn toeplitz_has_microsofts_values() {
        let check = |dst, src, addresses: u32, with_ports: u32| {
            let (bytes, _) = HashFields::FiveTuple.bytes(&key(src, dst));
            assert_eq!(HashFunction::Toeplitz.hash(&bytes[..8], 0), addresses, "{src:?}");
            assert_eq!(HashFunction::Toeplitz.hash(&bytes[..12], 0), with_ports, "{src:?}");
        };
        let lines = [
            (([161, 142, 100, 80], 1766), ([66, 9, 149, 187], 2794), 0x323e_8fc2, 0x51cc_c178),
            (([65, 69, 140, 83], 4739), ([199, 92, 111, 2], 14_230), 0xd718_262a, 0xc626_b0ea),
            (([12, 22, 207, 184], 38_024), ([24, 19, 198, 95], 12_898), 0xd2d0_a5de, 0x5c2b_394a),
            (([209, 142, 163, 6], 2217), ([38, 27, 205, 30], 48_228), 0x8298_9176, 0xafc7_327f),
            (([202, 188, 127, 2], 1303), ([153, 39, 163, 191], 44_251), 0x5d18_09c5, 0x10e8_28a2),
        ];
        for (dst, src, addresses, with_ports) in lines {
            check(dst, src, addresses, with_ports);
        }
    }

    /// Oracle: Linux's arithmetic, followed by hand for small numbers.
    #[test]
    fn source_ports_follow_linux() {
        // 0x11 * 0x22 = 0x242, no higher bits to fold in.
        assert_eq!(flow_label(0x11, 0x22), 0x242);
        assert_eq!(flow_label_port(0x242), 0xc242);
        // 0x1000 * 0x1000 = 0x100_0000: bit 24 folds to bit 4.
        assert_eq!(flow_label(0x1000, 0x1000), 0x10);
        // Bits 14 and up fold onto the lowest ones.
        assert_eq!(flow_label_port(0x4_0001), 0xc000 | (0x1 ^ 0x10));
        let linux = UdpSource::Linux.port(1, 2, 0x11, 0x22);
        assert_eq!(linux, 0xc242);
        assert_eq!(UdpSource::ConnectxFixed.port(1, 2, 0x11, 0x22), 0xc000);
        assert_eq!(UdpSource::None.port(1, 2, 0x11, 0x22), 0);
        let pair = UdpSource::PerPair;
        assert_eq!(pair.port(1, 2, 3, 4), pair.port(1, 2, 5, 6));
        assert_ne!(pair.port(1, 2, 3, 4), pair.port(1, 3, 3, 4));
    }

    /// Oracle: HPCC's ns-3, for the first flow from host 0 to host 5 and its answers at switch 16
    /// of the runs in `packetsim/tests/reference/made`.
    #[test]
    fn ns3_hashes_its_own_addresses_and_ports() {
        let key = key(([0; 4], 0), ([0; 4], 0)).as_ns3(0, 5, 0);
        let hasher = Hasher { fields: HashFields::FiveTuple, function: HashFunction::Ns3 };
        assert_eq!(hasher.hash(&key, 16), 0x3a8c_b60f);
        assert_eq!(hasher.hash(&key.reversed(UdpSource::Ns3), 16), 0xd25e_48c0);
        assert_eq!(key.reversed(UdpSource::Linux).src_port, key.src_port);
    }

    /// Property: only what the fields name can move a flow.
    #[test]
    fn a_hash_sees_its_fields_and_nothing_else() {
        let one = key(([10, 0, 0, 1], 50_000), ([10, 0, 0, 2], ROCE_V2_PORT));
        let other_qpn = FlowKey { dst_qpn: 77, ..one };
        let other_port = FlowKey { src_port: 50_001, ..one };
        for function in HashFunction::ALL {
            let hash = |fields, key: &FlowKey| Hasher { fields, function }.hash(key, 0x1234_5678);
            let (tuple, qpn) = (HashFields::FiveTuple, HashFields::FiveTupleQpn);
            assert_eq!(hash(tuple, &one), hash(tuple, &other_qpn), "{function:?}");
            assert_ne!(hash(qpn, &one), hash(qpn, &other_qpn), "{function:?}");
            assert_ne!(hash(tuple, &one), hash(tuple, &other_port), "{function:?}");
            let addresses = HashFields::Addresses;
            assert_eq!(hash(addresses, &one), hash(addresses, &other_port), "{function:?}");
        }
    }

    /// Property: a linear hash with another initial value keeps the same flows together; the
    /// offset in the seed's upper bits is what parts them.
    #[test]
    fn a_seed_alone_does_not_part_flows_that_a_crc_put_together() {
        let hasher = Hasher { fields: HashFields::FiveTuple, function: HashFunction::Crc32 };
        let flow = |port| key(([10, 0, 0, 1], port), ([10, 0, 0, 2], ROCE_V2_PORT));
        let together: Vec<FlowKey> = (0xc000..0xc800)
            .map(flow)
            .filter(|key| hasher.hash(key, 0).is_multiple_of(16))
            .collect();
        let members = |seed| {
            let mut members: Vec<u32> =
                together.iter().map(|key| hasher.hash(key, seed) % 16).collect();
            members.sort_unstable();
            members.dedup();
            members.len()
        };
        assert_eq!(members(0x0123_4567), 1);
        assert!(8 < members(0xa123_4567));
    }
}
