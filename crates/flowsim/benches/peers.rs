//! The same flows for this engine and for others: `benches/peers/run.sh` calls it.
//!
//! `write CASE FILE` writes a problem: links with capacities in bytes per second, hosts, and flows
//! with their links, all of which start at once. `run FILE FINISHES` solves it with the solver and
//! the clocks of this crate, writes when each flow finished, and prints the seconds of processor
//! time and the bytes of memory that it took.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script reads what it prints")]

use std::fmt::Write as _;
use std::{env, fs};

use fabric::hardware::Catalogue;
use fabric::routing::{QueuePairs, RoutingConfig, Walker};
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use fabric::{Fabric, Routes};
use flowsim::max_min::MaxMin;
use flowsim::progress::Progress;
use units::{Id, Random};

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["write", case, file] => fs::write(file, problem(case)).expect("the file can be written"),
        ["run", file, finishes] => run(file, finishes),
        ["compare", ours, theirs] => compare(ours, theirs),
        _ => eprintln!("usage: write CASE FILE | run FILE FINISHES | compare OURS THEIRS"),
    }
}

/// A case's flows: pairs of NICs and bytes.
fn flows(case: &str, fabric: &Fabric) -> Vec<(usize, usize, u64)> {
    let nics = fabric.nics();
    let mut random = Random::new(1, case, 0);
    let (kind, count) = case.rsplit_once('-').expect("a case is KIND-COUNT");
    match kind {
        "all-to-all" | "symmetric" => (0..nics)
            .flat_map(|a| (0..nics).map(move |b| (a, b, 1 << 20)))
            .filter(|(a, b, _)| a != b)
            .collect(),
        _ => (0..count.parse().expect("a number of flows"))
            .map(|_| {
                let from = random.below(nics as u64);
                let to = (from + 1 + random.below(nics as u64 - 1)) % nics as u64;
                (from as usize, to as usize, 100_000 + random.below(9_900_001))
            })
            .collect(),
    }
}

/// Two tiers without oversubscription under ECMP; `KIND-COUNT` is `mix-FLOWS` on 1,024 hosts,
/// `random-FLOWS` on 64, `all-to-all-HOSTS`, or `symmetric-HOSTS`: the same on one switch.
fn problem(case: &str) -> String {
    let (kind, count) = case.rsplit_once('-').expect("a case is KIND-COUNT");
    let hosts = match kind {
        "all-to-all" | "symmetric" => count.parse().expect("a number of hosts"),
        "random" => 64,
        _ => 1024,
    };
    let cluster = ClusterConfig { gpus: Some(hosts), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::Clos, Some(2));
    let radix = Some(if kind == "random" { 16 } else { 64 });
    let config = FabricConfig { topology, tiers, radix, ..FabricConfig::default() };
    let fabric = build(&cluster, &config, &Catalogue::default()).expect("it can be built");
    let settings = RoutingConfig::default();
    let (mut routing, mut routes) = (settings.build(&fabric, 1), Routes::default());
    let mut queue_pairs = QueuePairs::new(&fabric, &settings, 1);
    let mut walker = Walker::default();
    let mut text = format!("{}\n", fabric.links().len());
    let mut random = Random::new(1, "capacities", 0);
    for link in fabric.links().ids() {
        // Random cases have links of all speeds, so that no two levels are alike.
        let share = if kind == "random" { 0.25 + 0.75 * random.unit() } else { 1.0 };
        let _ = writeln!(text, "{}", fabric.class(link).rate.bytes_per_s() * share);
    }
    let flows = flows(case, &fabric);
    let _ = writeln!(text, "{} {}", fabric.nics(), flows.len());
    // Where a pair comes twice, both take one way: SimGrid knows one route for each pair.
    let mut ways = std::collections::BTreeMap::new();
    for (from, to, bytes) in flows {
        let way = ways.entry((from, to)).or_insert_with(|| {
            let key = queue_pairs.open(fabric.nic(from), fabric.nic(to));
            let way = walker.path(&fabric, &mut routes, routing.as_mut(), &key, 0);
            let way = way.expect("everything is connected");
            match kind {
                "symmetric" => vec![way[0], way[way.len() - 1]],
                _ => way.to_vec(),
            }
        });
        let _ = write!(text, "{from} {to} {bytes} {}", way.len());
        for link in way {
            let _ = write!(text, " {}", link.index());
        }
        text.push('\n');
    }
    text
}

fn run(file: &str, finishes: &str) {
    let text = fs::read_to_string(file).expect("the file can be read");
    let mut numbers = text.split_ascii_whitespace();
    let mut next = || numbers.next().expect("another number");
    let links: usize = next().parse().expect("a number");
    let capacities: Vec<f64> = (0..links).map(|_| next().parse().expect("a capacity")).collect();
    let _hosts = next();
    let count: usize = next().parse().expect("a number");
    let flows: Vec<(f64, Vec<(u32, f64)>)> = (0..count)
        .map(|_| {
            let (_, _, bytes) = (next(), next(), next().parse().expect("bytes"));
            let hops: usize = next().parse().expect("a number");
            (bytes, (0..hops).map(|_| (next().parse().expect("a link"), 1.0)).collect())
        })
        .collect();
    let began = cpu_seconds();
    let mut network = MaxMin::new(&capacities);
    let mut progress = Progress::default();
    for (bytes, path) in &flows {
        let flow = network.define(path, 1.0, None);
        network.start(flow);
        progress.begin(flow, *bytes, &network);
    }
    network.settle();
    progress.update(0.0, &mut network);
    let (mut finished, mut done) = (vec![0.0; flows.len()], Vec::new());
    while progress.next() < f64::INFINITY {
        let now = progress.next();
        progress.finished(now * (1.0 + 1e-12), &network, &mut done);
        for &flow in &done {
            finished[flow.index()] = now;
            network.stop(flow);
            progress.end(flow);
        }
        network.settle();
        progress.update(now, &mut network);
    }
    println!("{:.3} {}", cpu_seconds() - began, peak_memory());
    let lines: Vec<String> = finished.iter().map(f64::to_string).collect();
    fs::write(finishes, lines.join("\n")).expect("the file can be written");
}

/// Prints the largest relative difference between two files of finish times.
fn compare(ours: &str, theirs: &str) {
    let read = |file: &str| -> Vec<f64> {
        let text = fs::read_to_string(file).expect("the file can be read");
        text.split_ascii_whitespace().map(|word| word.parse().expect("a time")).collect()
    };
    let (ours, theirs) = (read(ours), read(theirs));
    assert_eq!(ours.len(), theirs.len(), "both must finish all flows");
    let differences = ours.iter().zip(&theirs).map(|(a, b)| (a / b - 1.0).abs());
    println!("{:.1e}", differences.fold(0.0, f64::max));
}

/// Processor time of this process, from Linux.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").expect("Linux tells");
    text.split_ascii_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).expect("a time")
        * 1e-9
}

/// The most memory that this process has used, from Linux.
fn peak_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = text.lines().find(|line| line.starts_with("VmHWM")).expect("Linux tells");
    let kib = line.split_ascii_whitespace().nth(1).expect("a number");
    1024 * kib.parse::<u64>().expect("a number")
}
