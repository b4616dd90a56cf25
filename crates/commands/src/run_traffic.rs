//! `run` on synthetic traffic: how long every flow takes, and what the network did meanwhile.

use std::ops::Range;

use flowsim::Accuracy;
use flowsim::analysis::{self, Analysis, LinkGroup, OverTime, Sharer};
use packetsim::tap::Taped;
use scenario::Loaded;
use serde::Serialize;
use traffic::Outcome;
use traffic::pattern::Flow;
use units::{Span, Time};

use crate::Drawing;
use crate::distance;
use crate::engine::{self, Cost, Engine, Observed};
use crate::failure::Failure;
use crate::files::capture::{self, Captured};
use crate::files::film::Reel;
use crate::meter::{self, Meter};
use crate::packets::{Budget, Patience};
use crate::seeds::{self, Repeat, Seeds};
use crate::series::{self, Purpose, Series};
use crate::work::{Part, Work, work};

mod page;
mod small;
mod tables;

pub use small::SmallMessages;

/// How many worst links are named.
const WORST_LINKS: usize = 8;

/// What a run on synthetic traffic came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Flows, or messages of a collective.
    pub flows: u64,
    /// Those that finished.
    pub completed: u64,
    /// Payload of all flows.
    pub bytes: u64,
    /// From the start until the last flow that finished had; none if none did.
    pub makespan_s: Option<f64>,
    /// Completion times, from a flow's start until its sender knows, of those that finished.
    pub fct_s: Option<Percentiles>,
    /// Payload per second of the makespan, over all flows that finished.
    pub goodput_bps: Option<f64>,
    /// The loads, what is looked at first.
    pub parts: Vec<PartReport>,
    /// Small messages between NICs, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_messages_s: Option<SmallMessages>,
    /// Packets dropped.
    pub drops: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets that switches cut to their headers.
    pub trims: u64,
    /// Packets marked for congestion.
    pub ecn_marks: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Pauses.
    pub pfc: Pauses,
    /// Data packets sent.
    pub packets: u64,
    /// Data packets times links crossed.
    pub packet_hops: u64,
    /// Events that the engine handled.
    pub events: u64,
    /// Queue pairs that the flow engine gave a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_pairs: Option<u64>,
    /// Load of the links between switches.
    pub links: Links,
    /// By tier and direction: bytes, queue pairs, imbalance, utilisation over time.
    pub tiers: Vec<LinkGroup>,
    /// The NICs' links by rail, likewise.
    pub rails: Vec<LinkGroup>,
    /// The busiest links.
    pub worst_links: Vec<WorstLink>,
    /// The same under other seeds, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
    /// What was measured over time, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// What of it was written as packets, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Captured>,
    /// How exact it was; only the flow engine can be inexact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// What the user should hear about.
    pub findings: Vec<String>,
    /// A fold of everything that happened: equal digests, equal runs.
    pub digest: String,
    /// Processor cores that the transport keeps busy in the busiest server, on average over the
    /// makespan.
    pub cpu_cores: Option<f64>,
    /// Seconds that the run took on the clock.
    pub wall_s: f64,
    /// Seconds that it took of the processor.
    pub cpu_s: f64,
    /// The most memory that the process has used.
    pub peak_rss_bytes: u64,
    #[serde(skip)]
    drawn: page::Drawn,
}

/// What became of one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartReport {
    /// What it is called.
    pub name: String,
    /// Its flows, or groups that run a collective.
    pub flows: u64,
    /// Those that finished.
    pub completed: u64,
    /// When it began.
    pub start_s: f64,
    /// When the last of those had.
    pub finish_s: Option<f64>,
    /// Their completion times.
    pub fct_s: Option<Percentiles>,
    /// Bus bandwidth of its slowest collective.
    #[serde(rename = "busbw_GBps", skip_serializing_if = "Option::is_none")]
    pub busbw_gbps: Option<f64>,
    /// What the network takes for one decoded token, in its slowest group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_s: Option<f64>,
}

/// Percentiles in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// The fastest.
    pub min: f64,
    /// Half are faster.
    pub p50: f64,
    /// Ninety-nine of a hundred are faster.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

/// Pauses of a lossless class, or stalls for want of credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pauses {
    /// How many began; with several lanes, in each of them.
    pub pauses: u64,
    /// How long they lasted, over all links and their lanes.
    pub paused_s: f64,
    /// How many links were paused at all: how far they spread.
    pub links: u64,
}

