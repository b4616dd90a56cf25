//! Double binary tree: all-reduce, as NCCL runs it between servers.
//!
//! Half of the channels reduce up and broadcast down one binary tree over the domains, half the
//! other; every domain is inside at most one of them, so each sends at most three copies in one
//! and one in the other: two on average, as in a ring, but over a path whose length grows with the
//! logarithm of the number of domains. Inside a domain the ranks form a chain that begins at the
//! rank next to the channel's rail. So every edge of a tree, and of a chain, carries the channel's
//! data once up and once down.
//!
//! Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
//! and scan" (2009); NCCL `src/graph/{trees,connect}.cc`. Departure: all edges of a channel between
//! domains stay on its rail, where NCCL's balanced pattern puts one child on a second GPU.

use units::{Bytes, Rate, Span};

use super::communicator::ScaleUp;
use super::ring::{chunks, loops, slice, under_way};
use super::writer::{Detail, Flow, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::route::{Ways, beyond_constants_s};
use crate::nccl::{Architecture, Family, Offer, Plan, Protocol, constants};
use crate::transfers::{ConnectionId, OpId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Tree;

impl Algorithm for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        ask.collective == Collective::AllReduce
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let bandwidth = constants::bus_bandwidth(settings, shape);
        let channels = constants::search_channels(settings, ask.communicator);
        let share = efficiency(ask, protocol, bandwidth, channels.into());
        let declared = settings.declared_us(protocol);
        let kept_off = constants::tree_simple_kept_off_us(settings.version);
        let latency_us = match kept_off.filter(|_| protocol == Protocol::Simple) {
            Some(each) => {
                let crossed = f64::from(shape.domains.ilog2());
                2.0 * (depth(ask) as f64 * each + crossed * declared)
            }
            None => latency_us(ask, protocol, declared),
        };
        Some(Offer { bandwidth: 0.5 * bandwidth * share, latency_us })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        constants::ring_channels(ask.settings, ask.communicator)
    }

    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, channels: u32) -> Bytes {
        let buffer = constants::buffer(ask.settings, protocol).get();
        // NCCL src/enqueue.cc: shorter chunks until there are several for each level.
        let (mut chunk, rule) = match protocol {
            Protocol::Ll => return Bytes::new(buffer / 8),
            Protocol::Ll128 => {
                let members = f64::from(ask.shape().per_domain);
                let steps = levels(ask) + 0.1 * members;
                let rule = [(64.0, 131_072), (16.0, 32_768)];
                (buffer / 8, rule.map(|(times, least)| (steps * times / members, least)).to_vec())
            }
            Protocol::Simple => {
                let depth = depth(ask) as f64;
                let rule = [(8.0, 131_072), (4.0, 65_536), (1.0, 32_768)];
                (buffer / 2, rule.map(|(times, least)| (depth * times, least)).to_vec())
            }
        };
        let each = ask.bytes.get() / u64::from(channels);
        for (wanted, least) in rule {
            while ((each / chunk) as f64) < wanted && least < chunk {
                chunk /= 2;
            }
        }
        Bytes::new(chunk)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let shape = ask.shape();
        let bandwidth = constants::bus_bandwidth(ask.settings, shape);
        let channels = constants::search_equivalent(ask.settings, ask.communicator);
        let efficiency = efficiency(ask, plan.protocol, bandwidth, channels);
        let each = ask.bytes.as_f64() / f64::from(plan.channels);
        let chunk = plan.chunk.as_f64().min(each);
        let (scale_up, mesh_link) = chain_load(ask, plan);
        vec![Phase {
            scale_up,
            mesh_link,
            nic: nic_load(ask, plan),
            efficiency,
            net_efficiency: efficiency,
            latency_s: ways_s(ask, Family::Tree, plan.protocol)
                + 1e-6 * latency_us(ask, plan.protocol, ask.settings.crossing_us(plan.protocol)),
            messages: chunks(each as u64, slice(plan)),
            slots: under_way(ask, plan) as f64,
            // What a server begins to pass on while it still arrives waits for its window once.
            first_message: each.min(plan.chunk.as_f64()),
            new_connections: 1.0,
            drain_s: match plan.protocol {
                Protocol::Simple => {
                    let slice = chunk / f64::from(plan.slices);
                    2.0 * depth(ask) as f64 * slice / channel_rate(ask, plan)
                }
                // Flags beside the data: a rank passes a line on as soon as it is there, but a NIC
                // sends whole chunks.
                Protocol::Ll128 if 1 < shape.domains => {
                    levels(ask) * chunk / channel_rate(ask, plan)
                }
                Protocol::Ll | Protocol::Ll128 => 0.0,
            },
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let shape = ask.shape();
        let edges = 2.0 * f64::from(shape.ranks - 1);
        let each = ask.bytes.get().div_ceil(plan.channels.into());
        // A wait sets the pace: of every message, or of those that begin a chain.
        let waits = match plan.protocol {
            Protocol::Simple => edges,
            Protocol::Ll | Protocol::Ll128 => f64::from(shape.domains),
        };
        f64::from(plan.channels) * chunks(each, slice(plan)) * (edges + waits)
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let lanes = lanes(ask, plan);
        let chunk = plan.chunk.get() * u64::from(plan.channels) / u64::from(lanes);
        let own = Plan { channels: lanes, chunk: Bytes::new(chunk.max(1)), ..*plan };
        let first = sheet.open("tree", lanes, |opening| {
            let mut order = Vec::new();
            for channel in 0..lanes {
                for domain in 0..communicator.domains() {
                    communicator.order(fabric, domain, channel, &mut order);
                    for pair in order.windows(2) {
                        let [near, far] = [pair[0], pair[1]].map(|rank| communicator.gpu(rank));
                        opening.connect(far, near, channel);
                        opening.connect(near, far, channel);
                    }
                    let half = half(channel, lanes);
                    if let Some(parent) = parent(communicator.domains(), domain, half) {
                        let (_, own) = communicator.entry(fabric, domain, channel);
                        let (_, above) = communicator.entry(fabric, parent, channel);
                        opening.connect(own, above, channel);
                        opening.connect(above, own, channel);
                    }
                }
            }
        });
        let mut at = 0;
        for channel in 0..lanes {
            let bytes = part(ask.bytes.get(), lanes.into(), channel.into());
            let tree = TreeOnSheet::new(ask, nth(first, at), half(channel, lanes));
            let (start, edges) = (sheet.start, tree.edges);
            match sheet.detail {
                Detail::Folded => {
                    sheet.edges.clear();
                    sheet.edges.extend((0..edges).map(|edge| nth(nth(first, at), edge)));
                    let op = sheet.couple(bytes, plan.fill(), &[start]);
                    sheet.end(op);
                }
                Detail::Stepwise => tree.step(ask, &own, bytes, sheet),
            }
            at += edges;
        }
    }
}

/// Which of the two trees a channel uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Half {
    /// The one whose root is domain 0.
    First,
    /// Its mirror image, or the same moved by one where the number of domains is odd.
    Second,
}

