//! The fabric to buy: tapering, rails, rates; and the article's future directions.

use fabric::topology::TopologyKind;
use fabric::transport::Transport;
use scenario::Loaded;
use traffic::nccl::Usage;

use super::transport;
use crate::change::{Change, Kind};

/// Ratios of capacity below to capacity above that people build.
const RATIOS: [u32; 4] = [1, 2, 4, 8];

/// One part of the fabric bought otherwise.
pub(super) fn changes(loaded: &Loaded) -> Vec<Change> {
    let mut changes = tapers(loaded);
    changes.extend(families(loaded));
    changes.extend(rates(loaded));
    changes.extend(radixes(loaded));
    changes.extend(circuits(loaded).filter(|_| has_pods(loaded)));
    changes
}

/// Switches of the same rate with another number of ports.
fn radixes(loaded: &Loaded) -> Vec<Change> {
    let scenario = &loaded.scenario;
    let fabric = &scenario.fabric;
    let tiers = loaded.fabric().tiers();
    let is_ethernet = scenario.network.transport != Transport::Infiniband;
    let can = !matches!(fabric.topology, TopologyKind::File | TopologyKind::FatTree);
    let Some(own) = tiers.first().and_then(|tier| scenario.catalogue.switch.get(&tier.model))
    else {
        return Vec::new();
    };
    let alike = tiers.iter().all(|tier| tier.model == tiers[0].model);
    if tiers.len() < 2 || !is_ethernet || !can || !alike || fabric.radix.is_some() {
        return Vec::new();
    }
    let mut changes: Vec<(u32, Change)> = Vec::new();
    for (name, other) in &scenario.catalogue.switch {
        let same = other.port_gbps.value == own.port_gbps.value
            && other.buffering == own.buffering
            && other.card.is_none();
        // One box for each number of ports: the first of the catalogue.
        let known = changes.iter().any(|(ports, _)| *ports == other.ports);
        if !same || other.ports == own.ports || known {
            continue;
        }
        let tiers =
            if tiers.len() < 3 { &["leaf", "spine"][..] } else { &["leaf", "spine", "core"] };
        let set = tiers.iter().map(|tier| format!("fabric.{tier}.switch={name}"));
        let words = format!("switches of {} ports ({})", other.ports, other.title);
        changes.push((other.ports, Change::new(Kind::Fabric, words, set)));
    }
    changes.into_iter().map(|(_, change)| change).collect()
}

fn has_pods(loaded: &Loaded) -> bool {
    2 < loaded.fabric().tiers().len() && loaded.scenario.fabric.pods.is_some()
}

/// Circuits between pods, set for each phase.
fn circuits(loaded: &Loaded) -> impl Iterator<Item = Change> {
    let has_none = loaded.scenario.fabric.circuits.per_pod == 0;
    let set = ["fabric.circuits.per_pod=8", "fabric.circuits.schedule=phases"];
    let risk = "needs pods, and circuit switches that are not priced here";
    let change = Change::new(Kind::Fabric, "optical circuits", set).risking(risk);
    Some(change).filter(|_| has_none).into_iter()
}

/// All mixes of tapering with family and rate, or with another transport or a hybrid: where the
/// cheapest is looked for.
pub(super) fn mixes(loaded: &Loaded) -> Vec<Change> {
    let of = |list: Vec<Change>| -> Vec<Option<Change>> {
        std::iter::once(None).chain(list.into_iter().map(Some)).collect()
    };
    let (tapers, families, rates) = (of(tapers(loaded)), of(families(loaded)), of(rates(loaded)));
    let transports = transport::changes(loaded);
    let mut kinds: Vec<Vec<&Change>> = transports.iter().map(|change| vec![change]).collect();
    for rate in &rates {
        kinds.extend(families.iter().map(|family| family.iter().chain(rate).collect::<Vec<_>>()));
    }
    let mut mixes = Vec::new();
    for kind in &kinds {
        for taper in &tapers {
            let parts: Vec<&Change> = taper.iter().chain(kind.iter().copied()).collect();
            if parts.is_empty() {
                continue;
            }
            let name: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            let set = parts.iter().flat_map(|part| part.set.clone());
            let risk: Vec<&str> = parts.iter().map(|part| part.risk.as_str()).collect();
            let risk = risk.into_iter().filter(|risk| !risk.is_empty());
            let risk = risk.collect::<Vec<_>>().join("; ");
            mixes.push(Change::new(Kind::Fabric, name.join(", "), set).risking(risk));
        }
    }
    mixes
}

