//! Ring: all-reduce, all-gather, reduce-scatter, broadcast and reduce, as NCCL runs them.
//!
//! The data is split over channels, each with a ring of its own. In an all-reduce every rank sends
//! 2(n−1) chunks of 1/n of the channel's data to its neighbour: n−1 while sums travel round, n−1
//! while they are handed out; all-gather and reduce-scatter are one half of it each, broadcast and
//! reduce are a chain that ends before (or begins after) the root. So each edge carries
//! 2(n−1)/n of the data, half of that, or all of it.
//!
//! # Why rings stay below their asymptote up to hundreds of megabytes
//!
//! A channel's buffer holds two chunks of 2 MiB, so a loop over all ranks moves n · 2 MiB for each
//! channel: 384 MiB on eight GPUs with 24 channels. Anything smaller is a single loop of 2(n−1)
//! strictly serial steps with no second loop behind it to overlap with. Each step passes its chunk
//! on in slices, and each slice is waited for, fenced and posted: that is a hand-over latency
//! (`hwLatencies`) for each of the 2·2(n−1) slices, not once per step; and when the last slice has
//! arrived it still has to be copied out, which nothing hides. On eight A100s this comes to about
//! 130 µs and half a chunk, a fifth of the time of a 64 MiB all-reduce. A chain sends slot by slot
//! (512 KiB), and the last rank sees its first bytes after n−1 of them.
//!
//! Source: NCCL `src/device/all_reduce.h`, `src/graph/tuning.cc`, `src/include/collectives.h`.
//! Departure: all ranks begin together; NCCL's own model counts one hand-over for each step.

use units::Bytes;

