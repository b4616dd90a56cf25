//! `compare`: any scenarios side by side; without an argument, the deployments that the comparative
//! analysis tells of.
//!
//! Each column is loaded, described, and predicted by the chosen engine. What has been published
//! about it (`[[reported]]`) stands beside what is simulated, in the same unit, with its source.
//! What differs between the inputs is listed for scenarios that were named.

use std::sync::atomic::AtomicBool;

use fabric::summary::Summary;
use report::Answer;
use report::number::significant;
use scenario::file::Reported;
use scenario::{Extent, Loaded, Request, ScenarioFile, load, preset};
use serde::Serialize;
use units::Unused;

use crate::about::{About, built_otherwise, scenario_file};
use crate::engine::Engine;
use crate::failure::Failure;
use crate::operations::Operations;
use crate::packets::Patience;
use crate::run_job::{Way, several};
use crate::seeds::{self, Repeat, Spread};
use crate::targets::TargetRow;
use crate::{Drawing, parallel, run_job, run_traffic, traffic as wire};

mod leaves;
mod metrics;
mod page;
mod requirements;
mod targets;
mod verdict;

pub use requirements::Requirement;
pub use verdict::{StepDifference, Verdict};

/// The deployments of the comparative analysis, and an AMD cluster.
pub const DEPLOYMENTS: [&str; 5] =
    ["gpt4-azure", "llama3-meta-roce", "deepseek-v2", "grok4-colossus", "amd-mi300x"];

/// How `--vary` begins that asks for several ratios.
const TAPER: &str = "fabric.oversubscription=";

/// What to compare, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Presets and files; the deployments if there are none.
    pub scenarios: Vec<String>,
    /// By which engine.
    pub engine: Engine,
    /// Threads to use.
    pub threads: Option<u16>,
    /// Whether packet runs may take long.
    pub patience: Patience,
    /// Settings with several values each, `key=a,b`: every scenario is run with all of them.
    pub vary: Vec<String>,
    /// Over how many seeds everything is run; 0 and 1 are the scenario's own.
    pub seeds: u32,
    /// Scenarios with settings of their own, each with what its column is called; beside
    /// `scenarios`.
    pub given: Vec<(String, Request)>,
    /// What has to be known of them.
    pub notes: Vec<String>,
}

/// Scenarios side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the columns are called.
    pub columns: Vec<String>,
    /// What each column is about.
    pub about: Vec<About>,
    /// Which is best, and whether that is known; nothing where fewer than two have a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// How much longer each column's step is than the first's; empty where steps do not compare.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Option<StepDifference>>,
    /// One for each metric.
    pub rows: Vec<Row>,
    /// Inputs that differ between the columns; empty for the deployments, which share nothing.
    pub changed: Vec<Changed>,
    /// The five requirements of the documents, each with the better column.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
    /// What each column asks of its operators.
    pub operations: Vec<Operations>,
    /// What the columns should reach, met or missed; each name begins with its column's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetRow>,
    /// What has to be known of the columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Columns that an interrupt has left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    #[serde(skip)]
    engine: Engine,
    #[serde(skip)]
    seeds: u32,
    /// Whether the steps of all columns ran on one clock, for something comes or goes in one.
    #[serde(skip)]
    whole: bool,
    /// Whether somebody named the scenarios; the deployments share nothing.
    #[serde(skip)]
    named: bool,
    /// Whether the columns do the same work in a step.
    #[serde(skip)]
    same_work: bool,
    /// Whether to show rows that do not differ, and everything published, in a terminal too.
    #[serde(skip)]
    pub all: bool,
    #[serde(skip)]
    unused: Vec<Unused>,
    #[serde(skip)]
    titles: Vec<String>,
    /// Each column's scenario as one file.
    #[serde(skip)]
    files: Vec<String>,
    #[serde(skip)]
    breakdowns: Vec<Option<run_job::BreakdownSeconds>>,
}

/// One metric of all columns.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The metric.
    pub metric: String,
    /// The unit of both figures; empty for plain numbers, fractions and words.
    pub unit: String,
    /// What has been published, by column: a figure, the two ends of a range, or words.
    pub reported: Vec<Option<Value>>,
    /// What is simulated, by column.
    pub simulated: Vec<Option<Value>>,
    /// How sure the mean over seeds is, by column: half of the 95 % confidence interval. Empty
    /// where there is one seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ci95: Vec<Option<f64>>,
    /// The least that it may be, by column; empty where the metric has no interval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub low: Vec<Option<f64>>,
    /// The most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub high: Vec<Option<f64>>,
    /// Where the published figure stands, by column.
    pub source: Vec<Option<String>>,
    /// What it belongs to.
    pub theme: &'static str,
    /// What people call it.
    pub title: String,
    #[serde(skip)]
    form: metrics::Form,
    #[serde(skip)]
    better: metrics::Better,
    #[serde(skip)]
    digits: usize,
}

