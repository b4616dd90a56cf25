//! Whatever is set, together with whatever else: runs end, account for every packet (the engine
//! asserts that itself), repeat themselves, and are the same when somebody looks on or when nobody
//! can run ahead of the clock.

#![expect(clippy::print_stderr, reason = "long runs say how much they saw")]

use fabric::Fabric;
use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::hardware::Reorder;
use fabric::routing::{Policy, QueuePairUse};
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::transport::Transport;
use packetsim::admission::AdmissionPolicy;
use packetsim::buffer::{MarkWhen, Organisation, WatchdogAction};
use packetsim::cc::CcConfig;
use packetsim::measure::MeasureConfig;
use packetsim::nic::{AcksWhilePaused, AfterIdle, Pacing, Verb};
use packetsim::packet::Forward;
use packetsim::settings::{ControlClass, Forwarding, Limits, LinkRetry, Overflow};
use packetsim::{Settings, Watch};
use traffic::{Connection, OpKind, Transfers};
use units::{Bytes, Random, Rate, Span};

/// Something drawn from a list.
fn one<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

/// The seeds of a test: so many, or those that `ANYTHING_SEEDS` names (`1000..2000`).
fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(named) = std::env::var("ANYTHING_SEEDS") else { return 0..count };
    let ends = named.split_once("..").map(|(from, to)| [from, to].map(|end| end.parse().ok()));
    let Some([Some(from), Some(to)]) = ends else { panic!("{named} is not FROM..TO") };
    from..to
}

/// True once in so many times.
fn rarely(random: &mut Random, times: u64) -> bool {
    random.below(times) == 0
}

fn fabric(random: &mut Random, shortest_ns: u64) -> Fabric {
    let per_node = one(random, &[1, 2, 4]);
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: per_node,
        nics_per_node: per_node,
        ..ClusterConfig::default()
    };
    let link = |random: &mut Random| {
        let most = one(random, &[1, 30, 300, 1_500]);
        LinkConfig {
            rate: Some(Rate::from_gbps(one(random, &[25, 40, 100, 400, 800]))),
            delay: Some(Span::from_ns(shortest_ns + random.below(most))),
            length: None,
        }
    };
    let tiers: Vec<LinkConfig> = (0..3).map(|_| link(random)).collect();
    let of = |topology, tiers: &[LinkConfig]| FabricConfig {
        topology,
        k: (topology == TopologyKind::FatTree).then_some(4),
        links: tiers.to_vec(),
        ..FabricConfig::default()
    };
    let config = match random.below(8) {
        0 => of(TopologyKind::Clos, &tiers[..2]),
        1 => of(TopologyKind::RailOptimized, &tiers[..2]),
        2 => of(TopologyKind::DualPlane, &tiers[..2]),
        3 => of(TopologyKind::RailOnly, &tiers[..1]),
        4 => of(TopologyKind::Dragonfly, &tiers[..2]),
        _ => of(TopologyKind::FatTree, &tiers),
    };
    build(&cluster, &config, &Default::default()).expect("it is well-formed")
}

/// Some of them after another, which may be another server's, if they may follow each other.
fn messages(random: &mut Random, fabric: &Fabric, may_follow: bool) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let mut before = Vec::new();
    for _ in 0..1 + random.below(24) {
        let from = random.below(16) as usize;
        // Every other one to the same few, so that they meet.
        let to = (from + 1 + random.below(15) as usize) % 16;
        let to = if rarely(random, 2) && from != 3 { 3 } else { to };
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        let queue_pairs = one(random, &[1, 1, 2, 5]);
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs });
        let first = transfers.connections().len() - 1;
        transfers.set_service_level(first, random.below(4) as u8);
        if rarely(random, 3) {
            let span = Span::from_ps(random.below(30_000_000));
            before = vec![transfers.add(OpKind::Wait { span }, label, &[])];
        }
        let most = one(random, &[10, 5_000, 400_000]);
        let bytes = Bytes::new(1 + random.below(most));
        let sent = transfers.send(connection, bytes, label, &before);
        before = if rarely(random, 3) && may_follow { vec![sent] } else { Vec::new() };
    }
    transfers
}

