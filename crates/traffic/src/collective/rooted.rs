//! Gather and scatter: every rank sends its part to the root, or gets its part from it.
//!
//! NCCL runs them as grouped sends and receives (`ncclGather` and `ncclScatter` of 2.28 and
//! nccl-tests' `gather_perf` and `scatter_perf` alike). All peers are under way at once. Between
//! domains PXN leads a message over NVLink to the GPU on the receiver's rail: what is gathered all
//! arrives at the root's own NIC, what is scattered leaves by all NICs of the root's server. The
//! root is rank 0, as in nccl-tests. Of a GPU's several NICs each carries its share.
//!
//! Source: NCCL `src/enqueue.cc` (p2p), `src/collectives.cc`; nccl-tests `src/gather.cu`,
//! `src/scatter.cu`. Departure: no limit of peers at a time; folded, a message on the network does
//! not wait for the hop over NVLink before it.

use std::collections::BTreeMap;

use fabric::NodeId;
use units::Bytes;

use super::all_to_all::{latency_us, ways_s};
use super::communicator::{Hop, ScaleUp};
use super::ring::{chunks, loops};
use super::writer::{Detail, Flow, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::{Offer, Plan, Protocol};
use crate::transfers::ConnectionId;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Rooted;

/// Who has everything before a scatter and after a gather.
const ROOT: u32 = 0;

impl Algorithm for Rooted {
    fn name(&self) -> &'static str {
        "rooted"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        matches!(ask.collective, Collective::Gather | Collective::Scatter)
    }

    fn offer(&self, _: &Ask<'_>, _: Protocol) -> Option<Offer> {
        None // NCCL has no table for sends: this is the only way.
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        1
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        ask.settings.p2p_net_chunk
    }

    fn phases(&self, ask: &Ask<'_>, _: &Plan) -> Vec<Phase> {
        let shape = ask.shape();
        // By node: what it sends and what it receives; by pair of GPUs: what goes over its link.
        let mut loads: BTreeMap<NodeId, [f64; 2]> = BTreeMap::new();
        let mut pairs: BTreeMap<[NodeId; 2], f64> = BTreeMap::new();
        for_each_hop(ask, |Hop { from, to, .. }, _, bytes| {
            loads.entry(from).or_default()[0] += bytes as f64;
            loads.entry(to).or_default()[1] += bytes as f64;
            *pairs.entry([from, to]).or_default() += bytes as f64;
        });
        let is_nic = |node: NodeId| ask.fabric.nic_number(node).is_some();
        let busiest = |of_nics: bool| {
            let own = loads.iter().filter(|(node, _)| is_nic(**node) == of_nics);
            own.flat_map(|(_, both)| both).fold(0.0, |most: f64, bytes| most.max(*bytes))
        };
        let inside = pairs.iter().filter(|([from, _], _)| !is_nic(*from));
        vec![Phase {
            scale_up: busiest(false),
            mesh_link: match shape.scale_up {
                ScaleUp::Mesh => inside.fold(0.0, |most, (_, bytes)| most.max(*bytes)),
                ScaleUp::Absent | ScaleUp::Switched => 0.0,
            },
            nic: busiest(true),
            latency_s: 1e-6 * latency_us(ask) + ways_s(ask),
            first_message: ask.bytes.as_f64() / f64::from(shape.ranks),
            new_connections: 1.0,
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let mut all = 0.0;
        for_each_hop(ask, |_, crosses, bytes| {
            all += chunks(bytes, chunk(ask, plan, crosses));
        });
        all
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let mut edges: Vec<(usize, bool, u64)> = Vec::new();
        let first = sheet.open(name(ask.collective), 1, |opening| {
            for_each_hop(ask, |Hop { from, to, .. }, _, _| opening.connect(from, to, 0));
        });
        let mut hops = 0;
        for_each_hop(ask, |Hop { arrives, .. }, crosses, bytes| {
            hops += 1;
            if arrives {
                edges.push((hops, crosses, bytes));
                hops = 0;
            }
        });
        let start = sheet.start;
        let mut flow = Flow::of_sends(edges.len(), start);
        let mut at = 0;
        for (edge, (hops, crosses, bytes)) in edges.into_iter().enumerate() {
            let ids: Vec<ConnectionId> = (at..at + hops).map(|at| nth(first, at)).collect();
            at += hops;
            match sheet.detail {
                Detail::Folded => {
                    for id in ids.into_iter().filter(|_| 0 < bytes) {
                        let op = sheet.send(id, bytes, &[start]);
                        sheet.end(op);
                    }
                }
                Detail::Stepwise => {
                    for bytes in loops(bytes, chunk(ask, plan, crosses)) {
                        let op = flow.send(sheet, edge, &ids, bytes, &[]);
                        sheet.end(op);
                    }
                }
            }
        }
    }
}

/// Connections of a gather are no use to a scatter.
fn name(collective: Collective) -> &'static str {
    if collective == Collective::Gather { "gather" } else { "scatter" }
}

/// What a message is cut into.
fn chunk(ask: &Ask<'_>, plan: &Plan, crosses: bool) -> u64 {
    if crosses { plan.chunk.get() } else { ask.settings.p2p_scale_up_chunk.get() }
}

/// Calls for every hop of every message with whether that leaves its domain and what it carries:
/// message after message, each split over the NICs of a GPU.
fn for_each_hop(ask: &Ask<'_>, mut then: impl FnMut(Hop, bool, u64)) {
    let Ask { fabric, communicator, settings, .. } = *ask;
    let (ranks, lanes) = (ask.shape().ranks, ask.shape().nics_per_gpu());
    let mut hops: Vec<Hop> = Vec::new();
    for peer in (0..ranks).filter(|&rank| rank != ROOT) {
        let (from, to) = match ask.collective {
            Collective::Gather => (peer, ROOT),
            _ => (ROOT, peer),
        };
        let bytes = part(ask.bytes.get(), ranks.into(), peer.into());
        communicator.path(fabric, from, to, settings.pxn, &mut hops);
        let crosses = hops.iter().position(|hop| fabric.nic_number(hop.from).is_some());
        let Some(at) = crosses else {
            hops.iter().for_each(|&hop| then(hop, false, bytes));
            continue;
        };
        // The GPUs next to the NICs that it leaves and enters by.
        let leaves = if at == 0 { communicator.gpu(from) } else { hops[at - 1].to };
        let enters = hops.get(at + 1).map_or(communicator.gpu(to), |hop| hop.from);
        let nic = |gpu: NodeId, lane: u32| fabric.nics_of(gpu).nth(lane as usize);
        for lane in 0..lanes {
            let bytes = part(bytes, lanes.into(), lane.into());
            for (place, &hop) in hops.iter().enumerate() {
                let over = |gpu, own| nic(gpu, lane).unwrap_or(own);
                let hop = match place == at {
                    true => Hop { from: over(leaves, hop.from), to: over(enters, hop.to), ..hop },
                    false => hop,
                };
                then(hop, true, bytes);
            }
        }
    }
}
