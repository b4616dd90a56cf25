//! Packet spraying: the packets of a flow take all candidates in turn.
//!
//! Load is even whatever the flows are, and packets arrive out of order: a receiver that keeps a
//! reorder buffer does not mind, one that goes back n does. The turn begins where the flow's hash
//! says, so that flows do not march in step. To the flow engine it is an even spread.
//! Source: Dixit et al., "On the impact of packet spraying in data center networks", INFOCOM 2013.

use units::Bytes;

use super::ecmp::Ecmp;
use super::{Grain, Load, Routing, RoutingConfig, Spread};
use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::FlowKey;

/// All candidates in turn.
#[derive(Clone, Debug)]
pub struct Spray {
    ecmp: Ecmp,
}

impl Spray {
    /// As the settings say.
    pub fn new(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Self {
        Self { ecmp: Ecmp::new(config, fabric, seed) }
    }
}

impl Routing for Spray {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        packet: u64,
        candidates: &[LinkId],
        _load: &dyn Load,
    ) -> usize {
        let start = u64::from(self.ecmp.hash(at, key));
        (start.wrapping_add(packet) % candidates.len() as u64) as usize
    }

    fn grain(&self) -> Grain {
        Grain::Packet
    }

    fn spread(&self, _message: Bytes) -> Spread {
        Spread::Even
    }
}

#[cfg(test)]
mod tests {
    use super::super::EmptyQueues;
    use super::super::tests::{keys, leaf_spine};
    use super::*;

    /// Oracle: sixteen packets over sixteen links are one on each.
    #[test]
    fn packets_take_every_link_in_turn() {
        let fabric = leaf_spine(2, 16, 16);
        let leaf = fabric.leaves()[0];
        let uplinks = fabric.ports_down_up(leaf).1.to_vec();
        let mut spray = Spray::new(&RoutingConfig::default(), &fabric, 1);
        let key = keys(&fabric, 1, 1).next().unwrap();
        let mut taken: Vec<usize> = (0..16)
            .map(|packet| spray.choose(leaf, &key, packet, &uplinks, &EmptyQueues))
            .collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..16).collect::<Vec<_>>());
    }
}
