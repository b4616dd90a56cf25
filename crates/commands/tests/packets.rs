//! Packets where the other engines answer too: collectives take the same time, and a step that is
//! interrupted is told as far as it is known.

use std::sync::atomic::{AtomicBool, Ordering};

use commands::packets::Patience;
use commands::seeds::Repeat;
use commands::{Engine, Failure, collective, compare, cross_check, run_job, run_traffic, series};
use packetsim::Watch;
use report::Answer as _;
use scenario::{Loaded, Request, load};
use traffic::collective::Collective;
use units::{Bytes, Span};

fn loaded(name: &str) -> Loaded {
    loaded_with(name, &[])
}

fn loaded_with(name: &str, set: &[&str]) -> Loaded {
    let set = set.iter().map(|text| (*text).to_owned()).collect();
    let request = Request { scenario: Some(name.to_owned()), set, ..Request::default() };
    load(&request).expect("it is in the binary")
}

/// Agreement: collectives that are written out step by step and moved packet by packet take what
/// the closed form of their hand-overs, drain and bytes says on the flow engine.
#[test]
fn collectives_of_packets_and_flows_agree() {
    let small = loaded("small-16");
    for asked in [Collective::AllReduce, Collective::AllGather, Collective::Broadcast] {
        let times = |engine| {
            let sizes = collective::Sizes {
                min: Bytes::from_kib(256),
                max: Bytes::from_mib(16),
                factor: 8,
            };
            let (patience, collective) = (Patience::Usual, asked);
            let options = collective::Options {
                engine,
                patience,
                collective,
                sizes,
                gpus: None,
                iterations: 1,
            };
            let report = collective::run(&small, &options, &mut Watch::default()).expect("it runs");
            report.rows.iter().map(|row| row.time_us).collect::<Vec<_>>()
        };
        let (packets, flows) = (times(Engine::Packet), times(Engine::Flow));
        for (at, (packet, flow)) in packets.iter().zip(&flows).enumerate() {
            let off = packet / flow - 1.0;
            let within = match asked {
                Collective::AllGather => 0.08,
                _ => 0.15,
            };
            assert!(off.abs() < within, "{} {at}: {packet} and {flow}", asked.name());
        }
    }
}

/// Whoever interrupts a step gets none: phases that were not run are no part of an answer.
#[test]
fn an_interrupted_step_is_no_step() {
    let small = loaded("small-16");
    let stop = AtomicBool::new(true);
    let mut watch = Watch { interrupt: Some(&stop), ..Watch::default() };
    let stopped = run_job::run(&small, Engine::Packet, Patience::Usual, &mut watch);
    let Err(Failure::Interrupted(told)) = stopped else { panic!("{stopped:?}") };
    assert!(told.starts_with("stopped: 0 runs") && told.ends_with("there is no step"), "{told}");
    assert_eq!(Failure::Interrupted(told).exit_code(), 130);
}

/// Phases are run whole. They are cut where the user says so, and the answer then has how well half
/// predicts all.
#[test]
fn a_step_of_packets_says_what_was_scaled_up() {
    // Eight ports to a leaf and two cables from there on: phases are held up.
    let narrow = ["fabric.tiers=2", "fabric.radix=10", "fabric.uplinks=[2]"];
    let run = |engine, share: &[&str]| {
        let (narrow, mut watch) =
            (loaded_with("small-16", &[&narrow, share].concat()), Watch::default());
        run_job::run(&narrow, engine, Patience::Usual, &mut watch).expect("it runs")
    };
    let whole = run(Engine::Packet, &[]);
    assert!(whole.scaled.is_none(), "{:?}", whole.scaled);
    let report = run(Engine::Packet, &["network.packet.phase_bytes=4MiB"]);
    let scaled = report.scaled.as_ref().expect("gradients are more than 4 MiB");
    assert_eq!(scaled.run_bytes, Bytes::from_mib(4).get());
    assert!(scaled.run_bytes < scaled.largest_bytes && 0 < scaled.phases, "{scaled:?}");
    assert!(scaled.step_error.abs() <= scaled.worst_phase_error.abs(), "{scaled:?}");
    assert!(scaled.worst_phase_error != 0.0 && scaled.worst_phase_error.abs() < 1.0, "{scaled:?}");
    let screen = report.sheet().render(100);
    let first: Vec<&str> = screen.lines().take(30).collect();
    assert!(first.join("\n").contains("Scaled up: "), "{screen}");
    assert!((report.step_s / whole.step_s - 1.0).abs() < 0.1, "{} {}", report.step_s, whole.step_s);
    assert!(run(Engine::Flow, &[]).scaled.is_none());
}

