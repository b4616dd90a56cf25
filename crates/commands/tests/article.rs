//! What the article's words come to: traffic by pass, targets, racks, growing, told readings,
//! claims that can fail.

use commands::claims::{self, Verdict};
use commands::compare::DEPLOYMENTS;
use commands::operations::Operations;
use commands::packets::Patience;
use commands::{Engine, run_job, targets, told, topo, traffic};
use fabric::cost::BillLine;
use scenario::{Loaded, Purpose, Request, load, preset};

fn loaded(scenario: &str, purpose: Purpose, set: &[&str]) -> Loaded {
    let scenario = Some(scenario.to_owned());
    let set = set.iter().map(|set| (*set).to_owned()).collect();
    let request = Request { scenario, set, purpose, ..Request::default() };
    load(&request).unwrap_or_else(|problems| panic!("{problems}"))
}

fn fabric(scenario: &str, set: &[&str]) -> Loaded {
    loaded(scenario, Purpose::Topology, set)
}

#[test]
fn passes_add_up_to_the_bytes_of_a_step() {
    for scenario in ["small-128", "deepseek-v2", "claims/deepseek-limited", "mixtral-h100"] {
        let wire = traffic::run(&loaded(scenario, Purpose::Wire, &[])).unwrap();
        let sum: f64 = wire.by_pass.values().sum();
        assert!((sum / wire.bytes_per_step - 1.0).abs() < 1e-9, "{scenario}: {sum}");
        for pass in &wire.passes {
            let own = wire.by_pass[pass.pass];
            assert!((pass.bytes - own).abs() <= 1e-6 * own.max(1.0), "{scenario}: {pass:?}");
        }
        let keys: Vec<&str> = wire.by_pass.keys().copied().collect();
        assert_eq!(keys, ["backward", "expert", "forward", "optimizer"]);
    }
}

/// Oracle: tokens of an expert group of 32 on one rail each come from the 31 others' servers.
#[test]
fn all_to_all_has_the_most_senders() {
    let wire = traffic::run(&loaded("claims/deepseek-limited", Purpose::Wire, &[])).unwrap();
    let of = |name: &str| wire.profile.iter().find(|row| row.primitive == name).unwrap();
    assert!(of("send_recv").fan_in < of("all_to_all").fan_in);
    for row in &wire.profile {
        assert!((0.0..=1.0).contains(&row.entropy) && 0.0 < row.max_link_bytes, "{row:?}");
        assert!(row.max_link_bytes <= wire.by_primitive[row.primitive], "{row:?}");
    }
}

#[test]
fn targets_are_met_or_missed_by_name() {
    let wanted = ["targets.rack=5us", "targets.inter_rack=1ns", "targets.oversubscription=1.0"];
    let found = topo::run(&fabric("small-128", &wanted));
    let rows: Vec<(&str, bool)> =
        found.targets.iter().map(|row| (row.name.as_str(), row.met)).collect();
    assert_eq!(rows, [("rack_us", true), ("inter_rack_us", false), ("oversubscription", true)]);
    assert!(!targets::all_met(&found.targets));
    assert_eq!(found.targets[0].got, found.latency_us.rack);
    let latency = found.latency_us;
    assert!(latency.server < latency.rack && latency.rack < latency.across, "{latency:?}");
    let step = fabric("small-128", &["targets.mfu=0.9"]);
    let unused: Vec<&str> = step.unused.iter().map(|unused| unused.key.as_str()).collect();
    assert!(unused.contains(&"targets.mfu"), "{unused:?}");
}

#[test]
fn racks_hold_no_more_than_they_may() {
    for name in preset::names() {
        let found = topo::run(&fabric(name, &[])).racks.held;
        assert!(0 < found.racks && found.power_w <= found.limit_w, "{name}: {found:?}");
    }
    let tight = topo::run(&fabric("small-128", &["racks.power_w=25000"])).racks.held;
    let two = topo::run(&fabric("small-128", &["racks.servers=2"])).racks.held;
    assert_eq!((tight.servers, tight.racks), (two.servers, two.racks));
    assert_eq!(topo::run(&fabric("small-128", &["racks.power_w=100"])).racks.held.racks, 0);
}