/// A figure, a range or words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A figure.
    Number(f64),
    /// From one figure to another.
    Range(f64, f64),
    /// Words.
    Words(String),
}

/// An input that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// Its dotted path.
    pub key: String,
    /// Its value in each column; empty where it has none.
    pub values: Vec<String>,
}

/// One scenario with all that is known of it.
struct Column {
    loaded: Loaded,
    fabric: Summary,
    operations: Operations,
    /// What was run, once for each seed; one that ran nothing for a scenario that is a fabric.
    runs: Vec<Ran>,
}

/// What was run under one seed.
#[derive(Default)]
struct Ran {
    job: Option<(run_job::Report, wire::Report)>,
    traffic: Option<run_traffic::Report>,
    /// Several jobs on one fabric.
    jobs: Option<several::Report>,
}

/// What a metric describes: a scenario, and what was run of it under one seed.
struct Described<'a> {
    loaded: &'a Loaded,
    fabric: &'a Summary,
    job: Option<&'a (run_job::Report, wire::Report)>,
    traffic: Option<&'a run_traffic::Report>,
    jobs: Option<&'a several::Report>,
    /// Where the step goes in the mean over the seeds.
    parts: Option<run_job::BreakdownSeconds>,
}

/// What one column is to run.
struct Variant {
    scenario: Request,
    set: Vec<String>,
    name: String,
}

/// Whole networks under one scenario's job, each with what its column is called. A network brings
/// the card that belongs to it; where that has another rate, the scenario's own card stays, which
/// the column's name says. It brings boxes too, and uses all of their ports.
pub fn on_networks(scenario: &str, base: &Request) -> Result<Networks, Failure> {
    let settings = |name: &str, base: &Request| {
        let scenario = Some(name.to_owned());
        let extent = Extent::Settings;
        load(&Request { scenario, extent, ..base.clone() }).map(|loaded| loaded.scenario)
    };
    let own = settings(scenario, base)?;
    let card = &own.cluster.nic;
    let rate = |nic: &str| own.catalogue.nic.get(nic).map(|nic| nic.rate_gbps.value);
    let mut notes = Vec::new();
    if let Some(radix) = own.fabric.radix {
        notes.push(format!(
            "Each network brings its boxes and uses all of their ports: fabric.radix = {radix} is \
             left out"
        ));
    }
    let yours = Request { scenario: Some(scenario.to_owned()), ..Request::default() };
    let mut networks = vec![("yours".to_owned(), yours)];
    let mut others = Vec::new();
    for name in preset::networks() {
        let title = name.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
        let (mut title, mut set) = (title.to_owned(), vec![format!("from={scenario}")]);
        let scenario = format!("networks/{name}");
        let word = title.clone();
        let usual = settings(&scenario, &Request::default())?.cluster.nic;
        if brings_card(&scenario) && usual != *card && rate(&usual) != rate(card) {
            set.push(format!("cluster.nic={card}"));
            title += &format!(" ({card} stays)");
        }
        let without = vec!["fabric.radix".to_owned()];
        let request = Request { scenario: Some(scenario), set, without, ..Request::default() };
        let asked = Request { set: [&base.set[..], &request.set].concat(), ..base.clone() };
        let Request { scenario, without, .. } = request.clone();
        let other = load(&Request { scenario, without, extent: Extent::Settings, ..asked })?;
        others.push(format!("{word}: {}", apart(&own, &other.scenario)));
        networks.push((title, request));
    }
    notes.insert(
        0,
        format!("yours is the scenario as it is. What is not the same: {}", others.join("; ")),
    );
    Ok((networks, notes))
}