fn nic(random: &mut Random, settings: &mut Settings) {
    let nic = &mut settings.nic;
    nic.verb = one(random, &[Verb::WriteWithImmediate, Verb::Write, Verb::Send, Verb::Read]);
    nic.ack_every = one(random, &[1, 1, 2, 16]);
    let all = [Reorder::None, Reorder::SelectiveRepeat, Reorder::DirectPlacement];
    nic.reorder = one(random, &all);
    nic.reorder_window = one(random, &[1, 8, 256]);
    nic.timeout = Span::from_us(one(random, &[60, 200, 1_000, 4_000_000]));
    nic.after_idle = one(random, &[AfterIdle::Keep, AfterIdle::Restart]);
    nic.idle_reset = Span::from_us(one(random, &[1, 100]));
    nic.pacing = one(random, &[Pacing::Follow, Pacing::Fixed]);
    nic.acks_while_paused = one(random, &[AcksWhilePaused::Send, AcksWhilePaused::Hold]);
    nic.send_latency = Span::from_ns(one(random, &[0, 300]));
    nic.receive_latency = Span::from_ns(one(random, &[0, 700]));
    if rarely(random, 6) {
        nic.pcie = Some(Rate::from_gbps(one(random, &[60, 300])));
        nic.receive_buffer = Bytes::from_kib(one(random, &[64, 2_048]));
    }
}

fn switches(random: &mut Random, settings: &mut Settings) {
    let switch = &mut settings.switch;
    switch.forwarding = one(random, &[Forwarding::StoreAndForward, Forwarding::CutThrough]);
    switch.acks = one(random, &[ControlClass::Own, ControlClass::WithData]);
    switch.grants = one(random, &[ControlClass::Own, ControlClass::WithData]);
    switch.overflow = one(random, &[Overflow::Drop, Overflow::Drop, Overflow::Trim]);
    switch.link_retry = one(random, &[LinkRetry::Off, LinkRetry::Off, LinkRetry::On]);
    settings.routing.detection = Span::from_us(one(random, &[0, 30, 90]));
    let buffer = &mut settings.buffer;
    buffer.organisation =
        one(random, &[Organisation::Shared, Organisation::Shared, Organisation::DeepVoq]);
    buffer.size = Bytes::from_kib(one(random, &[600, 3_000, 160_000]));
    buffer.alpha = one(random, &[0.125, 1.0, 8.0]);
    buffer.alpha_lossy = one(random, &[0.125, 1.0]);
    settings.ecn.enabled = !rarely(random, 4);
    settings.ecn.min = Bytes::from_kib(one(random, &[8, 100, 1_024]));
    settings.ecn.max = settings.ecn.min * one(random, &[1, 4]);
    settings.ecn.when = one(random, &[MarkWhen::Dequeue, MarkWhen::Enqueue]);
    settings.pfc.enabled = !rarely(random, 3);
    settings.pfc.quanta = one(random, &[0, 300, 65_535]);
    settings.pfc.response_quanta = one(random, &[0, 40]);
    settings.pfc.watchdog = one(random, &[None, Some(Span::from_us(100))]);
    let actions = [WatchdogAction::Alert, WatchdogAction::Forward, WatchdogAction::Drop];
    settings.pfc.action = one(random, &actions);
    settings.credits.spare = Bytes::from_kib(one(random, &[16, 256]));
    settings.credits.lanes = one(random, &[1, 1, 2, 4]);
    if 1 < settings.credits.lanes {
        settings.credits.weights = one(random, &[vec![], vec![64, 192]]);
        settings.credits.high_priority = one(random, &[vec![], vec![1]]);
        settings.pfc.lossy_lanes = one(random, &[vec![], vec![0], vec![1]]);
    } else if rarely(random, 4) {
        settings.switch.control_share = Some(0.25);
    }
    if settings.credits.enabled {
        // Refused with credits.
        settings.pfc.lossy_lanes.clear();
        settings.switch.control_share = None;
    }
}