/// Oracle: 128 servers, two to a rack of 64; the leaves of 32 NICs have four servers, so two racks.
#[test]
fn cables_follow_from_rows_unless_their_length_is_given() {
    let of = |set: &[&str]| {
        let found = topo::run(&fabric("small-1024", set));
        let cables = found.racks.cables.iter().map(|row| (row.from, row.length_m));
        (cables.collect::<Vec<_>>(), found.latency_us.across.unwrap(), found.summary.cost_usd)
    };
    let (usual, _, _) = of(&[]);
    assert!(usual.iter().all(|(from, _)| *from == "usual"), "{usual:?}");
    let (rows, near, cheap) = of(&["racks.servers=2"]);
    assert!(rows.iter().all(|(from, _)| *from == "rows") && rows[0].1 < rows[1].1, "{rows:?}");
    let (long, far, dear) = of(&["racks.servers=2", "racks.per_row=64", "racks.rack_m=6.0"]);
    assert!(rows[1].1 < long[1].1 && near < far && cheap < dear, "{rows:?} {long:?}");
    let (said, _, _) = of(&["racks.servers=2", "fabric.links=[{length=\"7m\"}]"]);
    assert_eq!((said[0], said[1].0), (("given", 7.0), "rows"), "{said:?}");
}

#[test]
fn what_is_kept_and_bought_is_the_second_bill() {
    let names = ["small-16", "small-128", "small-1024", "deepseek-v2", "mixtral-h100"];
    for pair in names.windows(2).chain([["small-1024", "small-16"].as_slice()]) {
        let [from, to] = [pair[0], pair[1]].map(|name| fabric(name, &[]));
        let growth = topo::grow(&from, &to);
        let whole = growth.kept_usd + growth.bought_usd;
        assert!((whole / growth.cost_usd - 1.0).abs() < 1e-9, "{pair:?}: {whole}");
        let bill = to.summary().bill;
        assert!((growth.cost_usd / bill.cost_usd - 1.0).abs() < 1e-12, "{pair:?}");
        for piece in &growth.parts {
            let is_own = |line: &&BillLine| line.part == piece.part && line.title == piece.title;
            let lines = || bill.lines.iter().filter(is_own);
            let billed: u64 = lines().map(|line| line.count).sum();
            assert_eq!(piece.kept + piece.bought, billed, "{pair:?}: {piece:?}");
            let usd: f64 = lines().map(|line| line.cost_usd).sum();
            let own = piece.kept_usd + piece.bought_usd;
            assert!((own - usd).abs() <= 1e-9 * usd.max(1.0), "{pair:?}: {piece:?}");
            assert_eq!(piece.kept + piece.bought, piece.to, "{pair:?}: {piece:?}");
            assert_eq!(piece.kept + piece.left_over, piece.from, "{pair:?}: {piece:?}");
            assert!(piece.moved <= piece.kept, "{piece:?}");
        }
    }
    let same = topo::grow(&fabric("small-128", &[]), &fabric("small-128", &[]));
    assert_eq!((same.bought_usd, same.recabled), (0.0, 0));
}

#[test]
fn every_deployment_has_a_told_reading_or_a_reason() {
    let report = told::run(&Request::default(), Engine::Analytic, Some(1), &|_| {});
    assert_eq!(report.cells.len(), 28);
    let agree = report.cells.iter().filter(|cell| cell.told_agrees).count();
    assert_eq!(agree, report.agree_told);
    for cell in &report.cells {
        let refused = report.refused.iter().any(|refused| refused.scenario.ends_with("/told"));
        assert!(cell.told.is_some() || refused, "{cell:?}");
        assert!(cell.better.is_some(), "{cell:?}");
    }
    let llama = report
        .cells
        .iter()
        .find(|cell| cell.model == "Llama 3" && cell.column == "oversubscription");
    assert!(llama.is_some_and(|cell| cell.told_agrees && !cell.better_agrees), "{llama:?}");
}

