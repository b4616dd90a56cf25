//! An explicit graph: endpoints, switches and cables by name, written inline or imported.
//!
//! Every endpoint is one back-end NIC, with as many ports as it has cables; the NICs of one server
//! stand together. Tiers are told by how far a switch is from the nearest endpoint. Next hops come
//! from distances, not from structure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Id, Length, Ranged, Ranges, Rate, Span};

use super::Back;
use super::circuits::refuse_circuits;
use super::cluster::ClusterConfig;
use super::error::{Errors, nearest};
use super::family::{Family, Network, folded};
use super::scale_up;
use super::settings::LinkConfig;
use super::sizing::{Habits, Inputs};
use crate::graph::{ClassId, FabricBuilder, LinkClass, LinkKind, NetworkKind, NodeId, Tier};

/// See the top of this file.
pub(crate) struct File;

impl Family for File {
    fn keys(&self) -> Vec<&'static str> {
        vec!["file", "graph", "spine", "core"]
    }

    /// A graph alone is built by [`build`]; it cannot stand beside others.
    fn plan(
        &self,
        inputs: &Inputs<'_>,
        _: &Back,
        name: &str,
        errors: &mut Errors,
    ) -> Box<dyn Network> {
        let reason = "a graph cannot be one of several parts".to_owned();
        errors.push(&inputs.at("topology"), reason, "topology = \"clos\"");
        folded(inputs, Vec::new(), &Habits::default(), [name, "pod"], errors)
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, ClusterConfig, super::FabricConfig)> {
        let graph = GraphConfig::chain(&[2, 1, 0, 3], Rate::from_gbps(400), Span::from_ns(10));
        let config = super::tests::of(super::TopologyKind::File);
        let config = super::FabricConfig { graph: Some(graph), ..config };
        vec![("graph", ClusterConfig::default(), config)]
    }
}

/// A graph by name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphConfig {
    /// The NICs, in the order of their numbers; those of one server together.
    pub endpoints: Vec<String>,
    /// NICs of each server; without it, the cluster's, or 1 if that does not divide them.
    pub nics_per_node: Option<u32>,
    /// Switches whose model is known. Every other name in `edges` is a switch too.
    pub switches: Vec<SwitchConfig>,
    /// The cables.
    pub edges: Vec<EdgeConfig>,
}

/// A switch of an explicit graph.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchConfig {
    /// Its name.
    pub name: String,
    /// The box, by its name in the hardware catalogue.
    pub model: Option<String>,
}

/// A cable of an explicit graph.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EdgeConfig {
    /// One end.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Bits per second in each direction; without it, the rate of the cluster's NICs.
    pub rate: Option<Rate>,
    /// Delay from end to end; without it, what the length makes.
    pub delay: Option<Span>,
    /// Length; without it, 3 m (illustrative).
    pub length: Option<Length>,
    /// How many such cables lie side by side; without it, one.
    pub count: Option<u32>,
}

impl EdgeConfig {
    /// A cable of this rate and delay.
    pub fn new(a: &str, b: &str, rate: Rate, delay: Span) -> Self {
        let (a, b) = (a.to_owned(), b.to_owned());
        Self { a, b, rate: Some(rate), delay: Some(delay), ..Self::default() }
    }
}

impl Ranged for GraphConfig {
    fn ranges(&self, check: &mut Ranges) {
        if let Some(nics) = self.nics_per_node {
            check.within("nics_per_node", nics, [1, 1024]);
        }
        for (at, edge) in self.edges.iter().enumerate() {
            let EdgeConfig { rate, delay, length, count, .. } = edge;
            let (rate, delay, length) = (*rate, *delay, *length);
            check.table(&format!("edges.{at}"), &LinkConfig { rate, delay, length });
            if let Some(count) = *count {
                check.within(&format!("edges.{at}.count"), count, [1, 65_536]);
            }
        }
    }
}

impl GraphConfig {
    /// `hosts` endpoints on one switch.
    pub fn star(hosts: usize, rate: Rate, delay: Span) -> Self {
        let endpoints: Vec<String> = (0..hosts).map(|host| format!("host{host}")).collect();
        let edge = |host: &String| EdgeConfig::new(host, "switch0", rate, delay);
        let edges = endpoints.iter().map(edge).collect();
        Self { endpoints, nics_per_node: Some(1), edges, ..Self::default() }
    }

