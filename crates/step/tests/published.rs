//! Published training steps against predictions by the closed form: a ratchet.

use fabric::hardware::Catalogue;
use step::predict::Assumptions;
use step::published::{Row, Score, rank_correlation, score};
use step::validate::{Fit, predict_row};

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
fn predicted(text: &str) -> (Score, f64) {
    let catalogue = catalogue();
    let assumptions = Assumptions::default();
    let (mut errors, mut pairs) = (Vec::new(), Vec::new());
    for row in Row::read_all(text).unwrap() {
        let verdict = predict_row(&row, &catalogue, &assumptions, None).expect(&row.id);
        let error = verdict.error(&row);
        let seconds = verdict.prediction.step.as_secs_f64();
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
        errors.push(error);
        pairs.push((row.measured_s(), seconds));
    }
    let found = score(&errors);
    println!("{found:?}");
    (found, rank_correlation(&pairs))
}

/// The closed form knows no contention; the flow engine's errors are scored by `validate`.
#[test]
fn steps_by_the_closed_form() {
    let (found, _) = predicted(STEPS);
    assert!(found.mean <= 0.085, "{found:?}");
    assert!(found.worst <= 0.17, "{found:?}");
}

#[test]
fn vtrain_by_the_closed_form() {
    let (found, correlation) = predicted(VTRAIN);
    assert!(found.median <= 0.08, "{found:?}");
    assert!(0.95 <= correlation, "{correlation}");
}
