//! Agreement with HPCC's ns-3 on small topologies, with one path and with several.
//!
//! The runs lie beside the packet engine's tests, in `tests/reference/`, with a README that tells
//! the model rule by rule (runs of alibaba-edu/High-Precision-Congestion-Control, commit 9f4be2a,
//! unmodified). With the nanosecond clock the deterministic runs are matched flow by flow; with the
//! engine's own picoseconds the mean and the last completion are, because that simulator's wire is
//! 1 % fast.
//!
//! The published runs have one flow per host and one direction. `tests/reference/made/` holds
//! further runs of the same simulator (`tools/reference/ns3.py`): several flows per host, both
//! directions, staggered starts, odd sizes, pauses that spread over switches, and path choice by
//! its hash on leaves and spines and on a fat tree with k = 4.

#![expect(clippy::print_stdout, reason = "how near it came is worth reading")]

use std::path::Path;

use commands::validate::packets::ReferenceRun;
use packetsim::packet::Clock;
use traffic::Outcome;

fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packetsim/tests/reference");
    let path = folder.join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn load(name: &str) -> ReferenceRun {
    let [parameters, flows] = ["toml", "csv"].map(|ending| format!("{name}.{ending}"));
    let texts = [read(&parameters), read(&flows)];
    ReferenceRun::read((&parameters, &texts[0]), (&flows, &texts[1])).expect(name)
}

fn run(case: &ReferenceRun, clock: Clock, seed: u64) -> (Vec<f64>, Outcome) {
    case.run(clock, seed).expect("every flow finishes")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn last(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

const RUNS: [&str; 13] = [
    "probe-star-dcqcn",
    "probe-chain-dcqcn",
    "pfc-only-none",
    "dumbbell-dcqcnstep",
    "star-incast-1m-dcqcnstep",
    "dumbbell-dcqcn",
    "star-incast-1m-dcqcn",
    "probe-star-hpcc",
    "probe-chain-hpcc",
    "parking-lot-hpcc",
    "star-incast-1m-hpcc",
    "star-incast-1m-timely",
    "star-incast-1m-dctcp",
];

/// With the nanosecond clock every flow of every deterministic run is within 0.5 %.
#[test]
fn deterministic_runs_are_matched_flow_by_flow() {
    for name in RUNS {
        let case = load(name);
        if case.is_random() {
            continue;
        }
        let (times, outcome) = run(&case, Clock::Nanosecond, 1);
        let expected = case.expected();
        let exact = times.iter().zip(&expected).filter(|(a, b)| a == b).count();
        println!("{name}: {exact} of {} exact, {} pauses", times.len(), outcome.counters.pauses);
        for (flow, (time, expected)) in times.iter().zip(&expected).enumerate() {
            let error = time / expected - 1.0;
            assert!(error.abs() < 0.005, "{name} flow {flow}: {time} for {expected}");
        }
        assert_eq!(outcome.counters.pauses, case.pauses(), "{name}");
        assert_eq!(outcome.counters.drops, 0, "{name}");
    }
}

/// Runs with one path.
const MADE: [&str; 7] = [
    "tree-incast",
    "tree-both-ways",
    "mixed-sizes",
    "several-flows",
    "staggered",
    "staggered-twice",
    "staggered-tree",
];

/// Runs on fabrics with path choice.
const PATHS: [&str; 5] = [
    "leaf-spine-permutation",
    "leaf-spine-incast",
    "fat-tree-permutation",
    "fat-tree-all-to-all",
    "fat-tree-mixed",
];

/// Runs with several flows per host, staggered starts and path choice are met to the nanosecond,
/// flow by flow and pause for pause.
#[test]
fn made_runs_are_met_flow_by_flow() {
    for name in MADE.into_iter().chain(PATHS) {
        for algorithm in ["none", "dcqcnstep", "dctcp", "hpcc", "timely"] {
            let case = load(&format!("made/{name}-{algorithm}"));
            let (times, outcome) = run(&case, Clock::Nanosecond, 1);
            assert_eq!(times, case.expected(), "{name}-{algorithm}");
            let pauses = case.pauses();
            assert_eq!(outcome.counters.pauses, pauses, "{name}-{algorithm}");
        }
    }
}

/// In picoseconds the mean and the last completion of every run are within 3 %, and the pauses
/// within 5 %; those of runs whose marks are drawn, on average over seeds.
#[test]
fn all_runs_are_matched_in_the_mean_and_at_the_end() {
    for name in RUNS {
        let case = load(name);
        let seeds = if case.is_random() { 10 } else { 1 };
        let runs: Vec<_> = (1..=seeds).map(|seed| run(&case, Clock::Picosecond, seed)).collect();
        let average = |of: fn(&[f64]) -> f64| {
            mean(&runs.iter().map(|(times, _)| of(times)).collect::<Vec<_>>())
        };
        let expected = case.expected();
        let pauses = case.pauses();
        let error = |a: f64, b: f64| a / b - 1.0;
        let of_mean = error(average(mean), mean(&expected));
        let of_last = error(average(last), last(&expected));
        let seen = runs[0].1.counters.pauses;
        println!("{name}: mean {of_mean:+.4}, last {of_last:+.4}, pauses {seen} for {pauses}");
        assert!(of_mean.abs() < 0.03 && of_last.abs() < 0.03, "{name}: {of_mean} {of_last}");
        assert!(seen.abs_diff(pauses) as f64 <= 0.05 * pauses as f64, "{name}: {seen}");
    }
}

/// Mean and last completion of each of the reference's seeds.
fn of_seeds(name: &str) -> Vec<[f64; 2]> {
    let text = read(&format!("{name}.seeds.csv"));
    let rows: Vec<Vec<f64>> = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').skip(1).map(|cell| cell.parse().unwrap()).collect())
        .collect();
    let column = |seed: usize| rows.iter().map(|row| row[seed]).collect::<Vec<_>>();
    (0..rows[0].len()).map(column).map(|times| [mean(&times), last(&times)]).collect()
}

/// Where marks are drawn, the two simulators draw from different streams: over twenty seeds each,
/// the average of either lies within what the other's seeds reach.
#[test]
fn random_marking_is_within_the_spread_over_the_seeds() {
    for name in ["dumbbell-dcqcn", "star-incast-1m-dcqcn"] {
        let case = load(name);
        let theirs = of_seeds(name);
        let of_seed = |seed| {
            let (times, _) = run(&case, Clock::Nanosecond, seed);
            [mean(&times), last(&times)]
        };
        let ours: Vec<[f64; 2]> = (1..=20).map(of_seed).collect();
        for (at, what) in ["mean", "last"].into_iter().enumerate() {
            let figures = |runs: &[[f64; 2]]| runs.iter().map(|run| run[at]).collect::<Vec<_>>();
            let (ours, theirs) = (figures(&ours), figures(&theirs));
            let least = |values: &[f64]| values.iter().copied().fold(f64::MAX, f64::min);
            println!(
                "{name}, {what}: {:.0} ({:.0} to {:.0}), reference {:.0} ({:.0} to {:.0})",
                mean(&ours),
                least(&ours),
                last(&ours),
                mean(&theirs),
                least(&theirs),
                last(&theirs)
            );
            for (inner, outer) in [(&ours, &theirs), (&theirs, &ours)] {
                let (average, range) = (mean(inner), least(outer)..=last(outer));
                assert!(range.contains(&average), "{name}, {what}: {average} in {range:?}");
            }
        }
    }
}
