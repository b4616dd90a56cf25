//! Flowlet switching: a flow may choose again after a pause.
//!
//! Packets that follow each other closely stay on one path; after a gap longer than the difference
//! between the paths' delays the flow can move without reordering. RDMA flows rarely pause, so it
//! moves little; the choice is a hash of the flow and the number of the flowlet (as LetFlow's
//! random choice, Vanini et al., NSDI 2017, but repeatable).

use units::Span;

use super::ecmp::Ecmp;
use super::{Grain, Load, Routing, RoutingConfig};
use crate::graph::{LinkId, NodeId};
use crate::hash::{FlowKey, finish};

/// A hash of the flow and of the pauses it has made.
#[derive(Clone, Debug)]
pub struct Flowlet {
    ecmp: Ecmp,
    gap: Span,
}

impl Flowlet {
    /// As the settings say.
    pub fn new(config: &RoutingConfig, seed: u64) -> Self {
        Self { ecmp: Ecmp::new(config, seed), gap: config.gap }
    }
}

impl Routing for Flowlet {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        flowlet: u64,
        candidates: &[LinkId],
        _load: &dyn Load,
    ) -> usize {
        let hash = self.ecmp.hash(at, key) ^ finish(flowlet as u32);
        self.ecmp.member(finish(hash), candidates)
    }

    fn grain(&self) -> Grain {
        Grain::Flowlet { gap: self.gap }
    }
}
