//! Links and switches that fail in the middle of a run.

mod common;

use common::{arrivals, connect, leaf_spine, messages, plain};
use fabric::Fabric;
use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::routing::{Policy, RoutingConfig};
use flowsim::{Resend, Settings, run, simulate};
use traffic::{Connection, OpKind, Outcome, Transfers};
use units::{Bytes, Rate, Span, Time};

fn faults(fabric: &Fabric, list: &[(&str, FaultKind, u64, Option<u64>)]) -> Faults {
    let configs: Vec<FaultConfig> = list
        .iter()
        .map(|(on, what, at, lasting)| FaultConfig {
            at: Span::from_us(*at),
            until: None,
            lasting: lasting.map(Span::from_us),
            on: (*on).to_owned(),
            what: *what,
        })
        .collect();
    Faults::new(fabric, &configs, "faults").unwrap()
}

fn settings(faults: Faults, convergence: u64) -> Settings {
    let mut settings = Settings { faults, ..plain() };
    settings.routing.detection = Span::from_us(convergence);
    settings
}

/// Oracle: a flow over the spine that fails stands still until switches notice, then takes the
/// other; a flow over the other goes on.
#[test]
fn a_failed_switch_is_routed_around() {
    let fabric = leaf_spine(2, 1, 2);
    let spine = fabric.name(fabric.switches().last().unwrap());
    let faults = faults(&fabric, &[(&spine, FaultKind::SwitchDown, 40, None)]);
    let hit = (0..8).map(|seed| {
        let settings = Settings { seed, ..settings(faults.clone(), 10) };
        let outcome = run(&fabric, &messages(&fabric, &[(0, 1)], 1_250_000), &settings);
        assert_eq!(outcome.findings, []);
        arrivals(&outcome)[0]
    });
    let (plain, moved): (Vec<f64>, Vec<f64>) = hit.partition(|arrival| *arrival < 105e-6);
    assert!(!plain.is_empty() && !moved.is_empty());
    for arrival in moved {
        assert!((arrival - 111.9e-6).abs() < 1e-9, "{arrival}");
    }
}

/// Property: what is carried before and after a failure adds up to the message, on one link after
/// the other, and no link ever carries more than it can; the same for a folded channel.
#[test]
fn bytes_are_conserved_when_flows_move() {
    let fabric = leaf_spine(2, 1, 2);
    let spine = fabric.name(fabric.switches().last().unwrap());
    let faults = faults(&fabric, &[(&spine, FaultKind::SwitchDown, 40, None)]);
    let alone = messages(&fabric, &[(0, 1)], 1_250_000);
    let mut coupled = Transfers::new();
    let label = coupled.label("channel");
    let edges = [(0, 1), (1, 0)].map(|(from, to)| {
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        coupled.connect(Connection { from, to, channel: 0, queue_pairs: 1 })
    });
    coupled.couple(&edges, Bytes::new(1_250_000), Span::ZERO, label, &[]);
    for (transfers, messages) in [(&alone, 1), (&coupled, 2)] {
        for seed in 0..8 {
            let settings = Settings { seed, ..settings(faults.clone(), 10) };
            let run = simulate(&fabric, transfers, &settings);
            let up = |link: &fabric::LinkId| {
                let ends = fabric.links()[*link];
                fabric.nic_number(ends.from).is_none() && fabric.nic_number(ends.to).is_none()
            };
            let between: Vec<_> = fabric.links().ids().filter(up).collect();
            let carried: u64 = between.iter().map(|link| run.outcome.links[*link].bytes).sum();
            assert!(carried.abs_diff(2 * messages * 1_250_000) < 4, "{carried}");
            for (link, series) in between.iter().zip(run.series.of_each(&between)) {
                let Some((width, points)) = series else { continue };
                let most = fabric.class(*link).rate.bytes_per_s() * width.as_secs_f64();
                assert!(points.iter().all(|bytes| *bytes <= most * 1.001), "{points:?}");
            }
        }
    }
}

