//! `run` on synthetic traffic: how long every flow takes, and what the network did meanwhile.

use std::ops::Range;

use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId, NodeKind};
use scenario::Loaded;
use serde::Serialize;
use traffic::Outcome;
use traffic::pattern::Flow;
use units::{Span, Time};

use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::packets::{Budget, Patience};
use crate::series::{self, Purpose, Series};
use crate::work::{Part, Work, work};

mod page;

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
    /// From the start to the last finish.
    pub makespan_s: f64,
    /// Completion times, from a flow's start until its sender knows.
    pub fct_s: Percentiles,
    /// Payload per second of the makespan, over all flows.
    pub goodput_bps: f64,
    /// The loads, what is looked at first.
    pub parts: Vec<PartReport>,
    /// Packets dropped.
    pub drops: u64,
    /// Packets sent again.
    pub retransmits: u64,
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
    /// Load of the links between switches.
    pub links: Links,
    /// The busiest links.
    pub worst_links: Vec<WorstLink>,
    /// What was measured over time, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// What the user should hear about.
    pub findings: Vec<String>,
    /// A fold of everything that happened: equal digests, equal runs.
    pub digest: String,
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
    /// When its last flow had finished.
    pub finish_s: f64,
    /// Completion times.
    pub fct_s: Percentiles,
    /// Bus bandwidth of its slowest collective.
    #[serde(rename = "busbw_GBps", skip_serializing_if = "Option::is_none")]
    pub busbw_gbps: Option<f64>,
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
    /// How many began.
    pub pauses: u64,
    /// How long they lasted, over all links.
    pub paused_s: f64,
}

/// Load of the links between switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Links {
    /// Of the busiest link, over the makespan.
    pub max_utilisation: f64,
    /// The busiest tier's busiest link over its mean.
    pub imbalance: f64,
    /// The share of links that carried nothing.
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
    /// The deepest its queue has been.
    pub peak_queue_bytes: u64,
    /// How long it was paused.
    pub paused_s: f64,
    /// Who is on it.
    pub why: String,
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
}

