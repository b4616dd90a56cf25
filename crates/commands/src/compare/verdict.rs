//! Which column is best, and whether that is known.
//!
//! Columns that run the same job on the same GPUs share the error of its computation, so only what
//! their communication is off by tells them apart. Others may each be off by their own interval.
//! What is nearer to the best than that is a tie.

use report::number::{between, dollars};
use scenario::Loaded;
use serde::Serialize;

use super::{Changed, Column};
use crate::change::{Change, Kind};
use crate::engine::Engine;
use crate::interval::{Class, Residuals};
use crate::run_job::Lever;
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
    /// The column whose tokens cost the least; nothing where work or sizes differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommended: Option<String>,
    /// What has to be known beside it: what else than the question differs, what nobody asked for,
    /// what the answer may turn on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// What the answer may turn on: a setting that is the same in all columns and costs each of
    /// them much.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levers: Vec<Lever>,
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
            let all = 2 < ties.len() && ties.len() == others.len();
            let ties = if all { "all the others".to_owned() } else { listed(&ties) };
            let best = best.name;
            format!("A tie within the model's error: {best} has {goal}, which {ties} may have too")
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
    let recommended = recommended(&steps).filter(|_| !is_traffic && is_same_work);
    let (recommended, why) = recommended.unzip();
    if let Some(why) = why {
        text = format!("{why}. {text}");
    }
    let (best, tie) = (best.name.to_owned(), !ties.is_empty());
    let (also, levers) = (Vec::new(), Vec::new());
    Some(Verdict { text, best, tie, ties, recommended, also, levers })
}

/// From this share of the step on the answer may turn on what the fabric costs.
const MUCH: f64 = 0.05;

impl Verdict {
    /// With what the answer may turn on: where the fabric costs even the column that it costs the
    /// least much, a change of the network that would help and that no column has.
    pub(super) fn turning_on(
        mut self,
        columns: &[Column],
        changed: &[Changed],
        vary: &[String],
    ) -> Self {
        let costs = columns.iter().map(|column| {
            let steps = column.runs.iter().filter_map(|run| Some(&run.job.as_ref()?.0));
            let shares: Vec<f64> = steps.map(|step| step.verdict.fabric_s / step.step_s).collect();
            shares.iter().sum::<f64>() / shares.len().max(1) as f64
        });
        let costs: Vec<f64> = costs.collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = costs.iter().copied().fold(0.0, f64::max);
        let (Some(first), [vary]) = (columns.first(), vary) else { return self };
        let key = |set: &String| set.split('=').next().unwrap_or_default().to_owned();
        let is_shared = |lever: &&Lever| {
            let keys: Vec<String> = lever.set.iter().map(key).collect();
            let differs = |key: &String| changed.iter().any(|row| row.key == *key);
            keys.iter().all(|key| key.starts_with("network.")) && !keys.iter().any(differs)
        };
        let steps = first.runs.iter().filter_map(|run| Some(&run.job.as_ref()?.0));
        let mut levers = steps.flat_map(|step| &step.verdict.levers);
        let Some(lever) = levers.find(is_shared).filter(|_| MUCH <= least) else { return self };
        let scenario = &first.loaded.scenario;
        let routing = &scenario.network.settings.routing;
        let own = Change::new(Kind::Network, "", lever.set.clone());
        let command = format!("fatflow compare {}", flags(&first.loaded, vary, &own));
        let pairs = if routing.qps == 1 { "queue pair" } else { "queue pairs" };
        self.also.push(format!(
            "With {} {pairs} and {} the fabric costs {} % of the step, and the answer may turn \
             on that: ask first with {} ({command})",
            routing.qps,
            routing.policy.name(),
            between(100.0 * least, 100.0 * most, |share| format!("{share:.0}")),
            lever.name,
        ));
        self.levers.push(Lever { command, ..lever.clone() });
        self
    }
}

/// A scenario, what varies, and flags: those that were given, and those of a change.
pub(super) fn flags(loaded: &Loaded, vary: &str, change: &Change) -> String {
    let varied = vary.split('=').next().unwrap_or_default();
    let change = change.after_flags(loaded, &[varied]);
    format!("{} --vary {vary} {}", loaded.input, change.flags())
}

