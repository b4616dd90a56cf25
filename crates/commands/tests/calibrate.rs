//! Closed loop: tables of a cluster with hidden constants and noise give these constants back.
//!
//! A hundred cases are run by `tools/calibration-loop.py`; here are ten.

use std::path::PathBuf;

use commands::collective::{self, Options, Sizes, bench, table};
use commands::files::{Links, metrics, profile};
use commands::observe::beside;
use commands::observe::calibrate::{Calibration, Order, calibrate};
use commands::observe::read_off::{ReadOff, apply};
use commands::packets::Patience;
use commands::seeds::Repeat;
use commands::{Drawing, Engine, Failure};
use commands::{run_job, run_traffic};
use exports::openmetrics::Clock;
use observe::{Observed, Summary};
use packetsim::Watch;
use scenario::{Loaded, Purpose, Request};
use traffic::collective::Collective;
use units::{Bytes, Random, Span};

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
    // All-to-alls alone cannot tell their share of a NIC from its rate; where they are faster than
    // the model allows, no rate explains them, and the share does.
    let set = ["library.all_to_all_share=0.9".to_owned()];
    let exchanges = calibrated(&summary(&[printed(&set, Collective::AllToAll, 128, 3)]), "apart");
    let exchanges = exchanges.expect("it is determined");
    let share = exchanges.constants.iter().find(|one| one.key == "library.all_to_all_share");
    assert!(share.is_some_and(|one| (one.value / 0.9 - 1.0).abs() < 0.1), "{exchanges:?}");
    std::fs::remove_file(out("apart")).expect("it was written");
}

/// Traces of steps on a cluster with these settings, with some words changed.
fn recorded(set: &[String], seed: u64, changes: &[(&str, &str)]) -> Summary {
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
    for entry in std::fs::read_dir(&folder).expect("it was written") {
        let path = entry.expect("it is there").path();
        let text = std::fs::read_to_string(&path).expect("it is text");
        let change = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
        std::fs::write(path, changes.iter().fold(text, change)).expect("it can be written");
    }
    let files = [folder];
    let report = commands::observe::run(&files, &observe::Watch::default());
    std::fs::remove_dir_all(&files[0]).expect("it was written");
    report.summary
}

const OVERLAP: &str = r#"job.parallel.overlap=["dp", "pp", "tp"]"#;

fn from_steps(summary: &Summary, name: &str) -> Calibration {
    let loaded = load("small-128", &[OVERLAP.to_owned()], 1, Purpose::Settings);
    let path = out(name);
    let read_off = ReadOff::default();
    let engine = Engine::Analytic;
    let order = Order { loaded: &loaded, engine, set: &[], read_off, out: &path };
    let found = calibrate(summary, &order, &mut Watch::default()).expect("it is determined");
    std::fs::remove_file(path).expect("it was written");
    found
}

/// Kernels by kind, jitter and overlap come out of traces, the last also where data-parallel
/// exchange takes whatever tensor-parallel exchange leaves.
#[test]
fn constants_of_steps_are_found_within_their_intervals() {
    let (mut held, mut all) = (0, 0);
    for case in 0..8 {
        let mut random = Random::new(case, "steps", 0);
        let truth = [
            ("software.product_time", 0.8 + 1.2 * random.unit()),
            ("software.attention_time", 0.8 + 1.2 * random.unit()),
            ("software.memory_time", 0.8 + 1.2 * random.unit()),
            ("jitter.mean", 0.005 + 0.045 * random.unit()),
            ("software.tensor_exposed", 0.2 + 0.7 * random.unit()),
        ];
        let mut set: Vec<String> = truth.iter().map(|(key, is)| format!("{key}={is}")).collect();
        set.push(OVERLAP.to_owned());
        let found = from_steps(&recorded(&set, case, &[]), &format!("steps-{case}"));
        for (key, truth) in truth {
            let one = found.constants.iter().find(|one| one.key == key);
            let one = one.unwrap_or_else(|| panic!("case {case}: {key} in {found:?}"));
            held += u32::from(one.low <= truth && truth <= one.high);
            all += 1;
            assert!((one.value / truth - 1.0).abs() < 0.3, "case {case}: {one:?} for {truth}");
        }
    }
    assert_eq!(all, 40);
    assert!(34 <= held, "{held} of {all} were within their 95 % intervals");
}

