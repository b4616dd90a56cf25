//! Where a step's connections go: load of every link, and how well flows are told apart.
//!
//! Every queue pair is opened as the engines open it and walked through the fabric by the
//! scenario's routing policy; nothing is run. Policies that spread packets load all uplinks of a
//! leaf alike, so for them only the height of each connection's way is looked up.

use std::collections::BTreeMap;

use fabric::graph::LinkKind;
use fabric::hash::{FlowKey, HashFields, Hasher};
use fabric::routing::queue_pairs::{BYTES_OF_A_QUEUE_PAIR, CONNECT};
use fabric::routing::{Policy, RoutingConfig, Spread, Walker};
use fabric::{Fabric, LinkId, NodeId, NodeKind, Routes};
use flowsim::paths::{Lay, Paths};
use serde::Serialize;
use traffic::queue_pairs::nic_loads;
use traffic::{Connection, Transfers};
use units::{Bytes, Id};

use crate::world::Places;

/// How well flows are told apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Entropy {
    /// Queue pairs between NICs.
    pub flows: u64,
    /// Distinct values that the switches' hash takes over them.
    pub distinct_hashes: u64,
    /// Shannon entropy of the flows over the uplinks of their leaf, over the most there could be:
    /// 1 is even. Mean over leaves, by flows.
    pub normalised: f64,
    /// The share of uplinks, of leaves whose flows go up, that carry no flow.
    pub idle_uplinks: f64,
    /// The share that would be idle by chance, were every flow hashed at random.
    pub idle_expected: f64,
    /// The busiest uplink's bytes over the mean of all.
    pub uplink_imbalance: f64,
    /// Queue pairs of the NIC that has most, for either direction.
    pub most_per_nic: u64,
    /// Memory of its host for their contexts and queues, in bytes.
    pub queue_pair_bytes: u64,
    /// Seconds that it takes to create and connect them, one after the other.
    pub connect_s: f64,
}

/// What lies on the links.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// How well flows are told apart.
    pub(super) entropy: Entropy,
    /// By tier, bottom up: bytes that reach its switches from below.
    pub(super) per_tier: Vec<(String, f64)>,
    /// Connections without a path.
    pub(super) unreachable: u64,
    /// The most bytes that one scale-out link carries.
    pub(super) max_link_bytes: f64,
}

/// A scale-out link's flows and bytes.
#[derive(Clone, Copy, Default)]
struct OnLink {
    flows: f64,
    bytes: f64,
}

/// Lays connections with these bytes on the fabric.
pub(super) fn load(
    fabric: &Fabric,
    places: &Places,
    connections: &[(Connection, f64)],
    routing: &RoutingConfig,
    seed: u64,
) -> Load {
    let mut load = laid(fabric, places, connections, routing, seed);
    let mut transfers = Transfers::new();
    connections.iter().for_each(|(one, _)| {
        transfers.connect(*one);
    });
    let nics = nic_loads(fabric, &transfers, routing, Bytes::from_kib(4));
    let most = nics.iter().map(|nic| nic.contexts).max().unwrap_or(0);
    load.entropy.most_per_nic = most;
    load.entropy.queue_pair_bytes = most * BYTES_OF_A_QUEUE_PAIR;
    load.entropy.connect_s = most as f64 * CONNECT.as_secs_f64();
    load
}

