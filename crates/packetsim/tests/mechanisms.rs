//! Single mechanisms against arithmetic: admission by the receiver, scheduling between classes,
//! cut-through, deep buffers, PCIe, idling, fairness of DCQCN's parameter sets.

use fabric::fault::Faults;
use fabric::graph::{LinkKind, Tier};
use fabric::hardware::Reorder;
use fabric::{Fabric, FabricBuilder, LinkClass};
use packetsim::admission::{AdmissionConfig, AdmissionPolicy};
use packetsim::buffer::{BufferConfig, EcnConfig, Organisation};
use packetsim::cc::{CcConfig, dcqcn, none};
use packetsim::measure::{MeasureConfig, Recording};
use packetsim::nic::{AfterIdle, Verb};
use packetsim::settings::{ControlClass, Forwarding};
use packetsim::{Settings, Watch};
use traffic::{Connection, ConnectionId, OpKind, OpTimes, Outcome, Transfers};
use units::{Bytes, Length, Rate, Span};

const RATE: Rate = Rate::from_gbps(400);
const DELAY: Span = Span::from_us(1);

/// Hosts on one switch, 1 us from it.
fn star(hosts: usize) -> Fabric {
    let mut builder = FabricBuilder::new(hosts, 1, 1);
    let class = builder.class(LinkClass {
        name: "link".into(),
        kind: LinkKind::ScaleOut,
        rate: RATE,
        delay: DELAY,
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

fn connect(transfers: &mut Transfers, fabric: &Fabric, from: usize, to: usize) -> ConnectionId {
    let (from, to) = (fabric.nic(from), fabric.nic(to));
    transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 })
}

/// One message for each (from, to, bytes).
fn sends(fabric: &Fabric, flows: &[(usize, usize, u64)]) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for &(from, to, bytes) in flows {
        let connection = connect(&mut transfers, fabric, from, to);
        transfers.send(connection, Bytes::new(bytes), label, &[]);
    }
    transfers
}

fn uncontrolled() -> Settings {
    Settings { congestion: CcConfig::None(none::Config {}), seed: 1, ..Settings::default() }
}

fn run(hosts: usize, flows: &[(usize, usize, u64)], settings: &Settings) -> Outcome {
    let fabric = star(hosts);
    packetsim::run(&fabric, &sends(&fabric, flows), settings).expect("it can be run")
}

fn measured(hosts: usize, flows: &[(usize, usize, u64)], settings: &Settings) -> Recording {
    let fabric = star(hosts);
    let (faults, config) = (Faults::default(), MeasureConfig::default());
    let transfers = sends(&fabric, flows);
    let mut watch = Watch::default();
    packetsim::run_measured(&fabric, &transfers, settings, &faults, &config, &mut watch)
        .expect("it can be run")
        .1
}

fn times(outcome: &Outcome, at: usize) -> OpTimes {
    outcome.ops.iter().nth(at).copied().flatten().expect("it finished")
}

fn seconds_to_receive(outcome: &Outcome, at: usize) -> f64 {
    let times = times(outcome, at);
    times.received.since(times.start).as_secs_f64()
}

/// How long so many bytes of payload take at the line rate, headers and gaps included.
fn wire(bytes: u64) -> f64 {
    let packets = bytes.div_ceil(4_096);
    (bytes + packets * 82) as f64 * 8.0 / RATE.as_bps_f64()
}

/// Oracle: with one buffer of 64 KiB cleared at a time, each costs a round trip: the clearance
/// comes over two links, the data goes over two, and the next clearance follows.
#[test]
fn a_sender_waits_for_every_clearance() {
    let mut settings = uncontrolled();
    settings.admission = AdmissionConfig {
        policy: AdmissionPolicy::ReceiverDriven,
        buffer: Bytes::from_kib(64),
        window: 1,
        receiver_window: None,
    };
    let outcome = run(2, &[(0, 1, 16 << 16)], &settings);
    let grant = (142 + 20) as f64 * 8.0 / RATE.as_bps_f64();
    // The last packet of a buffer crosses the second link after the others have.
    let each = wire(64 << 10) + wire(4_096) + 2.0 * grant + 4.0 * DELAY.as_secs_f64();
    let ratio = seconds_to_receive(&outcome, 0) / (16.0 * each);
    assert!((ratio - 1.0).abs() < 0.002, "{ratio}");
    // With the default window of eight it runs at line rate.
    settings.admission.window = 8;
    let outcome = run(2, &[(0, 1, 16 << 16)], &settings);
    assert!(seconds_to_receive(&outcome, 0) < 1.2 * wire(16 << 16) + 5e-6);
}

