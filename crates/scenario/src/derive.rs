//! What follows from other settings: a card's latencies, a box's packet memory, what a transport
//! does with packets.
//!
//! A scenario names its hardware; what the catalogue knows of it becomes the default of the
//! settings that the engines obey. What somebody has set stays as it was set. A derived value's
//! origin is the catalogue's line, so that `check --print` shows where it came from.

use std::sync::Arc;

use fabric::Fabric;
use fabric::hardware::Buffering;
use fabric::topology::TopologyKind;
use fabric::transport::Transport;
use packetsim::Settings;
use packetsim::buffer::{BufferConfig, Organisation};
use serde_json::Value as Json;
use units::Bytes;

use crate::file::ScenarioFile;
use crate::tree::{Entry, Layer, Node, Origin, Table, Value};

/// Lets the NIC of the cluster decide the NIC settings that nobody has set.
pub(crate) fn fill_nic(tree: &mut Node) {
    let Some(name) = tree.at("cluster.nic").and_then(Node::as_str) else { return };
    let Some(card) = entry(tree, "nic", name) else { return };
    let nanoseconds = |key: &str| {
        let figure = card.at(key)?.at("value")?;
        Some((Json::from(format!("{}ns", figure.to_json())), figure.origin))
    };
    let reorder = || {
        let word = card.at("reorder")?;
        Some((word.to_json(), word.origin))
    };
    let count = |key: &str| {
        let figure = card.at(key)?.at("value")?;
        let count = figure.to_json().as_f64()? as u64;
        Some((Json::from(count), figure.origin))
    };
    let derived = [
        ("qp_contexts", count("qp_contexts")),
        ("qp_miss", nanoseconds("qp_miss_ns")),
        ("send_latency", nanoseconds("send_latency_ns")),
        ("receive_latency", nanoseconds("receive_latency_ns")),
        ("reorder", reorder()),
    ];
    for (key, value) in derived {
        let path = ["network", "nic", key];
        if let Some((value, origin)) = value
            && is_free(tree, &path)
        {
            set(tree, &path, Node { value: Value::Scalar(value), origin });
        }
    }
}

/// Lets a file or a graph decide the topology, unless somebody has chosen one at least as late.
pub(crate) fn fill_topology(tree: &mut Node) {
    let named = ["fabric.file", "fabric.graph"].into_iter().filter_map(|key| tree.at(key));
    let Some(origin) = named.map(|node| node.origin).max_by_key(|origin| origin.layer) else {
        return;
    };
    let chosen = tree.at("fabric.topology").map(|node| node.origin.layer);
    if chosen.is_none_or(|layer| layer < origin.layer) {
        let file = Node { value: Value::Scalar(Json::from(TopologyKind::File.name())), origin };
        set(tree, &["fabric", "topology"], file);
    }
}

/// Lets the transport decide the network settings that nobody has set. It comes after the card:
/// a transport that places packets directly does so on every card, and kernel TCP's latencies are
/// not the card's.
pub(crate) fn fill_transport(tree: &mut Node) {
    let Some(node) = tree.at("network.transport") else { return };
    let Some(name) = node.as_str() else { return };
    let known = Transport::ALL.iter().find(|(known, _)| *known == name);
    let Some((_, transport)) = known else { return };
    let origin = Origin { layer: Layer::Catalogue, place: node.origin.place };
    let to_json = |settings: &Settings| serde_json::to_value(settings).unwrap_or(Json::Null);
    let wanted = to_json(&Settings::of_transport(*transport));
    let usual = to_json(&Settings::default());
    fill_differences(tree, &mut vec!["network"], &wanted, &usual, origin);
}

