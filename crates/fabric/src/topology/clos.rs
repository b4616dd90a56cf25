//! Leaf-spine Clos networks of two tiers, or three with cores above pods of leaves and spines.
//!
//! Servers hang with all their NICs on the leaf of their rack. One leaf alone is enough for a
//! cluster that fits it.

use super::error::Errors;
use super::folded::Folded;
use super::sizing::{Habits, Inputs, LeafKind};
use super::{Back, cables_of};

/// The keys of `[fabric]` that it obeys besides those that every family does.
pub(super) const KEYS: &[&str] = &[
    "radix",
    "tiers",
    "oversubscription",
    "uplinks",
    "downlinks",
    "pods",
    "pod_gpus",
    "spines",
    "cores",
    "circuits",
    "spine",
    "core",
];

pub(crate) fn habits() -> Habits {
    Habits::default()
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let cables = cables_of(back);
    vec![inputs.size(back.members.clone(), LeafKind::Rack, cables, &habits(), errors)]
}