    /// `hosts` endpoints on each of two switches, one trunk between them.
    pub fn dumbbell(hosts: usize, rate: Rate, trunk: Rate, delay: Span) -> Self {
        let mut graph = Self::chain(&[hosts, hosts], rate, delay);
        graph.edges[2 * hosts].rate = Some(trunk);
        graph
    }

    /// Switches in a row, with so many endpoints on each.
    pub fn chain(hosts: &[usize], rate: Rate, delay: Span) -> Self {
        let mut graph = Self { nics_per_node: Some(1), ..Self::default() };
        for (at, &count) in hosts.iter().enumerate() {
            for _ in 0..count {
                let host = format!("host{}", graph.endpoints.len());
                graph.edges.push(EdgeConfig::new(&host, &format!("switch{at}"), rate, delay));
                graph.endpoints.push(host);
            }
        }
        for at in 1..hosts.len() {
            let (a, b) = (format!("switch{}", at - 1), format!("switch{at}"));
            graph.edges.push(EdgeConfig::new(&a, &b, rate, delay));
        }
        graph
    }
}

/// What a graph makes of the servers: how many, and GPUs and NICs in each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Servers {
    pub(crate) servers: usize,
    pub(crate) gpus_per_node: usize,
    pub(crate) nics_per_node: usize,
}

/// The servers that the endpoints belong to.
pub(crate) fn servers(
    graph: &GraphConfig,
    cluster: &ClusterConfig,
    path: &str,
    errors: &mut Errors,
) -> Servers {
    let endpoints = graph.endpoints.len();
    if endpoints == 0 {
        errors.push(&format!("{path}.endpoints"), "the graph has no endpoints".to_owned(), "");
    }
    let usual = cluster.nics_per_node.max(1) as usize;
    let said = graph.nics_per_node.map(|nics| nics.max(1) as usize);
    let nics = said.unwrap_or(if endpoints.is_multiple_of(usual) { usual } else { 1 });
    if !endpoints.is_multiple_of(nics) {
        let reason = format!("{endpoints} endpoints are no whole number of {nics}-NIC servers");
        errors.push(&format!("{path}.nics_per_node"), reason, "nics_per_node = 1");
    }
    let servers = (endpoints / nics).max(1);
    let gpus = (cluster.gpus_per_node.max(1) as usize * nics / usual).max(1);
    let gpus = match cluster.gpus {
        Some(all) if (all as usize).is_multiple_of(servers) && 0 < all => all as usize / servers,
        Some(all) => {
            let reason =
                format!("{all} GPUs do not divide among the {servers} servers of the graph");
            errors.push("cluster.gpus", reason, &format!("gpus = {}", servers * gpus));
            gpus
        }
        None => gpus,
    };
    if cluster.nodes.is_some_and(|nodes| nodes as usize != servers) {
        let reason = format!("the graph has {servers} servers");
        errors.push("cluster.nodes", reason, &format!("nodes = {servers}"));
    }
    Servers { servers, gpus_per_node: gpus, nics_per_node: nics }
}