use super::communicator::{Hop, ScaleUp, Shape};
use super::writer::{Detail, Flow, SLICES, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part, share};
use crate::nccl::route::{Ways, beyond_constants_s};
use crate::nccl::{Architecture, Family, Offer, Plan, Protocol, constants};
use crate::transfers::{ConnectionId, OpId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Ring;

impl Algorithm for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
        matches!(ask.collective, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce)
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        let shape = ask.shape();
        let settings = ask.settings;
        let bandwidth = constants::bus_bandwidth(settings, shape);
        let bus = match protocol {
            Protocol::Ll => {
                let factor = constants::expected_ll_factor(settings, shape, ask.collective);
                (bandwidth * factor).min(constants::ll_max(settings, shape))
            }
            Protocol::Ll128 | Protocol::Simple => {
                let channels = constants::search_channels(settings, ask.communicator);
                bandwidth * efficiency(ask, protocol, bandwidth, channels.into())
            }
        };
        let latency_us = latency_us(ask, protocol, 1.0, settings.declared_us(protocol));
        // NCCL's "plateau effect" of rings between servers.
        let plateau = protocol == Protocol::Simple
            && ask.collective == Collective::AllReduce
            && 1 < shape.domains
            && settings.architecture != Architecture::Cdna3;
        Some(Offer {
            bandwidth: bus * f64::from(shape.ranks) / f64::from(steps(ask)),
            latency_us: if plateau { 1.4 * latency_us } else { latency_us },
        })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        constants::ring_channels(ask.settings, ask.communicator)
    }

    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, _: u32) -> Bytes {
        // Half of the buffer's slots (`chunkSteps` is NCCL_STEPS / 2), or in a chain one of them.
        let parts = if is_chain(ask.collective) { 8 } else { 2 };
        Bytes::new(constants::buffer(ask.settings, protocol).get() / parts)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let shape = ask.shape();
        let edge = edge_bytes(ask, ask.bytes.get()) as f64;
        let per_domain = f64::from(shape.per_domain);
        let [scale_up, mesh_link, nic] = busiest(ask, plan).map(|share| edge * share);
        let bandwidth = ring_bandwidth(ask);
        let channels = constants::search_equivalent(ask.settings, ask.communicator);
        let efficiency = efficiency(ask, plan.protocol, bandwidth, channels);
        let each = ask.bytes.as_f64() / f64::from(plan.channels);
        let parts = if is_chain(ask.collective) { 1.0 } else { f64::from(shape.ranks) };
        let chunk = (each / parts).min(plan.chunk.as_f64());
        let slices = f64::from(plan.slices);
        let rate = bandwidth * 1e9 * efficiency / f64::from(plan.channels);
        let slice_bytes = (chunk / slices).max(1.0);
        let messages = match is_chain(ask.collective) {
            true => chunks(each as u64, slice(plan)),
            false => {
                let loops = chunks(each as u64, plan.chunk.get() * u64::from(shape.ranks));
                f64::from(steps(ask)) * slices * loops
            }
        };
        // All edges of a ring begin at once, with what the ranks since the last long way send;
        // those of a chain begin one after the other.
        let mut ways = Ways::of(ask);
        let round_s = ways.round(1).sum_s;
        let long_ways = ways.in_farthest(round_s);
        let (burst, new_connections) = match (shape.domains, is_chain(ask.collective)) {
            (1, _) => (0.0, 0.0),
            (_, true) => (1.0, (long_ways - 1.0).max(1.0)),
            (_, false) => (f64::from(shape.ranks) / long_ways.max(1.0), 1.0),
        };
        let crossing = ask.settings.crossing_us(plan.protocol);
        let latency_s =
            1e-6 * latency_us(ask, plan.protocol, slices, crossing) + ways_s(ask, plan.protocol);
        vec![Phase {
            scale_up,
            mesh_link,
            nic,
            posts: nic * f64::from(shape.rails) / per_domain / slice_bytes,
            protocol: plan.protocol,
            channels_s: match shape.domains {
                1 => inside_pace_s(ask, plan, (edge, slice_bytes / rate)),
                _ => edge / (1e9 * f64::from(plan.channels) * ask.settings.ring_channel_gbps),
            },
            efficiency,
            net_efficiency: efficiency,
            latency_s,
            overlap_s: match is_chain(ask.collective) {
                true => 0.0,
                // Steps wait for each other anyway, but for the last.
                false => (latency_s - ways.farthest_s()).max(0.0),
            },
            messages,
            slots: if is_chain(ask.collective) { under_way(ask, plan) } else { SLICES } as f64,
            first_message: burst * chunk,
            new_connections,
            drain_s: match plan.protocol {
                _ if is_chain(ask.collective) => passing_on_s(ask, plan, slice_bytes),
                Protocol::Simple => slice_bytes / rate,
                Protocol::Ll | Protocol::Ll128 => 0.0,
            },
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let shape = ask.shape();
        let each = ask.bytes.get().div_ceil(plan.channels.into());
        // The way out of a server can lead through another GPU.
        let crossings = if 1 < shape.domains.min(shape.per_domain) { shape.domains } else { 0 };
        let hops = f64::from(shape.ranks + crossings);
        f64::from(plan.channels)
            * match is_chain(ask.collective) {
                true => (hops - 1.0) * chunks(each, slice(plan)),
                false => {
                    let loops = chunks(each, plan.chunk.get() * u64::from(shape.ranks));
                    hops * f64::from(steps(ask)) * f64::from(plan.slices) * loops
                }
            }
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, settings, .. } = *ask;
        let mut hops: Vec<Hop> = Vec::new();
        // One for each NIC that a channel is spread over.
        let stripes = constants::stripes(settings, ask.shape());
        let lanes = plan.channels * stripes;
        let chunk = Bytes::new((plan.chunk.get() / u64::from(stripes)).max(1));
        let own = Plan { channels: lanes, chunk, ..*plan };
        let first = sheet.open("ring", lanes, |opening| {
            for lane in 0..lanes {
                communicator.ring(fabric, lane, settings.cross_nic, opening.hops);
                opening.connect_hops(lane);
            }
        });
        let mut at = 0;
        for lane in 0..lanes {
            communicator.ring(fabric, lane, settings.cross_nic, &mut hops);
            let bytes = part(ask.bytes.get(), lanes.into(), lane.into());
            let ring = RingOnSheet { first: nth(first, at), hops: &hops };
            match sheet.detail {
                Detail::Folded => ring.fold(ask, &own, bytes, sheet),
                Detail::Stepwise => ring.step(ask, &own, bytes, sheet),
            }
            at += hops.len();
        }
    }
}

/// Whether data runs down a chain of ranks instead of round.
pub(crate) fn is_chain(collective: Collective) -> bool {
    matches!(collective, Collective::Broadcast | Collective::Reduce)
}

/// How many chunks (of 1/n of the data, or in a chain of all of it) each rank sends.
fn steps(ask: &Ask<'_>) -> u32 {
    let ranks = ask.shape().ranks;
    match ask.collective {
        Collective::AllReduce => 2 * (ranks - 1),
        Collective::AllGather | Collective::ReduceScatter => ranks - 1,
        _ => ranks,
    }
}

/// What crosses each edge of the rings when they move `bytes`.
pub fn edge_bytes(ask: &Ask<'_>, bytes: u64) -> u64 {
    let ranks = u64::from(ask.shape().ranks);
    match ask.collective {
        Collective::AllReduce => share(bytes, 2 * (ranks - 1), ranks),
        Collective::AllGather | Collective::ReduceScatter => share(bytes, ranks - 1, ranks),
        _ => bytes,
    }
}

