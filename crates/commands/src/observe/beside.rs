//! What was observed, beside what a scenario predicts: every collective and the step.
//!
//! A collective is predicted as `fatflow collective` does, on the first GPUs of the scenario, as
//! many as its group has ranks. What cannot be predicted is named with its reason.

use std::collections::BTreeMap;

use ::observe::Summary;
use ::observe::observed::Kind;
use report::number::significant;
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::Loaded;
use serde::Serialize;
use traffic::collective::Collective;
use units::Bytes;

use super::counted::{self, ComparedAxis, ComparedCounter};
use super::uplinks::{self, Uplinks};
use crate::collective::{self, Sizes};
use crate::engine::Engine;
use crate::failure::Failure;
use crate::packets::Patience;
use crate::run_job;
use crate::seeds::Repeat;

/// Rows of the table beyond which every so many are shown; JSON has all.
const MOST_ROWS: usize = 48;

/// What stands beside what.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SideBySide {
    /// The scenario.
    pub scenario: String,
    /// The engine.
    pub engine: &'static str,
    /// Every collective that was observed with a time and can be predicted.
    pub collectives: Vec<Compared>,
    /// The step, if steps were observed and the scenario has a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<ComparedStep>,
    /// Counters that grew as files with times say, and as the scenario's traffic makes them grow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<ComparedCounter>,
    /// Which uplinks the flows of a capture hash to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplinks: Option<Uplinks>,
    /// What a rank sends in a step by axis, where files say the ranks of groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_axis: Vec<ComparedAxis>,
    /// Steps of a rank that these are of.
    #[serde(skip)]
    steps: u64,
    /// Mean size of the errors of collectives.
    pub mean_error: Option<f64>,
    /// What could not be predicted, and why.
    pub left_out: Vec<String>,
}

/// A collective, measured and predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What it does.
    pub kind: &'static str,
    /// As nccl-tests counts them.
    pub bytes: u64,
    /// Ranks of its group.
    pub ranks: u32,
    /// How long it took: the mean of all that was seen.
    pub measured_us: f64,
    /// How long it should take.
    pub predicted_us: f64,
    /// Predicted over measured, less one.
    pub error: f64,
}

/// A step, measured and predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedStep {
    /// The middle one of those that were seen.
    pub measured_s: f64,
    /// How long it should take.
    pub predicted_s: f64,
    /// Predicted over measured, less one.
    pub error: f64,
}

/// A collective that was observed with a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) collective: Collective,
    pub(super) bytes: u64,
    pub(super) ranks: u32,
    pub(super) measured_us: f64,
}

/// The collectives that can be predicted on a scenario, by kind, ranks and size; and what cannot.
pub(super) fn points(summary: &Summary, loaded: &Loaded) -> (Vec<Point>, Vec<String>) {
    let gpus = loaded.fabric().gpus() as u64;
    // In place and out of place, and what several files say, are one.
    let mut known: BTreeMap<(Kind, u32, u64), Times> = BTreeMap::new();
    let mut left: BTreeMap<String, u64> = BTreeMap::new();
    for one in &summary.collectives {
        let name = one.kind.name();
        let reason = match (one.time_us, one.ranks) {
            (None, _) => format!("{name}: no times are known"),
            (_, None | Some(0)) => format!("{name}: nobody says on how many ranks"),
            (_, Some(1)) => format!("{name} on one rank: nothing is sent"),
            (_, Some(ranks)) if gpus < u64::from(ranks) => {
                format!("{name} on {ranks} ranks: the scenario has {gpus} GPUs")
            }
            _ if Collective::from_name(name).is_none() => {
                format!("{name}: fatflow does not predict it")
            }
            _ if one.bytes == 0 => format!("{name} of 0 bytes"),
            (Some(time), Some(_)) if !(time.is_finite() && 0.0 < time) => {
                format!("{name}: a time of {time} us")
            }
            (Some(time), Some(ranks)) => {
                let times = known.entry((one.kind, ranks, one.bytes)).or_default();
                times.push((time, one.count.max(1) as f64));
                continue;
            }
        };
        *left.entry(reason).or_default() += 1;
    }
    let point = |((kind, ranks, bytes), times): (_, Times)| {
        let kind: Kind = kind;
        let collective = Collective::from_name(kind.name())?;
        Some(Point { collective, bytes, ranks, measured_us: undisturbed(&times) })
    };
    let left = left.into_iter().map(|(reason, count)| format!("{reason} ({count} sizes)"));
    (known.into_iter().filter_map(point).collect(), left.collect())
}

