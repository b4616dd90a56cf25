//! What a run measured over time: on the packet engine queues, pauses, marks and drops by port and
//! class, the rates of queue pairs, and latencies from end to end and hop by hop; on the flow
//! engine what links carried.
//!
//! Every link of the scale-out network is looked at unless some are named, and the few that show
//! most are told. Memory is bounded: with more links there are fewer samples of each.

use exports::Column;
use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId, naming};
use packetsim::measure::{Histogram, LinkSample, MeasureConfig, PairSeries, Recording};
use report::chart::distinct;
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use serde::Serialize;
use traffic::Outcome;
use units::Span;

use crate::failure::Failure;
use crate::files::film::{Moments, Reel};

/// How many links are told if none are named.
const TOLD_LINKS: usize = 8;

/// What samples of all links may take together.
const MOST_BYTES: usize = 256 << 20;

/// The most samples of a link, and the fewest.
const SAMPLES: (usize, usize) = (2_000, 64);

/// Points of one line of a chart.
const DRAWN_POINTS: usize = 400;

/// Links of the heat map, and stretches of time.
const HEAT_LINKS: usize = 16;
const HEAT_CELLS: usize = 120;

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Time between samples, to begin with.
    pub interval: Span,
    /// The links that are told, by name; without any, those that show most.
    pub links: Vec<String>,
    /// The queue pairs whose rates are told, by number in the order they were opened.
    pub queue_pairs: Vec<u32>,
    /// What for.
    pub purpose: Purpose,
}

/// What series are measured for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Purpose {
    /// Somebody asked for the numbers.
    #[default]
    Result,
    /// A page shows them.
    Pictures,
}

impl Options {
    /// Points of each link's row on the flow engine, which begins with microseconds and doubles
    /// their distance as a run gets longer.
    pub fn points(&self, fabric: &Fabric) -> u32 {
        let points = MOST_BYTES / (fabric.links().len().max(1) * size_of::<f32>());
        points.clamp(SAMPLES.1, SAMPLES.0) as u32
    }

    /// Refuses queue pairs beyond those that there are.
    pub fn check_pairs(&self, count: u64) -> Result<(), Failure> {
        match self.queue_pairs.iter().find(|number| count <= u64::from(**number)) {
            Some(number) => Err(Failure::Usage(format!(
                "there is no queue pair {number}: there are {count}, numbered from 0"
            ))),
            None => Ok(()),
        }
    }

    /// The same as the engine wants it, for links of so many lanes.
    pub fn config(&self, fabric: &Fabric, lanes: u8) -> Result<MeasureConfig, Failure> {
        if self.interval == Span::ZERO {
            return Err(Failure::Usage("the interval between samples cannot be zero".to_owned()));
        }
        let mut links: Vec<LinkId> = Vec::new();
        for name in &self.links {
            let found = naming::links(fabric, name);
            links.extend(found.map_err(|unknown| Failure::Usage(unknown.to_string()))?);
        }
        if self.links.is_empty() {
            let all = fabric.links().ids();
            links.extend(all.filter(|link| fabric.class(*link).kind == LinkKind::ScaleOut));
        }
        links.sort_unstable();
        links.dedup();
        let each = links.len().max(1) * usize::from(lanes) * size_of::<LinkSample>();
        let samples = (MOST_BYTES / each).clamp(SAMPLES.1, SAMPLES.0);
        let pairs = self.queue_pairs.clone();
        Ok(MeasureConfig { interval: self.interval, samples, links, pairs })
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Time between samples; longer than asked for if there would have been too many.
    pub interval_s: f64,
    /// When they were taken. Counts of a link are since the sample before.
    pub at_s: Vec<f64>,
    /// Links.
    pub links: Vec<LinkSeries>,
    /// Queue pairs.
    pub queue_pairs: Vec<QueuePairSeries>,
    /// Latencies from end to end.
    pub latency: Vec<Latency>,
    /// How long packets waited for their turn in queues, by kind of hop and of packet.
    pub hop_wait: Vec<HopWait>,
    /// Congestion notifications that all receivers sent since the sample before.
    pub notifications: Vec<u64>,
    #[serde(skip)]
    over_time: Frame,
    /// What every link did, for a picture of the fabric.
    #[serde(skip)]
    pub(crate) reel: Reel,
}

/// One link over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkSeries {
    /// What people call it.
    pub link: String,
    /// Which of its lanes this is, where there are several: on Ethernet, the priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u8>,
    /// Bytes that waited, by class.
    pub queued_bytes: ByClass<u64>,
    /// What it sent.
    pub sent_bps: Vec<f64>,
    /// The share of the time in which data was paused.
    pub paused_share: Vec<f64>,
    /// Data packets marked.
    pub marks: Vec<u32>,
    /// Packets dropped, by class.
    pub drops: ByClass<u32>,
}

