//! What the engine has room for: the inputs that once went wrong without a word, and every limit
//! with its neighbours.

use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::graph::{LinkKind, Tier};
use fabric::hardware::Catalogue;
use fabric::routing::Policy;
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use fabric::transport::Transport;
use fabric::{Fabric, FabricBuilder, LinkClass};
use packetsim::cc::{CcConfig, none};
use packetsim::limits::{self, Limit, Refusal};
use packetsim::packet::lone_message;
use packetsim::{Settings, run};
use traffic::{Connection, OpKind, Transfers};
use units::{Bytes, Length, Rate, Span};

/// Two hosts with so many switches between them, and so long cables.
fn chain(switches: usize, rate: Rate, delay: Span) -> Fabric {
    let mut builder = FabricBuilder::new(2, 1, 1);
    let (name, kind, length) = ("link".into(), LinkKind::ScaleOut, Length::ZERO);
    let class = builder.class(LinkClass { name, kind, rate, delay, length });
    let tier = Tier { name: "leaf".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    let mut last = builder.nic(0);
    for number in 0..switches {
        let switch = builder.plain_switch(tier, 0, number);
        builder.cable(last, switch, class);
        last = switch;
    }
    let end = builder.nic(1);
    builder.cable(end, last, class);
    builder.build()
}

fn short() -> Fabric {
    chain(1, Rate::from_gbps(400), Span::from_ns(500))
}

fn send(fabric: &Fabric, bytes: u64) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let (from, to) = (fabric.nic(0), fabric.nic(1));
    let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
    transfers.send(connection, Bytes::new(bytes), label, &[]);
    transfers
}

fn uncontrolled() -> Settings {
    Settings { congestion: CcConfig::None(none::Config {}), ..Settings::default() }
}

/// Oracle: arithmetic. Arrival times had 32 bits of picoseconds, and a cable of 9 ms lost 4.29 ms.
/// Messages longer than a wire, so that packets lie far apart on it, and the nanosecond clock.
#[test]
fn cables_of_any_length_take_their_time() {
    let rate = Rate::from_gbps(400);
    for delay in [Span::from_us(1_400), Span::from_us(4_300), Span::from_ms(9), Span::from_ms(120)]
    {
        let fabric = chain(2, rate, delay);
        for bytes in [1, 100_000, 40_000_000] {
            let settings = lossy();
            let expected = lone_message(&settings.packet, &[(rate, delay); 3], Bytes::new(bytes));
            let outcome = run(&fabric, &send(&fabric, bytes), &settings).expect("it can be run");
            let times = outcome.ops.iter().next().unwrap().expect("it finished");
            assert_eq!(times.finish.since(times.start), expected, "{delay}, {bytes} bytes");
        }
    }
    // Slow links keep packets as long on the wire.
    let (rate, delay) = (Rate::from_bps(1_000_000), Span::from_ms(1));
    let fabric = chain(2, rate, delay);
    let settings = lossy();
    let expected = lone_message(&settings.packet, &[(rate, delay); 3], Bytes::new(20_000));
    let outcome = run(&fabric, &send(&fabric, 20_000), &settings).expect("it can be run");
    assert_eq!(outcome.makespan(), expected);
}

/// Agreement: every transport over 1,000 km, with packets far apart and close together.
#[test]
fn every_transport_crosses_a_thousand_kilometres() {
    let delay = Length::from_metres(1_000_000).propagation();
    let fabric = chain(2, Rate::from_gbps(400), delay);
    for (name, transport) in Transport::ALL {
        let settings = Settings::of_transport(transport);
        let outcome = run(&fabric, &send(&fabric, 1_000), &settings).expect("it can be run");
        let latencies = settings.nic.send_latency + settings.nic.receive_latency;
        let received = outcome.ops.iter().next().unwrap().expect("it finished").received;
        let taken = received.since(units::Time::ZERO).as_secs_f64();
        // A request and its credit cross the cable between the switches first.
        let crossings = if transport == Transport::ScheduledEthernet { 5 } else { 3 };
        let expected = (delay * crossings + latencies).as_secs_f64();
        assert!((taken / expected - 1.0).abs() < 0.001, "{name}: {taken} for {expected}");
    }
}

