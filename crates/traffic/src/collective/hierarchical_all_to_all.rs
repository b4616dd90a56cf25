//! Hierarchical all-to-all: first inside domains by the receiver's rail, then along the rails.
//!
//! Every rank first hands to each rank of its own domain what is meant for that rank's rail in any
//! domain; then each rank sends what it has collected to its counterparts: m times larger
//! messages, and n·(d−1) of them instead of n·(n−m). The bytes on NICs are those of the pairwise
//! all-to-all with PXN; what differs is that the second phase waits for the first.
//!
//! Source: the two-dimensional all-to-all of Tutel (arXiv 2206.03382) and DeepSpeed-MoE. Departure:
//! phases are separated by all ranks of a domain, not by chunks.

use units::Bytes;

use super::communicator::ScaleUp;
use super::ring::{chunks, loops};
use super::writer::{Detail, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::{Family, Offer, Plan, Protocol, constants};
use crate::transfers::OpId;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct HierarchicalAllToAll;

impl Algorithm for HierarchicalAllToAll {
    fn name(&self) -> &'static str {
        "hierarchical_all_to_all"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let shape = ask.shape();
        let splits = 1 < shape.domains && 1 < shape.per_domain && shape.is_uniform();
        ask.collective == Collective::AllToAll && splits
    }

    fn offer(&self, _: &Ask<'_>, _: Protocol) -> Option<Offer> {
        None // It is run when it is named.
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        1
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        ask.settings.p2p_net_chunk
    }

    fn phases(&self, ask: &Ask<'_>, _: &Plan) -> Vec<Phase> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let bytes = ask.bytes.as_f64() * ask.hottest();
        let (ranks, members) = (f64::from(shape.ranks), f64::from(shape.per_domain));
        let inside = bytes * (members - 1.0) / members;
        let away = bytes * (ranks - members) / ranks;
        let hop = constants::hop_latency_us(settings, shape, Family::Ring, Protocol::Simple);
        let net = constants::net_latency_us(settings, shape, Family::Ring, Protocol::Simple);
        let base = constants::base_latency_us(settings, Family::Ring, Protocol::Simple);
        vec![
            Phase {
                scale_up: inside,
                mesh_link: match shape.scale_up {
                    ScaleUp::Mesh => bytes / members,
                    ScaleUp::Absent | ScaleUp::Switched => 0.0,
                },
                latency_s: 1e-6 * (base + hop),
                ..Phase::default()
            },
            Phase {
                nic: away * members / f64::from(shape.rails),
                net_efficiency: super::all_to_all::net_share(ask),
                latency_s: 1e-6 * (base + net) + super::all_to_all::ways_s(ask),
                first_message: bytes * members / ranks,
                new_connections: 1.0,
                ..Phase::default()
            },
        ]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let shape = ask.shape();
        let [domains, members] = [shape.domains, shape.per_domain];
        let messages = |to: u32, most: Bytes| {
            f64::from(to - 1) * chunks(ask.bytes.get() / u64::from(to), most.get())
        };
        let inside = messages(members, ask.settings.p2p_scale_up_chunk);
        f64::from(shape.ranks) * (inside + messages(domains, plan.chunk))
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let (domains, members) = (communicator.domains(), ask.shape().per_domain as usize);
        let rank = |domain: usize, local: usize| communicator.members(domain)[local];
        let gpu = |domain: usize, local: usize| communicator.gpu(rank(domain, local));
        let lanes = ask.shape().nics_per_gpu();
        let first = sheet.open("hierarchical_all_to_all", 1, |opening| {
            for domain in 0..domains {
                for (from, to) in pairs(members) {
                    opening.connect(gpu(domain, from), gpu(domain, to), 0);
                }
            }
            for local in 0..members {
                for (from, to) in pairs(domains) {
                    for lane in 0..lanes {
                        let nic = |at: usize| communicator.nic(fabric, rank(at, local), lane);
                        opening.connect(nic(from), nic(to), lane);
                    }
                }
            }
        });
        // What a rank has for a rail, in all domains.
        let to_rail = |from: u32, local: usize| -> u64 {
            (0..domains).map(|domain| ask.bytes_between(from, rank(domain, local))).sum()
        };
        // What a domain has for a rank.
        let to_rank = |domain: usize, to: u32| -> u64 {
            communicator.members(domain).iter().map(|&from| ask.bytes_between(from, to)).sum()
        };
        let mut at = 0;
        let mut collected: Vec<OpId> = Vec::with_capacity(domains);
        for domain in 0..domains {
            let mut ops = Vec::new();
            for (from, to) in pairs(members) {
                let chunk = ask.settings.p2p_scale_up_chunk;
                let bytes = to_rail(rank(domain, from), to);
                message(sheet, nth(first, at), bytes, chunk, sheet.start, &mut ops);
                at += 1;
            }
            collected.push(sheet.join(&ops));
        }
        let mut ends = Vec::new();
        for local in 0..members {
            for (from, to) in pairs(domains) {
                let bytes = to_rank(from, rank(to, local));
                for lane in 0..lanes {
                    let bytes = part(bytes, lanes.into(), lane.into());
                    message(sheet, nth(first, at), bytes, plan.chunk, collected[from], &mut ends);
                    at += 1;
                }
            }
        }
        ends.into_iter().for_each(|op| sheet.end(op));
    }
}

/// All ordered pairs of different ones.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    let all = (0..count).flat_map(move |from| (0..count).map(move |to| (from, to)));
    all.filter(|(from, to)| from != to)
}

/// One message, or its chunks one after the other.
pub(super) fn message(
    sheet: &mut Sheet<'_>,
    on: crate::transfers::ConnectionId,
    bytes: u64,
    chunk: Bytes,
    after: OpId,
    ends: &mut Vec<OpId>,
) {
    match sheet.detail {
        Detail::Folded => ends.push(sheet.send(on, bytes, &[after])),
        Detail::Stepwise => {
            let mut flow = super::writer::Flow::of_sends(1, after);
            for bytes in loops(bytes, chunk.get()) {
                ends.push(flow.send(sheet, 0, &[on], bytes, &[]));
            }
        }
    }
}
