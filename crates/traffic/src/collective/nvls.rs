//! NVLS: reduction and multicast in the scale-up switch, inside one domain.
//!
//! Each rank is the head of 1/m of the data. To reduce it, the head reads it through the switch,
//! which fetches it from all m ranks and adds it up: every rank sends its copy up, one sum comes
//! down. To hand it out, the head writes it once and the switch copies it to all. So in an
//! all-reduce every GPU sends (1 + 1/m) of the data and receives as much, where a ring needs
//! 2(m−1)/m: at m = 8 that is 1.56 times less, of which the switch reaches 85 % on Hopper
//! (`nvlsEfficiency`). Bus bandwidth, which counts a ring's bytes, can so pass the link rate.
//!
//! # Why its curve rises so late
//!
//! A step costs 25 µs whatever its size, seven times a ring's hop, so below a megabyte rings with
//! flags win. Above that the data passes three stages (copied into the multicast buffer, reduced
//! and multicast, copied out) in rounds of one chunk for each channel and head: 16 · 8 chunks of
//! 16 to 128 KiB, 2 to 16 MiB. Two rounds pass before all stages are busy, and as NCCL takes
//! larger chunks for larger messages (64 KiB from 64 MiB on, 128 KiB from 1 GiB on), the fill stays
//! at a tenth of the time of a 128 MiB message.
//!
//! Source: NCCL `src/transport/nvls.cc`, `src/enqueue.cc` (chunks), `src/graph/tuning.cc`.
//! Departure: the switches of a domain are one; the three stages take equally long.

use units::Bytes;

