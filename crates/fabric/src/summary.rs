//! What a fabric is, in numbers: everything that `topo` shows.
//!
//! * Oversubscription of a tier: capacity of its links downwards over capacity of its links
//!   upwards. Links between switches of one tier count as upwards where they lead to another zone
//!   (the global links of a dragonfly, circuits between pods).
//! * Bisection: the least capacity between two halves of the NICs. In a folded Clos network it is
//!   half of what all NICs can send to the top at once (half of the narrowest layer). Elsewhere the
//!   leaves are halved in their order, or across their zones, and each switch above them takes the
//!   side on which it has more capacity: an upper bound. Networks that nothing joins (rails,
//!   planes, several back-ends) add up, because traffic between them goes through the servers.
//! * Paths: the number of distinct shortest ways between two NICs, parallel cables told apart; the
//!   largest over a sample of pairs that holds one of every kind.
//!
//! What has failed from the start is left out of bisection and paths, and counted separately.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Id;

use crate::cost::{Bill, bill};
use crate::graph::{Fabric, LinkId, LinkKind, Network, NetworkKind, Node, NodeId, NodeKind};
use crate::hardware::Catalogue;
use crate::routes::Routes;
use crate::topology::ClusterConfig;

/// A fabric in numbers. Switches, links and tiers are those of the back-end.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Summary {
    /// Accelerators.
    pub gpus: u64,
    /// Servers.
    pub nodes: u64,
    /// Back-end network cards.
    pub nics: u64,
    /// Zones, pods, rails or groups of the leaves.
    pub zones: u64,
    /// What a zone is called: "zone", "pod", "rail", "group".
    pub zone_word: String,
    /// GPUs of the largest zone: those whose NIC is on one of its leaves.
    pub gpus_per_zone: u64,
    /// Switches.
    pub switches: u64,
    /// Cables, those to the NICs among them.
    pub links: u64,
    /// The layers of switches, bottom up.
    pub tiers: Vec<TierSummary>,
    /// The least capacity between two halves of the NICs, in one direction.
    pub bisection_bps: f64,
    /// The bisection over half of what the NICs can send: 1 is full bisection.
    pub bisection_share: f64,
    /// The most shortest ways between two NICs.
    pub paths_max: u64,
    /// Most links from NIC to NIC on a shortest way.
    pub hops_max: u32,
    /// The network inside servers or larger domains.
    pub scale_up: ScaleUpSummary,
    /// The network for storage, checkpoints and control.
    pub front_end: Option<NetworkSummary>,
    /// Directed links that are out of service from the start.
    pub failed_links: u64,
    /// What everything costs.
    pub cost_usd: f64,
    /// The least that it may cost: every price at the least that sources say.
    pub cost_low_usd: f64,
    /// The most.
    pub cost_high_usd: f64,
    /// What everything draws, servers included.
    pub power_w: f64,
    /// What it is made of.
    pub bill: Bill,
}

/// One layer of switches.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TierSummary {
    /// What its switches are called.
    pub name: String,
    /// The box.
    pub model: String,
    /// How many there are.
    pub switches: u64,
    /// Cables to the tier below or the NICs, and between its own switches.
    pub links: u64,
    /// Rate of the fastest of these cables.
    pub rate_bps: f64,
    /// Capacity below over capacity above, as it was meant; 1 at the top.
    pub oversubscription: f64,
    /// The same as it was built, with uplinks rounded to whole cables.
    pub oversubscription_built: f64,
}

/// The network inside servers or larger domains.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ScaleUpSummary {
    /// GPUs that it joins.
    pub domain_gpus: u64,
    /// Switches, one for each domain; none in a mesh.
    pub switches: u64,
    /// Cables or traces.
    pub links: u64,
    /// What one GPU can send into it.
    pub rate_bps: f64,
}

/// One of the switched networks.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct NetworkSummary {
    /// Network cards on it.
    pub nics: u64,
    /// Switches.
    pub switches: u64,
    /// Cables, those to the NICs among them.
    pub links: u64,
    /// The layers of switches, bottom up.
    pub tiers: Vec<TierSummary>,
    /// The least capacity between two halves of its NICs, in one direction.
    pub bisection_bps: f64,
}

