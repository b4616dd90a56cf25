//! What a run costs, counted rather than timed: how many links and flows the solver looks at.
//!
//! The same on every machine and under every load, so that a change that makes the engine slower
//! by its method fails here; `cargo bench -p flowsim` tells seconds.

use fabric::hardware::Catalogue;
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use flowsim::{Settings, simulate};
use traffic::{Connection, Transfers};
use units::{Bytes, Random};

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
    assert_eq!(run.effort.1, 1, "everything is solved at once only in the beginning");
    run.effort.0 as f64 / flows as f64
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