/// Property: a receiver that counts what it has cleared never has more than that in the switch,
/// however many send to it; one that does not has all of it there.
#[test]
fn a_receiver_that_counts_keeps_an_incast_out_of_the_switch() {
    let flows: Vec<(usize, usize, u64)> = (0..8).map(|from| (from, 8, 1 << 20)).collect();
    let mut settings = uncontrolled();
    settings.admission.policy = AdmissionPolicy::ReceiverDriven;
    settings.admission.buffer = Bytes::from_kib(64);
    let deepest = |outcome: &Outcome| {
        outcome.links.iter().map(|link| link.peak_queue.get()).max().expect("there are links")
    };
    let open = run(9, &flows, &settings);
    settings.admission.receiver_window = Some(Bytes::from_kib(256));
    let counted = run(9, &flows, &settings);
    assert_eq!((open.completed(), counted.completed()), (8, 8));
    assert!(deepest(&counted) <= 270_000 && 2_000_000 < deepest(&open), "{}", deepest(&counted));
    // The link to the receiver stays busy: 256 KiB are more than it carries in a round trip.
    let slower = counted.makespan().as_secs_f64() / open.makespan().as_secs_f64();
    assert!(slower < 1.03, "{slower}");
}

/// Clearances that wait behind data wait for all of it; in a queue of their own for one packet.
#[test]
fn clearances_of_their_own_class_overtake_data() {
    // Host 2 clears what host 1 sends to it, over a link that is full of what the others send to
    // host 1.
    let flows = [(1, 2, 32 << 20), (0, 1, 16 << 20), (3, 1, 16 << 20), (4, 1, 16 << 20)];
    let mut settings = uncontrolled();
    settings.admission.policy = AdmissionPolicy::ReceiverDriven;
    let p99 = |class| {
        let mut settings = settings.clone();
        settings.switch.grants = class;
        let recording = measured(5, &flows, &settings);
        recording.clearance.quantile(0.99).expect("clearances arrived").as_secs_f64()
    };
    let (own, with_data) = (p99(ControlClass::Own), p99(ControlClass::WithData));
    assert!(own < 3e-6, "{own}");
    assert!(10.0 * own < with_data, "{own} and {with_data}");
}

/// Oracle: a backlog of acknowledgements twice as large as data meets data on one link. Strict
/// priority lets the data wait until it is gone; a weight of a quarter leaves it three quarters.
#[test]
fn classes_share_a_link_as_their_weights_say() {
    let fabric = star(3);
    let taken = |control_share| {
        let mut settings = uncontrolled();
        settings.packet.headers.ack = Bytes::new(8_000);
        settings.switch.control_share = control_share;
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        // Host 0 has sent all after 343 us; its acknowledgements take until 657 us to come back,
        // and meanwhile host 2 sends to it.
        let connection = connect(&mut transfers, &fabric, 0, 1);
        transfers.send(connection, Bytes::from_mib(16), label, &[]);
        let later = transfers.add(OpKind::Wait { span: Span::from_us(400) }, label, &[]);
        let connection = connect(&mut transfers, &fabric, 2, 0);
        let op = transfers.send(connection, Bytes::from_mib(2), label, &[later]);
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        let times = outcome.ops[op].expect("it finished");
        times.received.since(times.start).as_secs_f64()
    };
    let strict = taken(None);
    assert!(250e-6 < strict, "data waits for the acknowledgements: {strict}");
    for share in [0.25, 0.5, 0.75] {
        let (taken, expected) = (taken(Some(share)), wire(2 << 20) / (1.0 - share));
        assert!((taken / expected - 1.0).abs() < 0.07, "{share}: {taken} for {expected}");
    }
}

