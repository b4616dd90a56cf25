//! PAT, parallel aggregated trees: all-gather and reduce-scatter with one rank in each domain.
//!
//! As many trees as ranks, all at once: in an all-gather a rank first sends its own part to the
//! rank half-way round, then at half that distance everything it has by then, and so on. At
//! distance d it holds the parts of the ranks 0, 2d, 4d … before it, so it sends ⌈(n−d)/2d⌉ parts.
//! That adds up to n−1 parts as in a ring, in log₂ n steps, and the far steps carry little. A
//! reduce-scatter is the same backwards.
//!
//! Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
//! (arXiv 2506.20252); NCCL `src/graph/tuning.cc` (from 2.23 on, enabled where every node has one
//! GPU, 75 % of the bandwidth). Departure: all parts of one distance are one message for each
//! channel.

use units::{Bytes, Span};

use super::writer::{Detail, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::route::{Ways, beyond_constants_s};
use crate::nccl::{Family, Offer, Plan, Protocol, Version, constants};
use crate::transfers::OpId;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Pat;

/// What NCCL expects of the rails.
fn efficiency(ask: &Ask<'_>) -> f64 {
    if ask.settings.version == Version::V2_23 { 0.85 } else { 0.75 }
}

impl Algorithm for Pat {
    fn name(&self) -> &'static str {
        "pat"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let alone = ask.shape().per_domain == 1 && 1 < ask.shape().ranks;
        let recent = Version::V2_23 <= ask.settings.version;
        alone
            && recent
            && matches!(ask.collective, Collective::AllGather | Collective::ReduceScatter)
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        let bandwidth = constants::bus_bandwidth(ask.settings, ask.shape()) * efficiency(ask);
        let simple = protocol == Protocol::Simple;
        let declared = ask.settings.declared_us(protocol);
        simple.then(|| Offer { bandwidth, latency_us: latency_us(ask, declared) })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        constants::ring_channels(ask.settings, ask.communicator)
    }

    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, channels: u32) -> Bytes {
        // NCCL src/enqueue.cc: a slot of the buffer, shorter for small messages.
        let mut chunk = constants::buffer(ask.settings, protocol).get() / 8;
        let times = if ask.collective == Collective::AllGather { 32 } else { 16 };
        while ask.bytes.get() < chunk * u64::from(channels) * times && 65_536 < chunk {
            chunk /= 2;
        }
        Bytes::new(chunk)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let ranks = f64::from(ask.shape().ranks);
        let log = f64::from(ask.shape().domains.ilog2());
        let mut ways = Ways::of(ask);
        let mut ways_s = 0.0;
        for distance in distances(ask.communicator.ranks()) {
            ways_s += ways.round(distance).longest_s;
        }
        vec![Phase {
            nic: ask.bytes.as_f64() * (ranks - 1.0) / ranks / f64::from(ask.shape().rails),
            net_efficiency: efficiency(ask),
            latency_s: 1e-6 * latency_us(ask, ask.settings.crossing_us(Protocol::Simple))
                + beyond_constants_s(ways_s, log, net_latency_us(ask)),
            first_message: ask.bytes.as_f64() / ranks / f64::from(plan.channels),
            new_connections: ways.in_farthest(ways_s),
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let ranks = ask.communicator.ranks();
        f64::from(plan.channels) * (ranks * distances(ranks).count()) as f64
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let ranks = communicator.ranks();
        let distances: Vec<usize> = distances(ranks).collect();
        let first = sheet.open("pat", plan.channels, |opening| {
            for channel in 0..plan.channels {
                let nic = |rank: usize| communicator.entry(fabric, rank % ranks, channel).1;
                for &distance in &distances {
                    for rank in 0..ranks {
                        opening.connect(nic(rank), nic(rank + distance), channel);
                    }
                }
            }
        });
        let mut order: Vec<usize> = (0..distances.len()).collect();
        if ask.collective == Collective::ReduceScatter {
            order.reverse();
        }
        for channel in 0..plan.channels {
            let bytes = part(ask.bytes.get(), plan.channels.into(), channel.into());
            let own = channel as usize * distances.len() * ranks;
            let mut before = Before { ops: vec![sheet.start], distance: 0 };
            for &at in &order {
                let parts = parts(ranks, distances[at]) as u64;
                let bytes = super::share(bytes, parts, ranks as u64);
                let edges = (own + at * ranks..own + (at + 1) * ranks).map(|at| nth(first, at));
                let ops = match sheet.detail {
                    Detail::Folded => {
                        let fill = if before.distance == 0 { plan.fill() } else { Span::ZERO };
                        sheet.edges.clear();
                        sheet.edges.extend(edges);
                        vec![sheet.couple(bytes, fill, &before.ops)]
                    }
                    Detail::Stepwise => edges
                        .enumerate()
                        .map(|(rank, edge)| sheet.send(edge, bytes, &[before.of(rank)]))
                        .collect(),
                };
                before = Before { ops, distance: distances[at] };
            }
            before.ops.into_iter().for_each(|op| sheet.end(op));
        }
    }
}

/// The messages of the step before.
struct Before {
    /// By sender; or one that all wait for.
    ops: Vec<OpId>,
    distance: usize,
}

impl Before {
    /// What a rank has to wait for: the message it received. The one it sent went to another.
    fn of(&self, rank: usize) -> OpId {
        match self.ops.len() {
            1 => self.ops[0],
            ranks => self.ops[(rank + ranks - self.distance) % ranks],
        }
    }
}

/// From half-way round to the neighbour.
fn distances(ranks: usize) -> impl Iterator<Item = usize> {
    let highest = usize::BITS - (ranks - 1).leading_zeros();
    (0..highest).rev().map(|bit| 1 << bit)
}

/// Parts that are sent over a distance.
fn parts(ranks: usize, distance: usize) -> usize {
    (ranks - distance).div_ceil(2 * distance)
}

/// NCCL `tuning.cc`: a logarithmic and a linear part.
/// `beyond` is added to each hand-over between servers.
fn latency_us(ask: &Ask<'_>, beyond: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let base = constants::base_latency_us(settings, Family::Pat, Protocol::Simple);
    let step = net_latency_us(ask) + beyond / 3.5;
    base + f64::from(shape.domains.ilog2()) * step + f64::from(shape.ranks) * 2.8
}

/// Of one step of the logarithmic part.
fn net_latency_us(ask: &Ask<'_>) -> f64 {
    constants::net_latency_us(ask.settings, ask.shape(), Family::Tree, Protocol::Simple) / 3.5
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle. Every rank sends every other rank's part on exactly once less than there are ranks.
    #[test]
    fn the_parts_add_up_to_a_rings() {
        for ranks in 2..500 {
            let sum: usize = distances(ranks).map(|distance| parts(ranks, distance)).sum();
            assert_eq!(sum, ranks - 1);
        }
    }
}
