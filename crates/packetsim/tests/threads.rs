//! One run on several threads: the same results, and one thread where it cannot be divided.

use std::sync::atomic::{AtomicBool, Ordering};

use fabric::Fabric;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::transport::Transport;
use packetsim::buffer::{BufferConfig, EcnConfig};
use packetsim::cc::{CcConfig, none};
use packetsim::{Progress, Settings, Watch};
use traffic::{Connection, OpKind, Outcome, Transfers};
use units::{Bytes, Random, Rate, Span};

/// A fat tree of sixteen hosts.
fn fabric() -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let link = |ns: u64| LinkConfig {
        rate: Some(Rate::from_gbps(400)),
        delay: Some(Span::from_ns(ns)),
        length: None,
    };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(4),
        links: vec![link(20), link(150), link(400)],
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).expect("it is well-formed")
}

/// Messages from a common start, passed on from host to host, to a common end.
fn messages(fabric: &Fabric, seed: u64, hosts: u64, bytes: u64) -> Transfers {
    let mut random = Random::new(seed, "threads", 0);
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let start = OpKind::Wait { span: Span::from_ns(100 + random.below(900)) };
    let start = transfers.add(start, label, &[]);
    let mut last = Vec::new();
    for _ in 0..20 {
        let mut from = random.below(hosts);
        let mut before = vec![start];
        for _ in 0..4 {
            // Most of them to a few, so that they meet.
            let to = if random.below(2) == 0 { random.below(2) } else { random.below(hosts) };
            let to = if to == from { (to + 1) % hosts } else { to };
            let [a, b] = [from, to].map(|host| fabric.nic(host as usize));
            let connection =
                transfers.connect(Connection { from: a, to: b, channel: 0, queue_pairs: 2 });
            let bytes = Bytes::new(1 + random.below(bytes));
            let sent = transfers.send(connection, bytes, label, &before);
            let span = Span::from_ns(random.below(2) * 300);
            before = vec![transfers.add(OpKind::Wait { span }, label, &[sent])];
            from = to;
        }
        last.extend(before);
    }
    transfers.add(OpKind::Wait { span: Span::from_ns(7) }, label, &last);
    transfers
}

/// Buffers so small that senders are paused.
fn tight() -> Settings {
    Settings {
        congestion: CcConfig::None(none::Config {}),
        buffer: BufferConfig {
            size: Bytes::new(700_000),
            alpha: 0.125,
            reserved: Bytes::new(4096),
            ..BufferConfig::default()
        },
        ..Settings::default()
    }
}

fn run(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    threads: u32,
) -> (Outcome, usize, Option<&'static str>) {
    let mut settings = settings.clone();
    settings.packet.threads = Some(threads);
    let mut watch = Watch::default();
    let mut outcome =
        packetsim::run_watched(fabric, transfers, &settings, &mut watch).expect("it can be run");
    outcome.counters.events = 0;
    (outcome, watch.threads, watch.why_one_thread)
}

/// Agreement: operations that are passed on, start together and end together, with pauses that
/// cross the cuts, come out the same on any number of threads.
#[test]
fn any_number_of_threads_gives_the_same_results() {
    let fabric = fabric();
    let calm = Settings::default();
    let (mut divided, mut pauses, mut marks) = (0, 0, 0);
    for seed in 0..12 {
        let transfers = messages(&fabric, seed, 16, 300_000);
        let ecn =
            EcnConfig { min: Bytes::from_kib(8), max: Bytes::from_kib(32), ..calm.ecn.clone() };
        for settings in [&tight(), &Settings { seed, ecn, ..calm.clone() }] {
            let (alone, one, _) = run(&fabric, &transfers, settings, 1);
            assert_eq!((one, alone.completed()), (1, transfers.ops().len()));
            for threads in 2..5 {
                let (together, used, _) = run(&fabric, &transfers, settings, threads);
                assert_eq!(alone.ops, together.ops, "seed {seed}, {threads} threads");
                for (link, (one, other)) in alone.links.iter().zip(&together.links).enumerate() {
                    assert_eq!(one, other, "seed {seed}, {threads} threads, link {link}");
                }
                assert_eq!(alone.counters, together.counters, "seed {seed}, {threads} threads");
                assert_eq!(alone.digest, together.digest, "seed {seed}, {threads} threads");
                divided += usize::from(used == threads as usize);
            }
            pauses += alone.counters.pauses;
            marks += alone.counters.ecn_marks;
        }
    }
    assert!(60 < divided, "only {divided} of 72 ran on as many threads as were asked for");
    assert!(50 < pauses && 50 < marks, "only {pauses} pauses and {marks} marks");
}

/// Half of a fabric in use is divided too: by load, not by place.
#[test]
fn an_idle_half_counts_for_nothing() {
    let fabric = fabric();
    let transfers = messages(&fabric, 1, 8, 400_000);
    let mut watch = Watch::default();
    let mut settings = Settings::default();
    settings.packet.threads = Some(2);
    let outcome =
        packetsim::run_watched(&fabric, &transfers, &settings, &mut watch).expect("it can be run");
    assert_eq!(watch.threads, 2, "{:?}", watch.why_one_thread);
    let at_a_time = outcome.counters.events as f64 / watch.events_in_turn as f64;
    assert!(1.2 < at_a_time, "only {at_a_time:.2} events at a time");
}

/// Where one thread must do, that is told, and nobody asked for several by saying nothing.
#[test]
fn one_thread_says_why() {
    let fabric = fabric();
    let transfers = messages(&fabric, 1, 16, 20_000);
    let credits = Settings::of_transport(Transport::Infiniband);
    let (_, threads, why) = run(&fabric, &transfers, &credits, 2);
    assert_eq!((threads, why), (1, Some("its links count credits")));
    let mut watch = Watch { cores: 8, ..Watch::default() };
    packetsim::run_watched(&fabric, &transfers, &Settings::default(), &mut watch)
        .expect("it can be run");
    assert_eq!((watch.threads, watch.why_one_thread), (1, None), "it is small");
}

/// Somebody who watches several threads hears of them and can stop them.
#[test]
fn several_threads_can_be_stopped() {
    let fabric = fabric();
    let transfers = messages(&fabric, 1, 16, 20_000_000);
    let mut settings = Settings::default();
    settings.packet.threads = Some(3);
    let stop = AtomicBool::new(false);
    let mut heard = Vec::new();
    let mut halt = |progress: Progress| {
        heard.push((progress.events, progress.operations_left));
        stop.store(2 < heard.len(), Ordering::Relaxed);
    };
    let mut watch = Watch { interrupt: Some(&stop), progress: Some(&mut halt), ..Watch::default() };
    let outcome =
        packetsim::run_watched(&fabric, &transfers, &settings, &mut watch).expect("it can be run");
    assert!(outcome.stopped_at.is_some() && outcome.completed() < transfers.ops().len());
    assert!(outcome.findings.iter().any(|finding| finding.text.starts_with("stopped: ")));
    assert!(heard.iter().all(|(events, left)| 0 < *events && 0 < *left), "{heard:?}");
}
