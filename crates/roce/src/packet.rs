//! A whole packet: IP, UDP, transport headers, payload, ICRC.
//!
//! A socket sees only what UDP carries and must be told of the rest ([`Envelope`]), because the
//! ICRC covers it; a capture has it all. Both meet in [`Decoded`].
//!
//! The ICRC is CRC-32 over eight bytes of ones (where InfiniBand's own header would be) and the
//! packet, in which all that may change on the way counts as ones: traffic class, TTL, header
//! checksum, flow label, UDP checksum, and the byte of the base header with FECN and BECN.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fabric::hash::{ROCE_V2_PORT as PORT, UDP as PROTOCOL_UDP};

use crate::header::{Headers, size};

/// Bytes of an IPv4 header without options, of an IPv6 header, and of a UDP header.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;

/// What surrounds the transport headers: IP and UDP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Envelope {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// UDP source port.
    pub src_port: u16,
    /// Type of service or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub class: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Identification (IPv4; the ICRC covers it).
    pub identification: u16,
    /// "Don't fragment" (IPv4; the ICRC covers it).
    pub dont_fragment: bool,
    /// Flow label, 20 bits (IPv6).
    pub flow_label: u32,
}

impl Envelope {
    /// What an unconnected socket with `IP_PMTUDISC_DO` puts around a packet.
    pub const fn new(src: IpAddr, dst: IpAddr, src_port: u16) -> Self {
        Self {
            src,
            dst,
            src_port,
            class: 0,
            ttl: 64,
            identification: 0,
            dont_fragment: true,
            flow_label: 0,
        }
    }