/// What somebody who pays for it would take: the column whose tokens cost the least, which weighs
/// time against price; of those that cost the same the cheapest to build, then the one with the
/// fewest queue pairs, then the fastest. Nothing where they have not as many GPUs.
fn recommended(steps: &[Step<'_>]) -> Option<(String, String)> {
    let gpus = |step: &Step<'_>| Some((step.column.fabric.gpus, step.column.step()?.gpus));
    let tokens = |step: &Step<'_>| {
        let runs = step.column.runs.iter().filter_map(|run| run.job.as_ref());
        let costs: Vec<f64> = runs.map(|(job, _)| job.cost.usd_per_million_tokens).collect();
        costs.iter().sum::<f64>() / costs.len() as f64
    };
    let by_tokens = |a: &&Step<'_>, b: &&Step<'_>| tokens(a).total_cmp(&tokens(b));
    let (least, most) = (steps.iter().min_by(by_tokens)?, steps.iter().max_by(by_tokens)?);
    let is_one_size = steps.iter().all(|step| gpus(step) == gpus(least));
    let has_cost = 0.0 < tokens(least);
    if !is_one_size || !has_cost {
        return None;
    }
    let is_near = |own: f64, least: f64| own <= least * (1.0 + WORTH_SAYING);
    let alike: Vec<&Step<'_>> =
        steps.iter().filter(|step| is_near(tokens(step), tokens(least))).collect();
    let capital = |step: &Step<'_>| step.column.fabric.cost_usd;
    let cheapest = alike.iter().map(|step| capital(step)).fold(f64::INFINITY, f64::min);
    let queue_pairs = |step: &Step<'_>| step.column.loaded.scenario.network.settings.routing.qps;
    let cheap = || alike.iter().filter(|step| is_near(capital(step), cheapest));
    let taken = cheap().min_by_key(|step| queue_pairs(step))?;
    let others = alike.iter().filter(|step| step.name != taken.name);
    let others: Vec<String> = others.map(|step| step.name.to_owned()).collect();
    let (name, usd) = (taken.name, tokens(taken));
    let mut why = format!("Recommended: {name}; a million tokens cost ${usd:.3} at assumed prices");
    why += &if others.is_empty() {
        let more = 100.0 * (tokens(most) / usd - 1.0);
        format!(", the least (with {} {more:.1} % more)", most.name)
    } else {
        let most = if cheap().any(|step| queue_pairs(step) != queue_pairs(taken)) {
            "has the fewest queue pairs"
        } else if cheap().count() < alike.len() {
            "is the cheapest to build"
        } else {
            "is the fastest"
        };
        format!(", as with {}, of which it {most}", listed(&others))
    };
    let longer = taken.cost / steps[0].cost - 1.0;
    if WORTH_SAYING < longer {
        why += &format!("; its step is {:.1} % longer than the shortest", 100.0 * longer);
    }
    Some((name.to_owned(), why))
}

/// Of columns that time does not tell apart, which costs the least, and how much less than the
/// best of them.
fn cheapest(steps: &[Step<'_>], ties: &[String]) -> String {
    let capital = |step: &&Step<'_>| step.column.fabric.cost_usd;
    let is_tied =
        |(at, step): &(usize, &Step<'_>)| *at == 0 || ties.iter().any(|it| it == step.name);
    let tied = || steps.iter().enumerate().filter(is_tied).map(|(_, step)| step);
    let is_one_size = tied().all(|step| step.column.fabric.gpus == steps[0].column.fabric.gpus);
    let by_capital = |a: &&Step<'_>, b: &&Step<'_>| capital(a).total_cmp(&capital(b));
    let (best, Some(least), Some(most)) =
        (&steps[0], tied().min_by(by_capital), tied().max_by(by_capital))
    else {
        return String::new();
    };
    let is_worth_it = |saved: f64| WORTH_SAYING * capital(&most) <= saved;
    if ties.is_empty() || !is_one_size || !is_worth_it(capital(&most) - capital(&least)) {
        return String::new();
    }
    let saved = capital(&best) - capital(&least);
    if !is_worth_it(saved) {
        return format!("; of these {} is the cheapest to build too", best.name);
    }
    format!(
        "; of these {} is the cheapest to build: {} ({:.1} %) less than {}",
        least.name,
        dollars(saved),
        100.0 * saved / capital(&best),
        best.name
    )
}

/// A smaller share of the capital, or of a token's price, is not worth a sentence.
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
