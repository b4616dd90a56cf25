//! What a run will cost, before it is begun.
//!
//! Memory follows from the sizes of what is kept. Time is a count of what must happen, with what
//! each took on one core of a 2-core virtual machine (docs/performance.md); machines differ, and
//! rates that change all over the network at every event cost most, so the figure is the order of
//! magnitude and on the high side.

use fabric::{Fabric, NodeKind};
use traffic::{OpKind, Transfers};
use units::{Bound, Room};

use crate::settings::Settings;

/// What a run will cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Operations that start and finish, with their parts.
    pub events: u64,
    /// Seconds of one core.
    pub seconds: f64,
    /// Bytes of memory.
    pub memory: u64,
}

/// Seconds to open, walk and describe a queue pair.
const OPEN_S: f64 = 1.5e-6;
/// Seconds to start and finish a message.
const MESSAGE_S: f64 = 1.5e-6;
/// Seconds to pass a changed rate on to the links of one flow, while the links fit the caches.
const CHANGE_S: f64 = 4e-8;
/// Links that do; with four times as many a change waits for memory, and takes four times as long.
const NEAR_LINKS: f64 = 16_384.0;
/// Of the flows that run at once, the share whose rate changes when one of them finishes, where
/// sizes differ.
const CHANGED: f64 = 0.1;
/// How many flows a change reaches at a precision of 1e-3; a hundred times finer reaches ten times
/// as many (measured with 200,000 flows on 10,240 hosts: 358 at 1e-3, 1,176 at 1e-4).
const REACH: f64 = 360.0;

/// Rates are exact to a hundred times this: the precision that is promised is 1e-9.
pub const EXACT: f64 = 1e-11;
/// What is chosen in turn where exact rates would take long.
const COARSER: [f64; 2] = [1e-4, 1e-3];
/// Seconds that exact rates, and then each coarser precision, may take.
const PATIENCE_S: f64 = 60.0;

