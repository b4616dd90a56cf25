//! Central traffic engineering: known flows are laid on the least loaded shortest paths.
//!
//! A controller knows the topology and the matrix. It takes the flows from the largest to the
//! smallest and lays each on the shortest path whose fullest link stays emptiest (constrained
//! shortest path first), then the sum over the path decides, then the order of the ports. Switches
//! match source port and destination prefix, so flows from one NIC to the NICs of one leaf share a
//! path. Flows that the controller has not seen, or whose path has failed since it last looked,
//! are hashed. Source: Gangidi et al., SIGCOMM 2024, which names the match and the interval of
//! about 30 s but not the order of placement; largest first is ours.

use units::{Id, Span};

use super::ecmp::Ecmp;
use super::{Demand, Load, Path, Routing, RoutingConfig};
use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::FlowKey;
use crate::routes::Routes;

/// Paths computed centrally, and a hash where there is none.
#[derive(Clone, Debug)]
pub struct TrafficEngineering {
    ecmp: Ecmp,
    interval: Span,
}

impl TrafficEngineering {
    /// As the settings say.
    pub fn new(config: &RoutingConfig, seed: u64) -> Self {
        Self { ecmp: Ecmp::new(config, seed), interval: config.interval }
    }
}

impl Routing for TrafficEngineering {
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

    fn plan(
        &mut self,
        fabric: &Fabric,
        routes: &mut Routes,
        demands: &[Demand],
    ) -> Option<Vec<Option<Path>>> {
        let mut planner = Planner::new(fabric, routes);
        Some(planner.plan(demands))
    }

    fn interval(&self) -> Option<Span> {
        Some(self.interval)
    }
}

/// A node that a search has reached, and how.
#[derive(Clone, Copy, Debug)]
struct Reached {
    node: NodeId,
    /// The highest utilisation on the way here, and the sum of all.
    worst: f64,
    sum: f64,
    /// The link that led here, and the place of its beginning in the step before.
    link: LinkId,
    from: u32,
}

struct Planner<'a> {
    fabric: &'a Fabric,
    routes: &'a mut Routes,
    /// Bits per second laid on each link so far.
    laid: Vec<f64>,
    /// The steps of the current search, one frontier after the other.
    steps: Vec<Vec<Reached>>,
    hops: Vec<LinkId>,
}

impl<'a> Planner<'a> {
    fn new(fabric: &'a Fabric, routes: &'a mut Routes) -> Self {
        let laid = vec![0.0; fabric.links().len()];
        Self { fabric, routes, laid, steps: Vec::new(), hops: Vec::new() }
    }

    fn plan(&mut self, demands: &[Demand]) -> Vec<Option<Path>> {
        // Flows that the switches cannot tell apart: one NIC to the NICs of one leaf.
        let prefix = |to: NodeId| match self.fabric.ports(to) {
            [only] => self.fabric.links()[*only].to,
            _ => to,
        };
        let mut order: Vec<usize> = (0..demands.len()).collect();
        let group = |at: usize| (demands[at].key.from, prefix(demands[at].key.to));
        order.sort_by_key(|at| (group(*at), *at));
        let mut groups: Vec<(f64, &[usize])> = order
            .chunk_by(|a, b| group(*a) == group(*b))
            .map(|members| (members.iter().map(|at| demands[*at].rate_bps).sum(), members))
            .collect();
        groups.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut paths = vec![None; demands.len()];
        for (_, members) in groups {
            let first = demands[members[0]].key;
            let Some(shared) = self.search(first.from, first.to) else { continue };
            for &at in members {
                let path = self.with_last_hop(&shared, demands[at].key.to);
                for link in &path {
                    self.laid[link.index()] += demands[at].rate_bps;
                }
                paths[at] = Some(path);
            }
        }
        paths
    }

    /// The path with its last hop replaced by the one to another NIC of the same leaf.
    fn with_last_hop(&self, path: &[LinkId], to: NodeId) -> Path {
        let mut path = path.to_vec();
        if let ([only], Some(last)) = (self.fabric.ports(to), path.last_mut()) {
            *last = self.fabric.reverse(*only);
        }
        path
    }

    /// The shortest path whose fullest link is emptiest.
    fn search(&mut self, from: NodeId, to: NodeId) -> Option<Path> {
        let nowhere = LinkId::from_index(0);
        let start = Reached { node: from, worst: 0.0, sum: 0.0, link: nowhere, from: 0 };
        self.steps.clear();
        self.steps.push(vec![start]);
        loop {
            let last = self.steps.last().expect("the search has begun");
            if let Some(at) = last.iter().position(|reached| reached.node == to) {
                return Some(self.trace(at));
            }
            let mut next = Vec::new();
            for (from, reached) in last.iter().enumerate() {
                self.routes.next_hops(self.fabric, reached.node, to, &mut self.hops);
                for &link in &self.hops {
                    let rate = self.routes.health().rate(self.fabric, link).as_bps_f64();
                    let utilisation = self.laid[link.index()] / rate;
                    next.push(Reached {
                        node: self.fabric.links()[link].to,
                        worst: reached.worst.max(utilisation),
                        sum: reached.sum + utilisation,
                        link,
                        from: from as u32,
                    });
                }
            }
            if next.is_empty() {
                return None;
            }
            next.sort_by(|a, b| {
                let by_load = a.worst.total_cmp(&b.worst).then(a.sum.total_cmp(&b.sum));
                a.node.cmp(&b.node).then(by_load).then(a.link.cmp(&b.link))
            });
            next.dedup_by_key(|reached| reached.node);
            self.steps.push(next);
        }
    }

    /// The links that led to the place `at` of the last step.
    fn trace(&self, at: usize) -> Path {
        let mut path = Vec::with_capacity(self.steps.len() - 1);
        let mut at = at;
        for step in self.steps[1..].iter().rev() {
            path.push(step[at].link);
            at = step[at].from as usize;
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::leaf_spine;
    use super::super::{QueuePairs, RoutingConfig};
    use super::*;
    use crate::routes::Health;

    fn fullest(shift: usize, failed: usize) -> usize {
        let fabric = leaf_spine(4, 16, 16);
        let config = RoutingConfig::default();
        let mut queue_pairs = QueuePairs::new(&fabric, &config, 1);
        let demands: Vec<Demand> = (0..64)
            .map(|nic| {
                let key = queue_pairs.open(fabric.nic(nic), fabric.nic((nic * 5 + shift) % 64));
                Demand { key, rate_bps: 400e9 }
            })
            .collect();
        let mut health = Health::default();
        for &link in &fabric.ports_down_up(fabric.leaves()[0]).1[..failed] {
            health.fail(link);
        }
        let mut routes = Routes::new(health);
        let mut policy = TrafficEngineering::new(&config, 1);
        let paths = policy.plan(&fabric, &mut routes, &demands).expect("it plans");
        let mut counts = vec![0; fabric.links().len()];
        for path in paths.into_iter().flatten() {
            for link in path {
                assert!(!routes.health().is_down(link));
                counts[link.index()] += 1;
            }
        }
        counts.into_iter().max().unwrap()
    }

    /// Oracle: where capacity suffices a permutation shares at most one link between two flows
    /// (greedy placement is not a perfect matching), and rings share none.
    #[test]
    fn a_permutation_is_spread_almost_perfectly() {
        assert!(fullest(3, 0) <= 2);
    }

    /// Property: failed links are planned around.
    #[test]
    fn failures_are_planned_around() {
        assert!(fullest(3, 8) <= 3);
    }
}
