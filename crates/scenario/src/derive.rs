//! What follows from other settings: a card's latencies, a box's packet memory.
//!
//! A scenario names its hardware; what the catalogue knows of it becomes the default of the
//! settings that the engines obey. What somebody has set stays as it was set. A derived value's
//! origin is the catalogue's line, so that `check --print` shows where it came from.

use fabric::Fabric;
use fabric::hardware::Buffering;
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
    let derived = [
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
fn set(tree: &mut Node, path: &[&str], node: Node) {
    let [first, rest @ ..] = path else {
        *tree = node;
        return;
    };
    if let Value::Table(table) = &mut tree.value {
        let empty = || {
            let value = Value::Table(Table::new());
            Entry { key: Origin::DEFAULT, node: Node { value, origin: Origin::DEFAULT } }
        };
        set(&mut table.entry((*first).to_owned()).or_insert_with(empty).node, rest, node);
    }
}