/// Oracle: without another way the message waits until the link is back, if it comes back.
#[test]
fn a_flow_without_a_way_is_reported_and_waits() {
    let fabric = leaf_spine(2, 1, 1);
    let on = "leaf 0 - spine 0";
    let transfers = messages(&fabric, &[(0, 1)], 1_250_000);
    let back = settings(faults(&fabric, &[(on, FaultKind::LinkDown, 40, Some(100))]), 10);
    let outcome = run(&fabric, &transfers, &back);
    // 40 us sent, back at 140, noticed at 150, 60 us to go and 1.9 on the way.
    assert!((arrivals(&outcome)[0] - 211.9e-6).abs() < 1e-9);
    let text = "there is no path from NIC 0 to NIC 1: no link that is up leads there from NIC 0";
    assert_eq!(outcome.findings[0].text, text);
    assert_eq!(outcome.findings[0].at, Time::ZERO + Span::from_us(50));

    let never = settings(faults(&fabric, &[(on, FaultKind::LinkDown, 40, None)]), 10);
    let outcome = run(&fabric, &transfers, &never);
    assert_eq!(outcome.completed(), 0);
    assert_eq!(outcome.findings[1].text, "1 operations did not finish");
}

/// Oracle: a folded channel without a way goes on with what is left when it has one again; so do
/// others over the same connections.
#[test]
fn a_channel_without_a_way_goes_on_with_what_is_left() {
    let fabric = leaf_spine(2, 1, 1);
    let mut transfers = Transfers::new();
    let label = transfers.label("channel");
    let edges = [(0, 1), (1, 0)].map(|(from, to)| connect(&mut transfers, &fabric, from, to));
    let first = transfers.couple(&edges, Bytes::new(1_250_000), Span::ZERO, label, &[]);
    let pause = OpKind::Wait { span: Span::from_us(5) };
    let start = transfers.add(pause, label, &[first]);
    transfers.again(0..1, start, start);
    let again = transfers.again(0..1, start, start);
    assert_eq!(again, 3, "it is written behind what is there");
    let list = [("leaf 0 - spine 0", FaultKind::LinkDown, 40, Some(100))];
    let outcome = run(&fabric, &transfers, &settings(faults(&fabric, &list), 10));
    // 40 us moved, back at 140, noticed at 150, 60 us to go; two more that wait for nothing share
    // the links with it from the start.
    let ends: Vec<f64> = arrivals(&outcome);
    assert!(
        (ends[0] - 410e-6).abs() < 1e-9 && ends[0] == ends[2] && ends[2] == ends[3],
        "{ends:?}"
    );
}

