//! What queue pairs cost the NICs that transfers use: contexts in use, messages that are posted in
//! parts, packets that become small.
//!
//! A message is what the library hands to a NIC at once: an operation that sends, or a chunk of a
//! folded channel (`network.routing.chunk`). Split over n queue pairs it is n messages to post, and
//! its packets may be smaller than the largest. Dealt out whole it costs no more than over one, but
//! for contexts that do not fit the NIC.

use fabric::routing::{QueuePairCost, QueuePairUse, RoutingConfig};
use fabric::{Fabric, NodeId, NodeKind};
use units::Bytes;

use crate::transfers::{Connection, OpKind, Transfers};

/// What one NIC does in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Side {
    /// Payload.
    pub bytes: f64,
    /// Packets.
    pub packets: f64,
    /// Those that it has only because messages are split.
    pub more_packets: f64,
    /// Posts beside one for each message.
    pub posts: f64,
}

/// What one NIC has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NicLoad {
    /// Queue pairs that it has open, for either direction.
    pub contexts: u64,
    /// What it sends.
    pub out: Side,
    /// What it receives.
    pub inward: Side,
}

impl NicLoad {
    /// The most that it sends and receives in a second, in bytes; infinite where queue pairs hold
    /// nothing up.
    pub fn rates(&self, cost: &QueuePairCost) -> [f64; 2] {
        let packet_s = cost.packet_s(self.contexts);
        let post_s = cost.post.as_secs_f64();
        [self.out, self.inward].map(|side| {
            let seconds = (side.packets * packet_s).max(side.posts * post_s);
            if 0.0 < seconds { side.bytes / seconds } else { f64::INFINITY }
        })
    }
}

/// How many queue pairs a connection between NICs has; none elsewhere.
fn pairs(fabric: &Fabric, connection: &Connection, config: &RoutingConfig) -> u64 {
    let kind = |node: NodeId| fabric.nodes()[node].kind;
    let is_nic = |node| matches!(kind(node), NodeKind::Nic | NodeKind::FrontEndNic);
    match connection.queue_pairs {
        _ if !is_nic(connection.from) || !is_nic(connection.to) => 0,
        0 => u64::from(config.qps.max(1)),
        own => u64::from(own),
    }
}

/// By NIC: what transfers make it do. Packets have at most `mtu` of payload.
pub fn nic_loads(
    fabric: &Fabric,
    transfers: &Transfers,
    config: &RoutingConfig,
    mtu: Bytes,
) -> Vec<NicLoad> {
    let mut loads = vec![NicLoad::default(); fabric.nics()];
    let mtu = mtu.get().max(1);
    for connection in transfers.connections() {
        let count = pairs(fabric, connection, config);
        for nic in [connection.from, connection.to].map(|node| fabric.nic_number(node)) {
            if let Some(nic) = nic.filter(|_| 0 < count) {
                loads[nic].contexts += count;
            }
        }
    }
    let mut add = |connection: &Connection, bytes: u64, message: u64| {
        let count = pairs(fabric, connection, config);
        if count == 0 || bytes == 0 {
            return;
        }
        let parts = match config.split {
            QueuePairUse::Split => count.min(message),
            QueuePairUse::RoundRobin => 1,
        };
        let messages = bytes.div_ceil(message) as f64;
        let whole = bytes.div_ceil(mtu) as f64;
        let cut = (messages * (parts * message.div_ceil(parts).div_ceil(mtu)) as f64).max(whole);
        let ends = [connection.from, connection.to].map(|node| fabric.nic_number(node));
        let posts = messages * (parts - 1) as f64;
        for (nic, is_sender) in ends.into_iter().zip([true, false]) {
            let Some(nic) = nic else { continue };
            let load = &mut loads[nic];
            let side = if is_sender { &mut load.out } else { &mut load.inward };
            side.bytes += bytes as f64;
            side.packets += cut;
            side.more_packets += cut - whole;
            side.posts += if is_sender { posts } else { 0.0 };
        }
    };
    for op in transfers.ops() {
        match &op.kind {
            OpKind::Send { connection, bytes } => {
                let bytes = bytes.get();
                add(&transfers.connections()[*connection], bytes, bytes.max(1));
            }
            OpKind::Coupled { edges, bytes, .. } => {
                for edge in transfers.coupled(edges) {
                    let message = config.chunk.get().clamp(1, bytes.get().max(1));
                    add(&transfers.connections()[*edge], bytes.get(), message);
                }
            }
            OpKind::Together { messages } => {
                for (connection, bytes) in transfers.messages(messages) {
                    let bytes = bytes.get();
                    add(&transfers.connections()[*connection], bytes, bytes.max(1));
                }
            }
            OpKind::Wait { .. } => {}
        }
    }
    loads
}
