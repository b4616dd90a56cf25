//! Rail-optimised networks: one leaf for each rail of a segment of servers, spines between them.
//!
//! NIC `r` of every server of a segment hangs on leaf `r`, so that traffic between equal ranks of
//! different servers crosses one switch. Everything else goes over the spines. Source: NVIDIA DGX
//! SuperPOD reference architecture (rail-optimised, full fat tree).

use super::error::Errors;
use super::family::{self, Family, Network, folded};
use super::folded::Folded;
use super::sizing::{Habits, Inputs, LeafKind};
use super::{Back, cables_of};
use units::Length;

pub(crate) fn habits() -> Habits {
    // Leaves stand at the end of the row, not in the rack. Illustrative.
    let lengths = [Length::from_metres(20), Length::from_metres(30), Length::from_metres(100)];
    Habits { lengths, tiers: 2, ..Habits::default() }
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let cables = cables_of(back);
    vec![inputs.size(back.members.clone(), LeafKind::Rail, cables, &habits(), errors)]
}

/// See the top of this file.
pub(crate) struct RailOptimized;

impl Family for RailOptimized {
    fn keys(&self) -> Vec<&'static str> {
        [&family::FOLDED[..], &["segment_nodes"]].concat()
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
        use super::tests::{cluster, small};
        vec![("rail-optimised", cluster(64), small(TopologyKind::RailOptimized))]
    }
}
