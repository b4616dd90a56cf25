//! Hierarchical: reduce-scatter in the domain, a ring for each rail, all-gather in the domain.
//!
//! Every GPU first gets the domain's sum of its 1/m of the data over scale-up links, then runs a
//! ring with its counterparts in the other domains over its own NIC, and then hands the result to
//! its neighbours. Each NIC sends 2(d−1)/d of 1/m of the data, d being the number of domains.
//!
//! # Against a flat ring: when it saves half
//!
//! A flat ring whose ranks are in order crosses each server's boundary once per channel and puts
//! 2(n−1)/n of the data on the NICs of a server; hierarchical puts 2(d−1)/d there. The ratio
//! `(d−1)/d · n/(n−1)` is 53 % for two servers of eight, 80 % for four, 94 % for sixteen, and
//! nears 1/2 only for two domains of many GPUs. A flat ring that visits each server k times puts
//! k times as much there, and hierarchical then saves the factor k besides: half is also what it
//! saves when ranks are placed so that a ring enters each server twice, and 1 − 1/m when
//! neighbours never share a server. So "half" is a statement about small groups or about bad
//! placement, not about hierarchy as such; [`traffic_against_flat`] computes it.
//!
//! Source: the scheme is that of Horovod's hierarchical all-reduce and of Meta's description
//! (SIGCOMM 2024). Departure: phases follow each other; chunks are not overlapped across them.

use units::{Bytes, Span};

use super::communicator::ScaleUp;
use super::ring::{Round, chunks};
use super::writer::{Detail, SLICES, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part, share};
use crate::nccl::route::{Ways, beyond_constants_s};
use crate::nccl::{Family, Offer, Plan, Protocol, constants};
use crate::transfers::{ConnectionId, OpId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Hierarchical;

impl Algorithm for Hierarchical {
    fn name(&self) -> &'static str {
        "hierarchical"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        use Collective::{AllGather, AllReduce, ReduceScatter};
        let shape = ask.shape();
        let splits = 1 < shape.domains && 1 < shape.per_domain && shape.is_uniform();
        splits && matches!(ask.collective, AllReduce | AllGather | ReduceScatter)
    }

    fn offer(&self, _: &Ask<'_>, _: Protocol) -> Option<Offer> {
        None // NCCL has no such algorithm; it is run when it is named.
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        // On each rail: what NCCL opens for one rank in each server.
        2 * ask.shape().nics_per_gpu()
    }

    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, _: u32) -> Bytes {
        Bytes::new(constants::buffer(ask.settings, protocol).get() / 2)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let (inside, rail) = (inside_bytes(ask) as f64, rail_bytes(ask) as f64);
        let members = f64::from(shape.per_domain);
        let domains = f64::from(shape.domains);
        let mesh = shape.scale_up == ScaleUp::Mesh;
        let hop = constants::hop_latency_us(settings, shape, Family::Ring, Protocol::Simple);
        let net = constants::net_latency_us(settings, shape, Family::Ring, Protocol::Simple);
        let base = constants::base_latency_us(settings, Family::Ring, Protocol::Simple);
        let cycles = f64::from(ask.shape().distinct_cycles());
        let within = Phase {
            scale_up: inside,
            mesh_link: if mesh { inside / cycles } else { 0.0 },
            latency_s: 1e-6 * (base + (members - 1.0) * hop),
            ..Phase::default()
        };
        let steps = rounds(ask.collective) * (domains - 1.0);
        let round = Ways::of(ask).round(1);
        let ways_s = round.passed_s(rounds(ask.collective));
        let part = ask.bytes.get() / u64::from(shape.per_domain) / u64::from(plan.channels);
        let loops = chunks(part, plan.chunk.get() * u64::from(shape.domains));
        let between = Phase {
            nic: rail * shape.gpus_per_nic() / f64::from(shape.nics_per_gpu().min(plan.channels)),
            latency_s: 1e-6 * (base + steps * net) + beyond_constants_s(ways_s, steps, net),
            messages: steps * f64::from(plan.slices) * loops,
            slots: SLICES as f64,
            overlap_s: (ways_s - round.longest_s).max(0.0),
            first_message: rail / steps / f64::from(plan.channels),
            new_connections: 1.0,
            ..Phase::default()
        };
        match ask.collective {
            Collective::AllReduce => vec![within, between, within],
            Collective::AllGather => vec![between, within],
            _ => vec![within, between],
        }
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let shape = ask.shape();
        let (ranks, rounds) = (f64::from(shape.ranks), rounds(ask.collective));
        // A ring of `size` is passed round in so many steps.
        let ring = |size: u32, channels: u32, bytes: u64| {
            let loops = chunks(bytes / u64::from(channels), plan.chunk.get() * u64::from(size));
            f64::from(channels) * f64::from(size - 1) * f64::from(plan.slices) * loops
        };
        let inside = ring(shape.per_domain, inner_channels(ask), ask.bytes.get());
        let rail = ask.bytes.get() / u64::from(shape.per_domain);
        ranks * rounds * (inside + ring(shape.domains, plan.channels, rail))
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let start = sheet.start;
        let wiring = Wiring::open(ask, plan, sheet);
        let end = match ask.collective {
            Collective::AllReduce => {
                let scattered = wiring.inside(ask, plan, sheet, start);
                let summed = wiring.rails(ask, plan, sheet, scattered);
                wiring.inside(ask, plan, sheet, summed)
            }
            Collective::AllGather => {
                let gathered = wiring.rails(ask, plan, sheet, start);
                wiring.inside(ask, plan, sheet, gathered)
            }
            _ => {
                let scattered = wiring.inside(ask, plan, sheet, start);
                wiring.rails(ask, plan, sheet, scattered)
            }
        };
        sheet.end(end);
    }
}