fn laid(
    fabric: &Fabric,
    places: &Places,
    connections: &[(Connection, f64)],
    routing: &RoutingConfig,
    seed: u64,
) -> Load {
    if routing.build(fabric, seed).spread(Bytes::MAX) != Spread::One {
        return spread(fabric, places, connections, routing);
    }
    let mut transfers = Transfers::new();
    let ids: Vec<_> = connections.iter().map(|(one, _)| transfers.connect(*one)).collect();
    let mut paths = Paths::new(fabric, &transfers, routing, fabric.health().clone(), seed);
    let mut links = vec![OnLink::default(); fabric.links().len()];
    let (mut lay, mut flows, mut unreachable) = (Lay::default(), 0, 0);
    for (id, (connection, bytes)) in ids.iter().zip(connections) {
        if paths.lay_all(*id, connection, Bytes::from_mib(1), &mut lay).is_err() {
            unreachable += 1;
            continue;
        }
        let queue_pairs = paths.queue_pairs(*id) as f64;
        flows += paths.queue_pairs(*id) as u64;
        for (link, share) in &lay.entries {
            let on = &mut links[*link as usize];
            on.flows += share * queue_pairs;
            on.bytes += share * bytes;
        }
    }
    let hasher = Hasher {
        fields: match routing.policy {
            Policy::EEcmp => HashFields::FiveTupleQpn,
            _ => routing.hash,
        },
        function: routing.function,
    };
    let mut hashes: Vec<u32> = paths.known().map(|(_, key, _)| hasher.hash(key, 0)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let distinct_hashes = hashes.len() as u64;
    let entropy = Entropy { flows, distinct_hashes, ..over_uplinks(fabric, &links) };
    let scale_out = |link: &LinkId| fabric.class(*link).kind == LinkKind::ScaleOut;
    let carried = fabric.links().ids().filter(scale_out).map(|link| links[link.index()].bytes);
    let max_link_bytes = carried.fold(0.0, f64::max);
    Load { entropy, per_tier: per_tier(fabric, &links), unreachable, max_link_bytes }
}

/// Where flows that were seen on a wire go: what lies on the uplinks of leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hashed {
    /// How well they are told apart.
    pub(crate) entropy: Entropy,
    /// Uplinks that carry something, the busiest first: flows and bytes.
    pub(crate) uplinks: Vec<(LinkId, u64, f64)>,
    /// Flows without a path.
    pub(crate) unreachable: u64,
}

/// Walks flows with their own headers through the fabric; none where packets are spread.
pub(crate) fn hashed(
    fabric: &Fabric,
    flows: &[(FlowKey, f64)],
    routing: &RoutingConfig,
    seed: u64,
) -> Option<Hashed> {
    let mut policy = routing.build(fabric, seed);
    if policy.spread(Bytes::MAX) != Spread::One {
        return None;
    }
    let (mut routes, mut walker) = (Routes::of(fabric), Walker::default());
    let mut links = vec![OnLink::default(); fabric.links().len()];
    let mut hashed = Hashed::default();
    for (key, bytes) in flows {
        match walker.path(fabric, &mut routes, policy.as_mut(), key, 0) {
            Ok(path) => path.iter().for_each(|link| {
                let on = &mut links[link.index()];
                (on.flows, on.bytes) = (on.flows + 1.0, on.bytes + bytes);
            }),
            Err(_) => hashed.unreachable += 1,
        }
    }
    let flows = flows.len() as u64;
    hashed.entropy = Entropy { flows, ..over_uplinks(fabric, &links) };
    let used = fabric.links().ids().filter(|link| is_uplink(fabric, *link));
    let used = used.map(|link| (link, links[link.index()].flows as u64, links[link.index()].bytes));
    hashed.uplinks = used.filter(|(_, flows, _)| 0 < *flows).collect();
    hashed.uplinks.sort_by(|a, b| b.2.total_cmp(&a.2));
    Some(hashed)
}

/// The same where every packet may take any way: uplinks of a leaf carry equal shares.
fn spread(
    fabric: &Fabric,
    places: &Places,
    connections: &[(Connection, f64)],
    routing: &RoutingConfig,
) -> Load {
    let mut climbs = Climbs::new(fabric, places);
    let mut leaves: BTreeMap<NodeId, f64> = BTreeMap::new();
    for (connection, bytes) in connections {
        let tiers = climbs.add((connection.from, connection.to), *bytes);
        if let Some((from, _)) = places.get(connection.from).filter(|_| 1 < tiers.unwrap_or(0)) {
            *leaves.entry(from).or_default() += bytes;
        }
    }
    let uplinks = |leaf: &NodeId| fabric.ports_down_up(*leaf).1.len().max(1) as f64;
    let all: f64 = leaves.values().sum();
    let count: f64 = leaves.keys().map(uplinks).sum();
    let most = leaves.iter().map(|(leaf, bytes)| bytes / uplinks(leaf)).fold(0.0, f64::max);
    let max_link_bytes = ends(connections).into_values().fold(most, f64::max);
    let queue_pairs = |one: &Connection| match one.queue_pairs {
        0 => u64::from(routing.qps),
        own => u64::from(own),
    };
    Load {
        entropy: Entropy {
            flows: connections.iter().map(|(one, _)| queue_pairs(one)).sum(),
            distinct_hashes: pairs(connections),
            normalised: if leaves.is_empty() { 0.0 } else { 1.0 },
            idle_uplinks: 0.0,
            idle_expected: 0.0,
            uplink_imbalance: if all > 0.0 { most * count / all } else { 0.0 },
            ..Entropy::default()
        },
        per_tier: climbs.per_tier(),
        unreachable: climbs.unreachable,
        max_link_bytes,
    }
}

