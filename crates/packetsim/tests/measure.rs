//! Measurement shows what happened, stays within its bounds and changes nothing; estimates hold.

use fabric::fault::Faults;
use fabric::graph::Tier;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::{Fabric, FabricBuilder, LinkClass};
use packetsim::buffer::MarkWhen;
use packetsim::measure::{Histogram, LaneSeries, MeasureConfig, Recording};
use packetsim::{Settings, Watch};
use traffic::{Connection, Outcome, Transfers};
use units::{Bytes, Length, Rate, Span, Time};

/// Five hosts on one switch; four of them send 2 MiB to the last.
fn incast() -> (Fabric, Transfers) {
    let mut builder = FabricBuilder::new(5, 1, 1);
    let class = builder.class(LinkClass {
        name: "link".into(),
        kind: fabric::graph::LinkKind::ScaleOut,
        rate: Rate::from_gbps(400),
        delay: Span::from_us(1),
        length: Length::ZERO,
    });
    let tier = Tier { name: "leaf".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    let switch = builder.plain_switch(tier, 0, 0);
    for host in 0..5 {
        let nic = builder.nic(host);
        builder.cable(nic, switch, class);
    }
    let fabric = builder.build();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for host in 0..4 {
        let (from, to) = (fabric.nic(host), fabric.nic(4));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::from_mib(2), label, &[]);
    }
    (fabric, transfers)
}

fn measured(samples: usize) -> (Outcome, Recording) {
    let (fabric, transfers) = incast();
    let last = fabric.reverse(fabric.ports(fabric.nic(4))[0]);
    let interval = Span::from_us(1);
    let config = MeasureConfig { interval, samples, links: vec![last], pairs: vec![0, 3] };
    let settings = Settings { seed: 1, ..Settings::default() };
    let faults = Faults::default();
    let mut watch = Watch::default();
    packetsim::run_measured(&fabric, &transfers, &settings, &faults, &config, &mut watch)
        .expect("it can be run")
}

#[test]
fn samples_that_fall_on_arrivals_hold_nobody_up() {
    let (fabric, transfers) = incast();
    let settings = Settings { seed: 1, ..Settings::default() };
    let plain = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
    let links: Vec<_> = fabric.links().ids().collect();
    // A frame of 4,178 bytes takes 83,560 ps at 400 Gb/s; arrivals come at multiples of 20 ps.
    for interval in [83_560, 41_780, 1_000].map(Span::from_ps) {
        let config = MeasureConfig { interval, samples: 64, links: links.clone(), pairs: vec![] };
        let (faults, mut watch) = (Faults::default(), Watch::default());
        let (outcome, _) =
            packetsim::run_measured(&fabric, &transfers, &settings, &faults, &config, &mut watch)
                .expect("it can be run");
        assert_eq!(plain.ops, outcome.ops, "{interval}");
    }
}

#[test]
fn measuring_changes_nothing() {
    let (fabric, transfers) = incast();
    let settings = Settings { seed: 1, ..Settings::default() };
    let plain = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
    let (outcome, recording) = measured(2_000);
    assert_eq!(plain.ops, outcome.ops);
    assert_eq!(plain.counters.ecn_marks, outcome.counters.ecn_marks);
    // Every data packet was timed, and none was faster than the wire.
    assert_eq!(recording.one_way.count(), outcome.counters.packets);
    assert_eq!(recording.round_trip.count(), outcome.counters.packets);
    assert!(Span::from_us(2) <= recording.one_way.quantile(0.0).unwrap());
    // One way is the wires' 2 us and two transmissions of 83 ns, and what was waited at the switch.
    let [switch, nic] = ["leaf", "NIC"].map(|from| {
        recording.hops.iter().find(|hop| hop.from == from).expect("packets crossed it")
    });
    assert_eq!(switch.data.count(), outcome.counters.packets);
    assert_eq!(nic.acknowledgement.count(), outcome.counters.packets);
    let of = |histogram: &Histogram| histogram.quantile(0.99).unwrap().as_secs_f64();
    let expected = of(&switch.data) + 2.166e-6;
    assert!((of(&recording.one_way) / expected - 1.0).abs() < 0.07, "{recording:?}");
    assert_eq!(recording.notification.count(), outcome.counters.cnps);
}

/// Agreement: there is one port at which anything can happen, and its counts are the run's.
#[test]
fn marks_and_drops_are_counted_where_they_happen() {
    let (fabric, transfers) = incast();
    let mut settings = Settings { seed: 1, ..Settings::default() };
    settings.pfc.enabled = false;
    settings.buffer.size = Bytes::from_kib(400);
    settings.nic.timeout = Span::from_us(200);
    settings.ecn.when = MarkWhen::Enqueue;
    settings.ecn.min = Bytes::from_kib(100);
    settings.ecn.max = Bytes::from_kib(150);
    let (faults, mut watch) = (Faults::default(), Watch::default());
    let last = fabric.reverse(fabric.ports(fabric.nic(4))[0]);
    let config = MeasureConfig { links: vec![last], ..MeasureConfig::default() };
    let (outcome, recording) =
        packetsim::run_measured(&fabric, &transfers, &settings, &faults, &config, &mut watch)
            .expect("it can be run");
    let sample = recording.links[0].1.samples.last().unwrap();
    assert!(0 < outcome.counters.drops && 0 < outcome.counters.ecn_marks);
    assert_eq!(u64::from(sample.data_drops), outcome.counters.drops);
    assert_eq!(u64::from(sample.marks), outcome.counters.ecn_marks);
    assert_eq!(sample.control_drops, 0);
}

