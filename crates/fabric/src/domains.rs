//! Failure domains: what one failure of each kind of part takes with it.
//!
//! How it works. A failure is a set of cables that carry nothing: a cable's own, all of a NIC's, a
//! switch's, a plane's, a server's, a rack's. A NIC is cut off when none of its ports leads to the
//! larger part of its network, a GPU is stopped when all its NICs are cut off or its server is
//! gone, and a job when any of its GPUs is stopped. What goes on has less:
//!
//! * bandwidth: of the NIC or switch that is hit worst, what its ports (of a switch: upwards, or
//!   to other switches where there is no up) can still carry, as a share;
//! * bisection: of the whole back-end, as a share of what it was;
//! * paths: shortest ways from a NIC that is hit to the NIC to which it had most.
//!
//! Parts of a fabric with structure that have equal neighbourhoods (tier, ports, NICs and NICs of
//! the job below) are alike, and one of them is looked at. Elsewhere every part is, up to a bound;
//! [`Domain::looked_at`] says how many were.
//!
//! Where it departs from reality: one failure at a time; the front-end and the scale-up network
//! are not looked at; a job with a stopped GPU stops, whatever its software could do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use serde::Serialize;
use units::Id;

use crate::cost::cheapest;
use crate::graph::{ClassId, Fabric, LinkId, LinkKind, NetworkKind, NodeId, NodeKind};
use crate::hardware::Catalogue;
use crate::routes::{Health, Routes};
use crate::summary::{bisection_bps, ways};

/// A kind of part that fails.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// A cable of copper, with its ends.
    Cable,
    /// A fibre, without the transceivers at its ends.
    Fibre,
    /// One end of an optical cable.
    Transceiver,
    /// A network card of the back-end.
    Nic,
    /// A switch.
    Switch,
    /// A network of the back-end that shares no switch with the others.
    Plane,
    /// A server with its GPUs and NICs.
    Server,
    /// A rack of servers, without switches.
    Rack,
}

/// All parts of one kind in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// What they are.
    pub part: PartKind,
    /// Where: a kind of cable, a tier.
    pub place: String,
    /// How many there are.
    pub count: u64,
    /// The most GPUs that one failure stops.
    pub gpus_stopped: u64,
    /// How many of the parts stop the job when they fail.
    pub stop_the_job: u64,
    /// What the NIC or switch that is hit worst can still carry, as a share.
    pub bandwidth_left: f64,
    /// Bisection of the back-end over what it was, at the least.
    pub bisection_left: f64,
    /// Shortest ways from a NIC that is hit to another, before the failure.
    pub paths: u64,
    /// The same after it, where fewest are left.
    pub paths_left: u64,
    /// How many unlike parts were looked at.
    pub looked_at: u64,
}

/// Whose failures are looked at.
#[derive(Clone, Copy, Debug)]
pub struct DomainQuery<'a> {
    /// Says which cables have transceivers.
    pub catalogue: &'a Catalogue,
    /// The GPUs of the job.
    pub job: &'a [u32],
    /// Servers of a rack.
    pub rack_servers: usize,
}

/// Servers of a rack where leaves are not of a rack: NVIDIA's DGX SuperPOD reference architecture
/// for H100 puts four in one.
const RACK_SERVERS: usize = 4;

/// The servers of a rack that the fabric suggests: those below one leaf, or the same leaves, where
/// all NICs of a server hang on the same ones.
pub fn usual_rack(fabric: &Fabric) -> usize {
    let leaves = |nic: usize| -> BTreeSet<NodeId> {
        scale_out(fabric, fabric.nic(nic)).map(|link| fabric.links()[link].to).collect()
    };
    let per_node = fabric.nics_per_node();
    let own = leaves(0);
    let is_one =
        |server: &usize| (server * per_node..(server + 1) * per_node).all(|nic| leaves(nic) == own);
    match (0..fabric.servers()).take_while(is_one).count() {
        0 => RACK_SERVERS.min(fabric.servers()),
        servers => servers,
    }
}

