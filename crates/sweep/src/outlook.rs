//! What a plan will take: some of its cases are estimated by their engine, and run if they are
//! short.

use std::sync::atomic::AtomicBool;

use commands::meter::{self, ThreadMeter};
use commands::{Failure, parallel, run_job, run_traffic};
use report::number::grouped;
use report::{Align, Answer, Sheet, Table};
use scenario::nearest::nearest;
use scenario::{Fabrics, Problem, Problems};
use serde::Serialize;
use serde_json::Value as Json;
use units::{Bytes, Span, Unused};

use crate::exec::{measure, result};
use crate::grid::Grid;
use crate::plan::{Case, Plan};

/// So many cases are looked at, evenly over the plan.
const LOOKED_AT: usize = 6;

/// A case that its engine estimates at more than this is not run to see.
const LONGEST_S: f64 = 2.0;

/// Cases that a table for people shows.
const SHOWN: usize = 20;

/// A plan, and what it will take.
#[derive(Clone, Debug, Serialize)]
pub struct Outlook {
    /// The plan.
    #[serde(skip)]
    pub plan: Plan,
    /// How many cases there are.
    pub cases: usize,
    /// The plan's identity.
    #[serde(rename = "plan")]
    pub hash: String,
    /// Combinations that a condition has refused.
    pub refused: u64,
    /// What must be known of the number of cases and of what they have in common.
    pub remarks: Vec<String>,
    /// What is kept of each result.
    pub measures: Vec<String>,
    /// Seconds of one core for all cases.
    pub cpu_s: f64,
    /// Seconds on the clock, on so many threads.
    pub wall_s: f64,
    /// Threads.
    pub threads: usize,
    /// Memory of a process with so many threads.
    pub memory_bytes: u64,
    /// Seconds of the longest case that was looked at.
    pub longest_s: f64,
    /// Cases that were looked at.
    pub looked_at: usize,
    /// Those of them that fail, with the reason.
    pub failed: Vec<(usize, String)>,
    /// Axes that do nothing on the engine of a case that was looked at, and why.
    #[serde(skip)]
    pub idle: Vec<Unused>,
    /// Every case.
    pub list: Vec<Row>,
}

/// One case of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its number.
    pub case: usize,
    /// Its identity.
    pub hash: String,
    /// Its engine.
    pub engine: &'static str,
    /// Its seed.
    pub seed: u64,
    /// What it sets, as `--set` takes it.
    pub set: Vec<String>,
}

/// What one case takes.
struct CaseCost {
    seconds: f64,
    memory: u64,
    result: Option<Result<Json, Failure>>,
    /// What the case does not obey.
    unused: Vec<Unused>,
}

/// Looks at some cases of a plan. A measure that none of them has is an error.
pub fn outlook(grid: &Grid, plan: Plan, threads: usize) -> Result<Outlook, Failure> {
    let cases = plan.cases.len();
    let looked_at = cases.min(LOOKED_AT);
    let places: Vec<usize> = (0..looked_at).map(|at| at * cases / looked_at).collect();
    let fabrics = Fabrics::default();
    let taken: Vec<CaseCost> =
        parallel::map(threads, &places, |at| taken(grid, &plan.cases[*at], &fabrics));
    let results = || taken.iter().filter_map(|taken| taken.result.as_ref());
    let found: Vec<&Json> = results().filter_map(|result| result.as_ref().ok()).collect();
    refuse_unknown_measures(grid, &plan, &found)?;
    let failed = places.iter().zip(&taken).filter_map(|(at, taken)| match &taken.result {
        Some(Err(failure)) => Some((*at, failure.to_string())),
        _ => None,
    });
    let failed = failed.collect();
    let is_set = |key: &str| grid.axes.iter().any(|axis| axis.keys().contains(&key));
    let mut idle: Vec<Unused> = Vec::new();
    for one in taken.iter().flat_map(|taken| &taken.unused).filter(|one| is_set(&one.key)) {
        if !idle.contains(one) {
            idle.push(one.clone());
        }
    }
    let mean = taken.iter().map(|taken| taken.seconds).sum::<f64>() / looked_at as f64;
    let cpu_s = mean * cases as f64;
    let largest = taken.iter().map(|taken| taken.memory).max().unwrap_or(0);
    let memory_bytes = meter::peak_rss_bytes() + largest * threads as u64;
    let longest_s = taken.iter().map(|taken| taken.seconds).fold(0.0, f64::max);
    let wall_s = (cpu_s / threads as f64).max(longest_s);
    let row = |case: &Case| Row {
        case: case.index,
        hash: case.hash.clone(),
        engine: case.engine.name(),
        seed: case.seed,
        set: case.assignments(),
    };
    Ok(Outlook {
        cases,
        hash: plan.head.plan.clone(),
        refused: plan.head.refused,
        remarks: plan.head.remarks.clone(),
        measures: plan.head.measures.clone(),
        cpu_s,
        wall_s,
        threads,
        memory_bytes,
        longest_s,
        looked_at,
        failed,
        idle,
        list: plan.cases.iter().map(row).collect(),
        plan,
    })
}