/// Times of the same thing in microseconds, and how often each was seen.
type Times = Vec<(f64, f64)>;

/// A time that is longer than the shortest by more than this was disturbed.
const DISTURBED: f64 = 1.25;

/// The mean of times of the same thing, without those that were disturbed: whatever else runs makes
/// them longer, and nothing makes them shorter.
fn undisturbed(times: &[(f64, f64)]) -> f64 {
    let least = times.iter().map(|(time, _)| *time).fold(f64::INFINITY, f64::min);
    let kept = times.iter().filter(|(time, _)| *time <= DISTURBED * least);
    let (sum, count) =
        kept.fold((0.0, 0.0), |(sum, all), (time, count)| (sum + count * time, all + count));
    sum / count
}

/// How long a collective should take, in microseconds.
pub(super) fn predict(
    loaded: &Loaded,
    engine: Engine,
    point: &Point,
    watch: &mut packetsim::Watch<'_>,
) -> Result<f64, Failure> {
    let bytes = Bytes::new(point.bytes);
    let options = collective::Options {
        engine,
        patience: Patience::Usual,
        collective: point.collective,
        sizes: Sizes { min: bytes, max: bytes, factor: 2 },
        gpus: Some(point.ranks as usize),
        iterations: 1,
    };
    let report = collective::run_seeds(loaded, &options, Repeat::ONCE, Some(Vec::new()), watch)?;
    let row = report.rows.first();
    row.map(|row| row.time_us).ok_or_else(|| Failure::Run("no size was run".to_owned()))
}

/// Puts predictions beside what was observed.
pub fn compare(
    summary: &Summary,
    loaded: &Loaded,
    engine: Engine,
    watch: &mut packetsim::Watch<'_>,
) -> Result<SideBySide, Failure> {
    let (points, mut left_out) = points(summary, loaded);
    left_out.extend(other_servers(summary, loaded));
    let mut collectives = Vec::new();
    for point in &points {
        let Point { collective, bytes, ranks, measured_us } = *point;
        match predict(loaded, engine, point, watch) {
            Err(interrupted @ Failure::Interrupted(_)) => return Err(interrupted),
            Err(reason) => left_out.push(format!(
                "{} of {} on {ranks} ranks: {reason}",
                collective.name(),
                Bytes::new(bytes)
            )),
            Ok(predicted_us) => collectives.push(Compared {
                kind: collective.name(),
                bytes,
                ranks,
                measured_us,
                predicted_us,
                error: predicted_us / measured_us - 1.0,
            }),
        }
    }
    let step = match (&summary.steps, &loaded.job) {
        (Some(steps), Some(_)) => {
            let report = run_job::run(loaded, engine, Patience::Usual, watch)?;
            let (measured_s, predicted_s) = (steps.median_s, report.step_s);
            Some(ComparedStep { measured_s, predicted_s, error: predicted_s / measured_s - 1.0 })
        }
        (Some(_), None) => {
            left_out.push("steps: the scenario has no job".to_owned());
            None
        }
        (None, _) => None,
    };
    let asked = (engine, &points[..]);
    let (counters, reasons) = counted::counters(summary, loaded, asked, watch)?;
    left_out.extend(reasons);
    let (steps, by_axis) = counted::axes(summary, loaded)?.unwrap_or_default();
    let uplinks = uplinks::of(summary, loaded).unwrap_or_else(|reason| {
        left_out.push(reason);
        None
    });
    let sizes: Vec<f64> = collectives.iter().map(|one| one.error.abs()).collect();
    Ok(SideBySide {
        scenario: loaded.input.clone(),
        engine: engine.name(),
        mean_error: mean(&sizes),
        collectives,
        step,
        counters,
        uplinks,
        by_axis,
        steps,
        left_out,
    })
}