/// The shares of what crosses each edge that the busiest GPU sends over its scale-up links, over
/// one link of a mesh, and over a NIC. Channels that do not divide load some of them more than
/// others.
fn busiest(ask: &Ask<'_>, plan: &Plan) -> [f64; 3] {
    let shape = ask.shape();
    let lanes = plan.channels * constants::stripes(ask.settings, shape);
    let of_lanes = |lanes_on_it: u32| f64::from(lanes_on_it) / f64::from(lanes);
    let cycles = shape.distinct_rings().min(plan.channels);
    [
        match shape.has_paths() {
            // Of so many rings each GPU is the last of these at least, and leaves by its own NIC.
            true => of_lanes(lanes - lanes / shape.per_domain),
            false => inside_share(shape),
        },
        match shape.scale_up {
            ScaleUp::Mesh => f64::from(plan.channels.div_ceil(cycles)) / f64::from(plan.channels),
            ScaleUp::Absent | ScaleUp::Switched => 0.0,
        },
        match shape.domains {
            1 => 0.0,
            // Few channels leave NICs idle.
            _ => of_lanes(lanes.div_ceil(shape.rails.max(1))),
        },
    ]
}

/// The share of what crosses each edge that the busiest GPU sends over its scale-up links.
fn inside_share(shape: &Shape) -> f64 {
    let members = f64::from(shape.per_domain);
    match shape.per_domain {
        1 => 0.0,
        // Each GPU is the last one of a path through the server, and leaves by its own NIC.
        _ if shape.has_paths() => (members - 1.0) / members,
        _ => 1.0,
    }
}

/// What the links inside and between domains both give to rings, in 10⁹ bytes per second. NCCL's
/// own model has every GPU send all of it inside.
fn ring_bandwidth(ask: &Ask<'_>) -> f64 {
    let (settings, shape) = (ask.settings, ask.shape());
    let share = inside_share(shape);
    let inside = constants::scale_up_bandwidth(settings, shape).filter(|_| 0.0 < share);
    let between = constants::rails_bandwidth(settings, shape).filter(|_| 1 < shape.domains);
    let inside = inside.map_or(f64::INFINITY, |links| links / share);
    inside.min(between.unwrap_or(f64::INFINITY)).min(1e6)
}

/// What a protocol leaves of the links' rate: NCCL `tuning.cc`. At most so much for each channel of
/// the search.
fn efficiency(ask: &Ask<'_>, protocol: Protocol, bandwidth: f64, channels: f64) -> f64 {
    let shape = ask.shape();
    match protocol {
        Protocol::Simple => 1.0,
        Protocol::Ll => {
            let factor = constants::ll_factor(ask.settings, shape, ask.collective);
            factor.min(constants::ll_max(ask.settings, shape) / bandwidth)
        }
        // 120 of 128 bytes are data.
        Protocol::Ll128 => {
            let most = channels * constants::ring_ll128_channel_max(ask.settings, shape);
            0.92_f64.min(most / bandwidth)
        }
    }
}

/// How long a channel's own block takes inside one domain, `copy_s` being the last slice's copying
/// out. Loops follow each other on one block: it sends what it has to at the pace that NCCL gives a
/// channel with the simple protocol (`perChMaxTreeBws`, which counts two as one), then copies out
/// what came last, and only then begins the next loop. With many ranks the links are slower than
/// that. The last copy is counted as draining. RCCL tells no such pace.
fn inside_pace_s(ask: &Ask<'_>, plan: &Plan, (edge, copy_s): (f64, f64)) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let rings = settings.architecture != Architecture::Cdna3 && !is_chain(ask.collective);
    if plan.protocol != Protocol::Simple || !rings {
        return 0.0;
    }
    let channels = f64::from(plan.channels);
    let pace = 0.5e9 * constants::tree_channel_max(settings, shape, Protocol::Simple);
    let each = ask.bytes.get() / u64::from(plan.channels);
    let again = chunks(each, plan.chunk.get() * u64::from(shape.ranks)) - 1.0;
    edge / (channels * pace) + again * copy_s
}

