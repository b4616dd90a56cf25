//! `--engine all`: the same question to every engine, side by side with their differences.
//!
//! Each column differs from the one before it by one thing: the flow engine adds contention to the
//! closed forms; packets in buffers without end add headers, acknowledgements and queues that serve
//! whoever came first, where a fluid shares fairly; pauses add flows that are held up behind
//! others; congestion control is what the last column adds. So a difference says where it comes
//! from.

use packetsim::Settings;
use packetsim::buffer::BufferConfig;
use packetsim::cc::{CcConfig, none};
use report::number::significant;
use report::{Align, Answer, Sheet, Table};
use scenario::{Loaded, Purpose};
use serde::Serialize;
use units::{Bytes, Unused};

use crate::engine::Engine;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::packets::Patience;
use crate::{Drawing, collective, run_job, run_traffic};

/// Every engine's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Who answered.
    pub columns: Vec<Column>,
    /// What they answered.
    pub rows: Vec<Row>,
    #[serde(skip)]
    title: String,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// What it is called.
    pub name: &'static str,
    /// Seconds of the processor that its answer took.
    pub cpu_s: f64,
    /// Why it gave none, or not all, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What of it was scaled up, and how far off that may be, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaled: Option<String>,
}

/// One quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub metric: String,
    /// Its unit.
    pub unit: &'static str,
    /// What each column says.
    pub values: Vec<Option<f64>>,
    /// By how much that differs from the last column before it that says something: this over
    /// that, less one.
    pub differences: Vec<Option<f64>>,
}

