//! Collectives on every engine: every hop pays for its route, and servers used in part are right.

use commands::packets::Patience;
use commands::{Engine, collective, run_job};
use packetsim::Watch;
use scenario::{Loaded, Request, load};
use traffic::collective::Collective;
use units::Bytes;

fn loaded(name: Option<&str>, set: &[String]) -> Loaded {
    let scenario = name.map(str::to_owned);
    load(&Request { scenario, set: set.to_vec(), ..Request::default() }).expect("it is valid")
}

/// Four servers of two GPUs under two leaves, which long cables join to their spines.
fn two_tiers(transport: &str, cable: &str, more: &[&str]) -> Loaded {
    let mut set = vec![
        "cluster.gpus=8".to_owned(),
        "cluster.gpus_per_node=2".to_owned(),
        "cluster.nics_per_node=2".to_owned(),
        "fabric.topology=clos".to_owned(),
        "fabric.tiers=2".to_owned(),
        "fabric.radix=8".to_owned(),
        "traffic.pattern=permutation".to_owned(),
        format!("network.transport={transport}"),
        format!("fabric.links=[{{length=\"3m\"}},{{length=\"{cable}\"}}]"),
    ];
    set.extend(more.iter().map(|pair| (*pair).to_owned()));
    loaded(None, &set)
}

/// Microseconds of a collective of 1 KiB, 32 KiB and 1 MiB, and the algorithms.
fn times(loaded: &Loaded, engine: Engine, collective: Collective) -> Vec<(f64, &'static str)> {
    let sizes = collective::Sizes { min: Bytes::from_kib(1), max: Bytes::from_mib(1), factor: 32 };
    let options = collective::Options {
        engine,
        patience: Patience::Usual,
        collective,
        sizes,
        gpus: None,
        iterations: 1,
    };
    let report = collective::run(loaded, &options, &mut Watch::default()).expect("it runs");
    report.rows.iter().map(|row| (row.time_us, row.algorithm)).collect()
}

/// Holds the analytic and the flow engine to the packets, and says what is off. Trees have the
/// tuner's correction by size in closed form.
fn agree(loaded: &Loaded, what: Collective, within: f64, about: &str) {
    let packets = times(loaded, Engine::Packet, what);
    for engine in [Engine::Analytic, Engine::Flow] {
        for ((time, algorithm), (packet, _)) in times(loaded, engine, what).iter().zip(&packets) {
            let off = time / packet - 1.0;
            let name = what.name();
            let within = if *algorithm == "tree" { f64::max(within, 0.3) } else { within };
            assert!(off.abs() < within, "{about}, {name}: {time} and {packet} us, {engine:?}");
        }
    }
}

/// Agreement: messages over every transport and cables of 1 m to 1,000 km. With TCP's windows, new
/// connections take a round trip for each doubling: all engines count them.
#[test]
fn messages_take_as_long_on_every_engine() {
    for transport in ["rocev2", "infiniband", "uec", "iwarp", "tcp"] {
        for cable in ["1m", "100m", "10km", "400km", "1000km"] {
            let loaded = two_tiers(transport, cable, &[]);
            agree(&loaded, Collective::SendRecv, 0.1, &format!("{transport}, {cable}"));
        }
    }
}

/// Agreement: collectives over the transports without windows, whatever the algorithm. InfiniBand
/// and Ultra Ethernet spread packets, so that nothing collides.
#[test]
fn collectives_take_as_long_on_every_engine() {
    let chosen = [
        (Collective::AllReduce, ""),
        (Collective::AllGather, ""),
        (Collective::Broadcast, ""),
        (Collective::AllToAll, ""),
        (Collective::AllReduce, "library.algorithm=ring"),
        (Collective::AllReduce, "library.algorithm=tree"),
        (Collective::AllReduce, "library.algorithm=nvls_tree"),
        (Collective::AllToAll, "library.algorithm=hierarchical_all_to_all"),
    ];
    for transport in ["infiniband", "uec"] {
        for cable in ["1m", "100km"] {
            for (what, set) in chosen {
                let more: Vec<&str> = [set].into_iter().filter(|set| !set.is_empty()).collect();
                let loaded = two_tiers(transport, cable, &more);
                // Down a chain packets of the channels of a NIC are passed on before all of a
                // slice is there; the closed form waits for it.
                let within = if what == Collective::Broadcast { 0.6 } else { 0.1 };
                agree(&loaded, what, within, &format!("{transport}, {cable}, {set}"));
            }
        }
    }
}

