//! What the way between two servers adds to NCCL's constants on this fabric.
//!
//! NCCL's table has one latency for a hand-over between servers (`hwLatencies`, network),
//! whatever cables and switches lie between them. It was measured, so it is what software takes
//! and the way through the network that it was measured on: [`REFERENCE`]. Here a hand-over takes
//! the software's part of the constant and the way on this fabric: both NICs, every cable and
//! every switch. On a fabric like the reference that is the constant again.
//!
//! Written out step by step, an engine shows the ways itself and the software's part is added once
//! ([`write`](crate::collective::write())); folded and in closed form the ways on the critical path
//! are added up here. Inside a scale-up domain the constants stand as they are: the ways there do
//! not differ.

use fabric::{Fabric, NodeId, NodeKind, Routes};
use units::{Bytes, Span};

use crate::collective::tree::{Half, parent};
use crate::collective::{Ask, Communicator};

/// The way in NCCL's constants, which its authors take from DGX systems on InfiniBand: two
/// ConnectX-7 (1.2 µs each with GPUDirect), one Quantum-2 leaf, as neighbours on a rail have it
/// (0.33 µs), and two cables of 5 m (25 ns each); all from the catalogue of hardware.
pub const REFERENCE: Span = Span::from_ns(2 * 1_200 + 330 + 2 * 25);

/// So many ways are looked up one by one; of more, as many at equal distances stand for all.
const LOOKED_UP: usize = 4096;

/// What hand-overs between servers add to NCCL's latency, in seconds: the ways on the critical
/// path, one after the other, without the reference's in those `counted` constants of
/// `constant_us` that are in the latency already. What a constant leaves for software is at least
/// nothing.
pub(crate) fn beyond_constants_s(ways_s: f64, counted: f64, constant_us: f64) -> f64 {
    ways_s - counted * (1e-6 * constant_us).min(REFERENCE.as_secs_f64())
}

/// The ways of a ring of servers, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) sum_s: f64,
    pub(crate) shortest_s: f64,
    /// Two that follow each other.
    pub(crate) shortest_pair_s: f64,
    pub(crate) longest_s: f64,
}

impl Round {
    /// What a chunk of a ring passes: all ways but one in a round, all of them twice but for two
    /// that follow each other in two.
    pub(crate) fn passed_s(&self, rounds: f64) -> f64 {
        let spared_s = if rounds < 2.0 { self.shortest_s } else { self.shortest_pair_s };
        rounds * self.sum_s - spared_s
    }
}

/// Looks up ways between the NICs of one fabric.
#[derive(Debug)]
pub(crate) struct Ways<'a> {
    fabric: &'a Fabric,
    communicator: &'a Communicator,
    /// What the two NICs on a way take together.
    nics: Span,
    routes: Routes,
}

impl<'a> Ways<'a> {
    pub(crate) fn of(ask: &Ask<'a>) -> Self {
        let Ask { fabric, communicator, settings, .. } = *ask;
        let (nics, routes) = (settings.nic_latency, Routes::of(fabric));
        Self { fabric, communicator, nics, routes }
    }

    /// From one end of a connection to the other: cables and switches, and the NIC at each end
    /// that is one.
    pub(crate) fn between(&mut self, from: NodeId, to: NodeId) -> Span {
        let is_nic = |node: NodeId| self.fabric.nic_number(node).is_some();
        let nics = u64::from(is_nic(from)) + u64::from(is_nic(to));
        self.wires(from, to) + self.nics * nics / 2
    }

    /// Cables and switches alone.
    pub(crate) fn wires(&mut self, from: NodeId, to: NodeId) -> Span {
        let Self { fabric, routes, .. } = self;
        let leaf = |nic: NodeId| {
            let port = fabric.nic_number(nic).and_then(|_| fabric.ports(nic).first().copied())?;
            Some(fabric.links()[port].to)
        };
        let mut find =
            || path_latency_on(fabric, routes, from, to, Bytes::ZERO).unwrap_or(Span::ZERO);
        // Leaves decide where the fabric is regular enough.
        let is_regular = fabric.has_structure() && !fabric.health().has_failures();
        match (leaf(from), leaf(to)) {
            (Some(a), Some(b)) if from != to && is_regular => fabric.way(a, b, find),
            _ => find(),
        }
    }

