//! The scheduler: ranks, servers and the tree that Slurm sees.

use scenario::Loaded;
use scenario::export::{host_name, slurm};

use crate::failure::Failure;
use crate::world::JobWorld;

/// The GPU of every rank, as `job.placement` reads it.
pub(super) fn ranks(loaded: &Loaded) -> Result<String, Failure> {
    let world = JobWorld::of(loaded)?;
    let gpus = world.placement.gpus().iter();
    Ok(gpus.map(|gpu| format!("{gpu}\n")).collect())
}

/// The server of every rank.
pub(super) fn hosts(loaded: &Loaded) -> Result<String, Failure> {
    let world = JobWorld::of(loaded)?;
    let fabric = loaded.fabric();
    let host = |gpu: &u32| host_name(fabric, *gpu as usize / fabric.gpus_per_node().max(1));
    Ok(world.placement.gpus().iter().map(|gpu| host(gpu) + "\n").collect())
}

/// Slurm's `topology.yaml`, from its `topology.conf`.
pub(super) fn topology_yaml(loaded: &Loaded) -> String {
    let mut text =
        String::from("- topology: fatflow\n  cluster_default: true\n  tree:\n    switches:\n");
    for line in slurm(loaded.fabric()).lines().filter(|line| line.starts_with("SwitchName=")) {
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            text += &match key {
                "SwitchName" => format!("      - switch: {value}\n"),
                "Switches" => format!("        children: {value}\n"),
                _ => format!("        nodes: {value}\n"),
            };
        }
    }
    text
}
