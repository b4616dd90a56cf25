//! What every algorithm and setting must keep: arithmetic, conservation, repeatability, fairness,
//! and both sides of a headroom that just fits.

#![expect(clippy::print_stdout, reason = "the margin of the headroom formula is worth reading")]

use std::fmt::Write as _;

use fabric::graph::Tier;
use fabric::{Fabric, FabricBuilder, LinkClass};
use packetsim::Settings;
use packetsim::buffer::{BufferConfig, PfcConfig};
use packetsim::cc::{CcConfig, Circumstances, dcqcn, none};
use packetsim::packet::lone_message;
use traffic::{Connection, Outcome, Transfers};
use units::{Bytes, Length, Random, Rate, Span};

const RATE: Rate = Rate::from_gbps(400);

/// Hosts on one switch.
fn star(hosts: usize, delay: Span) -> Fabric {
    let mut builder = FabricBuilder::new(hosts, 1, 1);
    let class = builder.class(LinkClass {
        name: "link".into(),
        kind: fabric::graph::LinkKind::ScaleOut,
        rate: RATE,
        delay,
        length: Length::ZERO,
    });
    let tier = Tier { name: "leaf".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    let switch = builder.plain_switch(tier, 0, 0);
    for host in 0..hosts {
        let nic = builder.nic(host);
        builder.cable(nic, switch, class);
    }
    builder.build()
}

/// One message for each (from, to, bytes).
fn sends(fabric: &Fabric, flows: &[(usize, usize, u64)]) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for &(from, to, bytes) in flows {
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::new(bytes), label, &[]);
    }
    transfers
}

fn finishes(outcome: &Outcome) -> Vec<Span> {
    let since = |times: traffic::OpTimes| times.finish.since(times.start);
    outcome.ops.iter().map(|times| since(times.expect("it finished"))).collect()
}

/// Oracle: a message in 2,048 parts ends when the last of them has been posted and sent; in 64 it
/// takes as long as in one. A NIC that holds half of the contexts in use fetches every other one,
/// for each packet and for its answer, where that takes longer than the packet.
#[test]
fn queue_pairs_have_a_price() {
    let fabric = star(2, Span::from_ns(600));
    let makespan = |qps: u16, contexts: u32, mtu: u64| {
        let mut transfers = Transfers::new();
        let label = transfers.label("split");
        let (from, to) = (fabric.nic(0), fabric.nic(1));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 0 });
        transfers.send(connection, Bytes::from_mib(1), label, &[]);
        let congestion = CcConfig::None(none::Config::default());
        let mut settings = Settings { congestion, ..Settings::default() };
        settings.routing.qps = qps;
        settings.routing.split = fabric::routing::QueuePairUse::Split;
        settings.nic.qp_contexts = contexts;
        settings.packet.mtu = Bytes::new(mtu);
        if 4_096 != mtu {
            settings.nic.qp_post = Span::ZERO;
        }
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it runs");
        outcome.makespan().as_secs_f64()
    };
    let [one, some, many] = [1, 64, 2_048].map(|qps| makespan(qps, 65_536, 4_096));
    assert!((some / one - 1.0).abs() < 0.02, "{one} and {some}");
    let posts = 2_047.0 * 150e-9;
    assert!((posts..posts + 5e-6).contains(&many), "{many}");
    let [held, fetched] = [65_536, 1_024].map(|contexts| makespan(2_048, contexts, 512));
    let packets = 2_048.0;
    let each = 2.0 * 0.5 * 16e-9;
    assert!(held < packets * each && (fetched / (packets * each) - 1.0).abs() < 0.1, "{fetched}");
}

/// Oracle: a whole message that finds its queue pair idle waits at both ends for the contexts that
/// the NICs do not hold, three in four of 4,096.
#[test]
fn whole_messages_wait_for_contexts() {
    let fabric = star(2, Span::from_ns(600));
    let makespan = |qps: u16| {
        let mut transfers = Transfers::new();
        let label = transfers.label("whole");
        let (from, to) = (fabric.nic(0), fabric.nic(1));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 0 });
        transfers.send(connection, Bytes::from_kib(64), label, &[]);
        let mut settings = Settings::default();
        settings.routing.qps = qps;
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it runs");
        outcome.makespan().as_secs_f64()
    };
    let [one, all_held, fetched] = [1, 1_024, 4_096].map(makespan);
    assert_eq!(one, all_held);
    assert!((fetched - one - 2.0 * 0.75 * 550e-9).abs() < 1e-9, "{one} and {fetched}");
}