    /// The two bits of ECN: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub const fn ecn(&self) -> u8 {
        self.class & 3
    }

    /// The differentiated services code point.
    pub const fn dscp(&self) -> u8 {
        self.class >> 2
    }

    /// Bytes of the IP header that is written for it.
    const fn ip_bytes(&self) -> usize {
        match self.dst {
            IpAddr::V4(_) => IPV4,
            IpAddr::V6(_) => IPV6,
        }
    }

    /// Writes IP and UDP headers for so many bytes of UDP payload; the UDP checksum is 0.
    fn write(&self, udp_payload: usize, to: &mut Vec<u8>) {
        let udp = (UDP + udp_payload) as u16;
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let start = to.len();
                to.extend([0x45, self.class]);
                to.extend((IPV4 as u16 + udp).to_be_bytes());
                to.extend(self.identification.to_be_bytes());
                to.extend([u8::from(self.dont_fragment) << 6, 0, self.ttl, PROTOCOL_UDP, 0, 0]);
                to.extend(src.octets());
                to.extend(dst.octets());
                let checksum = checksum(&to[start..]);
                to[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            (src, dst) => {
                let first = 6 << 28 | u32::from(self.class) << 20 | (self.flow_label & 0xf_ffff);
                to.extend(first.to_be_bytes());
                to.extend(udp.to_be_bytes());
                to.extend([PROTOCOL_UDP, self.ttl]);
                to.extend(as_v6(src).octets());
                to.extend(as_v6(dst).octets());
            }
        }
        to.extend(self.src_port.to_be_bytes());
        to.extend(PORT.to_be_bytes());
        to.extend(udp.to_be_bytes());
        to.extend([0, 0]);
    }

    /// Reads IP and UDP headers; returns what UDP carries, as far as it was captured, and how many
    /// bytes that is in full.
    fn read(ip: &[u8]) -> Result<(Self, &[u8], usize), Malformed> {
        let short = |what| Malformed::Short { what, bytes: ip.len() };
        let (envelope, header, total) = match ip.first().ok_or(short("IP header"))? >> 4 {
            4 => Self::read_v4(ip)?,
            6 => Self::read_v6(ip)?,
            version => return Err(Malformed::IpVersion(version)),
        };
        let udp = ip.get(header..header + UDP).ok_or(short("UDP header"))?;
        let number = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        if number(2) != PORT {
            return Err(Malformed::Port(number(2)));
        }
        let (carried, said) = (total.saturating_sub(header), usize::from(number(4)));
        if said < UDP || carried != said {
            return Err(Malformed::UdpLength { said, carried });
        }
        let start = header + UDP;
        let end = ip.len().min(header + said);
        Ok((Self { src_port: number(0), ..envelope }, &ip[start..end], said - UDP))
    }

    /// The same of IPv4: with the bytes of the header and of the whole packet.
    fn read_v4(ip: &[u8]) -> Result<(Self, usize, usize), Malformed> {
        let short = Malformed::Short { what: "IPv4 header", bytes: ip.len() };
        let header = usize::from(ip[0] & 0x0f) * 4;
        if ip.len() < IPV4 || header < IPV4 {
            return Err(short);
        }
        let number = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        // More fragments, or not the first of them, or the bit that is always zero.
        if number(6) & 0xbfff != 0 {
            return Err(Malformed::Fragment);
        }
        if ip[9] != PROTOCOL_UDP {
            return Err(Malformed::Protocol(ip[9]));
        }
        let mut envelope = Self::new(address(12).into(), address(16).into(), 0);
        envelope.class = ip[1];
        envelope.ttl = ip[8];
        envelope.identification = number(4);
        envelope.dont_fragment = number(6) & 0x4000 != 0;
        Ok((envelope, header, usize::from(number(2))))
    }

    /// The same of IPv6, without extension headers.
    fn read_v6(ip: &[u8]) -> Result<(Self, usize, usize), Malformed> {
        let header =
            ip.get(..IPV6).ok_or(Malformed::Short { what: "IPv6 header", bytes: ip.len() })?;
        if header[6] != PROTOCOL_UDP {
            return Err(Malformed::Protocol(header[6]));
        }
        let first = u32::from_be_bytes(header[..4].try_into().expect("four bytes"));
        let address = |at: usize| {
            let octets: [u8; 16] = header[at..at + 16].try_into().expect("16 bytes");
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let mut envelope = Self::new(address(8), address(24), 0);
        envelope.class = (first >> 20) as u8;
        envelope.flow_label = first & 0xf_ffff;
        envelope.ttl = header[7];
        envelope.dont_fragment = true;
        let total = IPV6 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        Ok((envelope, IPV6, total))
    }

    /// The ICRC of what UDP carries, without the ICRC at its end.
    pub fn icrc(&self, udp_payload: &[u8]) -> u32 {
        // Eight bytes of ones, the longer IP header, UDP, and the base header.
        let mut start = Vec::with_capacity(8 + IPV6 + UDP + size::BTH);
        start.extend([0xff; 8]);
        self.write(udp_payload.len() + size::ICRC, &mut start);
        let masked: &[usize] = match self.dst {
            IpAddr::V4(_) => &[1, 8, 10, 11],
            IpAddr::V6(_) => &[1, 2, 3, 7],
        };
        for at in masked {
            start[8 + at] = 0xff;
        }
        if matches!(self.dst, IpAddr::V6(_)) {
            start[8] |= 0x0f;
        }
        let udp = 8 + self.ip_bytes();
        start[udp + 6..udp + 8].fill(0xff);
        let split = udp_payload.len().min(size::BTH);
        start.extend(&udp_payload[..split]);
        if let Some(notifications) = start.get_mut(udp + UDP + 4) {
            *notifications = 0xff;
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&start);
        crc.update(&udp_payload[split..]);
        crc.finalize()
    }
}

/// An address as IPv6 writes it.
fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The Internet's checksum (RFC 1071) of a header.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while 0xffff < sum {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What is wrong with bytes that should be a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// They end too early.
    Short {
        /// Inside what.
        what: &'static str,
        /// How many there are.
        bytes: usize,
    },
    /// Neither IPv4 nor IPv6.
    IpVersion(u8),
    /// A fragment: only the first has transport headers, and RoCE does not fragment.
    Fragment,
    /// Not UDP.
    Protocol(u8),
    /// Not RoCE's port.
    Port(u16),
    /// UDP says another length than IP.
    UdpLength {
        /// What UDP says.
        said: usize,
        /// What IP leaves for it.
        carried: usize,
    },
    /// No opcode that is known.
    Opcode(u8),
    /// A version of the transport that does not exist.
    Version(u8),
    /// More padding than payload.
    Padding,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { what, bytes } => write!(f, "it ends in the {what}, after {bytes} bytes"),
            Self::IpVersion(version) => write!(f, "IP version {version} does not exist"),
            Self::Fragment => write!(f, "it is a fragment of a packet"),
            Self::Protocol(number) => write!(f, "protocol {number} is not UDP"),
            Self::Port(port) => write!(f, "UDP port {port} is not RoCE's {PORT}"),
            Self::UdpLength { said, carried } => {
                write!(f, "UDP says {said} bytes where IP carries {carried}")
            }
            Self::Opcode(byte) => write!(f, "opcode {byte:#04x} is reserved"),
            Self::Version(version) => write!(f, "transport version {version} does not exist"),
            Self::Padding => write!(f, "it has more padding than payload"),
        }
    }
}

