//! Every transport and every congestion control, by the same tests.
//!
//! Nothing here names an algorithm: the tests loop over [`CcConfig::defaults`] and
//! [`Transport::ALL`], so that a new one is tested by being listed.

use fabric::Fabric;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::transport::Transport;
use packetsim::Settings;
use packetsim::buffer::BufferConfig;
use packetsim::cc::CcConfig;
use packetsim::packet::lone_message;
use packetsim::settings::Overflow;
use traffic::{Connection, OpId, OpKind, Outcome, Transfers};
use units::{Bytes, Random, Rate, Span};

const RATE: Rate = Rate::from_gbps(400);

/// Sixteen hosts on a fat tree of three tiers.
fn fat_tree() -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let link = LinkConfig { rate: Some(RATE), delay: Some(Span::from_ns(300)), length: None };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(4),
        links: vec![link; 3],
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).expect("it is well-formed")
}

fn connect(
    transfers: &mut Transfers,
    fabric: &Fabric,
    from: usize,
    to: usize,
) -> traffic::ConnectionId {
    transfers.connect(Connection {
        from: fabric.nic(from),
        to: fabric.nic(to),
        channel: 0,
        queue_pairs: 1,
    })
}

/// The delay of a link on the way from pod to pod, with the latency of the switch that it leads to.
fn delay(fabric: &Fabric, hop: usize) -> Span {
    let tiers = [0, 1, 2, 1, 0];
    let latency = tiers.get(hop).map_or(Span::ZERO, |tier| fabric.tiers()[*tier].latency);
    Span::from_ns(300) + latency
}

/// Random messages at random times: several into few receivers.
fn random_messages(fabric: &Fabric, seed: u64, most: u64) -> Transfers {
    let mut random = Random::new(seed, "messages", 0);
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for _ in 0..24 {
        let to = random.below(4) as usize;
        let from = (to + 1 + random.below(15) as usize) % 16;
        let connection = connect(&mut transfers, fabric, from, to);
        let span = Span::from_ps(random.below(5_000_000));
        let wait = transfers.add(OpKind::Wait { span }, label, &[]);
        transfers.send(connection, Bytes::new(1 + random.below(most)), label, &[wait]);
    }
    transfers
}

/// Hosts 1 to `count` send `bytes` each to host 0.
fn incast(fabric: &Fabric, count: usize, bytes: Bytes) -> (Transfers, Vec<OpId>) {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let send = |from| {
        let connection = connect(&mut transfers, fabric, from, 0);
        transfers.send(connection, bytes, label, &[])
    };
    let ops = (1..=count).map(send).collect();
    (transfers, ops)
}

fn small_buffers(settings: &mut Settings) {
    settings.buffer = BufferConfig {
        size: Bytes::from_kib(256),
        reserved: Bytes::ZERO,
        headroom: Some(Bytes::from_kib(16)),
        ..BufferConfig::default()
    };
}

fn assert_finished(outcome: &Outcome, name: &str) {
    let unfinished = outcome.ops.iter().filter(|times| times.is_none()).count();
    assert_eq!(unfinished, 0, "{name}: {:?}", outcome.findings);
}

/// Property: whatever is sent, and however small the buffers, a fabric with credits drops nothing.
#[test]
fn a_fabric_with_credits_never_drops() {
    let fabric = fat_tree();
    let mut stalls = 0;
    let algorithms = CcConfig::defaults();
    for seed in 0..2 * algorithms.len() as u64 {
        let mut settings = Settings::of_transport(Transport::Infiniband);
        settings.seed = seed;
        settings.credits.spare = Bytes::from_kib(8 << (seed % 4));
        settings.credits.lanes = 1 + (seed % 3) as u8;
        settings.congestion = algorithms[seed as usize / 2].1.clone();
        let outcome = packetsim::run(&fabric, &random_messages(&fabric, seed, 600_000), &settings)
            .expect("it can be run");
        assert_finished(&outcome, "infiniband");
        assert_eq!(outcome.counters.drops, 0, "seed {seed}");
        assert_eq!(outcome.counters.retransmits, 0, "seed {seed}");
        stalls += outcome.counters.pauses;
    }
    assert!(0 < stalls, "the test is of no use where nobody stalls");
}

