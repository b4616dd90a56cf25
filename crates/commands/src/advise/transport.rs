//! Another protocol on the same cables.

use fabric::transport::Transport;
use scenario::Loaded;

use crate::change::{Change, Kind};

/// Other protocols for the same cluster: Ultra Ethernet where RoCE runs, InfiniBand for Ethernet
/// and the other way round. (A hybrid of two is `fabric.parts`: it would be one more change here.)
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
    let boxes = |name: &str| ["leaf", "spine"].map(|tier| format!("fabric.{tier}.switch={name}"));
    let set = |words: [&str; 2], name: &str| {
        words.into_iter().map(str::to_owned).chain(boxes(name)).collect::<Vec<_>>()
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
    changes
}
