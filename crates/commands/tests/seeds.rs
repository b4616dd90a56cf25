//! Seeds: a job's luck is told as synthetic traffic's is, on one thread or several.

use std::sync::atomic::AtomicBool;

use commands::seeds::{Figure, Repeat};
use commands::{Engine, collective, compare, run_job};
use packetsim::Watch;
use report::Answer as _;
use scenario::{Loaded, Request, load};
use traffic::collective::Collective;
use units::Bytes;

fn loaded(name: &str) -> Loaded {
    let request = Request { scenario: Some(name.to_owned()), ..Request::default() };
    load(&request).expect("it is valid")
}

fn step_of(seed: u64) -> f64 {
    let loaded = loaded("small-128").with_seed(seed);
    let patience = commands::packets::Patience::Usual;
    run_job::run(&loaded, Engine::Flow, patience, &mut Watch::default()).expect("it runs").step_s
}

fn spread_over(seeds: u32, threads: u16) -> run_job::Report {
    let repeat = Repeat { seeds, threads: Some(threads), interrupt: None };
    let (small, options) = (loaded("small-128"), run_job::Options::default());
    let run = run_job::run_and(&small, &options, repeat, &mut Watch::default(), |_, _| Ok(()));
    run.expect("it runs")
}

/// Hashes differ from seed to seed, and the step with them.
#[test]
fn a_job_is_run_under_several_seeds() {
    let steps: Vec<f64> = (0..6).map(step_of).collect();
    assert!(steps.iter().any(|step| *step != steps[0]), "{steps:?}");
    let report = spread_over(6, 2);
    let seeds = report.seeds.as_ref().expect("several seeds were asked for");
    assert_eq!((seeds.count, seeds.first, report.step_s), (6, 0, steps[0]));
    let Figure { metric, unit, spread } = &seeds.figures[0];
    assert_eq!((metric.as_str(), *unit), ("step", "s"));
    let mean = steps.iter().sum::<f64>() / 6.0;
    assert!((spread.mean / mean - 1.0).abs() < 1e-12 && 0.0 < spread.ci95, "{spread:?}");
    let (least, most) = (steps.iter().copied().fold(f64::MAX, f64::min), spread.p99);
    assert_eq!((spread.p5, most), (least, steps.iter().copied().fold(0.0, f64::max)));
    assert!(report.sheet().render(100).contains("Over 6 seeds from 0"));
    assert_eq!(spread_over(6, 1).seeds, report.seeds, "whatever the number of threads");
    assert!(spread_over(1, 1).seeds.is_none());
}

#[test]
fn a_comparison_says_how_sure_a_step_is() {
    let scenarios = vec!["small-128".to_owned()];
    let options = compare::Options { scenarios, seeds: 6, ..compare::Options::default() };
    let report = compare::run(&options, &Request::default(), &AtomicBool::new(false), &|_| ())
        .expect("runs");
    let step = report.rows.iter().find(|row| row.metric == "step_s").expect("there is a step");
    let spread = spread_over(6, 2).seeds.expect("several seeds").figures[0].spread;
    assert_eq!(step.ci95, [Some(spread.ci95)]);
    assert_eq!(step.simulated, [Some(compare::Value::Number(spread.mean))]);
}

#[test]
fn a_collective_has_the_same_shape() {
    let size = Bytes::from_mib(64);
    let options = collective::Options {
        engine: Engine::Flow,
        patience: commands::packets::Patience::Usual,
        collective: Collective::AllReduce,
        sizes: collective::Sizes { min: size, max: size, factor: 2 },
        gpus: None,
        iterations: 1,
    };
    let repeat = Repeat { seeds: 4, threads: Some(2), interrupt: None };
    let small = loaded("small-128");
    let report = collective::run_seeds(&small, &options, repeat, None, &mut Watch::default());
    let report = report.expect("it runs");
    let seeds = report.seeds.as_ref().expect("several seeds were asked for");
    assert_eq!((seeds.count, seeds.figures[0].metric.as_str()), (4, "time of 64MiB"));
    assert_eq!(seeds.figures[0].spread, report.rows[0].seeds_us.expect("over seeds"));
    assert_eq!(report.rows[0].time_us, seeds.figures[0].spread.mean);
}