/// Runs the scenario's synthetic traffic.
pub fn run(
    loaded: &Loaded,
    options: &Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<(Report, Work, Outcome), Failure> {
    let engine = options.engine;
    if options.series.is_some() && engine == Engine::Analytic {
        let reason = "nothing happens over time in closed forms; `--engine flow` knows what links \
                      carry, `--engine packet` queues, pauses and marks too";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let work = work(loaded, engine, options.patience)?;
    let (fabric, settings) = (loaded.fabric(), loaded.settings());
    if engine == Engine::Packet {
        let mut budget = Budget::new(options.patience);
        watch.expected_events = budget.check(fabric, &work.transfers, &settings)?.events;
    }
    let clock = crate::meter::Meter::start();
    let (outcome, series) = match &options.series {
        None => (engine::run(loaded, engine, &work.transfers, watch), None),
        Some(series) => measured(loaded, engine, &work, series, watch)?,
    };
    let mut report = summarise(loaded, engine, &work, &outcome, &clock);
    match options.series.as_ref().map(|series| series.purpose) {
        Some(Purpose::Pictures) => report.drawn.series = series,
        _ => report.series = series,
    }
    Ok((report, work, outcome))
}

/// Runs it and measures what happens over time.
fn measured(
    loaded: &Loaded,
    engine: Engine,
    work: &Work,
    options: &series::Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<(Outcome, Option<Series>), Failure> {
    let (fabric, transfers) = (loaded.fabric(), &work.transfers);
    let measure = options.config(fabric)?;
    if engine == Engine::Flow {
        let mut settings = engine::flow_settings(loaded);
        settings.flow.points = options.points(fabric);
        let run = flowsim::simulate(fabric, transfers, &settings);
        let series = Series::of_flows(fabric, &run.series, &run.outcome, options)?;
        return Ok((run.outcome, Some(series)));
    }
    let (settings, faults) = (loaded.settings(), &loaded.faults);
    let (outcome, recording) =
        packetsim::run_measured(fabric, transfers, &settings, faults, &measure, watch);
    Ok((outcome, Some(Series::of(fabric, &recording, options))))
}

fn summarise(
    loaded: &Loaded,
    engine: Engine,
    work: &Work,
    outcome: &Outcome,
    clock: &crate::meter::Meter,
) -> Report {
    let fabric = loaded.fabric();
    let times = completions(work, outcome, 0..work.flows.len());
    let bytes: u64 =
        work.flows.iter().map(|flow| flow.bytes.get() * u64::from(flow.messages)).sum();
    let makespan_s = outcome.makespan().as_secs_f64();
    let counters = &outcome.counters;
    let (links, worst_links) = link_loads(fabric, outcome, makespan_s);
    Report {
        flows: work.flows.len() as u64,
        completed: times.len() as u64,
        bytes,
        makespan_s,
        fct_s: percentiles(&times),
        goodput_bps: if makespan_s > 0.0 { bytes as f64 * 8.0 / makespan_s } else { 0.0 },
        parts: work.parts.iter().map(|part| part_report(work, outcome, part)).collect(),
        drops: counters.drops,
        retransmits: counters.retransmits,
        ecn_marks: counters.ecn_marks,
        cnps: counters.cnps,
        pfc: Pauses { pauses: counters.pauses, paused_s: counters.paused.as_secs_f64() },
        packets: counters.packets,
        packet_hops: counters.packet_hops,
        events: counters.events,
        links,
        worst_links,
        series: None,
        findings: outcome.findings.iter().map(|f| format!("{}: {}", f.at, f.text)).collect(),
        digest: format!("{:016x}", outcome.digest),
        wall_s: clock.wall_s(),
        cpu_s: clock.cpu_s(),
        peak_rss_bytes: crate::meter::peak_rss_bytes(),
        drawn: page::Drawn::of(loaded, engine, work, outcome, times),
    }
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
    let last = finishes.map(|times| times.finish.as_secs_f64()).fold(0.0, f64::max);
    let fct_s = percentiles(&times);
    let busbw = part.collective.filter(|_| fct_s.max > 0.0).map(|(collective, ranks)| {
        let Flow { bytes, messages, .. } = work.flows[part.flows.start];
        let moved = bytes.as_f64() * f64::from(messages);
        moved * collective.bus_factor(ranks) / fct_s.max / 1e9
    });
    PartReport {
        name: part.name.clone(),
        flows: part.flows.len() as u64,
        completed: times.len() as u64,
        start_s: part.start.as_secs_f64(),
        finish_s: last,
        fct_s,
        busbw_gbps: busbw,
    }
}

/// The percentiles of sorted values: the smallest that so many are at or below.
pub fn percentiles(sorted: &[f64]) -> Percentiles {
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
    };
    Percentiles { min: at(0.0), p50: at(0.5), p99: at(0.99), max: at(1.0) }
}

/// Utilisation of links over a span, without the links to endpoints unless there are no others.
fn link_loads(fabric: &Fabric, outcome: &Outcome, makespan_s: f64) -> (Links, Vec<WorstLink>) {
    let between_switches = |link: LinkId| {
        let ends = fabric.links()[link];
        [ends.from, ends.to].iter().all(|end| fabric.nodes()[*end].kind == NodeKind::Switch)
    };
    let all: Vec<LinkId> = outcome.links.ids().collect();
    let mut inner: Vec<LinkId> =
        all.iter().copied().filter(|link| between_switches(*link)).collect();
    if inner.is_empty() {
        let is_nic =
            |link: &LinkId| fabric.nodes()[fabric.links()[*link].from].kind == NodeKind::Nic;
        inner = all.iter().copied().filter(is_nic).collect();
    }
    let load = |link: &LinkId| (*link, engine::load(fabric, outcome, makespan_s, *link));
    let busiest: Vec<(LinkId, f64)> = inner.iter().map(load).collect();
    let sum: f64 = busiest.iter().map(|(_, load)| load).sum();
    let used = busiest.iter().filter(|(_, load)| *load > 0.0).count();
    let mean = if busiest.is_empty() { 0.0 } else { sum / busiest.len() as f64 };
    let most = busiest.iter().map(|(_, load)| *load).fold(0.0, f64::max);
    let links = Links {
        max_utilisation: most,
        imbalance: if mean > 0.0 { most / mean } else { 1.0 },
        idle_share: 1.0 - used as f64 / busiest.len().max(1) as f64,
    };
    let worst = |(link, load): &(LinkId, f64)| WorstLink {
        link: fabric.link_name(*link),
        utilisation: *load,
        flows: outcome.links[*link].flows,
        peak_queue_bytes: outcome.links[*link].peak_queue.get(),
        paused_s: outcome.links[*link].paused.as_secs_f64(),
        why: why(fabric, outcome, *link),
    };
    // Whatever holds everybody up is named, a NIC's own cable too.
    let back_end = |link: &LinkId| fabric.class(*link).kind == LinkKind::ScaleOut;
    let mut order: Vec<(LinkId, f64)> =
        outcome.links.ids().filter(back_end).map(|l| load(&l)).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    (links, order.iter().take(WORST_LINKS).map(worst).collect())
}

/// How many queue pairs share a link, against how many share others like it.
fn why(fabric: &Fabric, outcome: &Outcome, link: LinkId) -> String {
    let class = fabric.links()[link].class;
    let like = outcome.links.enumerate().filter(|(other, _)| fabric.links()[*other].class == class);
    let (flows, count) =
        like.fold((0, 0), |(flows, count), (_, used)| (flows + u64::from(used.flows), count + 1));
    let mean = flows as f64 / f64::from(count.max(1));
    let own = outcome.links[link].flows;
    let pairs = if own == 1 { "queue pair takes" } else { "queue pairs share" };
    format!("{own} {pairs} it; the mean of its kind is {mean:.1}")
}