/// Oracle, by hand: what a fault lost is sent again when nobody has answered for a millisecond, at
/// the first timer that finds a way; a sender that still sends when there is a way again is told of
/// what is missing and goes on at once; retries end.
#[test]
fn what_is_lost_is_sent_again_when_its_timer_says_so() {
    let fabric = leaf_spine(2, 1, 1);
    let alone = messages(&fabric, &[(0, 1)], 1_250_000);
    let buffer = Bytes::new(250_000);
    let ends = |transfers: &Transfers, lasting: Option<u64>, retries: u32| {
        let list = [("leaf 0 - spine 0", FaultKind::LinkDown, 40, lasting)];
        let resend = Some(Resend { timeout: Span::from_ms(1), retries, buffer });
        let settings = Settings { resend, ..settings(faults(&fabric, &list), 10) };
        run(&fabric, transfers, &settings)
    };
    let near = |outcome: &Outcome, us: f64| {
        let got = *arrivals(outcome).last().unwrap();
        assert!((got - 1e-6 * us).abs() < 1e-9, "{got} {us}");
    };
    // 40 us sent, 60 us to go and 1.9 on the way. By 100 us all is sent.
    near(&ends(&alone, Some(100), 7), 1_000.0 + 40.0 + 60.0 + 1.9);
    near(&ends(&alone, Some(2_500), 7), 3_000.0 + 40.0 + 60.0 + 1.9);
    // Back at 60, noticed at 70.
    near(&ends(&alone, Some(20), 7), 70.0 + 60.0 + 1.9);
    let none = ends(&alone, Some(2_500), 2);
    assert_eq!(none.completed(), 0);
    assert!(none.findings.iter().any(|one| one.text.contains("after 3 timeouts")), "{none:?}");
    // A message that begins while the link is down, before and after that is noticed.
    for begins in [45, 55] {
        let mut late = Transfers::new();
        let label = late.label("late");
        let wait = late.add(OpKind::Wait { span: Span::from_us(begins) }, label, &[]);
        let connection = connect(&mut late, &fabric, 0, 1);
        late.send(connection, Bytes::new(1_250_000), label, &[wait]);
        near(&ends(&late, Some(500), 7), begins as f64 + 1_000.0 + 100.0 + 1.9);
    }
    // A folded channel goes on at once as long as its buffers are not all sent, which takes 20 us.
    let mut channel = Transfers::new();
    let label = channel.label("channel");
    let edges = [(0, 1), (1, 0)].map(|(from, to)| connect(&mut channel, &fabric, from, to));
    channel.couple(&edges, Bytes::new(1_250_000), Span::ZERO, label, &[]);
    near(&ends(&channel, Some(5), 7), 45.0 + 60.0);
    near(&ends(&channel, Some(20), 7), 1_000.0 + 40.0 + 60.0);
}

/// Oracle: a link at a tenth of its rate, a receiver at a quarter.
#[test]
fn slow_links_and_receivers_hold_flows_back() {
    let fabric = leaf_spine(2, 1, 1);
    let transfers = messages(&fabric, &[(0, 1)], 1_250_000);
    let check = |what, on: &str, expected: f64| {
        let settings = settings(faults(&fabric, &[(on, what, 50, None)]), 10);
        let arrival = arrivals(&run(&fabric, &transfers, &settings))[0];
        assert!((arrival - expected).abs() < 1e-9, "{arrival} instead of {expected}");
    };
    let slow = FaultKind::Degraded { rate: Rate::from_gbps(10) };
    check(slow, "leaf 1 - spine 0", 551.9e-6);
    check(FaultKind::SlowReceiver { rate: Rate::from_gbps(25) }, "NIC 1", 251.9e-6);
    check(FaultKind::SlowReceiver { rate: Rate::from_gbps(25) }, "NIC 0", 101.9e-6);
}

/// Property: whatever fails, under every policy, all messages arrive and no byte is lost.
#[test]
fn every_policy_survives_failures() {
    let fabric = leaf_spine(4, 8, 8);
    let pairs: Vec<_> = (0..32).map(|nic| (nic, (nic + 9) % 32)).collect();
    let list = [
        ("leaf 0 - spine 1", FaultKind::LinkDown, 20, None),
        ("spine 3", FaultKind::SwitchRestart, 30, Some(50)),
        ("leaf 2 - spine 5", FaultKind::Flap { period: Span::from_us(20), down: None }, 0, None),
    ];
    for policy in Policy::ALL {
        let interval = Span::from_us(15);
        let routing = RoutingConfig { policy, qps: 4, interval, ..RoutingConfig::default() };
        let settings = Settings { routing, ..settings(faults(&fabric, &list), 5) };
        let run = simulate(&fabric, &messages(&fabric, &pairs, 2_000_000), &settings);
        assert_eq!(run.outcome.completed(), 32, "{policy:?}: {:?}", run.outcome.findings);
        for nic in 0..32 {
            let link = fabric.reverse(fabric.ports(fabric.nic(nic))[0]);
            let bytes = run.outcome.links[link].bytes;
            assert!(bytes.abs_diff(2_000_000) <= 8, "{policy:?}: {bytes}");
        }
    }
}
