//! Speed by scenario: packet-hops per CPU second, memory, and the digest of each run.
//!
//! `cargo bench -p packetsim -- permutation-128` runs one of them; without a name, the small ones.
//! `-- transports` runs permutation-128 under every transport and every congestion control, and
//! says what a packet-hop costs beside RoCE with DCQCN; `-- transports:uec` only one of them.
//! `--threads=2` runs each on so many threads.
//! `--off` simulates what could be computed, `--bounded` computes more (`network.packet.forward`);
//! `--against` runs each whole and bounded, and says how far apart completions are.
//! With `--guard` it fails if the engine has become much slower, whatever the machine: what counts
//! is its events per second over those of an undressed loop in the same process.
//! CPU time comes from Linux's `/proc`; elsewhere it shows as zero.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "threads are measured by the clock on the wall")]

use std::time::Instant;

use fabric::Fabric;
use fabric::hardware::Catalogue;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TierConfig, TopologyKind, build};
use fabric::transport::Transport;
use packetsim::cc::{CcConfig, dcqcn, hpcc, none};
use packetsim::packet::Forward;
use packetsim::{Settings, Watch};
use traffic::collective::{Collective, Communicator, Detail, Group, Limit, Wanted, lower};
use traffic::nccl;
use traffic::{Connection, Transfers};
use units::{Bytes, Random, Rate, Span};

/// A link of 400G.
fn cable(delay: Span) -> LinkConfig {
    LinkConfig { rate: Some(Rate::from_gbps(400)), delay: Some(delay), length: None }
}

/// Sixteen servers of eight GPUs and NICs, as the preset `small-128` has them: cables of 3 m to the
/// leaf and of 30 m above, half a microsecond in each switch.
fn servers(topology: TopologyKind) -> Fabric {
    let cluster = ClusterConfig { gpus: Some(128), ..ClusterConfig::default() };
    let tier = TierConfig { latency: Some(Span::from_ns(500)), ..TierConfig::default() };
    let config = FabricConfig {
        topology,
        tiers: Some(2),
        radix: Some(32),
        links: vec![cable(Span::from_ps(15_000)), cable(Span::from_ps(151_500))],
        leaf: tier.clone(),
        spine: tier,
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Catalogue::default()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A collective by rings in so many groups of GPUs, the members of each as far apart.
fn rings(fabric: &Fabric, collective: Collective, groups: usize, bytes: Bytes) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("collective");
    let settings = nccl::Settings { algorithm: Some("ring".to_owned()), ..Default::default() };
    for group in 0..groups {
        let gpus = (group..fabric.gpus()).step_by(groups);
        let gpus: Vec<_> = gpus.map(|gpu| fabric.gpu(gpu)).collect();
        let mut group = Group::new(Communicator::new(fabric, &gpus));
        let wanted = Wanted {
            collective,
            bytes,
            settings: &settings,
            detail: Detail::Stepwise,
            weights: &[],
            limit: Limit::NONE,
            label,
        };
        lower(fabric, &mut group, &wanted, &mut transfers, &[]).expect("a ring runs anywhere");
    }
    transfers
}

fn fat_tree(k: u32, hosts: u64) -> Fabric {
    fat_tree_of(k, hosts, [Span::from_us(1); 3])
}

/// A fat tree whose cables take so long, from the host up.
fn fat_tree_of(k: u32, hosts: u64, delays: [Span; 3]) -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(hosts),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let tier = TierConfig { latency: Some(Span::ZERO), ..TierConfig::default() };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(k),
        links: delays.map(cable).to_vec(),
        leaf: tier.clone(),
        spine: tier.clone(),
        core: tier,
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Catalogue::default()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn sends(fabric: &Fabric, flows: impl Iterator<Item = (usize, usize)>, bytes: u64) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for (from, to) in flows {
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::new(bytes), label, &[]);
    }
    transfers
}

/// Everybody sends to one other and receives from one other.
fn permutation(fabric: &Fabric, hosts: usize, bytes: u64) -> Transfers {
    let mut order: Vec<usize> = (0..hosts).collect();
    Random::new(1, "permutation", 0).shuffle(&mut order);
    let next = |at: usize| (order[at], order[(at + 1) % hosts]);
    sends(fabric, (0..hosts).map(next), bytes)
}

/// What `--off` and `--bounded` ask for.
fn forward() -> Forward {
    let asks = |flag: &str| std::env::args().any(|arg| arg == flag);
    match (asks("--off"), asks("--bounded")) {
        (true, _) => Forward::Off,
        (_, true) => Forward::Bounded,
        _ => Forward::Exact,
    }
}

fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    ns / 1e9
}

/// CPU time of all threads, in steps of ten milliseconds.
fn cpu_of_all_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2);
    ticks.filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// What `--threads=` asks for.
fn threads() -> Option<u32> {
    let asked = |arg: String| arg.strip_prefix("--threads=").and_then(|text| text.parse().ok());
    std::env::args().find_map(asked)
}

fn peak_mb() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("");
    let kb: f64 = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
    kb / 1e3
}

/// A scenario's fabric and what moves on it.
fn scenario(name: &str) -> (Fabric, Transfers) {
    match name {
        "permutation-128" => {
            let fabric = fat_tree(8, 128);
            let transfers = permutation(&fabric, 128, 8 << 20);
            (fabric, transfers)
        }
        "permutation-1024" => {
            let fabric = fat_tree(16, 1024);
            let transfers = permutation(&fabric, 1024, 8 << 20);
            (fabric, transfers)
        }
        "permutation-8192" => {
            let fabric = fat_tree(32, 8192);
            let transfers = permutation(&fabric, 8192, 2_000_000);
            (fabric, transfers)
        }
        "incast-32" => {
            let fabric = fat_tree(8, 128);
            let transfers = sends(&fabric, (1..33).map(|from| (from, 0)), 1 << 20);
            (fabric, transfers)
        }
        "incast-step" | "incast-random" | "incast-hpcc" | "incast-connectx" => {
            let fabric = fat_tree(8, 128);
            let transfers = sends(&fabric, (1..33).map(|from| (from, 0)), 256 << 20);
            (fabric, transfers)
        }
        "all-to-all-64" => {
            let fabric = fat_tree(8, 128);
            let pairs = (0..64).flat_map(|from| (1..64).map(move |k| (from, (from + k) % 64)));
            let transfers = sends(&fabric, pairs, 1 << 20);
            (fabric, transfers)
        }
        "ring-64" | "ring-64-cables" | "ring-64-4" => {
            let fabric = if name == "ring-64-cables" {
                fat_tree_of(8, 64, [15_000, 151_500, 505_000].map(Span::from_ps))
            } else {
                fat_tree(8, 64)
            };
            let transfers = rings(&fabric, Collective::AllReduce, 1, Bytes::from_mib(256));
            (fabric, transfers)
        }
        "dp-128" | "dp-128-rail" | "dp-128-none" => {
            let on_rails = name == "dp-128-rail";
            let kinds = [TopologyKind::Clos, TopologyKind::RailOptimized];
            let fabric = servers(kinds[usize::from(on_rails)]);
            let transfers = rings(&fabric, Collective::ReduceScatter, 8, Bytes::from_mib(256));
            (fabric, transfers)
        }
        _ => panic!("no scenario {name}"),
    }
}

/// A scenario's settings: the defaults, but for long incasts, which have those of HPCC's ns-3.
fn settings(name: &str) -> Settings {
    let mut settings = Settings { seed: seed(), ..Settings::default() };
    settings.packet.threads = threads();
    let line = Rate::from_gbps(400);
    match name {
        "incast-step" | "incast-random" => {
            settings.congestion = CcConfig::Dcqcn(dcqcn::Config::ns3(line));
            let is_step = name == "incast-step";
            settings.ecn.min = Bytes::new(400_000);
            settings.ecn.max = Bytes::new(if is_step { 400_000 } else { 1_600_000 });
            settings.ecn.probability = if is_step { 1.0 } else { 0.2 };
        }
        "incast-hpcc" => {
            let base = hpcc::Config::ns3(line, Span::ZERO);
            settings.congestion = CcConfig::Hpcc(hpcc::Config { base_rtt: None, ..base });
        }
        "ring-64-4" => settings.routing.qps = 4,
        "dp-128-none" => {
            settings.congestion = CcConfig::None(none::Config {});
            settings.ecn.enabled = false;
        }
        _ => {}
    }
    settings
}

/// What `--seed=` asks for.
fn seed() -> u64 {
    let asked = |arg: String| arg.strip_prefix("--seed=").and_then(|text| text.parse().ok());
    std::env::args().find_map(asked).unwrap_or(1)
}

