//! Deadlocks and pause storms are found where they are, and nowhere else.

use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::graph::{LinkKind, Tier};
use fabric::{Fabric, FabricBuilder, LinkClass};
use packetsim::buffer::{BufferConfig, WatchdogAction};
use packetsim::cc::{CcConfig, none};
use packetsim::{Settings, Watch};
use traffic::{Connection, Outcome, Transfers};
use units::{Bytes, Length, Rate, Span};

const SWITCHES: usize = 5;

/// A ring of five switches with two hosts each. From a switch to the next but one there is one
/// shortest way: clockwise.
fn ring() -> Fabric {
    let mut builder = FabricBuilder::new(2 * SWITCHES, 1, 1);
    let class = builder.class(LinkClass {
        name: "link".into(),
        kind: LinkKind::ScaleOut,
        rate: Rate::from_gbps(400),
        delay: Span::from_ns(500),
        length: Length::ZERO,
    });
    let tier = Tier { name: "ring".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    let switches: Vec<_> =
        (0..SWITCHES).map(|number| builder.plain_switch(tier, 0, number)).collect();
    for host in 0..2 * SWITCHES {
        let nic = builder.nic(host);
        builder.cable(nic, switches[host / 2], class);
    }
    for at in 0..SWITCHES {
        builder.cable(switches[at], switches[(at + 1) % SWITCHES], class);
    }
    builder.build()
}

/// Lossless, with buffers that fill at once.
fn settings() -> Settings {
    let mut settings = Settings {
        congestion: CcConfig::None(none::Config {}),
        buffer: BufferConfig {
            size: Bytes::from_kib(1_200),
            reserved: Bytes::new(4_158),
            alpha: 0.125,
            ..BufferConfig::default()
        },
        seed: 1,
        ..Settings::default()
    };
    settings.pfc.watchdog = Some(Span::from_ms(5));
    settings
}

/// The hosts of some switches send 4 MiB to those of the next but one.
fn run(from: std::ops::Range<usize>, settings: &Settings, faults: &[FaultConfig]) -> Outcome {
    let fabric = ring();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for host in 2 * from.start..2 * from.end {
        let to = (host + 4) % (2 * SWITCHES);
        let connection = transfers.connect(Connection {
            from: fabric.nic(host),
            to: fabric.nic(to),
            channel: 0,
            queue_pairs: 1,
        });
        transfers.send(connection, Bytes::from_mib(4), label, &[]);
    }
    let faults = Faults::new(&fabric, faults, "faults").unwrap_or_else(|e| panic!("{e:?}"));
    packetsim::run_with_faults(&fabric, &transfers, settings, &faults, &mut Watch::default())
        .expect("it can be run")
}

fn found<'a>(outcome: &'a Outcome, what: &str) -> Vec<&'a str> {
    let texts = outcome.findings.iter().map(|finding| finding.text.as_str());
    texts.filter(|text| text.starts_with(what)).collect()
}

/// Every switch of the ring waits for the next: nothing moves until the watchdog drops packets, and
/// then all is delivered.
#[test]
fn a_ring_of_clockwise_routes_deadlocks_and_is_told() {
    let mut settings = settings();
    settings.nic.timeout = Span::from_ms(10);
    let outcome = run(0..SWITCHES, &settings, &[]);
    let deadlocks = found(&outcome, "deadlock");
    assert!(!deadlocks.is_empty(), "{:?}", outcome.findings);
    // The cycle goes once round.
    assert_eq!(deadlocks[0].matches(" waits for ").count(), SWITCHES, "{deadlocks:?}");
    assert!(!found(&outcome, "ring ").is_empty(), "the watchdog acted: {:?}", outcome.findings);
    assert!(0 < outcome.counters.drops);
    assert_eq!(outcome.completed(), 2 * SWITCHES, "{:?}", outcome.findings);
}

/// With a watchdog that only tells, the run ends because its queue pairs give up, and says so.
#[test]
fn a_deadlock_that_nobody_breaks_ends_the_run() {
    let mut settings = settings();
    settings.pfc.action = WatchdogAction::Alert;
    settings.nic.timeout = Span::from_ms(2);
    settings.nic.retries = 2;
    let outcome = run(0..SWITCHES, &settings, &[]);
    assert_eq!(found(&outcome, "deadlock").len(), 1, "{:?}", outcome.findings);
    assert!(outcome.completed() < 2 * SWITCHES);
}

/// The same buffers and as much congestion, but the last two switches send nothing: the waiting
/// ends somewhere, nobody is stuck.
#[test]
fn congestion_without_a_cycle_is_no_deadlock() {
    let outcome = run(0..SWITCHES - 2, &settings(), &[]);
    assert!(100 < outcome.counters.pauses, "{}", outcome.counters.pauses);
    assert_eq!(outcome.completed(), 2 * (SWITCHES - 2));
    assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
}

/// A NIC that pauses without end is named, once, however many ports wait because of it.
#[test]
fn a_storm_is_traced_to_its_nic() {
    let storm = FaultConfig {
        at: Span::ZERO,
        until: None,
        lasting: Some(Span::from_ms(3)),
        on: "NIC 5".to_owned(),
        what: FaultKind::PauseStorm,
    };
    let outcome = run(0..SWITCHES - 2, &settings(), &[storm]);
    let storms = found(&outcome, "pause storm");
    assert_eq!(storms.len(), 1, "{:?}", outcome.findings);
    assert!(storms[0].contains("NIC 5"), "{storms:?}");
    assert!(found(&outcome, "deadlock").is_empty());
    assert_eq!(outcome.completed(), 2 * (SWITCHES - 2), "{:?}", outcome.findings);
}