/// What latency takes does not grow with bytes, so a phase that is mostly latency is not scaled up.
#[test]
fn long_cables_are_not_scaled_up() {
    let step = |metres: &str| {
        let scenario = Some("small-16".to_owned());
        let length = format!("fabric.links=[{{ length = \"{metres}\" }}]");
        let set = vec![length, "network.packet.phase_bytes=4MiB".to_owned()];
        let request = Request { scenario, set, ..Request::default() };
        let loaded = load(&request).expect("it is valid");
        run_job::run(&loaded, Engine::Packet, Patience::Usual, &mut Watch::default())
    };
    assert!(step("3m").is_ok());
    let Err(Failure::Run(reason)) = step("100km") else { panic!("latency was scaled up") };
    assert!(reason.contains("the latency of cables and switches"), "{reason}");
}

/// A table that ends early says so: the second size tells of its progress, and is stopped there.
#[test]
fn an_interrupted_collective_says_which_sizes_were_not_run() {
    let small = loaded("small-16");
    let sizes =
        collective::Sizes { min: Bytes::from_kib(64), max: Bytes::from_mib(64), factor: 1 << 10 };
    let options = collective::Options {
        engine: Engine::Packet,
        patience: Patience::Usual,
        collective: Collective::AllReduce,
        sizes,
        gpus: None,
        iterations: 1,
    };
    let stop = AtomicBool::new(false);
    let mut halt = |_| stop.store(true, Ordering::Relaxed);
    let mut watch = Watch { interrupt: Some(&stop), progress: Some(&mut halt), ..Watch::default() };
    let report = collective::run(&small, &options, &mut watch).expect("it tells what it knows");
    assert_eq!(report.rows.len(), 1);
    assert_eq!(report.left_out.as_deref(), Some("stopped: from 64MiB on nothing was run"));
}

/// Whoever interrupts several seeds hears how few have answered.
#[test]
fn interrupted_seeds_are_counted() {
    let stop = AtomicBool::new(true);
    let repeat = Repeat { seeds: 5, threads: Some(1), interrupt: Some(&stop) };
    let told = "stopped: 1 of 5 seeds answered";
    let permutation = loaded("../../scenarios/bench/permutation-128.toml");
    let options = run_traffic::Options::default();
    let run = run_traffic::run_seeds(&permutation, &options, repeat, &mut Watch::default());
    let report = run.expect("it tells what it knows").0;
    assert!(report.findings.iter().any(|finding| finding == told), "{:?}", report.findings);
    let page = report.sheet().render(100);
    assert!(page.contains(told) && page.contains("Over 1 seed from 1"), "{page}");
    let bytes = Bytes::from_mib(1);
    let options = collective::Options {
        engine: Engine::Flow,
        patience: Patience::Usual,
        collective: Collective::AllReduce,
        sizes: collective::Sizes { min: bytes, max: bytes, factor: 2 },
        gpus: None,
        iterations: 1,
    };
    let small = loaded("small-16");
    let report = collective::run_seeds(&small, &options, repeat, None, &mut Watch::default());
    assert_eq!(report.expect("it tells what it knows").left_out.as_deref(), Some(told));
}

/// Sizes for which patience does not reach are left out, with the reason; the others are told.
#[test]
fn sizes_beyond_patience_are_left_out_with_the_reason() {
    let small = loaded("small-16");
    let sizes =
        collective::Sizes { min: Bytes::from_mib(1), max: Bytes::new(1 << 50), factor: 1 << 30 };
    let (engine, patience) = (Engine::Packet, Patience::Usual);
    let options = collective::Options {
        engine,
        patience,
        collective: Collective::AllReduce,
        sizes,
        gpus: None,
        iterations: 1,
    };
    let report = collective::run(&small, &options, &mut Watch::default()).expect("some of it runs");
    assert_eq!(report.rows.len(), 1);
    let reason = report.left_out.expect("a petabyte is too much");
    assert!(reason.contains("--force"), "{reason}");
    // Side by side the column that ends early says so too.
    let mut again = small.clone();
    let report = cross_check::collective(&mut again, &options, &mut Watch::default());
    let last = report.expect("it runs").columns.pop().expect("packets come last");
    assert_eq!(last.refused, Some(reason));
    // Nothing is told if not even the first size can be run.
    let sizes = collective::Sizes { min: sizes.max, ..sizes };
    let options = collective::Options { sizes, ..options };
    assert!(collective::run(&small, &options, &mut Watch::default()).is_err());
}

