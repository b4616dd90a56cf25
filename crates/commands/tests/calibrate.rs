//! Closed loop: tables of a cluster with hidden constants and noise give these constants back.
//!
//! A hundred cases are run by `tools/calibration-loop.py`; here are ten.

use std::path::PathBuf;

use commands::collective::{self, Options, Sizes, table};
use commands::files::profile;
use commands::observe::beside;
use commands::observe::calibrate::{Calibration, Order, calibrate};
use commands::observe::read_off::ReadOff;
use commands::packets::Patience;
use commands::run_job;
use commands::seeds::Repeat;
use commands::{Drawing, Engine, Failure};
use observe::Summary;
use packetsim::Watch;
use scenario::{Loaded, Purpose, Request};
use traffic::collective::Collective;
use units::{Bytes, Random};

fn load(scenario: &str, set: &[String], seed: u64, purpose: Purpose) -> Loaded {
    let request = Request {
        scenario: Some(scenario.to_owned()),
        set: set.to_vec(),
        seed: Some(seed),
        purpose,
        ..Request::default()
    };
    scenario::load(&request).expect("it is well-formed")
}

/// What a cluster with these settings would print.
fn printed(set: &[String], collective: Collective, gpus: usize, seed: u64) -> String {
    let engine = Engine::Analytic;
    let loaded = load("small-128", set, seed, Purpose::Collective(engine, collective));
    let sizes = Sizes { min: Bytes::from_kib(1), max: Bytes::from_mib(4_096), factor: 2 };
    let patience = Patience::Usual;
    let gpus = Some(gpus);
    let options = Options { engine, patience, collective, sizes, gpus, iterations: 1 };
    let report = collective::run(&loaded, &options, &mut Watch::default()).expect("it runs");
    table::nccl_tests(&loaded, &report, 0.02)
}

fn summary(tables: &[String]) -> Summary {
    Summary::of(&observe::read_bytes("tables.txt", tables.concat().as_bytes()))
}

fn out(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fatflow-{}-{name}.toml", std::process::id()))
}

fn calibrated(summary: &Summary, name: &str) -> Result<Calibration, Failure> {
    let loaded = load("small-128", &[], 1, Purpose::Settings);
    let path = out(name);
    let read_off = ReadOff::default();
    let order = Order { loaded: &loaded, engine: Engine::Analytic, set: &[], read_off, out: &path };
    calibrate(summary, &order, &mut Watch::default())
}

#[test]
fn hidden_constants_are_found_within_their_intervals() {
    let (mut held, mut all) = (0, 0);
    for case in 0..10 {
        let mut random = Random::new(case, "hidden", 0);
        let launch_us = 5.0 + 25.0 * random.unit();
        let crossing_us = 2.0 + 6.0 * random.unit();
        let nic_gbps = 100.0 + 100.0 * random.unit();
        let set = [
            format!("library.launch={launch_us}us"),
            format!("library.crossing={crossing_us}us"),
            format!("network.nic.pcie={nic_gbps}Gbps"),
        ];
        let seeds = [(16, 2 * case), (128, 2 * case + 1)];
        let tables = seeds.map(|(gpus, seed)| printed(&set, Collective::AllGather, gpus, seed));
        let name = format!("case-{case}");
        let found = calibrated(&summary(&tables), &name).expect("it is determined");
        let truth = [
            ("library.launch", launch_us),
            ("library.crossing", crossing_us),
            ("network.nic.pcie", nic_gbps),
        ];
        for (key, truth) in truth {
            let one = found.constants.iter().find(|one| one.key == key);
            let one = one.unwrap_or_else(|| panic!("case {case}: {key} in {found:?}"));
            held += u32::from(one.low <= truth && truth <= one.high);
            all += 1;
            let half = 0.5 * (one.high - one.low) / one.value;
            assert!(half < 0.15, "case {case}: {key} is only known to {half}");
            assert!((one.value / truth - 1.0).abs() < 0.2, "case {case}: {one:?} for {truth}");
        }
        assert!(found.held_back_error.expect("half was held back") < 0.03, "{found:?}");
        // The scenario that was written predicts the tables.
        let path = out(&name);
        let written = path.to_str().expect("a name of letters");
        let again = load(written, &[], 1, Purpose::Settings);
        let tables = summary(&tables);
        let mut watch = Watch::default();
        let beside = beside::compare(&tables, &again, Engine::Analytic, &mut watch);
        let error = beside.expect("it can be predicted").mean_error.expect("there are sizes");
        assert!(error < 0.03, "case {case}: {error}");
        std::fs::remove_file(path).expect("it was written");
    }
    assert!(26 <= held, "{held} of {all} were within their 95 % intervals");
}

