//! Rail-optimised networks: one leaf for each rail of a segment of servers, spines between them.
//!
//! NIC `r` of every server of a segment hangs on leaf `r`, so that traffic between equal ranks of
//! different servers crosses one switch. Everything else goes over the spines. Source: NVIDIA DGX
//! SuperPOD reference architecture (rail-optimised, full fat tree).

use super::error::Errors;
use super::folded::Folded;
use super::sizing::{Habits, Inputs, LeafKind};
use super::{Back, cables_of};
use units::Length;

/// The keys of `[fabric]` that it obeys besides those that every family does.
pub(super) const KEYS: &[&str] = &[
    "radix",
    "tiers",
    "oversubscription",
    "uplinks",
    "downlinks",
    "pods",
    "pod_gpus",
    "segment_nodes",
    "spines",
    "cores",
    "circuits",
    "spine",
    "core",
];

pub(crate) fn habits() -> Habits {
    // Leaves stand at the end of the row, not in the rack. Illustrative.
    let lengths = [Length::from_metres(20), Length::from_metres(30), Length::from_metres(100)];
    Habits { lengths, tiers: 2, ..Habits::default() }
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let cables = cables_of(back);
    vec![inputs.size(back.members.clone(), LeafKind::Rail, cables, &habits(), errors)]
}