/// Runs a scenario whole and bounded, and prints how much faster that is and how far off.
fn against(name: &str) {
    let (fabric, transfers) = scenario(name);
    let run = |forward: Forward| {
        let mut settings = settings(name);
        settings.packet.forward = forward;
        let start = cpu_s();
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        (cpu_s() - start, outcome)
    };
    let ((whole, a), (part, b)) = (run(Forward::Exact), run(Forward::Bounded));
    let ends = |outcome: &traffic::Outcome| {
        let ends = outcome.ops.iter().map(|op| op.expect("it ended").finish.as_secs_f64());
        ends.collect::<Vec<f64>>()
    };
    let (a, b, findings) = (ends(&a), ends(&b), b.findings);
    let largest = a.iter().zip(&b).map(|(a, b)| (b / a - 1.0).abs()).fold(0.0, f64::max);
    let figures = |ends: &[f64]| {
        let mut ends = ends.to_vec();
        ends.sort_by(f64::total_cmp);
        let at = |share: f64| ends[((ends.len() - 1) as f64 * share).round() as usize];
        [ends.iter().sum::<f64>() / ends.len() as f64, at(0.5), at(0.99), at(1.0)]
    };
    let (a, b) = (figures(&a), figures(&b));
    let off: Vec<f64> = a.iter().zip(&b).map(|(a, b)| 100.0 * (b / a - 1.0)).collect();
    println!(
        "{name:<18} {whole:7.3} s whole  {part:7.3} s bounded  {:5.2} times  mean {:.3} ms {:+.2} %  \
         p50 {:+.2} %  p99 {:+.2} %  makespan {:+.2} %  each within {:.2} %",
        whole / part,
        1e3 * a[0],
        off[0],
        off[1],
        off[2],
        off[3],
        100.0 * largest
    );
    findings.iter().for_each(|finding| println!("  {}", finding.text));
}

/// Runs a scenario, prints what it took, and returns millions of events per CPU second.
fn run(name: &str) -> f64 {
    let (fabric, transfers) = scenario(name);
    let mut settings = settings(name);
    settings.packet.forward = forward();
    let mut watch = Watch::default();
    let (start, all, clock) = (cpu_s(), cpu_of_all_s(), Instant::now());
    let outcome =
        packetsim::run_watched(&fabric, &transfers, &settings, &mut watch).expect("it can be run");
    let wall = clock.elapsed().as_secs_f64();
    let cpu = if 1 < watch.threads { cpu_of_all_s() - all } else { cpu_s() - start };
    if threads().is_some() {
        let at_a_time = match watch.events_in_turn {
            0 => 1.0,
            in_turn => outcome.counters.events as f64 / in_turn as f64,
        };
        let why = watch.why_one_thread.map(|why| format!("  ({why})")).unwrap_or_default();
        let count = watch.threads;
        println!(
            "{name:<18} {count} threads  {wall:7.3} s on the clock  {at_a_time:.2} events at a \
             time{why}"
        );
    }
    let c = &outcome.counters;
    let hops = c.packet_hops as f64 / cpu / 1e6;
    let events = c.events as f64 / cpu / 1e6;
    let per_hop = c.events as f64 / c.packet_hops as f64;
    println!(
        "{name:<18} {cpu:7.3} s CPU  {hops:6.2} M packet-hops/s  {events:6.2} M events/s  \
         {per_hop:.2} events/hop  {:8.1} MB peak  makespan {:.1}  marks {} pauses {} drops {} \
         digest {:016x}",
        peak_mb(),
        outcome.makespan(),
        c.ecn_marks,
        c.pauses,
        c.drops,
        outcome.digest
    );
    assert_eq!(outcome.completed(), transfers.ops().len(), "{:?}", outcome.findings);
    events
}

/// Events of the engine for each hop of the undressed loop, below which something is wrong. About
/// 1.0 was measured on a busy machine; nearly half is left for noise and other processors.
const LEAST_RATIO: f64 = 0.55;

/// Fails if the engine has become slower than the undressed loop allows. The best of five counts,
/// because what else the machine does can only make either slower.
fn guard() {
    let ratios: Vec<f64> = (0..5).map(|_| run("permutation-128") / reference()).collect();
    let best = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "events over hops of the undressed loop: {ratios:.2?}, at least {LEAST_RATIO} is asked"
    );
    assert!(LEAST_RATIO <= best, "the packet engine has become slower: {best:.2}");
}