/// One size of ranks cannot tell a launch from hand-overs: the second is refused with its reason.
#[test]
fn what_is_not_determined_is_refused() {
    let tables = [printed(&[], Collective::AllGather, 16, 1)];
    let mut few = summary(&tables);
    few.collectives.truncate(2);
    let Err(Failure::Run(reason)) = calibrated(&few, "few") else { panic!("two sizes") };
    assert!(reason.contains("nothing can be calibrated"), "{reason}");
    // Inside one server nothing depends on NICs.
    let set = ["library.launch=9us".to_owned()];
    let inside = calibrated(&summary(&[printed(&set, Collective::AllGather, 8, 2)]), "inside");
    let inside = inside.expect("it is determined");
    let refused: Vec<&str> = inside.refused.iter().map(|one| one.key).collect();
    assert!(refused.contains(&"network.nic.pcie"), "{inside:?}");
    assert!(refused.contains(&"library.crossing"), "{inside:?}");
    assert!(inside.constants.iter().any(|one| one.key == "library.launch"), "{inside:?}");
    std::fs::remove_file(out("inside")).expect("it was written");
}

/// Traces of steps on a cluster with these settings.
fn recorded(set: &[String], seed: u64) -> Summary {
    let (engine, patience, drawing) = (Engine::Analytic, Patience::Usual, Drawing::Omitted);
    let loaded = load("small-128", set, seed, Purpose::Run(engine));
    let folder = out(&format!("traces-{seed}"));
    let wanted = profile::Wanted { folder: folder.clone(), steps: 16, noise: 0.02 };
    let options = run_job::Options { engine, patience, drawing, ask_what_if: false, whole: false };
    let mut watch = Watch::default();
    run_job::run_and(&loaded, &options, Repeat::ONCE, &mut watch, |world, prediction| {
        profile::write(world, prediction, &loaded, &wanted)
    })
    .expect("it runs");
    let files = [folder];
    let report = commands::observe::run(&files, &observe::Watch::default());
    std::fs::remove_dir_all(&files[0]).expect("it was written");
    report.summary
}

/// Kernels, jitter and overlap come out of traces. Where kernels are so fast that what copies
/// exchange is longer than all else, nothing depends on the last, and it is refused.
#[test]
fn constants_of_steps_are_found_within_their_intervals() {
    let overlap = r#"job.parallel.overlap=["dp", "pp", "tp"]"#.to_owned();
    let (mut held, mut all) = (0, 0);
    for case in 0..8 {
        let mut random = Random::new(case, "steps", 0);
        let truth = [
            ("software.kernel_time", 0.8 + 1.2 * random.unit()),
            ("jitter.mean", 0.005 + 0.045 * random.unit()),
            ("software.tensor_exposed", 0.2 + 0.7 * random.unit()),
        ];
        let mut set: Vec<String> = truth.iter().map(|(key, is)| format!("{key}={is}")).collect();
        set.push(overlap.clone());
        let summary = recorded(&set, case);
        let loaded = load("small-128", std::slice::from_ref(&overlap), 1, Purpose::Settings);
        let path = out(&format!("steps-{case}"));
        let read_off = ReadOff::default();
        let order =
            Order { loaded: &loaded, engine: Engine::Analytic, set: &[], read_off, out: &path };
        let found = calibrate(&summary, &order, &mut Watch::default()).expect("it is determined");
        std::fs::remove_file(path).expect("it was written");
        for (key, truth) in truth {
            let one = found.constants.iter().find(|one| one.key == key);
            let Some(one) = one else {
                let is_refused = found.refused.iter().any(|one| one.key == key);
                assert!(is_refused && key == "software.tensor_exposed", "case {case}: {found:?}");
                continue;
            };
            held += u32::from(one.low <= truth && truth <= one.high);
            all += 1;
            assert!((one.value / truth - 1.0).abs() < 0.3, "case {case}: {one:?} for {truth}");
        }
    }
    assert!((17..=23).contains(&all), "{all}");
    assert!(
        0.85 * f64::from(all) <= f64::from(held),
        "{held} of {all} were within their 95 % intervals"
    );
}

/// Where data-parallel exchange takes whatever tensor-parallel exchange leaves, a step tells
/// nothing of what that exposes.
#[test]
fn what_another_exchange_hides_is_not_determined() {
    let overlap = r#"job.parallel.overlap=["dp", "pp", "tp"]"#.to_owned();
    let summary = recorded(&[overlap.clone(), "software.tensor_exposed=0.5".to_owned()], 99);
    let loaded = load("small-128", &[overlap], 1, Purpose::Settings);
    let path = out("hidden");
    let read_off = ReadOff::default();
    let order = Order { loaded: &loaded, engine: Engine::Analytic, set: &[], read_off, out: &path };
    let found = calibrate(&summary, &order, &mut Watch::default()).expect("others are determined");
    std::fs::remove_file(path).expect("it was written");
    let is_refused = found.refused.iter().any(|one| one.key == "software.tensor_exposed");
    assert!(is_refused, "{found:?}");
}
