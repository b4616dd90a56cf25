//! Constants of a scenario, fitted to what was observed: only those that this determines.
//!
//! Every observed collective is predicted with trial values of the constants until predictions fit
//! ([`super::fit`]). A constant whose interval stays wide, or that comes to its bound, is refused
//! with the reason and keeps the scenario's value. Every second size is held back first: how well
//! the others predict it is told, and then all sizes are used.

use std::collections::BTreeMap;
use std::path::Path;

use ::observe::Summary;
use fabric::graph::LinkKind;
use report::number::significant;
use report::{Align, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;
use traffic::collective::Collective;
use units::{Bytes, Rate, Span};

use super::beside::{self, Point, mean};
use super::cluster::Setting;
use super::fit::{Fitted, Scale, fit};
use super::read_off::{self, Busy, ReadOff};
use super::steps;
use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::files::save_text;

/// A constant whose interval reaches further than this share of it to either side is refused.
const WIDEST: f64 = 0.5;
/// Fewer observations than constants and this determine nothing.
const SPARE: usize = 3;
/// More observations are thinned evenly: each is predicted a hundred times.
const MOST_POINTS: usize = 160;

/// A constant, and the value from which its fit starts.
type Start = (Knob, f64);

/// A constant that can be fitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Knob {
    /// What every call takes besides the library's own latencies.
    Launch,
    /// What the host moves at most between a NIC and its GPU: what the NIC reaches.
    NicRate,
    /// The share of the scale-up links' rate.
    ScaleUp,
    /// What a hand-over between servers takes besides.
    Crossing,
    /// The share of a NIC's rate that an all-to-all leaves it.
    AllToAll,
}

impl Knob {
    /// All, the ones that are kept longest first.
    const ALL: [Self; 5] =
        [Self::NicRate, Self::ScaleUp, Self::AllToAll, Self::Launch, Self::Crossing];

    fn key(self) -> &'static str {
        match self {
            Self::Launch => "library.launch",
            Self::NicRate => "network.nic.pcie",
            Self::ScaleUp => "library.scale_up_efficiency",
            Self::Crossing => "library.crossing",
            Self::AllToAll => "library.all_to_all_share",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Launch => "what each call takes besides the library's own latencies",
            Self::NicRate => "what each NIC moves, each way",
            Self::ScaleUp => "share of the scale-up links' rate that collectives reach",
            Self::Crossing => "what each hand-over between servers takes besides",
            Self::AllToAll => "share of a NIC's rate that an all-to-all of many servers leaves it",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Launch | Self::Crossing => "us",
            Self::NicRate => "Gbps",
            Self::ScaleUp | Self::AllToAll => "",
        }
    }

    /// Where it begins; none if the observations cannot depend on it.
    fn start(self, loaded: &Loaded, points: &[Point]) -> Option<f64> {
        let library = &loaded.scenario.library;
        let domain = loaded.fabric().gpus_per_node() as u32;
        let is_far = |point: &Point| domain < point.ranks;
        let (between, inside) = (points.iter().any(is_far), !points.iter().all(is_far));
        match self {
            Self::Launch => Some(1e6 * library.launch.as_secs_f64().max(1e-6)),
            Self::Crossing => between.then(|| 1e6 * library.crossing.as_secs_f64().max(5e-7)),
            Self::NicRate => {
                let line = payload_gbps(loaded).filter(|_| between)?;
                let set = loaded.settings().nic.host_rate();
                Some(set.map_or(0.9 * line, |rate| rate.as_bps_f64() / 1e9).min(0.9 * line))
            }
            Self::AllToAll => {
                let mut far = points.iter().filter(|point| is_far(point));
                let some = far.any(|point| point.collective == Collective::AllToAll);
                some.then_some(library.all_to_all_share)
            }
            Self::ScaleUp => {
                let has_links = 1 < loaded.fabric().gpus_per_node();
                (inside && has_links).then(|| engine::library(loaded).scale_up_share())
            }
        }
    }

    fn scale(self, loaded: &Loaded) -> Scale {
        match self {
            Self::Launch | Self::Crossing => Scale { is_log: false, range: [0.0, 1e6], step: 0.05 },
            Self::NicRate => {
                let line = payload_gbps(loaded).unwrap_or(1.0);
                Scale { is_log: true, range: [1e-3 * line, line], step: 0.0 }
            }
            Self::ScaleUp | Self::AllToAll => Scale { is_log: true, range: [0.01, 1.0], step: 0.0 },
        }
    }

    fn set(self, loaded: &mut Loaded, value: f64) {
        let library = &mut loaded.scenario.library;
        match self {
            Self::Launch => library.launch = Span::from_secs_f64(1e-6 * value),
            Self::Crossing => library.crossing = Span::from_secs_f64(1e-6 * value),
            Self::ScaleUp => library.scale_up_efficiency = Some(value),
            Self::AllToAll => library.all_to_all_share = value,
            Self::NicRate => {
                let rate = Some(Rate::from_bps_f64(1e9 * value));
                loaded.scenario.network.settings.nic.pcie = rate;
            }
        }
    }

    /// As a scenario writes it.
    fn written(self, value: f64) -> String {
        match self {
            Self::Launch | Self::Crossing => format!("\"{}ns\"", (1e3 * value).round()),
            Self::NicRate => format!("\"{:.3}Gbps\"", value),
            Self::ScaleUp | Self::AllToAll => format!("{value:.4}"),
        }
    }
}

