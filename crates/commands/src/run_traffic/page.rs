//! What people see of a run on synthetic traffic.

use fabric::Fabric;
use flowsim::Accuracy;
use report::chart::{distinct, distribution};
use report::number::{bits_per_second, grouped, significant};
use report::{Align, Answer, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::Loaded;
use traffic::Outcome;
use units::{Bytes, Span};

use super::{Options, PartReport, Report, Work, completions, tables};
use crate::Drawing;
use crate::engine::{self, Engine};
use crate::links::Pictures;
use crate::series::Series;
use crate::work::Part;

/// Points of a distribution.
const POINTS: usize = 1_000;
/// Flows that have a lane of their own.
const LANES: usize = 24;

/// What charts and headings need besides the result.
#[derive(Clone, Debug, Default)]
pub(super) struct Drawn {
    title: String,
    engine: Engine,
    times: Vec<f64>,
    sample: Frame,
    pictures: Pictures,
    /// What was measured over time for pictures alone.
    series: Option<Series>,
}

impl Drawn {
    pub(super) fn of(
        loaded: &Loaded,
        options: &Options,
        work: &Work,
        outcome: &Outcome,
        series: Option<Series>,
    ) -> Self {
        let (title, engine) = (loaded.title(), options.engine);
        if options.drawing == Drawing::Omitted {
            return Self { title, engine, series, ..Self::default() };
        }
        let (fabric, seconds) = (loaded.fabric(), outcome.elapsed().as_secs_f64());
        let times = completions(work, outcome, 0..work.flows.len());
        let load = |link| engine::load(fabric, outcome, seconds, link);
        let name = |number| end_names(fabric, work, number);
        let (sample, pictures) = (sample(work, outcome, &times, name), Pictures::of(fabric, &load));
        Self { title, engine, times, sample, pictures, series }
    }

    /// What was measured for pictures alone.
    pub(super) fn series(&self) -> Option<&Series> {
        self.series.as_ref()
    }
}

/// Who sends and who receives a flow.
fn end_names(fabric: &Fabric, work: &Work, number: usize) -> [String; 2] {
    let flow = &work.flows[number];
    let is_of = |part: &&Part| part.flows.contains(&number);
    let has_gpus = |part: &Part| part.collective.is_some() || part.tokens.is_some();
    let of_gpus = work.parts.iter().find(is_of).is_some_and(has_gpus);
    [flow.src, flow.dst].map(|end| match (end as usize).checked_sub(fabric.nics()) {
        Some(front) if !of_gpus => format!("front-end NIC {front}"),
        _ => format!("{} {end}", if of_gpus { "GPU" } else { "NIC" }),
    })
}

/// Flows from start to finish, from the one that took longest to the fastest, evenly by rank.
fn sample(
    work: &Work,
    outcome: &Outcome,
    times: &[f64],
    name: impl Fn(usize) -> [String; 2],
) -> Frame {
    let mut ended: Vec<(usize, f64, f64)> = Vec::new();
    for (number, (flow, end)) in work.flows.iter().zip(&work.ends).enumerate() {
        if let Some(times) = outcome.ops[*end] {
            ended.push((number, flow.start.as_secs_f64(), times.finish.as_secs_f64()));
        }
    }
    let took = |flow: &(usize, f64, f64)| flow.2 - flow.1;
    ended.sort_by(|a, b| took(b).total_cmp(&took(a)).then(a.0.cmp(&b.0)));
    let lanes = ended.len().min(LANES);
    let ranks = (0..lanes).map(|lane| lane * (ended.len() - 1) / (lanes - 1).max(1));
    let shown: Vec<(usize, f64, f64)> = ranks.map(|rank| ended[rank]).collect();
    let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
    let mut frame = Frame::new(&["flow", "start_s", "end_s", "name", "took"]);
    let ends = |(number, ..): &(usize, f64, f64)| name(*number).join(" → ");
    for (name, (number, from, to)) in distinct(shown.iter().map(ends)).into_iter().zip(shown) {
        let took = match (to - from) / median {
            factor if factor < 1.25 => "up to 1.25 times the median",
            factor if factor < 2.0 => "above 1.25 times the median",
            _ => "above twice the median",
        };
        frame.push(vec![
            name.into(),
            from.into(),
            to.into(),
            format!("flow {number}, {:.1}", work.flows[number].bytes).into(),
            took.into(),
        ]);
    }
    frame
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.drawn.engine.name())
    }

    fn sheet(&self) -> Sheet {
        let seconds = |s: f64| Span::from_secs_f64(s);
        let lost = self.flows - self.completed;
        let Drawn { title, engine, pictures, .. } = &self.drawn;
        let tier = super::busiest_tier(&self.tiers).map_or("", |tier| tier.name.as_str());
        let [busiest_over_mean, of_those] =
            ["busiest over mean, of ", "of "].map(|what| format!("{what}{tier} in use"));
        let mut sheet = Sheet::new().heading(format!("{title}: {} engine", engine.name())).facts([
            ("flows", grouped(self.flows), if lost == 0 { "all finished" } else { "" }),
            ("makespan", tables::time(self.makespan_s), ""),
            ("median", tables::time(self.fct_s.map(|times| times.p50)), "of completion times"),
            ("p99", tables::time(self.fct_s.map(|times| times.p99)), "of completion times"),
            (
                "goodput",
                self.goodput_bps.map_or_else(tables::absent, bits_per_second),
                "over the makespan",
            ),
            ("busiest link", format!("{:.0} %", 100.0 * self.links.max_utilisation), ""),
            ("imbalance", significant(self.links.imbalance), &busiest_over_mean),
            ("idle links", format!("{:.0} %", 100.0 * self.links.idle_share), &of_those),
        ]);
        if lost > 0 {
            sheet = sheet.note(format!("{} of {} flows did not finish.", lost, self.flows));
        }
        for finding in &self.findings {
            sheet = sheet.note(finding);
        }
        sheet = self.loads(sheet);
        if 1 < self.completed {
            sheet = sheet.heading("When flows are done").chart(self.completions());
            sheet = sheet.chart(self.flows_chart());
        }
        for series in self.series.iter().chain(&self.drawn.series) {
            sheet = series.show(sheet);
        }
        sheet = sheet.heading("Busiest links").table(self.link_table());
        sheet = self.links_in_use(sheet);
        sheet = pictures.show(sheet, "All links");
        match engine.moves_packets() {
            true => {
                sheet = sheet.heading("Packets").table(self.packet_table());
                self.capture.iter().fold(sheet, |sheet, told| sheet.text(told.words()))
            }
            false => sheet.text(format!(
                "{} events; {:.2} of the processor, at most {:.1} of memory.{}",
                grouped(self.events),
                seconds(self.cpu_s),
                Bytes::new(self.peak_rss_bytes),
                self.accuracy.as_ref().map_or_else(String::new, exactness),
            )),
        }
    }
}