/// What each NIC sends, and what each receives.
fn ends(connections: &[(Connection, f64)]) -> BTreeMap<(NodeId, bool), f64> {
    let mut ends: BTreeMap<(NodeId, bool), f64> = BTreeMap::new();
    for (one, bytes) in connections {
        *ends.entry((one.from, true)).or_default() += bytes;
        *ends.entry((one.to, false)).or_default() += bytes;
    }
    ends
}

/// The most NICs that send to one.
pub(super) fn fan_in(connections: &[(Connection, f64)]) -> u64 {
    let mut pairs: Vec<(NodeId, NodeId)> =
        connections.iter().map(|(one, _)| (one.to, one.from)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let runs = pairs.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len);
    runs.max().unwrap_or(0) as u64
}

/// The tiers that connections climb through on a shortest way, whatever the policy.
pub(crate) struct Climbs<'a> {
    fabric: &'a Fabric,
    places: &'a Places,
    routes: Routes,
    /// By the leaf that is left: what is looked up for each connection stays small.
    ways: BTreeMap<NodeId, BTreeMap<NodeId, Option<Way>>>,
    /// By tier.
    bytes: Vec<f64>,
    /// Bytes times the cables between switches that they go over.
    pub(crate) hop_bytes: f64,
    /// Connections without a way.
    pub(crate) unreachable: u64,
}

/// A shortest way between two leaves.
struct Way {
    /// The tiers that it climbs through, bottom up.
    tiers: Vec<u8>,
    /// Cables between switches.
    cables: u32,
}

impl<'a> Climbs<'a> {
    pub(crate) fn new(fabric: &'a Fabric, places: &'a Places) -> Self {
        let (ways, bytes) = (BTreeMap::new(), vec![0.0; fabric.tiers().len()]);
        let routes = Routes::of(fabric);
        Self { fabric, places, routes, ways, bytes, hop_bytes: 0.0, unreachable: 0 }
    }

    /// Adds what goes from one NIC to another. How many tiers it climbs through comes back.
    pub(crate) fn add(&mut self, (src, dst): (NodeId, NodeId), bytes: f64) -> Option<usize> {
        let [Some((from, _)), Some((to, _))] = [src, dst].map(|end| self.places.get(end)) else {
            self.unreachable += 1;
            return None;
        };
        let Self { fabric, routes, ways, .. } = self;
        let way = ways.entry(from).or_default().entry(to);
        let way = way.or_insert_with(|| way_between(fabric, routes, src, dst));
        let Some(way) = way else {
            self.unreachable += 1;
            return None;
        };
        for tier in &way.tiers {
            self.bytes[usize::from(*tier)] += bytes;
        }
        self.hop_bytes += f64::from(way.cables) * bytes;
        Some(way.tiers.len())
    }

    /// Bytes that reach each tier's switches from below, bottom up, where there are any.
    pub(crate) fn per_tier(&self) -> Vec<(String, f64)> {
        let tiers = self.fabric.tiers().iter().zip(&self.bytes);
        let used = tiers.filter(|(_, bytes)| 0.0 < **bytes);
        used.map(|(tier, bytes)| (tier.name.clone(), *bytes)).collect()
    }
}

