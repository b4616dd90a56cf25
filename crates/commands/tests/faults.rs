//! Faults in the middle of steps: every kind, rerouting by transport, fail-over, and restarts.

use commands::Engine;
use commands::packets::Patience;
use commands::run_job::{self, Disturbed, Report};
use packetsim::Watch;
use scenario::{Loaded, Purpose, Request, load};

fn loaded(set: &[&str]) -> Loaded {
    let set = set.iter().chain(&["jitter.mean=0"]).map(|set| (*set).to_owned()).collect();
    let scenario = Some("small-128".to_owned());
    let purpose = Purpose::Run(Engine::Flow);
    load(&Request { scenario, set, purpose, ..Request::default() }).expect("it is valid")
}

fn run(set: &[&str]) -> Report {
    let mut watch = Watch::default();
    run_job::run_once(&loaded(set), Engine::Flow, Patience::Usual, true, &mut watch)
        .expect("it runs")
}

fn fault(on: &str, when: &str, what: &str) -> String {
    format!("faults=[{{on=\"{on}\",{when},what={{{what}}}}}]")
}

fn disturbed(set: &[&str]) -> Disturbed {
    run(set).whole.expect("it is whole").disturbed.expect("something comes or goes")
}

const DOWN: &str = "kind=\"link-down\"";
const FOR_2S: &str = "at=\"5s\",for=\"2s\"";
const TWO_PORTS: [&str; 2] = ["fabric.topology=dual-plane", "cluster.ports_per_nic=2"];

/// A GPU at half its speed all the time is what the scenario calls a straggler; for a fifth of the
/// step it costs about a fifth of that.
#[test]
fn a_slow_gpu_slows_its_step_while_it_is_slow() {
    let slow = "kind=\"slow-gpu\",speed=0.5";
    let always = run(&[&fault("GPU 0", "at=\"0s\"", slow)]);
    let straggler = run(&["stragglers=[{gpu={stage=0,speed=0.5}}]"]);
    let apart = always.step_s / straggler.step_s - 1.0;
    assert!(apart.abs() < 0.002, "{} {}", always.step_s, straggler.step_s);
    let whole = always.whole.unwrap();
    let without = whole.undisturbed_s.unwrap();
    let most = whole.disturbed.unwrap();
    // It stays slow: the step after it is as long.
    assert!((most.steps[1].step_s / most.steps[0].step_s - 1.0).abs() < 0.01, "{most:?}");
    let some = disturbed(&[&fault("GPU 0", "at=\"0s\",for=\"3s\"", slow)]);
    assert!(0.0 < some.cost_s && some.cost_s < always.step_s - without, "{some:?}");
    assert!(some.cost_s <= 1.5 + 0.01, "half of 3 s is lost at most: {some:?}");
    let elsewhere = disturbed(&[&fault("GPU 0", "at=\"900s\"", slow)]);
    assert_eq!(elsewhere.cost_s, 0.0);
}

/// A NIC with one port that moves half is a link at half its rate; with two ports each has half.
#[test]
fn a_slow_nic_is_a_slow_link() {
    let cost = |set: &[&str], on: &str, what: &str| {
        let fault = fault(on, FOR_2S, what);
        disturbed(&[set, &[&fault]].concat()).cost_s
    };
    let nic = cost(&[], "NIC 0", "kind=\"slow-nic\",rate=\"200Gbps\"");
    let link = cost(&[], "NIC 0", "kind=\"degraded\",rate=\"200Gbps\"");
    assert!((nic - link).abs() < 1e-6 && 0.4 < nic, "{nic} {link}");
    let both = cost(&TWO_PORTS, "NIC 0", "kind=\"slow-nic\",rate=\"200Gbps\"");
    let each = cost(&TWO_PORTS, "NIC 0", "kind=\"degraded\",rate=\"100Gbps\"");
    assert!((both - each).abs() < 1e-6 && 0.5 < both, "{both} {each}");
}

