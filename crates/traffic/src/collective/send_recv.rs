//! Send and receive: each rank sends to the next, as pipeline stages do.
//!
//! Between domains a message leaves through the sender's NIC, or with PXN over NVLink and the NIC
//! on the receiver's rail, split over the two channels that NCCL opens to a peer on the network.
//! Inside a domain it is one message over the scale-up network.
//!
//! A message that a host thread posts itself (a latency benchmark) has neither kernel nor NCCL's
//! hand-overs: its time is that of the NICs, switches and cables on its way.
//!
//! Source: NCCL `src/graph/paths.cc` (two channels for a peer on the network), `src/enqueue.cc`.
//! Departure: messages of `NCCL_P2P_LL_THRESHOLD` and less do not switch to LL.

use units::Bytes;

use super::communicator::{Communicator, Hop, ScaleUp};
use super::ring::{chunks, loops};
use super::writer::{CHUNKS, Detail, Flow, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::route::{Ways, beyond_constants_s, path_latency};
use crate::nccl::{Family, Initiator, Offer, Plan, Protocol, constants};
use crate::transfers::ConnectionId;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct SendRecv;

/// Channels to a peer on the network.
const CHANNELS: u32 = 2;

impl Algorithm for SendRecv {
    fn name(&self) -> &'static str {
        "send_recv"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        ask.collective == Collective::SendRecv
    }

    fn offer(&self, _: &Ask<'_>, _: Protocol) -> Option<Offer> {
        None // The only way to run it.
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        CHANNELS
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        ask.settings.p2p_net_chunk
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let bytes = ask.bytes.as_f64();
        let (mut inside, mut away, mut path, mut farthest) = (0.0, 0.0, 0.0_f64, 0.0_f64);
        let mut ways = Ways::of(ask);
        let mut hops = Vec::new();
        for rank in 0..shape.ranks - 1 {
            ask.communicator.path(ask.fabric, rank, rank + 1, settings.pxn, &mut hops);
            for Hop { from, to, .. } in hops.iter().copied() {
                let over_nic = ask.fabric.nic_number(from).is_some();
                *(if over_nic { &mut away } else { &mut inside }) = bytes;
                let way = path_latency(ask.fabric, from, to, ask.bytes);
                let nics = if over_nic { settings.nic_latency } else { units::Span::ZERO };
                path = path.max(way.map_or(0.0, |way| (way + nics).as_secs_f64()));
                if over_nic {
                    farthest = farthest.max(ways.between(from, to).as_secs_f64());
                }
            }
        }
        let mesh_link = if shape.scale_up == ScaleUp::Mesh { inside } else { 0.0 };
        let through_kernel = || {
            let hop = constants::hop_latency_us(settings, shape, Family::Ring, Protocol::Simple);
            let net = constants::net_latency_us(settings, shape, Family::Ring, Protocol::Simple);
            match 0.0 < away {
                true => 1e-6 * net + beyond_constants_s(farthest, 1.0, net),
                false => 1e-6 * hop,
            }
        };
        let each = bytes / f64::from(plan.channels);
        vec![match settings.initiator {
            // The way's time holds that of its bytes.
            Initiator::Host => Phase { latency_s: path, ..Phase::default() },
            Initiator::Kernel => Phase {
                scale_up: inside,
                mesh_link,
                nic: away,
                latency_s: through_kernel(),
                messages: chunks(each as u64, plan.chunk.get()),
                slots: CHUNKS as f64,
                first_message: if 0.0 < away { each } else { 0.0 },
                new_connections: 1.0,
                ..Phase::default()
            },
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let pairs = 0..ask.shape().ranks - 1;
        // A message that changes rails has another hop.
        let messages = pairs.map(|from| {
            let channels = channels(ask.communicator, plan, from);
            let each = ask.bytes.get().div_ceil(channels.into());
            f64::from(channels) * chunks(each, plan.chunk.get())
        });
        messages.sum()
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, settings, .. } = *ask;
        let ranks = communicator.ranks() as u32;
        let channels = |from: u32| channels(communicator, plan, from);
        let first = sheet.open("send_recv", plan.channels, |opening| {
            for from in 0..ranks - 1 {
                for channel in 0..channels(from) {
                    communicator.path(fabric, from, from + 1, settings.pxn, opening.hops);
                    opening.connect_hops(channel);
                }
            }
        });
        let mut at = 0;
        let mut hops = Vec::new();
        for from in 0..ranks - 1 {
            communicator.path(fabric, from, from + 1, settings.pxn, &mut hops);
            for channel in 0..channels(from) {
                let bytes = part(ask.bytes.get(), channels(from).into(), channel.into());
                let edge: Vec<ConnectionId> =
                    (at..at + hops.len()).map(|at| nth(first, at)).collect();
                at += hops.len();
                let start = sheet.start;
                match sheet.detail {
                    Detail::Folded => {
                        sheet.edges.clear();
                        sheet.edges.extend(&edge);
                        let op = sheet.couple(bytes, plan.fill(), &[start]);
                        sheet.end(op);
                    }
                    Detail::Stepwise => {
                        let mut flow = Flow::of_sends(1, start);
                        for bytes in loops(bytes, plan.chunk.get()) {
                            let op = flow.send(sheet, 0, &edge, bytes, &[]);
                            sheet.end(op);
                        }
                    }
                }
            }
        }
    }
}

/// Channels from a rank to the next.
fn channels(communicator: &Communicator, plan: &Plan, from: u32) -> u32 {
    let inside = communicator.domain_of(from) == communicator.domain_of(from + 1);
    if inside { 1 } else { plan.channels }
}