/// How often the rail ring goes round: twice in an all-reduce.
fn rounds(collective: Collective) -> f64 {
    if collective == Collective::AllReduce { 2.0 } else { 1.0 }
}

/// What each GPU sends inside its domain in one phase.
fn inside_bytes(ask: &Ask<'_>) -> u64 {
    let members = u64::from(ask.shape().per_domain);
    share(ask.bytes.get(), members - 1, members)
}

/// What each GPU sends over its rail.
fn rail_bytes(ask: &Ask<'_>) -> u64 {
    let shape = ask.shape();
    let (members, domains) = (u64::from(shape.per_domain), u64::from(shape.domains));
    let twice = if ask.collective == Collective::AllReduce { 2 } else { 1 };
    share(ask.bytes.get(), twice * (domains - 1), domains * members)
}

/// The bytes that leave a domain under this algorithm, over those under a flat ring that enters
/// each domain `entries` times.
pub fn traffic_against_flat(domains: u32, per_domain: u32, entries: u32) -> f64 {
    let (domains, ranks) = (f64::from(domains), f64::from(domains * per_domain));
    (domains - 1.0) / domains / (f64::from(entries) * (ranks - 1.0) / ranks)
}

/// The connections: a ring in each domain for each channel, then one over each rail.
struct Wiring {
    first: ConnectionId,
    first_rail: usize,
}

impl Wiring {
    fn open(ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) -> Self {
        let Ask { fabric, communicator, .. } = *ask;
        let (domains, members) = (communicator.domains(), ask.shape().per_domain as usize);
        let inner = inner_channels(ask);
        let first = sheet.open("hierarchical", plan.channels, |opening| {
            let mut order = Vec::new();
            for channel in 0..inner {
                for domain in 0..domains {
                    communicator.order(fabric, domain, channel, &mut order);
                    for at in 0..members {
                        let gpu = |at: usize| communicator.gpu(order[at % members]);
                        opening.connect(gpu(at), gpu(at + 1), channel);
                    }
                }
            }
            for channel in 0..plan.channels {
                for local in 0..members {
                    let nic = |domain: usize| {
                        let rank = communicator.members(domain % domains)[local];
                        communicator.nic(fabric, rank, channel)
                    };
                    for domain in 0..domains {
                        opening.connect(nic(domain), nic(domain + 1), channel);
                    }
                }
            }
        });
        Self { first, first_rail: inner as usize * domains * members }
    }

    /// One pass round the ring of each domain. Ends when all are done: a rail needs its part of
    /// every domain's sum.
    fn inside(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>, after: OpId) -> OpId {
        let (domains, members) = (ask.communicator.domains(), ask.shape().per_domain as usize);
        let channels = inner_channels(ask);
        let mut ends = Vec::new();
        for channel in 0..channels {
            let bytes = part(ask.bytes.get(), channels.into(), channel.into());
            for domain in 0..domains {
                let first = (channel as usize * domains + domain) * members;
                let pass = Pass { edges: first..first + members, bytes, rounds: 1 };
                self.pass(plan, sheet, pass, Span::ZERO, after, &mut ends);
            }
        }
        sheet.join(&ends)
    }

    /// Rings over the rails.
    fn rails(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>, after: OpId) -> OpId {
        let (domains, members) = (ask.communicator.domains(), ask.shape().per_domain as usize);
        let rounds = if ask.collective == Collective::AllReduce { 2 } else { 1 };
        let mut ends = Vec::new();
        for channel in 0..plan.channels {
            for local in 0..members {
                let bytes = part(ask.bytes.get(), members as u64, local as u64);
                let bytes = part(bytes, plan.channels.into(), channel.into());
                let first = self.first_rail + (channel as usize * members + local) * domains;
                let pass = Pass { edges: first..first + domains, bytes, rounds };
                self.pass(plan, sheet, pass, plan.fill(), after, &mut ends);
            }
        }
        sheet.join(&ends)
    }

    fn pass(
        &self,
        plan: &Plan,
        sheet: &mut Sheet<'_>,
        Pass { edges, bytes, rounds }: Pass,
        fill: Span,
        after: OpId,
        ends: &mut Vec<OpId>,
    ) {
        let size = edges.len();
        match sheet.detail {
            Detail::Folded => {
                sheet.edges.clear();
                sheet.edges.extend(edges.map(|at| nth(self.first, at)));
                let bytes = share(bytes, (rounds * (size - 1)) as u64, size as u64);
                ends.push(sheet.couple(bytes, fill, &[after]));
            }
            Detail::Stepwise => {
                let edges: Vec<Vec<ConnectionId>> =
                    edges.map(|at| vec![nth(self.first, at)]).collect();
                let round = Round { steps: rounds * (size - 1), shift: 0, bytes };
                round.write(&edges, plan, sheet, after, ends);
            }
        }
    }
}

/// `rounds` passes of n−1 steps round the ring over these connections.
struct Pass {
    edges: std::ops::Range<usize>,
    bytes: u64,
    rounds: usize,
}

/// Rings inside a domain: as many as have links of their own.
fn inner_channels(ask: &Ask<'_>) -> u32 {
    ask.shape().distinct_cycles()
}
