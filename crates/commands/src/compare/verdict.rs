//! Which column is best, and whether that is known.
//!
//! Columns that run the same job on the same GPUs share the error of its computation, so only what
//! their communication is off by tells them apart. Others may each be off by their own interval.
//! What is nearer to the best than that is a tie.

use report::number::dollars;
use serde::Serialize;

use super::Column;
use crate::engine::Engine;
use crate::interval::{Class, Residuals};
use crate::seeds::Spread;

/// What somebody would tell a colleague.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// In words.
    pub text: String,
    /// The column with the shortest step, or the highest MFU where jobs differ; of traffic without
    /// a job the one with the shortest makespan.
    pub best: String,
    /// Whether another cannot be told from it.
    pub tie: bool,
    /// Those that cannot.
    pub ties: Vec<String>,
}

/// How much longer a column's step is than the first's, as a share of that.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepDifference {
    /// As predicted.
    pub share: f64,
    /// The least of its 80 % interval.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// Whether both do the same work on the same GPUs: the error of computation is the same in
    /// both and cancels, and what is left is that of communication and of seeds.
    pub cancels: bool,
}

/// How much longer each step is than the first; nothing for the first, and where work differs.
pub(super) fn differences(columns: &[Column], engine: Engine) -> Vec<Option<StepDifference>> {
    let steps: Vec<Option<Step<'_>>> =
        columns.iter().map(|column| Step::of("", column, true)).collect();
    let Some(Some(first)) = steps.first().filter(|_| is_same_work(columns)) else {
        return vec![None; columns.len()];
    };
    let of = |(at, step): (usize, &Option<Step<'_>>)| {
        let step = step.as_ref().filter(|_| 0 < at)?;
        let (factor, doubt) = (step.cost / first.cost, first.doubt(step, engine).exp());
        let cancels = first.has_machines_of(step);
        let [share, low, high] = [1.0, 1.0 / doubt, doubt].map(|by| factor * by - 1.0);
        Some(StepDifference { share, low, high, cancels })
    };
    steps.iter().enumerate().map(of).collect()
}

/// One column's step, as far as a verdict needs it.
struct Step<'a> {
    name: &'a str,
    column: &'a Column,
    /// Seconds, or GPU peak time over model time: less is better.
    cost: f64,
    /// Half of its interval, in logarithms.
    half: f64,
    /// Half of the 95 % interval of its mean over seeds, as a share.
    seeds: f64,
    exposed: f64,
}

/// Whether all jobs train the same model with as many tokens in a step.
pub(super) fn is_same_work(columns: &[Column]) -> bool {
    let jobs = || columns.iter().filter_map(|column| column.loaded.job.as_ref());
    let work = |job: &job::Job| (job.model.clone(), job.batch.sequences * job.batch.length);
    jobs().all(|job| Some(work(job)) == jobs().next().map(work))
}

/// Compares the steps of all columns that have one, or else when the traffic of all is done;
/// nothing if fewer than two have either.
pub(super) fn verdict(names: &[String], columns: &[Column], engine: Engine) -> Option<Verdict> {
    let is_same_work = is_same_work(columns);
    let named = names.iter().zip(columns);
    let steps = named.clone().filter_map(|(name, column)| Step::of(name, column, is_same_work));
    let mut steps: Vec<Step<'_>> = steps.collect();
    let is_traffic = steps.is_empty();
    if is_traffic {
        steps = named.filter_map(|(name, column)| Step::of_traffic(name, column)).collect();
    }
    let traffic = |column: &Column| column.loaded.scenario.traffic.clone();
    let is_same_traffic = columns.windows(2).all(|pair| traffic(&pair[0]) == traffic(&pair[1]));
    if steps.len() < 2 || (is_traffic && (steps.len() < columns.len() || !is_same_traffic)) {
        return None;
    }
    steps.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let (best, others) = steps.split_first()?;
    let is_near = |other: &&Step<'_>| (other.cost / best.cost).ln() <= best.doubt(other, engine);
    let ties: Vec<String> = others.iter().filter(is_near).map(|it| it.name.to_owned()).collect();
    let clear = others.iter().find(|other| !is_near(other));
    let (goal, unit) = match (is_traffic, is_same_work) {
        (true, _) => ("the shortest makespan", "makespan"),
        (false, true) => ("the shortest step", "step"),
        (false, false) => ("the highest MFU", "time for a FLOP"),
    };
    let cheapest = cheapest(&steps, &ties);
    let are_equal = others.iter().all(|other| (other.cost / best.cost).ln() < 1e-9);
    let mut text = match ties.is_empty() {
        _ if are_equal && is_traffic => "All have the same makespan".to_owned(),
        _ if are_equal && is_same_work => "All have the same step".to_owned(),
        true => format!("{} has {goal}", best.name),
        false => {
            let ties = listed(&ties);
            format!("A tie within the model's error: {} has {goal}, but {ties} may", best.name)
        }
    };
    text += &cheapest;
    if let Some(next) = clear {
        let behind = 100.0 * (next.cost / best.cost - 1.0);
        let name = next.name;
        text += &format!("; {name}'s {unit} is {behind:.1} % longer, more than the model's error");
    }
    if !is_traffic && !is_same_work {
        text += "; the jobs differ, so steps do not compare";
    }
    Some(Verdict { text, best: best.name.to_owned(), tie: !ties.is_empty(), ties })
}

