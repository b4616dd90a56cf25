//! All-pairs all-reduce: RCCL's kernels for small messages on a full mesh of eight GPUs.
//!
//! Every GPU sends each other one its eighth over the link between them, adds up what it gets of
//! its own eighth, and sends the sum to all: two steps instead of a ring's fourteen. RCCL takes
//! them from its MSCCL algorithm files: lines with flags (LL) below 512 KiB, the simple protocol up
//! to 16 MiB; rings and trees beyond.
//!
//! With the simple protocol a workgroup that has sent its part then copies what has come from its
//! peer out of the channel's buffer, and after the first step it adds up an eighth of that from
//! each of the seven others, all one after the other. A pass of a workgroup over local memory has
//! 256 threads with two loads of 16 bytes under way. With LL a line is used as soon as it is there.
//!
//! Source: RCCL at 0cbce2a, `tools/msccl-algorithms/allreduce-allpairs-8n-*.xml` (sizes, protocols,
//! channels, order of the steps; the out-of-place ones), `src/device/msccl_kernel_impl.h` and
//! `src/include/device.h` (unrolled twice, 256 threads), `src/graph/tuning.cc` (latencies); Chips
//! and Cheese, "Testing AMD's giant MI300X", for the latency of its memory (from memory).
//! Departure: on MI325X and MI355X, whose memory is about as far away, the same.

use units::Bytes;

use super::communicator::ScaleUp;
use super::writer::{Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::{Architecture, Family, Offer, Plan, Protocol, constants};
use crate::transfers::OpId;

/// The files are for eight GPUs.
const RANKS: u32 = 8;

/// From this size on the simple protocol (`minBytes` of the file).
const SIMPLE_FROM: Bytes = Bytes::from_kib(512);

/// Larger ones are left to rings and trees (`maxBytes`).
const LARGEST: Bytes = Bytes::from_mib(16);

/// What flags with every eight bytes leave of a link.
const LL_SHARE: f64 = 0.5;

/// A pass of one workgroup over local memory, in bytes per second: 256 threads with two loads of 16
/// bytes each in 350 ns.
const PASS_RATE: f64 = 256.0 * 2.0 * 16.0 / 350e-9;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct AllPairs;

impl Algorithm for AllPairs {
    fn name(&self) -> &'static str {
        "all-pairs"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let shape = ask.shape();
        let mesh = shape.scale_up == ScaleUp::Mesh && shape.domains == 1 && shape.ranks == RANKS;
        let rccl = ask.settings.architecture == Architecture::Cdna3;
        mesh && rccl && ask.collective == Collective::AllReduce
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        let of_file = if ask.bytes < SIMPLE_FROM { Protocol::Ll } else { Protocol::Simple };
        if LARGEST < ask.bytes || protocol != of_file {
            return None;
        }
        let link = ask.shape().mesh_link_rate?.bytes_per_s() * ask.settings.scale_up_share();
        let bandwidth = link * share(protocol) * f64::from(RANKS) / 2.0 / 1e9;
        Some(Offer { bandwidth, latency_us: latency_us(ask, protocol) })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        if ask.bytes <= Bytes::from_kib(64) { 4 } else { 8 }
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        Bytes::new(ask.bytes.get().div_ceil(RANKS.into()))
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let each = ask.bytes.as_f64() / f64::from(RANKS);
        let step = Phase {
            scale_up: each * f64::from(RANKS - 1),
            mesh_link: each,
            efficiency: share(plan.protocol),
            ..Phase::default()
        };
        let passes_s = passes(plan.protocol) * each / f64::from(plan.channels) / PASS_RATE;
        let latency_s = 1e-6 * latency_us(ask, plan.protocol) + passes_s;
        vec![Phase { latency_s, ..step }, step]
    }

    fn operations(&self, _: &Ask<'_>, _: &Plan) -> f64 {
        2.0 * f64::from(RANKS * (RANKS - 1)) + f64::from(RANKS)
    }

    fn write(&self, ask: &Ask<'_>, _: &Plan, sheet: &mut Sheet<'_>) {
        let communicator = ask.communicator;
        let peers = |rank: u32| (1..RANKS).map(move |step| (rank + step) % RANKS);
        let first = sheet.open("all-pairs", 1, |opening| {
            for from in 0..RANKS {
                for to in peers(from) {
                    opening.connect(communicator.gpu(from), communicator.gpu(to), 0);
                }
            }
        });
        let on = |from: u32, at: usize| nth(first, (from * (RANKS - 1)) as usize + at);
        let bytes = |rank: u32| part(ask.bytes.get(), RANKS.into(), rank.into());
        let mut arrived: Vec<Vec<OpId>> = vec![Vec::new(); RANKS as usize];
        for from in 0..RANKS {
            for (at, to) in peers(from).enumerate() {
                let op = sheet.send(on(from, at), bytes(to), &[sheet.start]);
                arrived[to as usize].push(op);
            }
        }
        for from in 0..RANKS {
            let added_up = sheet.join(&arrived[from as usize]);
            for at in 0..(RANKS - 1) as usize {
                let op = sheet.send(on(from, at), bytes(from), &[added_up]);
                sheet.end(op);
            }
        }
    }
}

/// What a protocol leaves of a link.
fn share(protocol: Protocol) -> f64 {
    if protocol == Protocol::Simple { 1.0 } else { LL_SHARE }
}

/// How often a workgroup goes over its part in local memory: two copies out of the buffer, and
/// seven additions of an eighth.
fn passes(protocol: Protocol) -> f64 {
    if protocol == Protocol::Simple { 2.0 + f64::from(RANKS - 1) / f64::from(RANKS) } else { 0.0 }
}

/// Two hand-overs.
fn latency_us(ask: &Ask<'_>, protocol: Protocol) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    constants::base_latency_us(settings, Family::Ring, protocol)
        + 2.0 * constants::hop_latency_us(settings, shape, Family::Ring, protocol)
}
