//! Faults: what goes wrong is felt as arithmetic says, and loss never hangs a run.

use fabric::Fabric;
use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::hardware::Reorder;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use packetsim::buffer::WatchdogAction;
use packetsim::cc::{CcConfig, none};
use packetsim::nic::NicConfig;
use packetsim::{Settings, Watch};
use traffic::{Connection, OpKind, Outcome, Transfers};
use units::{Bytes, Rate, Span};

/// Sixteen hosts in a fat tree of 400G.
fn tree() -> Fabric {
    tree_without(&[])
}

/// The same of which some parts have failed for good.
fn tree_without(failed: &[&str]) -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let delay = Some(Span::from_ns(500));
    let link = LinkConfig { rate: Some(Rate::from_gbps(400)), delay, length: None };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(4),
        links: vec![link; 3],
        failed: failed.iter().map(|name| (*name).to_owned()).collect(),
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).unwrap()
}

fn fault(on: &str, at: Span, lasting: Option<Span>, what: FaultKind) -> FaultConfig {
    FaultConfig { at, until: None, lasting, on: on.to_owned(), what }
}

/// Every host sends 4 MiB to the one eight further on.
fn run(reorder: Reorder, faults: &[FaultConfig]) -> Outcome {
    run_on(tree(), reorder, faults)
}

fn run_on(fabric: Fabric, reorder: Reorder, faults: &[FaultConfig]) -> Outcome {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for host in 0..16 {
        let (from, to) = (fabric.nic(host), fabric.nic((host + 8) % 16));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::from_mib(4), label, &[]);
    }
    let nic = NicConfig { reorder, timeout: Span::from_us(500), ..NicConfig::default() };
    let congestion = CcConfig::None(none::Config {});
    let settings = Settings { nic, congestion, seed: 1, ..Settings::default() };
    let faults = Faults::new(&fabric, faults, "faults").unwrap_or_else(|e| panic!("{e:?}"));
    packetsim::run_with_faults(&fabric, &transfers, &settings, &faults, &mut Watch::default())
        .expect("it can be run")
}

const WAYS: [Reorder; 3] = [Reorder::None, Reorder::SelectiveRepeat, Reorder::DirectPlacement];

/// Property: every kind of fault ends, with every way to repair losses.
#[test]
fn loss_never_hangs_a_run() {
    let us = Span::from_us;
    let flap = FaultKind::Flap { period: us(60), down: Some(us(20)) };
    let grey = FaultKind::Grey { loss: 0.01, bit_error_rate: 0.0 };
    let faults = [
        ("down", fault("NIC 0", us(20), Some(us(80)), FaultKind::LinkDown)),
        ("core", fault("core 0", us(20), None, FaultKind::SwitchDown)),
        ("restart", fault("pod 0 aggregation 0", us(20), Some(us(100)), FaultKind::SwitchRestart)),
        ("flap", fault("NIC 3", us(10), Some(us(400)), flap)),
        ("grey", fault("NIC *", us(0), None, grey)),
    ];
    for reorder in WAYS {
        for (name, fault) in &faults {
            let outcome = run(reorder, std::slice::from_ref(fault));
            assert_eq!(outcome.completed(), 16, "{name}, {reorder:?}: {:?}", outcome.findings);
            let lost = (outcome.counters.drops, outcome.counters.retransmits);
            assert!(0 < lost.0 && 0 < lost.1, "{name}, {reorder:?}: {lost:?}");
        }
    }
}