/// The failure domains of a back-end, from cables to racks.
pub fn domains(fabric: &Fabric, asked: DomainQuery<'_>) -> Vec<Domain> {
    let mut survey = Survey::of(fabric, asked);
    let mut found = survey.cables();
    let nics = (0..fabric.nics()).map(|nic| {
        let node = fabric.nic(nic);
        let failure = Failure { cables: scale_out(fabric, node).collect(), servers: 0..0 };
        (survey.node_key(node), failure)
    });
    let nics = alike(nics);
    found.extend(survey.domain((PartKind::Nic, "back-end"), nics));
    for (tier, place) in (0_u8..).zip(fabric.tiers()) {
        let of_tier = |switch: &NodeId| {
            let node = fabric.nodes()[*switch];
            node.kind == NodeKind::Switch && node.tier == tier && survey.is_back_end(*switch)
        };
        let switches = fabric.switches().filter(of_tier);
        let switches = alike(switches.map(|switch| {
            let failure = Failure { cables: scale_out(fabric, switch).collect(), servers: 0..0 };
            (survey.node_key(switch), failure)
        }));
        found.extend(survey.domain((PartKind::Switch, &place.name), switches));
    }
    found.extend(survey.planes());
    let groups = [(PartKind::Server, 1), (PartKind::Rack, asked.rack_servers.max(1))];
    for (part, size) in groups {
        let groups = survey.groups_of_servers(size);
        found.extend(survey.domain((part, "back-end"), groups));
    }
    found
}

/// What fails: cables in both directions, and servers with their GPUs.
#[derive(Clone, Debug, Default)]
struct Failure {
    cables: Vec<LinkId>,
    servers: Range<usize>,
}

/// What makes parts alike.
type Key = Vec<u64>;

/// Parts that are alike: one of them, and how many there are.
fn alike(parts: impl Iterator<Item = (Key, Failure)>) -> Vec<(Failure, u64)> {
    let mut groups: BTreeMap<Key, (Failure, u64)> = BTreeMap::new();
    for (key, failure) in parts {
        groups.entry(key).or_insert((failure, 0)).1 += 1;
    }
    groups.into_values().collect()
}

/// What one failure does.
#[derive(Clone, Copy, Debug)]
struct Effect {
    gpus_stopped: u64,
    stops_the_job: bool,
    bandwidth_left: f64,
    bisection_left: f64,
    paths: u64,
    paths_left: u64,
}

/// Links that may be walked over for one kind of part before parts are left out: seconds.
const MOST_WALKED: usize = 1 << 30;

/// The links of a node into the back-end, circuits among them.
fn scale_out(fabric: &Fabric, node: NodeId) -> impl Iterator<Item = LinkId> + '_ {
    let is_back_end =
        |link: &LinkId| matches!(fabric.class(*link).kind, LinkKind::ScaleOut | LinkKind::Circuit);
    fabric.ports(node).iter().copied().filter(is_back_end)
}

/// A fabric whose parts fail one by one.
struct Survey<'a> {
    fabric: &'a Fabric,
    asked: DomainQuery<'a>,
    /// The same fabric, with the failure at hand.
    failing: Fabric,
    routes: Routes,
    /// By GPU: whether the job has it.
    in_job: Vec<bool>,
    /// By NIC: GPUs of the job that use it.
    job_gpus: Vec<u64>,
    /// By leaf, in their order: cables to NICs below this leaf and those before it, and how many of
    /// them are the job's.
    below: Vec<[u64; 2]>,
    /// By switch: the plane that it belongs to.
    planes: Vec<Option<u32>>,
    bisection_bps: f64,
}