use super::communicator::{ScaleUp, Shape};
use super::ring::{chunks, loops};
use super::writer::{Detail, Flow, Opening, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::{Family, Offer, Plan, Protocol, Usage, Version, constants};
use crate::transfers::{ConnectionId, OpId};
use fabric::{Fabric, NodeId, NodeKind};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Nvls;

/// In domains of up to so many GPUs bus bandwidth is what the bytes on the links say: 72 GB200
/// reach no more of it (839 GB/s, NCCL 2.26) than eight B200.
const FULL_GAIN: f64 = 8.0;

/// `NCCL_MAX_NVLS_ARITY`.
const MOST_HEADS: u32 = 32;

/// GPUs that read sums from the switch.
pub(super) fn heads(shape: &Shape) -> u64 {
    shape.per_domain.min(MOST_HEADS).into()
}

/// Rounds until copying in, reducing and copying out all are busy.
pub(super) const FILL_ROUNDS: f64 = 2.0;

impl Algorithm for Nvls {
    fn name(&self) -> &'static str {
        "nvls"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        use Collective::{AllGather, AllReduce, ReduceScatter};
        // From 2.19 on it also gathers and scatters.
        let old = ask.settings.version < Version::V2_19;
        let serves = match ask.collective {
            AllReduce => true,
            AllGather | ReduceScatter => !old,
            _ => false,
        };
        serves && ask.shape().domains == 1 && 2 < ask.shape().ranks && is_available(ask)
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        if protocol != Protocol::Simple {
            return None;
        }
        let (shape, settings) = (ask.shape(), ask.settings);
        Some(Offer {
            bandwidth: inside_bus_bandwidth(ask)? * ratio(ask),
            latency_us: constants::hop_latency_us(settings, shape, Family::Nvls, protocol),
        })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        constants::nvls_channels(ask.settings, ask.shape())
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, channels: u32) -> Bytes {
        // NCCL src/enqueue.cc: less than `NCCL_NVLS_CHUNKSIZE` for smaller messages.
        let concurrent = u64::from(channels) * heads(ask.shape());
        let mut chunk = constants::nvls_chunk(ask.settings, ask.shape());
        for (times, smaller) in [(64, 64 << 10), (8, 32 << 10), (2, 16 << 10)] {
            if ask.bytes.get() < times * concurrent * chunk && smaller < chunk {
                chunk = smaller;
            }
        }
        Bytes::new(chunk)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let latency = constants::hop_latency_us(settings, shape, Family::Nvls, Protocol::Simple);
        let scale_up = inside_bytes(ask);
        vec![Phase {
            scale_up,
            efficiency: efficiency(ask),
            latency_s: 1e-6 * latency,
            drain_s: fill_s(ask, plan, scale_up),
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let members = u64::from(ask.shape().per_domain);
        let halves = if ask.collective == Collective::AllReduce { 2 } else { 1 };
        let edges = (halves * (members + 1)) as f64;
        members as f64 * edges * chunks(ask.bytes.get() / members, most(plan))
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let members = ask.shape().per_domain as usize;
        let first = sheet.open("nvls", 1, |opening| {
            for head in 0..members {
                let gpus: Vec<NodeId> =
                    communicator.members(0).iter().map(|&rank| communicator.gpu(rank)).collect();
                open_head(fabric, &gpus, head, head as u32, opening);
            }
        });
        for head in 0..members {
            let bytes = part(ask.bytes.get(), members as u64, head as u64);
            let edges = HeadEdges::new(nth(first, head * per_head(members)), members);
            let (start, used) = (sheet.start, edges.used(ask.collective));
            match sheet.detail {
                Detail::Folded => {
                    sheet.edges.clear();
                    sheet.edges.extend(used);
                    let op = sheet.couple(bytes, plan.fill(), &[start]);
                    sheet.end(op);
                }
                Detail::Stepwise => edges.step(ask.collective, plan, bytes, sheet),
            }
        }
    }
}

/// Whether the ranks' switch can reduce and the software may use it.
pub(super) fn is_available(ask: &Ask<'_>) -> bool {
    ask.shape().scale_up == ScaleUp::Switched
        && ask.settings.nvls == Usage::Enabled
        && ask.settings.architecture.nvls_efficiency().is_some()
}

/// What the software reaches of the links' rate. The bus bandwidth of an all-reduce is at most
/// that of eight GPUs, so in larger domains, whose switch needs fewer bytes for it, less of theirs.
pub(super) fn efficiency(ask: &Ask<'_>) -> f64 {
    let shape = ask.shape();
    let whole = ask.settings.architecture.nvls_efficiency().unwrap_or(1.0);
    let fed = if 1 < shape.domains { ask.settings.nvls_network_share } else { 1.0 };
    // Bytes of a ring for each byte on a GPU's links.
    let gain = |heads: f64| 2.0 * (heads - 1.0) / (heads + 1.0);
    let members = f64::from(shape.per_domain);
    let large = match ask.collective {
        Collective::AllReduce if FULL_GAIN < members => gain(FULL_GAIN) / gain(members),
        _ => 1.0,
    };
    whole * fed * large
}

/// What NCCL expects of the switch: `tuning.cc` takes one of the heads' channels off, and counts
/// an all-reduce's two halves twice because they are pipelined. Before 2.28 it took the links as
/// they are, and 5/6 of that ([`ratio`]).
pub(super) fn inside_bus_bandwidth(ask: &Ask<'_>) -> Option<f64> {
    let (shape, version) = (ask.shape(), ask.settings.version);
    let heads = f64::from(shape.per_domain);
    let links = constants::scale_up_bandwidth(ask.settings, shape)?;
    if version < Version::V2_28 {
        let share = match (ask.collective, version) {
            (Collective::AllGather | Collective::ReduceScatter, Version::V2_27) => {
                (heads - 1.0) / heads
            }
            _ => 1.0,
        };
        return Some(links * share);
    }
    let whole = ask.settings.architecture.nvls_efficiency().unwrap_or(1.0);
    let twice = match ask.collective {
        Collective::AllReduce => 2.0,
        _ => (heads - 1.0) / heads,
    };
    Some(links * whole * (heads - 1.0) / heads * twice)
}

/// From bus to algorithm bandwidth, as NCCL does it.
pub(super) fn ratio(ask: &Ask<'_>) -> f64 {
    let ranks = f64::from(ask.shape().ranks);
    let version = ask.settings.version;
    match ask.collective {
        Collective::AllReduce if version < Version::V2_28 => 5.0 / 6.0,
        Collective::AllReduce => ranks / (2.0 * (ranks - 1.0)),
        _ if version < Version::V2_23 => 5.0 / 6.0,
        _ => 1.0,
    }
}

/// Bytes through the busier direction of each GPU's links.
pub(super) fn inside_bytes(ask: &Ask<'_>) -> f64 {
    let heads = f64::from(ask.shape().per_domain);
    match ask.collective {
        Collective::AllReduce => ask.bytes.as_f64() * (1.0 + 1.0 / heads),
        _ => ask.bytes.as_f64(),
    }
}

/// Seconds until all stages are busy.
pub(super) fn fill_s(ask: &Ask<'_>, plan: &Plan, inside: f64) -> f64 {
    let heads = heads(ask.shape()) as f64;
    let round = (plan.chunk.as_f64() * heads * f64::from(plan.channels)).min(ask.bytes.as_f64());
    let links = constants::scale_up_bandwidth(ask.settings, ask.shape()).unwrap_or(1.0);
    let whole = inside / (1e9 * links * efficiency(ask));
    FILL_ROUNDS * whole * round / ask.bytes.as_f64().max(1.0)
}

/// The scale-up switch of a GPU.
pub(super) fn switch_of(fabric: &Fabric, gpu: NodeId) -> NodeId {
    let ends = fabric.ports(gpu).iter().map(|&link| fabric.links()[link].to);
    let mut switches = ends.filter(|&to| fabric.nodes()[to].kind == NodeKind::ScaleUpSwitch);
    switches.next().expect("a switched domain has a switch")
}

/// Opens the connections of one head: everybody's way up, the sum's way down to the head, the
/// head's way up, everybody's way down.
pub(super) fn open_head(
    fabric: &Fabric,
    gpus: &[NodeId],
    head: usize,
    channel: u32,
    opening: &mut Opening<'_>,
) {
    let switch = switch_of(fabric, gpus[head]);
    for &gpu in gpus {
        opening.connect(gpu, switch, channel);
    }
    opening.connect(switch, gpus[head], channel);
    opening.connect(gpus[head], switch, channel);
    for &gpu in gpus {
        opening.connect(switch, gpu, channel);
    }
}

/// What goes through a head at once.
pub(super) fn most(plan: &Plan) -> u64 {
    plan.chunk.get().max(1) * u64::from(plan.channels)
}

/// How many connections [`open_head`] opens.
pub(super) fn per_head(members: usize) -> usize {
    2 * members + 2
}

/// The connections of one head.
pub(super) struct HeadEdges {
    first: ConnectionId,
    members: usize,
}

impl HeadEdges {
    pub(super) fn new(first: ConnectionId, members: usize) -> Self {
        Self { first, members }
    }

    fn edge(&self, at: usize) -> ConnectionId {
        nth(self.first, at)
    }

    /// Those that a collective uses: the reducing half, the multicasting half, or both.
    pub(super) fn used(
        &self,
        collective: Collective,
    ) -> impl Iterator<Item = ConnectionId> + use<> {
        let (first, half) = (self.first, self.members + 1);
        let range = match collective {
            Collective::AllGather => half..2 * half,
            Collective::ReduceScatter => 0..half,
            _ => 0..2 * half,
        };
        range.map(move |at| nth(first, at))
    }

    /// One chunk is sent up by all and comes down to the head as a sum.
    pub(super) fn reduce(
        &self,
        flow: &mut Flow,
        offset: usize,
        bytes: u64,
        after: &[OpId],
        sheet: &mut Sheet<'_>,
    ) -> OpId {
        let ups: Vec<OpId> = (0..self.members)
            .map(|at| flow.send(sheet, offset + at, &[self.edge(at)], bytes, after))
            .collect();
        flow.send(sheet, offset + self.members, &[self.edge(self.members)], bytes, &ups)
    }

    /// One chunk is sent up by the head and comes down to all.
    pub(super) fn multicast(
        &self,
        flow: &mut Flow,
        offset: usize,
        bytes: u64,
        after: &[OpId],
        sheet: &mut Sheet<'_>,
    ) -> Vec<OpId> {
        let at = self.members + 1;
        let up = flow.send(sheet, offset + at, &[self.edge(at)], bytes, after);
        let downs = (at + 1..at + 1 + self.members)
            .map(|at| flow.send(sheet, offset + at, &[self.edge(at)], bytes, &[up]));
        downs.collect()
    }

    fn step(&self, collective: Collective, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let mut flow = Flow::new(per_head(self.members), sheet.start);
        for bytes in loops(bytes, most(plan)) {
            let mut ends = Vec::new();
            if collective != Collective::AllGather {
                ends = vec![self.reduce(&mut flow, 0, bytes, &[], sheet)];
            }
            if collective != Collective::ReduceScatter {
                ends = self.multicast(&mut flow, 0, bytes, &ends, sheet);
            }
            ends.into_iter().for_each(|op| sheet.end(op));
        }
    }
}
