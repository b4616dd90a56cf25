//! Central traffic engineering: known flows are laid on the least loaded shortest paths.
//!
//! A controller knows the topology and the matrix. The constraint is that no link shall be used
//! more than the NICs' own links are anyway. It takes the flows from the largest to the smallest
//! and lays each on the shortest path that breaks the constraint least, then the emptiest one
//! (constrained shortest path first). Where links are left that break it, their flows are taken off
//! and laid again, and a link that was too full before is worth avoiding (negotiated congestion,
//! McMurchie and Ebeling, "PathFinder", 1995); the best placement on the way is kept.
//!
//! Switches match source port and destination prefix, so flows from one NIC to the NICs of one leaf
//! share a path. Flows that the controller has not seen, or whose path has failed since it last
//! looked, are hashed. Source: Gangidi et al., SIGCOMM 2024, which names the method, the match and
//! the interval of about 30 s; order and repair are ours.

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
    pub fn new(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Self {
        Self { ecmp: Ecmp::new(config, fabric, seed), interval: config.interval }
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

/// How often each flow is taken off and laid again, on average and at most.
const REPAIRS: usize = 32;

/// Flows that switches cannot tell apart.
#[derive(Clone, Debug)]
struct Bunch {
    /// The flows, by their place among the demands.
    members: Vec<usize>,
    rate_bps: f64,
    /// Where they go, up to the last hop.
    path: Option<Path>,
}

/// A node that a search has reached, and how.
#[derive(Clone, Copy, Debug)]
struct Reached {
    node: NodeId,
    /// How far the constraint is broken on the way here, and the sum of utilisations.
    worst: f64,
    sum: f64,
    /// The link that led here, and the place of its beginning in the step before.
    link: LinkId,
    from: u32,
}

struct Planner<'a> {
    fabric: &'a Fabric,
    routes: &'a mut Routes,
    /// Bits per second that each link can carry.
    rates: Vec<f64>,
    /// Bits per second laid on each link so far.
    laid: Vec<f64>,
    /// The bunches on each link, in the order in which they came.
    on_link: Vec<Vec<u32>>,
    /// By how much all links together exceed the limit.
    excess: f64,
    /// How often each link was too full.
    history: Vec<f64>,
    /// The utilisation that no link shall exceed.
    limit: f64,
    /// The steps of the current search, one frontier after the other.
    steps: Vec<Vec<Reached>>,
    hops: Vec<LinkId>,
}

impl<'a> Planner<'a> {
    fn new(fabric: &'a Fabric, routes: &'a mut Routes) -> Self {
        let rate = |link| routes.health().rate(fabric, link).as_bps_f64();
        let rates: Vec<f64> = fabric.links().ids().map(rate).collect();
        let none = vec![0.0; rates.len()];
        Self {
            fabric,
            on_link: vec![Vec::new(); rates.len()],
            routes,
            rates,
            laid: none.clone(),
            excess: 0.0,
            history: none,
            limit: 0.0,
            steps: Vec::new(),
            hops: Vec::new(),
        }
    }

    fn plan(&mut self, demands: &[Demand]) -> Vec<Option<Path>> {
        self.limit = self.forced(demands);
        let mut bunches = self.bunches(demands);
        for at in 0..bunches.len() {
            self.place(at, &mut bunches, demands);
        }
        self.repair(&mut bunches, demands);
        let mut paths = vec![None; demands.len()];
        for bunch in bunches {
            for at in bunch.members {
                let path = bunch.path.as_ref();
                paths[at] = path.map(|path| self.with_last_hop(path, demands[at].key.to));
            }
        }
        paths
    }

    /// Takes flows off links that are too full, one after the other, and lays them again; ends
    /// with the best placement that it has seen.
    fn repair(&mut self, bunches: &mut [Bunch], demands: &[Demand]) {
        let full = (0..self.laid.len()).filter(|link| 0.0 < self.breaks(*link, 0.0));
        let mut waiting: Vec<usize> = full.collect();
        let mut least = self.excess;
        // What was moved since the best placement, and where it was then.
        let mut since: Vec<(usize, Option<Path>)> = Vec::new();
        for _ in 0..REPAIRS * bunches.len() {
            // The last one first: a flow that is pushed off its link is followed until it rests.
            let Some(link) = waiting.pop() else { break };
            if self.breaks(link, 0.0) == 0.0 {
                continue;
            }
            self.history[link] += 1.0;
            // The one that has been there longest.
            let at = self.on_link[link][0] as usize;
            since.push((at, bunches[at].path.clone()));
            self.take_off(at, bunches, demands);
            self.place(at, bunches, demands);
            let path = bunches[at].path.iter().flatten().map(|link| link.index());
            waiting.extend(path.chain([link]).filter(|link| 0.0 < self.breaks(*link, 0.0)));
            if self.excess < least * (1.0 - 1e-9) {
                least = self.excess;
                since.clear();
            }
        }
        for (at, path) in since.into_iter().rev() {
            self.take_off(at, bunches, demands);
            bunches[at].path = path;
            self.load(at, bunches, demands, 1.0);
        }
    }

    /// The utilisation of the fullest link that flows have no choice about: the NICs' own.
    fn forced(&self, demands: &[Demand]) -> f64 {
        let mut load = vec![0.0; self.fabric.nodes().len()];
        let mut most = 0.0_f64;
        for end in [|key: &FlowKey| key.from, |key: &FlowKey| key.to] {
            load.fill(0.0);
            for demand in demands {
                let node = end(&demand.key);
                load[node.index()] += demand.rate_bps;
                let rate = |link: &LinkId| self.fabric.class(*link).rate.as_bps_f64();
                let capacity: f64 = self.fabric.ports(node).iter().map(rate).sum();
                most = most.max(load[node.index()] / capacity);
            }
        }
        most
    }

    /// The flows that switches can tell apart, largest first.
    fn bunches(&self, demands: &[Demand]) -> Vec<Bunch> {
        let prefix = |to: NodeId| match self.fabric.ports(to) {
            [only] => self.fabric.links()[*only].to,
            _ => to,
        };
        let mut order: Vec<usize> = (0..demands.len()).collect();
        let group = |at: usize| (demands[at].key.from, prefix(demands[at].key.to));
        order.sort_by_key(|at| (group(*at), *at));
        let bunch = |members: &[usize]| Bunch {
            members: members.to_vec(),
            rate_bps: members.iter().map(|at| demands[*at].rate_bps).sum(),
            path: None,
        };
        let mut bunches: Vec<Bunch> =
            order.chunk_by(|a, b| group(*a) == group(*b)).map(bunch).collect();
        bunches.sort_by(|a, b| b.rate_bps.total_cmp(&a.rate_bps));
        bunches
    }

    fn place(&mut self, at: usize, bunches: &mut [Bunch], demands: &[Demand]) {
        let first = demands[bunches[at].members[0]].key;
        bunches[at].path = self.search(first.from, first.to, bunches[at].rate_bps);
        self.load(at, bunches, demands, 1.0);
    }

    fn take_off(&mut self, at: usize, bunches: &mut [Bunch], demands: &[Demand]) {
        self.load(at, bunches, demands, -1.0);
        bunches[at].path = None;
    }

    /// Puts a bunch on the links of its path, or takes it off them.
    fn load(&mut self, at: usize, bunches: &[Bunch], demands: &[Demand], sign: f64) {
        let Some(path) = &bunches[at].path else { return };
        for &member in &bunches[at].members {
            for link in self.with_last_hop(path, demands[member].key.to) {
                let link = link.index();
                self.excess -= self.breaks(link, 0.0);
                self.laid[link] += sign * demands[member].rate_bps;
                self.excess += self.breaks(link, 0.0);
            }
        }
        for link in path {
            let there = &mut self.on_link[link.index()];
            match sign {
                1.0 => there.push(at as u32),
                _ => there.retain(|other| *other != at as u32),
            }
        }
    }

    /// By how much a link would exceed the limit with so much more on it.
    fn breaks(&self, link: usize, more: f64) -> f64 {
        // Rounding is not an excess.
        let over = (self.laid[link] + more) / self.rates[link] - self.limit * (1.0 + 1e-9);
        over.max(0.0)
    }

    /// The path with its last hop replaced by the one to another NIC of the same leaf.
    fn with_last_hop(&self, path: &[LinkId], to: NodeId) -> Path {
        let mut path = path.to_vec();
        if let ([only], Some(last)) = (self.fabric.ports(to), path.last_mut()) {
            *last = self.fabric.reverse(*only);
        }
        path
    }

    /// The shortest path that breaks the constraint least, and then the emptiest.
    fn search(&mut self, from: NodeId, to: NodeId, more: f64) -> Option<Path> {
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
                    let at = link.index();
                    next.push(Reached {
                        node: self.fabric.links()[link].to,
                        worst: reached.worst + self.breaks(at, more) * (1.0 + self.history[at]),
                        sum: reached.sum + self.laid[at] / self.rates[at],
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
        let mut policy = TrafficEngineering::new(&config, &fabric, 1);
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

    /// Oracle: where capacity suffices a permutation shares no link.
    #[test]
    fn a_permutation_is_spread_perfectly() {
        for shift in 0..8 {
            assert_eq!(fullest(shift, 0), 1, "shift {shift}");
        }
    }

    /// Oracle: a random permutation of 64 full leaves, where every link must carry one flow.
    #[test]
    fn full_load_is_packed() {
        let fabric = leaf_spine(64, 16, 16);
        let config = RoutingConfig::default();
        let mut queue_pairs = QueuePairs::new(&fabric, &config, 1);
        let mut to: Vec<usize> = (0..1024).collect();
        units::Random::new(1, "permutation", 0).shuffle(&mut to);
        let demand = |(from, to): (usize, &usize)| Demand {
            key: queue_pairs.open(fabric.nic(from), fabric.nic(*to)),
            rate_bps: 400e9,
        };
        let pairs = to.iter().enumerate().filter(|(from, to)| from / 16 != **to / 16);
        let demands: Vec<Demand> = pairs.map(demand).collect();
        let mut policy = TrafficEngineering::new(&config, &fabric, 1);
        let paths = policy.plan(&fabric, &mut Routes::default(), &demands).expect("it plans");
        let mut counts = vec![0; fabric.links().len()];
        for link in paths.into_iter().flatten().flatten() {
            counts[link.index()] += 1;
        }
        let doubled = counts.iter().filter(|count| 1 < **count).count();
        assert_eq!(doubled, 0);
    }

    /// Property: failed links are planned around.
    #[test]
    fn failures_are_planned_around() {
        assert!(fullest(3, 8) <= 3);
    }
}
