//! Another protocol on the same cables, for the whole fabric or for a part of it.

use fabric::graph::{NetworkKind, Tier};
use fabric::routing::Policy;
use fabric::transport::Transport;
use scenario::Loaded;

use crate::change::{Change, Kind};

/// The tables of a scenario for the tiers of its back-end, bottom up.
const PLACES: [&str; 3] = ["leaf", "spine", "core"];

/// The tiers between the back-end NICs, bottom up.
pub(super) fn back_end(loaded: &Loaded) -> &[Tier] {
    let fabric = loaded.fabric();
    let network = fabric.networks().iter().find(|one| one.kind == NetworkKind::BackEnd);
    let tiers = network.map_or(0..0, |own| usize::from(own.tiers.start)..own.tiers.end.into());
    &fabric.tiers()[tiers]
}

/// Other protocols for the same cluster: Ultra Ethernet where RoCE runs, InfiniBand for Ethernet
/// and the other way round, and a hybrid of the two.
pub(super) fn changes(loaded: &Loaded) -> Vec<Change> {
    let scenario = &loaded.scenario;
    let is_roce = matches!(scenario.network.transport, Transport::Rocev2 | Transport::Rocev1);
    let mut changes = Vec::new();
    if is_roce {
        let set = ["network.transport=uec", "network.routing.policy=spray"];
        let risk = "NICs and switches must speak it; their prices are not known here";
        let change = Change::new(Kind::Fabric, "Ultra Ethernet, packets sprayed", set);
        changes.push(change.risking(risk));
    }
    let is_400g = scenario.cluster.nic == "connectx-7" && scenario.fabric.parts.is_empty();
    if !is_400g || loaded.job.is_none() {
        return changes;
    }
    let places = &PLACES[..back_end(loaded).len().min(PLACES.len())];
    let set = |words: [&str; 2], name: &str| {
        let boxes = places.iter().map(|place| format!("fabric.{place}.switch={name}"));
        words.into_iter().map(str::to_owned).chain(boxes).collect::<Vec<_>>()
    };
    let risk = "other switches and cables for the whole cluster";
    if is_roce {
        let words = ["network.transport=infiniband", "network.routing.policy=infiniband-adaptive"];
        let set = set(words, "quantum-2");
        changes.push(Change::new(Kind::Fabric, "InfiniBand", set).risking(risk));
    } else if scenario.network.transport == Transport::Infiniband {
        let words = ["network.transport=rocev2", "network.routing.policy=adaptive"];
        let set = set(words, "tomahawk-5");
        let name = "RoCE with adaptive routing";
        changes.push(Change::new(Kind::Fabric, name, set).risking(risk));
    }
    changes.extend(hybrid(loaded));
    changes
}

/// InfiniBand below and RoCE in the highest tier: short ways have small switches that spread
/// packets, and bulk between pods or racks goes over Ethernet.
fn hybrid(loaded: &Loaded) -> Option<Change> {
    let network = &loaded.scenario.network;
    let (top, lower) = back_end(loaded).split_last()?;
    let below = lower.last()?;
    if !network.transport_of_tier.is_empty() || PLACES.len() <= lower.len() {
        return None;
    }
    let routing = &network.settings.routing;
    let (name, boxes, above) = match network.transport {
        Transport::Rocev2 => {
            let boxes = PLACES[..lower.len()].iter().map(|place| (*place, "quantum-2")).collect();
            // What reaches the highest tier is hashed as before, where that can be done hop by hop.
            let plain = matches!(routing.policy, Policy::Ecmp | Policy::EEcmp | Policy::Adaptive);
            let above = if plain { routing.policy } else { Policy::EEcmp };
            (format!("a hybrid: InfiniBand below, RoCE in the {}", top.name), boxes, above)
        }
        Transport::Infiniband => {
            let boxes = vec![(PLACES[lower.len()], "tomahawk-5")];
            (format!("a hybrid: RoCE in the {} alone", top.name), boxes, Policy::EEcmp)
        }
        _ => return None,
    };
    let mut set: Vec<String> =
        boxes.iter().map(|(place, name)| format!("fabric.{place}.switch={name}")).collect();
    let word = above.name();
    set.extend([
        "network.transport=infiniband".to_owned(),
        format!("network.transport_of_tier={{ {} = \"rocev2\" }}", top.name),
        "network.routing.policy=infiniband-adaptive".to_owned(),
        format!(
            "network.routing.policy_of_tier={{ {} = \"{word}\", {} = \"{word}\" }}",
            below.name, top.name
        ),
    ]);
    let risk = "gateways between the two, whose price and latency are assumed; two kinds of network \
                to operate";
    Some(Change::new(Kind::Fabric, name, set).risking(risk))
}
