//! Settings of the cluster and of the fabric that have no effect, given the others.

use units::Idle;

use super::cluster::ClusterConfig;
use super::settings::{FabricConfig, TopologyKind};
use super::{ai_zone, clos, dragonfly, dual_plane, fat_tree, file, rail_only, rail_optimized};
use crate::graph::Fabric;

/// The keys of `[fabric]` that every family obeys.
const EVERY_FAMILY: [&str; 6] = ["topology", "leaf", "links", "failed", "degraded", "parts"];

impl TopologyKind {
    /// The other keys that the family obeys.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Clos => clos::KEYS,
            Self::FatTree => fat_tree::KEYS,
            Self::RailOptimized => rail_optimized::KEYS,
            Self::RailOnly => rail_only::KEYS,
            Self::DualPlane => dual_plane::KEYS,
            Self::AiZone => ai_zone::KEYS,
            Self::Dragonfly => dragonfly::KEYS,
            Self::File => file::KEYS,
        }
    }
}

impl FabricConfig {
    /// Names the keys that the topology does not look at.
    pub fn unused(&self, idle: &mut Idle) {
        if !self.parts.is_empty() {
            let why = "`parts` says what the networks are";
            idle.all_but("", &["parts", "failed", "degraded"], why, "the `fabric` of a part");
            for (at, part) in self.parts.iter().enumerate() {
                idle.table(&format!("parts.{at}.fabric"), |idle| part.fabric.unused(idle));
            }
            return;
        }
        let obeyed = [&EVERY_FAMILY[..], self.topology.keys()].concat();
        let why = format!("a {} fabric does not have it", self.topology.name());
        idle.all_but("", &obeyed, &why, "another fabric.topology");
        if self.circuits.per_pod == 0 {
            let used_by = "fabric.circuits.per_pod above 0";
            idle.all_but("circuits", &["per_pod"], "there are no circuits", used_by);
        }
        if self.topology == TopologyKind::File {
            idle.key("links", "the edges of the graph say what they are", "fabric.graph.edges");
        }
        if !self.uplinks.is_empty() {
            idle.part_of("oversubscription", "`uplinks` decides", "leave out fabric.uplinks");
        }
    }

    /// Names the keys of tiers that the fabric turned out not to have.
    pub fn unused_tiers(&self, fabric: &Fabric, idle: &mut Idle) {
        if !self.parts.is_empty() || !self.topology.keys().contains(&"core") {
            return;
        }
        let tiers = fabric.tiers().len();
        let why = format!("the fabric has {tiers} tiers of switches");
        let above: &[&str] = match tiers {
            0 | 1 => &["spine", "core", "spines", "cores", "pods", "pod_gpus"],
            2 => &["core", "cores"],
            _ => &[],
        };
        for key in above {
            idle.part_of(key, &why, "fabric.tiers");
        }
        for at in tiers..self.links.len() {
            idle.part_of(&format!("links.{at}"), &why, "fabric.tiers");
        }
    }
}

impl ClusterConfig {
    /// Names what has no effect, given the rest of the cluster and its topology.
    pub fn unused(&self, topology: TopologyKind, idle: &mut Idle) {
        if self.front_end.nics == 0 {
            let used_by = "cluster.front_end.nics above 0";
            idle.all_but("front_end", &["nics"], "servers have no front-end", used_by);
        }
        let has_planes = topology == TopologyKind::DualPlane;
        let decides = matches!(topology, TopologyKind::Dragonfly | TopologyKind::File);
        if self.ports_per_nic == 1 || has_planes || decides {
            let why = "the ports of a NIC are not joined by choice here";
            idle.key("aggregation", why, "cluster.ports_per_nic above 1");
        }
        if topology == TopologyKind::File {
            let why = "the cables of the graph decide";
            idle.key("ports_per_nic", why, "another fabric.topology");
        }
    }
}