/// Whether an algorithm lets a queue pair start at line rate and keep to it.
fn runs_at_line_rate(congestion: &CcConfig, hops: &[(Rate, Span)]) -> bool {
    let mtu = Bytes::new(4_096);
    let packet = packetsim::packet::PacketConfig::default();
    let base_rtt = lone_message(&packet, hops, mtu);
    let about = Circumstances { line: RATE, base_rtt, hops: hops.len() as u32, mtu };
    let limit = congestion.build(&about).limit();
    RATE <= limit.rate && RATE.bytes_in(base_rtt) <= limit.window
}

/// Oracle: a lone message takes what arithmetic says, for every algorithm that adds no headers and
/// starts at line rate.
#[test]
fn a_lone_message_takes_exactly_what_arithmetic_says() {
    let delay = Span::from_ns(600);
    let fabric = star(2, delay);
    let hops = [(RATE, delay); 2];
    let mut tried = 0;
    for (name, congestion) in CcConfig::defaults() {
        let needs = congestion.needs();
        let bare = needs.data_bytes == Bytes::ZERO && needs.ack_bytes == Bytes::ZERO;
        if !bare || !runs_at_line_rate(&congestion, &hops) {
            continue;
        }
        tried += 1;
        for bytes in [1, 4096, 4097, 200_000] {
            let settings = Settings { congestion: congestion.clone(), ..Settings::default() };
            let outcome = packetsim::run(&fabric, &sends(&fabric, &[(0, 1, bytes)]), &settings)
                .expect("it can be run");
            let expected = lone_message(&settings.packet, &hops, Bytes::new(bytes));
            assert_eq!(finishes(&outcome), [expected], "{name}, {bytes} bytes");
        }
    }
    assert!(3 <= tried, "only {tried} algorithms were tried");
}

/// Property: whatever is sent arrives, no link is faster than its rate, and a second run is the
/// same run. The engine itself asserts that every packet is accounted for.
#[test]
fn runs_deliver_everything_and_repeat_themselves() {
    for seed in 0..8 {
        let mut random = Random::new(seed, "engine", 0);
        let hosts = 3 + random.below(6) as usize;
        let fabric = star(hosts, Span::from_ns(20 + random.below(2_000)));
        let flows: Vec<(usize, usize, u64)> = (0..1 + random.below(12))
            .map(|_| {
                let from = random.below(hosts as u64) as usize;
                let to = (from + 1 + random.below(hosts as u64 - 1) as usize) % hosts;
                (from, to, random.below(400_000))
            })
            .collect();
        for (name, congestion) in CcConfig::defaults() {
            let settings = Settings { congestion, seed, ..Settings::default() };
            let transfers = sends(&fabric, &flows);
            let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
            assert_eq!(outcome.completed(), flows.len(), "seed {seed}, {name}");
            let into = |host| flows.iter().filter(move |flow| flow.1 == host).map(|flow| flow.2);
            let busiest = (0..hosts).map(|host| into(host).sum::<u64>()).max().unwrap();
            let floor = RATE.time_to_send(Bytes::new(busiest));
            assert!(floor <= outcome.makespan(), "seed {seed}, {name}");
            let again = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
            assert_eq!(outcome.digest, again.digest, "seed {seed}, {name}");
            assert_eq!(outcome.ops, again.ops, "seed {seed}, {name}");
        }
    }
}

/// How many packets a 7:1 incast loses with this much headroom for each port.
fn losses(headroom: u64, length: Length) -> u64 {
    let fabric = star(8, length.propagation());
    let settings = Settings {
        congestion: CcConfig::None(none::Config {}),
        buffer: BufferConfig {
            // Hardly any pool: everything but the reserve is headroom.
            size: Bytes::new(8 * (headroom + 4_300) + 1),
            reserved: Bytes::new(4_300),
            headroom: Some(Bytes::new(headroom)),
            ..BufferConfig::default()
        },
        ..Settings::default()
    };
    let flows: Vec<(usize, usize, u64)> = (0..7).map(|from| (from, 7, 200_000)).collect();
    let outcome =
        packetsim::run(&fabric, &sends(&fabric, &flows), &settings).expect("it can be run");
    outcome.counters.drops
}

/// A port's reserve is its own: where nothing may be shared a lone flow pauses nobody with it, and
/// loses nothing without headroom.
#[test]
fn a_reserve_can_be_used() {
    let fabric = star(8, Span::from_us(1));
    let (alpha, reserved) = (0.0, Bytes::new(100_000));
    for headroom in [None, Some(Bytes::ZERO)] {
        let buffer = BufferConfig { alpha, reserved, headroom, ..BufferConfig::default() };
        let settings = Settings { buffer, ..Settings::default() };
        let outcome = packetsim::run(&fabric, &sends(&fabric, &[(0, 7, 1 << 20)]), &settings)
            .expect("it can be run");
        assert_eq!((outcome.counters.pauses, outcome.counters.drops), (0, 0), "{headroom:?}");
    }
}