/// Estimates one case, and runs it if that is short.
fn taken(grid: &Grid, case: &Case, fabrics: &Fabrics) -> CaseCost {
    let loaded = match grid.load(case, fabrics) {
        Ok(loaded) => loaded,
        Err(problems) => {
            let result = Some(Err(Failure::Input(problems)));
            return CaseCost { seconds: 0.0, memory: 0, result, unused: Vec::new() };
        }
    };
    let estimated = match loaded.job {
        Some(_) => run_job::cost(&loaded, case.engine),
        None if !loaded.members.is_empty() => run_job::several::cost(&loaded, case.engine),
        None => run_traffic::cost(&loaded, case.engine),
    };
    let estimate = match estimated {
        Ok(estimate) => estimate,
        Err(failure) => {
            let result = Some(Err(failure));
            return CaseCost { seconds: 0.0, memory: 0, result, unused: Vec::new() };
        }
    };
    let unused = loaded.unused.clone();
    if LONGEST_S < estimate.seconds {
        return CaseCost {
            seconds: estimate.seconds,
            memory: estimate.memory,
            result: None,
            unused,
        };
    }
    drop(loaded);
    // The second time is what a case takes among many: the first one warms what they share.
    let run = || result(grid, case, fabrics, &AtomicBool::new(false));
    let first = run();
    let clock = ThreadMeter::start();
    if estimate.seconds < LONGEST_S / 10.0 {
        drop(run());
    }
    let seconds = clock.cpu_s().max(estimate.seconds.min(1e-3));
    CaseCost { seconds, memory: estimate.memory, result: Some(first), unused }
}

/// A measure that no result has is refused, with the nearest that they have.
fn refuse_unknown_measures(grid: &Grid, plan: &Plan, found: &[&Json]) -> Result<(), Failure> {
    const OF_MACHINES: [&str; 3] = ["wall_s", "cpu_s", "peak_rss_bytes"];
    let mut problems = Vec::new();
    for name in &plan.head.measures {
        let of_machine = OF_MACHINES.contains(&name.as_str());
        let is_there = found.iter().any(|result| measure(result, name).is_some());
        if (is_there || found.is_empty()) && !of_machine {
            continue;
        }
        let problem = if of_machine {
            let message = format!("`{name}` is no measure: it differs from run to run");
            Problem::error(message).with_help("it stands in machine.parquet for every case")
        } else {
            let mut known = Vec::new();
            found.iter().for_each(|result| numbers(result, "", &mut known));
            let last = name.rsplit('.').next().unwrap_or(name);
            let ends = known.iter().find(|key| key.rsplit('.').next() == Some(last));
            let near = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
            let near = ends.cloned().or(near).map(|near| format!("did you mean `{near}`?"));
            let help = near.unwrap_or_else(|| {
                "any number of `fatflow run --json` can be kept, by its keys".to_owned()
            });
            Problem::error(format!("no result has a number `{name}`")).with_help(help)
        };
        let written = grid.measures.iter().flatten().find(|(own, _)| own == name);
        problems.push(match written {
            Some((_, span)) => problem.at(&grid.source, span.clone(), "here"),
            None => problem,
        });
    }
    // Those that are kept unless somebody says otherwise need not all be there.
    if problems.is_empty() || grid.measures.is_none() {
        return Ok(());
    }
    Err(Failure::Input(Problems(problems)))
}

