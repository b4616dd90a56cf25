//! A picture for Graphviz, switch by switch or folded.
//!
//! A folded picture has one box for the switches of a tier and zone, and one edge for all cables
//! between two boxes, with their number. Where there are more than a few zones, they share a box.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fabric::{Fabric, NodeId};
use units::Rate;

use super::{cables, name, server_name, switches};

/// How much of a fabric is drawn.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Detail {
    /// Everything if that can be looked at, else folded.
    #[default]
    Auto,
    /// Every server, switch and cable.
    Full,
    /// Boxes of equal switches.
    Folded,
}

/// The most boxes that a picture may have before it is folded.
const MOST_BOXES: usize = 300;

/// The most zones that get boxes of their own in a folded picture.
const MOST_ZONES: u32 = 8;

/// A box of the picture, in the order in which boxes are written.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    /// 0 for servers, then by tier.
    rank: usize,
    zone: u32,
    number: usize,
    name: String,
}

/// The back-end as a graph in the DOT language.
pub fn graphviz(fabric: &Fabric, detail: Detail) -> String {
    let is_folded = match detail {
        Detail::Auto => MOST_BOXES < fabric.servers() + switches(fabric).count(),
        Detail::Full => false,
        Detail::Folded => true,
    };
    let zones = fabric.leaves().iter().map(|leaf| fabric.nodes()[*leaf].zone + 1).max();
    let zones = zones.unwrap_or(1);
    let place = |node: NodeId| match is_folded {
        true => folded(fabric, node, zones),
        false => whole(fabric, node),
    };
    let mut counts: BTreeMap<Place, u64> = BTreeMap::new();
    for nic in (0..fabric.nics()).step_by(fabric.nics_per_node()) {
        *counts.entry(place(fabric.nic(nic))).or_default() += 1;
    }
    for switch in switches(fabric) {
        *counts.entry(place(switch)).or_default() += 1;
    }
    let numbers: BTreeMap<&Place, usize> =
        counts.keys().enumerate().map(|(number, place)| (place, number)).collect();
    let mut text = String::from("graph fabric {\n  rankdir=BT;\n  node [shape=box];\n");
    for (number, (place, count)) in counts.iter().enumerate() {
        let shape = if place.rank == 0 { ", shape=ellipse" } else { "" };
        let label = format!("{}{}", times(*count), escaped(&place.name));
        writeln!(text, "  n{number} [label=\"{label}\"{shape}];").expect("a string takes it all");
    }
    let mut edges: BTreeMap<(usize, usize, Rate), u64> = BTreeMap::new();
    for cable in cables(fabric) {
        let link = fabric.links()[cable];
        let ends = [link.from, link.to].map(|end| numbers.get(&place(end)).copied());
        if let [Some(a), Some(b)] = ends {
            *edges.entry((a.min(b), a.max(b), fabric.class(cable).rate)).or_default() += 1;
        }
    }
    for ((a, b, rate), count) in edges {
        let label = format!("{}{rate}", times(count));
        writeln!(text, "  n{a} -- n{b} [label=\"{label}\"];").expect("a string takes it all");
    }
    text.push_str("}\n");
    text
}

fn times(count: u64) -> String {
    if count == 1 { String::new() } else { format!("{count} × ") }
}

fn whole(fabric: &Fabric, node: NodeId) -> Place {
    let about = fabric.nodes()[node];
    match fabric.server_of(node) {
        Some(server) => Place { rank: 0, zone: 0, number: server, name: server_name(fabric, node) },
        None => Place {
            rank: 1 + usize::from(about.tier),
            zone: about.zone,
            number: about.index as usize,
            name: name(fabric, node),
        },
    }
}

fn folded(fabric: &Fabric, node: NodeId, zones: u32) -> Place {
    let about = fabric.nodes()[node];
    // A server stands with the leaf that its first NIC hangs on.
    let (rank, what, of) = match fabric.server_of(node) {
        Some(server) => {
            let first = fabric.nic(server * fabric.nics_per_node());
            let leaf = fabric.ports(first).first().map(|up| fabric.links()[*up].to);
            (0, "server", leaf.map_or(about, |leaf| fabric.nodes()[leaf]))
        }
        None => {
            let name = fabric.tiers()[usize::from(about.tier)].name.as_str();
            (1 + usize::from(about.tier), name, about)
        }
    };
    let network = fabric.networks().iter().find(|network| network.tiers.contains(&of.tier));
    let word = network.map_or("zone", |network| network.zone_word.as_str());
    // The highest of three tiers stands above all zones.
    let is_core =
        |network: &fabric::graph::Network| rank != 0 && about.tier == network.tiers.start + 2;
    let (zone, name) = if zones == 1 || network.is_some_and(is_core) {
        (0, what.to_owned())
    } else if MOST_ZONES < zones {
        (0, format!("{what}\nin {zones} {word}s"))
    } else {
        (of.zone, format!("{word} {} {what}", of.zone))
    };
    Place { rank, zone, number: 0, name }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