/// Where names of kernels say nothing, all kernels have one factor. Where nobody says whose a
/// collective is, what steps expose in all tells what is exposed of tensor-parallel exchanges.
#[test]
fn what_traces_do_not_tell_is_not_determined() {
    let words = [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "k"),
        ("flash_fwd_kernel", "k"),
        ("flash_bwd_kernel", "k"),
        ("Process Group Name", "x"),
        ("Process Group Ranks", "x"),
    ];
    let hidden = ["software.tensor_exposed=0.5", "software.kernel_time=1.2", OVERLAP];
    let summary = recorded(&hidden.map(str::to_owned), 99, &words);
    let found = from_steps(&summary, "hidden");
    for (key, truth) in [("software.kernel_time", 1.2), ("software.tensor_exposed", 0.5)] {
        let one = found.constants.iter().find(|one| one.key == key);
        assert!(one.is_some_and(|one| one.low <= truth && truth <= one.high), "{found:?}");
    }
    let refused: Vec<&str> = found.refused.iter().map(|one| one.key).collect();
    for key in ["software.product_time", "software.attention_time", "software.memory_time"] {
        assert!(refused.contains(&key), "{key}: {found:?}");
    }
}

/// What NCCL logs and NICs count beside a table: settings are read off, and the rate of the NICs is
/// told by both.
#[test]
fn logs_and_counters_tell_too() {
    let settings = [
        ("network.routing.qps", "4"),
        ("network.packet.mtu", "2048B"),
        ("cluster.nics_per_node", "4"),
    ];
    let mut set: Vec<String> = settings.iter().map(|(key, is)| format!("{key}={is}")).collect();
    set.push("network.nic.pcie=150Gbps".to_owned());
    let (engine, collective) = (Engine::Analytic, Collective::AllGather);
    let loaded = load("small-128", &set, 3, Purpose::Collective(engine, collective));
    let sizes = Sizes { min: Bytes::from_kib(64), max: Bytes::from_mib(4_096), factor: 4 };
    let (patience, gpus) = (Patience::Usual, Some(32));
    let options = Options { engine, patience, collective, sizes, gpus, iterations: 1 };
    let report = collective::run(&loaded, &options, &mut Watch::default()).expect("it runs");
    let log = bench::log(&load("small-128", &set, 3, Purpose::Settings), &report);
    let log = log.expect("it is RoCE");
    let clock = (bench::START_S, Span::from_ms(20));
    let counters = bench::counters(&loaded, &report, 0.02, clock).expect("it is short");
    let mut observed = Observed::default();
    for text in [&table::nccl_tests(&loaded, &report, 0.02), &log, &counters] {
        let (watch, bytes) = (observe::Watch::default(), Box::new(text.as_bytes()));
        observe::input::unpack("it", None, bytes, &watch, &mut observed);
    }
    let summary = Summary::of(&observed);
    assert_eq!(summary.findings, Vec::new());
    let cluster = &summary.cluster;
    assert_eq!((cluster.nodes, cluster.ranks, cluster.jobs), (Some(4), Some(32), 1));
    let channels = report.rows.iter().map(|row| row.channels).max().expect("there are rows");
    assert_eq!(summary.communicators[0].channels, channels);
    assert!(summary.communicators[0].rings.iter().all(|ring| ring.len() == 32), "{cluster:?}");
    let request = Request { scenario: Some("small-128".to_owned()), ..Request::default() };
    let plain = load("small-128", &[], 1, Purpose::Settings);
    let (with, read_off) = apply(&summary, request, plain);
    for (key, is) in settings {
        let said = read_off.settings.iter().find(|setting| setting.key == key);
        assert_eq!(said.map(|said| said.value.trim_matches('"')), Some(is), "{key}");
    }
    let path = out("logs");
    let order = Order { loaded: &with, engine, set: &[], read_off, out: &path };
    let found = calibrate(&summary, &order, &mut Watch::default()).expect("it is determined");
    std::fs::remove_file(path).expect("it was written");
    let rate = found.constants.iter().find(|one| one.key == "network.nic.pcie");
    let rate = rate.expect("tables and counters tell it");
    assert!((rate.value / 150.0 - 1.0).abs() < 0.03, "{rate:?}");
    assert!(found.remarks.iter().any(|remark| remark.starts_with("network.nic.pcie")), "{found:?}");
    // Counters of a cluster that sends half of what tables say do not count.
    let mut idle = summary.clone();
    idle.port_rates.iter_mut().flat_map(|port| &mut port.intervals).for_each(|one| one[2] *= 0.5);
    let path = out("idle");
    let order = Order { loaded: &with, engine, set: &[], read_off: ReadOff::default(), out: &path };
    let found = calibrate(&idle, &order, &mut Watch::default()).expect("it is determined");
    std::fs::remove_file(path).expect("it was written");
    assert!(found.remarks[0].contains("do not count"), "{found:?}");
}