/// Of columns that time does not tell apart, which costs the least, and how much less than the
/// dearest of them.
fn cheapest(steps: &[Step<'_>], ties: &[String]) -> String {
    let capital = |step: &&Step<'_>| step.column.fabric.cost_usd;
    let is_tied =
        |(at, step): &(usize, &Step<'_>)| *at == 0 || ties.iter().any(|it| it == step.name);
    let tied = || steps.iter().enumerate().filter(is_tied).map(|(_, step)| step);
    let is_one_size = tied().all(|step| step.column.fabric.gpus == steps[0].column.fabric.gpus);
    let by_capital = |a: &&Step<'_>, b: &&Step<'_>| capital(a).total_cmp(&capital(b));
    let (Some(least), Some(most)) = (tied().min_by(by_capital), tied().max_by(by_capital)) else {
        return String::new();
    };
    let saved = capital(&most) - capital(&least);
    if ties.is_empty() || !is_one_size || saved < WORTH_SAYING * capital(&most) {
        return String::new();
    }
    format!(
        "; of these {} is the cheapest to build: {} ({:.1} %) less than {}",
        least.name,
        dollars(saved),
        100.0 * saved / capital(&most),
        most.name
    )
}

/// A smaller share of the capital than this is not worth a sentence.
const WORTH_SAYING: f64 = 0.001;

/// Names as in a sentence: a, b or c.
fn listed(names: &[String]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

impl<'a> Step<'a> {
    fn of(name: &'a str, column: &'a Column, is_same_work: bool) -> Option<Self> {
        let (first, _) = column.runs.first()?.job.as_ref()?;
        let costs = column.runs.iter().filter_map(|run| run.job.as_ref());
        let cost = |report: &crate::run_job::Report| match is_same_work {
            true => report.step_s,
            false => 1.0 / report.mfu,
        };
        let costs: Vec<f64> = costs.map(|(report, _)| cost(report)).collect();
        let (mean, seeds) = match costs.len() {
            1 => (costs[0], 0.0),
            _ => {
                let Spread { mean, ci95, .. } = Spread::of(&costs);
                (mean, ci95 / mean)
            }
        };
        let half = (first.step_high_s / first.step_low_s).ln() / 2.0;
        let exposed = first.exposed_communication;
        Some(Self { name, column, cost: mean, half, seeds, exposed })
    }

    /// Of traffic without a job: how long all of it takes.
    fn of_traffic(name: &'a str, column: &'a Column) -> Option<Self> {
        let runs = column.runs.iter().map(|run| run.traffic.as_ref()?.makespan_s);
        let costs: Vec<f64> =
            runs.collect::<Option<_>>().filter(|runs: &Vec<_>| !runs.is_empty())?;
        let Spread { mean, ci95, .. } = Spread::of(&costs);
        let seeds = if costs.len() == 1 { 0.0 } else { ci95 / mean };
        Some(Self { name, column, cost: mean, half: 0.0, seeds, exposed: 1.0 })
    }

    /// How far the two may be off from each other, in logarithms.
    fn doubt(&self, other: &Self, engine: Engine) -> f64 {
        let seeds = self.seeds.hypot(other.seeds);
        if !self.has_machines_of(other) {
            return self.half.hypot(other.half).hypot(seeds);
        }
        let network = Residuals::published().half_width(&Class::between_servers(), engine, "");
        (network.log * self.exposed.max(other.exposed)).hypot(seeds)
    }

    /// Whether both run the same job on the same GPUs.
    fn has_machines_of(&self, other: &Self) -> bool {
        let machines = |column: &Column| {
            let job = column.loaded.job.clone();
            (job, column.loaded.scenario.cluster.gpu.clone())
        };
        machines(self.column) == machines(other.column)
    }
}
