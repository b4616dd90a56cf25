//! A containerlab topology, to try a fabric's routing on virtual switches.
//!
//! Servers are `linux` nodes with an interface for each port of a NIC (`nic3p0`); switches run
//! `sonic-vs` images. Rates, delays and lengths stand in the `vars` of links, which containerlab
//! keeps and ignores. Meant for small fabrics: a laptop runs some dozens of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fabric::{Fabric, NodeId, NodeKind};

use super::{cables, server_name, switches};

/// The back-end as a containerlab topology with this name.
pub fn containerlab(fabric: &Fabric, title: &str) -> String {
    let mut names = Names::default();
    let lab = plain(title);
    let mut text = format!("name: {}\n", if lab.is_empty() { "fabric" } else { &lab });
    text.push_str("topology:\n  kinds:\n    sonic-vs:\n      image: docker-sonic-vs:latest\n");
    text.push_str("    linux:\n      image: alpine:latest\n  nodes:\n");
    let mut servers = Vec::with_capacity(fabric.servers());
    for server in 0..fabric.servers() {
        let first = fabric.nic(server * fabric.nics_per_node());
        let name = names.unique(&server_name(fabric, first));
        writeln!(text, "    {name}: {{kind: linux}}").expect("a string takes it all");
        servers.push(name);
    }
    let mut switch_names: BTreeMap<NodeId, String> = BTreeMap::new();
    for switch in switches(fabric) {
        let name = names.unique(&fabric.name(switch));
        let model = &fabric.tiers()[usize::from(fabric.nodes()[switch].tier)].model;
        let model = model.replace(['"', '\\'], "");
        writeln!(text, "    {name}: {{kind: sonic-vs, labels: {{fatflow-model: \"{model}\"}}}}")
            .expect("a string takes it all");
        switch_names.insert(switch, name);
    }
    text.push_str("  links:\n");
    let mut next: BTreeMap<NodeId, usize> = BTreeMap::new();
    for cable in cables(fabric) {
        let link = fabric.links()[cable];
        let [a, b] = [link.from, link.to].map(|end| {
            let port = next.entry(end).or_default();
            *port += 1;
            match fabric.nodes()[end].kind {
                NodeKind::Nic => {
                    let server = fabric.server_of(end).expect("a back-end NIC sits in a server");
                    let (nic, port) = (fabric.rail_of(end), *port - 1);
                    format!("{}:nic{nic}p{port}", servers[server])
                }
                // eth0 is the management interface.
                _ => format!("{}:eth{port}", switch_names[&end]),
            }
        });
        let class = fabric.class(cable);
        writeln!(
            text,
            "    - endpoints: [\"{a}\", \"{b}\"]\n      vars: {{rate: {}, delay: {}, length: {}}}",
            class.rate, class.delay, class.length
        )
        .expect("a string takes it all");
    }
    text
}

/// Names that containerlab takes, each given once.
#[derive(Debug, Default)]
struct Names(BTreeSet<String>);

impl Names {
    fn unique(&mut self, name: &str) -> String {
        let mut plain = plain(name);
        // A bare number would be read as one, and some words mean something else.
        let special = ["host", "mgmt-net", "macvlan", "true", "false", "null", "no", "yes"];
        let has_letter = plain.bytes().any(|byte| byte.is_ascii_alphabetic());
        if !has_letter || special.contains(&plain.as_str()) {
            plain = format!("n-{plain}");
        }
        let mut name = plain.clone();
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{plain}-{number}");
            number += 1;
        }
        name
    }
}

/// Lower-case letters, digits and single dashes.
fn plain(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> =
        words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
    words.join("-")
}