/// What of a network is not as somebody's own is, in the words of its keys.
fn apart(own: &ScenarioFile, other: &ScenarioFile) -> String {
    let of = |scenario: &ScenarioFile| {
        let ScenarioFile { cluster, fabric, network, .. } = scenario;
        let routing = &network.settings.routing;
        let queue_pairs = if routing.qps == 1 { "queue pair" } else { "queue pairs" };
        [
            fabric.leaf.switch.clone().unwrap_or_default(),
            cluster.nic.clone(),
            network.transport.name().to_owned(),
            routing.policy.name().to_owned(),
            format!("{} {queue_pairs}", routing.qps),
        ]
    };
    let pairs = of(own).into_iter().zip(of(other));
    let words: Vec<String> = pairs.filter(|(own, new)| own != new).map(|(_, new)| new).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// Columns, and what has to be known of them.
type Networks = (Vec<(String, Request)>, Vec<String>);

/// Whether a network says itself which card it has.
fn brings_card(network: &str) -> bool {
    preset::text(network).is_some_and(|text| text.contains("[cluster]"))
}

/// All scenarios with all combinations of what varies.
fn variants(
    scenarios: &[String],
    given: &[(String, Request)],
    vary: &[String],
) -> Result<Vec<Variant>, Failure> {
    let named = short_names(scenarios).into_iter().zip(scenarios);
    let named = named.map(|(name, scenario)| {
        (name, Request { scenario: Some(scenario.clone()), ..Request::default() })
    });
    let mut variants: Vec<Variant> = named
        .chain(given.iter().cloned())
        .map(|(name, scenario)| Variant { scenario, set: Vec::new(), name })
        .collect();
    let is_alone = variants.len() == 1;
    for (at, text) in vary.iter().enumerate() {
        let Some((key, values)) = text.split_once('=').filter(|(_, values)| !values.is_empty())
        else {
            return Err(Failure::Usage(format!("`--vary {text}` is not KEY=VALUE,VALUE,...")));
        };
        let one = |before: &Variant, value: &str| Variant {
            scenario: before.scenario.clone(),
            set: [before.set.clone(), vec![format!("{key}={value}")]].concat(),
            name: match is_alone && at == 0 {
                true => varied(key, value),
                false => format!("{}, {}", before.name, varied(key, value)),
            },
        };
        variants = variants
            .iter()
            .flat_map(|before| values_of(values).into_iter().map(move |value| one(before, value)))
            .collect();
    }
    Ok(variants)
}

/// What a column is called whose setting has this value: the last word of the key, and the value.
fn varied(key: &str, value: &str) -> String {
    let word = key.rsplit('.').next().unwrap_or(key).trim();
    let plain = value.trim().replace(['[', ']', '"'], "");
    match word {
        "oversubscription" => {
            let ratio = |ratio: &str| match ratio.trim().trim_end_matches(".0") {
                ratio if ratio.contains(':') => ratio.to_owned(),
                ratio => format!("{ratio}:1"),
            };
            let ratios: Vec<String> = plain.split(',').map(ratio).collect();
            format!("{word} {}", ratios.join(" "))
        }
        _ => format!("{word} {plain}"),
    }
}

/// The name of a column with the oversubscription that was built, where it says another.
fn as_built(name: String, column: &Column) -> String {
    let tiers = &column.fabric.tiers;
    let Some((before, after)) = name.split_once("oversubscription ") else { return name };
    if !tiers.iter().any(built_otherwise) {
        return name;
    }
    let (asked, rest) = after.split_at(after.find(", ").unwrap_or(after.len()));
    // Nothing is above the highest.
    let below = tiers.iter().take(tiers.len().saturating_sub(1));
    let built: Vec<String> =
        below.map(|tier| format!("{}:1", significant(tier.oversubscription_built))).collect();
    format!("{before}oversubscription {asked} (built {}){rest}", built.join(" "))
}

/// The values of a list, at the commas that stand in no bracket and no quotes.
fn values_of(list: &str) -> Vec<&str> {
    let (mut depth, mut is_quoted, mut from) = (0_i32, false, 0);
    let mut values = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '[' | '{' if !is_quoted => depth += 1,
            ']' | '}' if !is_quoted => depth -= 1,
            ',' if !is_quoted && depth <= 0 => {
                values.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    values.push(&list[from..]);
    values
}

/// Compares. `tell` hears how far it has come; whoever sets `interrupt` gets the columns that were
/// done by then.
pub fn run(
    options: &Options,
    base: &Request,
    interrupt: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Report, Failure> {
    let named = !options.scenarios.is_empty() || !options.given.is_empty();
    let names: Vec<String> =
        if named { options.scenarios.clone() } else { DEPLOYMENTS.map(str::to_owned).to_vec() };
    let threads = parallel::threads(options.threads);
    let variants = variants(&names, &options.given, &options.vary)?;
    if options.engine.moves_packets() {
        refuse_endless(&variants, base, options, tell)?;
    }
    let whole = is_whole(&variants, base, options.engine);
    let columns = parallel::map(threads, &variants, |variant| {
        tell(&format!("{}: loading", variant.name));
        let column = column(variant, base, (options, whole), interrupt, tell);
        tell(&format!("{}: done", variant.name));
        column
    });
    let first = variants.first().map(|variant| variant.request(base));
    let (done, left_out) = done(variants, columns)?;
    let (names, columns): (Vec<String>, Vec<Column>) = done.into_iter().unzip();
    let changed = if named { changed(&columns) } else { Vec::new() };
    let is_about_tapers = options.vary.iter().any(|vary| vary.starts_with(TAPER));
    let rails = first.filter(|_| is_about_tapers);
    let rails = rails.and_then(|first| leaves::rails_alone(&columns, first)).and_then(|scenario| {
        let (set, name) = (Vec::new(), "one switch for each rail".to_owned());
        let column =
            column(&Variant { scenario, set, name }, base, (options, whole), interrupt, tell)
                .ok()?;
        leaves::told_of_rails(&names, &columns, &column)
    });
    let is_about = (named, is_about_tapers);
    let verdict = told(options, (&names, &columns), &changed, is_about, rails);
    Ok(Report {
        verdict,
        differences: {
            let all = verdict::differences(&columns, options.engine);
            if all.iter().any(Option::is_some) { all } else { Vec::new() }
        },
        requirements: requirements::of_columns(&names, &columns),
        operations: columns.iter().map(|column| column.operations.clone()).collect(),
        targets: targets::of_columns(&names, &columns),
        about: columns.iter().map(|column| column.about(options.engine)).collect(),
        files: columns.iter().map(|column| scenario_file(&column.loaded)).collect(),
        columns: names,
        rows: metrics::rows(&columns),
        changed,
        notes: options.notes.clone(),
        left_out,
        engine: options.engine,
        seeds: options.seeds,
        whole,
        named,
        same_work: verdict::is_same_work(&columns),
        all: false,
        unused: unused(&columns),
        titles: columns.iter().map(|column| column.loaded.title()).collect(),
        breakdowns: columns.iter().map(Column::breakdown).collect(),
    })
}

/// Columns with their names.
type Named = Vec<(String, Column)>;

/// The columns that were done, and the names of those that were not.
fn done(
    variants: Vec<Variant>,
    columns: Vec<Result<Column, Failure>>,
) -> Result<(Named, Vec<String>), Failure> {
    let mut done = Named::new();
    let mut left_out = Vec::new();
    for (variant, column) in variants.into_iter().zip(columns) {
        match column {
            Err(Failure::Interrupted(_)) => left_out.push(variant.name),
            column => {
                let column = column?;
                done.push((as_built(variant.name, &column), column));
            }
        }
    }
    if done.is_empty() {
        return Err(Failure::interrupted());
    }
    Ok((done, left_out))
}

/// The verdict, with what has to be known beside it.
fn told(
    options: &Options,
    (names, columns): (&[String], &[Column]),
    changed: &[Changed],
    (named, is_about_tapers): (bool, bool),
    rails: Option<(String, Option<run_job::Lever>)>,
) -> Option<Verdict> {
    let mut verdict = verdict::verdict(names, columns, options.engine)?;
    if let Some(one) = leaves::one_switch(columns).filter(|_| is_about_tapers) {
        return Some(Verdict { text: one, recommended: None, ..verdict });
    }
    let why = leaves::besides_the_ratio(names, columns, &options.vary).filter(|_| named);
    for (text, lever) in why.into_iter().chain(rails) {
        verdict.also.push(text);
        verdict.levers.extend(lever);
    }
    Some(verdict.turning_on(columns, changed, &options.vary))
}

/// What some column does not obey, once for each key and reason.
fn unused(columns: &[Column]) -> Vec<Unused> {
    let mut all: Vec<Unused> = Vec::new();
    for input in columns.iter().flat_map(|column| &column.loaded.unused) {
        if !all.contains(input) {
            all.push(input.clone());
        }
    }
    all
}

/// Whether something comes or goes within the step of some column: then all are run on one clock,
/// for two ways to put a step together differ by more than a fault costs.
fn is_whole(variants: &[Variant], base: &Request, engine: Engine) -> bool {
    let needs = |variant: &Variant| {
        let request = Request { extent: Extent::Settings, ..variant.request(base) };
        load(&request).is_ok_and(|loaded| Way::needed(&loaded) == Way::Whole)
    };
    engine.has_contention() && variants.iter().any(needs)
}

/// Estimates all columns before the first of them runs, and names those that would take too long.
fn refuse_endless(
    variants: &[Variant],
    base: &Request,
    options: &Options,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), Failure> {
    let Options { engine, patience, .. } = *options;
    let mut refused = Vec::new();
    for variant in variants {
        tell(&format!("{}: what packets will take", variant.name));
        let loaded = load(&variant.request(base))?;
        let estimated = if loaded.job.is_some() {
            run_job::refuse_endless(&loaded, engine, patience)
        } else if loaded.scenario.traffic.is_some() {
            run_traffic::refuse_endless(&loaded, engine, patience)
        } else {
            Ok(())
        };
        match estimated {
            Err(Failure::Run(reason)) => refused.push(format!("{}: {reason}", variant.name)),
            estimated => estimated?,
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::Run(refused.join("\n"))) }
}

impl Variant {
    /// The scenario of this column.
    fn request(&self, base: &Request) -> Request {
        let Request { scenario, text, flows, seed, mut without, .. } = self.scenario.clone();
        // What varies counts.
        let varies = |key: &str| self.set.iter().any(|set| set.split('=').next() == Some(key));
        without.retain(|key| !varies(key));
        let set = [base.set.clone(), self.scenario.set.clone(), self.set.clone()].concat();
        let seed = seed.or(base.seed);
        Request { scenario, text, flows, set, seed, without, ..base.clone() }
    }
}

fn column(
    variant: &Variant,
    base: &Request,
    (options, whole): (&Options, bool),
    interrupt: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Column, Failure> {
    let (name, engine) = (&variant.name, options.engine);
    let loaded = load(&variant.request(base))?;
    let scenario = &loaded.scenario;
    let fabric = loaded.summary();
    let operations = Operations::of(&loaded, &fabric)?;
    let gpus = report::number::grouped(fabric.gpus);
    let what = match (&loaded.job, &scenario.traffic) {
        _ if !loaded.members.is_empty() => format!("{} jobs", loaded.members.len()),
        (Some(_), _) => format!("one step on {gpus} GPUs"),
        (None, Some(_)) => "synthetic traffic".to_owned(),
        (None, None) => {
            return Ok(Column { runs: vec![Ran::default()], fabric, operations, loaded });
        }
    };
    tell(&format!("{name}: {what}, {} engine", engine.name()));
    let ask =
        |loaded: &Loaded, watch: &mut packetsim::Watch<'_>| ran(loaded, options, whole, watch);
    let mut watch = packetsim::Watch { interrupt: Some(interrupt), ..Default::default() };
    let first = ask(&loaded, &mut watch)?;
    // The columns have the threads already.
    let repeat = Repeat { seeds: options.seeds, threads: Some(1), interrupt: Some(interrupt) };
    let others = seeds::others(&loaded, repeat, ask)?;
    if watch.is_interrupted() {
        return Err(Failure::interrupted());
    }
    let runs = std::iter::once(first).chain(others).collect();
    Ok(Column { runs, fabric, operations, loaded })
}

/// Runs a scenario under its seed.
fn ran(
    loaded: &Loaded,
    options: &Options,
    whole: bool,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Ran, Failure> {
    let Options { engine, patience, .. } = *options;
    if !loaded.members.is_empty() {
        let options = several::Options { engine, patience, steps: 1 };
        let jobs = Some(several::run(loaded, options, watch)?);
        return Ok(Ran { jobs, ..Ran::default() });
    }
    if loaded.job.is_some() {
        let step = run_job::run_once(loaded, engine, patience, whole, watch)?;
        return Ok(Ran { job: Some((step, wire::run(loaded)?)), ..Ran::default() });
    }
    let drawing = Drawing::Omitted;
    let options = run_traffic::Options { engine, patience, series: None, capture: None, drawing };
    let (report, ..) = run_traffic::run(loaded, &options, watch)?;
    Ok(Ran { traffic: Some(report), ..Ran::default() })
}

impl Column {
    fn reported(&self, metric: &str) -> Option<&Reported> {
        self.loaded.scenario.reported.iter().find(|reported| reported.metric == metric)
    }

    fn about(&self, engine: Engine) -> About {
        About::of(&self.loaded, Some(engine.name()), "")
    }

    /// The first seed's step.
    fn step(&self) -> Option<&run_job::Report> {
        self.runs.first()?.job.as_ref().map(|job| &job.0)
    }

    /// Where the step goes, in the mean over the seeds.
    fn breakdown(&self) -> Option<run_job::BreakdownSeconds> {
        let steps = self.runs.iter().filter_map(|run| run.job.as_ref());
        run_job::BreakdownSeconds::mean(steps.map(|(step, _)| &step.breakdown_s))
    }

    /// What the column answers; over several seeds the mean, and how sure it is.
    fn over_seeds(
        &self,
        answer: fn(&Described<'_>) -> Option<Value>,
    ) -> (Option<Value>, Option<f64>) {
        let of = |run| answer(&Described::of(self, run));
        let mut answers: Vec<Option<Value>> = self.runs.iter().map(of).collect();
        let numbers: Vec<f64> = answers.iter().filter_map(Value::number).collect();
        if numbers.len() < 2 {
            return (answers.swap_remove(0), None);
        }
        let Spread { mean, ci95, .. } = Spread::of(&numbers);
        (Some(Value::Number(mean)), Some(ci95))
    }

    /// The ends of a metric; over several seeds their means.
    fn ends(&self, of: metrics::Ends) -> Option<(f64, f64)> {
        let ends: Vec<(f64, f64)> =
            self.runs.iter().filter_map(|run| of(&Described::of(self, run))).collect();
        let mean =
            |end: fn(&(f64, f64)) -> f64| ends.iter().map(end).sum::<f64>() / ends.len() as f64;
        (!ends.is_empty()).then(|| (mean(|ends| ends.0), mean(|ends| ends.1)))
    }
}

impl Value {
    /// The figure, if it is one.
    fn number(value: &Option<Self>) -> Option<f64> {
        match value {
            Some(Self::Number(number)) => Some(*number),
            _ => None,
        }
    }
}

impl<'a> Described<'a> {
    fn of(column: &'a Column, run: &'a Ran) -> Self {
        let Ran { job, traffic, jobs } = run;
        let (job, traffic, jobs) = (job.as_ref(), traffic.as_ref(), jobs.as_ref());
        let (loaded, fabric) = (&column.loaded, &column.fabric);
        Self { loaded, fabric, job, traffic, jobs, parts: column.breakdown() }
    }
}

/// Names without the folders and endings that they share no need for.
fn short_names(names: &[String]) -> Vec<String> {
    let stem = |name: &String| {
        let last = name.rsplit('/').next().unwrap_or(name);
        last.trim_end_matches(".toml").to_owned()
    };
    let short: Vec<String> = names.iter().map(stem).collect();
    let mut sorted = short.clone();
    sorted.sort();
    sorted.dedup();
    if sorted.len() == names.len() { short } else { names.to_vec() }
}

/// Inputs whose values are not the same in all columns.
fn changed(columns: &[Column]) -> Vec<Changed> {
    let mut rows: Vec<Changed> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        for resolved in column.loaded.resolved() {
            let top = resolved.key.split('.').next().unwrap_or_default();
            if ["name", "description", "from", "reported", "catalogue"].contains(&top) {
                continue;
            }
            let known = rows.iter().position(|row| row.key == resolved.key);
            let place = known.unwrap_or_else(|| {
                let values = vec![String::new(); columns.len()];
                rows.push(Changed { key: resolved.key.clone(), values });
                rows.len() - 1
            });
            rows[place].values[at] = resolved.value;
        }
    }
    rows.retain(|row| row.values.iter().any(|value| *value != row.values[0]));
    rows
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }

    fn unused(&self) -> Vec<Unused> {
        self.unused.clone()
    }

    fn sheet(&self) -> report::Sheet {
        page::sheet(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_called_what_differs() {
        let names = |scenarios: &[&str], vary: &[&str]| -> Vec<String> {
            let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let (scenarios, vary): (Vec<String>, Vec<String>) = (own(scenarios), own(vary));
            let variants = variants(&scenarios, &[], &vary).unwrap();
            variants.into_iter().map(|variant| variant.name).collect()
        };
        let ratios = "fabric.oversubscription=[1.0],[2.0, 4.0]";
        let expected = ["oversubscription 1:1", "oversubscription 2:1 4:1"];
        assert_eq!(names(&["mine.toml"], &[ratios]), expected);
        let written = names(&["mine.toml"], &["fabric.oversubscription=1:1,2"]);
        assert_eq!(written, ["oversubscription 1:1", "oversubscription 2:1"]);
        let both = names(&["a.toml", "b.toml"], &["network.routing.qps=1,16"]);
        assert_eq!(both, ["a, qps 1", "a, qps 16", "b, qps 1", "b, qps 16"]);
    }

    /// 32 servers under boxes of 128 ports: whole cables make of 2:1 what they can.
    #[test]
    fn columns_say_what_was_built_and_which_is_cheapest() {
        let options = Options {
            scenarios: vec!["small-128".to_owned()],
            engine: Engine::Analytic,
            vary: vec!["fabric.oversubscription=1:1,2:1".to_owned()],
            ..Options::default()
        };
        let set = ["cluster.gpus=256", "fabric.radix=128"].map(str::to_owned).to_vec();
        let purpose = scenario::Purpose::Run(Engine::Analytic);
        let base = Request { set, purpose, ..Request::default() };
        let report = run(&options, &base, &AtomicBool::new(false), &|_| ()).unwrap();
        assert_eq!(report.columns, ["oversubscription 1:1", "oversubscription 2:1 (built 1.6:1)"]);
        assert_eq!(report.about[1].oversubscription, "2:1 (built 1.6:1)");
        let row = |key: &str| report.rows.iter().find(|row| row.metric == key).unwrap();
        let built = row("oversubscription_built").simulated[1].clone();
        assert_eq!(built, Some(Value::Number(1.6)));
        let switches = row("tier_switches").simulated[0].clone();
        assert_eq!(switches, Some(Value::Words("4 leaf, 2 spine".to_owned())));
        let verdict = report.verdict.unwrap();
        let text = verdict.text;
        let cheapest = "of these oversubscription 2:1 (built 1.6:1) is the cheapest to build: $";
        assert!(text.contains(cheapest), "{text}");
        assert_eq!(verdict.recommended.as_ref(), Some(&report.columns[1]));
        let why = format!("Recommended: {}; a million tokens cost $", report.columns[1]);
        assert!(text.starts_with(&why), "{text}");
    }

    /// 2:1 puts more servers on a leaf than 1:1, and 4:1 still more: other bytes rise above them.
    #[test]
    fn a_verdict_of_ratios_says_what_else_differs_and_what_nobody_asked_for() {
        let options = Options {
            scenarios: vec!["small-128".to_owned()],
            vary: vec!["fabric.oversubscription=1:1,2:1,4:1".to_owned()],
            ..Options::default()
        };
        let asked = |set: &[&str]| {
            let set = set.iter().map(|set| (*set).to_owned()).collect();
            let purpose = scenario::Purpose::Run(Engine::Flow);
            let base = Request { set, purpose, ..Request::default() };
            run(&options, &base, &AtomicBool::new(false), &|_| ()).unwrap()
        };
        let report = asked(&["cluster.gpus=256", "fabric.radix=32"]);
        let also = report.verdict.unwrap().also.join("\n");
        let says = |words: &str| assert!(also.contains(words), "{words}: {also}");
        says("servers share a leaf");
        // Flags that were given stay; what varies is not among them.
        says("4:1 --set cluster.gpus=256 --set fabric.radix=32 --set fabric.downlinks=16)");
        says("one switch for each of the 8 rails, with no spines, is enough for 32 servers");
        let servers = report.rows.iter().find(|row| row.metric == "servers_on_leaf").unwrap();
        let numbers: Vec<f64> = servers.simulated.iter().filter_map(Value::number).collect();
        assert_eq!(numbers, [2.0, 2.0, 3.0]);
        // Four servers are on one switch.
        let few = ["cluster.gpus=32", "job.gpus=32", "job.parallel.dp=4", "fabric.tiers=1"];
        let verdict = asked(&few).verdict.unwrap();
        assert!(verdict.text.starts_with("One tier of switches joins all 4"), "{}", verdict.text);
        assert_eq!((verdict.recommended, verdict.also.len()), (None, 0));
    }

    /// Where nothing that costs money differs, few queue pairs are enough as soon as more do not
    /// help.
    #[test]
    fn as_many_queue_pairs_are_recommended_as_help() {
        let options = Options {
            scenarios: vec!["small-128".to_owned()],
            vary: vec!["network.routing.qps=1,16,32".to_owned()],
            ..Options::default()
        };
        let set = vec!["network.routing.policy=e-ecmp".to_owned()];
        let purpose = scenario::Purpose::Run(Engine::Flow);
        let base = Request { set, purpose, ..Request::default() };
        let report = run(&options, &base, &AtomicBool::new(false), &|_| ()).unwrap();
        let tokens = report.rows.iter().find(|row| row.metric == "token_cost").unwrap();
        let costs: Vec<f64> = tokens.simulated.iter().filter_map(Value::number).collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let expected = costs.iter().position(|cost| *cost <= 1.001 * least).unwrap();
        let verdict = report.verdict.unwrap();
        assert_eq!(verdict.recommended.as_ref(), Some(&report.columns[expected]));
        assert!(0 < expected, "{costs:?}");
    }

    /// One queue pair on each path collides; whoever asks about oversubscription alone hears it.
    #[test]
    fn a_verdict_says_what_it_turns_on() {
        let options = Options {
            scenarios: vec!["small-128".to_owned()],
            vary: vec!["fabric.oversubscription=1:1,2:1".to_owned()],
            seeds: 2,
            ..Options::default()
        };
        let asked = |pairs: u16| {
            let set = vec![
                "network.routing.policy=ecmp".to_owned(),
                format!("network.routing.qps={pairs}"),
            ];
            let purpose = scenario::Purpose::Run(Engine::Flow);
            let base = Request { set, purpose, ..Request::default() };
            run(&options, &base, &AtomicBool::new(false), &|_| ()).unwrap()
        };
        let report = asked(1);
        let verdict = report.verdict.as_ref().unwrap();
        let said = verdict.also.join(" ");
        let says = said.contains("With 1 queue pair and ecmp the fabric costs");
        assert!(says && said.contains("--vary fabric.oversubscription=1:1,2:1 --set"), "{said}");
        let asks = |lever: &run_job::Lever| lever.name.contains("queue pairs");
        assert_eq!(verdict.levers.iter().filter(|lever| asks(lever)).count(), 1);
        // Bars are as long as the mean in the table, and the constraint is of it too.
        let row = |key: &str| report.rows.iter().find(|row| row.metric == key).unwrap();
        for (at, parts) in report.breakdowns.iter().flatten().enumerate() {
            let mean = Value::number(&row("step_s").simulated[at]).unwrap();
            assert!((parts.total() / mean - 1.0).abs() < 1e-9, "{mean}");
            let words = Value::Words(run_job::constraint(parts));
            assert_eq!(row("constraint").simulated[at], Some(words));
        }
    }

    #[test]
    fn networks_use_all_ports_of_their_boxes() {
        let set = vec!["fabric.radix=128".to_owned()];
        let (all, notes) =
            on_networks("small-128", &Request { set, ..Request::default() }).unwrap();
        assert!(notes[1].contains("fabric.radix = 128 is left out"), "{notes:?}");
        assert!(notes[0].contains("roce: spectrum-4"), "{notes:?}");
        assert_eq!(all[0].0, "yours");
        for (name, request) in all.into_iter().skip(1) {
            let loaded = load(&request).unwrap();
            assert_eq!(loaded.scenario.fabric.radix, None, "{name}");
            let vendors = Operations::of(&loaded, &loaded.summary()).unwrap().told[0].text.clone();
            assert_eq!(vendors.starts_with("NVIDIA alone"), name == "spectrum-x", "{vendors}");
        }
    }

    /// What is not sure of a mean is written in the mean's unit.
    #[test]
    fn doubts_share_a_unit() {
        let row = |form, unit: &str, mean, ci95| {
            let simulated = vec![Some(Value::Number(mean))];
            let (metric, title, theme) = ("x".to_owned(), "x".to_owned(), "");
            let row = Row {
                metric,
                title,
                theme,
                unit: unit.to_owned(),
                simulated,
                ci95: vec![Some(ci95)],
                form,
                digits: 3,
                reported: vec![None],
                low: Vec::new(),
                high: Vec::new(),
                source: vec![None],
                better: metrics::Better::Neither,
            };
            page::simulated(&row, 0)
        };
        use metrics::Form;
        assert_eq!(row(Form::Plain, "s", 20.409, 0.0559), "20.4 ± 0.056 s");
        assert_eq!(row(Form::Scaled, "W", 277_550.0, 253.0), "278 ± 0.25 kW");
        assert_eq!(row(Form::Percent, "", 0.3646, 0.001), "36.5 ± 0.10 %");
        assert_eq!(row(Form::Excess, "", 1.584, 0.215), "+58.4 ± 22 %");
        assert_eq!(row(Form::Excess, "", 1.0, 0.107), "0 ± 11 %");
        assert_eq!(row(Form::Dollars, "", 10.8e6, 0.2e6), "$10.8 ± 0.20M");
        assert_eq!(row(Form::Count, "", 1234.0, 5.0), "1,234 ± 5.0");
        assert_eq!(row(Form::Percent, "", 0.3646, 1e-17), "36.5 %");
    }

    #[test]
    fn networks_bring_their_card_unless_it_has_another_rate() {
        let networks = |nic: &str| {
            let set = vec![format!("cluster.nic={nic}")];
            let base = Request { set, ..Request::default() };
            let (all, _) = on_networks("small-128", &base).unwrap();
            let (names, requests): (Vec<String>, Vec<Request>) = all.into_iter().unzip();
            let nic = |request: &Request| load(request).unwrap().scenario.cluster.nic;
            (names.join(", "), requests.iter().map(nic).collect::<Vec<_>>())
        };
        let (names, cards) = networks("connectx-7");
        assert_eq!(names, "yours, roce, roce-tuned, spectrum-x, infiniband, ultra-ethernet");
        assert_eq!(cards[3..], ["bluefield-3", "connectx-7", "pollara-400"]);
        let (names, cards) = networks("connectx-6");
        assert!(names.contains("spectrum-x (connectx-6 stays)"), "{names}");
        assert_eq!(cards[3..], ["connectx-6"; 3]);
    }
}