/// A series for each class of traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ByClass<T> {
    /// Data.
    pub data: Vec<T>,
    /// Acknowledgements, notifications, clear-to-send.
    pub control: Vec<T>,
}

/// One queue pair over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueuePairSeries {
    /// Its number.
    pub number: u32,
    /// From where to where.
    pub between: String,
    /// The rate that its congestion control allows.
    pub limit_bps: Vec<f64>,
    /// What was acknowledged.
    pub goodput_bps: Vec<f64>,
}

/// Quantiles of latencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many there were.
    pub count: u64,
    /// Half are shorter.
    pub p50_s: f64,
    /// Ninety-nine of a hundred are shorter.
    pub p99_s: f64,
    /// All but one of a thousand are shorter.
    pub p999_s: f64,
    /// The longest.
    pub max_s: f64,
}

/// A latency from end to end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Of what.
    pub of: &'static str,
    /// How long.
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

/// Waiting at one kind of hop.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HopWait {
    /// Where the queue is, and where it leads.
    pub hop: String,
    /// What waited.
    pub of: &'static str,
    /// How long.
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

impl Quantiles {
    fn of(histogram: &Histogram) -> Option<Self> {
        let at = |share| histogram.quantile(share).map(Span::as_secs_f64);
        Some(Self {
            count: histogram.count(),
            p50_s: at(0.5)?,
            p99_s: at(0.99)?,
            p999_s: at(0.999)?,
            max_s: at(1.0)?,
        })
    }
}

impl Series {
    /// What is told of a recording.
    pub fn of(fabric: &Fabric, recording: &Recording, options: &Options) -> Self {
        let at_s: Vec<f64> = recording.at.iter().map(|at| at.as_secs_f64()).collect();
        let spans: Vec<f64> = at_s.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let told = told(recording, options);
        let several = recording.links.iter().any(|(_, lane)| 0 < lane.lane);
        let link = |at: &usize| {
            let (link, series) = &recording.links[*at];
            let lane = several.then_some(series.lane);
            let told = LinkSeries::of(&series.samples, &spans);
            LinkSeries { link: fabric.link_name(*link), lane, ..told }
        };
        let pair = |pair: &PairSeries| QueuePairSeries::of(fabric, pair, &spans);
        Self {
            interval_s: spans.first().copied().unwrap_or(0.0),
            links: told.iter().map(link).collect(),
            queue_pairs: recording.pairs.iter().map(pair).collect(),
            latency: latencies(recording),
            hop_wait: hop_waits(recording),
            notifications: steps(&recording.notifications, |a, b| b - a, 0),
            over_time: over_time(fabric, recording, &at_s),
            reel: reel(recording, &at_s, &spans, options),
            at_s,
        }
    }