/// Property: trimming costs retransmissions, never a message, whatever the NIC does with order.
#[test]
fn trimming_never_loses_a_message() {
    use fabric::hardware::Reorder;
    let fabric = fat_tree();
    for reorder in [Reorder::None, Reorder::SelectiveRepeat, Reorder::DirectPlacement] {
        let mut trims = 0;
        for seed in 0..6 {
            let mut settings = Settings::of_transport(Transport::Uec);
            settings.seed = seed;
            settings.nic.reorder = reorder;
            assert_eq!(settings.switch.overflow, Overflow::Trim);
            if reorder == Reorder::None {
                settings.routing.policy = fabric::routing::Policy::Ecmp;
            }
            small_buffers(&mut settings);
            let transfers = random_messages(&fabric, seed, 600_000);
            let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
            assert_finished(&outcome, "uec");
            trims += outcome.counters.trims;
        }
        assert!(0 < trims, "{reorder:?}: the test is of no use where nothing is trimmed");
    }
}

/// Property: one packet in a hundred is damaged on every link, and everything arrives.
#[test]
fn every_transport_and_every_algorithm_finishes_under_loss() {
    let fabric = fat_tree();
    let mut cases: Vec<(String, Settings)> = Vec::new();
    for (name, transport) in Transport::ALL {
        cases.push((name.to_owned(), Settings::of_transport(transport)));
    }
    for (name, congestion) in CcConfig::defaults() {
        cases.push((name.to_owned(), Settings { congestion, ..Settings::default() }));
    }
    cases.push(("spectrum-x".to_owned(), Settings::spectrum_x()));
    for (name, settings) in cases {
        let settings = Settings { loss: 0.01, seed: 7, ..settings };
        let transfers = random_messages(&fabric, 7, 400_000);
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        assert_finished(&outcome, &name);
        assert!(0 < outcome.counters.drops, "{name}");
    }
}

/// Oracle: a lone message takes what its packets take, with every algorithm that starts at line
/// rate and finds no reason to leave it; the others take longer.
#[test]
fn a_lone_message_takes_what_arithmetic_says() {
    let fabric = fat_tree();
    let bytes = Bytes::from_kib(512);
    for (name, congestion) in CcConfig::defaults() {
        let needs = congestion.needs();
        let settings = Settings { congestion, ..Settings::default() };
        let mut alone = Transfers::new();
        let label = alone.label("flow");
        let connection = connect(&mut alone, &fabric, 15, 0);
        let op = alone.send(connection, bytes, label, &[]);
        let outcome = packetsim::run(&fabric, &alone, &settings).expect("it can be run");
        let times = outcome.ops[op].expect("it finished");
        let mut packet = settings.packet.clone();
        packet.headers.data += needs.data_bytes;
        packet.headers.ack += needs.ack_bytes;
        let hops: Vec<(Rate, Span)> = (0..6).map(|hop| (RATE, delay(&fabric, hop))).collect();
        let expected = lone_message(&packet, &hops, bytes).as_ps() as f64;
        let took = times.finish.since(times.start).as_ps() as f64;
        let ratio = took / expected;
        // HPCC aims at 95 % of the link; CUBIC starts slowly.
        let slow = matches!(name, "hpcc" | "cubic");
        let most = if slow { 4.0 } else { 1.001 };
        assert!((0.9999..most).contains(&ratio), "{name}: {ratio}");
    }
}

/// Property: however few packets a receiver acknowledges, no sender whose window has shrunk waits
/// for its timeout where nothing is lost.
#[test]
fn coalesced_acknowledgements_keep_nobody_waiting() {
    let fabric = fat_tree();
    let mut cases: Vec<(String, Settings)> = Vec::new();
    for (name, transport) in Transport::ALL {
        cases.push((name.to_owned(), Settings::of_transport(transport)));
    }
    for (name, congestion) in CcConfig::defaults() {
        cases.push((format!("rocev2 {name}"), Settings { congestion, ..Settings::default() }));
    }
    for (name, mut settings) in cases {
        settings.buffer.size = Bytes::from_mib(64);
        settings.nic.timeout = Span::from_ms(20);
        let (transfers, _) = incast(&fabric, 15, Bytes::from_mib(1));
        for ack_every in [2, 5, 8, 11, 16, 32] {
            settings.nic.ack_every = ack_every;
            let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
            assert_finished(&outcome, &name);
            let lost = outcome.counters.drops + outcome.counters.trims;
            let last = outcome.makespan();
            assert!(0 < lost || last < Span::from_ms(20), "{name}, every {ack_every}: {last}");
        }
    }
}