/// The first of the shortest ways.
fn way_between(fabric: &Fabric, routes: &mut Routes, from: NodeId, to: NodeId) -> Option<Way> {
    let (mut at, mut hops) = (from, Vec::new());
    let mut way = Way { tiers: Vec::new(), cables: 0 };
    while at != to {
        routes.next_hops(fabric, at, to, &mut hops);
        let next = fabric.links()[*hops.first()?].to;
        let (here, there) = (fabric.nodes()[at], fabric.nodes()[next]);
        let up = here.kind == NodeKind::Nic || here.tier < there.tier;
        if there.kind == NodeKind::Switch && up {
            way.tiers.push(there.tier);
        }
        way.cables += u32::from(here.kind == NodeKind::Switch && there.kind == NodeKind::Switch);
        at = next;
    }
    Some(way)
}

fn pairs(connections: &[(Connection, f64)]) -> u64 {
    let mut pairs: Vec<(NodeId, NodeId)> =
        connections.iter().map(|(one, _)| (one.from, one.to)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.len() as u64
}

/// Whether a link leads from a leaf further up.
fn is_uplink(fabric: &Fabric, link: LinkId) -> bool {
    let ends = fabric.links()[link];
    fabric.leaf_ordinal(ends.from).is_some()
        && fabric.nodes()[ends.to].kind == NodeKind::Switch
        && fabric.class(link).kind == LinkKind::ScaleOut
}

fn over_uplinks(fabric: &Fabric, links: &[OnLink]) -> Entropy {
    let mut leaves: BTreeMap<NodeId, Vec<OnLink>> = BTreeMap::new();
    for link in fabric.links().ids().filter(|link| is_uplink(fabric, *link)) {
        leaves.entry(fabric.links()[link].from).or_default().push(links[link.index()]);
    }
    let (mut weighted, mut flows, mut idle, mut chance, mut uplinks) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut most, mut bytes) = (0.0_f64, 0.0);
    for leaf in leaves.values() {
        let all: f64 = leaf.iter().map(|on| on.flows).sum();
        let count = leaf.len() as f64;
        if all <= 0.0 || count < 2.0 {
            continue;
        }
        let shares = leaf.iter().map(|on| on.flows / all).filter(|share| 0.0 < *share);
        let bits: f64 = shares.map(|share| -share * share.log2()).sum();
        // Fewer flows than uplinks cannot be told apart better than by as many.
        weighted += all * bits / count.min(all).max(2.0).log2();
        flows += all;
        uplinks += count;
        idle += leaf.iter().filter(|on| on.flows <= 0.0).count() as f64;
        chance += count * (1.0 - 1.0 / count).powf(all);
        most = leaf.iter().map(|on| on.bytes).fold(most, f64::max);
        bytes += leaf.iter().map(|on| on.bytes).sum::<f64>();
    }
    if flows == 0.0 {
        return Entropy::default();
    }
    Entropy {
        normalised: (weighted / flows).min(1.0),
        idle_uplinks: idle / uplinks,
        idle_expected: chance / uplinks,
        uplink_imbalance: if bytes > 0.0 { most / (bytes / uplinks) } else { 0.0 },
        ..Entropy::default()
    }
}

/// Bytes that reach the switches of each tier from below.
fn per_tier(fabric: &Fabric, links: &[OnLink]) -> Vec<(String, f64)> {
    let mut tiers: BTreeMap<u8, f64> = BTreeMap::new();
    for link in fabric.links().ids() {
        let ends = fabric.links()[link];
        let (from, to) = (fabric.nodes()[ends.from], fabric.nodes()[ends.to]);
        let up = from.kind == NodeKind::Nic || from.tier < to.tier;
        if to.kind == NodeKind::Switch && up && fabric.class(link).kind != LinkKind::FrontEnd {
            *tiers.entry(to.tier).or_default() += links[link.index()].bytes;
        }
    }
    let name = |(tier, bytes): (u8, f64)| (fabric.tiers()[usize::from(tier)].name.clone(), bytes);
    tiers.into_iter().map(name).collect()
}