    /// Between the first rails of two domains, in seconds.
    fn between_domains_s(&mut self, from: usize, to: usize) -> f64 {
        let [from, to] = [from, to].map(|at| self.communicator.rails(at).first().copied());
        from.zip(to).map_or(0.0, |(from, to)| self.between(from, to).as_secs_f64())
    }

    /// The farthest of some domains from the first, in seconds.
    pub(crate) fn farthest_s(&mut self) -> f64 {
        let domains = self.communicator.domains();
        let others = [1, domains / 2, domains - 1].into_iter().filter(|&to| 0 < to && to < domains);
        others.map(|to| self.between_domains_s(0, to)).fold(0.0, f64::max)
    }

    /// There and back between these two without the software at either end, in seconds.
    pub(crate) fn round_trip_s(&mut self) -> f64 {
        2.0 * (self.farthest_s() - self.nics.as_secs_f64()).max(0.0)
    }

    /// Each domain to the one `distance` further on, all of them once round.
    pub(crate) fn round(&mut self, distance: usize) -> Round {
        let domains = self.communicator.domains();
        let mut ways = Vec::new();
        if 1 < domains {
            let from = (0..domains).step_by(domains.div_ceil(LOOKED_UP));
            ways.extend(from.map(|at| self.between_domains_s(at, (at + distance) % domains)));
        }
        let scale = domains as f64 / ways.len().max(1) as f64;
        let shortest = |ways: &mut dyn Iterator<Item = f64>| ways.reduce(f64::min).unwrap_or(0.0);
        let next = ways.iter().cycle().skip(1);
        Round {
            sum_s: ways.iter().sum::<f64>() * scale,
            shortest_s: shortest(&mut ways.iter().copied()),
            shortest_pair_s: shortest(&mut ways.iter().zip(next).map(|(one, next)| one + next)),
            longest_s: ways.iter().copied().fold(0.0, f64::max),
        }
    }

    /// So many farthest ways this one is.
    pub(crate) fn in_farthest(&mut self, ways_s: f64) -> f64 {
        let farthest = self.farthest_s();
        if 0.0 < farthest { ways_s / farthest } else { 0.0 }
    }

    /// From the farthest domain up a double binary tree to its root, in seconds.
    pub(crate) fn tree_s(&mut self) -> f64 {
        let domains = self.communicator.domains();
        let stride = domains.div_ceil(LOOKED_UP);
        let mut farthest = 0.0_f64;
        for half in [Half::First, Half::Second] {
            // Ways up meet: each is looked up once, from the domain below.
            let mut up: Vec<Option<f64>> = vec![None; domains];
            for leaf in (0..domains).step_by(stride) {
                let (mut at, mut way) = (leaf, 0.0);
                while let Some(above) = parent(domains, at, half) {
                    way += *up[at].get_or_insert_with(|| self.between_domains_s(at, above));
                    at = above;
                }
                farthest = farthest.max(way);
            }
        }
        farthest
    }
}

/// The time of a short message between two NICs or GPUs: the way through NICs and switches.
///
/// What the NICs take on either side comes from the catalogue.
pub fn path_latency(fabric: &Fabric, from: NodeId, to: NodeId, bytes: Bytes) -> Option<Span> {
    path_latency_on(fabric, &mut Routes::of(fabric), from, to, bytes)
}

/// The same with routes that are known already.
pub fn path_latency_on(
    fabric: &Fabric,
    routes: &mut Routes,
    from: NodeId,
    to: NodeId,
    bytes: Bytes,
) -> Option<Span> {
    let mut hops = Vec::new();
    let (mut at, mut span) = (from, Span::ZERO);
    while at != to {
        routes.next_hops(fabric, at, to, &mut hops);
        let link = *hops.first()?;
        let class = fabric.class(link);
        let moving = if fabric.carries_cells(link) { Bytes::ZERO } else { bytes };
        span += class.delay + fabric.credit_wait(link) + class.rate.time_to_send(moving);
        at = fabric.links()[link].to;
        let node = fabric.nodes()[at];
        if node.kind == NodeKind::Switch {
            span += fabric.tiers()[usize::from(node.tier)].latency;
        }
    }
    Some(span)
}
