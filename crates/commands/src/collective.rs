//! `collective`: how one collective behaves over message sizes, in the shape of nccl-tests' table.

use report::number::significant;
use report::{Align, Answer, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::Loaded;
use serde::Serialize;
use traffic::collective::{Collective, Communicator, Group, Limit, Lowered, Unlowered, Wanted};
use traffic::{Outcome, Transfers, nccl};
use units::{Bytes, Span};

use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::files::capture::Captured;
use crate::interval::Interval;
use crate::links::Pictures;
use crate::packets::{Budget, Patience};
use crate::seeds::{self, Repeat, Seeds, Spread};

pub mod bench;
mod iterations;
pub mod measured;
pub mod table;

pub use iterations::Iterations;
use measured::Measured;

/// Which sizes to run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The smallest.
    pub min: Bytes,
    /// The largest.
    pub max: Bytes,
    /// From one to the next.
    pub factor: u64,
}

/// A collective over sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Which collective.
    pub collective: &'static str,
    /// GPUs that take part.
    pub gpus: usize,
    /// One for each size.
    pub rows: Vec<Row>,
    /// The same under other seeds, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
    /// What the engine noticed, and where the library chose otherwise than it was asked to.
    pub findings: Vec<String>,
    /// Why larger sizes, or seeds, were left out, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// What was measured, if anything is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
    /// What of its packets was written, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Captured>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    engine: Engine,
    #[serde(skip)]
    pictures: Option<Pictures>,
}

/// One size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// As nccl-tests counts it.
    pub bytes: u64,
    /// How long it takes, its launch included; over several iterations the mean.
    pub time_us: f64,
    /// The least of its 80 % interval.
    pub low_us: f64,
    /// The most.
    pub high_us: f64,
    /// Bytes over time.
    #[serde(rename = "algbw_GBps")]
    pub algbw_gbps: f64,
    /// The same, scaled so that it can be compared with the links' rate.
    #[serde(rename = "busbw_GBps")]
    pub busbw_gbps: f64,
    /// Which algorithm the library chose.
    pub algorithm: &'static str,
    /// Which protocol.
    pub protocol: &'static str,
    /// How many channels.
    pub channels: u32,
    /// The busiest link between switches, and how busy.
    pub limiting_link: String,
    /// Its utilisation over the collective.
    pub limiting_utilisation: f64,
    /// Processor cores that the transport keeps busy in the busiest server; none where the engine
    /// does not know what each NIC carries.
    pub cpu_cores: Option<f64>,
    /// Where the interval comes from.
    pub interval_from: String,
    /// The time over several seeds, in microseconds; the figures above are then of its mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds_us: Option<Spread>,
    /// How the iterations differ, if it was run several times in a row; of all seeds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<Iterations>,
}

/// What to run, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// On which engine.
    pub engine: Engine,
    /// Whether it may take long.
    pub patience: Patience,
    /// Which collective.
    pub collective: Collective,
    /// With how much.
    pub sizes: Sizes,
    /// On how many GPUs; all if nobody says.
    pub gpus: Option<usize>,
    /// How often in a row, with queue pairs, rates and queues kept from one to the next.
    pub iterations: u32,
}

/// Runs one collective over sizes on the first GPUs of the scenario's fabric. Somebody who
/// interrupts it gets the sizes that were done.
pub fn run(
    loaded: &Loaded,
    options: &Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    run_seeds(loaded, options, Repeat::ONCE, None, watch)
}

