//! Queue pairs as a deployment numbers them, and the headers they put on the wire.
//!
//! A NIC hands out queue pair numbers in order, from a start that depends on what ran before: here
//! the run's seed. A connection opens one at each end, so what its packets carry depends on who
//! else connected earlier, and stays the same for as long as the connection lives.
//!
//! They are not free ([`QueuePairCost`]): a NIC keeps the contexts of some in its own memory and
//! fetches those of others over PCIe, and a message that is cut over several is posted as often.

use std::collections::BTreeMap;

use units::{Id, Random, Span};

use super::RoutingConfig;
use crate::address::Addresses;
use crate::graph::{Fabric, NodeId};
use crate::hash::{FlowKey, ROCE_V2_PORT, UDP, UdpSource};

/// Queue pair numbers have 24 bits.
const NUMBERS: u32 = 1 << 24;

/// What queue pairs cost a NIC and its host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuePairCost {
    /// Contexts that the NIC holds in its own memory.
    pub contexts: u32,
    /// What one that is not there holds up its pipeline: it fetches many at once.
    pub miss: Span,
    /// Until one that is not there has come over PCIe: a message that finds its queue pair idle
    /// waits so long at either end, whatever others do meanwhile.
    pub fetch: Span,
    /// What posting one more part of a message takes the thread that does it.
    pub post: Span,
}

/// A packet needs its context when it is sent and when its answer comes.
const LOOKUPS: f64 = 2.0;

/// A context and its share of the queues, in bytes of the host's memory: NCCL asks for 256 receives
/// and 512 sends (`net_ib`), of 16 and 64 bytes or more in mlx5, and a context has about 375 bytes
/// (Kalia et al., "Datacenter RPCs can be general and fast", NSDI 2019).
pub const BYTES_OF_A_QUEUE_PAIR: u64 = 375 + 256 * 16 + 512 * 64;

/// Creating and connecting one at a NIC: about 700 in a second (Wei et al., "KRCORE", USENIX ATC
/// 2022).
pub const CONNECT: Span = Span::from_us(1_400);

impl Default for QueuePairCost {
    /// A ConnectX: Kalia et al. (NSDI 2019) measured half of some 40 million small reads a second
    /// on a ConnectX-5 once 5,000 connections were in use; with room for 1,024 that is 16 ns for
    /// each context that is fetched. Kalia et al., "Design guidelines for high performance RDMA
    /// systems" (USENIX ATC 2016): a core posts some 7 million operations a second. Neugebauer et
    /// al., "Understanding PCIe performance for end host networking" (SIGCOMM 2018), from memory:
    /// a card reads 64 bytes of the host's memory in about 0.55 us.
    fn default() -> Self {
        let (miss, fetch, post) = (Span::from_ns(16), Span::from_ns(550), Span::from_ns(150));
        Self { contexts: 1_024, miss, fetch, post }
    }
}

impl QueuePairCost {
    /// What contexts that are fetched add to each packet of a NIC with so many in use, in seconds.
    pub fn packet_s(&self, in_use: u64) -> f64 {
        LOOKUPS * self.miss.as_secs_f64() * self.missing(in_use)
    }

    /// What a message that finds its queue pair idle waits on average for the context at one end,
    /// in seconds.
    pub fn message_s(&self, in_use: u64) -> f64 {
        self.fetch.as_secs_f64() * self.missing(in_use)
    }

    /// The share of contexts that the NIC does not hold.
    fn missing(&self, in_use: u64) -> f64 {
        (1.0 - f64::from(self.contexts) / in_use.max(1) as f64).max(0.0)
    }
}

/// The queue pairs that all NICs have opened so far.
#[derive(Clone, Debug)]
pub struct QueuePairs {
    /// The next number of each NIC, back-end and front-end, and of each switch: those that reduce
    /// open some too.
    next: Vec<u32>,
    first_nic: usize,
    addresses: Addresses,
    udp_source: UdpSource,
    /// How many each pair of NICs has opened, where that numbers them.
    opened: BTreeMap<(NodeId, NodeId), u16>,
}

impl QueuePairs {
    /// None opened yet.
    pub fn new(fabric: &Fabric, config: &RoutingConfig, seed: u64) -> Self {
        let mut random = Random::new(seed, "queue pairs", 0);
        let first_nic = fabric.gpus();
        let openers = fabric.nodes().len() - first_nic;
        let start = |_| 64 + random.below(1 << 20) as u32;
        Self {
            next: (0..openers).map(start).collect(),
            first_nic,
            addresses: Addresses::of(fabric),
            udp_source: config.udp_source,
            opened: BTreeMap::new(),
        }
    }

    /// Opens a queue pair at each end and returns what their packets show.
    pub fn open(&mut self, from: NodeId, to: NodeId) -> FlowKey {
        self.open_numbered(from, to).0
    }

    /// The same, with the number at the sender's end.
    pub fn open_numbered(&mut self, from: NodeId, to: NodeId) -> (FlowKey, u32) {
        let (local, remote) = (self.take(from), self.take(to));
        let (src_ip, dst_ip) = (self.addresses.bits(from), self.addresses.bits(to));
        let src_port = self.udp_source.port(src_ip, dst_ip, local, remote);
        let (protocol, dst_port, dst_qpn) = (UDP, ROCE_V2_PORT, remote);
        let key = FlowKey { from, to, src_ip, dst_ip, protocol, src_port, dst_port, dst_qpn };
        if self.udp_source != UdpSource::Ns3 {
            return (key, local);
        }
        let opened = self.opened.entry((from, to)).or_default();
        let nth = std::mem::replace(opened, opened.wrapping_add(1));
        (key.as_ns3(from.index() - self.first_nic, to.index() - self.first_nic, nth), local)
    }

    fn take(&mut self, node: NodeId) -> u32 {
        let next = &mut self.next[node.index() - self.first_nic];
        let number = *next;
        *next = (number + 1) % NUMBERS;
        number
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::leaf_spine;
    use super::*;

    /// Property: numbers are not reused, and the same seed numbers alike.
    /// Oracle: by hand. Contexts that fit cost nothing; of four times as many three in four are
    /// fetched, for a packet and for its answer.
    #[test]
    fn contexts_beyond_the_nics_memory_are_fetched() {
        let cost = QueuePairCost::default();
        assert_eq!((cost.packet_s(1), cost.packet_s(1_024)), (0.0, 0.0));
        assert!((cost.packet_s(4_096) - 2.0 * 0.75 * 16e-9).abs() < 1e-15);
        assert!((cost.message_s(4_096) - 0.75 * 550e-9).abs() < 1e-15);
    }

    #[test]
    fn a_nic_numbers_its_queue_pairs_in_order() {
        let fabric = leaf_spine(2, 4, 4);
        let config = RoutingConfig::default();
        let open = |seed| {
            let mut queue_pairs = QueuePairs::new(&fabric, &config, seed);
            [0, 1, 2].map(|_| queue_pairs.open(fabric.nic(0), fabric.nic(5)))
        };
        let keys = open(1);
        assert_eq!(keys[0].dst_qpn + 1, keys[1].dst_qpn);
        assert_ne!(keys[0].src_port, keys[1].src_port);
        assert_eq!(open(1), keys);
        assert_ne!(open(2), keys);
    }
}