impl<'a> Survey<'a> {
    fn of(fabric: &'a Fabric, asked: DomainQuery<'a>) -> Self {
        let mut in_job = vec![false; fabric.gpus()];
        let mut job_gpus = vec![0; fabric.nics()];
        for &gpu in asked.job {
            in_job[gpu as usize] = true;
            for nic in fabric.nics_of(fabric.gpu(gpu as usize)) {
                job_gpus[fabric.nic_number(nic).expect("a GPU uses NICs")] += 1;
            }
        }
        let mut below = vec![[0; 2]];
        for &leaf in fabric.leaves() {
            let nic = |link: LinkId| fabric.nic_number(fabric.links()[link].to);
            let nics = || scale_out(fabric, leaf).filter_map(nic);
            let [all, own] = below[below.len() - 1];
            let of_job = nics().filter(|nic| 0 < job_gpus[*nic]).count() as u64;
            below.push([all + nics().count() as u64, own + of_job]);
        }
        let planes = components(fabric, fabric.health());
        let (failing, routes) = (fabric.clone(), Routes::of(fabric));
        let bisection_bps = bisection_bps(fabric);
        Self { fabric, asked, failing, routes, in_job, job_gpus, below, planes, bisection_bps }
    }

    /// Whether a switch belongs to a back-end.
    fn is_back_end(&self, switch: NodeId) -> bool {
        let tier = self.fabric.nodes()[switch].tier;
        let mut networks = self.fabric.networks().iter();
        networks.any(|net| net.kind == NetworkKind::BackEnd && net.tiers.contains(&tier))
    }

    /// What makes a NIC or a switch like another.
    fn node_key(&self, node: NodeId) -> Key {
        let fabric = self.fabric;
        if let Some(nic) = fabric.nic_number(node) {
            let mut key = vec![self.job_gpus[nic]];
            let leaves = scale_out(fabric, node).map(|link| fabric.links()[link].to);
            key.extend(leaves.flat_map(|leaf| self.node_key(leaf)));
            return key;
        }
        let Some(cover) = fabric.cover(node) else { return vec![node.index() as u64] };
        let (down, up) = fabric.ports_down_up(node);
        let [first, end] = [cover.first, cover.end].map(|leaf| self.below[leaf as usize]);
        let tier = fabric.nodes()[node].tier;
        let ports = [u64::from(tier), down.len() as u64, up.len() as u64];
        [&ports[..], &[end[0] - first[0], end[1] - first[1]]].concat()
    }

    /// Cables by their kind, and the transceivers at their ends.
    fn cables(&mut self) -> Vec<Domain> {
        let fabric = self.fabric;
        let mut by_class: BTreeMap<ClassId, Vec<LinkId>> = BTreeMap::new();
        for link in fabric.links().ids().step_by(2) {
            let class = fabric.links()[link].class;
            if matches!(fabric.classes()[class].kind, LinkKind::ScaleOut | LinkKind::Circuit) {
                by_class.entry(class).or_default().push(link);
            }
        }
        let (mut cables, mut ends) = (Vec::new(), Vec::new());
        for (class, links) in by_class {
            let parts = alike(links.into_iter().map(|link| {
                let ends = [fabric.links()[link].from, fabric.links()[link].to];
                let key = ends.into_iter().flat_map(|end| self.node_key(end)).collect();
                (key, Failure { cables: vec![link], servers: 0..0 })
            }));
            let class = &fabric.classes()[class];
            let chosen = cheapest(self.asked.catalogue, class.rate, class.length);
            // Copper draws next to nothing, and ends at three metres.
            let is_optical = chosen.map_or(3.0 < class.length.as_metres_f64(), |(_, cable)| {
                1.0 <= cable.power_w.value
            });
            let part = if is_optical { PartKind::Fibre } else { PartKind::Cable };
            let Some(cable) = self.domain((part, &class.name), parts) else { continue };
            if is_optical {
                ends.push(Domain {
                    part: PartKind::Transceiver,
                    count: 2 * cable.count,
                    stop_the_job: 2 * cable.stop_the_job,
                    ..cable.clone()
                });
            }
            cables.push(cable);
        }
        cables.extend(ends);
        cables
    }

