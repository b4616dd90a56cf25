//! Settings of the cluster and of the fabric that have no effect, given the others.

use units::UnusedKeys;

use super::TopologyKind;
use super::cluster::ClusterConfig;
use super::settings::FabricConfig;
use crate::graph::Fabric;

/// The keys of `[fabric]` that every family obeys.
const EVERY_FAMILY: [&str; 6] = ["topology", "leaf", "links", "failed", "degraded", "parts"];

impl FabricConfig {
    /// Names the keys that the topology does not look at.
    pub fn unused(&self, idle: &mut UnusedKeys) {
        if !self.parts.is_empty() {
            let why = "`parts` says what the networks are";
            idle.all_but("", &["parts", "failed", "degraded"], why, "the `fabric` of a part");
            for (at, part) in self.parts.iter().enumerate() {
                idle.table(&format!("parts.{at}.fabric"), |idle| part.fabric.unused(idle));
            }
            return;
        }
        let family = self.topology.family().keys();
        let obeyed = [&EVERY_FAMILY[..], &family].concat();
        let why = format!("a {} fabric does not have it", self.topology.name());
        idle.all_but("", &obeyed, &why, "another fabric.topology");
        if self.circuits.per_pod == 0 {
            let used_by = "fabric.circuits.per_pod above 0";
            idle.all_but("circuits", &["per_pod"], "there are no circuits", used_by);
        }
        if self.sites.count == 1 {
            let used_by = "fabric.sites.count above 1";
            idle.all_but("sites", &["count"], "there is one site", used_by);
        } else {
            idle.key("pods", "sites are the pods", "fabric.sites.count=1");
            idle.key("pod_gpus", "sites are the pods", "fabric.sites.count=1");
        }
        if self.topology == TopologyKind::File {
            idle.key("links", "the edges of the graph say what they are", "fabric.graph.edges");
        }
        if !self.uplinks.is_empty() {
            idle.part_of("oversubscription", "`uplinks` decides", "leave out fabric.uplinks");
        }
    }

    /// Names the keys of tiers that the fabric turned out not to have.
    pub fn unused_tiers(&self, fabric: &Fabric, idle: &mut UnusedKeys) {
        if !self.parts.is_empty() || !self.topology.family().keys().contains(&"core") {
            return;
        }
        let tiers = fabric.tiers().len();
        let noun = if tiers == 1 { "tier" } else { "tiers" };
        let why = format!("the fabric has {tiers} {noun} of switches");
        let above: &[&str] = match tiers {
            0 | 1 => &["spine", "core", "spines", "cores", "pods", "pod_gpus"],
            2 => &["core", "cores", "pods", "pod_gpus"],
            _ => &[],
        };
        if self.tiers.is_some_and(|asked| asked as usize != tiers) {
            idle.key("tiers", &why, "another fabric.topology");
        }
        for key in above {
            idle.part_of(key, &why, "fabric.tiers");
        }
        let lists =
            [("oversubscription", self.oversubscription.len()), ("uplinks", self.uplinks.len())];
        for (key, _) in lists.into_iter().filter(|(_, length)| tiers.saturating_sub(1) < *length) {
            idle.part_of(key, &why, "fabric.tiers");
        }
        for at in tiers..self.links.len() {
            idle.part_of(&format!("links.{at}"), &why, "fabric.tiers");
        }
    }
}

impl ClusterConfig {
    /// Names what has no effect, given the rest of the cluster and its topology.
    pub fn unused(&self, topology: TopologyKind, idle: &mut UnusedKeys) {
        if self.front_end.nics == 0 {
            let used_by = "cluster.front_end.nics above 0";
            idle.all_but("front_end", &["nics"], "servers have no front-end", used_by);
        }
        if self.storage.servers == 0 {
            let used_by = "cluster.storage.servers above 0";
            idle.all_but("storage", &["servers"], "there are no storage servers", used_by);
        }
        let keys = topology.family().keys();
        let joins_ports = keys.contains(&"uplinks") && !keys.contains(&"planes");
        if self.ports_per_nic == 1 || !joins_ports {
            let why = "the ports of a NIC are not joined by choice here";
            idle.key("aggregation", why, "cluster.ports_per_nic above 1");
        }
        if topology == TopologyKind::File {
            let why = "the cables of the graph decide";
            idle.key("ports_per_nic", why, "another fabric.topology");
        }
    }
}