/// Golden: an incast of seven under every transport and every algorithm. Last completion in
/// microseconds, pauses, drops, trims and retransmissions.
#[test]
fn an_incast_under_everything() {
    let fabric = fat_tree();
    let mut cases: Vec<(String, Settings)> = Vec::new();
    for (name, transport) in Transport::ALL {
        cases.push((name.to_owned(), Settings::of_transport(transport)));
    }
    for (name, congestion) in CcConfig::defaults() {
        cases.push((format!("rocev2 {name}"), Settings { congestion, ..Settings::default() }));
    }
    cases.push(("spectrum-x".to_owned(), Settings::spectrum_x()));
    let mut table = String::new();
    for (name, mut settings) in cases {
        settings.seed = 1;
        settings.buffer.size = Bytes::from_mib(2);
        settings.ecn.min = Bytes::from_kib(100);
        settings.ecn.max = Bytes::from_kib(400);
        let (transfers, ops) = incast(&fabric, 7, Bytes::from_mib(1));
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        assert_finished(&outcome, &name);
        let again = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        assert_eq!(outcome.digest, again.digest, "{name}");
        let finish = |op: &OpId| outcome.ops[*op].expect("it finished").finish.as_ps();
        let last = ops.iter().map(finish).max().expect("there are seven") / 1_000_000;
        let c = &outcome.counters;
        let counts = [c.pauses, c.drops, c.trims, c.retransmits];
        table += &format!("{name:<18} {last:>6} {counts:?}\n");
    }
    insta::assert_snapshot!(table, @r"
    rocev2                449 [55, 0, 0, 0]
    rocev1                155 [78, 0, 0, 0]
    infiniband            153 [2665, 0, 0, 0]
    uec                   158 [0, 0, 429, 429]
    iwarp               10166 [0, 216, 0, 216]
    tcp                  1470 [0, 0, 0, 0]
    efa                   580 [0, 288, 0, 288]
    scheduled-ethernet    163 [46, 0, 0, 0]
    rocev2 none           153 [76, 0, 0, 0]
    rocev2 dcqcn          449 [55, 0, 0, 0]
    rocev2 hpcc           318 [4, 0, 0, 0]
    rocev2 timely         153 [86, 0, 0, 0]
    rocev2 swift          153 [51, 0, 0, 0]
    rocev2 dctcp          179 [8, 0, 0, 0]
    rocev2 infiniband     153 [70, 0, 0, 0]
    rocev2 nscc           157 [56, 0, 0, 0]
    rocev2 rccc           155 [3, 0, 0, 0]
    rocev2 cubic          158 [22, 0, 0, 0]
    rocev2 powertcp       162 [13, 0, 0, 0]
    spectrum-x            153 [62, 0, 0, 0]
    ");
}

/// Oracle: sums by hand. 64 bytes from pod to pod take the NICs' latencies, five switches, six
/// cables and little else; the kernel's latencies dwarf all of that.
#[test]
fn a_small_message_takes_its_latencies() {
    let fabric = fat_tree();
    let wire: u64 = (0..6).map(|hop| delay(&fabric, hop).as_ps()).sum();
    for (name, transport) in Transport::ALL {
        let mut settings = Settings::of_transport(transport);
        if settings.nic.send_latency == Span::ZERO {
            settings.nic.send_latency = Span::from_ns(1_200);
            settings.nic.receive_latency = Span::from_ns(1_200);
        }
        let hosts = settings.nic.send_latency + settings.nic.receive_latency;
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        let connection = connect(&mut transfers, &fabric, 15, 0);
        let op = transfers.send(connection, Bytes::new(64), label, &[]);
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        let times = outcome.ops[op].expect("it finished");
        let took = times.received.since(times.start).as_ps();
        // A scheduled fabric asks for credit first: four cables there, four back, and chips.
        let loop_ps = (Span::from_ns(300) * 8 + settings.scheduled.latency).as_ps();
        let credit = if settings.scheduled.enabled { loop_ps } else { 0 };
        let least = wire + hosts.as_ps() + credit;
        // At most 200 bytes on six links at 400 Gb/s: 24 ns; and through a core at 42 Gb/s: 26 ns.
        assert!((least..least + 50_000).contains(&took), "{name}: {took} for {least}");
        if transport == Transport::Tcp {
            assert!((45_000_000..60_000_000).contains(&took), "{took}");
        }
    }
}
