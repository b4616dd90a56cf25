//! Adaptive routing: each packet goes to the candidate with the shortest queue.
//!
//! What Spectrum-X, Tomahawk's dynamic load balancing and others do in hardware. Ties are broken
//! in turn, as in spraying. The congestion-weighted choice draws a candidate with a probability
//! that falls with its queue, which keeps switches with old knowledge from herding. Packets arrive
//! out of order. To the flow engine it is a spread that avoids congestion.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use super::ecmp::Ecmp;
use super::{Grain, Load, Routing, RoutingConfig, Spread};
use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::{FlowKey, finish};

/// How a switch uses what it knows of its queues.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The shortest queue.
    #[default]
    LeastQueue,
    /// A draw, with odds that fall with the queue.
    CongestionWeighted,
}

/// The shortest queue, or a draw that prefers short ones.
#[derive(Clone, Debug)]
pub struct Adaptive {
    ecmp: Ecmp,
    choice: Choice,
}

impl Adaptive {
    /// As the settings say.
    pub fn new(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Self {
        Self { ecmp: Ecmp::new(config, fabric, seed), choice: config.choice }
    }
}

impl Routing for Adaptive {
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        packet: u64,
        candidates: &[LinkId],
        load: &dyn Load,
    ) -> usize {
        let hash = self.ecmp.hash(at, key);
        match self.choice {
            Choice::LeastQueue => {
                let start = u64::from(hash).wrapping_add(packet) % candidates.len() as u64;
                least_queued(candidates, start as usize, load)
            }
            Choice::CongestionWeighted => {
                let draw = finish(hash ^ finish(packet as u32));
                weighted(candidates, f64::from(draw) / f64::from(u32::MAX), load)
            }
        }
    }

    fn grain(&self) -> Grain {
        Grain::Packet
    }

    fn spread(&self, _message: Bytes) -> Spread {
        Spread::Weighted
    }
}

/// The candidate with the shortest queue; of several, the first from `start` on.
pub(super) fn least_queued(candidates: &[LinkId], start: usize, load: &dyn Load) -> usize {
    let order = (start..candidates.len()).chain(0..start);
    order.min_by_key(|at| load.queued(candidates[*at])).expect("there is a candidate")
}

/// The candidate at the place `draw`, in [0, 1], of odds that halve with every 64 KiB queued.
fn weighted(candidates: &[LinkId], draw: f64, load: &dyn Load) -> usize {
    const HALF: f64 = 65_536.0; // illustrative: sixteen packets of 4 KiB
    let odds = |link: &LinkId| (-load.queued(*link).as_f64() / HALF).exp2();
    let total: f64 = candidates.iter().map(odds).sum();
    let mut left = draw * total;
    for (at, link) in candidates.iter().enumerate() {
        left -= odds(link);
        if left <= 0.0 {
            return at;
        }
    }
    candidates.len() - 1
}

#[cfg(test)]
mod tests {
    use units::Id;

    use super::super::tests::{keys, leaf_spine};
    use super::*;

    struct Queues(Vec<LinkId>);

    impl Load for Queues {
        fn queued(&self, link: LinkId) -> Bytes {
            Bytes::from_mib(u64::from(!self.0.contains(&link)))
        }
    }

    /// Oracle: of sixteen queues two are empty; both choices find only these.
    #[test]
    fn packets_go_where_the_queue_is_empty() {
        let fabric = leaf_spine(2, 16, 16);
        let leaf = fabric.leaves()[0];
        let uplinks = fabric.ports_down_up(leaf).1.to_vec();
        let load = Queues(vec![uplinks[3], uplinks[9]]);
        let key = keys(&fabric, 1, 1).next().unwrap();
        for choice in [Choice::LeastQueue, Choice::CongestionWeighted] {
            let config = RoutingConfig { choice, ..RoutingConfig::default() };
            let mut adaptive = Adaptive::new(&config, &fabric, 1);
            let mut counts = vec![0; fabric.links().len()];
            for packet in 0..1000 {
                let chosen = adaptive.choose(leaf, &key, packet, &uplinks, &load);
                counts[uplinks[chosen].index()] += 1;
            }
            let (a, b) = (counts[uplinks[3].index()], counts[uplinks[9].index()]);
            assert!(995 <= a + b && 100 < a && 100 < b, "{choice:?}: {a} and {b}");
        }
    }
}