/// Property: whoever is cut off from the start gives up, and nobody else does; if that ends, all
/// arrive.
#[test]
fn hosts_that_are_cut_off_from_the_start_give_up_or_wait() {
    let us = Span::from_us;
    let flap = FaultKind::Flap { period: us(60), down: Some(us(20)) };
    for reorder in WAYS {
        let for_good = [
            run(reorder, &[fault("NIC 3", us(0), None, FaultKind::LinkDown)]),
            run(reorder, &[fault("pod 0 edge 0", us(0), None, FaultKind::SwitchDown)]),
            run_on(tree_without(&["NIC 3"]), reorder, &[]),
            run_on(tree_without(&["pod 0 edge 0"]), reorder, &[]),
        ];
        // A host sends to one and receives from one; two hosts hang on a switch.
        for (outcome, left) in for_good.iter().zip([14, 12, 14, 12]) {
            assert_eq!(outcome.completed(), left, "{reorder:?}: {:?}", outcome.findings);
            assert!(!outcome.findings.is_empty(), "{reorder:?}");
        }
        let for_a_while = [
            fault("NIC 3", us(0), Some(us(80)), FaultKind::LinkDown),
            fault("NIC 3", us(0), Some(us(400)), flap),
            fault("pod 0 edge 0", us(0), Some(us(100)), FaultKind::SwitchRestart),
        ];
        for fault in for_a_while {
            let outcome = run(reorder, std::slice::from_ref(&fault));
            assert_eq!(outcome.completed(), 16, "{fault:?} {reorder:?}: {:?}", outcome.findings);
        }
    }
}

/// Oracle: over a link at a quarter of its rate, data and the acknowledgements that share the link
/// take what their bytes take.
#[test]
fn a_degraded_link_is_slower_by_what_it_lost() {
    let rate = Rate::from_gbps(100);
    let slow =
        run(Reorder::None, &[fault("NIC 0", Span::ZERO, None, FaultKind::Degraded { rate })]);
    let times = slow.ops.iter().next().unwrap().unwrap();
    let bits = 1_024 * (4_096 + 82 + 86) * 8;
    // Six links and five switches there, and the same back.
    let tiers: Vec<Span> = tree().tiers().iter().map(|tier| tier.latency).collect();
    let way = Span::from_ns(500) * 6 + (tiers[0] + tiers[1]) * 2 + tiers[2];
    let expected = bits as f64 / 100e9 + (way * 2).as_secs_f64();
    let taken = times.finish.since(times.start).as_secs_f64();
    assert!((taken / expected - 1.0).abs() < 0.01, "{taken} for {expected}");
}

/// Oracle: a receiver that takes 50 Gb/s pauses its leaf, loses nothing, and gets its 4 MiB at that
/// rate.
#[test]
fn a_slow_receiver_pauses_its_leaf_and_loses_nothing() {
    let rate = Rate::from_gbps(50);
    let kind = FaultKind::SlowReceiver { rate };
    let outcome = run(Reorder::None, &[fault("NIC 8", Span::ZERO, None, kind)]);
    assert_eq!((outcome.completed(), outcome.counters.drops), (16, 0), "{:?}", outcome.findings);
    assert!(0 < outcome.counters.pauses);
    let times = outcome.ops.iter().next().unwrap().unwrap();
    let taken = times.received.since(times.start).as_secs_f64();
    let expected = 4_194_304.0 * 8.0 / 50e9;
    assert!((taken / expected - 1.0).abs() < 0.05, "{taken} for {expected}");
}

/// A NIC that storms holds up its own sender for as long as it storms, and everybody finishes.
#[test]
fn a_pause_storm_ends_when_it_ends() {
    let storm = fault("NIC 8", Span::ZERO, Some(Span::from_ms(2)), FaultKind::PauseStorm);
    let outcome = run(Reorder::None, &[storm]);
    assert_eq!(outcome.completed(), 16, "{:?}", outcome.findings);
    let times = outcome.ops.iter().next().unwrap().unwrap();
    assert!(Span::from_ms(2) <= times.finish.since(times.start));
}

/// NIC 8 storms without end while NIC 0 sends to it, and later to its neighbour; no switch has
/// anything to share, so what waits for NIC 8 soon holds up NIC 0.
fn stormed(settings: &Settings) -> Outcome {
    let fabric = tree();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for (to, mib, at) in [(8, 64, Span::ZERO), (1, 4, Span::from_ms(5))] {
        let (from, to) = (fabric.nic(0), fabric.nic(to));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        let wait = transfers.add(OpKind::Wait { span: at }, label, &[]);
        transfers.send(connection, Bytes::from_mib(mib), label, &[wait]);
    }
    let storm = fault("NIC 8", Span::from_us(20), None, FaultKind::PauseStorm);
    let faults = Faults::new(&fabric, &[storm], "faults").unwrap_or_else(|e| panic!("{e:?}"));
    packetsim::run_with_faults(&fabric, &transfers, settings, &faults, &mut Watch::default())
        .expect("it can be run")
}

