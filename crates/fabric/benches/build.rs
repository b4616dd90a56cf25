//! Building and describing fabrics of 10 thousand to a million GPUs: time, and memory that grows
//! linearly.
//!
//! `cargo bench -p fabric` prints both; what is allocated at most per GPU must stay about the same
//! from row to row.

use divan::AllocProfiler;
use fabric::hardware::Catalogue;
use fabric::summary::summary;
use fabric::topology::{ClusterConfig, FabricConfig, FrontEndConfig, TopologyKind, build};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const SIZES: [u64; 4] = [10_000, 50_000, 200_000, 1_000_000];

/// Eight rails of 400G and a front-end NIC a server, three tiers of 102.4T boxes.
fn settings(gpus: u64) -> (ClusterConfig, FabricConfig) {
    let front_end = FrontEndConfig { nics: 1, ..FrontEndConfig::default() };
    let cluster = ClusterConfig { gpus: Some(gpus), front_end, ..ClusterConfig::default() };
    let topology = TopologyKind::RailOptimized;
    let fabric =
        FabricConfig { topology, radix: Some(256), tiers: Some(3), ..FabricConfig::default() };
    (cluster, fabric)
}

#[divan::bench(args = SIZES, sample_count = 3, sample_size = 1)]
fn build_fabric(gpus: u64) -> usize {
    let (cluster, config) = settings(gpus);
    let fabric = build(&cluster, &config, &Catalogue::default()).expect("it can be built");
    fabric.links().len()
}

#[divan::bench(args = SIZES, sample_count = 3, sample_size = 1)]
fn build_and_describe(gpus: u64) -> u64 {
    let (cluster, config) = settings(gpus);
    let catalogue = Catalogue::default();
    let fabric = build(&cluster, &config, &catalogue).expect("it can be built");
    summary(&fabric, &cluster, &catalogue).links
}