/// The paths of all numbers in a result; those in lists by their number.
fn numbers(json: &Json, path: &str, found: &mut Vec<String>) {
    let below = |step: &str| match path {
        "" => step.to_owned(),
        path => format!("{path}.{step}"),
    };
    match json {
        Json::Object(fields) => {
            fields.iter().for_each(|(key, value)| numbers(value, &below(key), found));
        }
        Json::Array(items) => {
            let items = items.iter().take(8).enumerate();
            items.for_each(|(at, value)| numbers(value, &below(&at.to_string()), found));
        }
        Json::Number(_) => found.push(path.to_owned()),
        _ => {}
    }
}

impl Outlook {
    /// Refuses what would take longer than the grid allows, and says how many cases would fit.
    pub fn refuse_beyond(&self, budget: Option<Span>) -> Result<(), Failure> {
        let Some(budget) = budget.filter(|budget| budget.as_secs_f64() < self.wall_s) else {
            return Ok(());
        };
        let cases = self.plan.cases.len();
        let fit = (cases as f64 * budget.as_secs_f64() / self.wall_s).floor();
        let time = Span::from_secs_f64(self.wall_s);
        Err(Failure::Run(format!(
            "{} cases would take about {time:.0} on {} threads, and the grid's budget is {budget}; \
             about {fit} cases fit: draw that many with `[sample]`, or raise `budget`",
            grouped(cases as u64),
            self.threads
        )))
    }
}

impl Answer for Outlook {
    fn unused(&self) -> Vec<Unused> {
        self.idle.clone()
    }

    fn sheet(&self) -> Sheet {
        let Self { cases, threads, looked_at, .. } = *self;
        let time = |seconds: f64| format!("{:.1}", Span::from_secs_f64(seconds));
        let memory = format!("{:.0}", Bytes::new(self.memory_bytes));
        let mut sheet = Sheet::new().heading("The plan of a sweep").facts([
            ("cases", grouped(cases as u64), ""),
            ("time", time(self.wall_s), "on the clock"),
            ("of one core", time(self.cpu_s), ""),
            ("memory", memory, ""),
        ]);
        let refused = match self.refused {
            0 => String::new(),
            refused => format!(" Conditions refuse {} combinations.", grouped(refused)),
        };
        sheet = sheet.text(format!(
            "Plan {} on {threads} threads, from {looked_at} cases: their engines' own estimates, \
             and the clock where a case is short. Kept: {}.{refused}",
            self.plan.head.plan,
            self.measures.join(", ")
        ));
        for remark in &self.remarks {
            sheet = sheet.note(remark.clone());
        }
        for (case, why) in &self.failed {
            sheet = sheet.note(format!("case {case} fails, and others may: {why}"));
        }
        let columns = ["case", "hash", "engine", "seed", "set"];
        let align = [Align::Right, Align::Left, Align::Left, Align::Right, Align::Left];
        let mut table = Table::new(columns.into_iter().zip(align));
        for row in self.list.iter().take(SHOWN) {
            let Row { case, hash, engine, seed, set } = row;
            let (case, seed) = (case.to_string(), seed.to_string());
            table.row([case, hash.clone(), (*engine).to_owned(), seed, set.join(" ")]);
        }
        let sheet = sheet.table(table);
        match cases.checked_sub(SHOWN).filter(|more| 0 < *more) {
            Some(more) => sheet.text(format!("And {} more: --json has all.", grouped(more as u64))),
            None => sheet,
        }
    }
}
