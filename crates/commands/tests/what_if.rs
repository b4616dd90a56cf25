//! What would be gained if the busiest link were free.

use commands::packets::Patience;
use commands::seeds::Repeat;
use commands::{Drawing, Engine, run_job};
use packetsim::Watch;
use scenario::{Request, load};

fn gained(set: &[&str]) -> f64 {
    let set = set.iter().map(|set| (*set).to_owned()).collect();
    let scenario = Some("small-128".to_owned());
    let loaded = load(&Request { scenario, set, ..Request::default() }).expect("it is valid");
    let options = run_job::Options {
        engine: Engine::Flow,
        patience: Patience::Usual,
        drawing: Drawing::Omitted,
        ask_what_if: true,
        whole: false,
    };
    let mut watch = Watch::default();
    let report = run_job::run_and(&loaded, &options, Repeat::ONCE, &mut watch, |_, _| Ok(()));
    report.expect("it runs").what_if.expect("it was asked for").gained
}

/// Hashed flows that collide on a link gain if it is free. Flows that are spread over all links
/// alike do not: they take the same ways, and the other links are as full.
#[test]
fn a_free_link_changes_no_ways() {
    let hashed = gained(&["seed=1"]);
    assert!((0.1..0.5).contains(&hashed), "{hashed}");
    for policy in ["adaptive", "spray", "infiniband-adaptive"] {
        let policy = format!("network.routing.policy={policy}");
        assert_eq!(gained(&[&policy, "fabric.oversubscription=[4]"]), 0.0, "{policy}");
    }
}
