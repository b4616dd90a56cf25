//! SHARP: reduction in the scale-out switches (CollNet), for all-reduce; and where the plug-in can,
//! one half of it each for reduce-scatter and all-gather.
//!
//! Inside a domain each head collects 1/h of the data, by NVLS where the switch reduces, else each
//! rank sends its part to each head. The head's NIC sends that sum up an aggregation tree of
//! switches once; every switch adds up what comes from below and sends one copy on; the root's sum
//! comes down once to every NIC and is handed out in the domain. So a NIC sends 1/h of the data and
//! receives 1/h, where a ring makes it send 2(n−1)/n of that: a factor of at most 2, and no switch
//! link carries more than one copy in each direction.
//!
//! The tree of a rail is found greedily from the leaves of its NICs upwards: leaves choose a
//! parent that they share, those again, until one switch is left. Different rails begin their
//! search at different parents.
//!
//! Source: Graham et al., "Scalable hierarchical aggregation protocol" (2016); NCCL
//! `src/graph/tuning.cc` (CollNet and NVLS with CollNet).
//!
//! A switch takes part in a limited number of trees and holds a limited number of sums for each
//! ([`Aggregation`]). Where a tree would need a switch that has none left, the whole collective
//! falls back to the best algorithm of the hosts, as NCCL does when CollNet cannot be set up. A
//! sum that is not finished holds its buffer in every switch below; the next one waits.
//!
//! # Where this model departs from its sources
//!
//! * Sums are made of chunks of [`Aggregation::chunk`], not of single packets: a switch begins to
//!   send a sum on when the last child's chunk is there.
//! * Edges are reliable connections of their own, as in the protocol; results come down over them
//!   too, not by the fabric's multicast.

use std::collections::{BTreeMap, VecDeque};

use fabric::{Fabric, NodeId, NodeKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Id, Span};

use super::nvls::{self, HeadEdges};
use super::ring::{chunks, loops};
use super::writer::{Detail, Flow, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::route::{Ways, beyond_constants_s};
use crate::nccl::{Architecture, Family, Offer, Plan, Plugin, Protocol, Usage, Version, constants};
use crate::transfers::{ConnectionId, OpId};

/// What switches that reduce can do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Aggregation {
    /// Trees that one switch can take part in: 1 on Quantum (HDR), as many as ports on Quantum-2.
    pub trees: u32,
    /// Trees that can share a port between two switches.
    pub trees_per_port: u32,
    /// Sums that a switch can hold at a time for each tree.
    pub buffers: u32,
    /// The most that one sum is of.
    pub chunk: Bytes,
    /// Whether the library's plug-in for these switches also gathers and scatters (`iallgather`
    /// and `ireducescatter` of NCCL's CollNet interface; NCCL 2.27 and later use them).
    pub gathers: Usage,
}

