//! Slurm's `topology.conf` and `topology.yaml`: switches and the nodes below them.
//!
//! Slurm knows servers and which switches they share, not cables. Every node becomes a server with
//! the cluster's NICs, all on its switch. Between a switch and those above it there are as many
//! cables as NICs below it, shared out evenly: no oversubscription, since the file says nothing of
//! it (`LinkSpeed` is ignored by Slurm too). Blocks hang on one switch each, and one more joins
//! them; rings and tori are refused.
//!
//! Source: Slurm's manual pages of both files; line continuation and comments as in `slurm.conf`.

use std::collections::BTreeMap;

use fabric::topology::{EdgeConfig, GraphConfig};
use units::Budget;

use super::hostlist::{self, expand};
use super::yaml::{self, Node};
use super::{Hints, LineError};

/// A switch with what is below it.
#[derive(Clone, Debug)]
struct Switch {
    line: usize,
    name: String,
    children: Vec<String>,
    nodes: Vec<String>,
}

/// What a server, a NIC or a cable takes in memory besides the letters of its names.
const EACH: u64 = 256;

pub(crate) fn read_conf(
    text: &str,
    hints: Hints,
    budget: &mut Budget,
) -> Result<GraphConfig, LineError> {
    budget.items = budget.items.min(hostlist::BUDGET.items);
    let mut switches = Vec::new();
    let mut blocks = Vec::new();
    let mut joined = String::new();
    let mut begun = 0;
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        if joined.is_empty() {
            begun = number;
        }
        let line = line.split('#').next().unwrap_or_default().trim_end();
        if let Some(open) = line.strip_suffix('\\') {
            joined.push_str(open);
            joined.push(' ');
            continue;
        }
        joined.push_str(line);
        let whole = std::mem::take(&mut joined);
        if !whole.trim().is_empty() {
            read_line((&whole, begun), &mut switches, &mut blocks, budget)?;
        }
    }
    if !joined.trim().is_empty() {
        return Err((begun, "the last line goes on after its `\\`: truncated?".to_owned()));
    }
    graph(with_blocks(switches, blocks), hints, budget)
}

fn read_line(
    (line, number): (&str, usize),
    switches: &mut Vec<Switch>,
    blocks: &mut Vec<Switch>,
    budget: &mut Budget,
) -> Result<(), LineError> {
    let wrong = |reason: String| (number, reason);
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    // Blanks may stand around an equals sign.
    let parts: Vec<&str> = line.split('=').map(str::trim).collect();
    let line = parts.join("=");
    for word in line.split_whitespace() {
        let Some((key, value)) = word.split_once('=') else {
            return Err(wrong(format!("`{word}` is not of the form Key=Value")));
        };
        fields.insert(key.to_lowercase(), value.to_owned());
    }
    let mut hosts = |key: &str| match fields.get(key) {
        Some(list) => expand(list, budget).map_err(wrong),
        None => Ok(Vec::new()),
    };
    let known = ["switchname", "blockname", "switches", "nodes", "linkspeed", "blocksizes"];
    let unknown = fields.keys().find(|key| !known.contains(&key.as_str()));
    match (fields.get("switchname"), fields.get("blockname")) {
        (Some(name), None) if unknown.is_none() => {
            let (children, nodes) = (hosts("switches")?, hosts("nodes")?);
            let names = expand(name, budget).map_err(wrong)?;
            for name in names {
                // Every switch of the list has all that the line names.
                let each = children.iter().chain(&nodes).map(|name| 32 + name.len() as u64);
                let spent = budget.spend_expansion(EACH + each.sum::<u64>());
                spent.map_err(|over| wrong(over.to_string()))?;
                let (children, nodes) = (children.clone(), nodes.clone());
                switches.push(Switch { line: number, name, children, nodes });
            }
            Ok(())
        }
        (None, Some(name)) if unknown.is_none() => {
            let (name, nodes) = (name.clone(), hosts("nodes")?);
            blocks.push(Switch { line: number, name, children: Vec::new(), nodes });
            Ok(())
        }
        (None, None) if fields.contains_key("blocksizes") && unknown.is_none() => Ok(()),
        _ => Err(wrong(match unknown {
            Some(key) if key == "ringname" => {
                "rings are not read, only trees and blocks".to_owned()
            }
            Some(key) => format!("there is no `{key}` in a topology.conf"),
            None => "a line begins with SwitchName= or BlockName=".to_owned(),
        })),
    }
}

pub(crate) fn read_yaml(
    text: &str,
    hints: Hints,
    budget: &mut Budget,
) -> Result<GraphConfig, LineError> {
    let root = yaml::read(text, budget)?;
    budget.items = budget.items.min(hostlist::BUDGET.items);
    let topologies = root.items();
    if topologies.is_empty() {
        return Err((root.line, "a topology.yaml is a list of topologies".to_owned()));
    }
    let is_default = |node: &&Node| {
        node.get("cluster_default").and_then(Node::text).is_some_and(|text| text == "true")
    };
    let chosen = topologies.iter().find(is_default).unwrap_or(&topologies[0]);
    if let Some(tree) = chosen.get("tree") {
        let switches = tree.get("switches").map(Node::items).unwrap_or_default();
        let switches: Result<Vec<Switch>, LineError> =
            switches.iter().map(|node| switch(node, "switch", budget)).collect();
        return graph(switches?, hints, budget);
    }
    if let Some(block) = chosen.get("block") {
        let blocks = block.get("blocks").map(Node::items).unwrap_or_default();
        let blocks: Result<Vec<Switch>, LineError> =
            blocks.iter().map(|node| switch(node, "block", budget)).collect();
        return graph(with_blocks(Vec::new(), blocks?), hints, budget);
    }
    Err((chosen.line, "only `tree` and `block` topologies are read".to_owned()))
}

