//! What cannot be answered, or is not what was asked for, is said.

use std::sync::atomic::AtomicBool;

use commands::packets::Patience;
use commands::{Engine, Failure, collective, compare, cross_check, run_job, run_traffic, series};
use packetsim::Watch;
use scenario::{Loaded, Request, load};
use traffic::collective::Collective;
use units::{Bytes, Span};

fn loaded(name: &str, set: &[&str]) -> Loaded {
    let set = set.iter().map(|pair| (*pair).to_owned()).collect();
    let request = Request { scenario: Some(name.to_owned()), set, ..Request::default() };
    load(&request).expect("it is valid")
}

/// A GPU without fp8 runs it as bf16, and the report says so.
#[test]
fn fp8_without_hardware_is_told() {
    let told = |gpu: &str| {
        let gpu = format!("cluster.gpu=\"{gpu}\"");
        let loaded = loaded("small-16", &[&gpu, "job.precision=\"fp8\""]);
        let patience = Patience::Usual;
        let run = run_job::run(&loaded, Engine::Analytic, patience, &mut Watch::default());
        let findings = run.expect("it runs").findings;
        findings.iter().any(|finding| finding.contains("has no fp8"))
    };
    assert!(told("a100-80g") && !told("h100-sxm"));
}

/// The clock ends after 213 days: what takes longer is refused, and not cut short.
#[test]
fn a_collective_beyond_the_clock_is_refused() {
    let small = loaded("small-16", &[]);
    for engine in [Engine::Analytic, Engine::Flow] {
        let bytes = Bytes::new(1 << 63);
        let options = collective::Options {
            engine,
            patience: Patience::Usual,
            collective: Collective::AllReduce,
            sizes: collective::Sizes { min: bytes, max: bytes, factor: 2 },
            gpus: None,
            iterations: 1,
        };
        let refused = collective::run(&small, &options, &mut Watch::default());
        let Err(Failure::Run(reason)) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("213 days"), "{reason}");
    }
}

/// The bandwidth of a collective that never ends would be that of the part that did.
#[test]
fn a_collective_that_does_not_end_is_refused_with_the_reason() {
    let (fails, timeout) = ("what={kind=\"link-down\"}", "network.nic.timeout=\"1ms\"");
    let fault = format!("faults=[{{on=\"NIC 3\",at=\"50us\",{fails}}}]");
    let cases: [(&[&str], &str); 3] = [
        (&[&fault, timeout], "no path"),
        (&["network.loss=1.0", timeout], "gave up"),
        (&["network.limits.time=\"100us\""], "limit"),
    ];
    let bytes = Bytes::from_mib(16);
    let options = collective::Options {
        engine: Engine::Packet,
        patience: Patience::Usual,
        collective: Collective::AllReduce,
        sizes: collective::Sizes { min: bytes, max: bytes, factor: 2 },
        gpus: None,
        iterations: 1,
    };
    for (set, why) in cases {
        // Without the job, on which no fault can come later than 0 s.
        let set = [&["traffic.pattern=ring"], set].concat();
        let small = loaded("small-16", &set);
        let refused = collective::run(&small, &options, &mut Watch::default());
        let Err(Failure::Run(reason)) = refused else { panic!("{set:?}: {refused:?}") };
        assert!(reason.contains(" did not end: ") && reason.contains(why), "{set:?}: {reason}");
    }
}

/// A ring of which a NIC fails while it sends, or never.
fn ring(at: &str) -> Vec<String> {
    let fails = format!("on=\"NIC 3\",at=\"{at}\",what={{kind=\"link-down\"}}");
    let pairs = [
        ("cluster.gpus", "16"),
        ("cluster.gpus_per_node", "1"),
        ("cluster.nics_per_node", "1"),
        ("network.nic.timeout", "\"1ms\""),
        ("traffic.pattern", "\"ring\""),
        ("traffic.bytes", "\"4MiB\""),
        ("faults", &format!("[{{{fails}}}]")),
    ];
    pairs.map(|(key, value)| format!("{key}={value}")).to_vec()
}

/// Makespans of the flows that finished look alike, with a fault and without.
#[test]
fn every_engine_says_how_many_flows_did_not_finish() {
    let unfinished = |at: &str| {
        let request = Request { set: ring(at), ..Request::default() };
        let mut loaded = load(&request).expect("it is valid");
        let report = cross_check::traffic(&mut loaded, Patience::Usual, &mut Watch::default());
        let report = report.expect("it runs");
        let row = report.rows.into_iter().find(|row| row.metric == "unfinished flows");
        row.map(|row| (row.values[0], row.values.last().copied().flatten()))
    };
    assert_eq!(unfinished("50us"), Some((Some(0.0), Some(2.0))));
    assert_eq!(unfinished("1s"), None);
}

#[test]
fn a_comparison_says_how_many_flows_did_not_finish() {
    let unfinished = |values: &str, seeds| {
        let options = compare::Options {
            scenarios: vec!["../../scenarios/bench/permutation-128.toml".to_owned()],
            engine: Engine::Packet,
            vary: vec![format!("network.limits.time={values}")],
            seeds,
            ..compare::Options::default()
        };
        let set = vec!["traffic.bytes=\"64KiB\"".to_owned()];
        let base = Request { set, ..Request::default() };
        let report = compare::run(&options, &base, &AtomicBool::new(false), &|_| {});
        let report = report.expect("it runs");
        let row = report.rows.into_iter().find(|row| row.metric == "unfinished_flows");
        row.map(|row| row.simulated)
    };
    let expected = [128.0, 0.0].map(|flows| Some(compare::Value::Number(flows)));
    for seeds in [1, 2] {
        assert_eq!(unfinished("\"1us\",\"1s\"", seeds), Some(expected.to_vec()));
    }
    assert_eq!(unfinished("\"1s\",\"2s\"", 1), None);
}

/// Only packets belong to queue pairs at a time.
#[test]
fn flows_have_no_series_of_queue_pairs() {
    let incast = loaded("../../scenarios/bench/incast-32.toml", &[]);
    let series = series::Options {
        interval: Span::from_us(10),
        links: Vec::new(),
        queue_pairs: vec![0],
        purpose: series::Purpose::Result,
    };
    let (engine, series) = (Engine::Flow, Some(series));
    let options = run_traffic::Options { engine, series, ..run_traffic::Options::default() };
    let refused = run_traffic::run(&incast, &options, &mut Watch::default());
    let Err(Failure::Usage(reason)) = refused else { panic!("it runs") };
    assert!(reason.contains("--series-pairs"), "{reason}");
}