/// What the link of a NIC carries of payload.
fn payload_gbps(loaded: &Loaded) -> Option<f64> {
    let fabric = loaded.fabric();
    let ports = if fabric.nics() == 0 { &[][..] } else { fabric.ports(fabric.nic(0)) };
    let lines = ports.iter().filter(|link| fabric.class(**link).kind == LinkKind::ScaleOut);
    let all: f64 = lines.map(|link| fabric.class(*link).rate.as_bps_f64() / 1e9).sum();
    (0.0 < all).then(|| all * engine::library(loaded).wire_efficiency)
}

/// What was fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Settings that the files say outright.
    pub settings: Vec<Setting>,
    /// The constants that the observations determine.
    pub constants: Vec<Constant>,
    /// Those that they do not.
    pub refused: Vec<Refused>,
    /// Mean size of the errors at sizes that were held back, predicted from the others; none where
    /// there were too few to hold any back.
    pub held_back_error: Option<f64>,
    /// What a constant was told by besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// How many sizes were held back.
    pub held_back: usize,
    /// Mean size of the errors before.
    pub error_before: f64,
    /// And with the constants.
    pub error_after: f64,
    /// What is left, by size.
    pub residuals: Vec<Residual>,
    /// The scenario that was written.
    pub file: String,
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constant {
    /// Its setting.
    pub key: &'static str,
    /// Its value.
    pub value: f64,
    /// The least of its 95 % interval.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// The unit of the three.
    pub unit: &'static str,
    /// What it is.
    pub what: &'static str,
    #[serde(skip)]
    pub(super) written: String,
}

/// A constant that the observations do not determine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// Its setting.
    pub key: &'static str,
    /// Why.
    pub why: String,
}

/// What is left at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residual {
    /// The collective.
    pub kind: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Its ranks.
    pub ranks: u32,
    /// Predicted over measured, less one.
    pub error: f64,
}

/// A scenario, its engine, and who watches.
struct Bench<'a, 'w> {
    loaded: &'a Loaded,
    engine: Engine,
    watch: &'a mut packetsim::Watch<'w>,
}

impl Bench<'_, '_> {
    /// Logarithms of predictions in microseconds with trial values.
    fn predict(
        &mut self,
        knobs: &[Knob],
        values: &[f64],
        of: &[Point],
    ) -> Result<Vec<f64>, Failure> {
        let mut trial = self.loaded.clone();
        for (knob, value) in knobs.iter().zip(values) {
            knob.set(&mut trial, *value);
        }
        let engine = self.engine;
        of.iter()
            .map(|point| Ok(beside::predict(&trial, engine, point, self.watch)?.max(1e-9).ln()))
            .collect()
    }

    fn fit(&mut self, knobs: &[Start], points: &[Point]) -> Result<Fitted, Failure> {
        let names: Vec<Knob> = knobs.iter().map(|(knob, _)| *knob).collect();
        let scales: Vec<Scale> = names.iter().map(|knob| knob.scale(self.loaded)).collect();
        let start: Vec<f64> = knobs.iter().map(|(_, start)| *start).collect();
        let measured: Vec<f64> = points.iter().map(|point| point.measured_us).collect();
        fit(&scales, &start, &measured, |values| self.predict(&names, values, points))
    }