/// The step that is hit and the one after it.
#[test]
fn the_step_after_the_fault_is_as_long_as_ever() {
    let hit = disturbed(&[&fault("NIC 0", "at=\"20s\",for=\"2s\"", DOWN)]);
    let costs: Vec<f64> = hit.steps.iter().map(|step| step.cost_s).collect();
    assert!(hit.steps[0].undisturbed_s < 20.0 && costs.len() == 3, "{hit:?}");
    assert!(costs[0].abs() < 1e-6 && costs[2].abs() < 0.01, "{costs:?}");
    // What was lost is sent again after 4.295 s, when the link has been back for half of that.
    assert!((costs[1] - 4.295).abs() < 0.05, "{costs:?}");
    assert!(hit.restart.is_none());
}

/// Retries end after eight timeouts of 4.096 µs · 2²⁰; the job starts again from its checkpoint.
#[test]
fn a_link_that_stays_down_ends_the_job() {
    let forever = fault("NIC 0", "at=\"5s\",for=\"100s\"", DOWN);
    let ended = disturbed(&[&forever]);
    let restart = ended.restart.clone().expect("retries end");
    let retries = 8.0 * 4.096e-6 * f64::from(1 << 20);
    // It was busy when the link went down, or soon after.
    assert!((5.0..5.5).contains(&(restart.at_s - retries)), "{restart:?}");
    assert!(restart.why.contains("NIC 0"), "{restart:?}");
    let parts = restart.lost_s + restart.redone_s + restart.detection_s + restart.restart_s;
    assert!((restart.cost_s - parts).abs() < 1e-9 && (ended.cost_s - parts).abs() < 1e-6);
    assert!((restart.detection_s, restart.restart_s) == (300.0, 300.0), "{restart:?}");
    // With more retries than the fault lasts it waits.
    let waits = disturbed(&[&forever, "network.nic.retries=100"]);
    assert!(waits.restart.is_none(), "{waits:?}");
    assert!((99.5..104.5).contains(&waits.cost_s), "until the timer after 100 s: {waits:?}");
    // Where the other copies go on, all wait for the stall.
    let elastic = disturbed(&[&forever, "reliability.data_parallel=elastic"]);
    assert_eq!(elastic.restart.unwrap().restart_s, 180.0);
}

#[test]
fn a_lost_gpu_or_server_ends_the_job_at_once() {
    let of = |on: &str, kind: &str| {
        disturbed(&[&fault(on, "at=\"7s\"", &format!("kind=\"{kind}\""))]).restart
    };
    let lost = of("GPU 9", "gpu-down").expect("it is the job's");
    assert_eq!((lost.at_s, lost.step, lost.lost_s), (7.0, 0, 7.0));
    assert_eq!(of("server 3", "server-down").expect("it is the job's").at_s, 7.0);
    // A server that the job has not got.
    let spare = fault("server 16", "at=\"7s\"", "kind=\"server-down\"");
    let spare = disturbed(&[&spare, "cluster.gpus=256"]);
    assert!(spare.restart.is_none() && spare.cost_s.abs() < 1e-6, "{spare:?}");
}

/// One port of two: a bond moves its queue pairs when routes follow, the library when their retries
/// are over, and without fail-over they wait.
#[test]
fn queue_pairs_leave_a_dead_port_as_the_scenario_says() {
    let one_port = fault("NIC 0 port 0", FOR_2S, DOWN);
    let retries = ["network.nic.timeout=100ms", "network.nic.retries=2"];
    let cost = |failover: &str| {
        let failover = format!("network.nic.failover={failover}");
        disturbed(&[&TWO_PORTS[..], &retries, &[&one_port, &failover]].concat())
    };
    let bond = cost("bond");
    assert!((bond.cost_s - 0.1).abs() < 0.01, "one timeout: {bond:?}");
    let library = cost("library");
    assert!(library.restart.is_none(), "{library:?}");
    assert!((library.cost_s - 0.31).abs() < 0.02, "three timeouts and a probe: {library:?}");
    let none = cost("none");
    let restart = none.restart.expect("nothing moves them");
    assert!((5.3..5.4).contains(&restart.at_s), "{restart:?}");
}

