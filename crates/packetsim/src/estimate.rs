//! What a run will cost, before it is begun.
//!
//! Packets and the links they cross follow from messages and paths. An event takes longer the less
//! of a run's state fits into the caches near the core: measured from 768 links to 162,816 and from
//! 128 queue pairs to a million, each doubling beyond them costs about as much as the event itself.
//! Runs whose packets keep meeting queue pairs that they have just met are faster (a permutation by
//! half), those with long queues everywhere are slower: see docs/performance.md.

use fabric::Fabric;
use traffic::{OpKind, Transfers};
use units::Id;

use crate::paths::Network;
use crate::port::NOWHERE;
use crate::settings::Settings;

/// What a run will cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Events that the engine will handle.
    pub events: u64,
    /// Data packets times links crossed.
    pub packet_hops: u64,
    /// Seconds of one core.
    pub seconds: f64,
    /// Bytes of memory.
    pub memory: u64,
}

/// Seconds for an event of a run whose state is at hand.
const EVENT_S: f64 = 55e-9;

/// The state that is at hand, in bytes.
const AT_HAND: f64 = 6e6;

/// Estimates a run on the packet engine. Coupled operations count for nothing.
pub fn estimate(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Estimate {
    let mut network = Network::new(fabric, transfers, settings);
    network.routes.set_health(fabric.health().clone());
    let mut hops = vec![0_u64; transfers.connections().len()];
    for (connection, hops) in hops.iter_mut().enumerate() {
        let pair = network.first_pair[connection];
        if pair != NOWHERE {
            let (key, _) = network.keys[pair as usize];
            *hops = network.walk(fabric, &key).map_or(0, |path| path.len() as u64);
        }
    }
    let (mut packets, mut packet_hops) = (0_u64, 0_u64);
    for op in transfers.ops() {
        if let OpKind::Send { connection, bytes } = op.kind {
            let count = bytes.get().div_ceil(settings.packet.mtu.get().max(1)).max(1);
            let crossed = hops[connection.index()];
            packets += if 0 < crossed { count } else { 0 };
            packet_hops += count * crossed;
        }
    }
    let acks = packet_hops / u64::from(settings.nic.ack_every.max(1));
    let events = packet_hops + acks + packets + transfers.ops().len() as u64;
    let links = fabric.links().len();
    let pairs = network.keys.len() as u64;
    // A port, a wire of 64 packets and dice; a queue pair with both halves and both paths.
    let memory = links as u64 * (256 + 64 * 20 + 96)
        + pairs * 900
        + transfers.ops().len() as u64 * 160
        + (4 << 20);
    let doublings = (memory as f64 / AT_HAND).log2().max(0.0);
    let seconds = events as f64 * EVENT_S * (1.0 + doublings);
    Estimate { events, packet_hops, seconds, memory }
}