/// Builds the whole fabric.
pub(crate) fn build(
    graph: &GraphConfig,
    inputs: &Inputs<'_>,
    servers: Servers,
    front_nics: usize,
    scale_up: &super::cluster::ScaleUp,
    errors: &mut Errors,
) -> FabricBuilder {
    let Servers { servers, gpus_per_node, nics_per_node } = servers;
    let mut builder = FabricBuilder::new(servers, gpus_per_node, nics_per_node);
    let gpus = servers * gpus_per_node;
    let mut names: Vec<String> = (0..gpus).map(|gpu| format!("GPU {gpu}")).collect();
    names.extend(graph.endpoints.iter().cloned());
    names.resize(gpus + servers * nics_per_node, String::new());
    for nic in 0..front_nics {
        builder.front_end_nic(nic);
        names.push(format!("front-end NIC {nic}"));
    }
    scale_up::wire(scale_up, gpus, &mut builder);
    let domains = builder.len() - names.len();
    names.extend((0..domains).map(|domain| format!("{} {domain}", scale_up.name)));

    let mut ids: BTreeMap<&str, Result<NodeId, usize>> = BTreeMap::new();
    for (at, name) in graph.endpoints.iter().enumerate() {
        if ids.insert(name, Ok(NodeId::from_index(gpus + at))).is_some() {
            let reason = format!("`{name}` is there twice");
            errors.push(&inputs.at("graph.endpoints"), reason, "");
        }
    }
    let mut switches: Vec<&str> = Vec::new();
    let ends = graph.edges.iter().flat_map(|edge| [&edge.a, &edge.b]);
    for name in graph.switches.iter().map(|switch| &switch.name).chain(ends) {
        ids.entry(name).or_insert_with(|| {
            switches.push(name);
            Err(switches.len() - 1)
        });
    }
    refuse_pieces(graph, inputs, nics_per_node, errors);
    refuse_circuits(inputs, errors);
    let levels = levels(graph, &ids, switches.len());
    builder.network("fabric", NetworkKind::BackEnd, "pod");
    let nodes = add_switches(graph, inputs, &switches, &levels, &mut builder, errors);
    names.extend(switches.iter().map(|name| (*name).to_owned()));
    builder.names(names);

    let mut classes: Vec<(LinkClass, ClassId)> = Vec::new();
    for (at, edge) in graph.edges.iter().enumerate() {
        let path = inputs.at(&format!("graph.edges.{at}"));
        if edge.a.is_empty() || edge.b.is_empty() || edge.a == edge.b {
            let reason = format!("a cable joins two names, not `{}` and `{}`", edge.a, edge.b);
            errors.push(&path, reason, "");
            continue;
        }
        let id = |name: &String| ids[name.as_str()].unwrap_or_else(|switch| nodes[switch]);
        let level = |name: &String| ids[name.as_str()].map_or_else(|at| levels[at] + 1, |_| 0);
        let class = class_of(edge, level(&edge.a).max(level(&edge.b)), inputs.port_rate);
        let class = match classes.iter().find(|(known, _)| *known == class) {
            Some((_, id)) => *id,
            None => {
                let id = builder.class(class.clone());
                classes.push((class, id));
                id
            }
        };
        for _ in 0..edge.count.unwrap_or(1) {
            builder.cable(id(&edge.a), id(&edge.b), class);
        }
    }
    builder
}

fn class_of(edge: &EdgeConfig, level: usize, usual: Rate) -> LinkClass {
    let length = edge.length.unwrap_or(Length::from_metres(3));
    let tier = tier_name(level.saturating_sub(1));
    LinkClass {
        name: if level < 2 { format!("NIC – {tier}") } else { format!("below {tier}") },
        kind: LinkKind::ScaleOut,
        rate: edge.rate.unwrap_or(usual),
        delay: edge.delay.unwrap_or(length.propagation()),
        length,
    }
}

fn tier_name(level: usize) -> String {
    match level {
        0 => "leaf".to_owned(),
        1 => "spine".to_owned(),
        2 => "core".to_owned(),
        _ => format!("tier {}", level + 1),
    }
}

/// A network that is not connected is an error.
fn refuse_pieces(graph: &GraphConfig, inputs: &Inputs<'_>, nics: usize, errors: &mut Errors) {
    if let (Some(first), Some(other)) = (graph.endpoints.first(), cut_off(graph, nics)) {
        let reason = format!(
            "the network is not connected: no cable leads from `{first}` to `{other}`, not even by \
             way of other servers"
        );
        errors.push(&inputs.at("graph.edges"), reason, "");
    }
}

