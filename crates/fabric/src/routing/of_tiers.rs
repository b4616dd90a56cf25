//! A policy for each part of a fabric: switches of some tiers choose otherwise than the rest.
//!
//! What joins the parts is the flow: at every switch the policy of its tier decides, with the same
//! headers. Where a part spreads packets, all of its ports are used; where another hashes, the flow
//! keeps one way through it from each switch that it arrives at.

use std::collections::BTreeMap;

use units::{Bytes, Id};

use super::{Grain, Load, Routing, RoutingConfig, Spread};
use crate::graph::{Fabric, LinkId, NodeId, NodeKind};
use crate::hash::FlowKey;

#[derive(Debug)]
pub(super) struct OfTiers {
    /// The policy of NICs and of tiers that have none of their own; then those of tiers.
    policies: Vec<Box<dyn Routing>>,
    /// By node: its policy.
    of_node: Vec<u8>,
}

impl OfTiers {
    pub(super) fn new(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Self {
        let built = |policy| {
            let policy_of_tier = BTreeMap::new();
            RoutingConfig { policy, policy_of_tier, ..config.clone() }.build(fabric, seed)
        };
        let mut policies = vec![built(config.policy)];
        let mut of_tier = vec![0; fabric.tiers().len()];
        for (name, policy) in &config.policy_of_tier {
            let tiers = of_tier.iter_mut().zip(fabric.tiers());
            for (own, _) in tiers.filter(|(_, tier)| tier.name == *name) {
                *own = policies.len() as u8;
            }
            policies.push(built(*policy));
        }
        let nodes = fabric.nodes().iter();
        let of_node = nodes.map(|node| match node.kind {
            NodeKind::Switch => of_tier[usize::from(node.tier)],
            _ => 0,
        });
        Self { of_node: of_node.collect(), policies }
    }
}

impl Routing for OfTiers {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        packet: u64,
        candidates: &[LinkId],
        load: &dyn Load,
    ) -> usize {
        let policy = &mut self.policies[usize::from(self.of_node[at.index()])];
        // A part that hashes keeps a flow where it is, however often another chooses anew.
        let packet = if policy.grain() == Grain::Flow { 0 } else { packet };
        policy.choose(at, key, packet, candidates, load)
    }

    fn grain(&self) -> Grain {
        let grains = self.policies.iter().map(|policy| policy.grain());
        grains.into_iter().find(|grain| *grain != Grain::Flow).unwrap_or(Grain::Flow)
    }

    /// Entropies are the senders'.
    fn entropies(&self) -> u16 {
        self.policies[0].entropies()
    }

    fn spread(&self, message: Bytes) -> Spread {
        let spreads = self.policies.iter().map(|policy| policy.spread(message));
        spreads.into_iter().find(|spread| *spread != Spread::One).unwrap_or(Spread::One)
    }

    fn spreads_at(&self, at: NodeId, message: Bytes) -> bool {
        let policy = self.of_node[at.index()];
        self.policies[usize::from(policy)].spread(message) != Spread::One
    }

    fn is_uniform(&self) -> bool {
        false
    }
}