#[test]
fn the_queue_is_seen_to_fill_and_to_drain() {
    let (outcome, recording) = measured(2_000);
    let (link, LaneSeries { samples, .. }) = &recording.links[0];
    let deepest = samples.iter().map(|sample| sample.data).max().unwrap();
    let peak = outcome.links[*link].peak_queue;
    assert!(Bytes::from_mib(1) < deepest && deepest <= peak, "{deepest} of {peak}");
    let last = samples.last().unwrap();
    assert_eq!(u64::from(last.marks), outcome.counters.ecn_marks);
    assert!(samples.is_sorted_by_key(|sample| (sample.sent, sample.marks, sample.paused)));
    assert!(recording.pairs.iter().all(|pair| pair.samples.len() == recording.at.len()));
    assert_eq!(recording.pairs[1].from, incast().0.nic(3));
}

#[test]
fn samples_stay_within_their_bound() {
    let (_, fine) = measured(2_000);
    let (_, coarse) = measured(16);
    assert!(100 < fine.at.len() && coarse.at.len() <= 16);
    // What is kept was also in the fine recording.
    assert!(coarse.at.iter().all(|at| fine.at.contains(at)));
}

/// Agreement: events and packet-hops of the estimate are those of the run, to a few per cent.
#[test]
fn an_estimate_counts_what_will_happen() {
    let (fabric, transfers) = incast();
    let settings = Settings::default();
    let estimate = packetsim::estimate(&fabric, &transfers, &settings);
    let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
    assert_eq!(estimate.packet_hops, outcome.counters.packet_hops);
    let ratio = estimate.events as f64 / outcome.counters.events as f64;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

/// Agreement: each lane has a series of its own, the last sample is taken where the run ends, and
/// together they are what the port did.
#[test]
fn lanes_are_told_apart_and_come_to_the_whole() {
    let (fabric, mut transfers) = incast();
    transfers.set_service_level(1, 1);
    let mut settings = Settings { seed: 1, ..Settings::default() };
    settings.credits.lanes = 2;
    settings.ecn.min = Bytes::from_kib(16);
    let last = fabric.reverse(fabric.ports(fabric.nic(4))[0]);
    let config =
        MeasureConfig { links: vec![last], interval: Span::from_us(7), ..MeasureConfig::default() };
    let (faults, mut watch) = (Faults::default(), Watch::default());
    let (outcome, recording) =
        packetsim::run_measured(&fabric, &transfers, &settings, &faults, &config, &mut watch)
            .expect("it can be run");
    let [(_, first), (_, second)] = &recording.links[..] else { panic!("one link, two lanes") };
    assert_eq!([first.lane, second.lane], [0, 1]);
    let deepest = |lane: &LaneSeries| lane.samples.iter().map(|sample| sample.data).max();
    assert!(Some(Bytes::from_kib(64)) < deepest(first).min(deepest(second)));
    let [a, b] = [first, second].map(|lane| *lane.samples.last().expect("there are some"));
    assert!(0 < a.marks.min(b.marks));
    assert_eq!(u64::from(a.marks + b.marks), outcome.counters.ecn_marks);
    assert_eq!(a.sent + b.sent, outcome.links[last].bytes);
    assert_eq!(recording.at.last().unwrap().since(Time::ZERO), outcome.makespan());
}

/// A switch knows what the one before it sends later, but a sample of that link does not count it.
/// Oracle: no link carries more between two samples than its rate, and a frame begun before.
#[test]
fn no_link_is_seen_to_carry_more_than_its_rate() {
    let cluster = ClusterConfig {
        gpus: Some(128),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let link = LinkConfig {
        rate: Some(Rate::from_gbps(400)),
        delay: Some(Span::from_us(1)),
        length: None,
    };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(8),
        links: vec![link; 3],
        ..FabricConfig::default()
    };
    let fabric = build(&cluster, &config, &Default::default()).expect("it is well-formed");
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for host in 1..=32 {
        let (from, to) = (fabric.nic(host), fabric.nic(0));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::from_kib(256), label, &[]);
    }
    let links: Vec<_> = fabric.links().ids().collect();
    let interval = Span::from_ns(400);
    let config = MeasureConfig { interval, samples: 100_000, links, pairs: vec![] };
    let settings = Settings { seed: 1, ..Settings::default() };
    let (faults, mut watch) = (Faults::default(), Watch::default());
    let (_, recording) =
        packetsim::run_measured(&fabric, &transfers, &settings, &faults, &config, &mut watch)
            .expect("it can be run");
    // 20,000 bytes at 400 Gb/s, and a frame.
    let most = 20_000 + 4_200;
    for (link, lane) in &recording.links {
        let sent = lane.samples.windows(2).map(|pair| pair[1].sent - pair[0].sent).max();
        assert!(sent.unwrap() <= most, "{}: {sent:?}", fabric.link_name(*link));
    }
}