impl Default for Aggregation {
    fn default() -> Self {
        // NVIDIA, "SHARP Rev 3.13.0, General Information" (docs.nvidia.com/networking): streaming
        // aggregation is limited to one active tree per switch on Quantum, to one per port on
        // Quantum-2, which has 64. A sum of low latency is of at most 2 KiB on Quantum ("SHARP
        // v2.6.1, Collective Library": payload per outstanding transaction); how many streaming
        // sums a switch holds is not published. Four of 32 KiB are illustrative: more than a round
        // trip of three tiers at 400 Gb/s.
        Self {
            trees: 64,
            trees_per_port: 1,
            buffers: 4,
            chunk: Bytes::from_kib(32),
            gathers: Usage::Disabled,
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Sharp;

impl Algorithm for Sharp {
    fn name(&self) -> &'static str {
        "sharp"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let shape = ask.shape();
        // No plug-in but NCCL's own has the calls.
        let enabled = ask.settings.sharp == Usage::Enabled
            && ask.settings.plugin() == Plugin::Internal
            && 1 < shape.domains;
        let serves = match ask.collective {
            Collective::AllReduce => true,
            // Every GPU must have a NIC, and the plug-in the calls.
            Collective::AllGather | Collective::ReduceScatter => {
                ask.settings.aggregation.gathers == Usage::Enabled
                    && Version::V2_27 <= ask.settings.version
                    && shape.per_domain <= shape.rails
            }
            _ => false,
        };
        enabled && serves && shape.is_uniform() && has_room(ask)
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        if protocol != Protocol::Simple {
            return None;
        }
        let (shape, settings) = (ask.shape(), ask.settings);
        let rails = constants::rails_bandwidth(settings, shape)?;
        let latency_us = latency_us(ask, settings.declared_us(protocol));
        let halves = ask.collective != Collective::AllReduce;
        let bandwidth = match nvls::is_available(ask) {
            // Up to 2.27 NCCL left a tenth of the network.
            true if halves && settings.version < Version::V2_28 => {
                nvls::inside_bus_bandwidth(ask)?.min(0.9 * rails)
            }
            false if halves => {
                let links = constants::scale_up_bandwidth(settings, shape).unwrap_or(rails);
                links.min(0.9 * rails)
            }
            true => nvls::inside_bus_bandwidth(ask)?.min(rails) * nvls::ratio(ask),
            // All GPUs should have a NIC of their own, else half of what is missing is lost.
            false => {
                let sharing = f64::from(shape.per_domain) / f64::from(shape.rails.max(1));
                let links = constants::scale_up_bandwidth(settings, shape).unwrap_or(rails);
                0.5 * links / (0.5 * (sharing + 1.0)) * direct_share(settings.architecture)
            }
        };
        Some(Offer { bandwidth, latency_us })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        constants::nvls_channels(ask.settings, ask.shape())
    }

    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, channels: u32) -> Bytes {
        nvls::Nvls.chunk(ask, protocol, channels)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let shape = ask.shape();
        let heads = f64::from(shape.per_domain);
        let sharing = heads / f64::from(shape.rails);
        let (scale_up, efficiency) = match (shape.per_domain, nvls::is_available(ask)) {
            (1, _) => (0.0, 1.0),
            (_, true) => (nvls::inside_bytes(ask), nvls::efficiency(ask)),
            // To each head but oneself, and back.
            (_, false) => {
                let twice = if ask.collective == Collective::AllReduce { 2.0 } else { 1.0 };
                let all = ask.bytes.as_f64() * twice * (heads - 1.0) / heads;
                (all, direct_share(ask.settings.architecture))
            }
        };
        let mesh_link = match shape.mesh_link_rate {
            Some(_) if ask.collective == Collective::AllReduce => 2.0 * ask.bytes.as_f64() / heads,
            Some(_) => ask.bytes.as_f64() / heads,
            None => 0.0,
        };
        vec![Phase {
            scale_up,
            mesh_link,
            nic: ask.bytes.as_f64() / heads * sharing,
            efficiency,
            latency_s: 1e-6 * latency_us(ask, ask.settings.crossing_us(Protocol::Simple))
                + ways_s(ask),
            messages: chunks(
                ask.bytes.get() / u64::from(shape.per_domain),
                ask.settings.aggregation.chunk.get(),
            ),
            // A buffer is free again when its sum has gone up and come down.
            slots: f64::from(ask.settings.aggregation.buffers.max(1)),
            answer: 0.5,
            drain_s: match shape.per_domain {
                1 => 0.0,
                _ => nvls::fill_s(ask, plan, scale_up),
            },
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let (domains, members) = (f64::from(ask.shape().domains), ask.shape().per_domain);
        let halves = ask.collective != Collective::AllReduce;
        // One half of it runs part by part of the domains.
        let parts = if halves { ask.shape().domains } else { 1 };
        let trees = members * lanes(ask) as u32;
        let each = ask.bytes.get() / u64::from(trees) / u64::from(parts);
        let most = nvls::most(plan);
        let sums = chunks(each, most.min(ask.settings.aggregation.chunk.get()));
        let tree = tree(ask, 0).unwrap_or_default();
        let edges = tree.len() as f64;
        // Domains and roots join what arrives.
        let (within, through) = match halves {
            false => (inside_edges(ask) as f64, 2.0 * edges + 1.0),
            true => {
                let first =
                    TreeEdges { first: ConnectionId::from_index(0), offset: 0, tree: &tree };
                (inside_edges(ask) as f64 / 2.0, edges + first.path(0).len() as f64 + 1.0)
            }
        };
        let inside = domains * (within + 1.0) * chunks(each, most);
        f64::from(trees * parts) * (inside + through * sums)
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let members = ask.shape().per_domain as usize;
        let lanes = lanes(ask);
        let mut at = 0;
        let trees: Vec<Vec<Edge>> =
            (0..members * lanes).map(|rail| tree(ask, rail).unwrap_or_default()).collect();
        let first = sheet.open("sharp", 1, |opening| {
            for (rail, tree) in trees.iter().enumerate() {
                let head = rail / lanes;
                for domain in 0..ask.communicator.domains() {
                    let ranks = ask.communicator.members(domain).iter();
                    let gpus: Vec<NodeId> = ranks.map(|&rank| ask.communicator.gpu(rank)).collect();
                    let channel = rail as u32;
                    match nvls::is_available(ask) && 1 < members {
                        true => nvls::open_head(ask.fabric, &gpus, head, channel, opening),
                        false => {
                            for &gpu in gpus.iter().filter(|&&gpu| gpu != gpus[head]) {
                                opening.connect(gpu, gpus[head], channel);
                                opening.connect(gpus[head], gpu, channel);
                            }
                        }
                    }
                }
                for &Edge { below, above, .. } in tree {
                    opening.connect(below, above, rail as u32);
                    opening.connect(above, below, rail as u32);
                }
            }
        });
        for (rail, tree) in trees.iter().enumerate() {
            let bytes = part(ask.bytes.get(), (members * lanes) as u64, rail as u64);
            let own = HeadOnSheet { first: nth(first, at), members, tree, ask };
            let (start, count) = (sheet.start, own.count());
            match sheet.detail {
                Detail::Folded => own.fold(plan, bytes, start, sheet),
                Detail::Stepwise => own.step(plan, bytes, sheet),
            }
            at += count;
        }
    }
}

/// What NCCL expects CollNetDirect to leave of the links' rate (`tuning.cc`).
fn direct_share(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Hopper | Architecture::Blackwell => 0.85,
        Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3 => 1.0,
    }
}

/// NCCL `tuning.cc`: NVLS with CollNet, or CollNetDirect with 0.4 µs for each further peer.
/// `beyond` is added to the hand-over between servers.
fn latency_us(ask: &Ask<'_>, beyond: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let family = if nvls::is_available(ask) { Family::Nvls } else { Family::CollNetDirect };
    let inside = constants::hop_latency_us(settings, shape, family, Protocol::Simple);
    let between = constants::net_latency_us(settings, shape, family, Protocol::Simple) + beyond;
    let peers = f64::from(shape.per_domain - 1);
    match family {
        Family::Nvls => inside + between,
        _ => 2.0 * (peers.min(1.0) * inside + peers * 0.4) + between,
    }
}

/// What the ways up and down an aggregation tree add: NCCL counts them once.
fn ways_s(ask: &Ask<'_>) -> f64 {
    let family = if nvls::is_available(ask) { Family::Nvls } else { Family::CollNetDirect };
    tree_ways_s(ask, family)
}

/// The same for any algorithm that counts the network once.
pub(super) fn tree_ways_s(ask: &Ask<'_>, family: Family) -> f64 {
    let constant = constants::net_latency_us(ask.settings, ask.shape(), family, Protocol::Simple);
    let mut ways = Ways::of(ask);
    // Of the way up to each node, the longest; nodes come after all that are below them.
    let mut up: BTreeMap<NodeId, Span> = BTreeMap::new();
    let mut longest = Span::ZERO;
    for Edge { below, above, .. } in tree(ask, 0).unwrap_or_default() {
        let before = up.get(&below).copied().unwrap_or(Span::ZERO);
        let both = ways.between(below, above) + ways.between(above, below);
        let way = up.entry(above).or_default();
        *way = (*way).max(before + both);
        longest = longest.max(*way);
    }
    beyond_constants_s(longest.as_secs_f64(), 1.0, constant)
}

/// A link of an aggregation tree. Those of one node lie together, lower nodes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Edge {
    /// Nearer to the NICs.
    pub below: NodeId,
    /// Nearer to the root.
    pub above: NodeId,
    /// The domain whose NIC is below, where it is one.
    domain: Option<u32>,
}

/// NICs of a head, each with a tree of its own.
pub(super) fn lanes(ask: &Ask<'_>) -> usize {
    (ask.shape().rails / ask.shape().per_domain.max(1)).max(1) as usize
}

/// The aggregation tree of a rail: of one head, or of one of its NICs where it has several, those
/// of a head together. `None` if no switch is above all of its NICs.
pub fn tree(ask: &Ask<'_>, rail: usize) -> Option<Vec<Edge>> {
    let Ask { fabric, communicator, .. } = *ask;
    let mut edges = Vec::new();
    let mut level: Vec<NodeId> = Vec::new();
    for domain in 0..communicator.domains() {
        let rank = *communicator.members(domain).get(rail / lanes(ask))?;
        let nic = fabric.nics_of(communicator.gpu(rank)).nth(rail % lanes(ask))?;
        let leaf = fabric.links()[*fabric.ports(nic).first()?].to;
        edges.push(Edge { below: nic, above: leaf, domain: Some(domain as u32) });
        level.push(leaf);
    }
    level.sort_unstable();
    level.dedup();
    while 1 < level.len() {
        let above = parents(fabric, &level, rail)?;
        let mut next: Vec<NodeId> = above.values().copied().collect();
        edges.extend(above.into_iter().map(|(below, above)| Edge { below, above, domain: None }));
        next.sort_unstable();
        next.dedup();
        if level.len() <= next.len() {
            return None;
        }
        level = next;
    }
    Some(edges)
}

/// Whether every head has a tree, and every switch room for those that need it.
pub(super) fn has_room(ask: &Ask<'_>) -> bool {
    let fabric = ask.fabric;
    let mut taken: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut crossed: BTreeMap<(NodeId, NodeId), u32> = BTreeMap::new();
    for rail in 0..ask.shape().per_domain as usize * lanes(ask) {
        let Some(edges) = tree(ask, rail) else { return false };
        let mut switches: Vec<NodeId> = edges.iter().map(|edge| edge.above).collect();
        switches.sort_unstable();
        switches.dedup();
        for switch in switches {
            *taken.entry(switch).or_default() += 1;
        }
        // Heads that share a NIC share its port: there, one tree serves them all.
        for edge in edges.iter().filter(|edge| edge.domain.is_none()) {
            *crossed.entry((edge.below, edge.above)).or_default() += 1;
        }
    }
    let Aggregation { trees, trees_per_port, .. } = ask.settings.aggregation;
    let ports = |&(below, above): &(NodeId, NodeId)| {
        fabric.ports(below).iter().filter(|link| fabric.links()[**link].to == above).count() as u32
    };
    taken.values().all(|taken| *taken <= trees)
        && crossed.iter().all(|(ends, crossed)| *crossed <= trees_per_port * ports(ends))
}

/// A parent for each switch, shared by as many as can share it.
fn parents(fabric: &Fabric, level: &[NodeId], head: usize) -> Option<BTreeMap<NodeId, NodeId>> {
    let above = |at: NodeId| {
        let (_, up) = fabric.ports_down_up(at);
        let ends = up.iter().map(|&link| fabric.links()[link].to);
        ends.filter(|&to| fabric.nodes()[to].kind == NodeKind::Switch)
    };
    let mut chosen = BTreeMap::new();
    for &switch in level {
        if chosen.contains_key(&switch) {
            continue;
        }
        let mut candidates: Vec<NodeId> = above(switch).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let parent = *candidates.get(head % candidates.len().max(1))?;
        for &other in level {
            if !chosen.contains_key(&other) && above(other).any(|to| to == parent) {
                chosen.insert(other, parent);
            }
        }
    }
    Some(chosen)
}

/// The sums that switches hold: what has emptied the buffers of the last ones, by switch.
pub(super) struct Buffers {
    count: usize,
    freed: VecDeque<BTreeMap<NodeId, OpId>>,
}

impl Buffers {
    /// All of them empty.
    pub(super) fn of(aggregation: &Aggregation) -> Self {
        Self { count: aggregation.buffers.max(1) as usize, freed: VecDeque::new() }
    }

