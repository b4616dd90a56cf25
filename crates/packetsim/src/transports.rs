//! Transports: which settings make RoCE, InfiniBand, Ultra Ethernet, iWARP, TCP, EFA and scheduled
//! Ethernet.
//!
//! A transport is no code of its own. It is a choice of headers, flow control, what becomes of a
//! packet that finds no room, what a NIC does with packets out of order, congestion control,
//! routing and timeouts; [`Settings::of_transport`] makes that choice. A scenario names a
//! transport, and what it sets itself stays as it is.
//!
//! | | room | order | congestion control | routing |
//! | --- | --- | --- | --- | --- |
//! | RoCEv2 | pauses (PFC) | as the card can | DCQCN | ECMP |
//! | RoCEv1 | pauses (PFC) | as the card can | none: no IP header to mark | nothing to hash |
//! | InfiniBand | credits | placed directly | none | adaptive |
//! | Ultra Ethernet | trimming | placed directly | NSCC | recycled entropies |
//! | iWARP | drops | selective acknowledgement | CUBIC | ECMP |
//! | TCP | drops | selective acknowledgement | CUBIC | ECMP |
//! | EFA (SRD) | drops | placed directly | by delay (Swift) | sprayed by the sender |
//! | scheduled Ethernet | pauses (PFC) of NICs | as the card can | none | cells over all links |
//!
//! Spectrum-X-style RoCE is RoCEv2 with adaptive routing for every packet, direct placement and
//! control by the round trip ([`Settings::spectrum_x`]).

use fabric::hardware::Reorder;
use fabric::hash::UdpSource;
use fabric::routing::Policy;
use fabric::transport::Transport;
use units::{Bytes, Rate, Span};

use crate::cc::{CcConfig, cubic, none, nscc, swift};
use crate::packet::Headers;
use crate::settings::{Overflow, Settings};

impl Headers {
    /// What headers cost with a transport.
    pub fn of_transport(transport: Transport) -> Self {
        let framing = transport.framing();
        let roce = Self::default();
        let (first, last) = match transport {
            // RETH 16 and immediate data 4 are InfiniBand's, whatever carries them.
            Transport::Rocev2
            | Transport::Rocev1
            | Transport::Infiniband
            | Transport::ScheduledEthernet => (roce.first, roce.last),
            // The standard request header, on every packet, has room for both.
            Transport::Uec | Transport::Iwarp | Transport::Tcp | Transport::Efa => {
                (Bytes::ZERO, Bytes::ZERO)
            }
        };
        let pause = match transport {
            // A flow control packet: 4 bytes and its check (IBTA Volume 1, 7.9.4), with delimiters.
            Transport::Infiniband => Bytes::new(8),
            _ => roce.pause,
        };
        Self {
            data: framing.header,
            first,
            last,
            ack: framing.ack,
            notification: framing.header + Bytes::new(16),
            grant: framing.header + Bytes::new(16 + 64),
            pause,
            gap: framing.gap,
        }
    }
}

impl Settings {
    /// The defaults of a transport.
    pub fn of_transport(transport: Transport) -> Self {
        let mut settings = Self::default();
        settings.packet.headers = Headers::of_transport(transport);
        match transport {
            Transport::Rocev2 => {}
            Transport::Rocev1 => rocev1(&mut settings),
            Transport::Infiniband => infiniband(&mut settings),
            Transport::Uec => ultra_ethernet(&mut settings),
            Transport::Iwarp => iwarp(&mut settings),
            Transport::Tcp => tcp(&mut settings),
            Transport::Efa => efa(&mut settings),
            Transport::ScheduledEthernet => scheduled_ethernet(&mut settings),
        }
        settings
    }

    /// RoCE as Spectrum-X runs it: the switch chooses a path for every packet by its queues, the
    /// NIC places packets wherever they belong, and the round trip sets the window.
    pub fn spectrum_x() -> Self {
        let mut settings = Self::default();
        settings.routing.policy = Policy::Adaptive;
        settings.nic.reorder = Reorder::DirectPlacement;
        // NVIDIA's algorithm goes by the round trip and is not published; Swift is. Stamps of hops
        // (HPCC) say nothing where packets of a queue pair take different paths.
        settings.congestion = CcConfig::Swift(swift::Config::default());
        settings
    }
}

/// InfiniBand Architecture Specification, Annex A16 (RoCE, 2010): InfiniBand's packets with a GRH
/// behind an Ethernet header. ECN and the source port are those of IP and UDP, which only Annex A17
/// (RoCEv2, 2014) brought, and DCQCN needs them; pauses alone hold senders back.
fn rocev1(settings: &mut Settings) {
    settings.ecn.enabled = false;
    settings.congestion = CcConfig::None(none::Config::default());
    settings.routing.udp_source = UdpSource::None;
}