fn settings(random: &mut Random, fabric: &Fabric, seed: u64) -> Settings {
    let transports = [
        Transport::Rocev2,
        Transport::Rocev2,
        Transport::Infiniband,
        Transport::Uec,
        Transport::Tcp,
        Transport::Efa,
        Transport::ScheduledEthernet,
        Transport::ScheduledEthernet,
    ];
    let transport = one(random, &transports);
    let mut settings = Settings { seed, ..Settings::of_transport(transport) };
    if rarely(random, 2) {
        settings.congestion = one(random, &CcConfig::defaults()).1;
    }
    nic(random, &mut settings);
    switches(random, &mut settings);
    let routing = &mut settings.routing;
    routing.policy = one(random, &Policy::ALL);
    let spreads = [Policy::Spray, Policy::Reps, Policy::Adaptive, Policy::InfinibandAdaptive];
    let several = 1 < fabric.ports(fabric.nic(0)).len();
    if several && spreads.contains(&routing.policy) && settings.credits.enabled {
        // Refused: where links count credits a queue pair stays on one port.
        routing.policy = Policy::Ecmp;
    }
    routing.split = one(random, &[QueuePairUse::Split, QueuePairUse::RoundRobin]);
    routing.chunk = Bytes::from_kib(one(random, &[3, 512]));
    routing.gap = Span::from_us(one(random, &[1, 50]));
    routing.busy = Bytes::from_kib(one(random, &[0, 8]));
    if rarely(random, 3) {
        settings.admission.policy = AdmissionPolicy::ReceiverDriven;
        settings.admission.buffer = Bytes::from_kib(one(random, &[8, 64]));
        settings.admission.window = one(random, &[1, 4]);
        settings.admission.receiver_window = one(random, &[None, Some(Bytes::from_kib(128))]);
    }
    if settings.scheduled.enabled {
        // Cells take all links, and leaves have room or pause.
        settings.routing.policy = Policy::Spray;
        settings.switch.overflow = Overflow::Drop;
        settings.scheduled.cell = Bytes::new(one(random, &[64, 256, 1_000]));
        settings.scheduled.credit = Bytes::new(one(random, &[200, 4_096, 30_000]));
        settings.scheduled.latency = Span::from_ns(one(random, &[0, 500]));
        settings.scheduled.window = one(random, &[None, Some(Bytes::from_kib(8))]);
    }
    settings.loss = one(random, &[0.0, 0.0, 0.001, 0.02]);
    settings.limits = Limits { events: 20_000_000, time: Span::from_ms(400) };
    settings
}

fn faults(random: &mut Random, fabric: &Fabric) -> Faults {
    let us = Span::from_us;
    let leaf = fabric.name(fabric.leaves()[0]);
    let top = fabric.name(fabric.switches().last().expect("there are some"));
    let kinds = [
        ("NIC 3", FaultKind::LinkDown),
        (leaf.as_str(), FaultKind::LinkDown),
        (top.as_str(), FaultKind::SwitchDown),
        (leaf.as_str(), FaultKind::SwitchRestart),
        ("NIC 3", FaultKind::Flap { period: us(40), down: Some(us(15)) }),
        ("NIC *", FaultKind::Grey { loss: 0.01, bit_error_rate: 1e-8 }),
        (leaf.as_str(), FaultKind::Degraded { rate: Rate::from_gbps(5) }),
        ("NIC 3", FaultKind::SlowReceiver { rate: Rate::from_gbps(30) }),
        ("NIC 3", FaultKind::PauseStorm),
    ];
    let count = one(random, &[0, 0, 1, 2]);
    let fault = |random: &mut Random| {
        let (on, what) = one(random, &kinds);
        let lasting = one(random, &[None, Some(us(30)), Some(us(300))]);
        let restarts = matches!(what, FaultKind::SwitchRestart);
        let lasting = lasting.or(restarts.then_some(us(90)));
        FaultConfig { at: us(random.below(40)), until: None, lasting, on: on.to_owned(), what }
    };
    let faults: Vec<FaultConfig> = (0..count).map(|_| fault(random)).collect();
    Faults::new(fabric, &faults, "faults").expect("they are well-formed")
}

