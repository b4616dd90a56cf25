//! The transport: which protocol carries messages, and what its headers cost on the wire.
//!
//! Both engines take header sizes from here, so that they cannot disagree about how much of a
//! link's rate is payload. Ethernet counts preamble, start of frame, check sequence and the gap
//! between frames (24 bytes together with the 14-byte header's 38).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Rate, Span};

/// Which protocol carries messages.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// RDMA in UDP over Ethernet.
    #[default]
    Rocev2,
    /// RDMA straight over Ethernet: no IP, so no router carries it and no switch marks it, and no
    /// UDP, so nothing in a packet tells the flows of two NICs apart.
    Rocev1,
    /// InfiniBand with credits per virtual lane.
    Infiniband,
    /// Ultra Ethernet: sprayed packets, placed wherever they belong.
    Uec,
    /// RDMA over TCP.
    Iwarp,
    /// Kernel TCP, without RDMA.
    Tcp,
    /// Amazon's Elastic Fabric Adapter with its Scalable Reliable Datagrams: packets sprayed over
    /// many paths, placed wherever they belong, nothing paused.
    Efa,
    /// RoCEv2 over a scheduled fabric: packets wait at the leaf that they come to until the port
    /// that they will leave by grants credit, and cross the fabric as cells over all its links.
    ScheduledEthernet,
}

/// What one packet costs besides its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Framing {
    /// Headers and trailers of a data packet, as switches buffer them.
    pub header: Bytes,
    /// What only the wire sees: preamble and the gap between frames.
    pub gap: Bytes,
    /// An acknowledgement, as switches buffer it.
    pub ack: Bytes,
}

impl Transport {
    /// Every transport, by its name in scenario files.
    pub const ALL: [(&str, Self); 8] = [
        ("rocev2", Self::Rocev2),
        ("rocev1", Self::Rocev1),
        ("infiniband", Self::Infiniband),
        ("uec", Self::Uec),
        ("iwarp", Self::Iwarp),
        ("tcp", Self::Tcp),
        ("efa", Self::Efa),
        ("scheduled-ethernet", Self::ScheduledEthernet),
    ];

    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        let (name, _) = Self::ALL.iter().find(|(_, known)| *known == self).expect("all are listed");
        name
    }

    /// What one packet costs.
    pub fn framing(self) -> Framing {
        // Ethernet: header 14, check sequence 4; preamble 8 and gap 12 on the wire only.
        const ETHERNET: u64 = 18;
        const ETHERNET_GAP: u64 = 20;
        let (header, gap, ack) = match self {
            // IPv4 20, UDP 8, BTH 12, ICRC 4 (InfiniBand specification, annex A17); ACK: AETH 4.
            // Scheduled Ethernet is that between NICs and leaves.
            Self::Rocev2 | Self::ScheduledEthernet => (ETHERNET + 44, ETHERNET_GAP, ETHERNET + 48),
            // GRH 40, BTH 12, ICRC 4 (InfiniBand specification, annex A16); ACK: AETH 4.
            Self::Rocev1 => (ETHERNET + 56, ETHERNET_GAP, ETHERNET + 60),
            // LRH 8, BTH 12, ICRC 4, VCRC 2 (InfiniBand specification, volume 1); ACK: AETH 4.
            Self::Infiniband => (26, 0, 30),
            // IPv4 20, UDP 8, entropy and packet delivery 12, semantics 44 (UET 1.0, standard
            // request header); illustrative, from memory.
            Self::Uec => (ETHERNET + 84, ETHERNET_GAP, ETHERNET + 48),
            // IPv4 20, TCP with timestamps 32, MPA, DDP and RDMAP 20 (RFC 5040, 5041, 5044).
            Self::Iwarp => (ETHERNET + 72, ETHERNET_GAP, ETHERNET + 52),
            // IPv4 20, UDP 8; SRD's own header is not published: as RoCEv2's.
            Self::Efa => (ETHERNET + 44, ETHERNET_GAP, ETHERNET + 48),
            // IPv4 20, TCP with timestamps 32.
            Self::Tcp => (ETHERNET + 52, ETHERNET_GAP, ETHERNET + 52),
        };
        Framing { header: Bytes::new(header), gap: Bytes::new(gap), ack: Bytes::new(ack) }
    }

    /// Whether routers carry it: it has an IP header, or a subnet manager's routes.
    pub fn is_routable(self) -> bool {
        self != Self::Rocev1
    }

    /// The share of a link's rate that is payload, with full packets of this payload.
    pub fn efficiency(self, payload: Bytes) -> f64 {
        let Framing { header, gap, .. } = self.framing();
        payload.as_f64() / (payload + header + gap).as_f64()
    }
}

