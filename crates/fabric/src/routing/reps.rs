//! Recycled entropies: the sender sprays, and keeps to values whose packets met no congestion.
//!
//! Every packet of a queue pair carries one of several entropy values in the place of its UDP
//! source port; switches hash it as they hash anything (ECMP). The sender begins with each value
//! in turn. A value that comes back with an unmarked acknowledgement is used again for the next
//! packet; one that comes back marked is dropped until its turn comes again. So load leaves
//! congested and broken paths within a round trip, and switches know nothing of it. Packets arrive
//! out of order. What a sender remembers is in the packet engine (`packetsim::entropy`); to the
//! flow engine this is an even spread.
//!
//! Source: Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and
//! Failure Mitigation" (arXiv 2407.21625); the Ultra Ethernet Specification 1.0 leaves the choice
//! of entropy values to the sender.
//!
//! # Where this model departs from its sources
//!
//! * A queue pair has `entropies` values, not 65,536: more than a fabric of some hundred paths
//!   needs would only cost memory here.

use units::Bytes;

use super::ecmp::Ecmp;
use super::{Load, Routing, RoutingConfig, Spread};
use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::FlowKey;

/// ECMP over as many keys for each queue pair as it has entropy values.
#[derive(Clone, Debug)]
pub struct Reps {
    ecmp: Ecmp,
    entropies: u16,
}

impl Reps {
    /// As the settings say.
    pub fn new(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Self {
        Self { ecmp: Ecmp::new(config, fabric, seed), entropies: config.entropies.max(1) }
    }
}

impl Routing for Reps {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        packet: u64,
        candidates: &[LinkId],
        load: &dyn Load,
    ) -> usize {
        self.ecmp.choose(at, key, packet, candidates, load)
    }

    fn entropies(&self) -> u16 {
        self.entropies
    }

    fn spread(&self, _message: Bytes) -> Spread {
        Spread::Even
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keys, leaf_spine};
    use super::super::{EmptyQueues, Policy};
    use super::*;

    /// Oracle: sixteen balls into sixteen boxes leave about 16 · (15/16)¹⁶ ≈ 5.7 empty.
    #[test]
    fn entropies_part_the_packets_of_a_flow() {
        let fabric = leaf_spine(2, 16, 16);
        let leaf = fabric.leaves()[0];
        let uplinks = fabric.ports_down_up(leaf).1.to_vec();
        let mut reps =
            RoutingConfig { policy: Policy::Reps, ..RoutingConfig::default() }.build(&fabric, 1);
        assert_eq!(reps.entropies(), 16);
        let mut used = 0;
        for key in keys(&fabric, 20, 1) {
            let mut taken = vec![false; uplinks.len()];
            for entropy in 0..16 {
                let key = key.with_entropy(entropy);
                taken[reps.choose(leaf, &key, 0, &uplinks, &EmptyQueues)] = true;
            }
            used += taken.iter().filter(|taken| **taken).count();
        }
        let mean = used as f64 / 20.0;
        assert!((9.0..12.0).contains(&mean), "{mean}");
    }
}