/// Groups that fit memory one by one and not together are refused before they are written out.
#[test]
fn what_would_fill_memory_is_refused_before_it_is_written() {
    let scenario = Some("../../scenarios/bench/flow-colossus-dp.toml".to_owned());
    let loaded = load(&Request { scenario, ..Request::default() }).expect("it is valid");
    let refused = run_traffic::refuse_endless(&loaded, Engine::Packet, Patience::Usual);
    let Err(Failure::Run(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("messages, more than memory holds"), "{reason}");
}

/// Agreement: with a port of 100G in each of eight planes, packets take what flows take, within
/// 3 %; on seven planes 8/7 of that.
#[test]
fn planes_of_packets_and_flows_agree() {
    let makespan = |engine, set: &[&str]| {
        let planes = loaded_with("../../scenarios/transports/planes-ultra-ethernet.toml", set);
        let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
        let run = run_traffic::run(&planes, &options, &mut Watch::default());
        run.expect("it can be run").0.makespan_s.expect("all flows finish")
    };
    // Both leaves of one plane.
    let dead = [r#"fabric.failed=["ToR 6", "ToR 7"]"#];
    for set in [&[][..], &dead] {
        let (packets, flows) = (makespan(Engine::Packet, set), makespan(Engine::Flow, set));
        let off = packets / flows - 1.0;
        assert!(off.abs() < 0.03, "{set:?}: {packets} and {flows}");
    }
    let less = makespan(Engine::Packet, &dead) / makespan(Engine::Packet, &[]) * 7.0 / 8.0 - 1.0;
    assert!(less.abs() < 0.03, "{less}");
}

/// Agreement: on a scheduled fabric packets take what flows take for an incast and a permutation,
/// within 3 %, and what nobody shares takes the same in closed forms. Cables inside are as much
/// faster as Jericho's are: at full load packets lose up to 4 % to their queues.
#[test]
fn scheduled_fabrics_of_all_engines_agree() {
    for (name, bytes) in [("permutation", "2MiB"), ("incast", "1MiB")] {
        let makespan = |engine| {
            let file = format!("../../scenarios/transports/{name}-scheduled.toml");
            let inside = "{rate='450Gbps',delay='1us'}";
            let links = format!("fabric.links=[{{rate='400Gbps',delay='1us'}},{inside},{inside}]");
            let bytes = format!("traffic.bytes={bytes}");
            let loaded = loaded_with(&file, &[&bytes, &links]);
            let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
            let run = run_traffic::run(&loaded, &options, &mut Watch::default());
            run.expect("it can be run").0.makespan_s.expect("all flows finish")
        };
        let (packets, flows) = (makespan(Engine::Packet), makespan(Engine::Flow));
        assert!((packets / flows - 1.0).abs() < 0.03, "{name}: {packets} and {flows}");
        if name == "permutation" {
            // Nobody shares a link with anybody.
            let alone = makespan(Engine::Analytic);
            assert!((alone / flows - 1.0).abs() < 1e-3, "{alone} and {flows}");
        }
    }
}

/// Bandwidth over 1 to 4,096 queue pairs has a maximum on flows and on packets, whether messages
/// stay whole, as is the default, or are split.
#[test]
fn bandwidth_over_queue_pairs_has_a_maximum() {
    for engine in [Engine::Flow, Engine::Packet] {
        for split in ["round-robin", "split"] {
            let makespan = |qps: u32| {
                let how = format!("network.routing.split={split}");
                let count = format!("network.routing.qps={qps}");
                let loaded = loaded_with("../../scenarios/queue-pairs.toml", &[&how, &count]);
                let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
                let run = run_traffic::run(&loaded, &options, &mut Watch::default());
                run.expect("it runs").0.makespan_s.expect("it finished")
            };
            let times = [1, 4, 1_024, 4_096].map(makespan);
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(best < 0.9 * times[0] && best < 0.95 * times[3], "{split}: {times:?}");
            // Contexts alone cost 1 us more from 1,024 to 4,096, posts far more.
            assert!(times[2] + 0.5e-6 < times[3], "{engine:?}, {split}: {times:?}");
        }
    }
}

/// Agreement: a message alone takes the same on all engines, but for the bits of acknowledgements.
#[test]
fn a_message_alone_takes_the_same_on_all_engines() {
    for (bytes, topology) in [("4KiB", "clos"), ("1MiB", "clos"), ("1MiB", "fat-tree")] {
        let (bytes, topology) = (format!("\"{bytes}\""), format!("\"{topology}\""));
        let pairs = [
            ("cluster.gpus", "16"),
            ("cluster.gpus_per_node", "1"),
            ("cluster.nics_per_node", "1"),
            ("fabric.topology", &topology),
            ("traffic.pattern", "\"incast\""),
            ("traffic.hosts", "2"),
            ("traffic.bytes", &bytes),
        ];
        let set = pairs.map(|(key, value)| format!("{key}={value}")).to_vec();
        let loaded = load(&Request { set, ..Request::default() }).expect("it is valid");
        let [analytic, flow, packet] =
            [Engine::Analytic, Engine::Flow, Engine::Packet].map(|engine| {
                let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
                let run = run_traffic::run(&loaded, &options, &mut Watch::default());
                run.expect("it runs").0.makespan_s.expect("it finished")
            });
        for other in [analytic, flow] {
            assert!((packet - other).abs() < 1e-8, "{bytes} {topology}: {packet} and {other}");
        }
    }
}

/// Whoever measures a run that comes to nothing sees it end when it would have ended.
#[test]
fn measuring_does_not_keep_a_dead_run_alive() {
    let set = [
        "network.nic.timeout=\"100us\"",
        "faults=[{ on = \"NIC 3\", at = \"5us\", what = { kind = \"link-down\" } }]",
    ];
    let set = set.map(str::to_owned).to_vec();
    let scenario = Some("../../scenarios/bench/permutation-128.toml".to_owned());
    let loaded = load(&Request { scenario, set, ..Request::default() }).expect("it is valid");
    let ended = |series| {
        let engine = Engine::Packet;
        let options = run_traffic::Options { engine, series, ..run_traffic::Options::default() };
        let run = run_traffic::run(&loaded, &options, &mut Watch::default()).expect("it runs");
        run.2.findings.into_iter().map(|finding| finding.text).collect::<Vec<_>>()
    };
    let series = series::Options {
        interval: Span::from_us(10),
        links: Vec::new(),
        queue_pairs: Vec::new(),
        purpose: series::Purpose::Pictures,
    };
    let (plain, measured) = (ended(None), ended(Some(series)));
    assert!(plain.iter().any(|told| told.starts_with("nothing moves")), "{plain:?}");
    assert_eq!(plain, measured);
}

/// A comparison is refused before its first column runs, and the columns that are too much are
/// named.
#[test]
fn a_comparison_names_the_columns_beyond_patience() {
    let options = compare::Options {
        scenarios: vec!["../../scenarios/bench/permutation-128.toml".to_owned()],
        engine: Engine::Packet,
        threads: None,
        patience: Patience::Usual,
        vary: vec!["traffic.bytes=1MiB,1TiB".to_owned()],
        seeds: 1,
        ..compare::Options::default()
    };
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |text: &str| told.lock().expect("nobody panics with it").push(text.to_owned());
    let refused = compare::run(&options, &Request::default(), &AtomicBool::new(false), &tell);
    let Err(Failure::Run(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("1TiB: about") && !reason.contains("1MiB"), "{reason}");
    let told = told.into_inner().expect("nobody panics with it");
    assert!(told.iter().all(|told| told.ends_with("what packets will take")), "{told:?}");
}

/// What goes wrong in the network is felt by a job's step, packet by packet as by flows.
#[test]
fn a_step_feels_the_faults_of_its_network() {
    let step = |fault: Option<&str>| {
        let set = fault.map(|fault| format!("faults=[{fault}]")).into_iter().collect();
        let scenario = Some("small-16".to_owned());
        let loaded = load(&Request { scenario, set, ..Request::default() }).expect("it is valid");
        let mut watch = Watch::default();
        run_job::run(&loaded, Engine::Packet, Patience::Usual, &mut watch)
    };
    let healthy = step(None).expect("it runs").step_s;
    let slow = r#"{ on = "NIC 3", what = { kind = "degraded", rate = "10Gbps" } }"#;
    let slow = step(Some(slow)).expect("it runs").step_s;
    assert!(1.2 * healthy < slow, "{healthy} and {slow}");
    let cut = r#"{ on = "NIC 3", what = { kind = "link-down" } }"#;
    let Err(Failure::Run(reason)) = step(Some(cut)) else { panic!("nothing arrives") };
    assert!(!reason.is_empty());
}

/// Switches that reduce end connections; the analysis of a job's traffic knows where they are.
#[test]
fn traffic_that_ends_in_switches_is_analysed() {
    let set = [
        "library.sharp=enabled",
        "fabric.leaf.switch=quantum-2",
        "fabric.spine.switch=quantum-2",
        "job.model=\"llama3-8b\"",
        "job.parallel.sharding=\"none\"",
    ];
    let set = set.map(str::to_owned).to_vec();
    let scenario = Some("small-128".to_owned());
    let loaded = load(&Request { scenario, set, ..Request::default() }).expect("it is valid");
    commands::traffic::run(&loaded).expect("it is analysed");
}