/// Meta, "Disaggregated scheduled fabric" (engineering.fb.com, 20 October 2025): RoCE NICs below
/// leaves with virtual output queues, whose packets wait for credit and cross as cells. The egress
/// sets every rate, so nothing is marked, and NICs are paused where a leaf's memory fills.
fn scheduled_ethernet(settings: &mut Settings) {
    settings.scheduled.enabled = true;
    settings.ecn.enabled = false;
    settings.congestion = CcConfig::None(none::Config::default());
    settings.routing.policy = Policy::Spray;
}

fn infiniband(settings: &mut Settings) {
    settings.pfc.enabled = false;
    settings.credits.enabled = true;
    settings.routing.policy = Policy::InfinibandAdaptive;
    // Adaptive routing reorders, and ConnectX-7 places what comes out of order where it belongs.
    settings.nic.reorder = Reorder::DirectPlacement;
    // Nothing is lost but by damage, so being late is no sign of loss.
    settings.nic.reorder_window = 4096;
    // Subnet managers leave congestion control off unless told otherwise (OpenSM, from memory), so
    // credits alone hold senders back. The marking threshold, for when it is on, is illustrative:
    // half of an input port's spare buffer.
    settings.congestion = CcConfig::None(none::Config::default());
    settings.ecn.min = Bytes::from_kib(128);
    settings.ecn.max = Bytes::from_kib(128);
    settings.ecn.probability = 1.0;
}

/// Shalev et al., "A cloud-optimized transport protocol for elastic and scalable HPC" (IEEE Micro
/// 2020): a sender sprays packets over many paths, the receiver takes them in any order, and the
/// rate follows the round trip. Their algorithm is not published; Swift is.
fn efa(settings: &mut Settings) {
    settings.pfc.enabled = false;
    settings.routing.policy = Policy::Spray;
    settings.nic.reorder = Reorder::DirectPlacement;
    settings.congestion = CcConfig::Swift(swift::Config::default());
    // The card sends again by itself, how soon is not published: as Ultra Ethernet below.
    settings.nic.timeout = Span::from_us(500);
    // Amazon gives about 15.5 us for a short message of MPI between two servers, from memory; the
    // wires and switches are a small part of it.
    // Its addresses have no connections, and so no contexts.
    settings.nic.qp_miss = Span::ZERO;
    settings.nic.qp_fetch = Span::ZERO;
    settings.nic.send_latency = Span::from_ns(7_750);
    settings.nic.receive_latency = Span::from_ns(7_750);
}

fn ultra_ethernet(settings: &mut Settings) {
    settings.pfc.enabled = false;
    settings.switch.overflow = Overflow::Trim;
    settings.routing.policy = Policy::Reps;
    settings.nic.reorder = Reorder::DirectPlacement;
    settings.congestion = CcConfig::Nscc(nscc::Config::default());
    // A packet delivery context lives as long as its traffic, for all messages to one receiver.
    settings.nic.qp_miss = Span::ZERO;
    settings.nic.qp_fetch = Span::ZERO;
    // SN5600's profile with trimming (sonic-buildimage, x86_64-nvidia_sn5600-r0, qos.json.j2):
    // 166,912 to 282,624 bytes, 5 %.
    settings.ecn.min = Bytes::new(166_912);
    settings.ecn.max = Bytes::new(282_624);
    settings.ecn.probability = 0.05;
    // Illustrative: a few loaded round trips of a large fabric. Trimming makes timeouts rare.
    settings.nic.timeout = Span::from_us(500);
    settings.nic.retries = 50;
}

fn iwarp(settings: &mut Settings) {
    settings.pfc.enabled = false;
    settings.ecn.enabled = false;
    // Selective acknowledgement: a packet that three later ones have passed is lost (RFC 5681).
    settings.nic.reorder = Reorder::DirectPlacement;
    settings.nic.reorder_window = 3;
    settings.congestion = CcConfig::Cubic(cubic::Config::default());
    // Offloaded stacks use shorter timers than the kernel's 200 ms; illustrative.
    settings.nic.timeout = Span::from_ms(10);
    settings.nic.retries = 50;
}

fn tcp(settings: &mut Settings) {
    iwarp(settings);
    // Linux: TCP_RTO_MIN is 200 ms, and tcp_retries2 15.
    settings.nic.timeout = Span::from_ms(200);
    settings.nic.retries = 15;
    // Sockets live in the host's memory, and what its core does is in `core_rate`.
    settings.nic.qp_miss = Span::ZERO;
    settings.nic.qp_fetch = Span::ZERO;
    settings.nic.qp_post = Span::ZERO;
    // From memory: about 15 us one way through the kernel (system call, stack, interrupt), and a
    // copy between GPU and host memory of about 10 us at either end.
    settings.nic.send_latency = Span::from_us(22);
    settings.nic.receive_latency = Span::from_us(25);
    // Cai et al., "Understanding host network stack overheads", SIGCOMM 2021, section 3.1: one
    // core moves 42 Gb/s of a single flow with all offloads, held back by the receiver's copy.
    settings.nic.core_rate = Some(Rate::from_gbps(42));
    // What has arrived waits in its socket, of which each has 6 MiB: windows bound it, not the NIC.
    settings.nic.receive_buffer = Bytes::from_mib(1024);
}
