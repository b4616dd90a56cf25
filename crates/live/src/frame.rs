//! What switches do to packets as bytes: time to live, marks, answers to it, pauses.
//!
//! Packets begin with their IP header. A pause is a whole Ethernet frame (IEEE 802.1Qbb), which no
//! IP packet looks like.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Packets of this DSCP or above are control (CS6 and CS7, RFC 4594).
pub const CONTROL_DSCP: u8 = 48;

/// DSCP of packets with data, as most guides for RoCE have it.
pub const DATA_DSCP: u8 = 26;

/// Bytes of a pause frame.
pub const PAUSE: usize = 64;

/// The priority that data has in pauses.
const DATA_PRIORITY: u8 = 3;

/// Type of "time exceeded" and of "destination unreachable" in ICMP and in ICMPv6.
pub const EXCEEDED: [u8; 2] = [11, 3];
/// See [`EXCEEDED`].
pub const UNREACHABLE: [u8; 2] = [3, 1];

/// The address of a switch: link-local for IPv4, a unique local prefix for IPv6.
pub fn switch_address(ordinal: usize, ipv6: bool) -> IpAddr {
    if ipv6 {
        return Ipv6Addr::from((0xfd01_u128 << 112) | (1 + ordinal as u128)).into();
    }
    Ipv4Addr::new(169, 254, (1 + ordinal / 250) as u8, (1 + ordinal % 250) as u8).into()
}

fn is_ipv6(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6
}

/// Counts the time to live down; `false` if it ends here.
pub fn count_down(packet: &mut [u8]) -> bool {
    let at = if is_ipv6(packet) { 7 } else { 8 };
    packet[at] = packet[at].saturating_sub(1);
    packet[at] != 0
}

/// Marks a packet that is capable of it; whether it was.
pub fn mark(packet: &mut [u8]) -> bool {
    let bits = if is_ipv6(packet) { 0x30 } else { 3 };
    let capable = packet[1] & bits != 0;
    if capable {
        packet[1] |= bits;
    }
    capable
}

/// What a router answers when the time to live of a packet ends: the packet is quoted.
pub fn time_exceeded(from: IpAddr, packet: &[u8]) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(128)];
    let message = |kind: u8| {
        let mut bytes = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(quoted);
        bytes
    };
    let mut bytes = Vec::new();
    match from {
        IpAddr::V4(from) => {
            let message = message(EXCEEDED[0]);
            let length = (20 + message.len()) as u16;
            bytes.extend([0x45, 0xc0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, 1, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(&packet[12..16]);
            bytes.extend(message);
        }
        IpAddr::V6(from) => {
            let message = message(EXCEEDED[1]);
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend((message.len() as u16).to_be_bytes());
            bytes.extend([58, 64]);
            bytes.extend(from.octets());
            bytes.extend(&packet[8..24]);
            bytes.extend(message);
        }
    }
    bytes
}

/// An answer of a router: who it is, its type (of both families), and the packet that it quotes.
pub fn read_answer(packet: &[u8]) -> Option<(IpAddr, u8, &[u8])> {
    let word = |at: usize| <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok();
    let (from, protocol, start) = match packet.first()? >> 4 {
        4 => (IpAddr::from(word(12)?), *packet.get(9)?, usize::from(packet[0] & 15) * 4),
        6 => {
            let octets = <[u8; 16]>::try_from(packet.get(8..24)?).ok()?;
            (IpAddr::from(octets), *packet.get(6)?, 40)
        }
        _ => return None,
    };
    let is_icmp = protocol == if from.is_ipv4() { 1 } else { 58 };
    let quoted = packet.get(start + 8..)?;
    is_icmp.then_some((from, packet[start], quoted))
}

/// A frame that begins or ends a pause of data (IEEE 802.1Qbb).
pub fn pause(begins: bool) -> Vec<u8> {
    let mut bytes = vec![0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x88, 0x08, 1, 1];
    bytes.extend([0, 1 << DATA_PRIORITY]);
    for priority in 0..8 {
        let quanta = u16::MAX * u16::from(begins && priority == DATA_PRIORITY);
        bytes.extend(quanta.to_be_bytes());
    }
    bytes.resize(PAUSE, 0);
    bytes
}

/// Whether a frame is a pause, and whether it begins or ends.
pub fn read_pause(bytes: &[u8]) -> Option<bool> {
    let is_pause = bytes.len() == PAUSE && bytes[12..16] == [0x88, 0x08, 1, 1];
    let at = 18 + 2 * usize::from(DATA_PRIORITY);
    is_pause.then(|| bytes[at..at + 2] != [0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause is read as what was written, and no IP packet is one.
    #[test]
    fn pauses_are_read_back() {
        assert_eq!(
            [true, false].map(|begins| read_pause(&pause(begins))),
            [Some(true), Some(false)]
        );
        assert_eq!(read_pause(&[0x45; PAUSE]), None);
    }

    /// A router's answer names it and quotes the packet; what is cut short is no answer.
    #[test]
    fn answers_quote_the_packet() {
        for from in [switch_address(3, false), switch_address(3, true)] {
            let packet = if from.is_ipv4() { vec![0x45; 200] } else { vec![0x60; 200] };
            let answer = time_exceeded(from, &packet);
            let (who, kind, quoted) = read_answer(&answer).unwrap();
            assert_eq!((who, quoted), (from, &packet[..128]));
            assert!(EXCEEDED.contains(&kind));
            assert!((0..28).all(|end| read_answer(&answer[..end]).is_none()));
        }
    }
}