/// A remark if the files show another number of GPUs in a server than the scenario has.
fn other_servers(summary: &Summary, loaded: &Loaded) -> Option<String> {
    let (seen, has) = (summary.cluster.gpus_per_node?, loaded.fabric().gpus_per_node());
    (seen as usize != has && 1 < summary.cluster.nodes.unwrap_or(1)).then(|| {
        format!(
            "ranks are placed on the scenario's servers of {has} GPUs, while the files show {seen} \
             in a server: --set cluster.gpus_per_node={seen} places them as they were"
        )
    })
}

/// The mean, if there is anything.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl SideBySide {
    /// Adds it to a sheet.
    pub(super) fn show(&self, sheet: Sheet) -> Sheet {
        let heading = format!("Beside {}, {} engine", self.scenario, self.engine);
        let mut sheet = sheet.heading(heading);
        if let Some(error) = self.mean_error {
            sheet = sheet.text(format!(
                "Predictions of {} collectives are off by {:.1} % on average.",
                self.collectives.len(),
                100.0 * error
            ));
            sheet = sheet.chart(self.chart()).table(self.table());
        }
        if let Some(step) = self.step {
            sheet = sheet.text(format!(
                "A step takes {} s, and {} s by prediction: {:+.1} %.",
                significant(step.measured_s),
                significant(step.predicted_s),
                100.0 * step.error
            ));
        }
        sheet = counted::show_counters(sheet, &self.counters);
        sheet = counted::show_axes(sheet, self.steps, &self.by_axis);
        if let Some(uplinks) = &self.uplinks {
            sheet = uplinks.show(sheet);
        }
        self.left_out.iter().fold(sheet, |sheet, reason| sheet.note(reason.clone()))
    }

    /// Measured and predicted curves over each other.
    fn chart(&self) -> Chart {
        let mut frame = Frame::new(&["bytes", "time_s", "series"]);
        let mut points: Vec<String> = Vec::new();
        for one in &self.collectives {
            let name = format!("{} on {}", one.kind, one.ranks);
            let measured = format!("{name}, measured");
            let predicted = format!("{name}, predicted");
            for (series, us) in [(&measured, one.measured_us), (&predicted, one.predicted_us)] {
                frame.push(vec![one.bytes.into(), (1e-6 * us).into(), series.as_str().into()]);
            }
            if !points.contains(&measured) {
                points.push(measured);
            }
        }
        let chart = Chart::new(ChartKind::Line, "Time over message size", frame)
            .caption("Dots without a line are measurements.")
            .axes("bytes", "time_s")
            .by("series")
            .labels("message", "time")
            .units(Unit::MessageBytes, Unit::Seconds)
            .log_x();
        Chart { points, ..chart }
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            ("collective", Align::Left),
            ("ranks", Align::Right),
            ("size", Align::Right),
            ("measured (us)", Align::Right),
            ("predicted (us)", Align::Right),
            ("error", Align::Right),
        ]);
        let each = self.collectives.len().div_ceil(MOST_ROWS).max(1);
        for one in self.collectives.iter().step_by(each) {
            table.row([
                one.kind.to_owned(),
                one.ranks.to_string(),
                Bytes::new(one.bytes).to_string(),
                significant(one.measured_us),
                significant(one.predicted_us),
                format!("{:+.1} %", 100.0 * one.error),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::undisturbed;

    /// Oracle: by hand. Out of place something else ran for 55 µs.
    #[test]
    fn a_disturbed_time_does_not_count() {
        assert_eq!(undisturbed(&[(68.0, 1.0), (13.0, 1.0)]), 13.0);
        assert_eq!(undisturbed(&[(13.0, 3.0), (15.0, 1.0)]), 13.5);
    }
}
