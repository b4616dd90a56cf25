//! `compare --told`: the comparative analysis's two tables from its own inputs.
//!
//! Every deployment has two readings: as better sources say (`gpt4-azure`) and as the analysis says
//! (`gpt4-azure/told`). Both are run, and each cell of its tables stands beside what comes out of
//! either. What cannot be built as told says so.

use fabric::summary::Summary;
use report::number::{dollars, grouped, significant, watts};
use report::{Align, Answer, Sheet, Table};
use scenario::{Loaded, Request, load};
use serde::Serialize;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::packets::Patience;
use crate::{parallel, run_job};

/// How far a figure may be from what is said.
const TOLERANCE: f64 = 0.1;

/// Tokens of DeepSeek-V2's run, whose cost the analysis puts into the table of clusters.
const DEEPSEEK_TOKENS: f64 = 8.1e12;

/// The tables, cell by cell.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Cells that both readings could answer, or one of them.
    pub compared: usize,
    /// Those within 10 % by the analysis's own inputs.
    pub agree_told: usize,
    /// Those within 10 % by better sources.
    pub agree_better: usize,
    /// What cannot be built as told, and why.
    pub refused: Vec<Refused>,
    #[serde(skip)]
    engine: Engine,
}

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Which table.
    pub table: &'static str,
    /// Whose row.
    pub model: &'static str,
    /// Which column.
    pub column: &'static str,
    /// What the analysis says.
    pub said: &'static str,
    /// What comes out of its own inputs.
    pub told: Option<String>,
    /// What comes out of better sources.
    pub better: Option<String>,
    /// Whether the first is within 10 %, or the same words.
    pub told_agrees: bool,
    /// Whether the second is.
    pub better_agrees: bool,
}

/// A deployment that cannot be built.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// Which.
    pub scenario: String,
    /// Why.
    pub why: String,
}