/// Load of the scale-out links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Links {
    /// Of the busiest link, over the makespan.
    pub max_utilisation: f64,
    /// Of the busiest tier between switches that carried anything: its busiest link over its mean.
    pub imbalance: f64,
    /// The share of its links that carried nothing.
    pub idle_share: f64,
}

/// A busy link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstLink {
    /// What people call it.
    pub link: String,
    /// Over the makespan.
    pub utilisation: f64,
    /// Queue pairs that were routed over it.
    pub flows: u32,
    /// Its bytes over the mean of the links beside it.
    pub excess: f64,
    /// What that costs: how much sooner it would be done with the mean of those beside it.
    pub lost_s: f64,
    /// The deepest its queue has been.
    pub peak_queue_bytes: u64,
    /// How long it was paused.
    pub paused_s: f64,
    /// Who is on it.
    pub why: String,
    /// The first queue pairs that share it, where the flow engine gave each one path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_pairs: Vec<Sharer>,
    /// Over time, on the flow engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
}

impl Report {
    /// What every link did over time, where pictures were asked for.
    pub fn reel(&self) -> Option<&Reel> {
        self.drawn.series().map(|series| &series.reel)
    }
}

/// How to run it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// On which engine.
    pub engine: Engine,
    /// Whether it may take long.
    pub patience: Patience,
    /// What is measured over time.
    pub series: Option<series::Options>,
    /// Where its packets are written.
    pub capture: Option<capture::Wanted>,
    /// Where anybody will look at pictures.
    pub drawing: Drawing,
}

/// Refuses traffic that would take too long on an engine, before anything of it runs.
pub fn refuse_endless(loaded: &Loaded, engine: Engine, patience: Patience) -> Result<(), Failure> {
    let work = work(loaded, engine, patience)?;
    engine::estimate(loaded, engine, &work.transfers, &mut Budget::new(patience)).map(|_| ())
}

/// What the scenario's synthetic traffic will cost on an engine, by its own estimate.
pub fn cost(loaded: &Loaded, engine: Engine) -> Result<Cost, Failure> {
    let work = work(loaded, engine, Patience::Endless)?;
    Ok(engine::cost(loaded, loaded.fabric(), engine, &work.transfers))
}

