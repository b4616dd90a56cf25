//! A run that would take more than it may ends with a sentence, wherever it is.

use std::cell::Cell;

use fabric::Fabric;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use packetsim::cc::{CcConfig, none};
use packetsim::limits::Refusal;
use packetsim::settings::Settings;
use packetsim::{Watch, run, run_measured, run_watched};
use traffic::{Connection, Outcome, Transfers};
use units::room::Asked;
use units::{Bytes, Rate, Span};

/// Sixteen hosts whose cables hold some 5,000 packets each.
fn fabric() -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let (rate, delay) = (Some(Rate::from_gbps(400)), Some(Span::from_us(100)));
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(4),
        links: vec![LinkConfig { rate, delay, length: None }; 3],
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).expect("it is well-formed")
}

/// From each host to the one that is eight further.
fn shift(fabric: &Fabric) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("shift");
    for host in 0..16 {
        let (from, to) = (fabric.nic(host), fabric.nic((host + 8) % 16));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 0 });
        transfers.send(connection, Bytes::from_mib(20), label, &[]);
    }
    transfers
}

fn settings(threads: u32) -> Settings {
    let congestion = CcConfig::None(none::Config {});
    let mut settings = Settings { congestion, ..Settings::default() };
    settings.packet.threads = Some(threads);
    settings
}

fn bounded(
    settings: &Settings,
    bound: impl Fn() -> Asked + 'static,
) -> (Result<Outcome, Refusal>, usize) {
    let fabric = fabric();
    let transfers = shift(&fabric);
    let mut watch = Watch { bound: Some(Box::new(bound)), ..Watch::default() };
    let ran = run_watched(&fabric, &transfers, settings, &mut watch);
    (ran, watch.threads)
}

/// Packets under way ask for room as they grow, on one thread and on several.
#[test]
fn packets_end_a_run_before_they_take_too_much() {
    for threads in [1, 2] {
        let (ran, _) = bounded(&settings(threads), || Ok(Some(700_000)));
        let text = ran.unwrap_err().to_string();
        assert!(text.starts_with("the run was ended"), "{text}");
        assert!(text.contains("packets under way need ") && text.contains("are left"), "{text}");
        assert!(text.contains("--engine flow has no packets"), "{text}");
    }
}

/// A bound that is not reached changes nothing.
#[test]
fn a_bound_that_is_wide_changes_nothing() {
    let fabric = fabric();
    let transfers = shift(&fabric);
    for threads in [1, 2] {
        let free = run(&fabric, &transfers, &settings(threads)).unwrap();
        let (held, used) = bounded(&settings(threads), || Ok(Some(1 << 40)));
        assert_eq!((held.unwrap().digest, used), (free.digest, threads as usize));
    }
}

/// Whoever says that it must end is heard before the run and every 65,536 events.
#[test]
fn a_run_is_asked_for_again_and_again() {
    let (ran, _) = bounded(&settings(1), || Err("not today".to_owned()));
    assert_eq!(ran.unwrap_err().to_string(), "the run was ended as it began: not today");
    for threads in [1, 2] {
        let asked = Cell::new(0);
        let (ran, _) = bounded(&settings(threads), move || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Ok(None) } else { Err("enough".to_owned()) }
        });
        let refusal = ran.unwrap_err();
        let Refusal::BeyondBound { why, reached: Some(reached) } = &refusal else {
            panic!("{refusal}")
        };
        assert_eq!(why, "enough");
        // It looked once as it began, and then twice.
        assert!((131_072..400_000).contains(&reached.events), "{reached:?}");
        assert!(Span::ZERO < reached.at.since(units::Time::ZERO));
    }
}

/// What a run takes at the least is refused before anything is built, measured or not.
#[test]
fn what_cannot_even_begin_is_refused() {
    let (ran, _) = bounded(&settings(1), || Ok(Some(1_000)));
    let text = ran.unwrap_err().to_string();
    assert!(text.contains("as it began: its ports and queue pairs need "), "{text}");
    let fabric = fabric();
    let mut watch = Watch { bound: Some(Box::new(|| Ok(Some(1_000)))), ..Watch::default() };
    let (faults, measure) = Default::default();
    let ran = run_measured(&fabric, &shift(&fabric), &settings(1), &faults, &measure, &mut watch);
    assert!(matches!(ran, Err(Refusal::BeyondBound { reached: None, .. })));
}