/// What the analysis says of a deployment.
struct Row {
    model: &'static str,
    preset: &'static str,
    /// Clusters that its figures are of.
    clusters: f64,
    gpus: PublishedRange,
    power_w: PublishedRange,
    topology: (&'static str, &'static [&'static str]),
    oversubscription: PublishedRange,
    cost_usd: PublishedRange,
    mfu: PublishedRange,
    constraint: (&'static str, &'static [&'static str]),
}

/// A figure that is said: in words, the least and the most.
type PublishedRange = (&'static str, f64, f64);

const TREES: &[&str] = &["clos", "fat-tree", "ai-zone"];
const ANY: f64 = f64::INFINITY;

/// The analysis's tables "scale-out" and "MFU".
const ROWS: [Row; 4] = [
    Row {
        model: "GPT-4",
        preset: "gpt4-azure",
        clusters: 1.0,
        gpus: ("25,000", 25e3, 25e3),
        power_w: ("5-10 MW", 5e6, 10e6),
        topology: ("tree", TREES),
        oversubscription: ("low", 1.0, 1.5),
        cost_usd: ("$100M+", 1e8, ANY),
        mfu: ("38-45 %", 0.38, 0.45),
        constraint: (
            "MoE routing, IB credit latency",
            &["expert parallel", "launch and latency", "pauses or credit stalls"],
        ),
    },
    Row {
        model: "Llama 3",
        preset: "llama3-meta-roce",
        clusters: 2.0,
        gpus: ("49,000", 49e3, 49e3),
        power_w: ("20 MW", 20e6, 20e6),
        topology: ("tree", TREES),
        oversubscription: ("1:2", 2.0, 2.0),
        cost_usd: ("$500M+", 5e8, ANY),
        mfu: ("45-50 %", 0.45, 0.5),
        constraint: ("cross-zone boundary", &["tier or zone boundary"]),
    },
    Row {
        model: "DeepSeek-V2",
        preset: "deepseek-v2",
        clusters: 1.0,
        gpus: ("2,000-50,000", 2e3, 50e3),
        power_w: ("5-15 MW", 5e6, 15e6),
        topology: ("tree", TREES),
        oversubscription: ("minimal", 1.0, 1.25),
        cost_usd: ("$5-6M", 5e6, 6e6),
        mfu: ("40-45 %", 0.4, 0.45),
        constraint: ("device-limited all-to-all", &["expert parallel"]),
    },
    Row {
        model: "Grok 4",
        preset: "grok4-colossus",
        clusters: 1.0,
        gpus: ("200,000", 200e3, 200e3),
        power_w: ("1000+ MW", 1e9, ANY),
        topology: ("rail", &["rail-optimized", "rail-only"]),
        oversubscription: ("none", 1.0, 1.0),
        cost_usd: ("$Billion+", 1e9, ANY),
        mfu: ("38-42 %", 0.38, 0.42),
        constraint: ("stragglers, fault recovery", &["stragglers", "faults"]),
    },
];

/// One reading of a deployment, run.
struct Reading {
    fabric: Summary,
    topology: &'static str,
    step: run_job::Report,
}

fn reading(name: &str, base: &Request, engine: Engine) -> Result<Reading, Failure> {
    let loaded: Loaded = load(&Request { scenario: Some(name.to_owned()), ..base.clone() })?;
    let scenario = &loaded.scenario;
    let mut watch = packetsim::Watch::default();
    let step = run_job::run(&loaded, engine, Patience::Usual, &mut watch)?;
    let fabric = loaded.summary();
    Ok(Reading { fabric, topology: scenario.fabric.topology.name(), step })
}

/// Runs both readings of all deployments and fills the tables.
pub fn run(
    base: &Request,
    engine: Engine,
    threads: Option<u16>,
    tell: &(dyn Fn(&str) + Sync),
) -> Report {
    let told: Vec<String> = ROWS.iter().map(|row| format!("{}/told", row.preset)).collect();
    let better = ROWS.iter().map(|row| row.preset.to_owned());
    let names: Vec<String> = told.into_iter().chain(better).collect();
    let mut readings = parallel::map(parallel::threads(threads), &names, |name| {
        tell(&format!("{name}: one step, {} engine", engine.name()));
        reading(name, base, engine)
    });
    let better = readings.split_off(ROWS.len());
    let mut refused = Vec::new();
    for (name, reading) in names.iter().zip(readings.iter().chain(&better)) {
        if let Err(reason) = reading {
            let why = first_line(&reason.to_string());
            refused.push(Refused { scenario: name.clone(), why });
        }
    }
    let mut cells = Vec::new();
    for ((row, told), better) in ROWS.iter().zip(&readings).zip(&better) {
        cells.extend(row.cells(told.as_ref().ok(), better.as_ref().ok()));
    }
    let answered = |cell: &&Cell| cell.told.is_some() || cell.better.is_some();
    Report {
        compared: cells.iter().filter(answered).count(),
        agree_told: cells.iter().filter(|cell| cell.told_agrees).count(),
        agree_better: cells.iter().filter(|cell| cell.better_agrees).count(),
        cells,
        refused,
        engine,
    }
}

fn first_line(text: &str) -> String {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

impl Row {
    fn cells(&self, told: Option<&Reading>, better: Option<&Reading>) -> Vec<Cell> {
        let count = |figure: f64| grouped(figure.round() as u64);
        let percent = |figure: f64| format!("{} %", significant(100.0 * figure));
        let ratio = |figure: f64| format!("1:{}", significant(figure));
        let figure = |table,
                      column,
                      (said, low, high): PublishedRange,
                      of: &dyn Fn(&Reading) -> f64,
                      write: &dyn Fn(f64) -> String| {
            let [told, better] = [told, better].map(|reading| reading.map(of));
            let agrees = |figure: Option<f64>| {
                figure.is_some_and(|figure| {
                    low * (1.0 - TOLERANCE) <= figure && figure <= high * (1.0 + TOLERANCE)
                })
            };
            let (told_agrees, better_agrees) = (agrees(told), agrees(better));
            let (told, better) = (told.map(write), better.map(write));
            let model = self.model;
            Cell { table, model, column, said, told, better, told_agrees, better_agrees }
        };
        let out = "scale-out";
        let cost = |reading: &Reading| self.cost(reading);
        let mut cells = vec![
            figure(out, "GPUs", self.gpus, &|r| self.clusters * r.fabric.gpus as f64, &count),
            figure(out, "power", self.power_w, &|r| self.clusters * r.power_w(), &watts),
        ];
        let (topology, words) = self.topology;
        let kind = |r: &Reading| r.topology.to_owned();
        cells.push(self.words((out, "topology", topology, words), (told, better), &kind));
        let worst = |r: &Reading| {
            r.fabric.tiers.iter().map(|tier| tier.oversubscription).fold(1.0, f64::max)
        };
        cells.push(figure(out, "oversubscription", self.oversubscription, &worst, &ratio));
        cells.push(figure(out, "cost", self.cost_usd, &cost, &dollars));
        cells.push(figure("MFU", "MFU", self.mfu, &|r| r.step.mfu, &percent));
        let (said, words) = self.constraint;
        let leads = |r: &Reading| r.leads();
        cells.push(self.words(("MFU", "constraint", said, words), (told, better), &leads));
        cells
    }

    /// A cell of words, which agrees if one of those that mean the same comes out.
    fn words(
        &self,
        (table, column, said, same): (&'static str, &'static str, &'static str, &[&str]),
        (told, better): (Option<&Reading>, Option<&Reading>),
        of: &dyn Fn(&Reading) -> String,
    ) -> Cell {
        let [told, better] = [told, better].map(|reading| reading.map(of));
        let agrees = |text: &Option<String>| {
            text.as_ref().is_some_and(|text| same.iter().any(|word| text.contains(word)))
        };
        let (told_agrees, better_agrees) = (agrees(&told), agrees(&better));
        let model = self.model;
        Cell { table, model, column, said, told, better, told_agrees, better_agrees }
    }

    /// What the cluster costs; of DeepSeek-V2 the run, which is what its cell says.
    fn cost(&self, reading: &Reading) -> f64 {
        match self.preset {
            "deepseek-v2" => reading.step.cost.usd_per_million_tokens * DEEPSEEK_TOKENS / 1e6,
            _ => self.clusters * reading.whole(reading.step.cost.capital_usd),
        }
    }
}

impl Reading {
    /// What is true of the job's share, for the whole cluster.
    fn whole(&self, share: f64) -> f64 {
        share * self.fabric.gpus as f64 / self.step.gpus as f64
    }

    fn power_w(&self) -> f64 {
        self.whole(self.step.cost.power_w)
    }

    /// What leads besides computation: by axis, and by cause.
    fn leads(&self) -> String {
        let axis = self.step.constraint.split(" (").next().unwrap_or_default();
        format!("{axis}; {}", self.step.causes_s.leads().0)
    }
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }

    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new()
            .heading(format!("The article's tables, {} engine", self.engine.name()))
            .text(format!(
                "Within 10 %, or the same words: {} of {} cells by the article's own inputs \
                 (NAME/told), {} by better sources (NAME).",
                self.agree_told, self.compared, self.agree_better
            ));
        for refused in &self.refused {
            sheet = sheet.note(format!("{} cannot be built: {}", refused.scenario, refused.why));
        }
        for name in ["scale-out", "MFU"] {
            let mut table = Table::new([
                ("model", Align::Left),
                ("", Align::Left),
                ("the article says", Align::Left),
                ("from its inputs", Align::Left),
                ("", Align::Left),
                ("from better sources", Align::Left),
                ("", Align::Left),
            ]);
            for cell in self.cells.iter().filter(|cell| cell.table == name) {
                let mark = |agrees: bool| if agrees { "agrees" } else { "" }.to_owned();
                let figure = |text: &Option<String>| text.clone().unwrap_or("not built".to_owned());
                table.row([
                    cell.model.to_owned(),
                    cell.column.to_owned(),
                    cell.said.to_owned(),
                    figure(&cell.told),
                    mark(cell.told_agrees),
                    figure(&cell.better),
                    mark(cell.better_agrees),
                ]);
            }
            sheet = sheet.heading(format!("Table: {name}")).table(table);
        }
        sheet
    }
}
