//! Experts that are not loaded alike, or have no room: bytes and times on the wire follow.

use commands::packets::Patience;
use commands::{Engine, run_job, traffic};
use packetsim::Watch;
use scenario::{Loaded, Request, load};

const MIXTRAL: [&str; 2] = ["job.model=\"mixtral-8x7b\"", "job.parallel.ep=8"];

fn loaded(set: &[&str]) -> Loaded {
    let set = MIXTRAL.iter().chain(set).map(|&set| set.to_owned()).collect();
    let scenario = Some("small-128".to_owned());
    load(&Request { scenario, set, ..Request::default() }).expect("it is legal")
}

fn reported(set: &[&str]) -> traffic::Report {
    traffic::run(&loaded(set)).expect("it runs")
}

fn expert_s(set: &[&str], engine: Engine) -> f64 {
    let report = run_job::run(&loaded(set), engine, Patience::Usual, &mut Watch::default());
    report.expect("it runs").breakdown_s.ep
}

/// With room for a tenth of the copies a tenth of the bytes is left, and less time.
#[test]
fn what_is_dropped_does_not_travel() {
    for dispatcher in ["all-to-all", "deepep"] {
        let dispatcher = format!("job.moe.dispatcher=\"{dispatcher}\"");
        let room = |factor| ["job.moe.capacity_factor=", factor].concat();
        let of = |factor| [dispatcher.clone(), room(factor)];
        let bytes = |factor| reported(&of(factor).each_ref().map(|set| &set[..])).by_axis["ep"];
        let share = bytes("0.1") / bytes("1.0");
        assert!((share - 0.1).abs() < 1e-3, "{dispatcher}: {share}");
        let time = |factor| expert_s(&of(factor).each_ref().map(|set| &set[..]), Engine::Flow);
        assert!(time("0.1") < 0.5 * time("1.0"), "{dispatcher}");
    }
}

/// What comes back from hot experts is what went there: every node sends what it receives.
#[test]
fn a_hot_node_sends_what_it_receives() {
    let report = reported(&["job.moe.skew=50"]);
    let bytes = &report.matrix.bytes;
    let mut sent: Vec<f64> = bytes.iter().map(|row| row.iter().sum()).collect();
    for (node, sent) in sent.iter().enumerate() {
        let received: f64 = bytes.iter().map(|row| row[node]).sum();
        assert!((sent / received - 1.0).abs() < 1e-3, "node {node}: {sent} and {received}");
    }
    // A hot one has much more of both than others.
    sent.sort_by(f64::total_cmp);
    assert!(2.0 * sent[0] < sent[sent.len() - 1], "{sent:?}");
    let even = reported(&[]).by_axis["ep"];
    assert!((report.by_axis["ep"] / even - 1.0).abs() < 1e-3);
}

/// The hottest rank is waited for, whatever the engine and whoever sends the tokens.
#[test]
fn skew_takes_time() {
    for dispatcher in ["job.moe.dispatcher=\"all-to-all\"", "job.moe.dispatcher=\"deepep\""] {
        for engine in [Engine::Analytic, Engine::Flow] {
            let time = |skew| expert_s(&[dispatcher, skew], engine);
            let (even, some, much) =
                (time("job.moe.skew=0"), time("job.moe.skew=1"), time("job.moe.skew=50"));
            assert!(1.2 * even < some && some < much, "{dispatcher}: {even} {some} {much}");
        }
    }
}
