//! Static up/down routing: the destination alone decides (D-mod-k).
//!
//! What InfiniBand's subnet manager computes for a fat tree: all packets for one destination
//! climb to the same top switch, and destinations are dealt over the uplinks in turn, tier by
//! tier. Shift permutations, and so rings, meet no collision; others may. Zahavi, "D-Mod-K
//! routing providing non-blocking traffic for shift permutations on real life fat trees", 2010.

use units::Id;

use super::{Load, Routing};
use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::FlowKey;

/// Destinations dealt over the uplinks in turn.
#[derive(Clone, Debug)]
pub struct StaticUpDown {
    /// By what the destination's number is divided at each switch before taking the remainder.
    divisors: Vec<u64>,
    first_switch: usize,
    first_nic: usize,
    /// The number of each NIC, counted leaf by leaf.
    ordinals: Vec<u32>,
}

impl StaticUpDown {
    /// Counts the NICs leaf by leaf and the uplinks tier by tier.
    pub fn new(fabric: &Fabric) -> Self {
        let mut ordinals = vec![0; fabric.nics()];
        for (leaf, &switch) in fabric.leaves().iter().enumerate() {
            let below = fabric.ports(switch).iter().map(|link| fabric.links()[*link].to);
            let nics: Vec<usize> = below.filter_map(|node| fabric.nic_number(node)).collect();
            for (port, nic) in nics.iter().enumerate() {
                ordinals[*nic] = (leaf * nics.len() + port) as u32;
            }
        }
        // The widest switch of a level stands for it; real trees are uniform.
        let level = |switch: NodeId| fabric.cover(switch).map_or(0, |c| usize::from(c.level));
        let mut widths = [1_u64; 256];
        for switch in fabric.switches() {
            let width = fabric.ports_down_up(switch).1.len().max(1) as u64;
            widths[level(switch)] = widths[level(switch)].max(width);
        }
        let divisor = |switch| widths[..level(switch)].iter().product();
        Self {
            divisors: fabric.switches().map(divisor).collect(),
            first_switch: fabric.nodes().len() - fabric.switches().len(),
            first_nic: fabric.nic(0).index(),
            ordinals,
        }
    }

    /// The candidate that the destination decides on.
    pub(super) fn port(&self, at: NodeId, key: &FlowKey, candidates: &[LinkId]) -> usize {
        let nic = key.to.index().checked_sub(self.first_nic);
        let ordinal = nic.and_then(|nic| self.ordinals.get(nic)).copied().unwrap_or(0);
        let switch = at.index().checked_sub(self.first_switch);
        let divisor = switch.map_or(1, |switch| self.divisors[switch]);
        (u64::from(ordinal) / divisor % candidates.len() as u64) as usize
    }
}

impl Routing for StaticUpDown {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        _packet: u64,
        candidates: &[LinkId],
        _load: &dyn Load,
    ) -> usize {
        self.port(at, key, candidates)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::leaf_spine;
    use super::super::{QueuePairs, RoutingConfig, Walker};
    use super::*;
    use crate::routes::Routes;

    /// Oracle: a shift of all NICs by any distance puts one flow on each link.
    #[test]
    fn shift_permutations_do_not_collide() {
        let fabric = leaf_spine(4, 16, 16);
        let mut routing = StaticUpDown::new(&fabric);
        let (mut routes, mut walker) = (Routes::default(), Walker::default());
        for shift in [1, 8, 16, 17, 40] {
            let mut queue_pairs = QueuePairs::new(&fabric, &RoutingConfig::default(), 1);
            let mut counts = vec![0; fabric.links().len()];
            for nic in 0..64 {
                let key = queue_pairs.open(fabric.nic(nic), fabric.nic((nic + shift) % 64));
                for link in walker.path(&fabric, &mut routes, &mut routing, &key, 0).unwrap() {
                    counts[link.index()] += 1;
                }
            }
            assert_eq!(counts.into_iter().max(), Some(1), "shift {shift}");
        }
    }
}