    /// What the flow engine knows: what links carried. Without names, the links that carried most
    /// of what they could.
    pub fn of_flows(
        fabric: &Fabric,
        carried: &flowsim::series::Series,
        outcome: &Outcome,
        options: &Options,
    ) -> Result<Self, Failure> {
        let mut links = options.config(fabric, 1)?.links;
        let reel = match options.purpose {
            Purpose::Pictures => reel_of_flows(carried, &links),
            Purpose::Result => Reel::default(),
        };
        if options.links.is_empty() {
            let load = |link: &LinkId| {
                outcome.links[*link].bytes as f64 / fabric.class(*link).rate.bytes_per_s()
            };
            links.sort_by(|a, b| load(b).total_cmp(&load(a)).then(a.cmp(b)));
            links.truncate(TOLD_LINKS);
        }
        let rows = links.iter().zip(carried.of_each(&links));
        let rows: Vec<_> = rows.filter_map(|(link, row)| Some((*link, row?))).collect();
        let interval = rows.iter().map(|(_, (width, _))| *width).max().unwrap_or_default();
        let interval_s = interval.as_secs_f64();
        let samples = (outcome.makespan().as_secs_f64() / interval_s.max(1e-12)).ceil() as usize;
        let told = rows.iter().map(|(link, (width, bytes))| {
            let each = ratio(interval, *width);
            let rate = |part: &[f64]| part.iter().sum::<f64>() * 8.0 / interval_s;
            let mut sent_bps: Vec<f64> =
                std::iter::once(0.0).chain(bytes.chunks(each).map(rate)).collect();
            sent_bps.resize(samples + 1, 0.0);
            LinkSeries { link: fabric.link_name(*link), sent_bps, ..LinkSeries::default() }
        });
        Ok(Self {
            interval_s,
            links: told.collect(),
            at_s: (0..=samples).map(|at| at as f64 * interval_s).collect(),
            reel,
            ..Self::default()
        })
    }

    /// One row for each link and sample; what the engine does not know is empty.
    pub fn table(&self) -> exports::Table {
        let mut rows: Vec<(&LinkSeries, usize)> = Vec::new();
        for link in &self.links {
            rows.extend((0..self.at_s.len()).map(|at| (link, at)));
        }
        let some = |of: &dyn Fn(&LinkSeries, usize) -> Option<f64>| {
            Column::SomeNumbers(rows.iter().map(|(link, at)| of(link, *at)).collect())
        };
        let count = |values: &[u32], at: usize| values.get(at).map(|value| f64::from(*value));
        let bytes = |values: &[u64], at: usize| values.get(at).map(|value| *value as f64);
        exports::Table::new()
            .with("at_s", Column::Numbers(rows.iter().map(|(_, at)| self.at_s[*at]).collect()))
            .with("link", Column::Words(rows.iter().map(|(l, _)| l.link.clone().into()).collect()))
            .with("sent_bps", some(&|link, at| link.sent_bps.get(at).copied()))
            .with("queued_bytes", some(&|link, at| bytes(&link.queued_bytes.data, at)))
            .with("queued_control_bytes", some(&|link, at| bytes(&link.queued_bytes.control, at)))
            .with("paused_share", some(&|link, at| link.paused_share.get(at).copied()))
            .with("marks", some(&|link, at| count(&link.marks, at)))
            .with("drops", some(&|link, at| count(&link.drops.data, at)))
            .with("control_drops", some(&|link, at| count(&link.drops.control, at)))
            .with("lane", some(&|link, _| Some(f64::from(link.lane.unwrap_or(0)))))
    }

    /// Adds what was measured to a sheet.
    pub fn show(&self, sheet: Sheet) -> Sheet {
        let interval = Span::from_secs_f64(self.interval_s);
        let mut sheet = sheet.heading(format!("Over time, every {interval:.0}"));
        for chart in self.charts() {
            sheet = sheet.chart(chart);
        }
        if !self.latency.is_empty() {
            sheet = sheet.heading("Latencies").table(self.latency_table());
        }
        if !self.hop_wait.is_empty() {
            sheet = sheet.heading("Waiting, hop by hop").table(self.wait_table());
        }
        sheet
    }

    fn charts(&self) -> Vec<Chart> {
        let all = |values: &[u64]| vec![("all receivers".to_owned(), whole(values))];
        let mut charts = vec![
            self.chart(("Queue depth over time: data", Unit::Bytes), |link| {
                whole(&link.queued_bytes.data)
            }),
            self.chart(("Queue depth over time: control", Unit::Bytes), |link| {
                whole(&link.queued_bytes.control)
            }),
            self.chart(("Share of time paused, over time", Unit::Share), |link| {
                link.paused_share.clone()
            }),
            self.chart(("Packets marked, over time", Unit::Number), |link| counts(&link.marks)),
            self.lines(
                ("Congestion notifications, over time", Unit::Number),
                all(&self.notifications),
            ),
            self.chart(("Sent over time", Unit::BitsPerSecond), |link| link.sent_bps.clone()),
            self.chart(("Data packets dropped, over time", Unit::Number), |link| {
                counts(&link.drops.data)
            }),
            self.chart(("Control packets dropped, over time", Unit::Number), |link| {
                counts(&link.drops.control)
            }),
            self.heat(),
        ];
        let lines = |of: fn(&QueuePairSeries) -> &Vec<f64>| -> Vec<(String, Vec<f64>)> {
            let line = |pair: &QueuePairSeries| {
                (format!("{} {}", pair.number, pair.between), of(pair).clone())
            };
            self.queue_pairs.iter().map(line).collect()
        };
        let allowed = ("Rates that queue pairs were allowed", Unit::BitsPerSecond);
        charts.push(self.lines(allowed, lines(|pair| &pair.limit_bps)));
        let goodput = ("Goodput of queue pairs", Unit::BitsPerSecond);
        charts.push(self.lines(goodput, lines(|pair| &pair.goodput_bps)));
        charts.into_iter().flatten().collect()
    }

