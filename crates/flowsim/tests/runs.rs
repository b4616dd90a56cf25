//! Whole runs of the flow engine against arithmetic.

mod common;

use common::{RATE, arrivals, connect, leaf_spine, messages, plain};
use fabric::routing::{Policy, QueuePairUse, RoutingConfig};
use flowsim::{Background, Receiver, Settings, Wire, run, simulate};
use traffic::{OpId, OpKind, Transfers};
use units::{Bytes, Id, Rate, Span, Time};

fn close(measured: f64, expected: f64) {
    assert!((measured / expected - 1.0).abs() < 1e-6, "{measured} instead of {expected}");
}

/// Oracle: a message alone takes its bytes at line rate, the cables, the switches and the NICs,
/// and one packet more at each store and forward. The receiver's NIC acknowledges it before its
/// software knows, and the sender's NIC knows after the cables and switches back.
#[test]
fn a_message_alone() {
    let fabric = leaf_spine(2, 2, 1);
    let wire = Wire {
        nic_latency: Span::from_us(1),
        packet: Bytes::new(5_000),
        efficiency: 1.0,
        ..Wire::default()
    };
    let settings = Settings { wire, ..Settings::default() };
    let outcome = run(&fabric, &messages(&fabric, &[(0, 2)], 1_250_000), &settings);
    let times = outcome.ops.as_slice()[0].unwrap();
    // 100 us of bytes, four cables of 0.1, three switches of 0.5, two NICs of 1, three packets
    // of 0.4.
    assert_eq!(times.received, Time::from_ps(105_100_000));
    assert_eq!(times.finish.since(times.received), Span::from_ns(1_900 - 1_000));
}

/// Oracle: four senders share one receiver's link, and the last bytes arrive together.
#[test]
fn an_incast_shares_the_last_link() {
    let fabric = leaf_spine(2, 8, 8);
    let pairs: Vec<_> = (1..5).map(|from| (from, 0)).collect();
    let outcome = run(&fabric, &messages(&fabric, &pairs, 1_250_000), &plain());
    for arrival in arrivals(&outcome) {
        close(arrival, 4.0 * 1_250_000.0 / RATE + 0.7e-6);
    }
}

/// Oracle: messages of one queue pair follow each other; dependencies and pauses are kept.
#[test]
fn messages_follow_each_other() {
    let fabric = leaf_spine(1, 4, 1);
    let mut transfers = Transfers::new();
    let label = transfers.label("chain");
    let one = connect(&mut transfers, &fabric, 0, 1);
    let first = transfers.send(one, Bytes::new(125_000), label, &[]);
    transfers.send(one, Bytes::new(125_000), label, &[]);
    let pause = transfers.add(OpKind::Wait { span: Span::from_us(7) }, label, &[first]);
    let two = connect(&mut transfers, &fabric, 2, 3);
    let last = transfers.send(two, Bytes::new(125_000), label, &[pause]);
    let outcome = run(&fabric, &transfers, &plain());
    let arrivals = arrivals(&outcome);
    close(arrivals[0], 10.7e-6);
    close(arrivals[1], 20.7e-6);
    // What waits for a message elsewhere starts when it has arrived.
    assert_eq!(outcome.ops[last].unwrap().start, Time::from_ps(17_700_000));
    close(arrivals[3], 17.7e-6 + 10.7e-6);
}

/// Property: what goes in comes out. Every message crosses its sender's and its receiver's link,
/// and what enters a switch leaves it.
#[test]
fn bytes_are_conserved() {
    let fabric = leaf_spine(4, 8, 8);
    let pairs: Vec<_> = (0..32).flat_map(|a| (0..32).map(move |b| (a, b))).collect();
    let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a != b).collect();
    for policy in Policy::ALL {
        let routing = RoutingConfig { policy, qps: 3, ..RoutingConfig::default() };
        let settings = Settings { routing, ..plain() };
        let outcome = run(&fabric, &messages(&fabric, &pairs, 1_000_001), &settings);
        assert_eq!(outcome.completed(), pairs.len(), "{policy:?}");
        for nic in 0..32 {
            let link = fabric.ports(fabric.nic(nic))[0];
            for link in [link, fabric.reverse(link)] {
                let bytes = outcome.links[link].bytes;
                assert!(bytes.abs_diff(31 * 1_000_001) <= 1, "{policy:?}: {bytes}");
            }
        }
        for switch in fabric.switches() {
            let out = fabric.ports(switch).iter().map(|link| outcome.links[*link].bytes);
            let into =
                fabric.ports(switch).iter().map(|link| outcome.links[fabric.reverse(*link)].bytes);
            let (out, into) = (out.sum::<u64>(), into.sum::<u64>());
            assert!(out.abs_diff(into) <= 64, "{policy:?}: {into} in, {out} out");
        }
    }
}

