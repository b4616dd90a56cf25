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
    pub const ALL: [(&str, Self); 7] = [
        ("rocev2", Self::Rocev2),
        ("rocev1", Self::Rocev1),
        ("infiniband", Self::Infiniband),
        ("uec", Self::Uec),
        ("iwarp", Self::Iwarp),
        ("tcp", Self::Tcp),
        ("efa", Self::Efa),
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
            Self::Rocev2 => (ETHERNET + 44, ETHERNET_GAP, ETHERNET + 48),
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
    }
}