    /// What the next sum must wait for in each switch.
    fn oldest(&mut self) -> BTreeMap<NodeId, OpId> {
        if self.freed.len() < self.count {
            return BTreeMap::new();
        }
        self.freed.pop_front().unwrap_or_default()
    }
}

/// The connections of an aggregation tree, two for each edge, from the one `offset` places after
/// `first` on.
pub(super) struct TreeEdges<'a> {
    pub(super) first: ConnectionId,
    pub(super) offset: usize,
    pub(super) tree: &'a [Edge],
}

impl TreeEdges<'_> {
    /// Which connection goes up or down an edge.
    fn at(&self, edge: usize, direction: Direction) -> usize {
        self.offset + 2 * edge + usize::from(direction == Direction::Down)
    }

    /// The edges between the NIC of a domain and the root, from below.
    fn path(&self, domain: usize) -> Vec<usize> {
        let begins = |edge: &Edge| edge.domain == Some(domain as u32);
        let mut path: Vec<usize> = self.tree.iter().position(begins).into_iter().collect();
        while let Some(next) = path.last().and_then(|&at| {
            let above = self.tree[at].above;
            self.tree.iter().position(|edge| edge.below == above)
        }) {
            path.push(next);
        }
        path
    }

    /// One sum up the tree and down again; notes its arrival in every domain.
    pub(super) fn aggregate(
        &self,
        flow: &mut Flow,
        buffers: &mut Buffers,
        bytes: u64,
        collected: &[Vec<OpId>],
        handed: &mut [Vec<OpId>],
        sheet: &mut Sheet<'_>,
    ) {
        let sum = self.reduce(flow, buffers, bytes, collected, sheet);
        self.multicast(flow, bytes, sum, handed, sheet);
    }

    /// One sum up the tree; what makes it complete at the root.
    fn reduce(
        &self,
        flow: &mut Flow,
        buffers: &mut Buffers,
        bytes: u64,
        collected: &[Vec<OpId>],
        sheet: &mut Sheet<'_>,
    ) -> Vec<OpId> {
        let oldest = buffers.oldest();
        let mut freed = BTreeMap::new();
        // What has arrived at each node from below.
        let mut arrived: BTreeMap<NodeId, Vec<OpId>> = BTreeMap::new();
        for (edge, ends) in self.tree.iter().enumerate() {
            let mut after = match ends.domain {
                Some(domain) => collected[domain as usize].clone(),
                None => arrived.remove(&ends.below).unwrap_or_default(),
            };
            after.extend(oldest.get(&ends.above));
            let at = self.at(edge, Direction::Up);
            let op = flow.send(sheet, at, &[nth(self.first, at)], bytes, &after);
            arrived.entry(ends.above).or_default().push(op);
            if ends.domain.is_none() {
                freed.insert(ends.below, op);
            }
        }
        // Only the root is left, and it has the sum.
        let mut sums = Vec::new();
        for (root, parts) in &arrived {
            let sum = sheet.join(parts);
            freed.insert(*root, sum);
            sums.push(sum);
        }
        buffers.freed.push_back(freed);
        sums
    }

    /// What the root has down to every domain.
    fn multicast(
        &self,
        flow: &mut Flow,
        bytes: u64,
        sum: Vec<OpId>,
        handed: &mut [Vec<OpId>],
        sheet: &mut Sheet<'_>,
    ) {
        let mut arrived: BTreeMap<NodeId, Vec<OpId>> = BTreeMap::new();
        for (edge, ends) in self.tree.iter().enumerate().rev() {
            let after = arrived.get(&ends.above).unwrap_or(&sum).clone();
            let at = self.at(edge, Direction::Down);
            let op = flow.send(sheet, at, &[nth(self.first, at)], bytes, &after);
            match ends.domain {
                Some(domain) => handed[domain as usize].push(op),
                None => drop(arrived.insert(ends.below, vec![op])),
            }
        }
    }

    /// Along the path of one domain, up to the root or down from it; when it is there.
    fn along(
        &self,
        flow: &mut Flow,
        (domain, direction): (usize, Direction),
        bytes: u64,
        after: Vec<OpId>,
        sheet: &mut Sheet<'_>,
    ) -> Vec<OpId> {
        let mut path = self.path(domain);
        if direction == Direction::Down {
            path.reverse();
        }
        let mut last = after;
        for edge in path {
            let at = self.at(edge, direction);
            last = vec![flow.send(sheet, at, &[nth(self.first, at)], bytes, &last)];
        }
        last
    }
}

