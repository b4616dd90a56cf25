//! Queue pairs as a deployment numbers them, and the headers they put on the wire.
//!
//! A NIC hands out queue pair numbers in order, from a start that depends on what ran before: here
//! the run's seed. A connection opens one at each end, so what its packets carry depends on who
//! else connected earlier, and stays the same for as long as the connection lives.

use units::{Id, Random};

use super::RoutingConfig;
use crate::address::Addresses;
use crate::graph::{Fabric, NodeId};
use crate::hash::{FlowKey, ROCE_V2_PORT, UDP, UdpSource};

/// Queue pair numbers have 24 bits.
const NUMBERS: u32 = 1 << 24;

/// The queue pairs that all NICs have opened so far.
#[derive(Clone, Debug)]
pub struct QueuePairs {
    /// The next number of each NIC, back-end and front-end, and of each switch: those that reduce
    /// open some too.
    next: Vec<u32>,
    first_nic: usize,
    addresses: Addresses,
    udp_source: UdpSource,
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
        }
    }

    /// Opens a queue pair at each end and returns what their packets show.
    pub fn open(&mut self, from: NodeId, to: NodeId) -> FlowKey {
        let (local, remote) = (self.take(from), self.take(to));
        let (src_ip, dst_ip) = (self.addresses.bits(from), self.addresses.bits(to));
        let src_port = self.udp_source.port(src_ip, dst_ip, local, remote);
        let (protocol, dst_port, dst_qpn) = (UDP, ROCE_V2_PORT, remote);
        FlowKey { from, to, src_ip, dst_ip, protocol, src_port, dst_port, dst_qpn }
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