/// Oracle: the run that wrote them. Counters of a job's ports, of synthetic traffic on packets with
/// its notifications, and of a benchmark's NICs stand beside what is predicted of them.
#[test]
fn counters_stand_beside_those_of_the_run() {
    let beside = |text: &[u8], loaded: &Loaded, engine| {
        let summary = Summary::of(&observe::read_bytes("ports.om", text));
        let found = beside::compare(&summary, loaded, engine, &mut Watch::default());
        found.expect("it can be predicted").counters
    };
    let engine = Engine::Flow;
    let (patience, drawing) = (Patience::Usual, Drawing::Omitted);
    let options = run_job::Options { engine, patience, drawing, ask_what_if: false, whole: false };
    let job = load("small-16", &[], 1, Purpose::Run(engine));
    let mut text = Vec::new();
    run_job::run_and(&job, &options, Repeat::ONCE, &mut Watch::default(), |world, prediction| {
        metrics::write(&Links::of_step(world, prediction), Clock::default(), &mut text)
            .map_err(|error| Failure::Run(error.to_string()))
    })
    .expect("it runs");
    let rows = beside(&text, &job, engine);
    assert_eq!(rows.len(), 6, "{rows:?}");
    assert!(rows.iter().all(|row| row.ports == Some([16, 16])), "{rows:?}");
    assert!(rows.iter().all(|row| row.error.is_some_and(|off| off.abs() < 1e-6)), "{rows:?}");
    // A larger batch takes longer for the same bytes.
    let set = ["job.batch.sequences=512".to_owned()];
    let other = load("small-16", &set, 1, Purpose::Run(engine));
    assert!(
        beside(&text, &other, engine).iter().all(|row| row.error.is_some_and(|off| off < -0.2))
    );

    let engine = Engine::Packet;
    let set: Vec<String> =
        ["bytes=256KiB", "hosts=17"].iter().map(|key| format!("traffic.{key}")).collect();
    let incast = load("../../scenarios/bench/incast-32.toml", &set, 1, Purpose::Run(engine));
    let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
    let (report, _, outcome) =
        run_traffic::run(&incast, &options, &mut Watch::default()).expect("it runs");
    let mut text = Vec::new();
    metrics::write(&Links::of_run(incast.fabric(), &outcome), Clock::default(), &mut text)
        .expect("it can be written");
    let rows = beside(&text, &incast, engine);
    assert!(0 < report.cnps && rows.iter().any(|row| row.counter.contains("cnp")), "{rows:?}");
    assert!(rows.iter().all(|row| row.error.is_some_and(|off| off.abs() < 1e-3)), "{rows:?}");

    let (engine, collective) = (Engine::Analytic, Collective::AllGather);
    let loaded = load("small-128", &[], 3, Purpose::Collective(engine, collective));
    let sizes = Sizes { min: Bytes::from_mib(64), max: Bytes::from_mib(4_096), factor: 4 };
    let options = Options { engine, patience, collective, sizes, gpus: Some(32), iterations: 1 };
    let report = collective::run(&loaded, &options, &mut Watch::default()).expect("it runs");
    let clock = (bench::START_S, Span::from_ms(10));
    let mut observed = Observed::default();
    let counters = bench::counters(&loaded, &report, 0.0, clock).expect("it is short");
    for text in [&table::nccl_tests(&loaded, &report, 0.0), &counters] {
        let (watch, bytes) = (observe::Watch::default(), Box::new(text.as_bytes()));
        observe::input::unpack("it", None, bytes, &watch, &mut observed);
    }
    let summary = Summary::of(&observed);
    let found = beside::compare(&summary, &loaded, engine, &mut Watch::default());
    let [row] = &found.expect("it can be predicted").counters[..] else { panic!("one") };
    assert!(
        row.error.is_some_and(|off| off.abs() < 0.03) && row.ports == Some([32, 32]),
        "{row:?}"
    );
}