fn storm_settings(action: WatchdogAction) -> Settings {
    let congestion = CcConfig::None(none::Config {});
    let mut settings = Settings { congestion, ..Settings::default() };
    settings.nic.timeout = Span::from_us(500);
    settings.buffer.alpha = 0.0;
    settings.pfc.watchdog = Some(Span::from_ms(1));
    settings.pfc.action = action;
    settings.limits.time = Span::from_ms(20);
    settings
}

/// A watchdog that drops frees everybody but those who send to the storming NIC, for as long as it
/// storms; one that forwards frees them too; one that tells frees nobody.
#[test]
fn a_watchdog_does_what_its_action_says() {
    let arrived = |action| {
        let outcome = stormed(&storm_settings(action));
        // Waits and sends in turns.
        [1, 3].map(|op| outcome.ops.as_slice()[op].is_some())
    };
    assert_eq!(arrived(WatchdogAction::Drop), [false, true]);
    assert_eq!(arrived(WatchdogAction::Forward), [true, true]);
    assert_eq!(arrived(WatchdogAction::Alert), [false, false]);
}

/// A pause that lasts is renewed once in each half of its time, however often it was asked for.
#[test]
fn pauses_are_renewed_once() {
    let mut settings = storm_settings(WatchdogAction::Alert);
    settings.limits.time = Span::from_ms(100);
    let outcome = stormed(&settings);
    let fabric = tree();
    let back = fabric.reverse(fabric.ports(fabric.nic(0))[0]);
    let frames = outcome.links[back].bytes / 64;
    let quantum = 64.0 * 8.0 / 400e9;
    let renewals = 0.1 / (f64::from(settings.pfc.quanta) * quantum / 2.0);
    // The rest are acknowledgements of what got through before the storm.
    assert!((frames as f64) < 1.2 * renewals, "{frames} for {renewals}");
}

/// Without priority flow control nobody listens to pauses.
#[test]
fn a_storm_is_nothing_where_pauses_are_off() {
    let mut settings = storm_settings(WatchdogAction::Drop);
    settings.pfc.enabled = false;
    let outcome = stormed(&settings);
    assert_eq!(outcome.counters.pauses, 0);
    assert_eq!(outcome.completed(), 4, "{:?}", outcome.findings);
}

/// A run that is stopped at an instant has gone on until then, whatever has arrived.
#[test]
fn a_limit_of_time_is_kept() {
    let fabric = tree();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let (from, to) = (fabric.nic(0), fabric.nic(8));
    let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
    transfers.send(connection, Bytes::from_mib(4), label, &[]);
    let mut settings = Settings::default();
    settings.limits.time = Span::from_us(40);
    let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
    assert_eq!((outcome.completed(), outcome.makespan()), (0, Span::ZERO));
    assert_eq!(outcome.elapsed(), Span::from_us(40));
}

/// A fault that hits a NIC, or that comes when all is over, is nothing to the others.
#[test]
fn a_slow_receiver_slows_nobody_else() {
    let well = run(Reorder::None, &[]);
    let slow = FaultKind::SlowReceiver { rate: Rate::from_gbps(50) };
    let later = run(Reorder::None, &[fault("NIC 8", Span::from_ms(500), None, slow)]);
    assert_eq!(well.ops, later.ops);
}

/// A link that is down carries nothing, not even the pauses of a NIC that storms behind it.
#[test]
fn a_dead_link_carries_nothing() {
    let fabric = tree();
    let to_nic = fabric.reverse(fabric.ports(fabric.nic(8))[0]);
    let dead = fault("NIC 8", Span::ZERO, None, FaultKind::LinkDown);
    let storm = fault("NIC 8", Span::from_us(10), None, FaultKind::PauseStorm);
    let outcome = run(Reorder::None, &[dead, storm]);
    assert_eq!(outcome.links[to_nic].bytes, 0);
    assert_eq!(outcome.counters.pauses, 0);
    let told = |what: &str| outcome.findings.iter().any(|finding| finding.text.contains(what));
    assert!(told("gave up") && !told("storm"), "{:?}", outcome.findings);
}

