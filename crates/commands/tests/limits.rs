//! What cannot be answered, or is not what was asked for, is said.

use commands::packets::Patience;
use commands::{Engine, Failure, collective, run_job, run_traffic, series};
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
    };
    for (set, why) in cases {
        let small = loaded("small-16", set);
        let refused = collective::run(&small, &options, &mut Watch::default());
        let Err(Failure::Run(reason)) = refused else { panic!("{set:?}: {refused:?}") };
        assert!(reason.contains(" did not end: ") && reason.contains(why), "{set:?}: {reason}");
    }
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
