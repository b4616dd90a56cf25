//! A step by cause: the causes add up to it, and each leads where it should.

use commands::packets::Patience;
use commands::{Engine, run_job};
use scenario::{Purpose, Request, load};

fn step(preset: &str, engine: Engine, set: &[&str]) -> run_job::Report {
    step_on(preset, engine, set, false)
}

fn step_on(preset: &str, engine: Engine, set: &[&str], whole: bool) -> run_job::Report {
    let request = Request {
        scenario: Some(preset.to_owned()),
        set: set.iter().map(|set| (*set).to_owned()).collect(),
        purpose: Purpose::Run(engine),
        ..Request::default()
    };
    let loaded = load(&request).unwrap_or_else(|problems| panic!("{preset}: {problems}"));
    let mut watch = packetsim::Watch::default();
    run_job::run_once(&loaded, engine, Patience::Usual, whole, &mut watch).unwrap()
}

fn adds_up(preset: &str, engine: Engine) {
    let report = step(preset, engine, &[]);
    let (causes, axes) = (report.causes_s.total(), report.breakdown_s.total());
    assert!((causes - axes).abs() < 1e-9, "{preset}, {}: {causes} {axes}", engine.name());
    assert_eq!(axes, report.step_s);
    for (name, seconds) in report.causes_s.named() {
        assert!(0.0 <= seconds, "{preset}, {}: {name} {seconds}", engine.name());
    }
}

#[test]
fn causes_add_up_on_every_preset_by_closed_forms() {
    for preset in scenario::preset::names().filter(|name| !name.contains('/')) {
        adds_up(preset, Engine::Analytic);
    }
}

#[test]
fn causes_add_up_on_every_preset_with_flows() {
    for preset in scenario::preset::names().filter(|name| !name.contains('/')) {
        adds_up(preset, Engine::Flow);
    }
}

#[test]
fn causes_add_up_with_packets() {
    adds_up("small-16", Engine::Packet);
    adds_up("small-128", Engine::Packet);
}

const ADAPTIVE: &str = "network.routing.policy=adaptive";

#[test]
fn line_rate_leads_where_nothing_is_wrong() {
    let report = step("small-128", Engine::Flow, &[ADAPTIVE]);
    assert_eq!(report.causes_s.leads().0, "line rate", "{:?}", report.causes_s);
}

#[test]
fn plain_ecmp_makes_collisions_lead() {
    let report = step("small-128", Engine::Flow, &["network.routing.policy=ecmp"]);
    assert_eq!(report.causes_s.leads().0, "hash collisions", "{:?}", report.causes_s);
}

#[test]
fn slow_switches_make_latency_lead() {
    let slow = ["fabric.leaf.latency=100ms", "fabric.spine.latency=100ms", ADAPTIVE];
    let report = step("small-128", Engine::Flow, &slow);
    assert_eq!(report.causes_s.leads().0, "launch and latency", "{:?}", report.causes_s);
}

#[test]
fn one_slow_gpu_makes_stragglers_lead() {
    let slow = [ADAPTIVE, "stragglers=[{gpu={stage=0,speed=0.5}}]"];
    let report = step("small-128", Engine::Flow, &slow);
    assert_eq!(report.causes_s.leads().0, "stragglers", "{:?}", report.causes_s);
}

#[test]
fn few_credits_on_long_cables_make_stalls_lead() {
    let set = [
        "network.transport=infiniband",
        "network.routing.policy=infiniband-adaptive",
        "fabric.links=[{length=\"300m\"},{length=\"300m\"}]",
        "network.credits.buffer=16KiB",
        "network.packet.phase_bytes=4MiB",
    ];
    let report = step("small-128", Engine::Packet, &set);
    assert_eq!(report.causes_s.leads().0, "pauses or credit stalls", "{:?}", report.causes_s);
}

/// On one clock the same causes lead as by phases, and they add up there too.
#[test]
fn causes_lead_alike_on_one_clock() {
    let slow = [ADAPTIVE, "stragglers=[{gpu={stage=0,speed=0.5}}]"];
    let worlds: [(&[&str], &str); 3] = [
        (&[ADAPTIVE], "line rate"),
        (&["network.routing.policy=ecmp"], "hash collisions"),
        (&slow, "stragglers"),
    ];
    for (set, leader) in worlds {
        let report = step_on("small-128", Engine::Flow, set, true);
        assert_eq!(report.causes_s.leads().0, leader, "{set:?}: {:?}", report.causes_s);
        let (causes, axes) = (report.causes_s.total(), report.breakdown_s.total());
        assert!((causes - axes).abs() < 1e-9, "{set:?}: {causes} {axes}");
        assert!(report.causes_s.named().iter().all(|(_, seconds)| 0.0 <= *seconds), "{set:?}");
    }
}

/// What a tier cannot carry, all its links carrying alike, is its boundary.
#[test]
fn a_boundary_shows_where_a_tier_is_narrow() {
    let narrow = ["fabric.oversubscription=[8]", ADAPTIVE];
    let report = step("small-128", Engine::Flow, &narrow);
    assert_eq!(report.causes_s.leads().0, "tier or zone boundary", "{:?}", report.causes_s);
}