/// The first half of the channels takes the first tree, so that every rail has both.
fn half(channel: u32, channels: u32) -> Half {
    if channel < channels.div_ceil(2) { Half::First } else { Half::Second }
}

/// One for each channel and NIC that it is spread over.
fn lanes(ask: &Ask<'_>, plan: &Plan) -> u32 {
    plan.channels * constants::stripes(ask.settings, ask.shape())
}

/// The domain above another in one of the two trees over `count` domains; `None` for the root.
///
/// In the first tree the lowest set bit of a number tells its level: odd numbers are leaves, and a
/// number's parent has that bit cleared and the next one set, or only cleared where that would be
/// too large.
pub fn parent(count: usize, domain: usize, half: Half) -> Option<usize> {
    let above = |at: usize| {
        let lowest = at & at.wrapping_neg();
        let parent = (at ^ lowest) | (lowest << 1);
        match at {
            0 => None,
            _ if count <= parent => Some(at ^ lowest),
            _ => Some(parent),
        }
    };
    match half {
        Half::First => above(domain),
        Half::Second if count % 2 == 1 => {
            above((domain + count - 1) % count).map(|parent| (parent + 1) % count)
        }
        Half::Second => above(count - 1 - domain).map(|parent| count - 1 - parent),
    }
}

/// All domains, children before their parents.
pub(super) fn upwards(count: usize, half: Half) -> Vec<usize> {
    let level =
        |domain: usize| std::iter::successors(Some(domain), |&at| parent(count, at, half)).count();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_cached_key(|&domain| std::cmp::Reverse(level(domain)));
    order
}

/// Neighbours of each domain in the two trees: what its NICs send, in halves of the data.
pub(super) fn degrees(count: usize) -> Vec<[u32; 2]> {
    let mut degrees = vec![[0; 2]; count];
    for (at, half) in [Half::First, Half::Second].into_iter().enumerate() {
        for domain in 0..count {
            if let Some(parent) = parent(count, domain, half) {
                degrees[domain][at] += 1;
                degrees[parent][at] += 1;
            }
        }
    }
    degrees
}

/// Levels between the farthest rank and the root: NCCL's approximation.
fn depth(ask: &Ask<'_>) -> u64 {
    let shape = ask.shape();
    u64::from(shape.per_domain - 1 + shape.domains.ilog2()).max(1)
}

/// Steps of a chunk between servers: NCCL's approximation.
fn levels(ask: &Ask<'_>) -> f64 {
    1.0 + f64::from(ask.shape().domains.ilog2())
}