/// Runs the scenario's synthetic traffic.
pub fn run(
    loaded: &Loaded,
    options: &Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<(Report, Work, Outcome), Failure> {
    let Options { engine, patience, series, capture, .. } = options;
    if let Some(series) = series {
        engine::refuse_series(*engine, series)?;
    }
    if let Some(wanted) = capture {
        capture::refuse(loaded, *engine, wanted)?;
    }
    patience.tell(watch);
    let work = work(loaded, *engine, *patience)?;
    let mut budget = Budget::new(*patience);
    watch.expected_events = engine::estimate(loaded, *engine, &work.transfers, &mut budget)?;
    let clock = Meter::start();
    let also = (series.as_ref(), capture.as_ref().map(|wanted| wanted.limit));
    let mut observed = engine::observe(loaded, *engine, &work.transfers, also, watch)?;
    let packets = observed.capture.take();
    let (mut report, outcome) = report(loaded, options, &work, observed, &clock);
    if let (Some(packets), Some(wanted)) = (packets, capture) {
        let (what, lasted, sent) = (String::new(), outcome.elapsed(), report.packets);
        let run = Taped { what, capture: packets, lasted, sent };
        report.capture = Some(capture::write(loaded, &[run], wanted)?);
    }
    Ok((report, work, outcome))
}

/// The same under several seeds: the first one's results, and how its figures are spread over all.
pub fn run_seeds(
    loaded: &Loaded,
    options: &Options,
    repeat: Repeat<'_>,
    watch: &mut packetsim::Watch<'_>,
) -> Result<(Report, Work, Outcome), Failure> {
    let (first, work, outcome) = run(loaded, options, watch)?;
    let is_whole = !watch.is_interrupted();
    let again =
        Options { series: None, capture: None, drawing: Drawing::Omitted, ..options.clone() };
    let others = seeds::others(loaded, repeat, |loaded, watch| {
        run(loaded, &again, watch).map(|(report, ..)| figures(&report))
    })?;
    // What was known of the first seed when it was interrupted is no answer.
    let of_first = is_whole.then(|| figures(&first));
    let answers: Vec<_> = of_first.into_iter().chain(others).collect();
    let several = 1 < repeat.seeds && !answers.is_empty();
    let report = Report {
        seeds: several.then(|| Seeds::of(loaded.scenario.seed, &answers)),
        findings: first
            .findings
            .into_iter()
            .chain(seeds::left_out(answers.len(), repeat))
            .collect(),
        ..first
    };
    Ok((report, work, outcome))
}

fn report(
    loaded: &Loaded,
    options: &Options,
    work: &Work,
    observed: Observed<'_>,
    clock: &Meter,
) -> (Report, Outcome) {
    let Observed { outcome, series, flows, .. } = observed;
    let (fabric, transfers) = (loaded.fabric(), &work.transfers);
    let traces = flows.as_ref().map(flowsim::Run::traces);
    let Analysis { tiers, rails, worst } =
        analysis::analyse(fabric, transfers, &outcome, traces, WORST_LINKS);
    let for_pictures = options.series.as_ref().is_some_and(|s| s.purpose == Purpose::Pictures);
    let (drawn_series, series) = if for_pictures { (series, None) } else { (None, series) };
    let drawn = page::Drawn::of(loaded, options, work, &outcome, drawn_series);
    let times = completions(work, &outcome, 0..work.flows.len());
    let size = |flow: &Flow| flow.bytes.get() * u64::from(flow.messages);
    let has_arrived = |(_, end): &(&Flow, &traffic::OpId)| outcome.ops[**end].is_some();
    let arrived = work.flows.iter().zip(&work.ends).filter(has_arrived);
    let arrived: u64 = arrived.map(|(flow, _)| size(flow)).sum();
    // Of flows and collectives as a whole: parts of one that hangs may be long over.
    let finishes = work.ends.iter().filter_map(|end| Some(outcome.ops[*end]?.finish.as_secs_f64()));
    let makespan_s = finishes.max_by(f64::total_cmp);
    let rate = |seconds: f64| arrived as f64 * 8.0 / seconds;
    let counters = &outcome.counters;
    let report = Report {
        flows: work.flows.len() as u64,
        completed: times.len() as u64,
        bytes: work.flows.iter().map(size).sum(),
        makespan_s,
        fct_s: percentiles(&times),
        goodput_bps: makespan_s.filter(|seconds| 0.0 < *seconds && 0 < arrived).map(rate),
        parts: work.parts.iter().map(|part| part_report(work, &outcome, part)).collect(),
        small_messages_s: SmallMessages::of(fabric, transfers, &outcome),
        drops: counters.drops,
        trims: counters.trims,
        retransmits: counters.retransmits,
        ecn_marks: counters.ecn_marks,
        cnps: counters.cnps,
        pfc: Pauses {
            pauses: counters.pauses,
            paused_s: counters.paused.as_secs_f64(),
            links: outcome.links.iter().filter(|link| Span::ZERO < link.paused).count() as u64,
        },
        packets: counters.packets,
        packet_hops: counters.packet_hops,
        events: counters.events,
        queue_pairs: flows.as_ref().map(|run| run.paths.known().count() as u64),
        links: links(&tiers, &worst),
        tiers,
        rails,
        worst_links: worst.into_iter().map(|worst| worst_link(&outcome, worst)).collect(),
        seeds: None,
        series,
        capture: None,
        accuracy: flows.map(|run| run.accuracy),
        findings: distance::findings(loaded, options.engine)
            .into_iter()
            .chain(outcome.findings.iter().map(|f| format!("{}: {}", f.at, f.text)))
            .collect(),
        digest: format!("{:016x}", outcome.digest),
        cpu_cores: makespan_s.map(|seconds| {
            engine::cpu_cores(loaded, &|link| engine::carried(&outcome, link), seconds)
        }),
        wall_s: clock.wall_s(),
        cpu_s: clock.cpu_s(),
        peak_rss_bytes: meter::peak_rss_bytes(),
        drawn,
    };
    (report, outcome)
}

/// How long those of these flows took that have finished, shortest first.
fn completions(work: &Work, outcome: &Outcome, flows: Range<usize>) -> Vec<f64> {
    let ended = |at: usize| Some((work.flows[at].start, outcome.ops[work.ends[at]]?.finish));
    let took = |(start, finish): (Span, Time)| finish.as_secs_f64() - start.as_secs_f64();
    let mut times: Vec<f64> = flows.filter_map(ended).map(took).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn part_report(work: &Work, outcome: &Outcome, part: &Part) -> PartReport {
    let times = completions(work, outcome, part.flows.clone());
    let finishes = part.flows.clone().filter_map(|at| outcome.ops[work.ends[at]]);
    let finish_s = finishes.map(|times| times.finish.as_secs_f64()).max_by(f64::total_cmp);
    let fct_s = percentiles(&times);
    let slowest = fct_s.map(|times| times.max).filter(|slowest| 0.0 < *slowest);
    let busbw = part.collective.zip(slowest).map(|((collective, ranks), slowest)| {
        let Flow { bytes, messages, .. } = work.flows[part.flows.start];
        let moved = bytes.as_f64() * f64::from(messages);
        moved * collective.bus_factor(ranks) / slowest / 1e9
    });
    PartReport {
        name: part.name.clone(),
        flows: part.flows.len() as u64,
        completed: times.len() as u64,
        start_s: part.start.as_secs_f64(),
        finish_s,
        fct_s,
        busbw_gbps: busbw,
        token_s: part.tokens.zip(slowest).map(|(tokens, slowest)| slowest / f64::from(tokens)),
    }
}

/// The percentiles of sorted values, if there are any: the smallest that so many are at or below.
pub fn percentiles(sorted: &[f64]) -> Option<Percentiles> {
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted[rank.max(1) - 1]
    };
    let all = || Percentiles { min: at(0.0), p50: at(0.5), p99: at(0.99), max: at(1.0) };
    (!sorted.is_empty()).then(all)
}

/// The busiest link, and how even the busiest tier between switches is, or that of NICs where there
/// is none.
fn links(tiers: &[LinkGroup], worst: &[analysis::WorstLink]) -> Links {
    busiest_tier(tiers).map_or_else(Links::default, |tier| Links {
        max_utilisation: worst.first().map_or(0.0, |link| link.utilisation),
        imbalance: tier.by_bytes.max_over_mean,
        idle_share: tier.by_bytes.idle,
    })
}

fn busiest_tier(tiers: &[LinkGroup]) -> Option<&LinkGroup> {
    let inner = tiers.iter().any(|tier| tier.between_switches);
    let shown = tiers.iter().filter(|tier| tier.between_switches || !inner);
    shown.max_by(|a, b| a.max_utilisation.total_cmp(&b.max_utilisation))
}

fn worst_link(outcome: &Outcome, worst: analysis::WorstLink) -> WorstLink {
    let used = &outcome.links[worst.link];
    WorstLink {
        link: worst.name,
        utilisation: worst.utilisation,
        flows: worst.flows,
        excess: worst.excess,
        lost_s: worst.lost_s,
        peak_queue_bytes: used.peak_queue.get(),
        paused_s: used.paused.as_secs_f64(),
        why: worst.why,
        queue_pairs: worst.sharers,
        over_time: worst.over_time,
    }
}

/// What is told of every seed.
fn figures(report: &Report) -> Vec<seeds::Value> {
    let of_flows = [
        ("makespan", "s", report.makespan_s),
        ("median completion", "s", report.fct_s.map(|times| times.p50)),
        ("99th percentile of completions", "s", report.fct_s.map(|times| times.p99)),
        ("all flows together", "b/s", report.goodput_bps),
    ];
    let known = of_flows.map(|(name, unit, value)| Some((name.to_owned(), unit, value?)));
    let mut figures: Vec<seeds::Value> = known.into_iter().flatten().collect();
    for part in &report.parts {
        let busbw =
            part.busbw_gbps.map(|busbw| (format!("bus bandwidth of {}", part.name), "GB/s", busbw));
        figures.extend(busbw);
        let token = part.token_s.map(|token| (format!("one token of {}", part.name), "s", token));
        figures.extend(token);
    }
    for tier in report.tiers.iter().filter(|tier| tier.between_switches) {
        let LinkGroup { name, by_flows, by_bytes, .. } = tier;
        figures.extend([
            (format!("{name}: fullest over mean, queue pairs"), "", by_flows.max_over_mean),
            (format!("{name}: fullest over mean, bytes"), "", by_bytes.max_over_mean),
            (format!("{name}: idle links"), "", by_bytes.idle),
        ]);
    }
    figures
}