/// An undressed event loop for comparison: FIFO links, one event per hop, nothing else. Returns
/// millions of hops per CPU second; what the engine reaches is best read as a share of it.
fn reference() -> f64 {
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};
    let (flows, hops, packets, links) = (128_usize, 6_usize, 2048_u64, 768_usize);
    let mut random = Random::new(1, "reference", 0);
    let path = |flow: usize, random: &mut Random| {
        let mut path = vec![flow];
        path.extend((1..hops).map(|_| 128 + random.below(640) as usize));
        path
    };
    let paths: Vec<Vec<usize>> = (0..flows).map(|flow| path(flow, &mut random)).collect();
    let mut wires: Vec<VecDeque<(u64, u32, u32)>> = vec![VecDeque::new(); links];
    let mut free = vec![0_u64; links];
    let mut heap = BinaryHeap::new();
    let start = cpu_s();
    for (flow, path) in paths.iter().enumerate() {
        for packet in 0..packets {
            wires[path[0]].push_back((packet * 83_000 + 1_083_000, flow as u32, 0));
        }
        heap.push(Reverse((1_083_000_u64, path[0] as u32)));
    }
    let mut count = 0_u64;
    while let Some(Reverse((now, link))) = heap.pop() {
        let wire = &mut wires[link as usize];
        let (_, flow, hop) = wire.pop_front().expect("an event means a packet");
        if let Some((at, ..)) = wire.front() {
            heap.push(Reverse((*at, link)));
        }
        count += 1;
        let Some(&next) = paths[flow as usize].get(hop as usize + 1) else { continue };
        free[next] = free[next].max(now) + 83_000;
        let at = free[next] + 1_000_000;
        if wires[next].is_empty() {
            heap.push(Reverse((at, next as u32)));
        }
        wires[next].push_back((at, flow, hop + 1));
    }
    count as f64 / (cpu_s() - start) / 1e6
}

/// Permutation-128 under everything: what a packet-hop costs, over what it costs with RoCE and
/// DCQCN. The cheapest of three runs counts, each beside one of the yardstick.
fn transports(only: Option<&str>) {
    let fabric = fat_tree(8, 128);
    let transfers = permutation(&fabric, 128, 8 << 20);
    let mut cases: Vec<(String, Settings)> = Vec::new();
    for (name, transport) in Transport::ALL {
        cases.push((name.to_owned(), Settings::of_transport(transport)));
    }
    cases.push(("spectrum-x".to_owned(), Settings::spectrum_x()));
    for (name, congestion) in CcConfig::defaults() {
        cases.push((format!("rocev2 {name}"), Settings { congestion, ..Settings::default() }));
    }
    let cost = |settings: &Settings| {
        let start = cpu_s();
        let outcome = packetsim::run(&fabric, &transfers, settings).expect("it can be run");
        let cpu = cpu_s() - start;
        assert_eq!(outcome.completed(), transfers.ops().len(), "{:?}", outcome.findings);
        (cpu / outcome.counters.packet_hops as f64, cpu, outcome)
    };
    cases.retain(|(name, _)| only.is_none_or(|only| name == only));
    let yardstick = Settings::default();
    for (name, settings) in &cases {
        let mut least = (f64::INFINITY, f64::INFINITY);
        let mut last = None;
        for _ in 0..3 {
            least.0 = cost(&yardstick).0.min(least.0);
            let (per_hop, cpu, outcome) = cost(settings);
            if per_hop < least.1 {
                least.1 = per_hop;
                last = Some((cpu, outcome));
            }
        }
        let (cpu, outcome) = last.expect("it ran");
        let c = &outcome.counters;
        println!(
            "{name:<18} {:5.2} times  {cpu:6.3} s CPU  {:6.1} ns/hop  {:.2} events/hop  \
             makespan {:.1}  stalls {} drops {} trims {} sent again {}",
            least.1 / least.0,
            least.1 * 1e9,
            c.events as f64 / c.packet_hops as f64,
            outcome.makespan(),
            c.pauses,
            c.drops,
            c.trims,
            c.retransmits
        );
    }
}

fn main() {
    if std::env::args().any(|arg| arg == "--guard") {
        guard();
        return;
    }
    if !std::env::args().any(|arg| arg == "--plain") {
        println!("undressed loop {:.2} M hops/s", reference());
    }
    let names: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if names.is_empty() {
        for name in ["permutation-128", "incast-32", "all-to-all-64"] {
            run(name);
        }
    }
    for name in &names {
        match name.split_once(':') {
            _ if name == "transports" => transports(None),
            Some(("transports", only)) => transports(Some(only)),
            _ if std::env::args().any(|arg| arg == "--against") => against(name),
            _ => {
                run(name);
            }
        }
    }
}