fn switch(node: &Node, key: &str, budget: &mut Budget) -> Result<Switch, LineError> {
    let Some(name) = node.get(key).and_then(Node::text) else {
        return Err((node.line, format!("`{key}` is missing")));
    };
    let mut hosts = |key: &str| match node.get(key) {
        Some(list) => {
            let hosts = expand(list.text().unwrap_or_default(), budget);
            hosts.map_err(|wrong| (list.line, wrong))
        }
        None => Ok(Vec::new()),
    };
    let (children, nodes) = (hosts("children")?, hosts("nodes")?);
    Ok(Switch { line: node.line, name: name.to_owned(), children, nodes })
}

/// Blocks as switches, with one above them where there are several and nothing else joins them.
fn with_blocks(mut switches: Vec<Switch>, blocks: Vec<Switch>) -> Vec<Switch> {
    if 1 < blocks.len() {
        let children = blocks.iter().map(|block| block.name.clone()).collect();
        let (line, name) = (blocks[0].line, "between-blocks".to_owned());
        switches.push(Switch { line, name, children, nodes: Vec::new() });
    }
    blocks.into_iter().chain(switches).collect()
}

/// What the files do not say and this reader made up.
pub(crate) fn assumptions(hints: Hints) -> Vec<String> {
    let nics = hints.nics_per_node.max(1);
    vec![
        "Slurm says nothing of cables: as many uplinks as NICs below each switch are assumed, \
         which is no oversubscription"
            .to_owned(),
        format!(
            "every node is assumed to have {nics} NICs (`cluster.nics_per_node`), all on its switch"
        ),
    ]
}

fn graph(
    switches: Vec<Switch>,
    hints: Hints,
    budget: &mut Budget,
) -> Result<GraphConfig, LineError> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, switch) in switches.iter().enumerate() {
        if places.insert(&switch.name, at).is_some() {
            return Err((switch.line, format!("switch `{}` is there twice", switch.name)));
        }
    }
    let mut parents = vec![Vec::new(); switches.len()];
    for (at, switch) in switches.iter().enumerate() {
        for child in &switch.children {
            let Some(&child) = places.get(child.as_str()) else {
                return Err((switch.line, format!("there is no switch `{child}`")));
            };
            parents[child].push(at);
        }
    }
    let nics = hints.nics_per_node.max(1) as usize;
    let mut below = vec![0_usize; switches.len()];
    let mut endpoints = Vec::new();
    let mut edges = Vec::new();
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, switch) in switches.iter().enumerate() {
        for node in &switch.nodes {
            let letters = 3 * (node.len() as u64 + 8) + switch.name.len() as u64;
            let spent = budget.spend_expansion((EACH + letters).saturating_mul(nics as u64));
            spent.map_err(|over| (switch.line, over.to_string()))?;
            if homes.insert(node, at).is_some() {
                return Err((switch.line, format!("node `{node}` is below two switches")));
            }
            for nic in 0..nics {
                let name = if nics == 1 { node.clone() } else { format!("{node}/nic{nic}") };
                let (a, b) = (name.clone(), switch.name.clone());
                edges.push(EdgeConfig { a, b, ..EdgeConfig::default() });
                endpoints.push(name);
            }
        }
        below[at] += switch.nodes.len() * nics;
    }
    add_uplinks(&switches, &parents, below, &mut edges)?;
    Ok(GraphConfig { endpoints, nics_per_node: Some(nics as u32), switches: Vec::new(), edges })
}

/// Joins every switch with those above it, children before parents.
fn add_uplinks(
    switches: &[Switch],
    parents: &[Vec<usize>],
    mut below: Vec<usize>,
    edges: &mut Vec<EdgeConfig>,
) -> Result<(), LineError> {
    let mut waiting: Vec<usize> = switches.iter().map(|switch| switch.children.len()).collect();
    let mut ready: Vec<usize> = (0..switches.len()).filter(|at| waiting[*at] == 0).collect();
    let mut done = 0;
    while let Some(at) = ready.pop() {
        done += 1;
        let share = below[at].div_ceil(parents[at].len().max(1)).clamp(1, 1 << 16);
        for &parent in &parents[at] {
            below[parent] += share;
            edges.push(EdgeConfig {
                a: switches[at].name.clone(),
                b: switches[parent].name.clone(),
                count: Some(share as u32).filter(|count| *count != 1),
                ..EdgeConfig::default()
            });
            waiting[parent] -= 1;
            if waiting[parent] == 0 {
                ready.push(parent);
            }
        }
    }
    if done < switches.len() {
        let stuck = waiting.iter().position(|waiting| 0 < *waiting).unwrap_or(0);
        let Switch { line, name, .. } = &switches[stuck];
        return Err((*line, format!("switch `{name}` is below itself")));
    }
    Ok(())
}
