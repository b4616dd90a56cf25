//! The k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)² cores.
//!
//! Every switch has k ports of one rate, k³/4 hosts have full bisection, and (k/2)² shortest paths
//! lead from pod to pod. Source: Al-Fares et al., "A scalable, commodity data center network
//! architecture" (SIGCOMM 2008). Pods and edges that would stay empty are left out; the cores
//! are all there.

use super::error::Errors;
use super::family::{Family, Network, folded};
use super::folded::{Folded, Numbering, Wiring};
use super::sizing::{Habits, Inputs};
use super::{Back, cables_of};

pub(crate) fn habits() -> Habits {
    Habits { names: ["edge", "aggregation", "core"], ..Habits::default() }
}

/// NIC ports of a whole tree.
pub(crate) fn hosts(k: u32) -> u64 {
    u64::from(k).pow(3) / 4
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let cables = cables_of(back);
    let ports = (back.members.len() * back.ports_per_nic) as u64;
    let said = inputs.fabric.k.or(inputs.fabric.radix);
    let fits = |k: &u32| ports <= hosts(*k);
    let k = said.unwrap_or_else(|| (2..).step_by(2).find(fits).expect("k³/4 grows without end"));
    if !(2..=4096).contains(&k) || k % 2 == 1 {
        let reason = format!("{k} is not an even number from 2 to 4096");
        errors.push(&inputs.at("k"), reason, &format!("k = {}", (k.clamp(2, 4096) + 1) & !1));
        return Vec::new();
    }
    if hosts(k) < ports {
        let enough = (k..).step_by(2).find(fits).expect("k³/4 grows without end");
        let reason = format!("a fat tree with k = {k} has {} host ports, not {ports}", hosts(k));
        errors.push(&inputs.at("k"), reason, &format!("k = {enough}"));
        return Vec::new();
    }
    for key in ["oversubscription", "uplinks"] {
        let is_said = match key {
            "uplinks" => !inputs.fabric.uplinks.is_empty(),
            _ => inputs.fabric.oversubscription.iter().any(|ratio| (ratio - 1.0).abs() > 1e-9),
        };
        if is_said {
            let reason = "a fat tree has as many links up as down".to_owned();
            errors.push(&inputs.at(key), reason, "topology = \"clos\"");
        }
    }
    let half = k as usize / 2;
    vec![Folded {
        members: back.members.clone(),
        wiring: Wiring::Rack((half / cables.per_leaf()).max(1)),
        cables,
        leaves_per_pod: half,
        uplinks: half,
        spines: half,
        spine_uplinks: half,
        cores: half,
        groups: half,
        numbering: Numbering::Pods { plane: 0 },
        has_circuits: 0 < inputs.fabric.circuits.per_pod,
    }]
}

/// See the top of this file.
pub(crate) struct FatTree;

impl Family for FatTree {
    fn keys(&self) -> Vec<&'static str> {
        vec!["radix", "k", "oversubscription", "uplinks", "circuits", "spine", "core"]
    }

    fn plan(
        &self,
        inputs: &Inputs<'_>,
        back: &Back,
        name: &str,
        errors: &mut Errors,
    ) -> Box<dyn Network> {
        let networks = networks(inputs, back, errors);
        folded(inputs, networks, &habits(), [name, "pod"], errors)
    }

    fn servers(&self, inputs: &Inputs<'_>, ports_per_server: usize) -> Option<usize> {
        Some((hosts(inputs.fabric.k?) as usize / ports_per_server).max(1))
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, super::FabricConfig)> {
        use super::tests::{hosts as servers, of};
        use super::{FabricConfig, TopologyKind};
        let with = |k| FabricConfig { k: Some(k), ..of(TopologyKind::FatTree) };
        vec![("fat tree", servers(16), with(4)), ("partial fat tree", servers(41), with(6))]
    }
}