/// So many hosts on one switch.
fn crowded(hosts: u64) -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(hosts),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let topology = TopologyKind::Clos;
    let config = FabricConfig { topology, radix: Some(8_192), ..FabricConfig::default() };
    build(&cluster, &config, &Catalogue::default()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A switch's inputs had 12 bits: 4,097 hosts under one leaf ended in a panic, 4,200 never ended.
#[test]
fn thousands_of_hosts_hang_on_one_switch() {
    for hosts in [4_096, 4_097, 4_200] {
        let fabric = crowded(hosts);
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        for host in 0..hosts as usize {
            let (from, to) = (fabric.nic(host), fabric.nic((host + 1) % hosts as usize));
            let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
            transfers.send(connection, Bytes::new(8_192), label, &[]);
        }
        let outcome = run(&fabric, &transfers, &uncontrolled()).expect("it can be run");
        assert_eq!(outcome.completed() as u64, hosts);
        let alone = run(&fabric, &send(&fabric, 8_192), &uncontrolled()).expect("it can be run");
        assert_eq!(outcome.makespan(), alone.makespan(), "nobody is in another's way");
    }
}

/// Where links count credits a queue pair stays on one port: 8 planes gave an eighth of the rate
/// without a word.
#[test]
fn packets_that_would_leave_by_several_ports_are_refused() {
    let cluster = ClusterConfig { gpus: Some(64), ports_per_nic: 8, ..ClusterConfig::default() };
    let config = FabricConfig {
        topology: TopologyKind::DualPlane,
        planes: Some(8),
        ..FabricConfig::default()
    };
    let fabric = build(&cluster, &config, &Catalogue::default()).expect("it is well-formed");
    let settings = Settings::of_transport(Transport::Infiniband);
    let refusal = run(&fabric, &send(&fabric, 1 << 20), &settings).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "NIC 0 has 8 ports and `network.routing.policy` is \"infiniband-adaptive\", which spreads \
         the packets of a queue pair over paths, but where links count credits (`network.credits`) \
         the packet engine keeps a queue pair on one port; use --engine flow, one port for each \
         NIC, or a policy that keeps a flow on one path, such as \"static-up-down\""
    );
    let mut settings = settings;
    settings.routing.policy = Policy::StaticUpDown;
    run(&fabric, &send(&fabric, 1 << 20), &settings).expect("one path each");
}

/// Every limit: one below, at, and one above.
#[test]
fn every_limit_is_checked_at_its_end() {
    for limit in limits::ALL {
        limit.check(limit.most - 1).expect("one below");
        limit.check(limit.most).expect("at the limit");
        let refusal = limit.check(limit.most + 1).unwrap_err();
        assert_eq!(refusal, Refusal::TooLarge { limit, value: limit.most + 1 });
        let text = refusal.to_string();
        assert!(text.contains("the packet engine takes at most"), "{text}");
        assert!(text.contains(limit.what) && text.contains(limit.instead), "{text}");
    }
    let text = limits::INPUTS.check((1 << 24) + 1).unwrap_err().to_string();
    assert_eq!(
        text,
        "ports of one switch: 16777217, but the packet engine takes at most 16777216; --engine flow \
         has no such limit"
    );
}

