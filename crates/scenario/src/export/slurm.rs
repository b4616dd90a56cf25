//! Slurm's `topology.conf`: which servers are near each other.
//!
//! Slurm wants a tree. Leaves that share servers (the rails of a segment, the leaves of a pair or
//! of two planes) become one switch of the tree, the spines of a pod one above them, and the cores
//! one above the pods. That is how operators write it too: the scheduler counts levels, not cables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fabric::Fabric;
use units::Id;

use super::host_name;
use crate::import::compress;

/// The back-end as a `topology.conf`.
pub fn slurm(fabric: &Fabric) -> String {
    let mut text = String::from("# Written by fatflow. Slurm counts levels, not cables.\n");
    let groups = slurm_groups(fabric);
    let mut names = Vec::with_capacity(groups.len());
    for (number, group) in groups.iter().enumerate() {
        let host = |server: &usize| host_name(fabric, *server);
        let hosts: Vec<String> = group.servers.iter().map(host).collect();
        writeln!(text, "SwitchName=leaf{number} Nodes={}", compress(&hosts))
            .expect("a string takes it all");
        names.push(format!("leaf{number}"));
    }
    let mut pods: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (group, name) in groups.iter().zip(&names) {
        pods.entry(group.zone).or_default().push(name.clone());
    }
    let level = |switch| fabric.cover(switch).map_or(0, |cover| cover.level);
    let has_pods = fabric.switches().any(|switch| level(switch) == 2) && 1 < pods.len();
    if has_pods && pods.values().any(|pod| 1 < pod.len()) {
        names.clear();
        for (number, below) in pods.values().enumerate() {
            writeln!(text, "SwitchName=pod{number} Switches={}", compress(below))
                .expect("a string takes it all");
            names.push(format!("pod{number}"));
        }
    }
    if 1 < names.len() {
        writeln!(text, "SwitchName=top Switches={}", compress(&names))
            .expect("a string takes it all");
    }
    text
}

/// Servers whose leaves hang together: one switch of Slurm's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmGroup {
    /// The servers, in order.
    pub servers: Vec<usize>,
    /// The zone of the first of these leaves.
    pub zone: u32,
}

/// The servers by the leaves they share, in order.
pub fn slurm_groups(fabric: &Fabric) -> Vec<SlurmGroup> {
    // Which leaves hang together: a forest in which each leaf names one nearer to its root.
    let mut home: Vec<usize> = (0..fabric.switches().len()).collect();
    fn root(home: &mut [usize], mut at: usize) -> usize {
        while home[at] != at {
            home[at] = home[home[at]];
            at = home[at];
        }
        at
    }
    let leaves_of = |server: usize| -> Vec<usize> {
        let nics = server * fabric.nics_per_node()..(server + 1) * fabric.nics_per_node();
        let links = nics.flat_map(|nic| fabric.ports(fabric.nic(nic)));
        links.filter_map(|link| fabric.switch_ordinal(fabric.links()[*link].to)).collect()
    };
    for server in 0..fabric.servers() {
        for pair in leaves_of(server).windows(2) {
            let (a, b) = (root(&mut home, pair[0]), root(&mut home, pair[1]));
            home[a.max(b)] = a.min(b);
        }
    }
    let first_switch = fabric.nodes().len() - fabric.switches().len();
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    let mut groups: Vec<SlurmGroup> = Vec::new();
    for server in 0..fabric.servers() {
        let Some(&leaf) = leaves_of(server).first() else { continue };
        let number = *numbers.entry(root(&mut home, leaf)).or_insert_with(|| {
            let zone = fabric.nodes()[fabric::NodeId::from_index(first_switch + leaf)].zone;
            groups.push(SlurmGroup { servers: Vec::new(), zone });
            groups.len() - 1
        });
        groups[number].servers.push(server);
    }
    groups
}

/// A name without what has a meaning in a host list.
pub(super) fn word(name: &str) -> String {
    name.replace(|c: char| c.is_whitespace() || "[],=#\\".contains(c), "-")
}