impl Report {
    /// What the seeds say, and what became of each load.
    fn loads(&self, mut sheet: Sheet) -> Sheet {
        if let Some(seeds) = &self.seeds {
            sheet = seeds.show(sheet);
        }
        let has_more = |part: &PartReport| part.busbw_gbps.is_some() || part.token_s.is_some();
        if 1 < self.parts.len() || self.parts.iter().any(has_more) {
            sheet = sheet.heading("Loads").table(tables::parts(&self.parts));
        }
        sheet
    }

    fn links_in_use(&self, sheet: Sheet) -> Sheet {
        let groups = [("Tiers over time", &self.tiers), ("Rails over time", &self.rails)];
        let shown = groups.into_iter().filter(|(_, groups)| !groups.is_empty());
        shown.fold(sheet.heading("Links in use"), |sheet, (title, groups)| {
            let sheet = sheet.table(tables::groups(groups));
            tables::over_time(title, groups).into_iter().fold(sheet, Sheet::chart)
        })
    }

    fn completions(&self) -> Chart {
        let mut frame = Frame::new(&["completion_s", "share"]);
        for (time, share) in distribution(&self.drawn.times, POINTS) {
            frame.push(vec![time.into(), share.into()]);
        }
        Chart::new(ChartKind::Distribution, "How many flows are done after how long", frame)
            .caption(
                "The share of flows that had finished after so long. A steep line is fair; a long \
                 flat end are stragglers that everybody waits for.",
            )
            .axes("completion_s", "share")
            .labels("completion time", "share of flows")
            .units(Unit::Seconds, Unit::Share)
            .rule(self.fct_s.map_or(0.0, |times| times.p99), "p99")
    }