/// A quantity with its unit, as one engine sees it.
type Figure = (String, &'static str, f64);

/// What one engine answers.
#[derive(Default)]
struct Answered {
    figures: Vec<Figure>,
    /// Why not all, if so.
    refused: Option<String>,
    /// What of it was scaled up, if anything was.
    scaled: Option<String>,
}

/// What one engine answers, or why nothing.
type Figures = Result<Answered, Failure>;

/// The packet engine without congestion control: what the fluid engine can be held against.
const UNCONTROLLED: &str = "packet, uncontrolled";

/// The step on one clock, where the column before it runs phases one by one.
const WHOLE: &str = "flow, whole";

/// The row that is there only if some engine has any: makespans and percentiles are of those flows
/// that finished, and alone would look as if all had.
const UNFINISHED: &str = "unfinished flows";

/// More than all packets under way take.
const ENDLESS: Bytes = Bytes::from_mib(1 << 20);

/// The same in buffers that never fill.
const UNPAUSED: &str = "packet, never paused";

/// Asks every engine about a training step.
pub fn job(
    loaded: &mut Loaded,
    patience: Patience,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    every(loaded, Steps::BothWays, &mut |loaded, engine, whole| {
        let report = run_job::run_once(loaded, engine, patience, whole, watch)?;
        let mut figures = vec![("step".to_owned(), "s", report.step_s)];
        let parts = report.breakdown_s.named();
        figures.extend(parts.iter().map(|(name, value)| ((*name).to_owned(), "s", *value)));
        figures.push(("model FLOPs utilisation".to_owned(), "", report.mfu));
        let scaled = report.scaled.as_ref().map(run_job::Scaled::words);
        Ok(Answered { figures, scaled, refused: None })
    })
}

/// Asks every engine about synthetic traffic.
pub fn traffic(
    loaded: &mut Loaded,
    patience: Patience,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    let mut report = every(loaded, Steps::None, &mut |loaded, engine, _| {
        let drawing = Drawing::Omitted;
        let options =
            run_traffic::Options { engine, patience, series: None, capture: None, drawing };
        let (report, ..) = run_traffic::run(loaded, &options, watch)?;
        if watch.is_interrupted() {
            return Err(Failure::interrupted());
        }
        let of_flows = [
            ("makespan", "s", report.makespan_s),
            (UNFINISHED, "", Some((report.flows - report.completed) as f64)),
            ("median completion", "s", report.fct_s.map(|times| times.p50)),
            ("p99 completion", "s", report.fct_s.map(|times| times.p99)),
            ("goodput", "b/s", report.goodput_bps),
        ];
        let known = of_flows.map(|(name, unit, value)| Some((name.to_owned(), unit, value?)));
        let mut figures: Vec<Figure> = known.into_iter().flatten().collect();
        if engine.moves_packets() {
            let counts = [
                ("pauses", report.pfc.pauses),
                ("marked packets", report.ecn_marks),
                ("dropped packets", report.drops),
            ];
            let figure = |(name, count): (&str, u64)| (name.to_owned(), "", count as f64);
            figures.extend(counts.map(figure));
        }
        Ok(Answered { figures, ..Answered::default() })
    })?;
    report.rows.retain(|row| row.metric != UNFINISHED || row.is_something());
    Ok(report)
}

/// Asks every engine about one collective over sizes.
pub fn collective(
    loaded: &mut Loaded,
    options: &collective::Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    let report = every(loaded, Steps::None, &mut |loaded, engine, _| {
        let options = collective::Options { engine, ..*options };
        let report = collective::run(loaded, &options, watch)?;
        let row =
            |row: &collective::Row| (Bytes::new(row.bytes).to_string(), "s", row.time_us / 1e6);
        let (figures, refused) = (report.rows.iter().map(row).collect(), report.left_out);
        Ok(Answered { figures, refused, scaled: None })
    })?;
    let title = format!("{}: {}", report.title, options.collective.name());
    Ok(Report { title, ..report })
}

/// What some engine would not obey, where all of them are asked.
pub fn unused(loaded: &Loaded, purpose: impl Fn(Engine) -> Purpose) -> Vec<Unused> {
    let mut all: Vec<Unused> = Vec::new();
    for engine in Engine::ALL {
        let unused = loaded.unused_for(purpose(engine));
        all.extend(
            unused
                .into_iter()
                .map(|input| Unused { why: format!("{}: {}", engine.name(), input.why), ..input }),
        );
    }
    all
}

/// Whether there are steps, which flows put together in two ways.
#[derive(Clone, Copy, PartialEq)]
enum Steps {
    None,
    BothWays,
}

/// Asks every engine; about a step the flow engine for both ways. One that refuses says why; an
/// interrupt leaves what is known.
fn every(
    loaded: &mut Loaded,
    steps: Steps,
    ask: &mut dyn FnMut(&Loaded, Engine, bool) -> Figures,
) -> Result<Report, Failure> {
    let mut report = Report { columns: Vec::new(), rows: Vec::new(), title: loaded.title() };
    for engine in Engine::ALL {
        if !engine.moves_packets() {
            report.add(engine.name(), &mut || ask(loaded, engine, false))?;
            if steps == Steps::BothWays && engine.has_contention() {
                report.add(WHOLE, &mut || ask(loaded, engine, true))?;
            }
            continue;
        }
        for (name, settings) in packet_columns(loaded) {
            // The scenario's own settings come last, and stay.
            loaded.scenario.network.settings = settings;
            report.add(name, &mut || ask(loaded, engine, false))?;
        }
    }
    Ok(report)
}

/// The settings that packets are run with: what they add one by one, the scenario's own last.
fn packet_columns(loaded: &Loaded) -> Vec<(&'static str, Settings)> {
    let own = loaded.scenario.network.settings.clone();
    let (congestion, congestion_of_tier) = (CcConfig::None(none::Config {}), Default::default());
    let uncontrolled = Settings { congestion, congestion_of_tier, ..own.clone() };
    let mut columns = Vec::new();
    let as_run = loaded.settings();
    if as_run.pfc.enabled && !as_run.credits.enabled {
        let buffer = BufferConfig { size: ENDLESS, alpha: 1.0, ..own.buffer.clone() };
        let buffer_of_tier = Default::default();
        columns.push((UNPAUSED, Settings { buffer, buffer_of_tier, ..uncontrolled.clone() }));
    }
    if own != uncontrolled {
        columns.push((UNCONTROLLED, uncontrolled));
    }
    columns.push(("packet", own));
    columns
}

impl Report {
    /// What the columns are.
    fn columns_in_words(&self) -> String {
        let has = |name| self.columns.iter().any(|column| column.name == name);
        let mut words = "In brackets: the difference from the column to the left.".to_owned();
        if has(WHOLE) {
            words += " Whole: every rank on one clock, where the others run phases one by one; its \
                      jitter is one draw.";
        }
        if has(UNPAUSED) {
            words += " Packets that are never paused have endless buffers: what queues change that \
                      serve whoever comes first.";
        }
        words += match has(UNCONTROLLED) {
            true => {
                " Uncontrolled ones have the scenario's pauses or credits: what it costs to be \
                 held up behind others. The last have its congestion control too."
            }
            false => " The last have the scenario's settings, which have no congestion control.",
        };
        words
    }
}

impl Row {
    /// Whether any column has any of it.
    fn is_something(&self) -> bool {
        self.values.iter().flatten().any(|value| *value > 0.0)
    }
}

impl Report {
    fn add(&mut self, name: &'static str, ask: &mut dyn FnMut() -> Figures) -> Result<(), Failure> {
        let clock = Meter::start();
        let Answered { figures, refused, scaled } = match ask() {
            Err(Failure::Interrupted(reason) | Failure::Run(reason)) => {
                Answered { refused: Some(reason), ..Answered::default() }
            }
            answered => answered?,
        };
        let before = self.columns.len();
        self.columns.push(Column { name, cpu_s: clock.cpu_s(), refused, scaled });
        for (metric, unit, value) in figures {
            let known = self.rows.iter().position(|row| row.metric == metric);
            let place = known.unwrap_or_else(|| {
                let (values, differences) = (vec![None; before], vec![None; before]);
                self.rows.push(Row { metric, unit, values, differences });
                self.rows.len() - 1
            });
            let row = &mut self.rows[place];
            let earlier = row.values.iter().rev().flatten().next();
            let difference = earlier.filter(|earlier| **earlier > 0.0).map(|e| value / e - 1.0);
            row.values.push(Some(value));
            row.differences.push(difference);
        }
        for row in &mut self.rows {
            row.values.resize(before + 1, None);
            row.differences.resize(before + 1, None);
        }
        Ok(())
    }
}

/// A difference in per cent, or as a factor where that would be a long number.
fn apart(difference: f64) -> String {
    let factor = 1.0 + difference;
    match factor {
        10.0.. => format!("\u{d7}{factor:.0}"),
        _ if difference.abs() < 0.0005 => "=".to_owned(),
        _ => format!("{:+.1} %", 100.0 * difference),
    }
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        "s" => {
            // Four digits, so that the names of the rows have room beside five columns.
            let span = units::Span::from_secs_f64(value);
            let whole = format!("{span:.0}").chars().take_while(char::is_ascii_digit).count();
            format!("{span:.*}", 4_usize.saturating_sub(whole).min(3))
        }
        "b/s" => report::number::bits_per_second(value),
        _ if value.fract() == 0.0 => report::number::grouped(value as u64),
        _ => significant(value),
    }
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some("all")
    }

    fn sheet(&self) -> Sheet {
        let names = self.columns.iter().map(|column| (column.name, Align::Right));
        let mut table = Table::new(std::iter::once(("", Align::Left)).chain(names));
        for row in self.rows.iter().filter(|row| row.is_something()) {
            let cell = |(value, difference): (&Option<f64>, &Option<f64>)| match (value, difference)
            {
                (Some(value), Some(difference)) => {
                    format!("{} ({})", shown(*value, row.unit), apart(*difference))
                }
                (Some(value), None) => shown(*value, row.unit),
                (None, _) => String::new(),
            };
            let cells = row.values.iter().zip(&row.differences).map(cell);
            table.row(std::iter::once(row.metric.clone()).chain(cells));
        }
        let times = self.columns.iter().map(|column| shown(column.cpu_s, "s"));
        table.row(std::iter::once("processor time".to_owned()).chain(times));
        let mut sheet = Sheet::new()
            .heading(format!("{}: every engine", self.title))
            .table(table)
            .text(self.columns_in_words());
        for column in &self.columns {
            for words in column.refused.iter().chain(&column.scaled) {
                sheet = sheet.note(format!("{}: {words}", column.name));
            }
        }
        sheet
    }
}
