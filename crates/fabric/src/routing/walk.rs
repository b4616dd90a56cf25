//! Walking a flow through the fabric: from NIC to NIC, one choice at each hop.

use std::fmt;

use super::{EmptyQueues, Routing};
use crate::graph::{Fabric, LinkId, NodeId, NodeKind};
use crate::hash::FlowKey;
use crate::routes::{Routes, towards_leaf};

/// A flow has no way to its destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoPath {
    /// Where it began.
    pub from: NodeId,
    /// Where it should go.
    pub to: NodeId,
    /// Where nothing led on.
    pub stuck_at: NodeId,
}

impl NoPath {
    /// The same in words, with the fabric's names.
    pub fn describe(&self, fabric: &Fabric) -> String {
        let [from, to, at] = [self.from, self.to, self.stuck_at].map(|node| fabric.name(node));
        format!("there is no path from {from} to {to}: no link that is up leads there from {at}")
    }
}

impl fmt::Display for NoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, stuck_at } = self;
        write!(
            f,
            "there is no path from {from:?} to {to:?}: no link that is up leads there from \
             {stuck_at:?}"
        )
    }
}

impl std::error::Error for NoPath {}

/// Walks flows through a fabric; keeps its buffers from walk to walk.
#[derive(Clone, Debug, Default)]
pub struct Walker {
    hops: Vec<LinkId>,
    path: Vec<LinkId>,
}

impl Walker {
    /// The links that the flow crosses when the policy decides at every hop.
    ///
    /// `packet` counts what the policy's grain names. Scale-up paths, which end at a GPU, are
    /// walked too; policies break their ties alike.
    pub fn path(
        &mut self,
        fabric: &Fabric,
        routes: &mut Routes,
        routing: &mut dyn Routing,
        key: &FlowKey,
        packet: u64,
    ) -> Result<&[LinkId], NoPath> {
        self.path.clear();
        if let Some(leaf) = straight(fabric, routes, key) {
            return self.climb(fabric, routing, key, packet, leaf);
        }
        let mut at = key.from;
        while at != key.to {
            routes.next_hops(fabric, at, key.to, &mut self.hops);
            let chosen = match self.hops.as_slice() {
                [] => return Err(NoPath { from: key.from, to: key.to, stuck_at: at }),
                [only] => *only,
                several => several[routing.choose(at, key, packet, several, &EmptyQueues)],
            };
            self.path.push(chosen);
            at = fabric.links()[chosen].to;
            assert!(self.path.len() < 256, "a path of 256 hops goes round in circles");
        }
        Ok(&self.path)
    }

    /// The same between NICs that hang on one leaf each, in a fabric that is routed up and then
    /// down: candidates are slices of ports and need not be copied.
    fn climb(
        &mut self,
        fabric: &Fabric,
        routing: &mut dyn Routing,
        key: &FlowKey,
        packet: u64,
        leaf: u32,
    ) -> Result<&[LinkId], NoPath> {
        let first = fabric.ports(key.from)[0];
        self.path.push(first);
        let mut at = fabric.links()[first].to;
        while fabric.leaf_ordinal(at) != Some(leaf) {
            let chosen = match towards_leaf(fabric, at, leaf) {
                [] => return Err(NoPath { from: key.from, to: key.to, stuck_at: key.from }),
                [only] => *only,
                several => several[routing.choose(at, key, packet, several, &EmptyQueues)],
            };
            self.path.push(chosen);
            at = fabric.links()[chosen].to;
        }
        self.path.push(fabric.reverse(fabric.ports(key.to)[0]));
        Ok(&self.path)
    }
}

/// The leaf of the destination, if both ends have one port and nothing has failed.
fn straight(fabric: &Fabric, routes: &Routes, key: &FlowKey) -> Option<u32> {
    let ([_], [last]) = (fabric.ports(key.from), fabric.ports(key.to)) else { return None };
    let is_nic = |node: NodeId| matches!(fabric.nodes()[node].kind, NodeKind::Nic);
    let healthy = fabric.has_structure() && !routes.health().has_failures();
    let usable = healthy && is_nic(key.from) && is_nic(key.to) && key.from != key.to;
    usable.then(|| fabric.leaf_ordinal(fabric.links()[*last].to)).flatten()
}