/// How small a change of rates is passed on: what the settings say, or the finest precision that
/// does not take long.
pub fn precision(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> f64 {
    if let Some(precision) = settings.flow.precision {
        return precision;
    }
    let mut chosen = EXACT;
    for coarser in COARSER {
        if at_precision(fabric, transfers, settings, chosen).seconds <= PATIENCE_S {
            break;
        }
        chosen = coarser;
    }
    chosen
}

/// Estimates a run on the flow engine.
pub fn estimate(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Estimate {
    at_precision(fabric, transfers, settings, precision(fabric, transfers, settings))
}

/// Estimates a run on the analytic engine, which looks at each operation once.
pub fn of_closed_forms(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Estimate {
    let events = transfers.ops().len() as u64;
    let edges = transfers.connections().len() as u64;
    let pairs = edges.saturating_mul(u64::from(settings.routing.qps.max(1)));
    // Measured with up to 300,000 messages on 393,216 links.
    let memory = 100 * (fabric.links().len() as u64 + events).saturating_add(pairs);
    Estimate { events, seconds: (events + pairs) as f64 * MESSAGE_S, memory }
}

/// Refuses a run that may not begin, or that needs more before its first event than there is.
pub(crate) fn allow_beginning(bound: Option<Bound<'_>>, needed: u64) -> Result<(), String> {
    let began = |why: String| format!("the run was ended as it began: {why}");
    let left = bound.map_or(Ok(None), |bound| bound()).map_err(began)?;
    let room = left.map_or_else(Room::default, Room::of);
    let fits = room.allow("its links and operations", needed);
    fits.map_err(|out| began(format!("{out}; give it more, or make what is run smaller")))
}

/// About the bytes that a run on either engine takes before its first event: for each link and
/// connection so many, and what operations take.
pub(crate) fn built_memory(fabric: &Fabric, transfers: &Transfers, per_link: u64) -> u64 {
    let of_connections = 40 * transfers.connections().len() as u64;
    per_link * fabric.links().len() as u64 + of_connections + 100 * transfers.ops().len() as u64
}

fn at_precision(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    precision: f64,
) -> Estimate {
    let is_nic = |node| fabric.nodes()[node].kind == NodeKind::Nic;
    let pairs = |connection: &traffic::Connection| match connection.queue_pairs {
        _ if !is_nic(connection.from) => 1,
        0 => u64::from(settings.routing.qps),
        several => u64::from(several),
    };
    let queue_pairs: u64 = transfers.connections().iter().map(pairs).sum();
    let (mut messages, mut edges, mut least, mut most) = (0_u64, 0_u64, u64::MAX, 0_u64);
    let (mut at_once, mut together) = (0_u64, 0_u64);
    for op in transfers.ops().ids() {
        match &transfers.ops()[op].kind {
            OpKind::Send { bytes, .. } => {
                messages += 1;
                at_once += u64::from(transfers.after(op).is_empty());
                (least, most) = (least.min(bytes.get()), most.max(bytes.get()));
            }
            OpKind::Coupled { edges: range, .. } => edges += u64::from(range.end - range.start),
            OpKind::Together { messages: of } => {
                for (_, bytes) in transfers.messages(of) {
                    together += 1;
                    (least, most) = (least.min(bytes.get()), most.max(bytes.get()));
                }
            }
            OpKind::Wait { .. } => {}
        }
    }
    let events = transfers.ops().len() as u64 + messages + together;
    let reach = REACH * (1e-3 / precision.max(1e-12)).sqrt();
    let change = CHANGE_S * (1.0 + (fabric.links().len() as f64 / NEAR_LINKS).min(3.0));
    let changed = (CHANGED * at_once as f64).min(reach);
    let spread = if least < most { changed * change } else { 0.0 };
    let seconds = queue_pairs as f64 * OPEN_S + (messages + together) as f64 * (MESSAGE_S + spread);
    let hops = 2 * (1 + fabric.tiers().len() as u64).min(4);
    let memory = fabric.links().len() as u64 * 400
        + queue_pairs * (72 + 28 * hops)
        + edges * settings.routing.qps.max(1) as u64 * 28 * hops
        + messages * 180
        + transfers.ops().len() as u64 * 100;
    Estimate { events, seconds, memory }
}

#[cfg(test)]
mod tests {
    use fabric::hardware::Catalogue;
    use fabric::topology::{ClusterConfig, FabricConfig, build};
    use traffic::pattern::{Load, Pattern, Surroundings, flows, transfers};

    use super::*;

    fn around() -> Surroundings {
        Surroundings { nics: 256, ..Surroundings::default() }
    }

    /// Property: more flows cost more, and sizes that differ cost more than equal ones.
    #[test]
    fn more_costs_more() {
        let cluster = ClusterConfig { gpus: Some(256), ..ClusterConfig::default() };
        let fabric = build(&cluster, &FabricConfig::default(), &Catalogue::default()).unwrap();
        let cost = |pattern, count, smallest| {
            let load = Load { pattern, count, smallest, ..Load::default() };
            let random = units::Random::new(1, "pattern", 0);
            let (transfers, _) = transfers(&fabric, &flows(&load, &around(), random));
            estimate(&fabric, &transfers, &Settings::default())
        };
        let small = cost(Pattern::Random, 1_000, None);
        let large = cost(Pattern::Random, 10_000, None);
        let mixed = cost(Pattern::Random, 10_000, Some(units::Bytes::new(1)));
        assert!(small.seconds < large.seconds && large.seconds < mixed.seconds);
        assert!(small.memory < large.memory && small.events < large.events);
    }

    /// Property: rates are exact where that is quick, coarser where it is not, and what was asked
    /// for is obeyed.
    #[test]
    fn precision_follows_from_the_cost() {
        let cluster = ClusterConfig { gpus: Some(256), ..ClusterConfig::default() };
        let fabric = build(&cluster, &FabricConfig::default(), &Catalogue::default()).unwrap();
        let chosen = |count, asked| {
            let smallest = Some(units::Bytes::new(1));
            let load = Load { pattern: Pattern::Random, count, smallest, ..Load::default() };
            let random = units::Random::new(1, "pattern", 0);
            let (transfers, _) = transfers(&fabric, &flows(&load, &around(), random));
            let mut settings = Settings::default();
            settings.flow.precision = asked;
            precision(&fabric, &transfers, &settings)
        };
        assert_eq!(chosen(1_000, None), EXACT);
        assert_eq!(chosen(300_000, None), 1e-4);
        assert_eq!(chosen(300_000, Some(1e-6)), 1e-6);
    }
}