/// Oracle: a permutation between two leaves. Spread packets use every uplink; a receiver that
/// goes back n punishes that; queue pairs lie between one path and all paths.
#[test]
fn remedies_for_few_fat_flows() {
    let fabric = leaf_spine(2, 16, 16);
    let pairs: Vec<_> = (0..16).map(|nic| (nic, 16 + nic)).collect();
    let bytes = 12_500_000;
    let makespan = |policy, qps, split, receiver| {
        let routing = RoutingConfig { policy, qps, split, ..RoutingConfig::default() };
        let mut settings = Settings { routing, ..plain() };
        settings.wire.receiver = receiver;
        settings.wire.nic_latency = Span::from_us(1);
        settings.wire.packet = Bytes::from_kib(4);
        run(&fabric, &messages(&fabric, &pairs, bytes), &settings).makespan().as_secs_f64() * 1e3
    };
    let (split, turns) = (QueuePairUse::Split, QueuePairUse::RoundRobin);
    let any = Receiver::AnyOrder;
    let spray = makespan(Policy::Spray, 1, turns, any);
    assert!((1.0..1.01).contains(&spray), "{spray}");
    assert!((1.0..1.01).contains(&makespan(Policy::Adaptive, 1, turns, any)));
    assert!((1.0..1.01).contains(&makespan(Policy::StaticUpDown, 1, turns, any)));
    assert!((1.0..1.01).contains(&makespan(Policy::PathPinning, 1, turns, any)));
    let engineered = makespan(Policy::TrafficEngineering, 1, turns, any);
    assert!((1.0..1.01).contains(&engineered), "{engineered}");
    let one = makespan(Policy::Ecmp, 1, turns, any);
    let many = makespan(Policy::Ecmp, 32, split, any);
    let in_turn = makespan(Policy::Ecmp, 32, turns, any);
    assert!(2.0 < one && many < 1.8 && in_turn < 1.8, "{one}, {many}, {in_turn}");
    assert!(5.0 < makespan(Policy::Spray, 1, turns, Receiver::GoBackN));
}

/// Oracle: split over ever more queue pairs a message spreads better, until every part of it has to
/// be posted: then it takes as long as that. Whole messages in turn cost no posts, but contexts.
#[test]
fn queue_pairs_have_a_best_number() {
    let fabric = leaf_spine(2, 16, 16);
    let pairs: Vec<_> = (0..16).map(|nic| (nic, 16 + nic)).collect();
    let transfers = messages(&fabric, &pairs, 1 << 20);
    let makespan = |qps, split| {
        let routing = RoutingConfig { qps, split, ..RoutingConfig::default() };
        let mut settings = Settings { routing, ..plain() };
        settings.wire.packet = Bytes::from_kib(4);
        run(&fabric, &transfers, &settings).makespan().as_secs_f64()
    };
    let split = [1, 64, 4_096].map(|qps| makespan(qps, QueuePairUse::Split));
    assert!(split[1] < 0.7 * split[0] && split[1] < 0.2 * split[2], "{split:?}");
    let posts = 4_095.0 * 150e-9;
    assert!((posts..posts + 6e-6).contains(&split[2]), "{split:?}");
    // Both messages find a way of their own, until their contexts have to be fetched.
    let in_turn = [1, 16, 1_024, 4_096].map(|qps| makespan(qps, QueuePairUse::RoundRobin));
    let fetched = 2.0 * 0.75 * 550e-9;
    assert!(in_turn[1] < 0.9 * in_turn[0], "{in_turn:?}");
    assert!(in_turn[2] + 0.9 * fetched < in_turn[3], "{in_turn:?}");
}

/// Oracle: a NIC with four times as many contexts as it holds fetches three in four, twice for each
/// packet, which is longer than a packet of 256 bytes takes at 400 Gb/s.
#[test]
fn contexts_that_do_not_fit_cost_bandwidth() {
    let fabric = leaf_spine(1, 2, 1);
    let transfers = messages(&fabric, &[(0, 1)], 64 << 20);
    let makespan = |contexts| {
        let routing = RoutingConfig { qps: 4_096, ..RoutingConfig::default() };
        let mut settings = Settings { routing, ..plain() };
        settings.wire.packet = Bytes::new(256);
        settings.wire.queue_pairs.contexts = contexts;
        run(&fabric, &transfers, &settings).makespan().as_secs_f64()
    };
    let packets = f64::from(64 << 20) / 256.0;
    assert!((makespan(4_096) / (f64::from(64 << 20) / RATE) - 1.0).abs() < 0.01);
    assert!((makespan(1_024) / (packets * 2.0 * 0.75 * 16e-9) - 1.0).abs() < 0.01);
}