/// A switch that restarts loses what it holds, even if it is back at once.
#[test]
fn a_restart_empties_a_switch() {
    let fabric = tree();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for host in [1, 2] {
        let (from, to) = (fabric.nic(host), fabric.nic(0));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::from_mib(1), label, &[]);
    }
    let congestion = CcConfig::None(none::Config {});
    let nic = NicConfig { timeout: Span::from_us(500), ..NicConfig::default() };
    let settings = Settings { nic, congestion, seed: 1, ..Settings::default() };
    let at = Span::from_us(20);
    let restart = fault("pod 0 edge 0", at, Some(Span::from_ps(1)), FaultKind::SwitchRestart);
    let faults = Faults::new(&fabric, &[restart], "faults").expect("it is well-formed");
    let mut watch = Watch::default();
    let outcome = packetsim::run_with_faults(&fabric, &transfers, &settings, &faults, &mut watch)
        .expect("it can be run");
    // Packets take 83.6 ns. One of two has waited, for 20 us less the way of some 3 us.
    assert!((180..239).contains(&outcome.counters.drops), "{}", outcome.counters.drops);
    assert_eq!(outcome.completed(), 2, "{:?}", outcome.findings);
}

/// Whatever the policy, packets for a NIC whose cable has failed are lost, and the sender gives up.
#[test]
fn every_policy_survives_a_dead_nic() {
    let fabric = tree();
    for policy in fabric::routing::Policy::ALL {
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        let (from, to) = (fabric.nic(0), fabric.nic(8));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::from_mib(4), label, &[]);
        let nic = NicConfig { timeout: Span::from_us(100), ..NicConfig::default() };
        let mut settings = Settings { nic, seed: 1, ..Settings::default() };
        settings.routing.policy = policy;
        settings.routing.detection = Span::from_us(5);
        let dead = fault("NIC 8", Span::from_us(20), None, FaultKind::LinkDown);
        let faults = Faults::new(&fabric, &[dead], "faults").expect("it is well-formed");
        let mut watch = Watch::default();
        let run = packetsim::run_with_faults(&fabric, &transfers, &settings, &faults, &mut watch)
            .expect("it can be run");
        let gave_up = run.findings.iter().any(|finding| finding.text.contains("gave up"));
        assert!(gave_up && run.completed() == 0, "{policy:?}: {:?}", run.findings);
    }
}

/// Oracle: a link that switches have left serves again when they know that it is back; one that is
/// back before anybody noticed at once. Who still sends goes on as soon as it serves.
#[test]
fn a_link_that_is_back_serves_when_switches_know() {
    let fabric = tree();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let (from, to) = (fabric.nic(0), fabric.nic(8));
    let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
    let message = transfers.send(connection, Bytes::from_mib(64), label, &[]);
    let us = Span::from_us;
    let down = [fault("NIC 0", us(100), Some(us(400)), FaultKind::LinkDown)];
    let faults = Faults::new(&fabric, &down, "faults").unwrap_or_else(|e| panic!("{e:?}"));
    let ends = |detection: u64| {
        let congestion = CcConfig::None(none::Config {});
        let mut settings = Settings { congestion, seed: 1, ..Settings::default() };
        settings.routing.detection = us(detection);
        let mut watch = Watch::default();
        let outcome =
            packetsim::run_with_faults(&fabric, &transfers, &settings, &faults, &mut watch);
        let times = outcome.expect("it runs").ops[message].expect("it arrives");
        1e6 * times.received.as_secs_f64()
    };
    let unnoticed = ends(1_000);
    for detection in [100, 250] {
        let later = ends(detection) - unnoticed;
        assert!((later - detection as f64).abs() < 10.0, "{detection}: {later}");
    }
}
