//! `compare`: any scenarios side by side; without an argument, the deployments that the comparative
//! analysis tells of.
//!
//! Each column is loaded, described, and predicted by the chosen engine. What has been published
//! about it (`[[reported]]`) stands beside what is simulated, in the same unit, with its source.
//! What differs between the inputs is listed for scenarios that were named.

use std::sync::atomic::AtomicBool;

use fabric::summary::{Summary, summary};
use report::Answer;
use scenario::file::Reported;
use scenario::{Loaded, Request, load};
use serde::Serialize;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::packets::Patience;
use crate::{parallel, run_job, run_traffic, traffic as wire};

mod metrics;
mod page;

/// The deployments of the comparative analysis, and an AMD cluster.
pub const DEPLOYMENTS: [&str; 5] =
    ["gpt4-azure", "llama3-meta-roce", "deepseek-v2", "grok4-colossus", "amd-mi300x"];

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
}

/// Scenarios side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the columns are called.
    pub columns: Vec<String>,
    /// One for each metric.
    pub rows: Vec<Row>,
    /// Inputs that differ between the columns; empty for the deployments, which share nothing.
    pub changed: Vec<Changed>,
    #[serde(skip)]
    engine: Engine,
    #[serde(skip)]
    titles: Vec<String>,
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
    /// Where the published figure stands, by column.
    pub source: Vec<Option<String>>,
    /// What it belongs to.
    pub theme: &'static str,
    /// What people call it.
    pub title: String,
    #[serde(skip)]
    form: metrics::Form,
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
    job: Option<(run_job::Report, wire::Report)>,
    traffic: Option<run_traffic::Report>,
}

/// Compares. `tell` hears how far it has come; whoever sets `interrupt` gets the columns that were
/// done by then.
pub fn run(
    options: &Options,
    base: &Request,
    interrupt: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Report, Failure> {
    let named = !options.scenarios.is_empty();
    let names: Vec<String> =
        if named { options.scenarios.clone() } else { DEPLOYMENTS.map(str::to_owned).to_vec() };
    let threads = parallel::threads(options.threads);
    let columns = parallel::map(threads, &names, |name| {
        tell(&format!("{name}: loading"));
        let column = column(name, base, options, interrupt, tell);
        tell(&format!("{name}: done"));
        column
    });
    let mut done: Vec<(String, Column)> = Vec::new();
    for (name, column) in names.into_iter().zip(columns) {
        match column {
            Err(Failure::Interrupted) => {}
            column => done.push((name, column?)),
        }
    }
    if done.is_empty() {
        return Err(Failure::Interrupted);
    }
    let (names, columns): (Vec<String>, Vec<Column>) = done.into_iter().unzip();
    Ok(Report {
        columns: short_names(&names),
        rows: metrics::rows(&columns),
        changed: if named { changed(&columns) } else { Vec::new() },
        engine: options.engine,
        titles: columns.iter().map(|column| column.loaded.title()).collect(),
        breakdowns: columns.iter().map(|c| c.job.as_ref().map(|job| job.0.breakdown_s)).collect(),
    })
}

fn column(
    name: &str,
    base: &Request,
    options: &Options,
    interrupt: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Column, Failure> {
    let Options { engine, patience, .. } = *options;
    let loaded = load(&Request { scenario: Some(name.to_owned()), ..base.clone() })?;
    let scenario = &loaded.scenario;
    let fabric = summary(loaded.fabric(), &scenario.cluster, &scenario.catalogue);
    let gpus = report::number::grouped(fabric.gpus);
    let mut column = Column { fabric, job: None, traffic: None, loaded };
    let mut watch = packetsim::Watch { interrupt: Some(interrupt), ..Default::default() };
    if column.loaded.job.is_some() {
        tell(&format!("{name}: one step on {gpus} GPUs, {} engine", engine.name()));
        let step = run_job::run(&column.loaded, engine, patience, &mut watch)?;
        tell(&format!("{name}: its traffic"));
        column.job = Some((step, wire::run(&column.loaded)?));
    } else if column.loaded.scenario.traffic.is_some() {
        tell(&format!("{name}: synthetic traffic, {} engine", engine.name()));
        let options = run_traffic::Options { engine, patience, series: None };
        let ran = run_traffic::run(&column.loaded, &options, &mut watch)?;
        if watch.is_interrupted() {
            return Err(Failure::Interrupted);
        }
        column.traffic = Some(ran.0);
    }
    Ok(column)
}

impl Column {
    fn reported(&self, metric: &str) -> Option<&Reported> {
        self.loaded.scenario.reported.iter().find(|reported| reported.metric == metric)
    }

    /// Bus bandwidth of a synthetic collective, in 10⁹ bytes per second.
    fn bus_bandwidth(&self) -> Option<f64> {
        self.traffic.as_ref()?.parts.first()?.busbw_gbps
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

    fn sheet(&self) -> report::Sheet {
        page::sheet(self)
    }
}