/// Oracle: background traffic that would take half of a link takes it while it lasts.
#[test]
fn background_traffic_shares_the_links() {
    let fabric = leaf_spine(1, 4, 1);
    let background = Background {
        from: fabric.nic(2),
        to: fabric.nic(1),
        rate: Rate::from_gbps(25),
        start: Time::ZERO,
        end: Time::ZERO + Span::from_us(40),
    };
    let settings = Settings { background: vec![background], ..plain() };
    let outcome = run(&fabric, &messages(&fabric, &[(0, 1)], 1_250_000), &settings);
    // 40 us at three quarters, the rest alone.
    close(arrivals(&outcome)[0], 110.7e-6);
}

/// Oracle: a window of 50 kB and a round trip of 4 us make 12.5 GB/s; half of it, half of that.
#[test]
fn a_window_caps_the_rate() {
    let fabric = leaf_spine(1, 2, 1);
    let mut settings = plain();
    settings.wire.nic_latency = Span::from_ns(650); // twice, and 0.7 us of cables and switch
    for (window, rate) in [(50_000, RATE), (25_000, RATE / 2.0)] {
        settings.flow.window = Some(Bytes::new(window));
        let outcome = run(&fabric, &messages(&fabric, &[(0, 1)], 1_250_000), &settings);
        close(arrivals(&outcome)[0], 1_250_000.0 / rate + 2e-6);
    }
}

/// Property: the same seed gives the same bytes, another seed other paths.
#[test]
fn the_same_seed_gives_the_same_run() {
    let fabric = leaf_spine(4, 8, 8);
    let pairs: Vec<_> = (0..32).map(|nic| (nic, (nic * 7 + 9) % 32)).collect();
    let transfers = messages(&fabric, &pairs, 1_000_000);
    let digest = |seed| run(&fabric, &transfers, &Settings { seed, ..plain() }).digest;
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

/// Oracle: what a link carried over time adds up to what it carried.
#[test]
fn utilisation_over_time_adds_up() {
    let fabric = leaf_spine(1, 4, 1);
    let transfers = messages(&fabric, &[(0, 1), (2, 1), (3, 1)], 1_000_000);
    let run = simulate(&fabric, &transfers, &plain());
    let link = fabric.reverse(fabric.ports(fabric.nic(1))[0]);
    let (_, points) = run.series.of(link).unwrap();
    assert!((points.iter().sum::<f64>() / 3e6 - 1.0).abs() < 1e-5);
    assert_eq!(run.outcome.links[link].bytes, 3_000_000);
    assert_eq!(run.outcome.links[link].flows, 3);
    assert_eq!(link.index() % 2, 1);
}

/// Agreement: treating parallel links as one changes no time and no byte. Background traffic of
/// one bit per second makes the engine lay every link by itself.
#[test]
fn bundles_change_nothing() {
    use fabric::hardware::Catalogue;
    use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
    for (topology, tiers, radix) in
        [(TopologyKind::Clos, 2, 64), (TopologyKind::RailOptimized, 3, 16)]
    {
        let cluster = ClusterConfig { gpus: Some(512), ..ClusterConfig::default() };
        let config = FabricConfig {
            topology,
            tiers: Some(tiers),
            radix: Some(radix),
            ..FabricConfig::default()
        };
        let fabric = build(&cluster, &config, &Catalogue::default()).unwrap();
        let pairs: Vec<_> = (0..512).map(|nic| (nic, (nic * 5 + 24) % 512)).collect();
        let transfers = messages(&fabric, &pairs, 10_000_000);
        let policy = Policy::Spray;
        let routing = RoutingConfig { policy, ..RoutingConfig::default() };
        let bundled = Settings { routing, ..plain() };
        let (from, to) = (fabric.nic(0), fabric.nic(1));
        let (start, end) = (Time::ZERO, Time::MAX);
        let background = vec![Background { from, to, rate: Rate::from_bps(1), start, end }];
        let single = Settings { background, ..bundled.clone() };
        let (a, b) = (run(&fabric, &transfers, &bundled), run(&fabric, &transfers, &single));
        assert_eq!(a.completed(), 512);
        for (a, b) in arrivals(&a).into_iter().zip(arrivals(&b)) {
            assert!((a - b).abs() <= 1e-6 * b, "{topology:?}: {a} and {b}");
        }
        for (a, b) in a.links.iter().zip(&b.links) {
            assert!(a.bytes.abs_diff(b.bytes) < 100 && a.flows == b.flows, "{a:?} and {b:?}");
        }
    }
}

/// A run that somebody stops ends, and says what had not finished.
#[test]
fn a_run_ends_when_somebody_stops_it() {
    let fabric = leaf_spine(1, 2, 1);
    let mut transfers = Transfers::new();
    let label = transfers.label("a message");
    let connection = connect(&mut transfers, &fabric, 0, 1);
    let message = transfers.send(connection, Bytes::new(1_000), label, &[]);
    let run = |stop: bool| {
        let stop = std::sync::atomic::AtomicBool::new(stop);
        flowsim::simulate_until(&fabric, &transfers, &plain(), Some(&stop), None).unwrap().outcome
    };
    assert!(run(false).ops[message].is_some() && run(false).stopped_at.is_none());
    let stopped = run(true);
    assert!(stopped.ops[message].is_none() && stopped.stopped_at.is_some());
    assert!(stopped.findings[0].text.contains("1 operations did not finish"));
}

/// A run that would take more than it may ends with a sentence: before its first event, and while
/// it goes on. A bound that is not reached changes nothing.
#[test]
fn a_run_is_held_to_its_bound() {
    let fabric = leaf_spine(2, 8, 2);
    let mut transfers = Transfers::new();
    let label = transfers.label("messages");
    for number in 0..2_000 {
        let connection = connect(&mut transfers, &fabric, number % 8, 8 + number / 250);
        transfers.send(connection, Bytes::new(1_000 + number as u64), label, &[]);
    }
    let flows = |bound: units::Bound<'_>| {
        let ran = flowsim::simulate_until(&fabric, &transfers, &plain(), None, Some(bound));
        ran.map(|run| run.outcome.ops)
    };
    let forms = |bound: units::Bound<'_>| {
        let ran = flowsim::analytic::run_within(&fabric, &transfers, &plain(), Some(bound));
        ran.map(|outcome| outcome.ops)
    };
    let run = |on_flows: bool, bound: units::Bound<'_>| {
        if on_flows { flows(bound) } else { forms(bound) }
    };
    let free = [
        flowsim::run(&fabric, &transfers, &plain()).ops,
        flowsim::analytic::run(&fabric, &transfers, &plain()).ops,
    ];
    for (on_flows, free) in [true, false].into_iter().zip(free) {
        assert_eq!(run(on_flows, &|| Ok(Some(1 << 40))).unwrap(), free);
        let asked = std::cell::Cell::new(0);
        let text = run(on_flows, &|| {
            asked.set(asked.get() + 1);
            if asked.get() < 2 { Ok(None) } else { Err("enough".to_owned()) }
        });
        let text = text.unwrap_err();
        assert!(text.starts_with("the run was ended at ") && text.ends_with(": enough"), "{text}");
    }
    let text = flows(&|| Err("not today".to_owned())).unwrap_err();
    assert_eq!(text, "the run was ended as it began: not today");
    let text = flows(&|| Ok(Some(1_000))).unwrap_err();
    assert!(text.contains("as it began: its links and operations need "), "{text}");
}

