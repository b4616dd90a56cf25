//! Expert-parallel dispatch and combine as DeepEP's low-latency kernels do them.
//!
//! Every copy of a token goes straight to the GPU of its expert: over NVLink inside a server, over
//! RDMA from the sender's own NIC to the receiver's between servers, whatever their rails. Nothing
//! is forwarded and nothing is sent once for several experts, so there is one step of latency and
//! `top_k` copies on the wire.
//!
//! A dispatch sends FP8 and with every 128 values their scale, which is 4 bytes; bytes are counted
//! without scales, as a job counts its tokens.
//!
//! Source: DeepEP (README, `csrc/kernels/internode_ll.cu`), whose published 98 · 10⁹ bytes per
//! second on eight ranks show that NVLink is used where there is one. Departure: headers (16 bytes
//! of a message) are not counted; experts are equally likely.

use units::Bytes;

use super::communicator::{Pxn, ScaleUp};
use super::hierarchical_all_to_all::message;
use super::ring::chunks;
use super::writer::{Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase};
use crate::nccl::constants::hop_latency_us;
use crate::nccl::route::Ways;
use crate::nccl::{Family, Offer, Plan, Protocol};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct MoeLowLatency;

impl Algorithm for MoeLowLatency {
    fn name(&self) -> &'static str {
        "moe_low_latency"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        use Collective::{MoeCombineLowLatency, MoeDispatchLowLatency};
        matches!(ask.collective, MoeDispatchLowLatency | MoeCombineLowLatency)
    }

    fn offer(&self, _: &Ask<'_>, _: Protocol) -> Option<Offer> {
        None // The only way to run these.
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        1
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        ask.settings.p2p_net_chunk
    }

    fn phases(&self, ask: &Ask<'_>, _: &Plan) -> Vec<Phase> {
        let shape = ask.shape();
        let bytes = with_scales(ask, ask.bytes.get()) as f64;
        let (ranks, members) = (f64::from(shape.ranks), f64::from(shape.per_domain));
        let mesh = shape.scale_up == ScaleUp::Mesh;
        vec![Phase {
            scale_up: bytes * (members - 1.0) / ranks,
            mesh_link: if mesh { bytes / ranks } else { 0.0 },
            nic: bytes * (ranks - members) / ranks * shape.gpus_per_nic(),
            efficiency: super::moe::copy_efficiency(ask.settings),
            // Its kernels post and poll themselves: between servers the way is all.
            latency_s: ask.settings.low_latency_overhead.as_secs_f64()
                + match shape.domains {
                    1 => 1e-6 * hop_latency_us(ask.settings, shape, Family::Ring, Protocol::Simple),
                    _ => Ways::of(ask).farthest_s(),
                },
            first_message: bytes / ranks,
            new_connections: 1.0,
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let ranks = ask.shape().ranks;
        let each = chunks(ask.bytes.get() / u64::from(ranks), plan.chunk.get());
        f64::from(ranks) * f64::from(ranks - 1) * each
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let ranks = communicator.ranks() as u32;
        let pairs = move || {
            let all = (0..ranks).flat_map(move |from| (0..ranks).map(move |to| (from, to)));
            all.filter(|(from, to)| from != to)
        };
        let first = sheet.open("moe_low_latency", 1, |opening| {
            let mut hops = Vec::new();
            for (from, to) in pairs() {
                communicator.path(fabric, from, to, Pxn::Disabled, &mut hops);
                opening.connect(hops[0].from, hops[0].to, 0);
            }
        });
        let mut ends = Vec::new();
        for (at, (_, to)) in pairs().enumerate() {
            let bytes = with_scales(ask, ask.bytes_to(to));
            message(sheet, nth(first, at), bytes, plan.chunk, sheet.start, &mut ends);
        }
        ends.into_iter().for_each(|op| sheet.end(op));
    }
}

/// What is on the wire of so many bytes of tokens.
fn with_scales(ask: &Ask<'_>, bytes: u64) -> u64 {
    match ask.collective {
        Collective::MoeDispatchLowLatency => bytes + bytes / 32,
        _ => bytes,
    }
}
