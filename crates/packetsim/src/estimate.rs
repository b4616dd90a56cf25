//! What a run will cost, before it is begun.
//!
//! Packets and the links they cross follow from messages and paths. An event takes longer the less
//! of a run's state fits into the caches near the core: measured from 768 links to 209,226 and from
//! 128 queue pairs to a million, each doubling beyond them costs about as much as the event itself.
//! Permutations take half of the estimate, most collectives and steps what it says to a third more,
//! and mixes with long queues everywhere up to three times as much: see docs/performance.md.

use fabric::{Fabric, LinkId};
use traffic::{OpKind, Transfers};
use units::Id;

use crate::packet::Forward;
use crate::paths::Network;
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
const EVENT_S: f64 = 60e-9;

/// The state that is at hand, in bytes.
const AT_HAND: f64 = 6e6;

/// Estimates a run on the packet engine. Coupled operations count for nothing.
pub fn estimate(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Estimate {
    let mut network = Network::new(fabric, transfers, settings);
    network.routes.set_health(fabric.health().clone());
    let mut hops = vec![0_u64; transfers.connections().len()];
    let mut walked = vec![false; fabric.links().len()];
    for (connection, hops) in hops.iter_mut().enumerate() {
        let pair = network.first_pair[connection];
        if let Some(pair) = pair.get() {
            let (key, _) = network.keys[pair];
            let path = network.walk(fabric, &key).unwrap_or_default();
            path.iter().for_each(|link| walked[link.index()] = true);
            *hops = path.len() as u64;
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
    // Acknowledgements that take no links are one event each.
    let crossings = match settings.packet.forward {
        Forward::Bounded => packets,
        Forward::Off | Forward::Exact => packet_hops,
    };
    let acks = crossings / u64::from(settings.nic.ack_every.max(1));
    let events = packet_hops + acks + packets + transfers.ops().len() as u64;
    // A request, credits and the pieces of packets, each an event where others look ahead.
    let events = if settings.scheduled.enabled { 5 * events } else { events };
    // A port, a wire of 64 packets and dice; a queue pair with both halves and both paths.
    let pairs = network.keys.len() as u64 * 900 + (4 << 20);
    let ports = |links: usize| links as u64 * (256 + 64 * 20 + 96);
    // Long cables hold more packets. A ring has up to twice the places, and so has the list in
    // which all rings lie.
    let held = |link: LinkId| {
        let class = fabric.class(link);
        let full = class.rate.bytes_per_s() * class.delay.as_secs_f64();
        let places = full / settings.packet.mtu.as_f64().max(1.0);
        2 * 2 * 20 * (places as u64).saturating_sub(64).min(packets)
    };
    let long = fabric.links().ids().filter(|link| walked[link.index()]).map(held);
    let memory = ports(walked.len())
        + pairs
        + long.fold(0, u64::saturating_add)
        + transfers.ops().len() as u64 * 160;
    // Acknowledgements cross the other direction. Operations wait in their order, and few of them
    // are looked at.
    let used = 2 * walked.iter().filter(|walked| **walked).count();
    let state = ports(used.min(walked.len())) + pairs;
    let doublings = (state as f64 / AT_HAND).log2().max(0.0);
    let seconds = events as f64 * EVENT_S * (1.0 + doublings);
    Estimate { events, packet_hops, seconds, memory }
}