/// Oracle: a switch that cuts through sends a packet on after 64 bytes of it instead of all.
#[test]
fn cut_through_saves_all_but_the_headers_once_for_each_switch() {
    let mut settings = uncontrolled();
    let stored = seconds_to_receive(&run(2, &[(0, 1, 4_096)], &settings), 0);
    settings.switch.forwarding = Forwarding::CutThrough;
    let cut = seconds_to_receive(&run(2, &[(0, 1, 4_096)], &settings), 0);
    // The only packet has all headers: 62 and RETH 16 and immediate data 4; gap 20.
    let whole = (4_096 + 82 + 20) as f64 * 8.0 / RATE.as_bps_f64();
    let headers = 64.0 * 8.0 / RATE.as_bps_f64();
    assert!((stored - (2.0 * whole + 2e-6)).abs() < 1e-12, "{stored}");
    assert!((stored - cut - (whole - headers)).abs() < 1e-12, "{stored} and {cut}");
}

/// Agreement: where a packet takes longer to send than to cross the cable its head arrives before
/// its tail has left; those behind it follow all the same, whether somebody looks on or not.
#[test]
fn cut_through_keeps_a_slow_link_busy() {
    let slow = Rate::from_gbps(40);
    let mut builder = FabricBuilder::new(4, 1, 1);
    let class = builder.class(LinkClass {
        name: "link".into(),
        kind: LinkKind::ScaleOut,
        rate: slow,
        delay: Span::from_ns(250),
        length: Length::ZERO,
    });
    let tier = Tier { name: "leaf".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    let switches = [builder.plain_switch(tier, 0, 0), builder.plain_switch(tier, 0, 1)];
    for host in 0..4 {
        let nic = builder.nic(host);
        builder.cable(nic, switches[host / 2], class);
    }
    builder.cable(switches[0], switches[1], class);
    let fabric = builder.build();
    let mut settings = uncontrolled();
    settings.switch.forwarding = Forwarding::CutThrough;
    let transfers = sends(&fabric, &[(0, 2, 1 << 20), (1, 3, 1 << 20), (3, 0, 100_000)]);
    let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
    // Two messages over the link between the switches.
    let wire = 2.0 * f64::from((1 << 20) + 256 * 82) * 8.0 / slow.as_bps_f64();
    let last = outcome.makespan().as_secs_f64();
    assert!(wire < last && last < 1.02 * wire, "{last} for {wire}");
    let config =
        MeasureConfig { links: fabric.links().ids().collect(), ..MeasureConfig::default() };
    let (faults, mut watch) = (Faults::default(), Watch::default());
    let (watched, _) =
        packetsim::run_measured(&fabric, &transfers, &settings, &faults, &config, &mut watch)
            .expect("it can be run");
    assert_eq!(outcome.ops, watched.ops);
}

/// Ends without a cable between them are told of, and keep nobody else from finishing.
#[test]
fn ends_without_a_path_are_told_of() {
    let mut builder = FabricBuilder::new(3, 1, 1);
    let class = builder.class(LinkClass {
        name: "link".into(),
        kind: LinkKind::ScaleOut,
        rate: RATE,
        delay: DELAY,
        length: Length::ZERO,
    });
    let tier = Tier { name: "leaf".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    for (host, at) in [(0, 0), (1, 0), (2, 1)] {
        let nic = builder.nic(host);
        let switch = if host == 1 { continue } else { builder.plain_switch(tier, 0, at) };
        builder.cable(nic, switch, class);
        if host == 0 {
            let neighbour = builder.nic(1);
            builder.cable(neighbour, switch, class);
        }
    }
    let fabric = builder.build();
    let transfers = sends(&fabric, &[(0, 1, 10_000), (0, 2, 10_000)]);
    let outcome = packetsim::run(&fabric, &transfers, &uncontrolled()).expect("it can be run");
    assert_eq!(outcome.completed(), 1);
    let texts: Vec<&str> = outcome.findings.iter().map(|finding| &*finding.text).collect();
    assert!(texts[0].starts_with("there is no path from NIC 0 to NIC 2"), "{texts:?}");
}

/// Twenty that send to one host fill a shared memory, and two that have nothing to do with it are
/// paused; with a part of its own for each port, they are not. By hand: of a pool of 13.4 MB with
/// alpha 1/8 each of twenty takes 1/28, 478 kB, and so may the two, whose queues grow to 524 kB; a
/// twenty-fourth is 558 kB.
#[test]
fn ports_of_a_deep_buffer_do_not_take_memory_from_each_other() {
    let mut flows: Vec<(usize, usize, u64)> = (0..20).map(|from| (from, 20, 4 << 20)).collect();
    flows.extend([(21, 23, 1 << 20), (22, 23, 1 << 20)]);
    let paused = |organisation| {
        let mut settings = uncontrolled();
        settings.buffer = BufferConfig {
            organisation,
            // The pool, and what 24 ports keep: headroom of 166,236 and a reserve of 18,796 bytes.
            size: Bytes::new(13_400_000 + 24 * 185_032),
            alpha: 0.125,
            ..BufferConfig::default()
        };
        let fabric = star(24);
        let outcome =
            packetsim::run(&fabric, &sends(&fabric, &flows), &settings).expect("it can be run");
        assert_eq!((outcome.completed(), outcome.counters.drops), (22, 0));
        let paused = |host: usize| outcome.links[fabric.ports(fabric.nic(host))[0]].paused;
        (paused(0) + paused(19), paused(21) + paused(22))
    };
    let (hogs, victims) = paused(Organisation::Shared);
    assert!(Span::ZERO < hogs && Span::ZERO < victims, "{hogs} {victims}");
    let (hogs, victims) = paused(Organisation::DeepVoq);
    assert!(Span::ZERO < hogs && victims == Span::ZERO, "{hogs} {victims}");
}

/// Oracle: a host that takes 100 Gb/s over PCIe gets its data at that rate; its NIC pauses the
/// switch and loses nothing. Without pauses its buffer overflows.
#[test]
fn pcie_limits_with_back_pressure() {
    let mut settings = uncontrolled();
    settings.nic.pcie = Some(Rate::from_gbps(100));
    settings.nic.timeout = Span::from_ms(1);
    let outcome = run(2, &[(0, 1, 16 << 20)], &settings);
    assert_eq!((outcome.completed(), outcome.counters.drops), (1, 0));
    assert!(0 < outcome.counters.pauses);
    let expected = ((16 << 20) + 4_096 * 62) as f64 * 8.0 / 100e9;
    let taken = seconds_to_receive(&outcome, 0);
    assert!((taken / expected - 1.0).abs() < 0.01, "{taken} for {expected}");
    settings.pfc.enabled = false;
    let outcome = run(2, &[(0, 1, 16 << 20)], &settings);
    assert_eq!(outcome.completed(), 1);
    assert!(0 < outcome.counters.drops);
}

/// A queue pair that was slowed and then idles goes on slowly, or at line rate if that is how the
/// NIC does it and it has idled for long enough.
#[test]
fn after_idling_a_queue_pair_goes_on_as_its_nic_does() {
    let fabric = star(5);
    let second_message = |after_idle, idle: Span| {
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        let mut first = Vec::new();
        for from in 0..4 {
            let connection = connect(&mut transfers, &fabric, from, 4);
            first.push((connection, transfers.send(connection, Bytes::from_mib(4), label, &[])));
        }
        let all: Vec<_> = first.iter().map(|(_, op)| *op).collect();
        let pause = transfers.add(OpKind::Wait { span: idle }, label, &all);
        let op = transfers.send(first[0].0, Bytes::from_mib(1), label, &[pause]);
        let mut settings = Settings { seed: 1, ..Settings::default() };
        settings.congestion = CcConfig::Dcqcn(dcqcn::Config::paper());
        settings.nic.after_idle = after_idle;
        settings.nic.idle_reset = Span::from_us(500);
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        let times = outcome.ops[op].expect("it finished");
        times.received.since(times.start).as_secs_f64()
    };
    let (short, long) = (Span::from_us(100), Span::from_us(600));
    let kept = second_message(AfterIdle::Keep, long);
    let restarted = second_message(AfterIdle::Restart, long);
    let too_soon = second_message(AfterIdle::Restart, short);
    let alone = wire(1 << 20) + 2e-6;
    assert!((restarted / alone - 1.0).abs() < 0.01, "{restarted} for {alone}");
    assert!(1.2 * alone < kept && 1.2 * alone < too_soon, "{kept} {too_soon} for {alone}");
}

/// DCQCN's parameter sets on four flows that begin together and share 400 Gb/s for 50 ms: all are
/// fair in the long run, also those of the paper (steps of 40 Mb/s, for 40 Gb/s links) and of
/// ConnectX dumps (5 Mb/s); the paper's leaves a quarter of the link idle.
#[test]
fn fairness_of_the_parameter_sets() {
    let bytes = 400_000_000_000 / 8 / 1_000 * 50 / 4;
    let flows: Vec<(usize, usize, u64)> = (0..4).map(|from| (from, 4, bytes)).collect();
    let jain = |config: dcqcn::Config| {
        let settings = Settings { congestion: CcConfig::Dcqcn(config), ..Settings::default() };
        let outcome = run(5, &flows, &settings);
        let rates = (0..4).map(|at| 1.0 / seconds_to_receive(&outcome, at));
        let (sum, squares) = rates.fold((0.0, 0.0), |(s, q), rate| (s + rate, q + rate * rate));
        (sum * sum / (4.0 * squares), outcome.makespan().as_secs_f64())
    };
    let sets = [
        ("hpcc's ns-3", dcqcn::Config::ns3(RATE)),
        ("paper", dcqcn::Config::paper()),
        ("connectx", dcqcn::Config::default()),
    ];
    let mut found = String::new();
    for (name, config) in sets {
        let (jain, last) = jain(config);
        assert!(0.99 <= jain, "{name}: {jain}");
        found += &format!("{name}: done after {:.0} ms\n", last * 1e3);
    }
    insta::assert_snapshot!(found, @r"
    hpcc's ns-3: done after 54 ms
    paper: done after 67 ms
    connectx: done after 53 ms
    ");
}

/// Arithmetic: a reader knows that it is done when the last byte has come, and all it sends is its
/// request of 78 bytes; a lone answer has one AETH.
#[test]
fn answers_to_a_read_are_not_acknowledged() {
    let mut settings = uncontrolled();
    settings.nic.verb = Verb::Read;
    let fabric = star(2);
    let out = |nic| fabric.ports(fabric.nic(nic))[0];
    for (bytes, wire) in [(100, 100 + 62 + 4), (3 * 4_096, 3 * (4_096 + 62) + 8)] {
        let outcome = packetsim::run(&fabric, &sends(&fabric, &[(0, 1, bytes)]), &settings)
            .expect("it can be run");
        let times = times(&outcome, 0);
        assert_eq!(times.received, times.finish);
        assert_eq!([outcome.links[out(0)].bytes, outcome.links[out(1)].bytes], [wire, 78]);
    }
    // By buffers, where the receiver is careful: one request for each.
    settings.admission.policy = AdmissionPolicy::ReceiverDriven;
    settings.admission.buffer = Bytes::new(8 * 4_096);
    settings.admission.window = 1;
    let outcome = packetsim::run(&fabric, &sends(&fabric, &[(0, 1, 40 * 4_096)]), &settings)
        .expect("it can be run");
    assert_eq!(outcome.links[out(1)].bytes, 5 * 78);
    let waits = seconds_to_receive(&outcome, 0);
    assert!(5.0 * 4e-6 < waits, "five round trips of 4 us, but {waits} s");
}

/// Loss never hangs a reader: what is missing is asked for again, whether later answers show it or
/// silence does, and every packet is accounted for.
#[test]
fn a_reader_asks_again_for_what_it_misses() {
    for reorder in [Reorder::None, Reorder::SelectiveRepeat, Reorder::DirectPlacement] {
        for seed in 1..6 {
            let mut settings = Settings { loss: 0.02, seed, ..uncontrolled() };
            settings.nic.verb = Verb::Read;
            settings.nic.reorder = reorder;
            settings.nic.reorder_window = 16;
            settings.nic.timeout = Span::from_us(50);
            let flows = [(0, 1, 1_000_000), (2, 1, 300_000), (1, 0, 5)];
            let outcome = run(3, &flows, &settings);
            assert!(outcome.ops.iter().all(Option::is_some), "{reorder:?}, seed {seed}");
            assert!(0 < outcome.counters.retransmits, "{reorder:?}, seed {seed}");
            assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
        }
    }
}

/// Marks reach the one who answers without acknowledgements: senders into one link slow down.
#[test]
fn marks_of_answers_come_back_as_notifications() {
    for (name, congestion) in CcConfig::defaults() {
        let mut settings = Settings { congestion, ..uncontrolled() };
        settings.nic.verb = Verb::Read;
        let flows: Vec<_> = (1..5).map(|from| (from, 0, 1_000_000)).collect();
        let outcome = run(5, &flows, &settings);
        assert!(outcome.ops.iter().all(Option::is_some), "{name}");
        let counters = &outcome.counters;
        let slows = ["dcqcn", "infiniband"].contains(&name) && 0 < counters.ecn_marks;
        assert_eq!(0 < counters.cnps, slows, "{name}");
    }
}

/// Oracle: what two packets of 4 KiB take over two links, by the headers that each operation has; a
/// read begins when its request has come the same way.
#[test]
fn verbs_differ_by_their_headers_and_a_read_by_its_request() {
    let bits = |bytes: f64| bytes * 8.0 / RATE.as_bps_f64();
    let taken = |verb| {
        let mut settings = uncontrolled();
        settings.nic.verb = verb;
        seconds_to_receive(&run(2, &[(0, 1, 8_192)], &settings), 0)
    };
    // The first packet crosses the first link, then the second follows it over both; `first` and
    // `last` are what each carries besides 62 bytes of headers and 20 of gap.
    let expected = |first: f64, last: f64| {
        let (one, two) = (bits(4_096.0 + 82.0 + first), bits(4_096.0 + 82.0 + last));
        one + one.max(two) + two + 2e-6
    };
    let cases = [
        (Verb::Send, expected(0.0, 0.0)),
        (Verb::Write, expected(16.0, 0.0)),
        (Verb::WriteWithImmediate, expected(16.0, 4.0)),
        (Verb::Read, expected(4.0, 4.0) + 2.0 * bits(62.0 + 16.0 + 20.0) + 2e-6),
    ];
    for (verb, expected) in cases {
        let taken = taken(verb);
        assert!((taken - expected).abs() < 1e-11, "{verb:?}: {taken} for {expected}");
    }
}

/// Two incasts into two hosts of one switch, each in a lane of its own.
fn two_lanes(settings: &Settings) -> (Outcome, Recording) {
    let fabric = star(8);
    let flows: Vec<_> = (0..3).flat_map(|from| [(from, 6), (from + 3, 7)]).collect();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for &(from, to) in &flows {
        let connection = connect(&mut transfers, &fabric, from, to);
        transfers.set_service_level(transfers.connections().len() - 1, u8::from(to == 7));
        transfers.send(connection, Bytes::from_mib(2), label, &[]);
    }
    let out = |host| fabric.reverse(fabric.ports(fabric.nic(host))[0]);
    let config = MeasureConfig { links: vec![out(6), out(7)], ..MeasureConfig::default() };
    let (faults, mut watch) = (Faults::default(), Watch::default());
    packetsim::run_measured(&fabric, &transfers, settings, &faults, &config, &mut watch)
        .expect("it can be run")
}

/// A lossless lane beside a lossy one: the first is paused and loses nothing, the second loses and
/// is never paused.
#[test]
fn one_lane_is_paused_and_the_other_loses() {
    let mut settings = uncontrolled();
    settings.credits.lanes = 2;
    settings.pfc.lossy_lanes = vec![1];
    settings.buffer.size = Bytes::from_mib(4);
    settings.buffer.alpha = 0.25;
    settings.buffer.alpha_lossy = 0.25;
    settings.nic.timeout = Span::from_us(200);
    let (outcome, recording) = two_lanes(&settings);
    assert!(outcome.ops.iter().all(Option::is_some), "loss never hangs a run");
    let drops = |at: usize| recording.links[at].1.samples.last().expect("some").data_drops;
    // Links come in the order in which they were named, each with its lanes.
    assert_eq!([drops(0), drops(1), drops(2)], [0, 0, 0]);
    assert!(0 < drops(3));
    assert_eq!(u64::from(drops(3)), outcome.counters.drops);
    // Only the senders of the first lane have been paused.
    let fabric = star(8);
    let paused = |host| outcome.links[fabric.ports(fabric.nic(host))[0]].paused;
    assert!((0..3).all(|host| Span::ZERO < paused(host)));
    assert!((3..6).all(|host| Span::ZERO == paused(host)));
    assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
}

/// A threshold for each lane: the lane whose own is never reached marks nothing.
#[test]
fn lanes_mark_by_their_own_thresholds() {
    let mut settings = uncontrolled();
    settings.credits.lanes = 2;
    let step = |at| EcnConfig { min: at, max: at, ..EcnConfig::default() };
    settings.ecn_of_lane = vec![step(Bytes::from_mib(512)), step(Bytes::from_kib(64))];
    let (outcome, recording) = two_lanes(&settings);
    let marks = |at: usize| recording.links[at].1.samples.last().expect("some").marks;
    assert_eq!([marks(0), marks(1), marks(2)], [0, 0, 0]);
    assert!(0 < marks(3) && u64::from(marks(3)) == outcome.counters.ecn_marks);
}

/// Tiers mark by thresholds of their own, whatever the lane: one whose own is never reached marks
/// nothing.
#[test]
fn tiers_mark_by_their_own_thresholds() {
    let step = |at| EcnConfig { min: at, max: at, ..EcnConfig::default() };
    let marks = |of_all: Bytes, of_leaves: Bytes| {
        let mut settings = uncontrolled();
        settings.ecn = step(of_all);
        settings.ecn_of_tier.insert("leaf".into(), step(of_leaves));
        two_lanes(&settings).0.counters.ecn_marks
    };
    let (low, high) = (Bytes::from_kib(64), Bytes::from_mib(512));
    assert_eq!(marks(low, high), 0);
    assert!(0 < marks(high, low));
}

/// A NIC with two ports has one buffer: when it fills both leaves are paused, and both go on.
#[test]
fn both_ports_of_a_nic_are_paused_and_go_on() {
    let mut builder = FabricBuilder::new(5, 1, 1);
    let class = builder.class(LinkClass {
        name: "link".into(),
        kind: LinkKind::ScaleOut,
        rate: RATE,
        delay: DELAY,
        length: Length::ZERO,
    });
    let tier = Tier { name: "leaf".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    let switches = [builder.plain_switch(tier, 0, 0), builder.plain_switch(tier, 0, 1)];
    for host in 0..5 {
        let nic = builder.nic(host);
        for switch in switches {
            builder.cable(nic, switch, class);
        }
    }
    let fabric = builder.build();
    let mut settings = uncontrolled();
    settings.nic.pcie = Some(Rate::from_gbps(40));
    let flows: Vec<_> = (0..16).map(|at| (1 + at % 4, 0, 1 << 19)).collect();
    let outcome =
        packetsim::run(&fabric, &sends(&fabric, &flows), &settings).expect("it can be run");
    assert_eq!((outcome.completed(), outcome.counters.drops), (16, 0), "{:?}", outcome.findings);
    let into = |at: usize| outcome.links[fabric.reverse(fabric.ports(fabric.nic(0))[at])];
    assert!((0..2).all(|at| Span::ZERO < into(at).paused && 0 < into(at).bytes));
    // 8 MiB at 40 Gb/s.
    let last = outcome.makespan().as_secs_f64();
    assert!((last / (f64::from(8 << 20) * 8.0 / 40e9) - 1.0).abs() < 0.05, "{last}");
}

/// What senders sent unasked does not circulate for ever: the queue of an incast under RCCC falls
/// to what its receiver lets be outstanding.
#[test]
fn unasked_data_goes_out_of_circulation() {
    let mut settings = uncontrolled();
    let rccc = packetsim::cc::rccc::Config::default();
    let outstanding = rccc.outstanding;
    settings.congestion = CcConfig::Rccc(rccc);
    let fabric = star(9);
    let transfers = sends(&fabric, &(1..9).map(|from| (from, 0, 4 << 20)).collect::<Vec<_>>());
    let last = fabric.reverse(fabric.ports(fabric.nic(0))[0]);
    let config = MeasureConfig { links: vec![last], ..MeasureConfig::default() };
    let (faults, mut watch) = (Faults::default(), Watch::default());
    let (outcome, recording) =
        packetsim::run_measured(&fabric, &transfers, &settings, &faults, &config, &mut watch)
            .expect("it can be run");
    assert_eq!(outcome.completed(), 8);
    let samples = &recording.links[0].1.samples;
    let later = &samples[samples.len() / 2..];
    let deepest = later.iter().map(|sample| sample.data).max().expect("there are some");
    assert!(deepest <= outstanding + Bytes::from_kib(64), "{deepest} of {outstanding}");
}
