//! What a run costs, counted rather than timed: how many links and flows the solver looks at.
//!
//! The same on every machine and under every load, so that a change that makes the engine slower
//! by its method fails here; `cargo bench -p flowsim` tells seconds.

use fabric::hardware::Catalogue;
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use flowsim::{Settings, simulate};
use traffic::{Connection, Transfers};
use units::{Bytes, Random, Span};

/// Looks for each of so many flows of 0.1 to 10 MB between random pairs of so many NICs.
fn looks(nics: u64, flows: u64, precision: f64) -> f64 {
    let cluster = ClusterConfig { gpus: Some(nics), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::Clos, Some(2));
    let config = FabricConfig { topology, tiers, radix: Some(64), ..FabricConfig::default() };
    let fabric = build(&cluster, &config, &Catalogue::default()).unwrap();
    let mut random = Random::new(1, "mix", 0);
    let mut transfers = Transfers::new();
    let label = transfers.label("messages");
    for _ in 0..flows {
        let from = random.below(nics);
        let to = (from + 1 + random.below(nics - 1)) % nics;
        let bytes = 100_000 + random.below(9_900_001);
        let (from, to) = (fabric.nic(from as usize), fabric.nic(to as usize));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::new(bytes), label, &[]);
    }
    let mut settings = Settings::default();
    settings.flow.precision = Some(precision);
    let run = simulate(&fabric, &transfers, &settings);
    assert_eq!(run.outcome.completed(), flows as usize);
    assert_eq!(run.effort.whole_solves, 1, "everything is solved at once only in the beginning");
    run.effort.looks as f64 / flows as f64
}

/// Measured when this was written: 210 looks for each flow at exact rates, 96 at 1e-3.
#[test]
fn a_finish_is_looked_at_only_where_it_is_felt() {
    let (exact, rough) = (looks(128, 2_000, 1e-11), looks(128, 2_000, 1e-3));
    assert!((100.0..260.0).contains(&exact), "{exact}");
    assert!((40.0..120.0).contains(&rough), "{rough}");
    // With one flow for each NIC nearly nobody feels anybody.
    assert!(looks(128, 128, 1e-11) < 12.0);
}

/// Recursive doubling of eight groups of 16 NICs, folded, with so many channels each over 16 queue
/// pairs: links that are told of a change, for each flow that ends and each link that it crosses.
fn told(channels: u32) -> f64 {
    let cluster = ClusterConfig { gpus: Some(128), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::Clos, Some(2));
    let config = FabricConfig { topology, tiers, radix: Some(32), ..FabricConfig::default() };
    let fabric = build(&cluster, &config, &Catalogue::default()).unwrap();
    let mut transfers = Transfers::new();
    let label = transfers.label("recursive doubling");
    let (mut flows, mut crossed) = (0.0, 0.0);
    for (group, channel) in (0..8).flat_map(|group| (0..channels).map(move |at| (group, at))) {
        let mut after = Vec::new();
        for distance in [8, 4, 2, 1] {
            let nic = |rank: usize| fabric.nic(rank % 16 * 8 + group);
            let edge = |rank: usize| (nic(rank), nic(rank + distance));
            let edges: Vec<_> = (0..16)
                .map(edge)
                .map(|(from, to)| Connection { from, to, channel, queue_pairs: 16 })
                .map(|connection| transfers.connect(connection))
                .collect();
            let bytes = Bytes::from_mib(64 / distance as u64);
            after = vec![transfers.couple(&edges, bytes, Span::ZERO, label, &after)];
            flows += 1.0;
            // Each queue pair over two links of NICs and two of a spine, at most.
            crossed += 16.0 * (2.0 + 2.0 * 16.0);
        }
    }
    let run = simulate(&fabric, &transfers, &Settings::default());
    assert_eq!(run.outcome.completed(), flows as usize);
    run.effort.told as f64 / crossed
}

/// Measured when this was written: 1.2 with two channels, 1.7 with four; 1.9 and 3.2 when every
/// link was told of every change.
#[test]
fn folded_channels_tell_only_links_that_matter() {
    let (two, four) = (told(2), told(4));
    assert!((0.5..1.5).contains(&two) && (0.5..2.0).contains(&four), "{two} and {four}");
}