/// Sets what differs between two sets of settings, where nobody has set it.
fn fill_differences<'a>(
    tree: &mut Node,
    path: &mut Vec<&'a str>,
    wanted: &'a Json,
    usual: &Json,
    origin: Origin,
) {
    if wanted == usual {
        return;
    }
    // An algorithm goes with its own parameters, not with those of the usual one.
    let whole = path.ends_with(&["congestion"]);
    match wanted {
        Json::Object(members) if !whole => {
            for (key, value) in members {
                path.push(key);
                fill_differences(tree, path, value, &usual[key], origin);
                path.pop();
            }
        }
        Json::Object(members) => {
            // Without a choice of one's own, the transport's; single parameters stay as set.
            if is_free(tree, &[path.as_slice(), &["control"]].concat()) {
                let entry = |(key, value): (&String, &Json)| {
                    let node = Node { value: Value::Scalar(value.clone()), origin };
                    (key.clone(), Entry { key: origin, node })
                };
                let mut table: Table = members.iter().map(entry).collect();
                let old = tree.at(&path.join(".")).and_then(Node::as_table);
                let set_by_user = |entry: &Entry| Layer::Catalogue < entry.node.origin.layer;
                let kept = old.into_iter().flatten().filter(|(_, entry)| set_by_user(entry));
                table.extend(kept.map(|(key, entry)| (key.clone(), entry.clone())));
                set(tree, path, Node { value: Value::table(table), origin });
            }
        }
        value => {
            if is_free(tree, path) {
                set(tree, path, Node { value: Value::Scalar(value.clone()), origin });
            }
        }
    }
}

/// Lets the box of each tier decide the packet memory of its switches, unless somebody has set it.
pub(crate) fn fill_buffers(scenario: &mut ScenarioFile, tree: &mut Node, fabric: &Fabric) {
    if !is_free(tree, &["network", "buffer", "size"])
        || !is_free(tree, &["network", "buffer", "organisation"])
    {
        return;
    }
    let settings = &mut scenario.network.settings;
    for tier in fabric.tiers() {
        let Some(switch) = scenario.catalogue.switch.get(&tier.model) else { continue };
        if settings.buffer_of_tier.contains_key(&tier.name) {
            continue;
        }
        let organisation = match switch.buffering {
            Buffering::DeepVoq => Organisation::DeepVoq,
            Buffering::Shared | Buffering::Credits => Organisation::Shared,
        };
        let size = Bytes::new((switch.buffer_mb.value * 1e6).round() as u64);
        let buffer = BufferConfig { organisation, size, ..settings.buffer.clone() };
        let line = entry(tree, "switch", &tier.model).and_then(|entry| entry.at("buffer_mb"));
        let origin = line.map_or(Origin::DEFAULT, |line| line.origin);
        for (key, value) in [("size", Json::from(size.to_string())), ("organisation", Json::Null)] {
            let path = ["network", "buffer_of_tier", &tier.name, key];
            set(tree, &path, Node { value: Value::Scalar(value), origin });
        }
        settings.buffer_of_tier.insert(tier.name.clone(), buffer);
    }
}

/// The catalogue's entry of a kind and a name. Names may contain dots, so this is no path.
fn entry<'a>(tree: &'a Node, kind: &str, name: &str) -> Option<&'a Node> {
    let kind = tree.at("catalogue")?.at(kind)?.as_table()?;
    kind.get(name).map(|entry| &entry.node)
}

/// Whether nobody has set a value.
fn is_free(tree: &Node, path: &[&str]) -> bool {
    tree.at(&path.join(".")).is_none_or(|node| node.origin.layer <= Layer::Catalogue)
}

/// Puts a value at a path, making the tables on the way.
pub(crate) fn set(tree: &mut Node, path: &[&str], node: Node) {
    let [first, rest @ ..] = path else {
        *tree = node;
        return;
    };
    if let Value::Table(table) = &mut tree.value {
        let table = Arc::make_mut(table);
        let empty = || {
            let value = Value::table(Table::new());
            Entry { key: Origin::DEFAULT, node: Node { value, origin: Origin::DEFAULT } }
        };
        set(&mut table.entry((*first).to_owned()).or_insert_with(empty).node, rest, node);
    }
}