    /// The planes, where there are several.
    fn planes(&mut self) -> Option<Domain> {
        let mut planes: BTreeMap<u32, Vec<LinkId>> = BTreeMap::new();
        for switch in self.fabric.switches() {
            let ordinal = self.fabric.switch_ordinal(switch).expect("it is a switch");
            let Some(plane) = self.planes[ordinal] else { continue };
            if self.is_back_end(switch) {
                planes.entry(plane).or_default().extend(scale_out(self.fabric, switch));
            }
        }
        if planes.len() < 2 {
            return None;
        }
        let failure = |cables: Vec<LinkId>| (Failure { cables, servers: 0..0 }, 1);
        let parts = planes.into_values().map(failure).collect();
        self.domain((PartKind::Plane, "back-end"), parts)
    }

    /// Servers, or racks of so many, that are alike.
    fn groups_of_servers(&self, size: usize) -> Vec<(Failure, u64)> {
        let (fabric, servers) = (self.fabric, self.fabric.servers());
        let per_node = fabric.nics_per_node();
        alike((0..servers).step_by(size).map(|first| {
            let servers = first..(first + size).min(servers);
            let nics = servers.start * per_node..(servers.end * per_node).min(fabric.nics());
            let of_job: u64 = self.job_gpus[nics.clone()].iter().sum();
            let mut key = vec![servers.len() as u64, of_job];
            key.extend(self.node_key(fabric.nic(nics.start)));
            let cables = nics.flat_map(|nic| scale_out(fabric, fabric.nic(nic))).collect();
            (key, Failure { cables, servers })
        }))
    }

    /// Puts together what parts of one kind do; none if there are none.
    fn domain(
        &mut self,
        (part, place): (PartKind, &str),
        parts: Vec<(Failure, u64)>,
    ) -> Option<Domain> {
        let affordable = (MOST_WALKED / self.fabric.links().len().max(1)).max(16);
        let stride = parts.len().div_ceil(affordable).max(1);
        let mut all: Option<Domain> = None;
        let mut last = None;
        for (at, (failure, count)) in parts.iter().enumerate() {
            let is_looked_at = at % stride == 0;
            let effect = match last {
                Some(effect) if !is_looked_at => effect,
                _ => self.effect(failure),
            };
            last = Some(effect);
            let domain = all.get_or_insert_with(|| Domain {
                part,
                place: place.to_owned(),
                count: 0,
                gpus_stopped: 0,
                stop_the_job: 0,
                bandwidth_left: 1.0,
                bisection_left: 1.0,
                paths: effect.paths,
                paths_left: effect.paths_left,
                looked_at: 0,
            });
            domain.add(effect, *count, is_looked_at);
        }
        all
    }

    /// What one failure does.
    fn effect(&mut self, failure: &Failure) -> Effect {
        let fabric = self.fabric;
        let mut health = fabric.health().clone();
        for &link in &failure.cables {
            health.fail(link);
            health.fail(fabric.reverse(link));
        }
        let hit = self.hit(failure);
        let cut = self.cut_off(failure, &health, &hit);
        let stopped = self.stopped(failure, &cut);
        let bandwidth_left = self.bandwidth_left(failure, &health, (&hit, &cut));
        self.failing.set_health(health.clone());
        let bisection_left = bisection_bps(&self.failing) / self.bisection_bps.max(1.0);
        let (paths, paths_left) = self.paths(failure, health, (&hit, &cut));
        Effect {
            gpus_stopped: stopped.len() as u64,
            stops_the_job: stopped.iter().any(|gpu| self.in_job[*gpu]),
            bandwidth_left,
            bisection_left,
            paths,
            paths_left,
        }
    }

    /// The NICs that lose a port.
    fn hit(&self, failure: &Failure) -> BTreeSet<usize> {
        let ends = failure.cables.iter().flat_map(|link| {
            let link = self.fabric.links()[*link];
            [link.from, link.to]
        });
        ends.filter_map(|end| self.fabric.nic_number(end)).collect()
    }