/// Property: messages that are listed and sent by one operation take as long as each by its own
/// operation, and what does not begin together is not listed.
#[test]
fn messages_of_a_folded_exchange_are_messages() {
    let fabric = leaf_spine(2, 4, 2);
    let mut transfers = Transfers::new();
    let label = transfers.label("exchange");
    let wait = |span| OpKind::Wait { span };
    let start = transfers.add(wait(Span::from_us(3)), label, &[]);
    let pairs = [(0, 4), (0, 5), (1, 4), (2, 6), (3, 4)];
    let sends: Vec<_> = (1..)
        .zip(pairs)
        .map(|(size, (from, to))| {
            let connection = connect(&mut transfers, &fabric, from, to);
            transfers.send(connection, Bytes::new(100_000 * size), label, &[start])
        })
        .collect();
    let end = transfers.add(wait(Span::ZERO), label, &sends);
    let body = start.index() + 1..end.index();
    let messages = transfers.gather(body.clone(), start).expect("they begin together");
    assert_eq!(transfers.messages(&messages).len(), pairs.len());
    let bytes = transfers.total_bytes();
    let anew = transfers.add(wait(Span::from_us(3)), label, &[end]);
    let together = transfers.add(OpKind::Together { messages }, label, &[anew]);
    assert_eq!(transfers.total_bytes(), 2 * bytes);
    let outcome = run(&fabric, &transfers, &plain());
    let over = |op: OpId| outcome.ops[op].unwrap().received;
    let (first, second) = (over(end), over(together).since(over(end)));
    assert!((first.as_secs_f64() - second.as_secs_f64()).abs() < 1e-11, "{first:?} {second:?}");
    assert_eq!(transfers.gather(body.start..together.index() + 1, start), None);
}