/// Oracle: every switch and every server of Ethernet; of InfiniBand one manager and the servers.
#[test]
fn operators_are_asked_for_what_the_files_say() {
    let of = |set: &[&str]| {
        let loaded = loaded("small-128", Purpose::Run(Engine::Analytic), set);
        let scenario = &loaded.scenario;
        let (cluster, catalogue) = (&scenario.cluster, &scenario.catalogue);
        let summary = fabric::summary::summary(loaded.fabric(), cluster, catalogue);
        (Operations::of(&loaded, &summary).unwrap(), summary)
    };
    let (roce, summary) = of(&[]);
    assert_eq!(roce.devices, summary.switches + summary.nodes);
    let lines: u64 = roce.files.iter().map(|file| file.devices * file.lines).sum();
    assert_eq!(roce.lines, lines);
    // Trust and pauses by `mlnx_qos`, both ends of DCQCN by `echo`.
    let nic = roce.files.iter().find(|file| file.name == "nic.sh").unwrap();
    assert_eq!((nic.devices, nic.settings), (summary.nodes, 4));
    assert!(roce.set_keys.is_empty() || !roce.set_keys.contains(&"ecn.min".to_owned()), "{roce:?}");
    let hashed = ["network.routing.policy=e-ecmp", "network.ecn.min=50KiB"];
    let (tuned, _) = of(&hashed);
    assert!(
        tuned.set_keys.contains(&"ecn.min".to_owned()),
        "closed forms do not obey it: {tuned:?}"
    );
    assert!(tuned.files.iter().any(|file| file.name == "udf-hash.txt") && roce.lines < tuned.lines);
    let (credits, _) = of(&[
        "network.transport=infiniband",
        "network.routing.policy=infiniband-adaptive",
        "fabric.leaf.switch=quantum-2",
    ]);
    assert_eq!(credits.devices, 1 + summary.nodes, "{credits:?}");
    assert!(credits.lines < roce.lines);
    let vendors = |asked: &Operations| asked.told[0].text.clone();
    assert_eq!(vendors(&credits), "NVIDIA");
    assert!(vendors(&roce).contains("Broadcom") && vendors(&roce).contains("Huawei"));
    assert!(credits.told.iter().any(|told| told.text.contains("quantum-2: reduction")));
    assert!(roce.told.iter().chain(&credits.told).all(|told| !told.source.is_empty()));
    let alone = fabric("small-128", &hashed);
    let topo = commands::topo::run(&alone).with_operations(&alone).unwrap();
    assert_eq!(topo.operations, Some(tuned), "topo counts the same");
}

/// Oracle: an expert model's exchanges come in bursts at the NIC's rate, with kernels between them.
#[test]
fn bursts_show_within_a_pass() {
    let loaded = loaded("claims/deepseek-limited", Purpose::Wire, &[]);
    let wire = traffic::run(&loaded).unwrap();
    let expert = wire.passes.iter().find(|pass| pass.pass == "expert").unwrap();
    assert!(2.0 < expert.peak_to_mean, "{} {}", expert.peak_to_mean, expert.duty_cycle);
    let own = wire.profile.iter().find(|row| row.primitive == "all_to_all").unwrap();
    assert!(1.0 < own.peak_to_mean, "{own:?}");
}

fn verdict(id: &str, set: &[&str]) -> Verdict {
    let ids = vec![id.to_owned()];
    let options = claims::Options { ids, threads: Some(1), ..claims::Options::default() };
    let set = set.iter().map(|set| (*set).to_owned()).collect();
    let base = Request { set, ..Request::default() };
    claims::run(&options, &base, &|_| {}).unwrap().claims[0].verdict
}

/// Each of these statements holds in one world and not in another.
#[test]
fn verdicts_turn_where_the_world_does() {
    // Without pauses a deep spine does not save the leaf in front of the receiver.
    assert_eq!(verdict("pfc-suffices", &[]), Verdict::Agrees);
    assert_eq!(verdict("pfc-suffices", &["network.pfc.enabled=false"]), Verdict::Disagrees);
    // Two hosts make no incast: no queue for marks to hold down.
    assert_eq!(verdict("hbm-injects", &[]), Verdict::Agrees);
    assert_ne!(verdict("hbm-injects", &["traffic.hosts=2"]), Verdict::Agrees);
    // Small chunks leave switches waiting for the next one.
    let small = "library.aggregation.chunk=1KiB";
    assert_eq!(verdict("in-network-largest", &[]), Verdict::Agrees);
    assert_eq!(verdict("in-network-largest", &[small]), Verdict::Disagrees);
}

/// Published: the MFU of the deployments, by the best source of each; within a tenth of it. Nobody
/// has published one of the last, and its preset says so.
#[test]
fn deployments_reach_what_their_best_sources_say() {
    for name in DEPLOYMENTS {
        let loaded = loaded(name, Purpose::Run(Engine::Analytic), &[]);
        let mut watch = packetsim::Watch::default();
        let found = run_job::run(&loaded, Engine::Analytic, Patience::Usual, &mut watch).unwrap();
        let all = &loaded.scenario.reported;
        let said = all.iter().find(|reported| reported.metric == "mfu");
        let Some(low) = said.and_then(|reported| reported.value) else {
            assert!(all.iter().any(|one| one.note.contains("nobody has published an MFU")));
            continue;
        };
        let high = said.and_then(|reported| reported.high).unwrap_or(low);
        assert!((0.9 * low..=1.1 * high).contains(&found.mfu), "{name}: {} {low}", found.mfu);
    }
}