    /// Fits until every constant that is left is determined.
    fn determine(
        &mut self,
        points: &[Point],
    ) -> Result<(Vec<Start>, Fitted, Vec<Refused>), Failure> {
        let mut refused = Vec::new();
        let mut knobs: Vec<Start> = Vec::new();
        for knob in Knob::ALL {
            match knob.start(self.loaded, points) {
                Some(start) => knobs.push((knob, start)),
                None => refused.push(Refused {
                    key: knob.key(),
                    why: "nothing that was observed depends on it".to_owned(),
                }),
            }
        }
        while points.len() < knobs.len() + SPARE
            && let Some((knob, _)) = knobs.pop()
        {
            let why = format!("{} observations are too few for it", points.len());
            refused.push(Refused { key: knob.key(), why });
        }
        if points.is_empty() {
            let empty = Fitted { values: vec![], intervals: vec![], residuals: vec![] };
            return Ok((knobs, empty, refused));
        }
        let mut set_aside = Vec::new();
        loop {
            let found = self.fit(&knobs, points)?;
            let verdicts = knobs.iter().enumerate().map(|(at, (knob, _))| {
                let [low, high] = found.intervals[at];
                doubt(knob.scale(self.loaded), found.values[at], low, high)
            });
            let verdicts: Vec<(f64, String)> = verdicts.collect();
            let widest = (0..knobs.len()).max_by(|a, b| verdicts[*a].0.total_cmp(&verdicts[*b].0));
            match widest.filter(|at| WIDEST < verdicts[*at].0) {
                None => return self.again((knobs, found, refused), set_aside, points),
                Some(at) => {
                    let (knob, start) = knobs.remove(at);
                    set_aside.push((knob, start));
                    refused.push(Refused { key: knob.key(), why: verdicts[at].1.clone() });
                }
            }
        }
    }

    /// Tries again what was set aside: what others explained as well may be all that is left.
    fn again(
        &mut self,
        (mut knobs, mut found, mut refused): (Vec<Start>, Fitted, Vec<Refused>),
        set_aside: Vec<Start>,
        points: &[Point],
    ) -> Result<(Vec<Start>, Fitted, Vec<Refused>), Failure> {
        for knob in Knob::ALL {
            let Some(start) = set_aside.iter().find(|(other, _)| *other == knob) else { continue };
            let more: Vec<Start> = knobs.iter().chain([start]).copied().collect();
            let fitted = self.fit(&more, points)?;
            let is_told = more.iter().enumerate().all(|(at, (knob, _))| {
                let [low, high] = fitted.intervals[at];
                doubt(knob.scale(self.loaded), fitted.values[at], low, high).0 <= WIDEST
            });
            if is_told {
                refused.retain(|one| one.key != knob.key());
                (knobs, found) = (more, fitted);
            }
        }
        Ok((knobs, found, refused))
    }
}

/// How little a constant is determined, as the half-width of its interval over its value, and why.
fn doubt(scale: Scale, value: f64, low: f64, high: f64) -> (f64, String) {
    let [least, most] = scale.range;
    if value <= least {
        return (f64::INFINITY, "it fits best at 0: the model has enough without it".to_owned());
    }
    if low <= least {
        let why = "the observations leave it open: other constants explain them as well".to_owned();
        return (1e6, why);
    }
    if most * 0.999 <= high {
        let why = "nothing was slower than the links themselves allow".to_owned();
        return (f64::INFINITY, why);
    }
    let half = 0.5 * (high - low) / value;
    (half, format!("its 95 % interval would be ±{:.0} %", 100.0 * half))
}

/// Who calibrates what to which file.
#[derive(Debug)]
pub struct Order<'a> {
    /// The scenario that is calibrated.
    pub loaded: &'a Loaded,
    /// The engine that predicts.
    pub engine: Engine,
    /// Settings of the command line, which the new scenario must have too.
    pub set: &'a [String],
    /// What of `loaded` the files themselves say.
    pub read_off: ReadOff,
    /// Where it is written.
    pub out: &'a Path,
}