    fn flows_chart(&self) -> Chart {
        let title = "Flows over time, from the slowest to the fastest";
        Chart::new(ChartKind::Timeline, title, self.drawn.sample.clone())
            .caption(
                "From a flow's start until its sender knows that all has arrived; of many flows a \
                 few, evenly by rank.",
            )
            .axes("start_s", "flow")
            .spans("start_s", "end_s")
            .by("took")
            .named_by("name")
            .labels("time", "")
            .units(Unit::Seconds, Unit::Number)
    }

    fn packet_table(&self) -> Table {
        let mut table = Table::new([("", Align::Left), ("", Align::Right)]);
        let rows: [(&str, String); 11] = [
            ("data packets", grouped(self.packets)),
            ("packet-hops", grouped(self.packet_hops)),
            ("dropped", grouped(self.drops)),
            ("sent again", grouped(self.retransmits)),
            ("trimmed", grouped(self.trims)),
            ("marked", grouped(self.ecn_marks)),
            ("notifications", grouped(self.cnps)),
            ("pauses", grouped(self.pfc.pauses)),
            ("links paused", grouped(self.pfc.links)),
            ("events", grouped(self.events)),
            ("processor time", format!("{:.2}", Span::from_secs_f64(self.cpu_s))),
        ];
        for (name, value) in rows {
            table.row([name.to_owned(), value]);
        }
        table
    }

    fn link_table(&self) -> Table {
        if !self.drawn.engine.moves_packets() {
            return tables::shared(&self.worst_links);
        }
        let mut table = Table::new([
            ("link", Align::Left),
            ("load", Align::Right),
            ("deepest queue", Align::Right),
            ("paused", Align::Right),
            ("why", Align::Left),
        ]);
        for worst in &self.worst_links {
            table.row([
                worst.link.clone(),
                format!("{:.1} %", 100.0 * worst.utilisation),
                or_dash(worst.peak_queue_bytes > 0, || {
                    format!("{:.1}", Bytes::new(worst.peak_queue_bytes))
                }),
                or_dash(worst.paused_s > 0.0, || {
                    format!("{:.2}", Span::from_secs_f64(worst.paused_s))
                }),
                worst.why.clone(),
            ]);
        }
        table
    }
}

/// How exact a run was, in words.
fn exactness(accuracy: &Accuracy) -> String {
    let Accuracy { precision, deviation, merged_s } = *accuracy;
    let rates = match deviation {
        None => " Rates are the max-min allocation to 1e-9".to_owned(),
        Some(deviation) => format!(
            " Rates miss the max-min allocation by at most {deviation:.1e} at the instants that \
             were looked at: changes below {precision:.0e} are not passed on \
             (network.flow.precision)"
        ),
    };
    match Span::from_secs_f64(merged_s) {
        Span::ZERO => format!("{rates}; no finish was merged with an earlier one."),
        merged => format!(
            "{rates}; finishes were merged with earlier ones by at most {merged:.2} \
             (network.flow.merge)."
        ),
    }
}

fn or_dash(is_there: bool, text: impl FnOnce() -> String) -> String {
    if is_there { text() } else { "–".to_owned() }
}
