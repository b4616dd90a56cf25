//! What links can carry, given what has failed, what is slow and what protocols take.

use fabric::fault::{FaultKind, Faults};
use fabric::graph::LinkKind;
use fabric::parts::Parts;
use fabric::{Fabric, Health};
use units::{Id, Time};

use traffic::queue_pairs::NicLoad;

use crate::settings::Settings;

/// What is down or slow at an instant.
pub(crate) fn health(fabric: &Fabric, faults: &Faults, now: Time) -> Health {
    if faults.is_empty() { fabric.health().clone() } else { faults.health(fabric, now) }
}

/// What each link can carry of payload, in bytes per second.
pub(crate) fn capacities(
    fabric: &Fabric,
    health: &Health,
    settings: &Settings,
    loads: &[NicLoad],
    now: Time,
) -> Vec<f64> {
    let wire = &settings.wire;
    let share = |kind: LinkKind| match kind {
        LinkKind::ScaleUp => wire.scale_up_efficiency,
        LinkKind::ScaleOut | LinkKind::FrontEnd | LinkKind::Circuit => wire.efficiency,
    };
    let mut capacities: Vec<f64> = fabric
        .links()
        .ids()
        .map(|link| match health.is_down(link) {
            true => 0.0,
            false => health.rate(fabric, link).bytes_per_s() * share(fabric.class(link).kind),
        })
        .collect();
    if let Some(scheduled) = fabric.scheduled() {
        let share = scheduled.efficiency(wire.packet) / wire.efficiency;
        for link in fabric.links().ids().filter(|link| fabric.carries_cells(*link)) {
            capacities[link.index()] *= share;
        }
    }
    if let Some(parts) = &settings.parts {
        change_transports(fabric, settings, parts, &mut capacities);
    }
    if let Some(host) = wire.host_rate {
        for number in 0..fabric.nics() {
            let ports = fabric.ports(fabric.nic(number));
            let each = host.bytes_per_s() / ports.len().max(1) as f64;
            for &port in ports {
                for link in [port, fabric.reverse(port)] {
                    capacities[link.index()] = capacities[link.index()].min(each);
                }
            }
        }
    }
    charge_queue_pairs(fabric, settings, loads, &mut capacities);
    if let Some(free) = settings.free {
        for link in [free, fabric.reverse(free)] {
            capacities[link.index()] *= 1e3;
        }
    }
    for fault in settings.faults.on(now) {
        for &node in &fault.nodes {
            for &port in fabric.ports(node) {
                let inward = &mut capacities[fabric.reverse(port).index()];
                match fault.kind {
                    FaultKind::SlowReceiver { rate } => *inward = inward.min(rate.bytes_per_s()),
                    FaultKind::PauseStorm => *inward = 0.0,
                    _ => {}
                }
            }
        }
        if let FaultKind::Grey { .. } = fault.kind {
            for &link in &fault.links {
                let loss = settings.faults.loss(link, wire.packet, now);
                let rate = health.rate(fabric, link).bytes_per_s();
                capacities[link.index()] *= lossy(settings, loss, rate);
            }
        }
    }
    capacities
}

/// Gives links of each part the headers of its transport, and gateways their rate.
fn change_transports(fabric: &Fabric, settings: &Settings, parts: &Parts, capacities: &mut [f64]) {
    let wire = &settings.wire;
    for link in fabric.links().ids() {
        let Some(own) = parts.transport(fabric, link) else { continue };
        let capacity = &mut capacities[link.index()];
        let share = own.efficiency(wire.packet);
        *capacity *= share / wire.efficiency;
        if let Some(rate) = parts.gateway.rate
            && parts.has_gateway(fabric, link)
        {
            *capacity = capacity.min(rate.bytes_per_s() * share);
        }
    }
}

/// Takes from the links of NICs what their queue pairs cost: contexts that are fetched, parts that
/// are posted one by one, and the headers of packets that are small because messages are split.
fn charge_queue_pairs(
    fabric: &Fabric,
    settings: &Settings,
    loads: &[NicLoad],
    capacities: &mut [f64],
) {
    let wire = &settings.wire;
    let header = wire.packet.as_f64() * (1.0 / wire.efficiency - 1.0);
    for (number, load) in loads.iter().enumerate().filter(|(_, load)| 0 < load.contexts) {
        let ports = fabric.ports(fabric.nic(number));
        let each = 1.0 / ports.len().max(1) as f64;
        let [out, inward] = load.rates(&wire.queue_pairs);
        for &port in ports {
            for (link, side, most) in
                [(port, load.out, out), (fabric.reverse(port), load.inward, inward)]
            {
                let capacity = &mut capacities[link.index()];
                if 0.0 < side.more_packets {
                    // Bytes on the wire, without those headers and with them.
                    let usual = side.bytes / wire.efficiency;
                    let left = usual / (usual + side.more_packets * header);
                    // Less is not worth telling NICs apart by: equal ones are solved together.
                    if left < 0.99 {
                        *capacity *= left;
                    }
                }
                *capacity = capacity.min(most * each);
            }
        }
    }
}

/// What is left of a link's rate when every lost packet costs what was in flight behind it.
fn lossy(settings: &Settings, loss: f64, bytes_per_s: f64) -> f64 {
    // Both NICs on both ways, and as much again for switches and cables.
    let round_trip = 8.0 * settings.wire.nic_latency.as_secs_f64();
    let in_flight = bytes_per_s * round_trip / settings.wire.packet.as_f64().max(1.0);
    (1.0 - loss) / (1.0 - loss + loss * in_flight)
}

/// What a receiver that goes back n leaves of a flow whose packets take several ways.
///
/// A packet overtakes its predecessor if it took another way, which of `ways` equal ones happens
/// to all but one in `ways`, and if that way was shorter by more than the gap between them, which
/// for packets sent back to back over unequal queues is every second time. The receiver then
/// refuses what is in flight, and the sender repeats it.
///
/// `delay` is the way in seconds, `line` the rate of the sender's link in bytes per second: a flow
/// that has to share has less in flight and loses less.
pub(crate) fn go_back_n(settings: &Settings, ways: usize, delay: f64, line: f64) -> f64 {
    let overtakes = 0.5 * (1.0 - 1.0 / ways.max(1) as f64);
    let round_trip = 2.0 * delay + 4.0 * settings.wire.nic_latency.as_secs_f64();
    let packet = settings.wire.packet.as_f64().max(1.0);
    1.0 / (1.0 + overtakes * (line * round_trip / packet).max(1.0))
}