    fn chart(&self, title: (&str, Unit), of: impl Fn(&LinkSeries) -> Vec<f64>) -> Option<Chart> {
        let lines = self.links.iter().map(|link| (link.name(), of(link))).collect();
        self.lines(title, lines)
    }

    /// The busiest links over time.
    fn heat(&self) -> Option<Chart> {
        (!self.over_time.rows.is_empty()).then(|| {
            let title = "Load of the busiest links over time";
            Chart::new(ChartKind::Heat, title, self.over_time.clone())
                .caption("The busiest links of each tier, from the NICs up; a cell is the peak.")
                .axes("at_s", "link")
                .coloured_by("load")
                .labels("simulated time", "")
                .units(Unit::Seconds, Unit::Number)
                .legend("load", Unit::Share)
        })
    }

    /// A chart of lines, or none if nothing happened.
    fn lines(&self, (title, unit): (&str, Unit), lines: Vec<(String, Vec<f64>)>) -> Option<Chart> {
        let mut frame = Frame::new(&["at_s", "value", "series"]);
        for (name, values) in lines.iter().filter(|(_, values)| values.iter().any(|v| *v > 0.0)) {
            let points: Vec<(f64, f64)> =
                self.at_s.iter().copied().zip(values.iter().copied()).collect();
            for (at, value) in report::chart::decimate(&points, DRAWN_POINTS) {
                frame.push(vec![at.into(), value.into(), name.as_str().into()]);
            }
        }
        if frame.rows.is_empty() {
            return None;
        }
        let chart = Chart::new(ChartKind::Line, title, frame).axes("at_s", "value").by("series");
        let chart = chart.labels("simulated time", "").units(Unit::Seconds, unit);
        Some(chart.caption("Of many samples the peaks are kept. What is not drawn stayed at zero."))
    }

    fn latency_table(&self) -> Table {
        let mut table = quantile_table(&["of"]);
        for latency in &self.latency {
            table.row(quantile_row([latency.of.to_owned()], &latency.quantiles));
        }
        table
    }

    fn wait_table(&self) -> Table {
        let mut table = quantile_table(&["queue", "of"]);
        for wait in &self.hop_wait {
            table.row(quantile_row([wait.hop.clone(), wait.of.to_owned()], &wait.quantiles));
        }
        table
    }
}