/// Whether a run is refused for this limit. What is not refused is stopped after an event.
fn refused(limit: &Limit, fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> bool {
    let mut settings = settings.clone();
    settings.limits.events = 1;
    match run(fabric, transfers, &settings) {
        Ok(_) => false,
        Err(Refusal::TooLarge { limit: found, .. }) if found == limit => true,
        Err(other) => panic!("{other}"),
    }
}

/// The limits that a small run can reach, from below to above: a step of one below, at, above.
#[test]
fn runs_are_refused_from_one_above_a_limit_on() {
    const AROUND: [(i64, bool); 3] = [(-1, false), (0, false), (1, true)];
    for (off, expected) in AROUND {
        let at = |limit: &Limit| limit.most.checked_add_signed(off).expect("it is small");
        let (fabric, plain) = (short(), uncontrolled());
        let one = send(&fabric, 1);

        let packets = send(&fabric, at(&limits::PACKETS) * 4_096);
        assert_eq!(refused(&limits::PACKETS, &fabric, &packets, &plain), expected, "{off}");

        let mut settings = plain.clone();
        settings.limits.time = Span::from_ps(at(&limits::RUN_TIME));
        assert_eq!(refused(&limits::RUN_TIME, &fabric, &one, &settings), expected, "{off}");
        settings.credits.enabled = true;
        settings.limits.time = Span::from_ps(at(&limits::RUN_TIME_WITH_CREDITS));
        let limit = &limits::RUN_TIME_WITH_CREDITS;
        assert_eq!(refused(limit, &fabric, &one, &settings), expected, "{off}");

        let mut settings = plain.clone();
        settings.buffer.reserved = Bytes::new(at(&limits::RESERVED));
        assert_eq!(refused(&limits::RESERVED, &fabric, &one, &settings), expected, "{off}");
        let mut settings = plain.clone();
        settings.buffer.headroom = Some(Bytes::new(at(&limits::HEADROOM)));
        assert_eq!(refused(&limits::HEADROOM, &fabric, &one, &settings), expected, "{off}");
        let mut settings = plain.clone();
        settings.buffer.size = Bytes::new(at(&limits::MEMORY));
        assert_eq!(refused(&limits::MEMORY, &fabric, &one, &settings), expected, "{off}");
        let mut settings = plain.clone();
        settings.credits.enabled = true;
        settings.credits.buffer = Some(Bytes::new(at(&limits::CREDIT_BYTES)));
        assert_eq!(refused(&limits::CREDIT_BYTES, &fabric, &one, &settings), expected, "{off}");

        let mut waits = Transfers::new();
        let label = waits.label("wait");
        waits.add(OpKind::Wait { span: Span::from_ps(at(&limits::SPAN)) }, label, &[]);
        assert_eq!(refused(&limits::SPAN, &fabric, &waits, &plain), expected, "{off}");

        let far = chain(1, Rate::from_gbps(400), Span::from_ps(at(&limits::DELAY)));
        assert_eq!(refused(&limits::DELAY, &far, &send(&far, 1), &lossy()), expected, "{off}");

        let stamped = Settings { congestion: CcConfig::Hpcc(Default::default()), ..plain.clone() };
        let long =
            chain(at(&limits::STAMPED_HOPS) as usize, Rate::from_gbps(400), Span::from_ns(9));
        let one = send(&long, 1);
        assert_eq!(refused(&limits::STAMPED_HOPS, &long, &one, &stamped), expected, "{off}");
        run(&long, &one, &plain).expect("nothing is stamped");
    }
}

/// Pauses would need more headroom than there is on so long cables.
fn lossy() -> Settings {
    let mut settings = uncontrolled();
    settings.pfc.enabled = false;
    settings
}

/// A round trip of more than 4.29 s: packets carry 32 bits of nanoseconds.
#[test]
fn slow_links_are_refused() {
    let fabric = chain(1, Rate::from_bps(400), Span::from_ns(500));
    let refusal = run(&fabric, &send(&fabric, 1), &lossy()).unwrap_err();
    let text = refusal.to_string();
    assert!(text.starts_with("the round trip of a packet on an idle path: "), "{text}");
    assert!(text.contains("at most 4.294967295s; --engine flow"), "{text}");
    let fabric = chain(1, Rate::from_bps(100_000), Span::from_ns(500));
    run(&fabric, &send(&fabric, 1), &lossy()).expect("0.7 s are counted");
}

/// Settings that no scenario would let pass are refused here too.
#[test]
fn settings_out_of_range_are_refused() {
    let mut settings = uncontrolled();
    settings.packet.mtu = Bytes::ZERO;
    settings.credits.lanes = 5;
    let fabric = short();
    let refusal = run(&fabric, &send(&fabric, 1), &settings).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "`network.packet.mtu` is 0B, but must be from 64B to 48KiB; `network.credits.lanes` is 5, \
         but must be from 1 to 4"
    );
}

/// Retries had 8 bits: with 300 of them a queue pair never gave up.
#[test]
fn as_many_retries_as_were_asked_for() {
    let mut settings = uncontrolled();
    settings.loss = 1.0;
    settings.nic.retries = 300;
    settings.nic.timeout = Span::from_us(10);
    let fabric = short();
    let outcome = run(&fabric, &send(&fabric, 1), &settings).expect("it can be run");
    let findings: Vec<&str> = outcome.findings.iter().map(|found| found.text.as_str()).collect();
    assert!(findings[0].contains("gave up after 301 timeouts"), "{findings:?}");
}

/// The time at which a packet was sent has 32 bits of nanoseconds: what waits for longer is named.
#[test]
fn packets_that_wait_for_seconds_are_named() {
    let fabric = short();
    let storm = FaultConfig {
        at: Span::ZERO,
        until: None,
        lasting: Some(Span::from_ms(3_500)),
        on: "NIC 1".to_owned(),
        what: FaultKind::PauseStorm,
    };
    let faults = Faults::new(&fabric, &[storm], "faults").expect("it is well-formed");
    let mut settings = uncontrolled();
    settings.pfc.watchdog = None;
    let transfers = send(&fabric, 100_000);
    let run = packetsim::run_with_faults(
        &fabric,
        &transfers,
        &settings,
        &faults,
        &mut packetsim::Watch::default(),
    );
    let outcome = run.expect("it can be run");
    assert_eq!(outcome.completed(), 1);
    let said = |found: &traffic::Finding| found.text.starts_with("packets have waited for more");
    assert!(outcome.findings.iter().any(said), "{:?}", outcome.findings);
}