/// Static routes wait for the subnet manager; adaptive ones, and hashes, for the port alone.
#[test]
fn rerouting_takes_what_the_transport_takes() {
    let link = fault("leaf 3 - spine 0", "at=\"5s\",for=\"3s\"", DOWN);
    let cost = |set: &[&str]| disturbed(&[set, &[&link]].concat()).cost_s;
    let subnet = ["network.transport=infiniband", "network.routing.policy=static-up-down"];
    let timers = ["network.nic.timeout=50ms", "network.nic.retries=100"];
    let of = |spans: &str| cost(&[&subnet[..], &timers, &[spans]].concat());
    let [soon, later] =
        ["200ms", "1200ms"].map(|span| of(&format!("network.routing.recomputation={span}")));
    assert!((later - soon - 1.0).abs() < 0.2, "{soon} {later}");
    // By default it takes longer than the fault lasts.
    assert!((of("network.routing.detection=1ms") - 3.0).abs() < 0.1);
}

/// A link that is away for a while in the middle of the last exchange: both engines wait for the
/// timer, as often as it takes.
#[test]
fn packets_and_flows_wait_for_the_same_timer() {
    let model =
        "job.model={layers=2,hidden=4096,ffn=16384,heads=32,kv_heads=8,head_dim=128,vocab=512}";
    let away = |lasting: &str| fault("NIC 0", &format!("at=\"61ms\",for=\"{lasting}\""), DOWN);
    let step = |engine: Engine, set: &[&str]| {
        let common = [model, "job.batch.sequences=16", "network.nic.timeout=20ms"];
        let set = [&common[..], &["jitter.mean=0"], set].concat();
        let set = set.iter().map(|set| (*set).to_owned()).collect();
        let (scenario, purpose) = (Some("small-16".to_owned()), Purpose::Run(engine));
        let request = Request { scenario, set, purpose, ..Request::default() };
        let loaded = load(&request).expect("it is valid");
        let mut watch = Watch::default();
        let ran = run_job::run_once(&loaded, engine, Patience::Usual, true, &mut watch);
        ran.expect("it runs").step_s
    };
    for engine in [Engine::Flow, Engine::Packet] {
        let none = step(engine, &[]);
        for (lasting, cost) in [("2ms", 0.020), ("30ms", 0.040)] {
            let more = step(engine, &[&away(lasting)]) - none;
            assert!((more - cost).abs() < 1e-6, "{engine:?}, {lasting}: {more} against {cost}");
        }
    }
}

#[test]
fn both_parts_alike_are_the_undivided_fabric() {
    let step = |set: &[&str]| run(set).step_s;
    let whole = step(&[]);
    let alike = [
        "network.transport_of_tier={spine=\"rocev2\"}",
        "network.routing.policy_of_tier={spine=\"ecmp\",leaf=\"ecmp\"}",
        "network.routing.policy=ecmp",
    ];
    let undivided = step(&alike[2..]);
    assert!((step(&alike) / undivided - 1.0).abs() < 1e-9);
    assert!((step(&alike[..1]) / whole - 1.0).abs() < 0.01);
}

/// InfiniBand below and RoCE above: headers, policy and gateway of each part count.
#[test]
fn parts_have_their_own_transport_and_policy() {
    let step = |set: &[&str]| run(set).step_s;
    let zones = ["network.transport=infiniband", "network.routing.policy=infiniband-adaptive"];
    let alone = step(&zones);
    let joined = "network.transport_of_tier={spine=\"rocev2\"}";
    let slow = "network.gateway.rate=100Gbps";
    let [joined_s, slow_s] =
        [&[joined][..], &[joined, slow]].map(|set| step(&[&zones[..], set].concat()));
    assert!(alone <= joined_s && joined_s < slow_s, "{alone} {joined_s} {slow_s}");
    // Leaves that hash what climbs collide, as on a fabric of hashes.
    let hashed = "network.routing.policy_of_tier={leaf=\"ecmp\"}";
    let hashed = step(&[&zones[..], &[hashed]].concat());
    let ecmp = step(&[zones[0], "network.routing.policy=ecmp"]);
    assert!((hashed / ecmp - 1.0).abs() < 0.01 && alone < hashed, "{alone} {hashed} {ecmp}");
}