/// The same under several seeds: times are means, with how they are spread. What was measured on
/// the real machine stands beside it, or what is published.
pub fn run_seeds(
    loaded: &Loaded,
    options: &Options,
    repeat: Repeat<'_>,
    beside: Option<Vec<Measured>>,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    let Options { engine, collective, .. } = *options;
    let fabric = loaded.fabric();
    let first = ran(loaded, options, watch)?;
    let others = seeds::others(loaded, repeat, |loaded, watch| {
        ran(loaded, options, watch).map(|ran| ran.rows)
    })?;
    let all: Vec<&[Row]> =
        std::iter::once(&first.rows[..]).chain(others.iter().map(Vec::as_slice)).collect();
    let several = 1 < repeat.seeds;
    let rows: Vec<Row> = match several {
        true => (0..first.rows.len()).map(|at| Row::over_seeds(&all, at)).collect(),
        false => first.rows.clone(),
    };
    let reasons: Vec<String> =
        first.left_out.into_iter().chain(seeds::left_out(all.len(), repeat)).collect();
    let answers: Vec<Vec<seeds::Value>> = all.iter().map(|rows| figures(rows)).collect();
    Ok(Report {
        collective: collective.name(),
        gpus: first.gpus,
        seeds: several.then(|| Seeds::of(loaded.scenario.seed, &answers)),
        findings: findings(loaded, &rows, first.largest.as_ref()),
        rows,
        left_out: (!reasons.is_empty()).then(|| reasons.join("; ")),
        measured: beside.unwrap_or_else(|| measured::published(loaded, collective, first.gpus)),
        capture: None,
        title: loaded.title(),
        engine,
        pictures: first.largest.map(|outcome| {
            let seconds = outcome.makespan().as_secs_f64();
            Pictures::of(fabric, &|link| engine::load(fabric, &outcome, seconds, link))
        }),
    })
}

/// What the engine noticed at the largest size, and rows that another algorithm runs than the one
/// that was asked for.
fn findings(loaded: &Loaded, rows: &[Row], largest: Option<&Outcome>) -> Vec<String> {
    let mut findings = Vec::new();
    if let Some(asked) = &loaded.scenario.library.algorithm {
        let others = rows.iter().map(|row| row.algorithm).filter(|name| name != asked);
        let mut others: Vec<&str> = others.collect();
        others.dedup();
        if !others.is_empty() {
            let others = others.join(", ");
            findings.push(format!(
                "library.algorithm={asked} cannot run this here: {others} was chosen instead"
            ));
        }
    }
    let noticed = largest.into_iter().flat_map(|outcome| &outcome.findings);
    findings.extend(noticed.map(|finding| format!("{}: {}", finding.at, finding.text)));
    findings
}

/// What is told of every seed.
fn figures(rows: &[Row]) -> Vec<seeds::Value> {
    let of = |row: &Row| {
        [
            (format!("time of {}", Bytes::new(row.bytes)), "us", row.time_us),
            (format!("bus bandwidth of {}", Bytes::new(row.bytes)), "GB/s", row.busbw_gbps),
        ]
    };
    rows.iter().flat_map(of).collect()
}

/// The sizes that were run under one seed.
struct Ran {
    gpus: usize,
    rows: Vec<Row>,
    /// What the largest did, on engines that run one.
    largest: Option<Outcome>,
    /// Why larger ones were left out, if they were.
    left_out: Option<String>,
}