/// Messages one after the other on a few connections, passed on: what repeats itself. At the
/// beginning of a loop they wait for nobody's message, but for room in a buffer.
fn chains(random: &mut Random, fabric: &Fabric) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("chain");
    let hosts = one(random, &[2, 4, 16]);
    let bytes = Bytes::from_kib(one(random, &[16, 100, 256]));
    let connections: Vec<_> = (0..hosts)
        .map(|at| {
            let (from, to) = (fabric.nic(at), fabric.nic((at + 1) % hosts));
            transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 })
        })
        .collect();
    let (steps, window) = one(random, &[(40, 40), (40, 4), (5, 4), (6, 3), (10, 4)]);
    let slices = one(random, &[1, 2]);
    let mut sent: Vec<Vec<traffic::OpId>> = vec![Vec::new(); hosts];
    for number in 0..40 {
        let step = number / slices % steps;
        for at in 0..hosts {
            let mut before = Vec::new();
            let known = &sent[(at + hosts - 1) % hosts];
            if 0 < step {
                before.extend(known.get(number - slices));
            }
            before.extend((window <= number).then(|| sent[at][number - window]));
            sent[at].push(transfers.send(connections[at], bytes, label, &before));
        }
    }
    transfers
}

/// Agreement, over everything that can be set: what is computed comes out as if it had been
/// simulated.
#[test]
fn whatever_is_set_jumps_change_nothing() {
    let (mut jumped, seeds) = (0, seeds(120));
    let all = seeds.end - seeds.start;
    // In 308 messages arrive before the first of two equal states at times of their own.
    for seed in seeds.chain([308]) {
        let mut random = Random::new(seed, "anything jumps", 0);
        let fabric = fabric(&mut random, 1);
        let transfers = chains(&mut random, &fabric);
        let mut settings = settings(&mut random, &fabric, seed);
        if !rarely(&mut random, 3) {
            // Most settings are such that nothing repeats itself.
            settings = Settings { seed, ..Settings::default() };
            nic(&mut random, &mut settings);
            settings.nic.verb = Verb::Write;
            settings.nic.pcie = None;
        }
        let [whole, jumps, bounded] =
            [Forward::Off, Forward::Exact, Forward::Bounded].map(|forward| {
                let mut settings = settings.clone();
                settings.packet.forward = forward;
                let mut watch = Watch::default();
                let outcome = packetsim::run_watched(&fabric, &transfers, &settings, &mut watch);
                jumped += u64::from(forward == Forward::Exact && 0 < watch.jumps);
                outcome.expect("it can be run")
            });
        assert_eq!(whole.ops, jumps.ops, "seed {seed}");
        assert_eq!(whole.links, jumps.links, "seed {seed}");
        assert_eq!(whole.digest, jumps.digest, "seed {seed}");
        let [a, b] = [&whole, &bounded].map(|outcome| outcome.completed() == outcome.ops.len());
        assert!(!a || b, "seed {seed}: {:?}", bounded.findings);
    }
    assert!(all <= 10 * jumped, "only {jumped} of {all} jumped");
    eprintln!("{jumped} of {all} seeds jumped");
}