    /// The NICs that no port joins to the larger part of its network.
    fn cut_off(
        &self,
        failure: &Failure,
        health: &Health,
        hit: &BTreeSet<usize>,
    ) -> BTreeSet<usize> {
        let fabric = self.fabric;
        let up = |nic: usize| {
            let live = move |link: &LinkId| !health.is_down(*link);
            scale_out(fabric, fabric.nic(nic)).filter(live).map(|link| fabric.links()[link].to)
        };
        let is_inside = |link: &LinkId| {
            let link = fabric.links()[*link];
            [link.from, link.to].iter().all(|end| fabric.switch_ordinal(*end).is_some())
        };
        if !failure.cables.iter().any(is_inside) {
            return hit.iter().copied().filter(|nic| up(*nic).next().is_none()).collect();
        }
        let parts = components(fabric, health);
        let of = |switch: NodeId| fabric.switch_ordinal(switch).and_then(|at| parts[at]);
        // Of each plane the part with the most ports of NICs goes on.
        let mut ports: BTreeMap<u32, (Option<u32>, u64)> = BTreeMap::new();
        for nic in 0..fabric.nics() {
            for leaf in up(nic) {
                let plane = fabric.switch_ordinal(leaf).and_then(|at| self.planes[at]);
                if let Some(part) = of(leaf) {
                    ports.entry(part).or_insert((plane, 0)).1 += 1;
                }
            }
        }
        let mut largest: BTreeMap<Option<u32>, (u64, u32)> = BTreeMap::new();
        for (part, (plane, ports)) in ports {
            let most = largest.entry(plane).or_insert((ports, part));
            if most.0 < ports {
                *most = (ports, part);
            }
        }
        let goes_on = |leaf: NodeId| largest.values().any(|(_, part)| of(leaf) == Some(*part));
        (0..fabric.nics()).filter(|nic| !up(*nic).any(goes_on)).collect()
    }

    /// The GPUs that are stopped: in a server that is gone, or with no NIC left.
    fn stopped(&self, failure: &Failure, cut: &BTreeSet<usize>) -> BTreeSet<usize> {
        let fabric = self.fabric;
        let per_node = fabric.gpus_per_node();
        let of = |server: usize| server * per_node..((server + 1) * per_node).min(fabric.gpus());
        let gone = failure.servers.clone().flat_map(of);
        let is_cut = |gpu: &usize| {
            let number = |nic| fabric.nic_number(nic).expect("a GPU uses NICs");
            fabric.nics_of(fabric.gpu(*gpu)).all(|nic| cut.contains(&number(nic)))
        };
        let servers: BTreeSet<usize> = cut.iter().map(|nic| nic / fabric.nics_per_node()).collect();
        gone.chain(servers.into_iter().flat_map(of).filter(is_cut)).collect()
    }

    /// What is left to the NIC or switch that is hit worst.
    fn bandwidth_left(
        &self,
        failure: &Failure,
        health: &Health,
        (hit, cut): (&BTreeSet<usize>, &BTreeSet<usize>),
    ) -> f64 {
        let fabric = self.fabric;
        let share = |links: &[LinkId]| {
            let before: f64 = links.iter().map(|link| live(fabric, fabric.health(), *link)).sum();
            let after: f64 = links.iter().map(|link| live(fabric, health, *link)).sum();
            if 0.0 < before { after / before } else { 1.0 }
        };
        let mut least: f64 = if cut.is_empty() { 1.0 } else { 0.0 };
        for nic in hit {
            least = least.min(share(&scale_out(fabric, fabric.nic(*nic)).collect::<Vec<_>>()));
        }
        let ends = failure.cables.iter().flat_map(|link| {
            let link = fabric.links()[*link];
            [link.from, link.to]
        });
        let switches: BTreeSet<NodeId> =
            ends.filter(|end| fabric.switch_ordinal(*end).is_some()).collect();
        for switch in switches {
            let all: Vec<LinkId> = scale_out(fabric, switch).collect();
            let is_gone = share(&all) == 0.0;
            let up = match fabric.has_structure() {
                true => fabric.ports_down_up(switch).1.to_vec(),
                false => {
                    let is_switch =
                        |link: &LinkId| fabric.switch_ordinal(fabric.links()[*link].to).is_some();
                    all.into_iter().filter(is_switch).collect()
                }
            };
            if !is_gone {
                least = least.min(share(&up));
            }
        }
        least
    }