impl Summary {
    /// The same with another bill.
    #[must_use]
    pub fn with_bill(self, bill: Bill) -> Self {
        Self {
            cost_usd: bill.cost_usd,
            cost_low_usd: bill.cost_low_usd,
            cost_high_usd: bill.cost_high_usd,
            power_w: bill.power_w,
            bill,
            ..self
        }
    }
}

/// Describes a fabric.
pub fn summary(fabric: &Fabric, cluster: &ClusterConfig, catalogue: &Catalogue) -> Summary {
    let layers = Layers::count(fabric);
    let networks = |kind| fabric.networks().iter().filter(move |network| network.kind == kind);
    let back: Vec<NetworkSummary> =
        networks(NetworkKind::BackEnd).map(|network| layers.network(fabric, network)).collect();
    let front = networks(NetworkKind::FrontEnd).next().map(|net| layers.network(fabric, net));
    let nic_bps: f64 = layers.nic_bps;
    let bisection_bps: f64 = back.iter().map(|network| network.bisection_bps).sum();
    let (paths_max, hops_max) = widest(fabric);
    let bill = bill(fabric, cluster, catalogue);
    let (zones, gpus_per_zone) = zones(fabric);
    let failed = fabric.links().ids().filter(|link| fabric.health().is_down(*link)).count();
    Summary {
        gpus: fabric.gpus() as u64,
        nodes: fabric.servers() as u64,
        nics: fabric.nics() as u64,
        zones,
        zone_word: fabric.networks().first().map_or("", |net| &net.zone_word).to_owned(),
        gpus_per_zone,
        switches: back.iter().map(|network| network.switches).sum(),
        links: back.iter().map(|network| network.links).sum(),
        bisection_bps,
        bisection_share: if 0.0 < nic_bps { bisection_bps / (nic_bps / 2.0) } else { 0.0 },
        paths_max,
        hops_max,
        scale_up: layers.scale_up(fabric),
        tiers: back.into_iter().flat_map(|network| network.tiers).collect(),
        front_end: front,
        failed_links: failed as u64,
        cost_usd: bill.cost_usd,
        cost_low_usd: bill.cost_low_usd,
        cost_high_usd: bill.cost_high_usd,
        power_w: bill.power_w,
        bill,
    }
}

/// The tiers of the back-end networks, without what takes long to find.
pub fn back_end_tiers(fabric: &Fabric) -> Vec<TierSummary> {
    let layers = Layers::count(fabric);
    let networks = fabric.networks().iter().filter(|net| net.kind == NetworkKind::BackEnd);
    networks.flat_map(|network| layers.tiers(fabric, network)).collect()
}

/// Capacities and counts by tier, from one pass over nodes and links.
struct Layers {
    switches: Vec<u64>,
    links: Vec<u64>,
    fastest_bps: Vec<f64>,
    /// Capacity in one direction between a tier and what is below it, and between it and what is
    /// above it or beside it in other zones.
    down_bps: Vec<f64>,
    up_bps: Vec<f64>,
    nics: Vec<u64>,
    nic_bps: f64,
    scale_up_switches: u64,
    scale_up_links: u64,
}

impl Layers {
    fn count(fabric: &Fabric) -> Self {
        let tiers = fabric.tiers().len();
        let zeros = vec![0.0; tiers];
        let mut layers = Self {
            switches: vec![0; tiers],
            links: vec![0; tiers],
            fastest_bps: zeros.clone(),
            down_bps: zeros.clone(),
            up_bps: zeros,
            nics: vec![0; tiers],
            nic_bps: 0.0,
            scale_up_switches: 0,
            scale_up_links: 0,
        };
        for switch in fabric.switches() {
            let node = fabric.nodes()[switch];
            match node.kind {
                NodeKind::Switch => layers.switches[usize::from(node.tier)] += 1,
                _ => layers.scale_up_switches += 1,
            }
        }
        for cable in 0..fabric.links().len() / 2 {
            layers.add(fabric, LinkId::from_index(2 * cable));
        }
        for nic in fabric.gpus()..fabric.nodes().len() - fabric.switches().len() {
            let ports = fabric.ports(NodeId::from_index(nic));
            if let Some(&first) = ports.first() {
                let leaf = fabric.nodes()[fabric.links()[first].to];
                if leaf.kind == NodeKind::Switch {
                    layers.nics[usize::from(leaf.tier)] += 1;
                }
            }
        }
        layers
    }