/// Oracle: by hand. Slower switches cost each step of a tree that crosses them what they take
/// longer.
#[test]
fn switches_are_felt_by_folded_collectives() {
    for engine in [Engine::Analytic, Engine::Flow] {
        let time = |latency: &str| {
            let [leaf, spine] =
                ["leaf", "spine"].map(|tier| format!("fabric.{tier}.latency={latency}"));
            let tree = "library.algorithm=tree";
            let loaded = two_tiers("infiniband", "3m", &[&leaf, &spine, tree]);
            times(&loaded, engine, Collective::AllReduce)[0].0
        };
        // Server 1 to 2 to 0 and back, each time over two leaves and a spine.
        let added = time("101us") - time("1us");
        assert!((added / 1200.0 - 1.0).abs() < 0.01, "{engine:?}: {added} us");
    }
}

/// Oracle: by hand. What long cables add to a step is what the critical path of its rings waits
/// for: it is added to a phase, not multiplied with it, and where answers hold it back it is said.
#[test]
fn long_cables_are_felt_by_a_step() {
    for engine in [Engine::Analytic, Engine::Flow] {
        let run = |cable: &str| {
            let links = format!("fabric.links=[{{length=\"3m\"}},{{length=\"{cable}\"}}]");
            let loaded = loaded(Some("small-128"), &[links, "library.buffer=1GiB".to_owned()]);
            run_job::run(&loaded, engine, Patience::Usual, &mut Watch::default()).expect("it runs")
        };
        let (short, long) = (run("3m"), run("100km"));
        let gather = |report: &run_job::Report| {
            let is_it =
                |phase: &&run_job::PhaseRow| phase.axis == "dp" && phase.collective == "all_gather";
            report.phases.iter().find(is_it).expect("it gathers weights").slowest_s
        };
        // Two servers a leaf: eight of sixteen crossings pass a spine, over two cables of 500 us
        // each. Fifteen steps of two slices, four of them under way at a time, wait for seven
        // round trips and the last way, while bytes move and other steps wait for theirs.
        let wanted = (7.0 * 2e-3 + 1e-3_f64).max(gather(&short) + 8e-3);
        assert!((gather(&long) / wanted - 1.0).abs() < 0.05, "{engine:?}: {}", gather(&long));
        let inside = |report: &run_job::Report| report.breakdown_s.tp;
        assert_eq!(inside(&short), inside(&long));
        assert!(short.findings.is_empty(), "{:?}", short.findings);
        assert!(long.findings.iter().any(|found| found.contains("waiting for answers")));
    }
}

/// One size of a collective on some GPUs of a scenario.
fn one(loaded: &Loaded, engine: Engine, what: Collective, gpus: usize, bytes: Bytes) -> f64 {
    let sizes = collective::Sizes { min: bytes, max: bytes, factor: 2 };
    let (patience, gpus) = (Patience::Usual, Some(gpus));
    let options =
        collective::Options { engine, patience, collective: what, sizes, gpus, iterations: 1 };
    let report = collective::run(loaded, &options, &mut Watch::default()).expect("it runs");
    report.rows[0].time_us
}

/// Agreement: 17 GPUs are two servers and one GPU of a third, whose NIC everybody sends to.
#[test]
fn servers_used_in_part_are_right_on_every_engine() {
    let small = loaded(Some("small-128"), &[]);
    for (gpus, bytes) in [(17, Bytes::from_mib(8)), (97, Bytes::from_mib(4))] {
        let time = |engine| one(&small, engine, Collective::AllToAll, gpus, bytes);
        let [analytic, flow] = [Engine::Analytic, Engine::Flow].map(time);
        // On 17 the NIC of the last one gets 16/17 of the bytes at 49 bytes a nanosecond; on 97
        // plain hashing costs the flow engine something.
        if gpus == 17 {
            let packet = time(Engine::Packet);
            for (other, name) in [(analytic, "analytic"), (packet, "packet")] {
                assert!((other / flow - 1.0).abs() < 0.15, "{gpus}: {name} {other}, flow {flow}");
            }
        }
        assert!(analytic < 1.05 * flow, "{gpus}: {analytic} and {flow}");
    }
}