impl std::error::Error for Malformed {}

/// What became of the check at the end of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Icrc {
    /// It is right.
    Right,
    /// It is not what the packet gives.
    Wrong {
        /// What the packet has.
        found: u32,
        /// What it should have.
        expected: u32,
    },
    /// The packet was not captured in full, or has IP options.
    NotCheckable,
}

/// A packet that has been read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Decoded<'a> {
    /// IP and UDP.
    pub envelope: Envelope,
    /// The transport headers.
    pub headers: Headers,
    /// The payload without its padding, as far as it was captured.
    pub payload: &'a [u8],
    /// Bytes of the payload as it was sent.
    pub payload_bytes: usize,
    /// Whether the check fits.
    pub icrc: Icrc,
}

/// Reads a packet from its IP header on, also one of which only the beginning was captured.
pub fn decode_ip(ip: &[u8]) -> Result<Decoded<'_>, Malformed> {
    let (envelope, carried, length) = Envelope::read(ip)?;
    let has_options = ip[0] >> 4 == 4 && ip[0] != 0x45;
    let mut decoded = decode_part(envelope, carried, length)?;
    if has_options {
        decoded.icrc = Icrc::NotCheckable;
    }
    Ok(decoded)
}

/// Reads what a UDP socket received.
pub fn decode(envelope: Envelope, udp_payload: &[u8]) -> Result<Decoded<'_>, Malformed> {
    decode_part(envelope, udp_payload, udp_payload.len())
}

/// Reads what UDP carries, `length` bytes of which some may be missing.
fn decode_part(
    envelope: Envelope,
    carried: &[u8],
    length: usize,
) -> Result<Decoded<'_>, Malformed> {
    let (headers, pad) = Headers::read(carried)?;
    let start = headers.length();
    let Some(rest) = length.checked_sub(start + size::ICRC) else {
        return Err(Malformed::Short { what: "ICRC", bytes: length });
    };
    let payload_bytes = rest.checked_sub(pad).ok_or(Malformed::Padding)?;
    let payload = &carried[start..carried.len().min(start + payload_bytes)];
    let icrc = match carried.split_at_checked(length - size::ICRC) {
        Some((covered, check)) if check.len() == size::ICRC => {
            let found = u32::from_le_bytes(check.try_into().expect("four bytes"));
            let expected = envelope.icrc(covered);
            if found == expected { Icrc::Right } else { Icrc::Wrong { found, expected } }
        }
        _ => Icrc::NotCheckable,
    };
    Ok(Decoded { envelope, headers, payload, payload_bytes, icrc })
}

/// The payload of a congestion notification: reserved.
pub const CNP_PAYLOAD: [u8; size::CNP] = [0; size::CNP];

/// Appends what UDP carries: headers, payload, padding, ICRC.
pub fn encode(envelope: &Envelope, headers: &Headers, payload: &[u8], to: &mut Vec<u8>) {
    let start = to.len();
    let pad = payload.len().wrapping_neg() % 4;
    headers.write(pad, to);
    to.extend_from_slice(payload);
    to.extend_from_slice(&[0; 3][..pad]);
    let icrc = envelope.icrc(&to[start..]);
    to.extend(icrc.to_le_bytes());
}

/// Appends a whole packet from its IP header on, as a capture or a raw socket has it.
pub fn encode_ip(envelope: &Envelope, headers: &Headers, payload: &[u8], to: &mut Vec<u8>) {
    envelope.write(udp_payload_bytes(headers, payload.len()), to);
    encode(envelope, headers, payload, to);
}

/// Bytes that UDP carries for a payload of `payload` bytes behind these headers.
pub fn udp_payload_bytes(headers: &Headers, payload: usize) -> usize {
    headers.length() + payload.next_multiple_of(4) + size::ICRC
}

/// Bytes of the whole packet with its IP header.
pub fn ip_bytes(envelope: &Envelope, headers: &Headers, payload: usize) -> usize {
    envelope.ip_bytes() + UDP + udp_payload_bytes(headers, payload)
}