fn ran(
    loaded: &Loaded,
    options: &Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Ran, Failure> {
    let Options { engine, patience, sizes, gpus, iterations, .. } = *options;
    patience.tell(watch);
    let fabric = loaded.fabric();
    let gpus = taking_part(gpus, fabric.gpus())?;
    if iterations != 1 && !engine.has_contention() {
        let reason = "one iteration after the other takes equally long by closed forms: choose \
                      --engine flow or packet for --iterations";
        return Err(Failure::Usage(reason.to_owned()));
    }
    if iterations == 0 {
        return Err(Failure::Usage("iterations are 1 or more".to_owned()));
    }
    if sizes.factor < 2 || sizes.max < sizes.min || sizes.min == Bytes::ZERO {
        return Err(Failure::Run("sizes go from a smallest to a largest by a factor".to_owned()));
    }
    let ranks: Vec<_> = (0..gpus).map(|gpu| fabric.gpu(gpu)).collect();
    let communicator = Communicator::new(fabric, &ranks);
    let (mut rows, mut largest, mut left_out) = (Vec::new(), None, None);
    let mut bytes = sizes.min;
    let mut budget = Budget::new(patience);
    while bytes <= sizes.max {
        match row(loaded, (options, bytes), &communicator, &mut budget, watch) {
            Err(Failure::Interrupted(_)) if !rows.is_empty() => {
                left_out = Some(format!("stopped: from {bytes} on nothing was run"));
                break;
            }
            // What was run before patience came to its end is worth knowing.
            Err(Failure::Run(reason)) if !rows.is_empty() => {
                left_out = Some(format!("from {bytes} on there is no answer: {reason}"));
                break;
            }
            row => {
                let (row, outcome) = row?;
                rows.push(row);
                largest = outcome;
            }
        }
        bytes = Bytes::new(bytes.get().saturating_mul(sizes.factor));
    }
    Ok(Ran { gpus, rows, largest, left_out })
}

/// How many GPUs take part: as many as were asked for, if there are so many.
fn taking_part(asked: Option<usize>, all: usize) -> Result<usize, Failure> {
    match asked {
        Some(gpus) if gpus == 0 || all < gpus => {
            let reason = format!("a collective cannot run on {gpus} GPUs: the cluster has {all}");
            Err(Failure::Usage(reason))
        }
        _ => Ok(asked.unwrap_or(all)),
    }
}

impl Row {
    /// One size over seeds.
    fn over_seeds(seeds: &[&[Self]], at: usize) -> Self {
        let first = &seeds[0][at];
        let times = seeds.iter().filter_map(|rows| rows.get(at)).map(|row| row.time_us);
        let spread = Spread::of(&times.collect::<Vec<_>>());
        let faster = first.time_us / spread.mean;
        let each = seeds.iter().filter_map(|rows| rows.get(at)?.iterations.as_ref());
        let each: Vec<&[f64]> = each.map(|several| &several.times_us[..]).collect();
        Self {
            iterations: first.iterations.is_some().then(|| Iterations::of(each.concat())),
            time_us: spread.mean,
            low_us: first.low_us / faster,
            high_us: first.high_us / faster,
            algbw_gbps: first.algbw_gbps * faster,
            busbw_gbps: first.busbw_gbps * faster,
            seeds_us: Some(spread),
            ..first.clone()
        }
    }
}

fn row(
    loaded: &Loaded,
    (options, bytes): (&Options, Bytes),
    communicator: &Communicator,
    budget: &mut Budget,
    watch: &mut packetsim::Watch<'_>,
) -> Result<(Row, Option<Outcome>), Failure> {
    let Options { engine, collective, patience, iterations, .. } = *options;
    let fabric = loaded.fabric();
    let settings = &engine::library(loaded);
    let mut times_us = Vec::new();
    let (plan, seconds, limiting, outcome) = if engine.has_contention() {
        let mut transfers = Transfers::new();
        let label = transfers.label(collective.name());
        let (detail, weights) = (engine::detail(loaded, engine), &[][..]);
        let operations = engine::most_operations(engine, detail, patience);
        let limit = Limit { operations, copies: iterations.into() };
        let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
        let mut group = Group::new(communicator.clone());
        let on = (fabric, engine);
        let first = engine::lower(on, &mut group, &wanted, &mut transfers, &[])?;
        let Lowered { end, plan } = first;
        let mut ends = vec![end];
        for before in 0..iterations as usize - 1 {
            let after = [ends[before]];
            ends.push(engine::lower(on, &mut group, &wanted, &mut transfers, &after)?.end);
        }
        watch.expected_events = engine::estimate(loaded, engine, &transfers, budget)?;
        let outcome = engine::run_whole(loaded, fabric, engine, &transfers, watch)?;
        refuse_unfinished(&outcome, collective, bytes)?;
        times_us = iterations::times_us(&outcome, &ends);
        let all = outcome.over(ends[ends.len() - 1]).unwrap_or(Span::ZERO).as_secs_f64();
        let limiting = engine::busiest(fabric, &outcome, all);
        (plan, all / ends.len() as f64, limiting, Some(outcome))
    } else {
        let ranks = communicator.ranks() as u32;
        let estimate = nccl::estimate(fabric, communicator, collective, bytes, settings);
        let estimate = estimate.ok_or(Unlowered::NoAlgorithm { collective, ranks })?;
        (estimate.plan, estimate.time.as_secs_f64(), Default::default(), None)
    };
    refuse_beyond_the_clock(bytes, seconds)?;
    let algbw_gbps = if seconds > 0.0 { bytes.as_f64() / seconds / 1e9 } else { 0.0 };
    let over = seconds * f64::from(iterations);
    let cpu_cores = outcome
        .as_ref()
        .map(|outcome| engine::cpu_cores(loaded, &|link| engine::carried(outcome, link), over));
    let ends = || nccl::estimate::at_ends(fabric, communicator, collective, bytes, settings);
    let what = (communicator.domains() < 2, bytes.get());
    let interval = Interval::of_collective(loaded, engine, collective, what, ends);
    let (low_us, high_us) = interval.of_time(seconds * 1e6);
    let row = Row {
        bytes: bytes.get(),
        time_us: seconds * 1e6,
        low_us,
        high_us,
        interval_from: interval.why,
        algbw_gbps,
        busbw_gbps: algbw_gbps * collective.bus_factor(communicator.ranks() as u32),
        algorithm: plan.algorithm.name(),
        protocol: plan.protocol.name(),
        channels: plan.channels,
        limiting_link: limiting.0,
        limiting_utilisation: limiting.1,
        cpu_cores,
        seeds_us: None,
        iterations: (1 < times_us.len()).then(|| Iterations::of(times_us)),
    };
    Ok((row, outcome))
}

fn refuse_beyond_the_clock(bytes: Bytes, seconds: f64) -> Result<(), Failure> {
    if seconds < Span::MAX.as_secs_f64() {
        return Ok(());
    }
    let most = (Span::MAX.as_secs_f64() / 86_400.0).floor();
    let reason = format!("{bytes} takes longer than the {most} days that the clock counts");
    Err(Failure::Run(reason))
}

/// What never ended has no time, and so no bandwidth: the last of those operations that did end
/// says nothing of the collective.
fn refuse_unfinished(
    outcome: &Outcome,
    collective: Collective,
    bytes: Bytes,
) -> Result<(), Failure> {
    let lost = outcome.ops.len() - outcome.completed();
    if lost == 0 {
        return Ok(());
    }
    let why = outcome.findings.first().map(|found| format!(": {} ({})", found.text, found.at));
    let (all, collective) = (outcome.ops.len(), collective.name());
    let why = why.unwrap_or_default();
    Err(Failure::Run(format!(
        "{lost} of {all} transfers of {collective} over {bytes} did not end{why}"
    )))
}

impl Report {
    /// Mean size of the errors at sizes that were measured, and how many these are.
    fn error(&self) -> Option<(f64, usize)> {
        let at = |bytes| self.rows.iter().find(|row| row.bytes == bytes);
        let pairs = self.measured.iter().filter_map(|one| Some((one, at(one.bytes)?)));
        let errors: Vec<f64> =
            pairs.map(|(one, row)| (row.busbw_gbps / one.busbw_gbps - 1.0).abs()).collect();
        let count = errors.len();
        (0 < count).then(|| (errors.iter().sum::<f64>() / count as f64, count))
    }

    fn chart(&self) -> Chart {
        let mut frame = Frame::new(&["bytes", "busbw", "series"]);
        for row in &self.rows {
            frame.push(vec![row.bytes.into(), row.busbw_gbps.into(), "predicted".into()]);
        }
        let mut points: Vec<String> = Vec::new();
        for one in &self.measured {
            let series = format!("measured: {}", one.source);
            frame.push(vec![one.bytes.into(), one.busbw_gbps.into(), series.as_str().into()]);
            if !points.contains(&series) {
                points.push(series);
            }
        }
        let chart = Chart::new(ChartKind::Line, "Bus bandwidth over message size", frame)
            .caption(
                "Small messages are held back by latency, large ones by the narrowest link. Dots \
                 without a line are measurements.",
            )
            .axes("bytes", "busbw")
            .by("series")
            .labels("message", "bus bandwidth (GB/s)")
            .units(Unit::MessageBytes, Unit::Number)
            .log_x();
        Chart { points, ..chart }
    }

    fn seeds_table(&self) -> Table {
        let names = ["size (B)", "mean (us)", "± 95 %", "p5", "median", "p95", "p99"];
        let mut table = Table::new(names.map(|name| (name, Align::Right)));
        for row in &self.rows {
            let Spread { mean, ci95, p5, p50, p95, p99 } = row.seeds_us.unwrap_or_default();
            let times = [mean, ci95, p5, p50, p95, p99].map(|time| format!("{time:.1}"));
            table.row(std::iter::once(row.bytes.to_string()).chain(times));
        }
        table
    }
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }

    fn sheet(&self) -> Sheet {
        let mut table = Table::new([
            ("size (B)", Align::Right),
            ("time (us)", Align::Right),
            ("80 % (us)", Align::Right),
            ("algbw GB/s", Align::Right),
            ("busbw GB/s", Align::Right),
            ("algorithm", Align::Left),
            ("protocol", Align::Left),
            ("channels", Align::Right),
            ("busiest link", Align::Right),
        ]);
        for row in &self.rows {
            let load = format!("{:.0} %", 100.0 * row.limiting_utilisation);
            table.row([
                row.bytes.to_string(),
                format!("{:.1}", row.time_us),
                format!("{}–{}", significant(row.low_us), significant(row.high_us)),
                significant(row.algbw_gbps),
                significant(row.busbw_gbps),
                row.algorithm.to_owned(),
                row.protocol.to_owned(),
                row.channels.to_string(),
                if row.limiting_link.is_empty() { String::new() } else { load },
            ]);
        }
        let Self { title, collective, gpus, engine, .. } = self;
        let mut sheet = Sheet::new()
            .heading(format!("{title}: {collective} on {gpus} GPUs, {} engine", engine.name()))
            .on_page(self.headline());
        // One size is no curve.
        if 1 < self.rows.len() || !self.measured.is_empty() {
            sheet = sheet.chart(self.chart());
        }
        sheet = self
            .busiest_links()
            .into_iter()
            .fold(sheet.table(table), |sheet, links| sheet.text(links));
        if let Some(seeds) = &self.seeds {
            sheet = sheet.text(format!(
                "Times and bandwidths are the mean of {} seeds; links are those of seed {}.",
                seeds.count, seeds.first
            ));
        }
        for remark in self.findings.iter().chain(&self.left_out) {
            sheet = sheet.note(remark.clone());
        }
        if let Some(last) = self.rows.last() {
            let size = Bytes::new(last.bytes);
            sheet = sheet.text(format!("Interval of {size}: {}.", last.interval_from));
        }
        if let Some((error, count)) = self.error() {
            let error = format!("{:.1} %", 100.0 * error);
            let sizes = if count == 1 { "size that was" } else { "sizes that were" };
            sheet =
                sheet.text(format!("Off by {error} on average at the {count} {sizes} measured."));
        }
        if let Some(seeds) = &self.seeds {
            let heading = format!("Time over {} seeds from {}", seeds.count, seeds.first);
            sheet = sheet.heading(heading).table(self.seeds_table());
        }
        sheet = self.capture.iter().fold(sheet, |sheet, told| sheet.text(told.words()));
        sheet = iterations::show(&self.rows, sheet);
        if let Some(pictures) = &self.pictures {
            sheet = pictures.show(sheet, "All links, at the largest size");
        }
        sheet
    }
}