/// A NIC whose host is slow and whose buffer is too small loses packets, and a finding says so.
#[test]
fn a_nic_that_loses_lossless_packets_is_told_of() {
    let fabric = star(8, Span::from_us(1));
    let congestion = CcConfig::None(none::Config {});
    let mut settings = Settings { congestion, ..Settings::default() };
    settings.nic.pcie = Some(Rate::from_gbps(50));
    settings.nic.receive_buffer = Bytes::from_kib(4);
    let outcome = packetsim::run(&fabric, &sends(&fabric, &[(0, 7, 1 << 20)]), &settings)
        .expect("it can be run");
    assert!(0 < outcome.counters.drops);
    let told = outcome.findings.iter().any(|finding| finding.text.contains("receive buffer"));
    assert!(told, "{:?}", outcome.findings);
}

/// A switch that keeps more for its ports than it has is reported; one byte to share is enough.
#[test]
fn a_memory_without_anything_to_share_is_told_of() {
    let fabric = star(8, Span::from_us(1));
    let told = |size: u64| {
        let size = Bytes::new(size);
        let (reserved, headroom) = (Bytes::new(1_000), Some(Bytes::new(9_000)));
        let buffer = BufferConfig { size, reserved, headroom, ..BufferConfig::default() };
        let settings = Settings { buffer, ..Settings::default() };
        let outcome = packetsim::run(&fabric, &sends(&fabric, &[(0, 7, 4_096)]), &settings)
            .expect("it can be run");
        outcome.findings.into_iter().any(|finding| finding.text.contains("`buffer.size`"))
    };
    assert!(told(1_000) && told(80_000) && !told(80_001));
}

/// Oracle: there is a smallest headroom with which nothing is lost; with one byte less something
/// is. SONiC's formula lies above it, and the test says by how much.
#[test]
fn headroom_that_just_fits_and_one_byte_less() {
    let length = Length::from_metres(100);
    let (mut too_small, mut enough) = (0, 400_000);
    assert!(0 < losses(too_small, length) && losses(enough, length) == 0);
    while 1 < enough - too_small {
        let middle = too_small + (enough - too_small) / 2;
        if losses(middle, length) == 0 { enough = middle } else { too_small = middle }
    }
    let sonic = PfcConfig::headroom(RATE, length.propagation(), Bytes::new(4_158)).get();
    assert!(0 < losses(enough - 1, length) && losses(enough, length) == 0);
    println!("headroom at 400G and 100 m: the model needs {enough} bytes, SONiC says {sonic}");
    assert!(enough <= sonic, "the model needs {enough}, SONiC's formula gives {sonic}");
}

/// Property: flows that share a link for 50 ms under DCQCN end up with equal shares.
#[test]
fn dcqcn_shares_a_link_evenly_in_the_long_run() {
    let fabric = star(5, Span::from_us(1));
    let bytes = 400_000_000_000 / 8 / 1_000 * 50 / 4;
    let flows: Vec<(usize, usize, u64)> = (0..4).map(|from| (from, 4, bytes)).collect();
    let settings =
        Settings { congestion: CcConfig::Dcqcn(dcqcn::Config::ns3(RATE)), ..Settings::default() };
    let outcome =
        packetsim::run(&fabric, &sends(&fabric, &flows), &settings).expect("it can be run");
    let rates: Vec<f64> =
        finishes(&outcome).iter().map(|span| bytes as f64 / span.as_secs_f64()).collect();
    let (sum, squares) =
        rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    let jain = sum * sum / (rates.len() as f64 * squares);
    assert!(0.99 <= jain, "{jain} from {rates:?}");
}

/// Golden: an incast by algorithm. A change of these numbers is explained where it is made.
#[test]
fn incast_by_algorithm() {
    let fabric = star(9, Span::from_us(1));
    let flows: Vec<(usize, usize, u64)> = (0..8).map(|from| (from, 8, 1 << 20)).collect();
    let mut table = String::from("algorithm   last us    marks  pauses\n");
    for (name, congestion) in CcConfig::defaults() {
        let settings = Settings { congestion, seed: 1, ..Settings::default() };
        let outcome =
            packetsim::run(&fabric, &sends(&fabric, &flows), &settings).expect("it can be run");
        let last = outcome.makespan().as_secs_f64() * 1e6;
        let counters = &outcome.counters;
        writeln!(table, "{name:<9} {last:9.1} {:8} {:7}", counters.ecn_marks, counters.pauses)
            .unwrap();
    }
    insta::assert_snapshot!(table);
}