/// Other capacities above the leaves.
fn tapers(loaded: &Loaded) -> Vec<Change> {
    let fabric = &loaded.scenario.fabric;
    let tiers = transport::back_end(loaded).len();
    let is_sized = fabric.uplinks.is_empty()
        && fabric.spines.is_none()
        && fabric.downlinks.is_none()
        && fabric.cores.is_none();
    let can = !matches!(fabric.topology, TopologyKind::File | TopologyKind::FatTree);
    if tiers < 2 || !can || !is_sized || !fabric.parts.is_empty() {
        return Vec::new();
    }
    let now = |tier: usize| fabric.oversubscription.get(tier).copied().unwrap_or(1.0);
    let mut changes = Vec::new();
    for tier in 0..tiers - 1 {
        for ratio in RATIOS.into_iter().filter(|ratio| f64::from(*ratio) != now(tier)) {
            let value = |at: usize| if at == tier { f64::from(ratio) } else { now(at) };
            let list: Vec<String> = (0..tiers - 1).map(|at| format!("{:?}", value(at))).collect();
            let set = [format!("fabric.oversubscription=[{}]", list.join(", "))];
            let name = format!("{ratio}:1 above tier {}", tier + 1);
            let risk = match f64::from(ratio) < now(tier) {
                true => "",
                false => "fewer paths are left when one fails, and less for other jobs",
            };
            changes.push(Change::new(Kind::Fabric, name, set).risking(risk));
        }
    }
    changes
}

/// Rails or not.
fn families(loaded: &Loaded) -> Vec<Change> {
    let fabric = &loaded.scenario.fabric;
    let several = 1 < loaded.scenario.cluster.nics_per_node;
    let change = |word: &str, name: &str, risk: &str| {
        let set = [format!("fabric.topology={word}")];
        Change::new(Kind::Fabric, name, set).risking(risk)
    };
    match fabric.topology {
        TopologyKind::Clos if several && fabric.pods.is_none() => {
            let longer = "cables from a server lead to eight racks";
            let only = "servers reach other rails through their own GPUs alone";
            vec![
                change("rail-optimized", "rails", longer),
                change("rail-only", "rails without spines between them", only),
                planes(),
            ]
        }
        TopologyKind::RailOptimized => {
            let only = "servers reach other rails through their own GPUs alone";
            vec![change("rail-only", "rails without spines between them", only), planes()]
        }
        _ => Vec::new(),
    }
}

/// Each NIC with a port in each of two planes that never meet: two ToRs, either of which may fail.
fn planes() -> Change {
    let set = ["fabric.topology=dual-plane", "reliability.network=dual-tor"];
    let risk = "needs NICs of two ports; a flow has half of the NIC";
    Change::new(Kind::Fabric, "two planes, two ToRs for each NIC", set).risking(risk)
}

/// Other rates of the NICs, with switches of the same rate.
fn rates(loaded: &Loaded) -> Vec<Change> {
    let scenario = &loaded.scenario;
    let is_ethernet = scenario.network.transport != Transport::Infiniband;
    let set: Vec<&str> = match (scenario.cluster.nic.as_str(), is_ethernet) {
        ("connectx-7" | "bluefield-3" | "thor2" | "pollara-400", true) => vec![
            "cluster.nic=connectx-8",
            "cluster.pcie=1008Gbps",
            "fabric.leaf.switch=tomahawk-5-800",
            "fabric.spine.switch=tomahawk-5-800",
        ],
        ("connectx-7", false) => vec![
            "cluster.nic=connectx-8",
            "cluster.pcie=1008Gbps",
            "fabric.leaf.switch=quantum-3",
            "fabric.spine.switch=quantum-3",
        ],
        _ => return Vec::new(),
    };
    let risk = "needs servers with PCIe 6";
    vec![Change::new(Kind::Fabric, "800G", set).risking(risk)]
}

/// The article's four future directions on this cluster.
pub(super) fn future(loaded: &Loaded) -> Vec<Change> {
    let is_future = |change: &Change| change.set.iter().any(|set| set.ends_with("uec"));
    let mut changes = transport::changes(loaded);
    changes.retain(is_future);
    let scenario = &loaded.scenario;
    if scenario.library.sharp == Usage::Disabled {
        let boxes = loaded.fabric().tiers().iter().map(|tier| tier.model.clone());
        let mut boxes: Vec<String> = boxes.collect();
        boxes.sort();
        boxes.dedup();
        let knows = |name: &String| {
            scenario.catalogue.switch.get(name).is_some_and(|it| it.reduction.is_some())
        };
        let mut set = vec![
            "library.sharp=enabled".to_owned(),
            "library.aggregation.gathers=enabled".to_owned(),
        ];
        let mut risk = "";
        if !boxes.iter().all(knows) {
            set.extend(["network.transport=infiniband".to_owned()]);
            set.extend(["leaf", "spine"].map(|tier| format!("fabric.{tier}.switch=quantum-2")));
            set.push("network.routing.policy=infiniband-adaptive".to_owned());
            risk = "no switch of this fabric reduces; these would be InfiniBand's";
        }
        changes.push(Change::new(Kind::Fabric, "reduction in the switches", set).risking(risk));
    }
    changes.extend(rates(loaded));
    changes.extend(circuits(loaded));
    changes
}