/// A fault is one event: not what every step of the day costs, and no reason to change paths.
#[test]
fn a_fault_is_told_as_one_event_with_what_would_lower_it() {
    let hit = run(&[&fault("NIC 0", FOR_2S, DOWN)]);
    let calm = run(&[]);
    let (told, usual) = (&hit.verdict, &calm.verdict);
    let cost = "Faults that come or go cost 4.292s, once, $0.23 of the job's machines: NIC 0 link-down \
                from 5.000s to 7.000s.";
    assert!(told.text.starts_with(cost), "{}", told.text);
    assert!(told.text.contains("timer is over, 4.295s (network.nic.timeout)"), "{}", told.text);
    assert!(told.text.contains(" to 4.294s at 7 over the step."), "{}", told.text);
    let tried = hit.whole.as_ref().unwrap().disturbed.as_ref().unwrap().instants.clone();
    assert_eq!(tried.len(), 7);
    // Each is what the fault costs that comes then.
    let second = format!("at=\"{}s\",for=\"2s\"", tried[1].at_s);
    let then = disturbed(&[&fault("NIC 0", &second, DOWN)]).cost_s;
    assert!((tried[1].cost_s - then).abs() < 1e-6, "{tried:?} {then}");
    assert!((told.fabric_s - usual.fabric_s).abs() < 1e-3, "{told:?} {usual:?}");
    let share = told.fabric_usd_per_day / usual.fabric_usd_per_day;
    assert!((share - 1.0).abs() < 0.01, "{share}");
    let [timer, second, ..] = &told.levers[..] else { panic!("{:?}", told.levers) };
    // Seven times 4.096 µs · 2^17 is the shortest that outlasts two seconds.
    assert_eq!(timer.set, ["network.nic.timeout=536870912ns", "network.nic.retries=7"]);
    assert_eq!(timer.name, "a timer of 537ms (NCCL_IB_TIMEOUT 17)");
    assert!(second.set.contains(&"cluster.aggregation=dual-tor".to_owned()), "{second:?}");
    assert_eq!(told.levers[2..].len(), usual.levers.len());
    for (lever, usual) in told.levers[2..].iter().zip(&usual.levers) {
        let apart = lever.most_s - usual.most_s;
        assert!(lever.name == usual.name && apart.abs() < 0.01, "{lever:?} {usual:?}");
    }
    let again = "fatflow run small-128 --set 'faults=[{";
    assert!(timer.command.starts_with(again), "{}", timer.command);
    // What is named lowers it.
    let outage = fault("NIC 0", FOR_2S, DOWN);
    let with = |lever: &commands::run_job::Lever| {
        let own = lever.set.iter().map(String::as_str);
        let set: Vec<&str> = std::iter::once(&*outage).chain(own).collect();
        disturbed(&set).cost_s
    };
    let costs = [with(timer), with(second)];
    assert!(costs[0] < 2.6 && costs[1] < 0.7, "{costs:?}");
}

/// One that costs nothing says when the link is used, and there it costs.
#[test]
fn a_fault_that_costs_nothing_says_when_it_would() {
    let set = ["job.parallel={tp=8,pp=4,dp=4,sharding=\"zero1\"}", "job.batch.sequences=64"];
    let at = |when: &str| {
        let fault = fault("leaf 0 - spine 0", when, DOWN);
        run(&[set[0], set[1], &fault])
    };
    let none = at("at=\"2s\",for=\"10ms\"");
    let text = &none.verdict.text;
    let words = "Faults that come or go cost nothing: leaf 0 - spine 0 (4 cables) link-down";
    assert!(text.starts_with(words), "{text}");
    assert!(text.contains("Nothing crosses leaf 0 - spine 0 (4 cables) then"), "{text}");
    let whole = none.whole.unwrap().disturbed.unwrap();
    let (from, until) = *whole.faults[0].used_s.last().unwrap();
    assert!(2.01 < from && from < until, "{:?}", whole.faults);
    let middle = (from + until) / 2.0;
    let hit = at(&format!("at=\"{middle}s\",for=\"10ms\""));
    assert!(0.5 < hit.whole.unwrap().disturbed.unwrap().cost_s, "at {middle}");
}
