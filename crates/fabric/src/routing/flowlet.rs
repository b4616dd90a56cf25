//! Flowlet switching: a flow may choose again after a pause.
//!
//! Packets that follow each other closely stay on one path; after a gap longer than the difference
//! between the paths' delays the flow can move without reordering. RDMA flows rarely pause, so it
//! moves little. What it chooses by is a setting: a hash of the flow and the number of the flowlet
//! (as LetFlow's random choice, Vanini et al., NSDI 2017, but repeatable), or the shortest queue of
//! the switch at that moment (as the dynamic load balancing of Broadcom's switches in its flowlet
//! mode, and CONGA, Alizadeh et al., SIGCOMM 2014, on its first hop).
//!
//! # Where this model departs from its sources
//!
//! * A pause is one of the sender: gaps that queues open or close on the way do not count.
//! * Tables have room for every flow.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Span;

use super::adaptive::least_queued;
use super::ecmp::Ecmp;
use super::{Grain, Load, Routing, RoutingConfig};
use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::{FlowKey, finish};

/// What a flow's next path is chosen by.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum FlowletChoice {
    /// A hash of the flow and of the pauses it has made.
    #[default]
    Hash,
    /// The switch's queues: the shortest.
    LeastQueue,
}

/// A choice that holds until the next pause.
#[derive(Clone, Debug)]
pub struct Flowlet {
    ecmp: Ecmp,
    gap: Span,
    choice: FlowletChoice,
    /// Where each flow goes at each switch since which pause, if queues decide.
    places: BTreeMap<(NodeId, FlowKey), (u64, LinkId)>,
}

impl Flowlet {
    /// As the settings say.
    pub fn new(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Self {
        Self {
            ecmp: Ecmp::new(config, fabric, seed),
            gap: config.gap,
            choice: config.flowlets,
            places: BTreeMap::new(),
        }
    }
}

impl Routing for Flowlet {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        flowlet: u64,
        candidates: &[LinkId],
        load: &dyn Load,
    ) -> usize {
        let hash = finish(self.ecmp.hash(at, key) ^ finish(flowlet as u32));
        if self.choice == FlowletChoice::Hash {
            return self.ecmp.member(hash, candidates);
        }
        if let Some((since, link)) = self.places.get(&(at, *key))
            && *since == flowlet
            && let Some(place) = candidates.iter().position(|candidate| candidate == link)
        {
            return place;
        }
        let place = least_queued(candidates, hash as usize % candidates.len(), load);
        self.places.insert((at, *key), (flowlet, candidates[place]));
        place
    }

    fn grain(&self) -> Grain {
        Grain::Flowlet { gap: self.gap }
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::super::Policy;
    use super::super::tests::{keys, leaf_spine};
    use super::*;

    struct Busy(LinkId);

    impl Load for Busy {
        fn queued(&self, link: LinkId) -> Bytes {
            Bytes::from_mib(u64::from(self.0 == link))
        }
    }

    /// A flow stays where it is however long the queue grows, and leaves it after a pause.
    #[test]
    fn a_flow_leaves_a_long_queue_only_after_a_pause() {
        let fabric = leaf_spine(2, 16, 16);
        let leaf = fabric.leaves()[0];
        let uplinks = fabric.ports_down_up(leaf).1.to_vec();
        let flowlets = FlowletChoice::LeastQueue;
        let config = RoutingConfig { policy: Policy::Flowlet, flowlets, ..Default::default() };
        let mut routing = config.build(&fabric, 1);
        for key in keys(&fabric, 16, 1) {
            let first = routing.choose(leaf, &key, 0, &uplinks, &super::super::EmptyQueues);
            let busy = Busy(uplinks[first]);
            assert_eq!(routing.choose(leaf, &key, 0, &uplinks, &busy), first);
            assert_ne!(routing.choose(leaf, &key, 1, &uplinks, &busy), first);
        }
    }
}
