//! Which rank runs where.

use job::placement::Policy;
use scenario::Loaded;

use crate::change::{Change, Kind};

/// Ranks by minimum cut on what the job's blocks exchange; more than one server is needed.
pub(super) fn changes(loaded: &Loaded) -> Vec<Change> {
    let Some(config) = &loaded.scenario.job else { return Vec::new() };
    let fabric = loaded.fabric();
    let gpus = loaded.job.as_ref().map_or(0, |job| job.layout.gpus());
    if config.placement.policy == Policy::MinCut || gpus <= fabric.gpus_per_node() as u64 {
        return Vec::new();
    }
    let now: String = config.placement.policy.clone().into();
    let set = ["job.placement.policy=min-cut"];
    let change = Change::new(Kind::Placement, "ranks placed by minimum cut", set)
        .because(format!("ranks are placed by `{now}`"), 0.0);
    vec![change]
}