/// The hand-overs: those between servers take the network's latency and what is `beyond` it, the
/// others NVLink's.
fn latency_us(ask: &Ask<'_>, protocol: Protocol, slices: f64, beyond: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let base = constants::base_latency_us(settings, Family::Ring, protocol);
    let inside = constants::hop_latency_us(settings, shape, Family::Ring, protocol);
    let between = constants::net_latency_us(settings, shape, Family::Ring, protocol);
    let (steps, crossings) = (f64::from(steps(ask)), crossings(ask));
    // Inside, each slice is one more hand-over; between servers slices are posted ahead.
    let posting = constants::post_us(settings, shape, protocol);
    base + (steps - crossings) * (inside * slices).max(posting) + crossings * (between + beyond)
}

/// Until the first slice is at the end of a chain. A scale-up link carries the slices of its
/// channels one after the other, so that one is passed on while the others are still to come, and
/// lines with flags as they come; a NIC sends whole slices, its channels packet by packet.
fn passing_on_s(ask: &Ask<'_>, plan: &Plan, slice: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let inside = constants::scale_up_bandwidth(settings, shape).map_or(0.0, |rate| 1e-9 / rate);
    let nic = constants::rails_bandwidth(settings, shape).map_or(0.0, |rate| 1e-9 / rate);
    let crossed = f64::from(shape.domains - 1);
    let stages = match plan.protocol {
        Protocol::Simple => f64::from(shape.ranks - 1) - crossed,
        Protocol::Ll | Protocol::Ll128 => 0.0,
    };
    slice * (stages * inside + crossed * nic * f64::from(plan.channels))
}

/// How many of its steps NCCL counts as crossing from server to server.
fn crossings(ask: &Ask<'_>) -> f64 {
    let domains = f64::from(ask.shape().domains);
    match (ask.shape().domains, ask.collective) {
        (1, _) => 0.0,
        (_, Collective::AllReduce) => 2.0 * (domains - 1.0),
        (_, Collective::AllGather | Collective::ReduceScatter) => domains - 1.0,
        _ => domains,
    }
}

/// What the ways between servers add. Of n edges a chunk passes all but one, in an all-reduce all
/// twice but for two: those are inside a server where it has edges enough.
fn ways_s(ask: &Ask<'_>, protocol: Protocol) -> f64 {
    let shape = ask.shape();
    if shape.domains == 1 {
        return 0.0;
    }
    let rounds = if ask.collective == Collective::AllReduce { 2.0 } else { 1.0 };
    let constant = constants::net_latency_us(ask.settings, shape, Family::Ring, protocol);
    let round = Ways::of(ask).round(1);
    let crossed = match shape.per_domain {
        1 => round.passed_s(rounds),
        // One of the two that an all-reduce spares is inside a server.
        2 if rounds == 2.0 => rounds * round.sum_s - round.shortest_s,
        _ => rounds * round.sum_s,
    };
    beyond_constants_s(crossed, crossings(ask), constant)
}

/// The ring of one channel: its hops, and their connections from `first` on.
struct RingOnSheet<'a> {
    first: ConnectionId,
    hops: &'a [Hop],
}

impl RingOnSheet<'_> {
    fn fold(&self, ask: &Ask<'_>, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let start = sheet.start;
        sheet.edges.clear();
        match self.chain(ask.collective) {
            Some(edges) => sheet.edges.extend(edges.flatten().map(|at| nth(self.first, at))),
            None => sheet.edges.extend((0..self.hops.len()).map(|at| nth(self.first, at))),
        }
        let op = sheet.couple(edge_bytes(ask, bytes), plan.fill(), &[start]);
        sheet.end(op);
    }

    /// The edges of a chain that begins or ends at rank 0, which is the root; `None` for those
    /// that go all the way round.
    fn chain(
        &self,
        collective: Collective,
    ) -> Option<impl Iterator<Item = std::ops::Range<usize>> + use<>> {
        let skipped = match collective {
            Collective::Broadcast => 0,
            Collective::Reduce => 1,
            _ => return None,
        };
        let edges: Vec<std::ops::Range<usize>> = edges(self.hops).collect();
        let root = edges.iter().position(|edge| self.hops[edge.start].rank == 0);
        let first = root.expect("rank 0 is on the ring") + skipped;
        let count = edges.len();
        Some((0..count - 1).map(move |at| edges[(first + at) % count].clone()))
    }

    fn step(&self, ask: &Ask<'_>, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let ids = |hops: std::ops::Range<usize>| hops.map(|at| nth(self.first, at)).collect();
        match self.chain(ask.collective) {
            Some(edges) => {
                let edges: Vec<Vec<ConnectionId>> = edges.map(ids).collect();
                chain(ask, &edges, plan, bytes, sheet);
            }
            None => {
                let edges: Vec<Vec<ConnectionId>> = edges(self.hops).map(ids).collect();
                let (steps, shift) = match ask.collective {
                    Collective::AllReduce => (2 * (edges.len() - 1), 0),
                    Collective::ReduceScatter => (edges.len() - 1, 1),
                    _ => (edges.len() - 1, 0),
                };
                let mut ends = Vec::new();
                let start = sheet.start;
                Round { steps, shift, bytes }.write(&edges, plan, sheet, start, &mut ends);
                ends.into_iter().for_each(|op| sheet.end(op));
            }
        }
    }
}