    /// Shortest ways from a NIC that is hit, before and after.
    fn paths(
        &mut self,
        failure: &Failure,
        health: Health,
        (hit, cut): (&BTreeSet<usize>, &BTreeSet<usize>),
    ) -> (u64, u64) {
        let fabric = self.fabric;
        let from = match (cut.first(), hit.first()) {
            (Some(nic), _) | (None, Some(nic)) => Some(*nic),
            (None, None) => failure.cables.first().and_then(|link| self.nearest_nic(*link)),
        };
        let Some(from) = from else { return (0, 0) };
        // To other servers near and far, on the same rail and the next.
        let (servers, per_node) = (fabric.servers(), fabric.nics_per_node());
        let far = (0..servers).step_by((servers / 32).max(1)).chain([servers - 1]);
        let rails = [from % per_node, (from + 1) % per_node];
        let others = far.flat_map(|server| rails.map(|rail| server * per_node + rail));
        let others: BTreeSet<usize> = others.filter(|to| *to != from).collect();
        let mut most = (0, None);
        for to in others.into_iter().rev() {
            let (from, to) = (fabric.nic(from), fabric.nic(to));
            let paths = ways(fabric, &mut self.routes, from, to).map_or(0, |(paths, _)| paths);
            if most.0 < paths {
                most = (paths, Some(to));
            }
        }
        let (paths, Some(to)) = most else { return (0, 0) };
        let mut routes = Routes::new(health);
        let left = ways(fabric, &mut routes, fabric.nic(from), to).map_or(0, |(paths, _)| paths);
        (paths, if cut.contains(&from) { 0 } else { left })
    }

    /// A NIC as near below a cable as any.
    fn nearest_nic(&self, cable: LinkId) -> Option<usize> {
        let fabric = self.fabric;
        let link = fabric.links()[cable];
        let tier = |node: NodeId| fabric.nodes()[node].tier;
        let lower = if tier(link.from) <= tier(link.to) { link.from } else { link.to };
        let mut seen = BTreeSet::from([lower]);
        let mut queue = VecDeque::from([lower]);
        while let Some(at) = queue.pop_front() {
            if let Some(nic) = fabric.nic_number(at) {
                return Some(nic);
            }
            let (down, _) = fabric.ports_down_up(at);
            let next = if fabric.has_structure() { down } else { fabric.ports(at) };
            for link in next {
                let to = fabric.links()[*link].to;
                if seen.insert(to) {
                    queue.push_back(to);
                }
            }
        }
        None
    }
}

impl Domain {
    fn add(&mut self, effect: Effect, count: u64, is_looked_at: bool) {
        self.count += count;
        self.gpus_stopped = self.gpus_stopped.max(effect.gpus_stopped);
        self.stop_the_job += if effect.stops_the_job { count } else { 0 };
        self.bandwidth_left = self.bandwidth_left.min(effect.bandwidth_left);
        self.bisection_left = self.bisection_left.min(effect.bisection_left);
        if effect.paths_left < self.paths_left {
            (self.paths, self.paths_left) = (effect.paths, effect.paths_left);
        }
        self.looked_at += u64::from(is_looked_at);
    }
}

fn live(fabric: &Fabric, health: &Health, link: LinkId) -> f64 {
    if health.is_down(link) { 0.0 } else { health.rate(fabric, link).as_bps_f64() }
}