/// Towards the root of a tree, or away from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Direction {
    Up,
    Down,
}

/// Connections of one head inside one domain.
fn inside_edges(ask: &Ask<'_>) -> usize {
    match (ask.shape().per_domain as usize, nvls::is_available(ask)) {
        (1, _) => 0,
        (members, true) => nvls::per_head(members),
        (members, false) => 2 * (members - 1),
    }
}

/// One head's connections.
struct HeadOnSheet<'a> {
    first: ConnectionId,
    members: usize,
    tree: &'a [Edge],
    ask: &'a Ask<'a>,
}

impl HeadOnSheet<'_> {
    fn count(&self) -> usize {
        self.ask.communicator.domains() * inside_edges(self.ask) + 2 * self.tree.len()
    }

    fn tree(&self) -> TreeEdges<'_> {
        let offset = self.ask.communicator.domains() * inside_edges(self.ask);
        TreeEdges { first: self.first, offset, tree: self.tree }
    }

    /// All of the tree and the servers at once; of what one half of an all-reduce leaves out, each
    /// domain's part goes up or down the tree alone.
    fn fold(&self, plan: &Plan, bytes: u64, start: OpId, sheet: &mut Sheet<'_>) {
        let domains = self.ask.communicator.domains();
        let tree = self.tree();
        let (whole, alone) = match self.ask.collective {
            Collective::AllGather => (vec![Direction::Down], Some(Direction::Up)),
            Collective::ReduceScatter => (vec![Direction::Up], Some(Direction::Down)),
            _ => (vec![Direction::Up, Direction::Down], None),
        };
        sheet.edges.clear();
        for domain in 0..domains {
            let begins = domain * inside_edges(self.ask);
            match (self.members, nvls::is_available(self.ask)) {
                (1, _) => {}
                (members, true) => {
                    let edges = HeadEdges::new(nth(self.first, begins), members);
                    sheet.edges.extend(edges.used(self.ask.collective));
                }
                (members, false) => {
                    for at in 0..members - 1 {
                        for direction in &whole {
                            let down = usize::from(*direction == Direction::Down);
                            sheet.edges.push(nth(self.first, begins + 2 * at + down));
                        }
                    }
                }
            }
        }
        for edge in 0..self.tree.len() {
            for direction in &whole {
                sheet.edges.push(nth(self.first, tree.at(edge, *direction)));
            }
        }
        let op = sheet.couple(bytes, plan.fill(), &[start]);
        sheet.end(op);
        let Some(direction) = alone else { return };
        for domain in 0..domains {
            sheet.edges.clear();
            let path = tree.path(domain).into_iter().map(|edge| tree.at(edge, direction));
            sheet.edges.extend(path.map(|at| nth(self.first, at)));
            let own = part(bytes, domains as u64, domain as u64);
            let op = sheet.couple(own, plan.fill(), &[start]);
            sheet.end(op);
        }
    }

    fn step(&self, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        if self.ask.collective != Collective::AllReduce {
            return self.step_half(plan, bytes, sheet);
        }
        let aggregation = self.ask.settings.aggregation;
        let mut flow = Flow::new(self.count(), sheet.start);
        let mut buffers = Buffers::of(&aggregation);
        let domains = self.ask.communicator.domains();
        let tree = self.tree();
        for bytes in loops(bytes, nvls::most(plan)) {
            let collected: Vec<Vec<OpId>> =
                (0..domains).map(|domain| self.collect(domain, &mut flow, bytes, sheet)).collect();
            let mut arrived = vec![Vec::new(); domains];
            for sum in loops(bytes, aggregation.chunk.get().max(1)) {
                tree.aggregate(&mut flow, &mut buffers, sum, &collected, &mut arrived, sheet);
            }
            for (domain, arrived) in arrived.into_iter().enumerate() {
                let after = sheet.join(&arrived);
                self.hand_out(domain, &mut flow, bytes, after, sheet);
            }
        }
    }

    /// All-gather and reduce-scatter, part by part of the domains.
    fn step_half(&self, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let aggregation = self.ask.settings.aggregation;
        let mut flow = Flow::new(self.count(), sheet.start);
        let mut buffers = Buffers::of(&aggregation);
        let domains = self.ask.communicator.domains();
        let (tree, most) = (self.tree(), aggregation.chunk.get().max(1));
        for owner in 0..domains {
            let own = part(bytes, domains as u64, owner as u64);
            for bytes in loops(own, nvls::most(plan)) {
                let mut arrived = vec![Vec::new(); domains];
                if self.ask.collective == Collective::AllGather {
                    for sum in loops(bytes, most) {
                        let up = (owner, Direction::Up);
                        let root = tree.along(&mut flow, up, sum, Vec::new(), sheet);
                        tree.multicast(&mut flow, sum, root, &mut arrived, sheet);
                    }
                    for (domain, arrived) in arrived.into_iter().enumerate() {
                        let after = sheet.join(&arrived);
                        self.hand_out(domain, &mut flow, bytes, after, sheet);
                    }
                    continue;
                }
                let collected: Vec<Vec<OpId>> = (0..domains)
                    .map(|domain| self.collect(domain, &mut flow, bytes, sheet))
                    .collect();
                for sum in loops(bytes, most) {
                    let root = tree.reduce(&mut flow, &mut buffers, sum, &collected, sheet);
                    let down = (owner, Direction::Down);
                    let last = tree.along(&mut flow, down, sum, root, sheet);
                    last.into_iter().for_each(|op| sheet.end(op));
                }
            }
        }
    }

    fn collect(
        &self,
        domain: usize,
        flow: &mut Flow,
        bytes: u64,
        sheet: &mut Sheet<'_>,
    ) -> Vec<OpId> {
        let begins = domain * inside_edges(self.ask);
        let edge = |at: usize| nth(self.first, begins + at);
        match (self.members, nvls::is_available(self.ask)) {
            (1, _) => Vec::new(),
            (members, true) => {
                let edges = HeadEdges::new(edge(0), members);
                vec![edges.reduce(flow, begins, bytes, &[], sheet)]
            }
            (members, false) => (0..members - 1)
                .map(|at| flow.send(sheet, begins + 2 * at, &[edge(2 * at)], bytes, &[]))
                .collect(),
        }
    }

    fn hand_out(
        &self,
        domain: usize,
        flow: &mut Flow,
        bytes: u64,
        after: OpId,
        sheet: &mut Sheet<'_>,
    ) {
        let begins = domain * inside_edges(self.ask);
        let edge = |at: usize| nth(self.first, begins + at);
        let ends = match (self.members, nvls::is_available(self.ask)) {
            (1, _) => vec![after],
            (members, true) => {
                let edges = HeadEdges::new(edge(0), members);
                edges.multicast(flow, begins, bytes, &[after], sheet)
            }
            (members, false) => (0..members - 1)
                .map(|at| 2 * at + 1)
                .map(|at| flow.send(sheet, begins + at, &[edge(at)], bytes, &[after]))
                .collect(),
        };
        ends.into_iter().for_each(|op| sheet.end(op));
    }
}