    fn add(&mut self, fabric: &Fabric, link: LinkId) {
        let class = fabric.class(link);
        if class.kind == LinkKind::ScaleUp {
            self.scale_up_links += 1;
            return;
        }
        let ends = [fabric.links()[link].from, fabric.links()[link].to];
        let nodes = ends.map(|end| fabric.nodes()[end]);
        let is_switch = nodes.map(|node| node.kind == NodeKind::Switch);
        let bps = class.rate.as_bps_f64();
        if nodes.iter().any(|node| node.kind == NodeKind::Nic) {
            self.nic_bps += bps;
        }
        let (lower, upper) = match is_switch {
            [true, true] if nodes[0].tier <= nodes[1].tier => (Some(nodes[0]), nodes[1]),
            [true, true] => (Some(nodes[1]), nodes[0]),
            [true, false] => (None, nodes[0]),
            [false, true] => (None, nodes[1]),
            [false, false] => return,
        };
        let top = usize::from(upper.tier);
        self.links[top] += 1;
        self.fastest_bps[top] = self.fastest_bps[top].max(bps);
        match lower {
            Some(lower) if lower.tier == upper.tier => {
                if lower.zone != upper.zone {
                    // One cable carries its rate out of both zones.
                    self.up_bps[top] += 2.0 * bps;
                }
            }
            Some(lower) => {
                self.up_bps[usize::from(lower.tier)] += bps;
                self.down_bps[top] += bps;
            }
            None => {
                self.down_bps[top] += bps;
            }
        }
    }

    fn tiers(&self, fabric: &Fabric, network: &Network) -> Vec<TierSummary> {
        let tiers = usize::from(network.tiers.start)..usize::from(network.tiers.end);
        let summaries = tiers.map(|tier| {
            let built = if self.up_bps[tier] == 0.0 {
                1.0
            } else {
                self.down_bps[tier] / self.up_bps[tier]
            };
            let has_uplinks = 0.0 < self.up_bps[tier];
            let meant = fabric.designed_oversubscription(tier as u8).filter(|_| has_uplinks);
            TierSummary {
                name: fabric.tiers()[tier].name.clone(),
                model: fabric.tiers()[tier].model.clone(),
                switches: self.switches[tier],
                links: self.links[tier],
                rate_bps: self.fastest_bps[tier],
                oversubscription: meant.unwrap_or(built),
                oversubscription_built: built,
            }
        });
        summaries.collect()
    }

    fn network(&self, fabric: &Fabric, network: &Network) -> NetworkSummary {
        let tiers = || usize::from(network.tiers.start)..usize::from(network.tiers.end);
        let summaries = self.tiers(fabric, network);
        let bisection_bps = bisection(fabric, network);
        NetworkSummary {
            nics: tiers().map(|tier| self.nics[tier]).sum(),
            switches: tiers().map(|tier| self.switches[tier]).sum(),
            links: tiers().map(|tier| self.links[tier]).sum(),
            tiers: summaries,
            bisection_bps,
        }
    }

    fn scale_up(&self, fabric: &Fabric) -> ScaleUpSummary {
        let into = |link: &&LinkId| fabric.class(**link).kind == LinkKind::ScaleUp;
        let ports = fabric.ports(fabric.gpu(0)).iter().filter(into);
        ScaleUpSummary {
            domain_gpus: fabric.gpus_per_domain() as u64,
            switches: self.scale_up_switches,
            links: self.scale_up_links,
            rate_bps: ports.map(|link| fabric.class(*link).rate.as_bps_f64()).sum(),
        }
    }
}

