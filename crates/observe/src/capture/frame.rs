//! From the link layer to a packet of the transport.
//!
//! Ethernet with any number of VLAN tags, Linux's cooked captures, raw IP, ERF and InfiniBand
//! itself; copies that a switch sent in ERSPAN or VXLAN are unwrapped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce::packet::{decode, decode_ip};
use roce::{Envelope, Malformed};

use super::file::Record;
use super::flow::{Flows, PacketFacts};
use super::lldp;

/// How deep copies may lie in each other.
const MAX_DEPTH: usize = 3;
const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ROCE_V1: u16 = 0x8915;
const MAC_CONTROL: u16 = 0x8808;
const LLDP: u16 = 0x88cc;
/// More bytes than any transport header has.
const HEADERS: usize = 64;

/// Reads a frame; whether it is of a kind that is counted.
pub(super) fn read(record: &Record<'_>, flows: &mut Flows) -> bool {
    flows.time(record.time_ns);
    let cut = record.bytes.len() < record.length;
    let bytes = record.bytes;
    let known = match record.link {
        1 => ethernet(bytes, flows, 0),
        101 | 228 | 229 => ip(bytes, flows, 0),
        113 => half(bytes, 14).is_some_and(|kind| ether(kind, &bytes[16..], flows, 0)),
        276 => half(bytes, 0)
            .zip(bytes.get(20..))
            .is_some_and(|(kind, rest)| ether(kind, rest, flows, 0)),
        197 => erf(bytes, flows),
        247 => infiniband(bytes, flows),
        link => {
            flows.unknown_link(link);
            false
        }
    };
    if cut && known {
        flows.wire.truncated += 1;
    }
    known
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn ethernet(bytes: &[u8], flows: &mut Flows, depth: usize) -> bool {
    let Some(kind) = half(bytes, 12) else { return false };
    flows.station(&bytes[6..12]);
    ether(kind, &bytes[14..], flows, depth)
}

/// What follows an EtherType.
fn ether(mut kind: u16, mut bytes: &[u8], flows: &mut Flows, depth: usize) -> bool {
    while VLAN.contains(&kind) {
        let Some(next) = half(bytes, 2) else { return false };
        flows.wire.tagged += 1;
        (kind, bytes) = (next, &bytes[4..]);
    }
    match kind {
        IPV4 | IPV6 => ip(bytes, flows, depth),
        ROCE_V1 => global(bytes, flows),
        MAC_CONTROL => pause(bytes, flows),
        LLDP => {
            flows.wire.lldp += 1;
            flows.neighbour(lldp::read(bytes));
            true
        }
        _ => false,
    }
}

/// 802.3x: opcode 1 and a time. 802.1Qbb: opcode 0x0101, a mask of classes, a time for each.
fn pause(bytes: &[u8], flows: &mut Flows) -> bool {
    match half(bytes, 0) {
        Some(0x0001) => {
            flows.pause(None, half(bytes, 2).unwrap_or(0));
            true
        }
        Some(0x0101) => {
            let Some(mask) = half(bytes, 2) else { return false };
            let classes = (0..8u8).filter(|class| mask >> class & 1 == 1);
            let times = classes.map(|class| (class, half(bytes, 4 + 2 * usize::from(class))));
            let times: Vec<(u8, u16)> = times.map(|(c, quanta)| (c, quanta.unwrap_or(0))).collect();
            flows.pause(Some(&times), 0);
            true
        }
        _ => false,
    }
}

fn ip(bytes: &[u8], flows: &mut Flows, depth: usize) -> bool {
    match decode_ip(bytes) {
        Ok(packet) => {
            flows.packet(&PacketFacts::of(&packet));
            true
        }
        Err(Malformed::Short { .. }) => short(bytes, flows),
        Err(Malformed::Opcode(0x80)) => {
            flows.packets.cnps += 1;
            true
        }
        Err(Malformed::Opcode(_) | Malformed::Version(_) | Malformed::Padding) => {
            flows.wire.malformed += 1;
            true
        }
        Err(Malformed::Protocol(47)) if depth < MAX_DEPTH => gre(bytes, flows, depth),
        Err(Malformed::Port(4789)) if depth < MAX_DEPTH => vxlan(bytes, flows, depth),
        Err(_) => false,
    }
}

/// A packet of which the capture has only the beginning: what is missing counts as zeros.
fn short(bytes: &[u8], flows: &mut Flows) -> bool {
    let mut longer = bytes.to_vec();
    longer.resize(bytes.len() + HEADERS, 0);
    let header = match bytes.first().map_or(0, |byte| byte >> 4) {
        4 => usize::from(bytes[0] & 0x0f) * 4,
        _ => 40,
    };
    // IP, UDP and the base header must be there.
    if bytes.len() < header + 8 + 12 {
        let is_roce = half(bytes, header + 2) == Some(4791);
        flows.wire.malformed += u64::from(is_roce);
        return is_roce;
    }
    match decode_ip(&longer) {
        Ok(packet) => {
            let mut seen = PacketFacts::of(&packet);
            // What was cut is not there to be checked.
            (seen.headers_cut, seen.icrc_wrong) = (true, false);
            flows.packet(&seen);
            true
        }
        Err(_) => false,
    }
}

/// ERSPAN in GRE.
fn gre(bytes: &[u8], flows: &mut Flows, depth: usize) -> bool {
    let header = usize::from(bytes[0] & 0x0f) * 4;
    let (Some(flags), Some(kind)) = (half(bytes, header), half(bytes, header + 2)) else {
        return false;
    };
    let optional = [0x8000, 0x2000, 0x1000].iter().filter(|bit| flags & **bit != 0).count();
    let start = header + 4 + 4 * optional;
    let inner = match kind {
        // Type I has no sequence number and no header of its own.
        0x88be if flags & 0x1000 == 0 => start,
        0x88be => start + 8,
        0x22eb => start + 12,
        0x6558 => start,
        _ => return false,
    };
    flows.wire.mirrored += 1;
    bytes.get(inner..).is_some_and(|frame| ethernet(frame, flows, depth + 1))
}

fn vxlan(bytes: &[u8], flows: &mut Flows, depth: usize) -> bool {
    let header = match bytes[0] >> 4 {
        4 => usize::from(bytes[0] & 0x0f) * 4,
        _ => 40,
    };
    bytes.get(header + 16..).is_some_and(|frame| ethernet(frame, flows, depth + 1))
}

/// Endace's records: eight bytes of time, kind, flags, two lengths, a counter.
fn erf(bytes: &[u8], flows: &mut Flows) -> bool {
    let Some(kind) = bytes.get(8).copied() else { return false };
    let mut start = 16;
    let mut more = kind & 0x80 != 0;
    while more {
        let Some(first) = bytes.get(start) else { return false };
        more = first & 0x80 != 0;
        start += 8;
    }
    match kind & 0x7f {
        21 => bytes.get(start..).is_some_and(|bytes| infiniband(bytes, flows)),
        2 => bytes.get(start + 2..).is_some_and(|bytes| ethernet(bytes, flows, 0)),
        _ => false,
    }
}

/// A packet of InfiniBand: local header, perhaps a global one, transport, two checks.
fn infiniband(bytes: &[u8], flows: &mut Flows) -> bool {
    let (Some(first), Some(words)) = (half(bytes, 0), half(bytes, 4)) else { return false };
    let (Some(to), Some(from)) = (half(bytes, 2), half(bytes, 6)) else { return false };
    let length = usize::from(words & 0x7ff) * 4;
    let lid = |lid: u16| IpAddr::V4(Ipv4Addr::from(u32::from(lid)));
    match first & 3 {
        2 => transport(&bytes[8..], length.saturating_sub(8), lid(from), lid(to), flows),
        3 => bytes.get(8..).is_some_and(|bytes| global(bytes, flows)),
        _ => false,
    }
}

/// A global routing header, which is IPv6's, and a transport header.
fn global(bytes: &[u8], flows: &mut Flows) -> bool {
    let Some(header) = bytes.get(..40) else { return false };
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let address = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().unwrap_or_default();
        let address = Ipv6Addr::from(octets);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    };
    if header[6] != 27 {
        return false;
    }
    transport(&bytes[40..], length, address(8), address(24), flows)
}

/// Transport headers without IP and UDP around them; the check at the end is not looked at.
fn transport(bytes: &[u8], length: usize, src: IpAddr, dst: IpAddr, flows: &mut Flows) -> bool {
    if bytes.len() < 12 {
        return false;
    }
    let mut whole = bytes[..bytes.len().min(length)].to_vec();
    let headers_cut = whole.len() < length.min(HEADERS);
    whole.resize(length, 0);
    match decode(Envelope::new(src, dst, 0), &whole) {
        Ok(packet) => {
            let mut seen = PacketFacts::of(&packet);
            (seen.icrc_wrong, seen.is_native, seen.headers_cut) = (false, true, headers_cut);
            flows.packet(&seen);
        }
        Err(Malformed::Opcode(0x80)) => flows.packets.cnps += 1,
        Err(_) => flows.wire.malformed += 1,
    }
    true
}
