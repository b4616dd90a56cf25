//! What the analysis says of runs whose answer is known.

mod common;

use common::{leaf_spine, messages, plain};
use fabric::routing::{Policy, RoutingConfig};
use flowsim::analysis::{Analysis, analyse};
use flowsim::{Settings, simulate};

fn analysis(nics: usize, qps: u16, policy: Policy, seed: u64) -> Analysis {
    let fabric = leaf_spine(2, nics, 16);
    let pairs: Vec<_> = (0..nics).map(|nic| (nic, nics + nic)).collect();
    let routing = RoutingConfig { policy, qps, ..RoutingConfig::default() };
    let settings = Settings { routing, seed, ..plain() };
    let transfers = messages(&fabric, &pairs, 64 << 20);
    let run = simulate(&fabric, &transfers, &settings);
    analyse(&fabric, &transfers, &run.outcome, Some(run.traces()), 3)
}

/// Oracle: balls into bins. 16 NICs with 1, 4, 16 and 32 queue pairs on 16 uplinks, the mean over
/// seeds of the fullest uplink over the mean, as a Monte Carlo with uniform hashing gives it.
#[test]
fn hashing_spreads_like_dice() {
    let runs = 300;
    for (qps, expected) in [(1, 3.08), (4, 1.97), (16, 1.47), (32, 1.33)] {
        let of = |seed| {
            let analysis = analysis(16, qps, Policy::Ecmp, seed);
            let up = analysis.tiers.into_iter().find(|group| group.name == "leaf → spine").unwrap();
            assert_eq!(up.links, 16);
            up.by_flows.max_over_mean
        };
        let mean = (0..runs).map(of).sum::<f64>() / f64::from(runs as u32);
        assert!((mean / expected - 1.0).abs() < 0.02, "{qps} queue pairs: {mean}");
    }
}

/// Golden: a permutation under ECMP with one queue pair each, in words.
#[test]
fn the_worst_links_in_words() {
    let analysis = analysis(16, 1, Policy::Ecmp, 1);
    let words: Vec<&str> = analysis.worst.iter().map(|link| link.why.as_str()).collect();
    insta::assert_snapshot!(words.join("\n"), @r"
    3 of 16 flows of messages share leaf 0 → spine 4
    3 of 3 flows of messages share spine 4 → leaf 1
    2 of 16 flows of messages share leaf 0 → spine 3
    ");
    let names: Vec<String> = analysis
        .tiers
        .iter()
        .map(|group| {
            let (bytes, flows) = (group.by_bytes, group.by_flows);
            format!(
                "{}: {} links, max/mean {:.2}, Jain {:.2}, idle {:.2}, busy {:.2} of {:.2}",
                group.name,
                group.links,
                bytes.max_over_mean,
                flows.jain,
                bytes.idle,
                group.mean_utilisation,
                group.max_utilisation,
            )
        })
        .collect();
    insta::assert_snapshot!(names.join("\n"), @r"
    NIC → leaf: 16 links, max/mean 1.00, Jain 1.00, idle 0.00, busy 0.33 of 0.33
    leaf → spine: 16 links, max/mean 3.00, Jain 0.57, idle 0.31, busy 0.33 of 1.00
    spine → leaf: 16 links, max/mean 3.00, Jain 0.57, idle 0.31, busy 0.33 of 1.00
    leaf → NIC: 16 links, max/mean 1.00, Jain 1.00, idle 0.00, busy 0.33 of 0.33
    ");
}

/// Oracle: spread packets leave no link idle and none fuller than another.
#[test]
fn spreading_is_even() {
    let analysis = analysis(16, 1, Policy::Spray, 1);
    for group in &analysis.tiers {
        assert!((group.by_bytes.max_over_mean - 1.0).abs() < 1e-6, "{group:?}");
        assert_eq!(group.by_bytes.idle, 0.0);
    }
    assert!(
        analysis.worst[0].why.ends_with("share NIC 0 → leaf 0")
            || analysis.worst[0].why.starts_with("packets")
    );
}
