//! What somebody would tell a colleague of a predicted step.
//!
//! What the fabric costs is the step less the same step in which every phase of communication
//! takes what one group alone would take. In money it is that share of what the job's machines
//! cost in a day. What limits is the largest part besides computation, and where the fabric has
//! run, the phase that loses most and its busiest link. The changes are named, not tried.

use report::number::dollars;
use scenario::Loaded;
use serde::Serialize;
use step::network::words;
use step::predict::{Prediction, predict_on};
use units::Span;

use super::{BreakdownSeconds, Report};
use crate::engine::Engine;
use crate::levers::{self, RunFacts};
use crate::world::{JobWorld, assumptions};

/// Changes that are named.
const NAMED: usize = 3;

/// What somebody would tell a colleague.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// In words.
    pub text: String,
    /// What the fabric costs: the step less the undisturbed one, in seconds.
    pub fabric_s: f64,
    /// That share of what the job's machines cost in a day.
    pub fabric_usd_per_day: f64,
    /// What limits the step, besides computation.
    pub limit: String,
    /// The changes that look largest; they were not tried.
    pub levers: Vec<Lever>,
}

/// A change that looks worthwhile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lever {
    /// What it is.
    pub name: String,
    /// `PATH=VALUE`, as `--set` takes them.
    pub set: Vec<String>,
    /// What makes it look worthwhile.
    pub why: String,
    /// What it could gain at most: the part of the step that it works on, in seconds.
    pub most_s: f64,
    /// The command that tries it.
    pub command: String,
}

/// The step in which nothing disturbs anybody, by the closed form of every collective.
pub(super) fn undisturbed(loaded: &Loaded, world: &JobWorld<'_>) -> Option<f64> {
    let prediction = predict_on(world.world(), &assumptions(loaded), None).ok()?;
    Some(BreakdownSeconds::of(&prediction.breakdown).total())
}

impl Verdict {
    /// Of a step that is known but for its verdict.
    pub(super) fn of(
        loaded: &Loaded,
        world: &JobWorld<'_>,
        (prediction, engine): (&Prediction, Engine),
        report: &Report,
    ) -> Self {
        let alone = if engine.has_contention() { undisturbed(loaded, world) } else { None };
        // What a fault costs is told apart from what the fabric does to every step.
        let calm_s = calm_s(report);
        let fabric_s = alone.map_or(0.0, |alone| (calm_s - alone).max(0.0));
        let day = report.cost.step_usd / report.step_s * 86_400.0;
        let fabric_usd_per_day = fabric_s / calm_s * day;
        let (parts, phases) = (&report.breakdown_s, &report.phases[..]);
        let seen = RunFacts { parts, fabric_s, phases, memory: &report.memory };
        let limit = limit(report, prediction);
        let changes = levers::levers(loaded, &seen);
        let command = |change: &crate::change::Change| {
            let engine = match engine {
                Engine::Flow => String::new(),
                other => format!(" --engine {}", other.name()),
            };
            format!("fatflow run {}{engine} {}", loaded.input, change.flags())
        };
        let lever = |change: &crate::change::Change| Lever {
            name: change.name.clone(),
            set: change.set.clone(),
            why: change.why.clone(),
            most_s: change.most_s,
            command: command(change),
        };
        let levers = levers::different(&changes, NAMED).into_iter().map(lever).collect();
        let verdict = Self { text: String::new(), fabric_s, fabric_usd_per_day, limit, levers };
        let text = verdict.words(report, engine);
        Self { text, ..verdict }
    }

    fn words(&self, report: &Report, engine: Engine) -> String {
        let Self { fabric_s, fabric_usd_per_day, limit, .. } = self;
        let (step_s, calm_s) = (report.step_s, calm_s(report));
        let share = fabric_s / calm_s;
        let mut text = match share {
            _ if !engine.has_contention() => {
                "Closed forms know no contention, so what the fabric costs is not told.".to_owned()
            }
            ..0.0005 => "The fabric costs nothing: every exchange is as fast as alone.".to_owned(),
            _ => format!(
                "The fabric costs {} of {} ({:.1} %), ${} a day.",
                span(*fabric_s),
                span(calm_s),
                100.0 * share,
                dollars(*fabric_usd_per_day).trim_start_matches('$'),
            ),
        };
        if report.whole.as_ref().is_some_and(|whole| whole.undisturbed_s.is_some()) {
            let cost = match step_s - calm_s {
                more if 0.0 <= more => format!("cost {}", span(more)),
                less => format!("save {}", span(-less)),
            };
            let without = if calm_s == step_s { "" } else { "Without them: " };
            text = format!("Faults that come or go {cost}. {without}{}", lowered(&text, without));
        }
        text += &format!(" What limits: {limit}.");
        let doubt = report.step_high_s / report.step_low_s - 1.0;
        text += &format!(
            " The step is within {} to {} (80 %)",
            span(report.step_low_s),
            span(report.step_high_s)
        );
        text += match &report.seeds {
            Some(seeds) => {
                let mean = seeds.figures.first().map_or(0.0, |figure| figure.spread.mean);
                format!("; the mean of {} seeds is {}", seeds.count, span(mean))
            }
            None => ", of one seed".to_owned(),
        }
        .as_str();
        if 0.0005 < share && share < doubt / 2.0 {
            text += "; what the fabric costs is less than that, but between two settings of it \
                     most of the error is the same";
        }
        text + "."
    }
}

/// The step without faults that come or go.
fn calm_s(report: &Report) -> f64 {
    report.whole.as_ref().and_then(|whole| whole.undisturbed_s).unwrap_or(report.step_s)
}

/// A sentence that goes on behind some words.
fn lowered(text: &str, behind: &str) -> String {
    match (behind, text.strip_prefix("The ")) {
        (behind, Some(rest)) if !behind.is_empty() => format!("the {rest}"),
        _ => text.to_owned(),
    }
}

/// What limits: the largest part besides computation, and the phase that loses most.
fn limit(report: &Report, prediction: &Prediction) -> String {
    let lost = |phase: &&step::network::Phase| {
        let repeats = prediction.repeats.get(&phase.exchange.key()).copied().unwrap_or(0.0);
        repeats * (phase.slowest.as_secs_f64() - phase.alone.as_secs_f64())
    };
    let mut text = report.constraint.clone();
    let on_fabric = prediction.phases.iter().filter(|phase| !phase.links.is_empty());
    let worst = on_fabric.max_by(|a, b| lost(a).total_cmp(&lost(b)));
    if let Some(phase) = worst.filter(|phase| 1.01 < phase.slowdown()) {
        let (whose, what) = (words(phase.exchange.kind), phase.exchange.collective.name());
        text += &format!(
            "; on the fabric the {whose} {what}, {:.2} times as long as undisturbed",
            phase.slowdown()
        );
        if let Some(worst) = report.worst_links.first() {
            text += &format!(" (busiest link: {}, {:.0} %)", worst.link, 100.0 * worst.utilisation);
        }
    }
    text
}

fn span(seconds: f64) -> String {
    format!("{:.3}", Span::from_secs_f64(seconds))
}
