//! Rail-only networks: each rail has a network of its own, and nothing joins the rails.
//!
//! A GPU reaches other rails over the scale-up network of its server first. Each rail is one switch
//! if that is enough, else a Clos network: with two tiers, this is also the multi-plane fat tree
//! of DeepSeek-V3 (ISCA 2025, Table 3). Source: Wang et al., "Rail-only" (HOTI 2024).

use super::cluster::Members;
use super::error::Errors;
use super::family::{self, Family, Network, folded};
use super::folded::{Folded, Numbering};
use super::sizing::{Habits, Inputs, LeafKind};
use super::{Back, cables_of};

pub(crate) fn habits() -> Habits {
    super::rail_optimized::habits().with_tiers(1)
}

impl Habits {
    pub(crate) fn with_tiers(self, tiers: usize) -> Self {
        Self { tiers, ..self }
    }
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let cables = cables_of(back);
    let rail = |members: &Members, place: usize| Members {
        rails: vec![members.rails[place]],
        ..members.clone()
    };
    let first = inputs.size(rail(&back.members, 0), LeafKind::Rack, cables, &habits(), errors);
    (0..back.members.rails.len())
        .map(|place| Folded {
            members: rail(&back.members, place),
            numbering: Numbering::Zone(place),
            ..first.clone()
        })
        .collect()
}

/// See the top of this file.
pub(crate) struct RailOnly;

impl Family for RailOnly {
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
        folded(inputs, networks, &habits(), [name, "rail"], errors)
    }

    #[cfg(test)]
    fn joins(&self, rail: usize, other: usize) -> bool {
        rail == other
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, super::FabricConfig)> {
        use super::TopologyKind;
        use super::tests::{cluster, small};
        vec![("rail-only", cluster(64), small(TopologyKind::RailOnly))]
    }
}
