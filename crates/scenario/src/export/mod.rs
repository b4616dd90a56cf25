//! Fabrics as other tools read them: one file for each format.
//!
//! Written is the back-end: servers with their NICs, switches and cables. What is inside of servers
//! and on the front-end stays out, because none of these formats has a place for it. An edge list
//! or a containerlab topology, imported again, is the same network with the same NIC numbers.

mod containerlab;
mod edge_list;
mod graphviz;
mod slurm;

use fabric::graph::{LinkKind, NetworkKind};
use fabric::{Fabric, LinkId, NodeId, NodeKind};
use units::Id;

pub use containerlab::containerlab;
pub use edge_list::edge_list;
pub use graphviz::{Detail, graphviz};
pub use slurm::{SlurmGroup, slurm, slurm_groups};

/// What a scheduler calls the server with this number: its name as it was imported, without what
/// has a meaning in a host list, or `node3`.
pub fn host_name(fabric: &Fabric, server: usize) -> String {
    slurm::word(&server_name(fabric, fabric.nic(server * fabric.nics_per_node())))
}

/// The server that a NIC sits in, by name: as it was imported, or `node3`.
fn server_name(fabric: &Fabric, nic: NodeId) -> String {
    if fabric.has_imported_names() {
        return crate::import::server_of(&fabric.name(nic)).to_owned();
    }
    format!("node{}", fabric.server_of(nic).expect("a back-end NIC sits in a server"))
}

/// What a NIC or switch is called in a file: as it was imported, or `node3/nic0`.
fn name(fabric: &Fabric, node: NodeId) -> String {
    match fabric.nodes()[node].kind {
        NodeKind::Nic if !fabric.has_imported_names() => {
            format!("{}/nic{}", server_name(fabric, node), fabric.rail_of(node))
        }
        _ => fabric.name(node),
    }
}

/// The cables of the back-end, as the link of each that was made first.
fn cables(fabric: &Fabric) -> impl Iterator<Item = LinkId> {
    let all = (0..fabric.links().len()).step_by(2).map(LinkId::from_index);
    all.filter(|link| matches!(fabric.class(*link).kind, LinkKind::ScaleOut | LinkKind::Circuit))
}

/// The switches of the back-end.
fn switches(fabric: &Fabric) -> impl Iterator<Item = NodeId> {
    let networks = fabric.networks().iter();
    let back_end = networks.filter(|network| network.kind == NetworkKind::BackEnd);
    let tiers: Vec<u8> = back_end.flat_map(|network| network.tiers.clone()).collect();
    fabric.switches().filter(move |switch| {
        let node = fabric.nodes()[*switch];
        node.kind == NodeKind::Switch && tiers.contains(&node.tier)
    })
}