impl Report {
    /// Which link is the busiest, by size.
    fn busiest_links(&self) -> Option<String> {
        let named = |row: &&Row| !row.limiting_link.is_empty();
        let rows: Vec<&Row> = self.rows.iter().filter(named).collect();
        let runs = rows.chunk_by(|one, next| one.limiting_link == next.limiting_link);
        let words = runs.map(|run| {
            let last = run.last().map_or(0, |row| row.bytes);
            format!("{} (up to {})", run[0].limiting_link, Bytes::new(last))
        });
        let words: Vec<String> = words.collect();
        match &words[..] {
            [] => None,
            [_] => Some(format!("Busiest link: {}.", rows[0].limiting_link)),
            _ => Some(format!("Busiest link: {}.", words.join(", "))),
        }
    }

    /// The figures of the largest size, and of the smallest.
    fn headline(&self) -> Sheet {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else {
            return Sheet::new();
        };
        let of = |row: &Row| format!("of {}", Bytes::new(row.bytes));
        let time = |us: f64| format!("{:.2}", Span::from_secs_f64(us / 1e6));
        let range = format!("{}, 80 %: {} to {}", of(last), time(last.low_us), time(last.high_us));
        let busbw = format!("{} GB/s", significant(last.busbw_gbps));
        let mut facts = vec![
            ("bus bandwidth", busbw, of(last)),
            ("time", time(last.time_us), range),
            ("time", time(first.time_us), of(first)),
        ];
        if self.rows.len() == 1 {
            facts.pop();
        }
        if !last.limiting_link.is_empty() {
            let load = format!("{:.0} %", 100.0 * last.limiting_utilisation);
            facts.push(("busiest link", load, last.limiting_link.clone()));
        }
        let facts = facts.iter().map(|(label, value, note)| (*label, value.clone(), note.as_str()));
        Sheet::new().facts(facts)
    }
}
