//! A containerlab topology: `topology.nodes` and `topology.links`.
//!
//! A node whose kind is `linux` (its own, its group's, or the default) is a server, every other one
//! a switch; a label `fatflow-role` of `server` or `switch` wins. Every cable of a server is a NIC
//! of its own, except that interfaces called `nic3p0`, `nic3p1`, … are the ports of one. Links may
//! be short (`endpoints: ["n1:e1", "n2:e2"]`) or long (tables with `node` and `interface`); those
//! that end outside of the lab (`host:`, `mgmt-net:`, `macvlan:`) are left out. Containerlab knows
//! no rates: `vars` of a link with `rate`, `delay` and `length` are read, as the export writes
//! them.
//!
//! Source: containerlab's manual ("Topology definition", "Nodes", "Links") and JSON schema.

use std::collections::{BTreeMap, BTreeSet};

use fabric::topology::{EdgeConfig, GraphConfig, SwitchConfig};
use units::Budget;

use super::yaml::{self, Node};
use super::{LineError, by_server};

/// Words that stand before an interface of the machine that runs the lab.
const OUTSIDE: [&str; 3] = ["host", "mgmt-net", "macvlan"];

/// Kinds that are hosts, not switches.
const HOST_KINDS: [&str; 3] = ["linux", "ext-container", "k8s-kind"];

pub(crate) fn read(text: &str, budget: &mut Budget) -> Result<GraphConfig, LineError> {
    let root = yaml::read(text, budget)?;
    let Some(topology) = root.get("topology") else {
        return Err((root.line, "`topology` is missing".to_owned()));
    };
    let Some(nodes) = topology.get("nodes") else {
        return Err((topology.line, "`topology.nodes` is missing".to_owned()));
    };
    let mut is_server: BTreeMap<&str, bool> = BTreeMap::new();
    let mut switches = Vec::new();
    for (name, node) in nodes.entries() {
        if is_server.contains_key(name.as_str()) {
            return Err((node.line, format!("node `{name}` is there twice")));
        }
        let server = self::is_server(node, topology).map_err(|reason| (node.line, reason))?;
        is_server.insert(name, server);
        if !server {
            let label = |key: &str| node.get("labels").and_then(|labels| labels.get(key)?.text());
            let model = label("fatflow-model").map(str::to_owned);
            switches.push(SwitchConfig { name: name.clone(), model });
        }
    }
    let mut edges = Vec::new();
    let mut endpoints: Vec<(String, String)> = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let links = topology.get("links").map(Node::items).unwrap_or_default();
    for link in links {
        let Some([one, other]) = ends(link)? else { continue };
        let mut names = Vec::new();
        for (node, interface) in [one, other] {
            let Some(&server) = is_server.get(node.as_str()) else {
                return Err((link.line, format!("there is no node `{node}`")));
            };
            if !server {
                names.push(node);
                continue;
            }
            let endpoint = format!("{node}/{}", nic_of(&interface));
            if seen.insert(endpoint.clone()) {
                endpoints.push((node, endpoint.clone()));
            }
            names.push(endpoint);
        }
        let (b, a) = (names.pop().unwrap_or_default(), names.pop().unwrap_or_default());
        if a == b {
            return Err((link.line, format!("`{a}` is joined with itself")));
        }
        budget.spend_items(1).map_err(|over| (link.line, over.to_string()))?;
        edges.push(edge(a, b, link)?);
    }
    let (endpoints, nics_per_node) = by_server(endpoints);
    Ok(GraphConfig { endpoints, nics_per_node, switches, edges })
}

fn is_server(node: &Node, topology: &Node) -> Result<bool, String> {
    let labels = node.get("labels");
    if let Some(role) = labels.and_then(|labels| labels.get("fatflow-role")?.text()) {
        return match role {
            "server" => Ok(true),
            "switch" => Ok(false),
            _ => Err(format!("`fatflow-role` is `server` or `switch`, not `{role}`")),
        };
    }
    let kind = |node: &Node| node.get("kind").and_then(Node::text).map(str::to_owned);
    let group = node.get("group").and_then(Node::text);
    let of_group = || kind(topology.get("groups")?.get(group?)?);
    let usual = || kind(topology.get("defaults")?);
    let kind = kind(node).or_else(of_group).or_else(usual);
    Ok(kind.is_some_and(|kind| HOST_KINDS.contains(&kind.as_str())))
}

/// The NIC that an interface belongs to: `nic3` for `nic3p1`, else itself.
fn nic_of(interface: &str) -> &str {
    match interface.strip_prefix("nic").and_then(|rest| rest.split_once('p')) {
        Some((nic, port)) if [nic, port].iter().all(|digits| is_number(digits)) => {
            &interface[..3 + nic.len()]
        }
        _ => interface,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

type End = (String, String);

/// Node and interface of both ends; `None` if the link leaves the lab.
fn ends(link: &Node) -> Result<Option<[End; 2]>, LineError> {
    let Some(endpoints) = link.get("endpoints") else {
        // Long links with one end (`host`, `mgmt-net`, `macvlan`, `vxlan`, `dummy`).
        return match link.get("endpoint") {
            Some(_) => Ok(None),
            None => Err((link.line, "`endpoints` is missing".to_owned())),
        };
    };
    let mut ends = Vec::new();
    for end in endpoints.items() {
        let (node, interface) = match end.text() {
            Some(text) => text.split_once(':').ok_or_else(|| {
                (end.line, format!("`{text}` is not a node and an interface, as `n1:eth1`"))
            })?,
            None => match (end.get("node").and_then(Node::text), end.get("interface")) {
                (Some(node), Some(interface)) => (node, interface.text().unwrap_or_default()),
                _ => return Err((end.line, "`node` and `interface` are missing".to_owned())),
            },
        };
        if OUTSIDE.contains(&node) {
            return Ok(None);
        }
        ends.push((node.to_owned(), interface.to_owned()));
    }
    match <[End; 2]>::try_from(ends) {
        Ok(ends) => Ok(Some(ends)),
        Err(ends) => Err((endpoints.line, format!("a link has two ends, not {}", ends.len()))),
    }
}

fn edge(a: String, b: String, link: &Node) -> Result<EdgeConfig, LineError> {
    let vars = link.get("vars");
    let var = |name: &str| {
        let node = vars?.get(name)?;
        Some((node.line, node.text()?))
    };
    let wrong = |line: usize| move |error: units::QuantityError| (line, error.to_string());
    let rate = var("rate").map(|(line, text)| text.parse().map_err(wrong(line))).transpose()?;
    let delay = var("delay").map(|(line, text)| text.parse().map_err(wrong(line))).transpose()?;
    let length = var("length").map(|(line, text)| text.parse().map_err(wrong(line))).transpose()?;
    Ok(EdgeConfig { a, b, rate, delay, length, count: None })
}