/// The bisection of all back-ends, with links as they are in service.
pub(crate) fn bisection_bps(fabric: &Fabric) -> f64 {
    let is_back_end = |network: &&Network| network.kind == NetworkKind::BackEnd;
    let back = fabric.networks().iter().filter(is_back_end);
    back.map(|network| bisection(fabric, network)).sum()
}

fn bisection(fabric: &Fabric, network: &Network) -> f64 {
    match fabric.has_structure() {
        true => usable(fabric, network) / 2.0,
        false => halves(fabric, network),
    }
}

/// Zones of the leaves that NICs hang on, and the GPUs of the largest.
fn zones(fabric: &Fabric) -> (u64, u64) {
    let mut gpus: BTreeMap<u32, u64> = BTreeMap::new();
    let mut nics = vec![0_u64; fabric.nics_per_node()];
    for local in 0..fabric.gpus_per_node() {
        nics[fabric.rail_of(fabric.nic_of(fabric.gpu(local)))] += 1;
    }
    for number in 0..fabric.compute_nics() {
        let nic = fabric.nic(number);
        let Some(&up) = fabric.ports(nic).first() else { continue };
        let leaf = fabric.nodes()[fabric.links()[up].to];
        if leaf.kind == NodeKind::Switch {
            *gpus.entry(leaf.zone).or_default() += nics[number % fabric.nics_per_node()];
        }
    }
    (gpus.len() as u64, gpus.values().copied().max().unwrap_or(0))
}

/// What the NICs of a folded Clos network can send upwards all at once: the sum over pods of the
/// narrowest layer in each, where a leaf gives no more than its NICs can send.
fn usable(fabric: &Fabric, network: &Network) -> f64 {
    let mut by_leaf = vec![0.0; fabric.leaves().len()];
    let mut by_pod: BTreeMap<(u32, u32), Option<f64>> = BTreeMap::new();
    for switch in fabric.switches() {
        let node = fabric.nodes()[switch];
        let Some(cover) = fabric.cover(switch) else { continue };
        if node.kind != NodeKind::Switch || !network.tiers.contains(&node.tier) {
            continue;
        }
        let (down, up) = fabric.ports_down_up(switch);
        let sum = |links: &[LinkId]| -> f64 { links.iter().map(|link| live(fabric, *link)).sum() };
        let up = (!up.is_empty()).then(|| sum(up));
        match cover.level {
            0 => by_leaf[cover.first as usize] = up.map_or(sum(down), |up| sum(down).min(up)),
            1 => {
                let pod = by_pod.entry((cover.first, cover.end)).or_default();
                *pod = up.map(|up| pod.unwrap_or(0.0) + up);
            }
            _ => {}
        }
    }
    let mut total: f64 = by_leaf.iter().sum();
    for ((first, end), up) in by_pod {
        let below: f64 = by_leaf[first as usize..end as usize].iter().sum();
        total -= up.map_or(0.0, |up| (below - up).max(0.0));
    }
    total
}

/// The rate of a link as it is in service.
fn live(fabric: &Fabric, link: LinkId) -> f64 {
    let health = fabric.health();
    if health.is_down(link) { 0.0 } else { health.rate(fabric, link).as_bps_f64() }
}

/// The capacity between two halves of the leaves, by NIC capacity: in their order, or across their
/// zones, whichever is less.
fn halves(fabric: &Fabric, network: &Network) -> f64 {
    let in_order = |node: Node| (node.tier, 0, 0);
    let across = |node: Node| (node.tier, node.index, node.zone);
    cut(fabric, network, in_order).min(cut(fabric, network, across))
}

