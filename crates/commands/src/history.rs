//! `compare --history`: the comparative analysis's line through the years, each as a scenario.

use fabric::cost::NETWORK;
use report::number::{bits_per_second, bytes, grouped};
use report::{Align, Answer, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::{Request, load};
use serde::Serialize;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::packets::Patience;
use crate::{parallel, run_job, traffic as wire};

/// The line: a year, and the scenario that stands for it.
const YEARS: [(u32, &str); 5] = [
    (2018, "history/bert-2018"),
    (2019, "history/gpt2-2019"),
    (2020, "history/gpt3-2020"),
    (2024, "llama3-meta-roce"),
    (2025, "grok4-colossus"),
];

/// Years side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One for each year.
    pub years: Vec<Year>,
    #[serde(skip)]
    engine: Engine,
}

/// One year.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Year {
    /// Which.
    pub year: u32,
    /// The scenario that stands for it.
    pub scenario: &'static str,
    /// What that is.
    pub title: String,
    /// GPUs of the cluster.
    pub gpus: u64,
    /// Parameters of the model.
    pub parameters: f64,
    /// Bytes between NICs in a step.
    pub bytes_per_step: f64,
    /// The highest rate of all NICs together, in bits per second.
    pub demand_bps: f64,
    /// Model FLOPs over the bf16 peak.
    pub mfu: f64,
    /// What of the cluster's price is network.
    pub network_share: f64,
}

fn year(
    (year, scenario): (u32, &'static str),
    base: &Request,
    engine: Engine,
) -> Result<Year, Failure> {
    let loaded = load(&Request { scenario: Some(scenario.to_owned()), ..base.clone() })?;
    let mut watch = packetsim::Watch::default();
    let step = run_job::run(&loaded, engine, Patience::Usual, &mut watch)?;
    let wire = wire::run(&loaded)?;
    let fabric = loaded.summary();
    let model = loaded.job.as_ref().map(|job| job.model.parameters().total());
    Ok(Year {
        year,
        scenario,
        title: loaded.title(),
        gpus: fabric.gpus,
        parameters: model.unwrap_or(0) as f64,
        bytes_per_step: wire.bytes_per_step,
        demand_bps: wire.burst.peak_bps,
        mfu: step.mfu,
        network_share: fabric.bill.of(&NETWORK).0.value / fabric.cost_usd,
    })
}

/// Runs every year.
pub fn run(
    base: &Request,
    engine: Engine,
    threads: Option<u16>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Report, Failure> {
    let years = parallel::map(parallel::threads(threads), &YEARS, |one| {
        tell(&format!("{}: {}", one.0, one.1));
        year(*one, base, engine)
    });
    Ok(Report { years: years.into_iter().collect::<Result<_, _>>()?, engine })
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }

    fn sheet(&self) -> Sheet {
        let mut table = Table::new([
            ("year", Align::Right),
            ("what", Align::Left),
            ("GPUs", Align::Right),
            ("parameters", Align::Right),
            ("bytes of a step", Align::Right),
            ("demand", Align::Right),
            ("MFU", Align::Right),
            ("network, of the price", Align::Right),
        ]);
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let mut demand = Frame::new(&["year", "bps"]);
        let mut shares = Frame::new(&["year", "share", "of"]);
        for year in &self.years {
            table.row([
                year.year.to_string(),
                year.title.clone(),
                grouped(year.gpus),
                format!("{:.1} B", year.parameters / 1e9),
                bytes(year.bytes_per_step),
                bits_per_second(year.demand_bps),
                percent(year.mfu),
                percent(year.network_share),
            ]);
            let at = f64::from(year.year);
            demand.push(vec![at.into(), year.demand_bps.into()]);
            shares.push(vec![at.into(), year.mfu.into(), "MFU".into()]);
            shares.push(vec![at.into(), year.network_share.into(), "network's share".into()]);
        }
        let demand = Chart::new(ChartKind::Line, "Demand on the fabric over the years", demand)
            .axes("year", "bps")
            .labels("year", "highest rate of all NICs")
            .units(Unit::Number, Unit::BitsPerSecond);
        let shares =
            Chart::new(ChartKind::Line, "MFU and the network's share of the price", shares)
                .axes("year", "share")
                .by("of")
                .labels("year", "share")
                .units(Unit::Number, Unit::Share);
        Sheet::new()
            .heading(format!("Through the years, {} engine", self.engine.name()))
            .text(
                "The article's line. Years before 2024 stand for what was not published: chips, \
                 fabrics and layouts of 2018 to 2020 are estimates, as their descriptions say.",
            )
            .table(table)
            .chart(demand)
            .chart(shares)
    }
}