/// Refuses to fit anything to less than constants and spare ones need.
fn refuse_too_few(points: &[Point], summary: &Summary, loaded: &Loaded) -> Result<(), Failure> {
    let has_steps = loaded.job.is_some() && !summary.step_list.is_empty();
    if SPARE < points.len() || has_steps {
        return Ok(());
    }
    Err(Failure::Run(format!(
        "nothing can be calibrated: {} collectives with sizes, ranks and times that this scenario \
         has were observed, and {} are needed",
        points.len(),
        SPARE + 1
    )))
}

/// Fits constants to what was observed and writes the scenario.
pub fn calibrate(
    summary: &Summary,
    order: &Order<'_>,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Calibration, Failure> {
    let loaded = order.loaded;
    let (all, _) = beside::points(summary, loaded);
    let each = all.len().div_ceil(MOST_POINTS).max(1);
    let points: Vec<Point> = all.into_iter().step_by(each).collect();
    refuse_too_few(&points, summary, loaded)?;
    let mut bench = Bench { loaded, engine: order.engine, watch };
    let before = bench.predict(&[], &[], &points)?;
    let (knobs, found, by_tables) = bench.determine(&points)?;
    let (held_back, held_back_error) = bench.hold_back(&knobs, &points)?;
    let (found, remarks) = bench.with_counters(&knobs, found, &points, summary)?;
    let mut refused = order.read_off.refused.clone();
    refused.extend(by_tables);
    let errors: Vec<f64> = found.residuals.iter().map(|r| (-r).exp() - 1.0).collect();
    let error_of = |logs: &[f64]| {
        let each =
            logs.iter().zip(&points).map(|(log, at)| (log.exp() / at.measured_us - 1.0).abs());
        mean(&each.collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let constant = |(at, (knob, _)): (usize, &(Knob, f64))| Constant {
        key: knob.key(),
        value: found.values[at],
        low: found.intervals[at][0],
        high: found.intervals[at][1],
        unit: knob.unit(),
        what: knob.what(),
        written: knob.written(found.values[at]),
    };
    let residual = |(point, error): (&Point, &f64)| Residual {
        kind: point.collective.name(),
        bytes: point.bytes,
        ranks: point.ranks,
        error: *error,
    };
    let mut fitted = loaded.clone();
    for ((knob, _), value) in knobs.iter().zip(&found.values) {
        knob.set(&mut fitted, *value);
    }
    let edge = |((knob, _), [_, high]): (&Start, &[f64; 2])| {
        let mut edge = fitted.clone();
        knob.set(&mut edge, *high);
        edge
    };
    let edges = knobs.iter().zip(&found.intervals).map(edge).collect();
    let mut constants: Vec<Constant> = knobs.iter().enumerate().map(constant).collect();
    let from_steps = steps::fit(summary, fitted, edges, order.engine, watch)?;
    constants.extend(from_steps.constants);
    refused.extend(from_steps.refused);
    let calibration = Calibration {
        settings: order.read_off.settings.clone(),
        constants,
        refused,
        remarks,
        held_back_error,
        held_back,
        error_before: error_of(&before),
        error_after: mean(&errors.iter().map(|e| e.abs()).collect::<Vec<_>>()).unwrap_or(0.0),
        residuals: points.iter().zip(&errors).map(residual).collect(),
        file: order.out.display().to_string(),
    };
    save_text(order.out, &calibration.scenario(summary, order))?;
    Ok(calibration)
}

impl Bench<'_, '_> {
    /// The share of the time of the largest messages that NICs send in: how the time changes with
    /// their rate.
    fn filled(
        &mut self,
        knobs: &[Start],
        values: &[f64],
        nic: usize,
        points: &[Point],
    ) -> Result<f64, Failure> {
        const FASTER: f64 = 1.01;
        let domain = self.loaded.fabric().gpus_per_node() as u32;
        let mut largest: BTreeMap<u32, Point> = BTreeMap::new();
        for point in points.iter().filter(|point| domain < point.ranks) {
            let known = largest.entry(point.ranks).or_insert(*point);
            if known.bytes < point.bytes {
                *known = *point;
            }
        }
        let largest: Vec<Point> = largest.into_values().collect();
        let names: Vec<Knob> = knobs.iter().map(|(knob, _)| *knob).collect();
        let now = self.predict(&names, values, &largest)?;
        let mut faster = values.to_vec();
        faster[nic] *= FASTER;
        let then = self.predict(&names, &faster, &largest)?;
        let shares: Vec<f64> =
            now.iter().zip(then).map(|(now, then)| (now - then) / FASTER.ln()).collect();
        Ok(mean(&shares).unwrap_or(1.0).clamp(0.5, 1.0))
    }

    /// The fit with what counters say of the NICs' rate, if that is narrower and agrees; the other
    /// constants are fitted again beside it. Both may have seen the same runs, so that a mean of
    /// the two would be no better known than the one.
    fn with_counters(
        &mut self,
        knobs: &[Start],
        found: Fitted,
        points: &[Point],
        summary: &Summary,
    ) -> Result<(Fitted, Vec<String>), Failure> {
        let Some(busy) = read_off::busy(summary) else { return Ok((found, Vec::new())) };
        let key = Knob::NicRate.key();
        let Busy { intervals, nics, .. } = busy;
        let Some(at) = knobs.iter().position(|(knob, _)| *knob == Knob::NicRate) else {
            let remark = format!(
                "counters of {nics} NICs over {intervals} busy intervals do not say whether NICs \
                 had to wait, and no table shows a limit of theirs: {key} is not fitted"
            );
            return Ok((found, vec![remark]));
        };
        // Frames are counted too, and the largest messages do not fill a NIC all of the time.
        let payload = 8e-9 * engine::library(self.loaded).wire_efficiency;
        let filled = self.filled(knobs, &found.values, at, points)?;
        let [rate, half] = [busy.mean, busy.half].map(|rate| rate * payload / filled);
        let said = format!(
            "counters of {nics} NICs say {} ± {} Gb/s in {intervals} busy intervals",
            significant(rate),
            significant(half)
        );
        let [low, high] = found.intervals[at];
        let own = 0.5 * (high - low);
        if half + own < (found.values[at] - rate).abs() {
            let remark = format!(
                "{said}, and tables {} ± {}: the NICs were not busy throughout, or with something \
                 else, and counters do not count for {key}",
                significant(found.values[at]),
                significant(own)
            );
            return Ok((found, vec![remark]));
        }
        if own <= half {
            let remark = format!("{key}: {said}, within the interval of the tables");
            return Ok((found, vec![remark]));
        }
        let mut fixed = self.loaded.clone();
        Knob::NicRate.set(&mut fixed, rate);
        let others: Vec<Start> =
            knobs.iter().copied().filter(|(knob, _)| *knob != Knob::NicRate).collect();
        let mut bench = Bench { loaded: &fixed, engine: self.engine, watch: self.watch };
        let mut again = bench.fit(&others, points)?;
        again.values.insert(at, rate);
        again.intervals.insert(at, [rate - half, rate + half]);
        let remark = format!("{key}: {said}, which is narrower than what tables say");
        Ok((again, vec![remark]))
    }

    /// How many sizes were held back, and the mean size of errors when the others predict them.
    fn hold_back(
        &mut self,
        knobs: &[Start],
        points: &[Point],
    ) -> Result<(usize, Option<f64>), Failure> {
        let half = |which: usize| -> Vec<Point> {
            let mine = points.iter().enumerate().filter(|(at, _)| at % 2 == which);
            mine.map(|(_, point)| *point).collect()
        };
        let (kept, held) = (half(0), half(1));
        if kept.len() <= knobs.len() {
            return Ok((0, None));
        }
        let found = self.fit(knobs, &kept)?;
        let names: Vec<Knob> = knobs.iter().map(|(knob, _)| *knob).collect();
        let logs = self.predict(&names, &found.values, &held)?;
        let errors =
            logs.iter().zip(&held).map(|(log, at)| (log.exp() / at.measured_us - 1.0).abs());
        Ok((held.len(), mean(&errors.collect::<Vec<_>>())))
    }
}

impl Calibration {
    /// The scenario with its constants, as a file.
    fn scenario(&self, summary: &Summary, order: &Order<'_>) -> String {
        let mut text = String::from("# Constants fitted by `fatflow observe --calibrate` to:\n");
        for source in summary.sources.iter().filter(|source| source.is_read()) {
            text += &format!("#   {} ({})\n", one_line(&source.file), source.kind);
        }
        text += &format!(
            "# {} sizes; errors of {:.1} % on average before, {:.1} % after.\n",
            self.residuals.len(),
            100.0 * self.error_before,
            100.0 * self.error_after
        );
        if let Some(error) = self.held_back_error {
            text += &format!(
                "# {} sizes that were held back are predicted within {:.1} % on average.\n",
                self.held_back,
                100.0 * error
            );
        }
        for remark in &self.remarks {
            text += &format!("# {remark}.\n");
        }
        for refused in &self.refused {
            text += &format!("# Not fitted: {}: {}.\n", refused.key, refused.why);
        }
        text += &format!("\nfrom = {}\n", quoted(&from(&order.loaded.input, order.out)));
        for assignment in order.set {
            let Some((key, value)) = assignment.split_once('=') else { continue };
            let plain = toml::from_str::<toml::Table>(&format!("x = {value}")).is_ok();
            let value = if plain { value.to_owned() } else { quoted(value) };
            text += &format!("{} = {value}\n", key.trim());
        }
        for Setting { key, value, from } in &self.settings {
            text += &format!("# {}.\n{key} = {value}\n", one_line(from));
        }
        for one in &self.constants {
            let [low, high] = [one.low, one.high].map(significant);
            text += &format!("# {}: {low} to {high} {} (95 %).\n", one.what, one.unit);
            text += &format!("{} = {}\n", one.key, one.written);
        }
        text
    }

    /// Adds it to a sheet.
    pub(super) fn show(&self, sheet: Sheet) -> Sheet {
        let mut table = Table::new([
            ("constant", Align::Left),
            ("value", Align::Right),
            ("95 %", Align::Right),
            ("", Align::Left),
            ("what", Align::Left),
        ]);
        for one in &self.constants {
            let [value, low, high] = [one.value, one.low, one.high].map(significant);
            table.row([
                one.key.to_owned(),
                value,
                format!("{low} to {high}"),
                one.unit.to_owned(),
                one.what.to_owned(),
            ]);
        }
        let mut sheet = sheet.heading(format!("Calibrated: {}", self.file));
        sheet = match self.constants.is_empty() {
            true => sheet.text("No constant is determined: the scenario stays as it is."),
            false => sheet.table(table),
        };
        sheet = sheet.text(format!(
            "Errors of {} sizes were {:.1} % on average and are {:.1} % with these constants.",
            self.residuals.len(),
            100.0 * self.error_before,
            100.0 * self.error_after
        ));
        if let Some(error) = self.held_back_error {
            sheet = sheet.text(format!(
                "{} sizes were held back at first: the others predict them within {:.1} % on \
                 average.",
                self.held_back,
                100.0 * error
            ));
        }
        let worst = self.residuals.iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()));
        if let Some(Residual { kind, bytes: size, ranks, error }) = worst {
            sheet = sheet.text(format!(
                "Least explained: {kind} of {} on {ranks} ranks, {:+.1} %.",
                Bytes::new(*size),
                100.0 * error
            ));
        }
        if !self.settings.is_empty() {
            let columns =
                [("setting", Align::Left), ("value", Align::Left), ("what says so", Align::Left)];
            let mut table = Table::new(columns);
            for Setting { key, value, from } in &self.settings {
                table.row([(*key).to_owned(), value.clone(), from.clone()]);
            }
            sheet = sheet.table(table);
        }
        sheet = self.remarks.iter().fold(sheet, |sheet, remark| sheet.note(remark.clone()));
        let refusals = self.refused.iter().map(|r| format!("{} is not fitted: {}.", r.key, r.why));
        refusals.fold(sheet, Sheet::note)
    }
}

/// Where the scenario is that a file in another folder starts from.
fn from(input: &str, out: &Path) -> String {
    let path = Path::new(input);
    if !path.is_file() {
        return input.to_owned();
    }
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = path.parent().map(Path::to_path_buf).unwrap_or_default();
    if beside == folder.map(Path::to_path_buf).unwrap_or_default() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        return format!("./{}", name.unwrap_or_else(|| input.to_owned()));
    }
    std::path::absolute(path).map_or_else(|_| input.to_owned(), |path| path.display().to_string())
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A name in a comment cannot begin a new line.
fn one_line(name: &str) -> String {
    name.replace(|c: char| c.is_control(), " ")
}