/// Agreement, over everything that can be set: threads change nothing but the number of events.
#[test]
fn whatever_is_set_threads_change_nothing() {
    let (mut divided, mut pauses, mut marks) = (0, 0, 0);
    let mut reasons = std::collections::BTreeMap::new();
    let seeds = seeds(60);
    let all = seeds.end - seeds.start;
    for seed in seeds {
        let mut random = Random::new(seed, "anything in parts", 0);
        let fabric = fabric(&mut random, 30);
        let transfers = if rarely(&mut random, 2) {
            chains(&mut random, &fabric)
        } else {
            messages(&mut random, &fabric, false)
        };
        let mut settings = settings(&mut random, &fabric, seed);
        if !rarely(&mut random, 4) {
            // Most settings are such that something acts on other servers at once.
            settings = Settings { seed, ..Settings::default() };
            nic(&mut random, &mut settings);
            switches(&mut random, &mut settings);
            settings.nic.verb = Verb::Write;
            settings.nic.reorder = Reorder::None;
            settings.nic.pcie = None;
            settings.switch.link_retry = LinkRetry::Off;
            settings.routing.policy = one(&mut random, &[Policy::Ecmp, Policy::Spray]);
            settings.congestion = one(&mut random, &CcConfig::defaults()).1;
        }
        let run = |threads: u32| {
            let mut settings = settings.clone();
            settings.packet.threads = Some(threads);
            let mut watch = Watch::default();
            let mut outcome = packetsim::run_watched(&fabric, &transfers, &settings, &mut watch)
                .expect("it can be run");
            outcome.counters.events = 0;
            (outcome, watch)
        };
        let (alone, _) = run(1);
        for threads in 2..5 {
            let (together, watch) = run(threads);
            let about = format!("seed {seed}, {threads} threads");
            assert_eq!(alone.ops, together.ops, "{about}");
            for (link, (one, other)) in alone.links.iter().zip(&together.links).enumerate() {
                assert_eq!(one, other, "{about}, link {link}");
            }
            assert_eq!(alone.counters, together.counters, "{about}");
            assert_eq!(alone.findings, together.findings, "{about}");
            assert_eq!(alone.digest, together.digest, "{about}");
            *reasons.entry(watch.why_one_thread).or_insert(0) += 1;
            if 1 < watch.threads {
                divided += 1;
                pauses += together.counters.pauses;
                marks += together.counters.ecn_marks;
            }
        }
    }
    assert!(all < 2 * divided, "only {divided} runs were divided: {reasons:?}");
    assert!(5 * all < pauses && 5 * all < marks, "only {pauses} pauses and {marks} marks");
    eprintln!("{divided} runs of {all} seeds were divided");
}

/// Property, over everything that can be set.
#[test]
fn whatever_is_set_runs_end_and_repeat_themselves() {
    let (mut finished, mut all) = (0, 0);
    for seed in seeds(150) {
        let mut random = Random::new(seed, "anything", 0);
        let fabric = fabric(&mut random, 1);
        let transfers = messages(&mut random, &fabric, true);
        let settings = settings(&mut random, &fabric, seed);
        let faults = faults(&mut random, &fabric);
        let run = || {
            let mut watch = Watch::default();
            packetsim::run_with_faults(&fabric, &transfers, &settings, &faults, &mut watch)
                .expect("it can be run")
        };
        let (first, again) = (run(), run());
        assert_eq!(first.digest, again.digest, "seed {seed}");
        let links = fabric.links().ids().collect();
        let measure = MeasureConfig { interval: Span::from_us(3), links, ..Default::default() };
        let mut watch = Watch::default();
        let (watched, _) =
            packetsim::run_measured(&fabric, &transfers, &settings, &faults, &measure, &mut watch)
                .expect("it can be run");
        assert_eq!(first.ops, watched.ops, "seed {seed}");
        if faults.is_empty() {
            // One that comes too late to matter: nobody runs ahead of the clock any more.
            let late = FaultConfig {
                at: settings.limits.time - Span::from_ps(1),
                until: None,
                lasting: None,
                on: "NIC 0".to_owned(),
                what: FaultKind::LinkDown,
            };
            let late = Faults::new(&fabric, &[late], "faults").expect("it is well-formed");
            let mut watch = Watch::default();
            let along =
                packetsim::run_with_faults(&fabric, &transfers, &settings, &late, &mut watch)
                    .expect("it can be run");
            assert_eq!(first.ops, along.ops, "seed {seed}");
        }
        let unfinished = first.completed() < first.ops.len();
        assert_eq!(unfinished, !first.findings.is_empty() && unfinished, "seed {seed}: why not?");
        finished += first.completed();
        all += first.ops.len();
    }
    assert!(8 * all < 10 * finished, "only {finished} of {all} finished");
}