/// The first endpoint that cables do not join with the first one. NICs of one server count as
/// joined, because rails may meet only there.
fn cut_off(graph: &GraphConfig, nics_per_node: usize) -> Option<&str> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let ends = graph.edges.iter().flat_map(|edge| [&edge.a, &edge.b]);
    for name in graph.endpoints.iter().chain(ends) {
        let next = numbers.len();
        numbers.entry(name).or_insert(next);
    }
    let mut above: Vec<usize> = (0..numbers.len()).collect();
    fn root(above: &mut [usize], mut at: usize) -> usize {
        while above[at] != at {
            above[at] = above[above[at]];
            at = above[at];
        }
        at
    }
    let mut join = |a: &str, b: &str| {
        let [a, b] = [a, b].map(|name| root(&mut above, numbers[name]));
        above[a.max(b)] = a.min(b);
    };
    for server in graph.endpoints.chunks(nics_per_node.max(1)) {
        server.windows(2).for_each(|pair| join(&pair[0], &pair[1]));
    }
    graph.edges.iter().for_each(|edge| join(&edge.a, &edge.b));
    let first = numbers.get(graph.endpoints.first()?.as_str())?;
    let first = root(&mut above, *first);
    let mut names = graph.endpoints.iter();
    names.find(|name| root(&mut above, numbers[name.as_str()]) != first).map(String::as_str)
}

/// How far each switch is from the nearest endpoint: 0 for one that has an endpoint on it.
fn levels(
    graph: &GraphConfig,
    ids: &BTreeMap<&str, Result<NodeId, usize>>,
    switches: usize,
) -> Vec<usize> {
    let mut levels = vec![usize::MAX; switches];
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); switches];
    let mut frontier = Vec::new();
    for edge in &graph.edges {
        match (ids[edge.a.as_str()], ids[edge.b.as_str()]) {
            (Err(a), Err(b)) => {
                neighbours[a].push(b);
                neighbours[b].push(a);
            }
            (Ok(_), Err(switch)) | (Err(switch), Ok(_)) => {
                if levels[switch] != 0 {
                    levels[switch] = 0;
                    frontier.push(switch);
                }
            }
            (Ok(_), Ok(_)) => {}
        }
    }
    let mut level = 0;
    while !frontier.is_empty() {
        level += 1;
        let mut reached = Vec::new();
        for &other in frontier.iter().flat_map(|&near| &neighbours[near]) {
            if levels[other] == usize::MAX {
                levels[other] = level;
                reached.push(other);
            }
        }
        frontier = reached;
    }
    // A switch that no endpoint reaches counts as a leaf without endpoints.
    levels.iter().map(|&level| if level == usize::MAX { 0 } else { level }).collect()
}

fn add_switches(
    graph: &GraphConfig,
    inputs: &Inputs<'_>,
    switches: &[&str],
    levels: &[usize],
    builder: &mut FabricBuilder,
    errors: &mut Errors,
) -> Vec<NodeId> {
    let models: BTreeMap<&str, &str> = graph
        .switches
        .iter()
        .filter_map(|switch| Some((switch.name.as_str(), switch.model.as_deref()?)))
        .collect();
    let known: Vec<&str> = inputs.catalogue.switch.keys().map(String::as_str).collect();
    let mut tiers: BTreeMap<(usize, &str), u8> = BTreeMap::new();
    let mut indices: BTreeMap<u8, usize> = BTreeMap::new();
    let mut nodes = Vec::with_capacity(switches.len());
    for (at, name) in switches.iter().enumerate() {
        let level = levels[at].min(200);
        let model = models.get(name).copied().unwrap_or_default();
        if !model.is_empty() && !known.is_empty() && !known.contains(&model) {
            let reason = format!("there is no `{model}` in the hardware catalogue");
            let near = nearest(model, &known).unwrap_or_default();
            errors.push(&inputs.at("graph.switches"), reason, near);
        }
        let key = (level, model);
        let tier = *tiers.entry(key).or_insert_with(|| {
            let usual = inputs.level(level.min(2), &Habits::default(), errors);
            let listed = inputs.catalogue.switch.get(model);
            let latency = listed.map_or(usual.latency, |switch| {
                Span::from_secs_f64(switch.latency_ns.value * 1e-9)
            });
            let model = if model.is_empty() { usual.model } else { model.to_owned() };
            builder.tier(Tier { name: tier_name(level), model, latency })
        });
        let index = indices.entry(tier).or_default();
        nodes.push(builder.plain_switch(tier, 0, *index));
        *index += 1;
    }
    nodes
}