/// `beyond` is added to each hand-over between servers.
fn latency_us(ask: &Ask<'_>, protocol: Protocol, beyond: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let hop = constants::hop_latency_us(settings, shape, Family::Tree, protocol);
    let net = constants::net_latency_us(settings, shape, Family::Tree, protocol) + beyond;
    let inside = f64::from(shape.per_domain - 1) * hop;
    let between = f64::from(shape.domains.ilog2()) * net;
    constants::base_latency_us(settings, Family::Tree, protocol) + 2.0 * (inside + between)
}

/// What the ways up and down a tree of servers add.
pub(super) fn ways_s(ask: &Ask<'_>, family: Family, protocol: Protocol) -> f64 {
    let shape = ask.shape();
    if shape.domains == 1 {
        return 0.0;
    }
    let constant = constants::net_latency_us(ask.settings, shape, family, protocol);
    let counted = 2.0 * f64::from(shape.domains.ilog2());
    beyond_constants_s(2.0 * Ways::of(ask).tree_s(), counted, constant)
}

/// NCCL `tuning.cc`: .92 of the links, at most so much for each channel of the search, less with
/// flags, .85 of that where the search falls back to the plain tree pattern, as it does from Hopper
/// on, and a correction by size.
fn efficiency(ask: &Ask<'_>, protocol: Protocol, bandwidth: f64, channels: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let most = |protocol| channels * constants::tree_channel_max(settings, shape, protocol);
    let simple = (0.92 * bandwidth).min(most(Protocol::Simple));
    let bus = match protocol {
        Protocol::Simple => simple,
        Protocol::Ll => (simple / 3.8).min(constants::ll_max(settings, shape)),
        Protocol::Ll128 => {
            let flags = if shape.domains == 1 { 7.0 / 9.0 } else { 120.0 / 128.0 };
            (simple * flags).min(most(Protocol::Ll128))
        }
    };
    let pattern = match settings.architecture {
        Architecture::Hopper | Architecture::Blackwell => 0.85,
        Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3 => 1.0,
    };
    bus * pattern * constants::tree_correction(protocol, ask.bytes) / bandwidth
}

/// How fast one channel passes data on, in bytes per second.
fn channel_rate(ask: &Ask<'_>, plan: &Plan) -> f64 {
    let bandwidth = constants::bus_bandwidth(ask.settings, ask.shape());
    let channels = constants::search_equivalent(ask.settings, ask.communicator);
    let share = efficiency(ask, plan.protocol, bandwidth, channels);
    0.5e9 * bandwidth * share / f64::from(plan.channels)
}

/// What passing on takes beyond the time on a link: a channel is slower than the link that it
/// shares with others.
fn pace(ask: &Ask<'_>, plan: &Plan, bytes: u64, link: Option<Rate>) -> Span {
    let shown = link.map_or(0.0, |rate| bytes as f64 / rate.bytes_per_s());
    Span::from_secs_f64((bytes as f64 / channel_rate(ask, plan) - shown).max(0.0))
}

/// Bytes through the busiest GPU of domain 0 and over its busiest mesh link: a GPU sends up unless
/// it is first in its chain, and down unless it is last.
fn chain_load(ask: &Ask<'_>, plan: &Plan) -> (f64, f64) {
    let shape = ask.shape();
    let members = shape.per_domain as usize;
    if members == 1 {
        return (0.0, 0.0);
    }
    let mut by_gpu = vec![0.0; members];
    let mut by_pair = vec![0.0; members * members];
    let mut order = Vec::new();
    let domains = 0..ask.communicator.domains();
    let largest = domains.max_by_key(|&at| ask.communicator.members(at).len()).unwrap_or(0);
    let lanes = lanes(ask, plan);
    let each = ask.bytes.as_f64() / f64::from(lanes);
    for channel in 0..lanes {
        ask.communicator.order(ask.fabric, largest, channel, &mut order);
        for pair in order.windows(2) {
            let [near, far] = [pair[0], pair[1]].map(|rank| ask.communicator.local(rank));
            for (from, to) in [(near, far), (far, near)] {
                by_gpu[from] += each;
                by_pair[from * members + to] += each;
            }
        }
    }
    let most = |loads: &[f64]| loads.iter().copied().fold(0.0, f64::max);
    let mesh = shape.scale_up == ScaleUp::Mesh;
    (most(&by_gpu), if mesh { most(&by_pair) } else { 0.0 })
}

