//! Path pinning: every port of a leaf has its own uplink.
//!
//! Meta's first scheme at scale. The number of the port ("slice") that the NIC hangs on decides
//! the uplink, so a rack whose NICs all send to equally placed NICs of another rack loads every
//! uplink alike. It suits full racks without failures: where jobs hold parts of racks, slices
//! repeat on the way down and half of the uplinks idle, and flows whose uplink has failed are
//! hashed over the others. Meta saw slowdowns above 30 %. Above the leaves it is plain ECMP.
//!
//! The paper pins by the destination's slice; the same weakness appears with either.
//! Source: Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale",
//! SIGCOMM 2024.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ecmp::Ecmp;
use super::{Load, Routing, RoutingConfig};
use crate::graph::{Fabric, LinkId, NodeId, NodeKind};
use crate::hash::FlowKey;

/// Whose port decides.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Slice {
    /// The sending NIC's.
    #[default]
    Source,
    /// The receiving NIC's.
    Destination,
}

/// An uplink for every port of a leaf.
#[derive(Clone, Debug)]
pub struct PathPinning {
    slice: Slice,
    ecmp: Ecmp,
    /// The port of its leaf that each NIC hangs on, by NIC number.
    slices: Vec<u16>,
    /// The uplinks of leaf `n` are `uplinks[first_uplink[n]..first_uplink[n + 1]]`.
    first_uplink: Vec<u32>,
    uplinks: Vec<LinkId>,
    /// The ordinal of each switch among the leaves.
    leaves: Vec<Option<u32>>,
    first_switch: usize,
    first_nic: usize,
}

impl PathPinning {
    /// Numbers the ports of all leaves.
    pub fn new(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Self {
        use units::Id;
        let mut slices = vec![0; fabric.nics()];
        let (mut first_uplink, mut uplinks) = (vec![0], Vec::new());
        for &leaf in fabric.leaves() {
            let mut port = 0;
            for &link in fabric.ports(leaf) {
                let to = fabric.links()[link].to;
                match fabric.nic_number(to) {
                    Some(nic) => {
                        slices[nic] = port;
                        port += 1;
                    }
                    None if fabric.nodes()[to].kind == NodeKind::Switch => uplinks.push(link),
                    None => {}
                }
            }
            first_uplink.push(uplinks.len() as u32);
        }
        let leaves = fabric.switches().map(|switch| fabric.leaf_ordinal(switch)).collect();
        Self {
            slice: config.slice,
            ecmp: Ecmp::new(config, fabric, seed),
            slices,
            first_uplink,
            uplinks,
            leaves,
            first_switch: fabric.nodes().len() - fabric.switches().len(),
            first_nic: fabric.nic(0).index(),
        }
    }

    /// The uplink that the flow is pinned to, if `at` is a leaf.
    fn pinned(&self, at: NodeId, key: &FlowKey) -> Option<LinkId> {
        use units::Id;
        let leaf = (*self.leaves.get(at.index().checked_sub(self.first_switch)?)?)? as usize;
        let range = self.first_uplink[leaf] as usize..self.first_uplink[leaf + 1] as usize;
        let uplinks = &self.uplinks[range];
        let nic = match self.slice {
            Slice::Source => key.from,
            Slice::Destination => key.to,
        };
        let slice = self.slices.get(nic.index().checked_sub(self.first_nic)?)?;
        uplinks.get(usize::from(*slice) % uplinks.len().max(1)).copied()
    }
}

impl Routing for PathPinning {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        packet: u64,
        candidates: &[LinkId],
        load: &dyn Load,
    ) -> usize {
        let pinned = self.pinned(at, key);
        let found = pinned.and_then(|link| candidates.iter().position(|other| *other == link));
        found.unwrap_or_else(|| self.ecmp.choose(at, key, packet, candidates, load))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::leaf_spine;
    use super::super::{Policy, QueuePairs, RoutingConfig, Walker};
    use crate::routes::{Health, Routes};

    /// How many of the flows from the NICs `from` to the NICs `to` the fullest link carries.
    fn fullest(pairs: &[(usize, usize)], failed_uplink: Option<usize>) -> usize {
        let fabric = leaf_spine(4, 16, 16);
        let config = RoutingConfig { policy: Policy::PathPinning, ..RoutingConfig::default() };
        let mut routing = config.build(&fabric, 1);
        let mut queue_pairs = QueuePairs::new(&fabric, &config, 1);
        let mut health = Health::default();
        if let Some(uplink) = failed_uplink {
            health.fail(fabric.ports_down_up(fabric.leaves()[0]).1[uplink]);
        }
        let (mut routes, mut walker) = (Routes::new(health), Walker::default());
        let mut counts = vec![0; fabric.links().len()];
        for &(from, to) in pairs {
            let key = queue_pairs.open(fabric.nic(from), fabric.nic(to));
            for link in walker.path(&fabric, &mut routes, routing.as_mut(), &key, 0).unwrap() {
                counts[units::Id::index(*link)] += 1;
            }
        }
        counts.into_iter().max().unwrap()
    }

    /// Oracle: full racks load every link once.
    #[test]
    fn full_racks_share_nothing() {
        let pairs: Vec<_> = (0..16).map(|nic| (nic, 16 + nic)).collect();
        assert_eq!(fullest(&pairs, None), 1);
    }

    /// Oracle: two half-racks that send to one rack meet on its way down, while half idles.
    #[test]
    fn fragmented_racks_collide() {
        let first = (0..8).map(|nic| (nic, 32 + nic));
        let second = (0..8).map(|nic| (16 + nic, 40 + nic));
        let pairs: Vec<_> = first.chain(second).collect();
        assert_eq!(fullest(&pairs, None), 2);
    }

    /// Oracle: the flow of a failed uplink lands on one that is taken.
    #[test]
    fn a_failed_uplink_doubles_another() {
        let pairs: Vec<_> = (0..16).map(|nic| (nic, 16 + nic)).collect();
        assert_eq!(fullest(&pairs, Some(3)), 2);
    }
}