/// The hops of each edge: those of one rank's way to the next.
fn edges(hops: &[Hop]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut first = 0;
    hops.iter().enumerate().filter(|(_, hop)| hop.arrives).map(move |(at, _)| {
        let edge = first..at + 1;
        first = at + 1;
        edge
    })
}

/// The steps of a ring that goes round: at step `t` position `p` sends chunk `p − shift − t`.
///
/// An all-reduce is 2(n−1) of them, an all-gather n−1; a reduce-scatter is shifted by one, so
/// that every position ends with its own chunk.
pub(super) struct Round {
    pub(super) steps: usize,
    pub(super) shift: usize,
    pub(super) bytes: u64,
}

impl Round {
    pub(super) fn write(
        &self,
        edges: &[Vec<ConnectionId>],
        plan: &Plan,
        sheet: &mut Sheet<'_>,
        after: OpId,
        ends: &mut Vec<OpId>,
    ) {
        let ranks = edges.len();
        let slices = plan.slices as usize;
        let mut flow = Flow::new(ranks, after);
        let mut arrived: Vec<OpId> = vec![after; ranks * slices];
        let mut next = arrived.clone();
        for loop_bytes in loops(self.bytes, plan.chunk.get().max(1) * ranks as u64) {
            for step in 0..self.steps {
                for position in 0..ranks {
                    let chunk = (position + 2 * ranks - self.shift - step % ranks) % ranks;
                    let chunk = part(loop_bytes, ranks as u64, chunk as u64);
                    let before = (position + ranks - 1) % ranks;
                    for slice in 0..slices {
                        let from = arrived[before * slices + slice];
                        let from = (step != 0).then_some(from);
                        let bytes = part(chunk, slices as u64, slice as u64);
                        let op =
                            flow.send(sheet, position, &edges[position], bytes, from.as_slice());
                        next[position * slices + slice] = op;
                    }
                }
                std::mem::swap(&mut arrived, &mut next);
            }
        }
        ends.extend(arrived);
    }
}

/// Broadcast and reduce: chunks follow each other down a chain.
fn chain(
    ask: &Ask<'_>,
    edges: &[Vec<ConnectionId>],
    plan: &Plan,
    bytes: u64,
    sheet: &mut Sheet<'_>,
) {
    let mut flow = Flow::of_slices(edges.len(), sheet.start, under_way(ask, plan));
    for slice_bytes in loops(bytes, slice(plan)) {
        let mut arrived: Option<OpId> = None;
        for (edge, hops) in edges.iter().enumerate() {
            arrived = Some(flow.send(sheet, edge, hops, slice_bytes, arrived.as_slice()));
        }
        arrived.into_iter().for_each(|last| sheet.end(last));
    }
}

/// Lines with flags are passed on one by one; written out step by step, so many bytes at a time.
const BUNDLE: u64 = 8 << 10;

/// What a chain or tree passes on at once.
pub(super) fn slice(plan: &Plan) -> u64 {
    match plan.protocol {
        Protocol::Simple => (plan.chunk.get() / u64::from(plan.slices)).max(1),
        Protocol::Ll | Protocol::Ll128 => BUNDLE,
    }
}

/// How many of them fit the buffer of a channel.
pub(super) fn under_way(ask: &Ask<'_>, plan: &Plan) -> usize {
    match plan.protocol {
        Protocol::Simple => SLICES,
        Protocol::Ll | Protocol::Ll128 => {
            (constants::buffer(ask.settings, plan.protocol).get() / BUNDLE) as usize
        }
    }
}

/// Splits bytes into loops of at most `most`; nothing is one empty loop.
pub(super) fn loops(bytes: u64, most: u64) -> impl Iterator<Item = u64> {
    let count = bytes.div_ceil(most).max(1);
    (0..count).map(move |at| (bytes - at * most).min(most))
}

/// How many loops [`loops`] makes.
pub(super) fn chunks(bytes: u64, most: u64) -> f64 {
    bytes.div_ceil(most.max(1)).max(1) as f64
}
