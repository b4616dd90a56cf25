//! Leaf-spine Clos networks of two tiers, or three with cores above pods of leaves and spines.
//!
//! Servers hang with all their NICs on the leaf of their rack. One leaf alone is enough for a
//! cluster that fits it.

use super::error::Errors;
use super::family::{self, Family, Network, folded};
use super::folded::Folded;
use super::sizing::{Habits, Inputs, LeafKind};
use super::{Back, cables_of};

pub(crate) fn habits() -> Habits {
    Habits::default()
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let cables = cables_of(back);
    vec![inputs.size(back.members.clone(), LeafKind::Rack, cables, &habits(), errors)]
}

/// See the top of this file.
pub(crate) struct Clos;

impl Family for Clos {
    fn keys(&self) -> Vec<&'static str> {
        family::FOLDED.to_vec()
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

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, super::FabricConfig)> {
        use super::TopologyKind;
        use super::tests::{cluster, hosts, of, small};
        let kind = TopologyKind::Clos;
        vec![
            ("one leaf", cluster(16), of(kind)),
            ("two tiers", hosts(30), small(kind)),
            ("three tiers", hosts(61), small(kind)),
        ]
    }
}