/// What it takes to change from one transport to another: a box with a port on each side.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// What a packet waits for it, each way.
    pub latency: Span,
    /// What it passes of one cable, each way; without it, all that the cable carries.
    pub rate: Option<Rate>,
    /// What one for one cable costs in US dollars; without it, as much as a NIC of the cluster.
    pub usd: Option<f64>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            // Assumed: nobody has published it; a store-and-forward box with a look-up.
            latency: Span::from_us(2),
            rate: None,
            usd: None,
        }
    }
}

impl Ranged for GatewayConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.at_most("latency", self.latency, Span::from_ms(1_000));
        if let Some(rate) = self.rate {
            check.within("rate", rate, crate::graph::RATES);
        }
        if let Some(usd) = self.usd {
            check.within("usd", usd, [0.0, 1e7]);
        }
    }
}

/// A scheduled fabric.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduledConfig {
    /// Whether leaves hold packets until the port that they will leave by grants credit, and cut
    /// them to cells that take all links of the fabric.
    pub enabled: bool,
    /// The most of a packet that a cell carries.
    pub cell: Bytes,
    /// What a cell carries besides.
    pub cell_header: Bytes,
    /// The most that one credit allows.
    pub credit: Bytes,
    /// What chips take from a request until its credit, besides the cables both ways.
    pub latency: Span,
    /// How much of what a port has granted may not have been sent on; without it, what it sends
    /// in twice the time that the farthest packet takes through the fabric, and 64 KiB.
    pub window: Option<Bytes>,
}

impl Default for ScheduledConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            // Assumed, both: usual for cells, and not published for Jericho 3-AI and Ramon 3.
            cell: Bytes::new(256),
            cell_header: Bytes::new(8),
            // Illustrative: a packet. SLX-OS, for older chips, says at most 1,024 bytes.
            credit: Bytes::from_kib(4),
            // Assumed.
            latency: Span::from_ns(500),
            window: None,
        }
    }
}

impl Ranged for ScheduledConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.within("cell", self.cell, [Bytes::new(64), Bytes::from_kib(16)]);
        check.at_most("cell_header", self.cell_header, Bytes::new(64));
        check.within("credit", self.credit, [Bytes::new(64), Bytes::from_mib(1)]);
        check.at_most("latency", self.latency, Span::from_ms(1_000));
        if let Some(window) = self.window {
            check.within("window", window, [Bytes::from_kib(1), Bytes::from_mib(1_024)]);
        }
    }
}

impl ScheduledConfig {
    /// The share of a link inside the fabric that is payload, with packets of so much of it and the
    /// headers of RoCE: cells follow each other without gaps.
    pub fn efficiency(&self, payload: Bytes) -> f64 {
        let header = Transport::ScheduledEthernet.framing().header;
        let cells = (payload + header).get().div_ceil(self.cell.get().max(1));
        let all = (payload + header).as_f64() + cells as f64 * self.cell_header.as_f64();
        payload.as_f64() / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: sums of header sizes by hand.
    #[test]
    fn headers_leave_what_arithmetic_says() {
        let share = |transport: Transport| transport.efficiency(Bytes::from_kib(4));
        assert!((share(Transport::Rocev2) - 4096.0 / 4178.0).abs() < 1e-12);
        assert!((share(Transport::Rocev1) - 4096.0 / 4190.0).abs() < 1e-12);
        assert!((share(Transport::Infiniband) - 4096.0 / 4122.0).abs() < 1e-12);
        assert!(Transport::ALL.iter().all(|(_, transport)| share(*transport) > 0.96));
        assert_eq!(Transport::Uec.name(), "uec");
        // Seventeen cells with eight bytes each, and no gap.
        let cells = ScheduledConfig::default().efficiency(Bytes::from_kib(4));
        assert!((cells - 4096.0 / 4294.0).abs() < 1e-12);
    }
}
