//! InfiniBand's adaptive routing: the static port until that is busy, then the emptiest.
//!
//! Quantum switches hold a group of ports for each destination. A packet takes the port of the
//! forwarding table while its queue is short and else the least loaded one of the group; messages
//! below a threshold are sent on a service level that is routed statically
//! (`NCCL_IB_AR_THRESHOLD`). How NVIDIA's firmware grades load is not published; one threshold
//! stands for it. ConnectX receivers place packets of RDMA writes in any order, so reordering
//! costs nothing there.

use units::Bytes;

use super::adaptive::least_queued;
use super::static_up_down::StaticUpDown;
use super::{Grain, Load, Routing, RoutingConfig, Spread};
use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::FlowKey;

/// The static port, and others when it is busy.
#[derive(Clone, Debug)]
pub struct InfinibandAdaptive {
    table: StaticUpDown,
    busy: Bytes,
    static_below: Bytes,
}

impl InfinibandAdaptive {
    /// As the settings say.
    pub fn new(config: &RoutingConfig, fabric: &Fabric) -> Self {
        let table = StaticUpDown::new(fabric);
        Self { table, busy: config.busy, static_below: config.static_below }
    }
}

impl Routing for InfinibandAdaptive {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        packet: u64,
        candidates: &[LinkId],
        load: &dyn Load,
    ) -> usize {
        let port = self.table.port(at, key, candidates);
        if load.queued(candidates[port]) <= self.busy {
            return port;
        }
        let start = (port as u64).wrapping_add(packet) % candidates.len() as u64;
        least_queued(candidates, start as usize, load)
    }

    fn grain(&self) -> Grain {
        Grain::Packet
    }

    fn spread(&self, message: Bytes) -> Spread {
        if message <= self.static_below { Spread::One } else { Spread::Weighted }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keys, leaf_spine};
    use super::super::{EmptyQueues, Policy};
    use super::*;

    struct Busy(LinkId);

    impl Load for Busy {
        fn queued(&self, link: LinkId) -> Bytes {
            Bytes::from_mib(u64::from(self.0 == link))
        }
    }

    #[test]
    fn a_packet_leaves_the_static_port_only_when_that_is_busy() {
        let fabric = leaf_spine(2, 16, 16);
        let leaf = fabric.leaves()[0];
        let uplinks = fabric.ports_down_up(leaf).1.to_vec();
        let policy = Policy::InfinibandAdaptive;
        let mut routing = RoutingConfig { policy, ..RoutingConfig::default() }.build(&fabric, 1);
        let key = keys(&fabric, 1, 1).next().unwrap();
        let home = routing.choose(leaf, &key, 0, &uplinks, &EmptyQueues);
        assert_eq!(routing.choose(leaf, &key, 1, &uplinks, &EmptyQueues), home);
        assert_ne!(routing.choose(leaf, &key, 2, &uplinks, &Busy(uplinks[home])), home);
    }
}