/// By switch of the back-end: the part of the network that it belongs to; NICs do not forward.
fn components(fabric: &Fabric, health: &Health) -> Vec<Option<u32>> {
    let mut parts: Vec<Option<u32>> = vec![None; fabric.switches().len()];
    let mut next = 0;
    for start in fabric.switches() {
        let at = fabric.switch_ordinal(start).expect("it is a switch");
        if parts[at].is_some() || fabric.nodes()[start].kind != NodeKind::Switch {
            continue;
        }
        parts[at] = Some(next);
        let mut queue = vec![start];
        while let Some(switch) = queue.pop() {
            for link in scale_out(fabric, switch).filter(|link| !health.is_down(*link)) {
                let to = fabric.links()[link].to;
                let Some(other) = fabric.switch_ordinal(to) else { continue };
                if parts[other].is_none() {
                    parts[other] = Some(next);
                    queue.push(to);
                }
            }
        }
        next += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Aggregation, ClusterConfig, FabricConfig, TopologyKind, build};

    fn asked<'a>(catalogue: &'a Catalogue, job: &'a [u32]) -> DomainQuery<'a> {
        DomainQuery { catalogue, job, rack_servers: 2 }
    }

    fn of(found: &[Domain], part: PartKind) -> Vec<&Domain> {
        found.iter().filter(|domain| domain.part == part).collect()
    }

    /// What one row says, in the order of the table.
    fn row(domain: &Domain) -> (u64, u64, u64, u64, u64) {
        let Domain { count, gpus_stopped, stop_the_job, paths, paths_left, .. } = *domain;
        (count, gpus_stopped, stop_the_job, paths, paths_left)
    }

    /// Oracle: a count by hand. Eight servers of four GPUs, each with a NIC of one port; leaves of
    /// eight NICs (two servers) with four cables upwards, one to each of four spines. The job has
    /// the first three servers.
    #[test]
    fn a_clos_is_as_counted_by_hand() {
        let cluster = ClusterConfig {
            gpus: Some(32),
            gpus_per_node: 4,
            nics_per_node: 4,
            ..ClusterConfig::default()
        };
        let config = FabricConfig {
            topology: TopologyKind::Clos,
            radix: Some(12),
            downlinks: Some(8),
            uplinks: vec![4],
            spines: Some(4),
            ..FabricConfig::default()
        };
        let catalogue = Catalogue::default();
        let fabric = build(&cluster, &config, &catalogue).unwrap();
        let job: Vec<u32> = (0..12).collect();
        let found = domains(&fabric, asked(&catalogue, &job));
        assert_eq!(usual_rack(&fabric), 2);
        let cables: Vec<_> =
            found.iter().filter(|domain| domain.part <= PartKind::Fibre).map(row).collect();
        // 32 to the NICs, 12 of them the job's; 16 upwards, which leave three ways of four.
        assert_eq!(cables, [(32, 1, 12, 4, 0), (16, 0, 0, 4, 3)]);
        assert_eq!(row(of(&found, PartKind::Nic)[0]), (32, 1, 12, 4, 0));
        let switches: Vec<_> = of(&found, PartKind::Switch).into_iter().map(row).collect();
        // Four leaves, of which two have GPUs of the job; four spines.
        assert_eq!(switches, [(4, 8, 2, 4, 0), (4, 0, 0, 4, 3)]);
        assert_eq!(row(of(&found, PartKind::Server)[0]), (8, 4, 3, 4, 0));
        assert_eq!(row(of(&found, PartKind::Rack)[0]), (4, 8, 2, 4, 0));
        assert!(of(&found, PartKind::Plane).is_empty());
        let left: Vec<f64> = found.iter().map(|domain| domain.bandwidth_left).collect();
        let (uplink, spine) = (&found[1], of(&found, PartKind::Switch)[1]);
        assert_eq!((uplink.bandwidth_left, spine.bandwidth_left), (0.75, 0.75), "{left:?}");
        // Leaves give four of eight upwards; a spine takes one from each of four, a cable one.
        assert!((spine.bisection_left - 0.75).abs() < 1e-9, "{spine:?}");
        assert!((uplink.bisection_left - 15.0 / 16.0).abs() < 1e-9, "{uplink:?}");
    }

    /// Oracle: a count by hand. Two ports for each NIC, to two leaves: nothing but a NIC, a server
    /// or a rack stops anybody.
    #[test]
    fn two_tors_stop_nobody() {
        let cluster = ClusterConfig {
            gpus: Some(32),
            gpus_per_node: 4,
            nics_per_node: 4,
            ports_per_nic: 2,
            aggregation: Aggregation::DualTor,
            ..ClusterConfig::default()
        };
        let config = FabricConfig {
            topology: TopologyKind::Clos,
            radix: Some(12),
            downlinks: Some(8),
            uplinks: vec![4],
            spines: Some(4),
            ..FabricConfig::default()
        };
        let catalogue = Catalogue::default();
        let fabric = build(&cluster, &config, &catalogue).unwrap();
        let job: Vec<u32> = (0..32).collect();
        let found = domains(&fabric, asked(&catalogue, &job));
        // Two ways into the fabric, four spines, two ways out; half of them without one leaf.
        let cables: Vec<_> =
            found.iter().filter(|domain| domain.part <= PartKind::Fibre).map(row).collect();
        assert_eq!(cables, [(64, 0, 0, 16, 8), (32, 0, 0, 16, 14)]);
        let switches = of(&found, PartKind::Switch);
        assert_eq!(row(switches[0]), (8, 0, 0, 16, 8));
        assert_eq!(row(switches[1]), (4, 0, 0, 16, 12));
        assert_eq!((found[0].bandwidth_left, switches[0].bandwidth_left), (0.5, 0.5));
        assert_eq!(row(of(&found, PartKind::Nic)[0]), (32, 1, 32, 16, 0));
        assert_eq!(row(of(&found, PartKind::Server)[0]), (8, 4, 8, 16, 0));
        assert_eq!(row(of(&found, PartKind::Rack)[0]), (4, 8, 4, 16, 0));
    }

    /// Oracle: planes that never meet. One of two leaves half of everything, and stops nobody.
    #[test]
    fn a_plane_takes_half_and_stops_nobody() {
        let cluster = ClusterConfig { gpus: Some(64), ..ClusterConfig::default() };
        let topology = TopologyKind::DualPlane;
        let config = FabricConfig { topology, radix: Some(8), ..FabricConfig::default() };
        let catalogue = Catalogue::default();
        let fabric = build(&cluster, &config, &catalogue).unwrap();
        let found = domains(&fabric, asked(&catalogue, &[0]));
        let planes = of(&found, PartKind::Plane);
        let plane = planes[0];
        assert_eq!((plane.count, plane.gpus_stopped, plane.stop_the_job), (2, 0, 0));
        assert_eq!(plane.bandwidth_left, 0.5);
        assert!((plane.bisection_left - 0.5).abs() < 1e-9, "{plane:?}");
        assert_eq!(plane.paths_left, plane.paths / 2, "{plane:?}");
    }

    /// Agreement: on every small fabric, one of each group of alike parts says what all of them do.
    #[test]
    fn parts_that_are_called_alike_are() {
        let catalogue = Catalogue::default();
        let topologies = [TopologyKind::Clos, TopologyKind::RailOptimized, TopologyKind::RailOnly];
        for topology in topologies {
            let cluster = ClusterConfig { gpus: Some(64), ..ClusterConfig::default() };
            let config = FabricConfig { topology, radix: Some(16), ..FabricConfig::default() };
            let fabric = build(&cluster, &config, &catalogue).unwrap();
            let job: Vec<u32> = (8..40).collect();
            let mut survey = Survey::of(&fabric, asked(&catalogue, &job));
            let mut seen: BTreeMap<Key, String> = BTreeMap::new();
            for switch in fabric.switches().filter(|switch| fabric.cover(*switch).is_some()) {
                let cables = scale_out(&fabric, switch).collect();
                let effect = survey.effect(&Failure { cables, servers: 0..0 });
                let key = survey.node_key(switch);
                let words = format!("{effect:?}");
                let first = seen.entry(key).or_insert_with(|| words.clone());
                assert_eq!(*first, words, "{topology:?}: {}", fabric.name(switch));
            }
        }
    }
}