fn quantile_table(names: &[&'static str]) -> Table {
    let names = names.iter().map(|name| (*name, Align::Left));
    let numbers = ["packets", "p50", "p99", "p99.9", "longest"].map(|name| (name, Align::Right));
    Table::new(names.chain(numbers))
}

fn quantile_row<const N: usize>(names: [String; N], quantiles: &Quantiles) -> Vec<String> {
    let Quantiles { count, p50_s, p99_s, p999_s, max_s } = *quantiles;
    let spans = [p50_s, p99_s, p999_s, max_s];
    let spans = spans.map(|seconds| format!("{:.2}", Span::from_secs_f64(seconds)));
    names.into_iter().chain([report::number::grouped(count)]).chain(spans).collect()
}

fn whole(values: &[u64]) -> Vec<f64> {
    values.iter().map(|value| *value as f64).collect()
}

fn counts(values: &[u32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// What changed from sample to sample; nothing before the first.
fn steps<T, S: Copy>(samples: &[S], of: impl Fn(S, S) -> T, first: T) -> Vec<T> {
    let later = samples.windows(2).map(|pair| of(pair[0], pair[1]));
    std::iter::once(first).chain(later).collect()
}

impl LinkSeries {
    /// Its link, and its lane where there are several.
    fn name(&self) -> String {
        match self.lane {
            Some(lane) => format!("{}, lane {lane}", self.link),
            None => self.link.clone(),
        }
    }

    fn of(samples: &[LinkSample], spans: &[f64]) -> Self {
        let per_s = |values: Vec<f64>| -> Vec<f64> {
            let spans = std::iter::once(&1.0).chain(spans);
            values.iter().zip(spans).map(|(value, span)| value / span).collect()
        };
        let sent = steps(samples, |a, b| (b.sent - a.sent) as f64 * 8.0, 0.0);
        let paused = steps(samples, |a, b| b.paused.saturating_sub(a.paused).as_secs_f64(), 0.0);
        Self {
            queued_bytes: ByClass {
                data: samples.iter().map(|sample| sample.data.get()).collect(),
                control: samples.iter().map(|sample| sample.control.get()).collect(),
            },
            sent_bps: per_s(sent),
            paused_share: per_s(paused),
            marks: steps(samples, |a, b| b.marks - a.marks, 0),
            drops: ByClass {
                data: steps(samples, |a, b| b.data_drops - a.data_drops, 0),
                control: steps(samples, |a, b| b.control_drops - a.control_drops, 0),
            },
            ..Self::default()
        }
    }
}

impl QueuePairSeries {
    fn of(fabric: &Fabric, pair: &PairSeries, spans: &[f64]) -> Self {
        let bits = steps(
            &pair.samples,
            |a, b| b.acknowledged.saturating_sub(a.acknowledged) as f64 * 8.0,
            0.0,
        );
        let spans = std::iter::once(&1.0).chain(spans);
        Self {
            number: pair.number,
            between: format!("{} - {}", fabric.name(pair.from), fabric.name(pair.to)),
            limit_bps: pair.samples.iter().map(|sample| sample.limit.as_bps() as f64).collect(),
            goodput_bps: bits.iter().zip(spans).map(|(bits, span)| bits / span).collect(),
        }
    }
}

/// Load of the busiest links of each tier, by stretch of time.
/// What every link did on packets, for a picture of the fabric.
fn reel(recording: &Recording, at_s: &[f64], spans: &[f64], options: &Options) -> Reel {
    if options.purpose == Purpose::Result {
        return Reel::default();
    }
    let moments = recording.links.iter().map(|(link, series)| {
        let LinkSeries { sent_bps, queued_bytes, paused_share, .. } =
            LinkSeries::of(&series.samples, spans);
        let ByClass { data, control } = queued_bytes;
        let queued = data.iter().zip(&control).map(|(data, control)| (data + control) as f64);
        (*link, Moments { sent_bps, queued: queued.collect(), paused: paused_share })
    });
    Reel::thinned(at_s, moments)
}

/// The same on flows, which know what links carried; all on the coarsest clock among them.
fn reel_of_flows(carried: &flowsim::series::Series, links: &[LinkId]) -> Reel {
    let rows = carried.of_each(links);
    let widths = rows.iter().flatten().map(|(width, bytes)| (*width, bytes.len()));
    let Some(width) = widths.clone().map(|(width, _)| width).max() else {
        return Reel::default();
    };
    let samples = widths.map(|(own, count)| count.div_ceil(ratio(width, own))).max().unwrap_or(0);
    let width_s = width.as_secs_f64().max(1e-12);
    let at_s: Vec<f64> = (0..samples).map(|at| at as f64 * width_s).collect();
    let moments = links.iter().zip(&rows).filter_map(|(link, row)| {
        let (own, bytes) = row.as_ref()?;
        let rate = |part: &[f64]| part.iter().sum::<f64>() * 8.0 / width_s;
        let mut sent_bps: Vec<f64> = bytes.chunks(ratio(width, *own)).map(rate).collect();
        sent_bps.resize(samples, 0.0);
        Some((*link, Moments { sent_bps, ..Moments::default() }))
    });
    Reel::thinned(&at_s, moments)
}

/// How many samples of one width make one of a coarser one.
fn ratio(coarse: Span, fine: Span) -> usize {
    (coarse.as_ps() / fine.as_ps().max(1)).max(1) as usize
}

fn over_time(fabric: &Fabric, recording: &Recording, at_s: &[f64]) -> Frame {
    let mut frame = Frame::new(&["at_s", "link", "load"]);
    let (Some(end), Some(last)) = (at_s.last().copied(), at_s.len().checked_sub(1)) else {
        return frame;
    };
    let lanes = |link: LinkId| {
        let first = recording.links.partition_point(|(other, _)| *other < link);
        recording.links[first..].iter().take_while(move |(other, _)| *other == link)
    };
    // Until a sample, over all lanes of a link.
    let sent_until = |link: LinkId, at: usize| -> u64 {
        lanes(link).map(|(_, lane)| lane.samples[at].sent).sum()
    };
    let sent = |link: LinkId| {
        let bytes = sent_until(link, last);
        bytes as f64 / (fabric.class(link).rate.bytes_per_s() * end.max(1e-12))
    };
    let busiest = crate::links::busiest_of_each(fabric, &sent, HEAT_LINKS);
    let names = distinct(busiest.iter().map(|link| fabric.link_name(*link)));
    let cells = last.min(HEAT_CELLS);
    for (name, link) in names.iter().zip(&busiest) {
        if lanes(*link).next().is_none() {
            continue;
        }
        let rate = fabric.class(*link).rate.bytes_per_s();
        for cell in 0..cells {
            let range = last * cell / cells..last * (cell + 1) / cells;
            let load = |at: usize| {
                let bytes = sent_until(*link, at + 1) - sent_until(*link, at);
                bytes as f64 / (rate * (at_s[at + 1] - at_s[at]))
            };
            let peak = range.map(load).fold(0.0, f64::max).min(1.0);
            let from = end * cell as f64 / cells as f64;
            let load = (peak * 1e4).round() / 1e4;
            frame.push(vec![from.into(), name.as_str().into(), load.into()]);
        }
    }
    frame
}

/// The places of the links that are told: all that were named, or those that show most.
fn told(recording: &Recording, options: &Options) -> Vec<usize> {
    let mut places: Vec<usize> = (0..recording.links.len()).collect();
    if !options.links.is_empty() {
        return places;
    }
    let shown = |at: usize| -> [f64; 4] {
        let samples = &recording.links[at].1.samples;
        let deepest = samples.iter().map(|sample| sample.data.get() + sample.control.get()).max();
        let last = samples.last().copied().unwrap_or_default();
        [
            deepest.unwrap_or(0) as f64,
            last.paused.as_secs_f64(),
            f64::from(last.marks),
            f64::from(last.data_drops + last.control_drops),
        ]
    };
    let shown: Vec<[f64; 4]> = places.iter().map(|at| shown(*at)).collect();
    let most = |kind: usize| shown.iter().map(|of| of[kind]).fold(f64::MIN_POSITIVE, f64::max);
    let most = [0, 1, 2, 3].map(most);
    let score = |at: usize| -> f64 { (0..4).map(|kind| shown[at][kind] / most[kind]).sum() };
    places.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(a.cmp(b)));
    places.truncate(TOLD_LINKS);
    places.retain(|at| 0.0 < score(*at));
    places
}

fn latencies(recording: &Recording) -> Vec<Latency> {
    let all = [
        ("data, one way", &recording.one_way),
        ("data and its acknowledgement", &recording.round_trip),
        ("congestion notification", &recording.notification),
        ("clear to send", &recording.clearance),
    ];
    let latency = |(of, histogram): (&'static str, &Histogram)| {
        Quantiles::of(histogram).map(|quantiles| Latency { of, quantiles })
    };
    all.into_iter().filter_map(latency).collect()
}

fn hop_waits(recording: &Recording) -> Vec<HopWait> {
    let mut waits = Vec::new();
    for hop in &recording.hops {
        let all = [
            ("data", &hop.data),
            ("acknowledgements", &hop.acknowledgement),
            ("notifications", &hop.notification),
            ("clear to send", &hop.clearance),
        ];
        for (of, histogram) in all {
            if let Some(quantiles) = Quantiles::of(histogram) {
                waits.push(HopWait { hop: format!("{} to {}", hop.from, hop.to), of, quantiles });
            }
        }
    }
    waits
}