/// Bytes through the busiest NIC.
fn nic_load(ask: &Ask<'_>, plan: &Plan) -> f64 {
    let shape = ask.shape();
    let lanes = lanes(ask, plan);
    let each = ask.bytes.as_f64() / f64::from(lanes);
    let rails = shape.rails;
    // How many channels of each tree share the busiest rail.
    let mut sharing = vec![[0_u32; 2]; rails as usize];
    for channel in 0..lanes {
        let tree = usize::from(half(channel, lanes) == Half::Second);
        sharing[(channel % rails) as usize][tree] += 1;
    }
    let load = |[first, second]: [u32; 2]| {
        let on = sharing.iter().map(|[a, b]| a * first + b * second).max();
        f64::from(on.unwrap_or(0)) * each
    };
    degrees(shape.domains as usize).into_iter().map(load).fold(0.0, f64::max)
}

/// The tree of one channel, its connections from `first` on.
struct TreeOnSheet {
    first: ConnectionId,
    half: Half,
    /// By domain: where its connections begin, and how many ranks it has.
    domains: Vec<(usize, usize)>,
    edges: usize,
}

impl TreeOnSheet {
    fn new(ask: &Ask<'_>, first: ConnectionId, half: Half) -> Self {
        let count = ask.communicator.domains();
        let mut edges = 0;
        let domains = (0..count).map(|domain| {
            let size = ask.communicator.members(domain).len();
            let begins = edges;
            edges += 2 * (size - 1) + 2 * usize::from(parent(count, domain, half).is_some());
            (begins, size)
        });
        Self { first, half, domains: domains.collect(), edges }
    }

    /// Chunk by chunk: up the chains and the tree, then down, at the pace of a channel.
    fn step(&self, ask: &Ask<'_>, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let count = self.domains.len();
        let shape = ask.shape();
        let order = upwards(count, self.half);
        let mut flow = Flow::of_slices(self.edges, sheet.start, under_way(ask, plan));
        let edge = |at: usize| [nth(self.first, at)];
        let mut arrived: Vec<Vec<OpId>> = vec![Vec::new(); count];
        for bytes in loops(bytes, slice(plan)) {
            arrived.iter_mut().for_each(Vec::clear);
            let first = pace(ask, plan, bytes, shape.scale_up_rate);
            let (inside, between) = match plan.protocol {
                Protocol::Simple => (first, pace(ask, plan, bytes, shape.nic_rate)),
                // Lines are passed on as they come: whoever begins sets the pace for all.
                Protocol::Ll | Protocol::Ll128 => (Span::ZERO, Span::ZERO),
            };
            for &domain in &order {
                let (begins, size) = self.domains[domain];
                let mut last: Option<OpId> = None;
                for link in (0..size - 1).rev() {
                    let at = begins + 2 * link;
                    let op = flow.send(sheet, at, &edge(at), bytes, last.as_slice());
                    last = Some(sheet.wait(if last.is_none() { first } else { inside }, op));
                }
                arrived[domain].extend(last);
                if let Some(parent) = parent(count, domain, self.half) {
                    let at = begins + 2 * (size - 1);
                    let op = flow.send(sheet, at, &edge(at), bytes, &arrived[domain]);
                    arrived[parent].push(sheet.wait(between, op));
                }
            }
            for &domain in order.iter().rev() {
                let (begins, size) = self.domains[domain];
                if let Some(parent) = parent(count, domain, self.half) {
                    let at = begins + 2 * (size - 1) + 1;
                    let op = flow.send(sheet, at, &edge(at), bytes, &arrived[parent]);
                    arrived[domain].clear();
                    arrived[domain].push(sheet.wait(between, op));
                }
                let mut last: Vec<OpId> = arrived[domain].clone();
                for link in 0..size - 1 {
                    let at = begins + 2 * link + 1;
                    let op = flow.send(sheet, at, &edge(at), bytes, &last);
                    last = vec![sheet.wait(inside, op)];
                }
                last.into_iter().for_each(|op| sheet.end(op));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property. Each tree reaches every domain, has at most two children at each, is as deep as
    /// the logarithm, and no domain has children in both.
    #[test]
    fn the_two_trees_span_and_share_no_inner_domain() {
        for count in 1..200_usize {
            let mut children = vec![[0_u32; 2]; count];
            for (tree, half) in [Half::First, Half::Second].into_iter().enumerate() {
                let mut roots = 0;
                for domain in 0..count {
                    let path = std::iter::successors(Some(domain), |&at| parent(count, at, half));
                    let depth = path.count();
                    assert!(depth <= count.ilog2() as usize + 2, "{count}: {depth}");
                    match parent(count, domain, half) {
                        Some(parent) => children[parent][tree] += 1,
                        None => roots += 1,
                    }
                }
                assert_eq!(roots, 1);
            }
            for [first, second] in &children {
                assert!(*first <= 2 && *second <= 2);
            }
            if count % 2 == 0 && 2 < count {
                assert!(children.iter().all(|[a, b]| *a == 0 || *b == 0), "{count}");
            }
        }
    }
}