/// Inside one server all engines have one answer, and bandwidth grows with the message.
#[test]
fn a_broadcast_inside_a_server_has_one_answer_and_no_dip() {
    let small = loaded(Some("small-128"), &[]);
    let mut before = 0.0;
    for mib in [4, 16, 64, 256] {
        let bytes = Bytes::from_mib(mib);
        let time = |engine| one(&small, engine, Collective::Broadcast, 8, bytes);
        let [analytic, flow, packet] = Engine::ALL.map(time);
        assert!((analytic / flow - 1.0).abs() < 0.02, "{mib}: {analytic} and {flow}");
        assert!((packet / flow - 1.0).abs() < 0.1, "{mib}: {packet} and {flow}");
        let rate = bytes.as_f64() / flow;
        assert!(before < rate, "{mib} MiB: {rate} after {before}");
        before = rate;
    }
}

/// On rails that do not meet, a server used in part is entered by the rails that it has.
#[test]
fn a_server_used_in_part_is_reached_over_its_own_rails() {
    let rails = loaded(Some("deepseek-v2"), &["fabric.topology=rail-only".to_owned()]);
    use Collective::{AllGather, AllReduce, AllToAll, SendRecv};
    for what in [AllGather, AllReduce, AllToAll, SendRecv] {
        for engine in [Engine::Analytic, Engine::Flow] {
            assert!(0.0 < one(&rails, engine, what, 12, Bytes::from_mib(1)));
        }
    }
}

/// Kernel TCP moves what a core copies, on every engine; more threads move more.
#[test]
fn kernel_tcp_is_bounded_by_cores() {
    let bytes = Bytes::from_mib(64);
    for (cores, gbps) in [(1, 42.0), (4, 168.0)] {
        let tcp = two_tiers("tcp", "3m", &[&format!("network.nic.cores={cores}")]);
        for engine in Engine::ALL {
            let time = one(&tcp, engine, Collective::SendRecv, 8, bytes);
            let rate = 8e-3 * bytes.as_f64() / time;
            assert!((0.8..1.0).contains(&(rate / gbps)), "{cores}, {engine:?}: {rate} Gb/s");
        }
    }
    let rdma = one(&two_tiers("rocev2", "3m", &[]), Engine::Flow, Collective::SendRecv, 8, bytes);
    assert!(8e-3 * bytes.as_f64() / rdma > 300.0);
}

/// Iterations in a row are even where nothing collides, and not where rates are still being found;
/// closed forms have nothing to tell about it.
#[test]
fn iterations_keep_the_state_of_the_network() {
    let sizes = collective::Sizes { min: Bytes::from_mib(16), max: Bytes::from_mib(16), factor: 2 };
    let run = |loaded: &Loaded, engine, collective, iterations| {
        let (patience, gpus) = (Patience::Usual, Some(loaded.fabric().gpus().min(32)));
        let options = collective::Options { engine, patience, collective, sizes, gpus, iterations };
        collective::run(loaded, &options, &mut Watch::default())
    };
    let several = |loaded: &Loaded, engine, what| {
        let report = run(loaded, engine, what, 5).expect("it runs");
        let [row] = &report.rows[..] else { panic!("one size") };
        let several = row.iterations.clone().expect("there are several");
        let mean = several.times_us.iter().sum::<f64>() / 5.0;
        assert!((several.count, several.times_us.len()) == (5, 5));
        assert!((mean / row.time_us - 1.0).abs() < 1e-9, "{mean} and {}", row.time_us);
        several
    };
    let quiet = two_tiers("infiniband", "3m", &[]);
    for engine in [Engine::Flow, Engine::Packet] {
        let even = several(&quiet, engine, Collective::AllGather);
        let once = run(&quiet, engine, Collective::AllGather, 1).expect("it runs");
        assert!(even.variation < 0.01, "{engine:?}: {even:?}");
        assert!((even.first_us / once.rows[0].time_us - 1.0).abs() < 0.01, "{engine:?}");
        assert_eq!(once.rows[0].iterations, None);
    }
    // The first finds queue pairs at line rate, is marked, and leaves the others lower rates.
    let crowded = loaded(Some("small-128"), &[]);
    let uneven = several(&crowded, Engine::Packet, Collective::AllToAll);
    assert!(0.05 < uneven.variation && uneven.max_us == uneven.first_us, "{uneven:?}");
    let refused = run(&quiet, Engine::Analytic, Collective::AllGather, 5).expect_err("no state");
    assert!(refused.to_string().contains("closed forms"), "{refused}");
}
