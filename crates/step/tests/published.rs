//! Published training steps against predictions by the closed form: a ratchet.

use fabric::Fabric;
use fabric::hardware::Catalogue;
use job::config::Accumulation;
use step::predict::Assumptions;
use step::published::{Row, RowCluster, Score, rank_correlation, score};
use step::validate::{Fit, RowEngine, predict_row, routing_of};
use traffic::Transfers;

const STEPS: &str = include_str!("../../../validation/training_steps.csv");
const VTRAIN: &str = include_str!("../../../validation/training_steps_vtrain.csv");
const GPUS: &str = include_str!("../../scenario/data/hardware/gpus.toml");
const NICS: &str = include_str!("../../scenario/data/hardware/nics.toml");
const SWITCHES: &str = include_str!("../../scenario/data/hardware/switches.toml");

fn catalogue() -> Catalogue {
    let mut all: Catalogue = toml::from_str(GPUS).unwrap();
    all.nic = toml::from_str::<Catalogue>(NICS).unwrap().nic;
    all.switch = toml::from_str::<Catalogue>(SWITCHES).unwrap().switch;
    all
}

/// The score of a table and the rank correlation of its rows, each row printed as it comes.
#[expect(clippy::print_stdout, reason = "people run this test for its table")]
fn predicted(text: &str, engine: How) -> (Score, f64) {
    let catalogue = catalogue();
    let assumptions = Assumptions::default();
    let (mut errors, mut pairs) = (Vec::new(), Vec::new());
    for row in Row::read_all(text).unwrap() {
        let mut flow = |cluster: &RowCluster, fabric: &Fabric, transfers: &Transfers| {
            let routing = routing_of(cluster);
            let settings = flowsim::Settings { routing, ..flowsim::Settings::default() };
            Ok(flowsim::run(fabric, transfers, &settings))
        };
        let engine: Option<&mut RowEngine<'_>> = match engine {
            How::Closed => None,
            How::Flow => Some(&mut flow),
        };
        let verdict = predict_row(&row, &catalogue, &assumptions, engine).expect(&row.id);
        let error = verdict.error(&row);
        let seconds = verdict.step_s();
        let parts = verdict.prediction.breakdown.seconds();
        let parts: Vec<String> = parts.map(|(word, part)| format!("{word} {part:.3}")).collect();
        println!(
            "{:26} micro {:2} vpp {:2} {} {:8.4} s, predicted {:8.4} s, {:+6.1} %  {}",
            row.id,
            verdict.chosen.batch.micro,
            verdict.chosen.parallel.vpp,
            if verdict.fit == Fit::Fits { "fits" } else { "over" },
            row.measured_s(),
            seconds,
            100.0 * error,
            parts.join(" ")
        );
        for phase in verdict.prediction.phases.iter().filter(|phase| !phase.links.is_empty()) {
            println!(
                "      {:?} {} {}: alone {}, slowest {:.3} times that",
                phase.exchange.kind,
                phase.exchange.collective.name(),
                phase.exchange.bytes,
                phase.alone,
                phase.slowdown()
            );
        }
        errors.push(error);
        pairs.push((row.measured_s(), seconds));
    }
    let found = score(&errors);
    println!("{found:?}");
    (found, rank_correlation(&pairs))
}

/// By what a row is predicted.
#[derive(Clone, Copy)]
enum How {
    Closed,
    Flow,
}

#[test]
fn steps_by_the_flow_engine() {
    let (found, _) = predicted(STEPS, How::Flow);
    assert!(found.mean <= 0.06, "{found:?}");
    assert!(0.9 <= found.within_12, "{found:?}");
}

#[test]
fn vtrain_by_the_flow_engine() {
    let (found, correlation) = predicted(VTRAIN, How::Flow);
    assert!(found.median <= 0.05, "{found:?}");
    assert!(found.mean <= 0.08, "{found:?}");
    assert!(0.95 <= correlation, "{correlation}");
}

/// What people run with a pipeline is one sequence at a time; without one the fastest is taken.
#[test]
fn an_unpublished_microbatch_of_a_pipeline_is_one_sequence() {
    let (catalogue, rows) = (catalogue(), Row::read_all(STEPS).unwrap());
    let micro = |id: &str| {
        let row = rows.iter().find(|row| row.id == id).expect("it is in the table");
        predict_row(row, &catalogue, &Assumptions::default(), None).unwrap().chosen.batch.micro
    };
    assert_eq!(micro("mcore-h100-70b"), 1);
    assert!(1 < micro("mcore-h100-1.7b"));
}

/// The closed form knows no contention; the flow engine's errors are scored by `validate`.
#[test]
fn steps_by_the_closed_form() {
    let (found, _) = predicted(STEPS, How::Closed);
    assert!(found.mean <= 0.085, "{found:?}");
    assert!(found.worst <= 0.17, "{found:?}");
}

#[test]
fn vtrain_by_the_closed_form() {
    let (found, correlation) = predicted(VTRAIN, How::Closed);
    assert!(found.median <= 0.08, "{found:?}");
    assert!(0.95 <= correlation, "{correlation}");
}

/// Published: Megatron-LM's products add weight gradients since February 2022 (83b1e42f), Narayanan
/// et al. is of April 2021.
#[test]
fn rows_say_how_weight_gradients_are_added() {
    for row in Row::read_all(STEPS).unwrap() {
        let is_older = row.origin == "narayanan-sc21";
        let expected = if is_older { Accumulation::Separate } else { Accumulation::Fused };
        assert_eq!(row.job.accumulation, expected, "{}", row.id);
    }
}