/// The capacity between the first and the second half of the leaves in an order of the switches.
fn cut(fabric: &Fabric, network: &Network, order: impl Fn(Node) -> (u8, u32, u32)) -> f64 {
    let of = |switch: NodeId| {
        let node = fabric.nodes()[switch];
        node.kind == NodeKind::Switch && network.tiers.contains(&node.tier)
    };
    let live = |link: LinkId| live(fabric, link);
    let mut switches: Vec<NodeId> = fabric.switches().filter(|switch| of(*switch)).collect();
    switches.sort_by_key(|switch| order(fabric.nodes()[*switch]));
    let below = |switch: NodeId| -> f64 {
        let to_nics = |link: &&LinkId| fabric.switch_ordinal(fabric.links()[**link].to).is_none();
        fabric.ports(switch).iter().filter(to_nics).map(|link| live(*link)).sum()
    };
    let all: f64 = switches.iter().map(|switch| below(*switch)).sum();
    // -1 for the first half, 1 for the second, 0 for not yet decided.
    let mut side = vec![0_i8; fabric.switches().len()];
    let at = |node: NodeId| fabric.switch_ordinal(node);
    let mut passed = 0.0;
    for &switch in &switches {
        let own = below(switch);
        if 0.0 < own {
            let ordinal = at(switch).expect("a switch has an ordinal");
            side[ordinal] = if passed + own / 2.0 <= all / 2.0 { -1 } else { 1 };
            passed += own;
        }
    }
    for &switch in &switches {
        let ordinal = at(switch).expect("a switch has an ordinal");
        if side[ordinal] == 0 {
            let pull = |link: &LinkId| {
                let other = at(fabric.links()[*link].to).map_or(0, |other| side[other]);
                f64::from(other) * live(*link)
            };
            let balance: f64 = fabric.ports(switch).iter().map(pull).sum();
            side[ordinal] = if balance <= 0.0 { -1 } else { 1 };
        }
    }
    let mut cut = 0.0;
    for &switch in switches.iter().filter(|switch| side[at(**switch).unwrap_or(0)] == -1) {
        for &link in fabric.ports(switch) {
            if at(fabric.links()[link].to).is_some_and(|other| side[other] == 1) {
                cut += live(link);
            }
        }
    }
    cut.min(all / 2.0)
}

/// The most shortest ways, and the most links of one, over a sample of pairs of NICs.
fn widest(fabric: &Fabric) -> (u64, u32) {
    let mut routes = Routes::of(fabric);
    let nics = fabric.nics();
    let per_node = fabric.nics_per_node();
    // From the first server's NICs: to its neighbours near and far, on the same and other rails.
    let mut targets: Vec<usize> = Vec::new();
    for far in [0, 1, per_node, per_node + 1, nics / 2, nics / 2 + 1] {
        targets.extend([far, (nics - 1).saturating_sub(far)]);
    }
    let step = (nics / 32).max(1);
    targets.extend((0..nics).step_by(step));
    targets.retain(|target| *target < nics);
    targets.sort_unstable();
    targets.dedup();
    let mut widest = (0, 0);
    for from in [0, per_node - 1] {
        for &to in targets.iter().filter(|to| **to != from && from < nics) {
            let (paths, hops) =
                ways(fabric, &mut routes, fabric.nic(from), fabric.nic(to)).unwrap_or((0, 0));
            widest = (paths.max(widest.0), hops.max(widest.1));
        }
    }
    widest
}

/// How many shortest ways lead from one NIC to another, and over how many links; `None` if none.
///
/// Counted over next hops, layer by layer, so that the ways themselves are never listed.
pub fn ways(fabric: &Fabric, routes: &mut Routes, from: NodeId, to: NodeId) -> Option<(u64, u32)> {
    let mut layer: BTreeMap<NodeId, u64> = BTreeMap::from([(from, 1)]);
    let mut out = Vec::new();
    let mut hops = 0;
    while !layer.is_empty() {
        if let Some(&paths) = layer.get(&to) {
            return Some((paths, hops));
        }
        let mut next: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (at, ways) in layer {
            routes.next_hops(fabric, at, to, &mut out);
            for link in &out {
                let count = next.entry(fabric.links()[*link].to).or_default();
                *count = count.saturating_add(ways);
            }
        }
        layer = next;
        hops += 1;
        assert!(hops < 1 << 16, "next hops lead in a circle");
    }
    None
}

#[cfg(test)]
mod tests;
