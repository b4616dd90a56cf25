//! The metrics of a comparison: what each is called, its unit, and how a column answers it.

use fabric::cost::{ALL, Dollars, NETWORK, Part};
use fabric::summary::Summary;
use flowsim::analysis::LinkGroup;

use super::{Column, Described, Row, Value};
use crate::targets::Latencies;
use crate::world::{message_latency, slots};
use crate::{run_job, run_traffic, traffic as wire};
use scenario::file::Reported;

/// How a figure is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Form {
    /// With a prefix and the unit: 12.3 MW.
    #[default]
    Scaled,
    /// As a percentage.
    Percent,
    /// In groups of three digits.
    Count,
    /// As dollars.
    Dollars,
    /// With the digits that count, and the unit.
    Plain,
    /// As people write a ratio: 2:1.
    Ratio,
    /// As so many times something: 2.5×.
    Times,
    /// A factor, as what it is above one: +43 %.
    Excess,
    /// As it is.
    Words,
}

/// Which of two figures is better.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Better {
    /// Neither: it describes.
    #[default]
    Neither,
    /// The smaller.
    Less,
    /// The larger.
    More,
}

/// Figures of which less is better.
const LESS: [&str; 29] = [
    "jobs_step_s",
    "jobs_slowdown",
    "jobs_all_s",
    "step_s",
    "exposed_communication",
    "fabric_share",
    "bubble",
    "imbalance",
    "slowdown",
    "cost",
    "network_cost",
    "token_cost",
    "idle_uplinks",
    "max_utilisation",
    "path_latency",
    "interruptions_per_day",
    "completion_s",
    "makespan_s",
    UNFINISHED,
    "fct_p50_s",
    "fct_p99_s",
    "link_imbalance",
    "uplink_imbalance",
    "small_p50_s",
    "small_p99_s",
    "drops",
    "retransmits",
    "pauses",
    "paused_s",
];

/// Figures of which more is better.
const MORE: [&str; 9] = [
    "tokens_per_s",
    "tflops_per_gpu",
    "mfu",
    "goodput",
    "busbw_GBps",
    "goodput_bps",
    "bisection",
    "entropy",
    "paths",
];

fn better(metric: &str) -> Better {
    match metric {
        metric if LESS.contains(&metric) => Better::Less,
        metric if MORE.contains(&metric) => Better::More,
        _ => Better::Neither,
    }
}

/// One metric.
struct Metric {
    key: &'static str,
    theme: &'static str,
    title: &'static str,
    unit: &'static str,
    form: Form,
    answer: fn(&Described<'_>) -> Option<Value>,
    ends: Option<Ends>,
}

/// The least and the most that a figure may be.
pub(super) type Ends = fn(&Described<'_>) -> Option<(f64, f64)>;

impl Metric {
    /// The same with its ends.
    const fn between(self, ends: Ends) -> Self {
        Self { ends: Some(ends), ..self }
    }
}

const fn metric(
    theme: &'static str,
    key: &'static str,
    title: &'static str,
    (unit, form): (&'static str, Form),
    answer: fn(&Described<'_>) -> Option<Value>,
) -> Metric {
    Metric { key, theme, title, unit, form, answer, ends: None }
}

const SCALE: &str = "Scale, power and cost";
const FABRIC: &str = "Fabric";
const WORDS: &str = "In words";
const SHARES: &str = "Primitives and axes: shares of the bytes between NICs";
const RATES: &str = "Bandwidth and demand";
const SPREAD: &str = "How the fabric takes it";
const LATENCY: &str = "Latency and jitter";
const STEP: &str = "The step";
const FAULTS: &str = "Faults and money";
const JOBS: &str = "Several jobs";
const FLOWS: &str = "Synthetic traffic";
/// Published figures that nothing here simulates.
pub(super) const ONLY_SAID: &str = "Reported, not simulated";

/// A row that is there only if any column has any: makespans and percentiles are of those flows
/// that finished, and alone would look as if all had.
pub(super) const UNFINISHED: &str = "unfinished_flows";

const COUNT: (&str, Form) = ("", Form::Count);
const SHARE: (&str, Form) = ("", Form::Percent);
const PLAIN: (&str, Form) = ("", Form::Plain);

fn number(value: f64) -> Option<Value> {
    value.is_finite().then_some(Value::Number(value))
}

fn step(run: &Described<'_>, of: fn(&run_job::Report) -> f64) -> Option<Value> {
    run.job.and_then(|job| number(of(&job.0)))
}

/// The ends of a rate that follows from the step.
fn rate_ends(run: &Described<'_>, of: fn(&run_job::Report) -> f64) -> Option<(f64, f64)> {
    run.job.map(|job| job.0.interval.of_rate(of(&job.0)))
}

fn on_wire(run: &Described<'_>, of: fn(&wire::Report) -> f64) -> Option<Value> {
    run.job.and_then(|job| number(of(&job.1)))
}

fn flows(run: &Described<'_>, of: fn(&run_traffic::Report) -> f64) -> Option<Value> {
    run.traffic.and_then(|report| number(of(report)))
}

/// A run of several flows.
fn several<'a>(run: &Described<'a>) -> Option<&'a run_traffic::Report> {
    run.traffic.filter(|report| 1 < report.flows)
}

/// The links up from the leaves that carried anything.
fn uplinks<'a>(run: &Described<'a>) -> Option<&'a LinkGroup> {
    run.traffic?.tiers.iter().find(|tier| tier.between_switches)
}

fn small(run: &Described<'_>, of: fn(&run_traffic::SmallMessages) -> f64) -> Option<Value> {
    number(of(run.traffic?.small_messages_s.as_ref()?))
}

fn share_of(part: f64, report: &wire::Report) -> f64 {
    if report.bytes_per_step > 0.0 { part / report.bytes_per_step } else { 0.0 }
}

/// The share of a step that the fabric costs, to a hundredth of a per cent; nothing where the
/// engine knows no contention.
fn fabric_share(report: &run_job::Report) -> Option<f64> {
    let share = report.verdict.fabric_s / report.without_faults().total();
    report.has_contention().then(|| (1e4 * share).round() / 1e4)
}

/// A figure of the job, for the whole cluster.
fn whole(run: &Described<'_>, of: fn(&run_job::Report) -> f64) -> Option<Value> {
    let (report, _) = run.job?;
    number(of(report) * run.fabric.gpus as f64 / report.gpus as f64)
}

/// What the cluster costs, or its network.
fn price(run: &Described<'_>, parts: &[Part]) -> Dollars {
    run.fabric.bill.of(parts).0
}

fn ends(dollars: Dollars) -> Option<(f64, f64)> {
    Some((dollars.low, dollars.high))
}

/// The most that a tier's links below carry over those above, with whole cables.
pub(super) fn oversubscription_built(fabric: &Summary) -> f64 {
    fabric.tiers.iter().map(|tier| tier.oversubscription_built).fold(1.0, f64::max)
}

const METRICS: &[Metric] = &[
    metric(SCALE, "gpus", "GPUs of the cluster", COUNT, |c| number(c.fabric.gpus as f64)),
    metric(SCALE, "job_gpus", "job's GPUs", COUNT, |c| step(c, |r| r.gpus as f64)),
    metric(SCALE, "parameters", "parameters", ("", Form::Scaled), |c| {
        number(c.loaded.job.as_ref()?.model.parameters().total() as f64)
    }),
    metric(SCALE, "power", "power", ("MW", Form::Plain), |c| whole(c, |r| r.cost.power_w / 1e6)),
    metric(SCALE, "cost", "capital", ("USD", Form::Dollars), |c| number(price(c, &ALL).value))
        .between(|c| ends(price(c, &ALL))),
    metric(SCALE, "network_cost", "  the network", ("USD", Form::Dollars), |c| {
        number(price(c, &NETWORK).value)
    })
    .between(|c| ends(price(c, &NETWORK))),
    metric(FABRIC, "tiers", "tiers of switches", COUNT, |c| number(c.fabric.tiers.len() as f64)),
    metric(FABRIC, "switches", "switches", COUNT, |c| number(c.fabric.switches as f64)),
    metric(FABRIC, "oversubscription", "oversubscription", ("", Form::Ratio), |c| {
        number(c.fabric.tiers.iter().map(|tier| tier.oversubscription).fold(1.0, f64::max))
    }),
    metric(FABRIC, "oversubscription_built", "oversubscription, built", ("", Form::Ratio), |c| {
        number(oversubscription_built(c.fabric))
    }),
    metric(FABRIC, "servers_on_leaf", "servers on a leaf", COUNT, |c| {
        number(slots(c.loaded.fabric()).nodes_per_leaf as f64)
    }),
    metric(FABRIC, "tier_switches", "switches by tier", ("", Form::Words), |c| {
        let tiers = c.fabric.tiers.iter();
        let words: Vec<String> = tiers.map(|t| format!("{} {}", t.switches, t.name)).collect();
        Some(Value::Words(words.join(", ")))
    }),
    metric(FABRIC, "bisection", "bisection", ("bit/s", Form::Scaled), |c| {
        number(c.fabric.bisection_bps)
    }),
    metric(FABRIC, "paths", "paths between two NICs", COUNT, |c| number(c.fabric.paths_max as f64)),
    metric(WORDS, "topology", "topology", ("", Form::Words), |c| {
        let scenario = &c.loaded.scenario;
        let (topology, transport) = (scenario.fabric.topology, scenario.network.transport);
        Some(Value::Words(format!("{}, {}", topology.name(), transport.name())))
    }),
    metric(WORDS, "parallelism", "parallelism", ("", Form::Words), |c| {
        Some(Value::Words(degrees(&c.loaded.job.as_ref()?.layout)))
    }),
    metric(WORDS, "routing", "routing", ("", Form::Words), |c| {
        let routing = &c.loaded.scenario.network.settings.routing;
        let pairs = if routing.qps == 1 { "queue pair" } else { "queue pairs" };
        Some(Value::Words(format!("{}, {} {pairs}", routing.policy.name(), routing.qps)))
    }),
    metric(WORDS, "constraint", "main constraint", ("", Form::Words), |c| {
        Some(Value::Words(run_job::constraint(&c.parts?)))
    }),
    metric(SHARES, "all_reduce_share", "all-reduce", SHARE, |c| {
        on_wire(c, |r| share_of(r.by_primitive["all_reduce"], r))
    }),
    metric(SHARES, "all_gather_share", "all-gather", SHARE, |c| {
        on_wire(c, |r| share_of(r.by_primitive["all_gather"], r))
    }),
    metric(SHARES, "reduce_scatter_share", "reduce-scatter", SHARE, |c| {
        on_wire(c, |r| share_of(r.by_primitive["reduce_scatter"], r))
    }),
    metric(SHARES, "all_to_all_share", "all-to-all", SHARE, |c| {
        on_wire(c, |r| share_of(r.by_primitive["all_to_all"], r))
    }),
    metric(SHARES, "send_recv_share", "send and receive", SHARE, |c| {
        on_wire(c, |r| share_of(r.by_primitive["send_recv"], r))
    }),
    metric(SHARES, "dp_share", "data parallel", SHARE, |c| {
        on_wire(c, |r| share_of(r.by_axis["dp"], r))
    }),
    metric(SHARES, "pp_share", "pipeline", SHARE, |c| on_wire(c, |r| share_of(r.by_axis["pp"], r))),
    metric(SHARES, "ep_share", "expert parallel", SHARE, |c| {
        on_wire(c, |r| share_of(r.by_axis["ep"], r))
    }),
    metric(SHARES, "elephant_share", "in transfers over 100 MB", SHARE, |c| {
        on_wire(c, |r| r.elephants.bytes_share)
    }),
    metric(SHARES, "cross_zone_share", "leaving the zone", SHARE, |c| {
        on_wire(c, |r| r.placements.first().map_or(0.0, |row| row.cross_zone_share))
    }),
    metric(SHARES, "cross_zone_saving", "saved by placement", SHARE, |c| {
        on_wire(c, cross_zone_saving)
    }),
    metric(RATES, "link_rate", "one link", ("Gb/s", Form::Plain), |c| {
        number(c.fabric.tiers.first()?.rate_bps / 1e9)
    }),
    metric(RATES, "server_rate", "one server", ("Tb/s", Form::Plain), |c| {
        let nics = c.fabric.nics as f64 / c.fabric.nodes.max(1) as f64;
        let nic = c.loaded.fabric();
        let ports = nic.ports(nic.nic(0)).iter().map(|link| nic.class(*link).rate.as_bps_f64());
        number(nics * ports.sum::<f64>() / 1e12)
    }),
    metric(RATES, "step_bytes", "between NICs, one step", ("B", Form::Scaled), |c| {
        on_wire(c, |r| r.bytes_per_step)
    }),
    metric(RATES, "gpu_bytes", "out of a GPU, one step", ("B", Form::Scaled), |c| {
        on_wire(c, |r| r.per_gpu_bytes.mean)
    }),
    metric(RATES, "fabric_mean", "fabric, mean", ("bit/s", Form::Scaled), |c| {
        let (step, wire) = c.job?;
        number(8.0 * wire.bytes_per_step / step.step_s)
    }),
    metric(RATES, "fabric_demand", "fabric, peak", ("bit/s", Form::Scaled), |c| {
        on_wire(c, |r| r.burst.peak_bps)
    }),
    metric(RATES, "fabric_demand_per_day", "fabric, one day", ("bit", Form::Scaled), |c| {
        let (step, wire) = c.job?;
        number(8.0 * wire.bytes_per_step / step.step_s * 86_400.0)
    }),
    metric(RATES, "peak_to_mean", "peak over mean", ("", Form::Times), |c| {
        on_wire(c, |r| r.burst.peak_to_mean)
    }),
    metric(RATES, "duty_cycle", "duty cycle", SHARE, |c| on_wire(c, |r| r.burst.duty_cycle)),
    metric(SPREAD, "above_leaves", "bytes above the leaves", SHARE, |c| {
        number(c.job?.1.above_leaves()?)
    }),
    metric(SPREAD, "flows", "queue pairs", COUNT, |c| on_wire(c, |r| r.entropy.flows as f64)),
    metric(SPREAD, "entropy", "entropy over uplinks", SHARE, |c| {
        on_wire(c, |r| r.entropy.normalised)
    }),
    metric(SPREAD, "idle_uplinks", "idle uplinks", SHARE, |c| {
        on_wire(c, |r| r.entropy.idle_uplinks)
    }),
    metric(SPREAD, "imbalance", "busiest link over mean", ("", Form::Times), |c| {
        step(c, |r| r.links.imbalance)
    }),
    metric(SPREAD, "max_utilisation", "busiest link, of the step", SHARE, |c| {
        step(c, |r| r.links.max_utilisation)
    }),
    metric(SPREAD, "slowdown", "worst phase delayed by", ("", Form::Excess), |c| {
        step(c, |r| r.phases.iter().map(|phase| phase.slowdown).fold(1.0, f64::max))
    }),
    metric(LATENCY, "path_latency", "64 B, farthest NICs", ("us", Form::Plain), farthest),
    metric(LATENCY, "server_latency", "64 B in a server", ("us", Form::Plain), |c| {
        number(Latencies::of(c.loaded).server?)
    }),
    metric(LATENCY, "rack_latency", "64 B in a rack", ("us", Form::Plain), |c| {
        number(Latencies::of(c.loaded).rack?)
    }),
    metric(LATENCY, "zone_latency", "64 B in a zone", ("us", Form::Plain), |c| {
        number(Latencies::of(c.loaded).zone?)
    }),
    metric(LATENCY, "jitter_share", "jitter and the loop", SHARE, |c| {
        step(c, |r| r.breakdown_s.other / r.step_s)
    }),
    metric(STEP, "step_s", "step", ("s", Form::Plain), |c| step(c, |r| r.step_s))
        .between(|c| c.job.map(|job| (job.0.step_low_s, job.0.step_high_s))),
    metric(STEP, "scaling_error", "2 MiB for 4 MiB of each phase", SHARE, |c| {
        number(c.job?.0.scaled.as_ref()?.step_error)
    }),
    metric(STEP, "tokens_per_s", "tokens per second", ("", Form::Scaled), |c| {
        step(c, |r| r.tokens_per_s)
    })
    .between(|c| rate_ends(c, |r| r.tokens_per_s)),
    metric(STEP, "tflops_per_gpu", "TFLOP/s a GPU", ("TFLOP/s", Form::Plain), |c| {
        step(c, |r| r.tflops_per_gpu)
    })
    .between(|c| rate_ends(c, |r| r.tflops_per_gpu)),
    metric(STEP, "mfu", "MFU", SHARE, |c| step(c, |r| r.mfu)).between(|c| rate_ends(c, |r| r.mfu)),
    metric(STEP, "exposed_communication", "exposed communication", SHARE, |c| {
        step(c, |r| r.exposed_communication)
    }),
    metric(STEP, "fabric_share", "fabric costs", SHARE, |c| number(fabric_share(&c.job?.0)?)),
    metric(STEP, "bubble", "pipeline bubble", SHARE, |c| {
        step(c, |r| r.breakdown_s.bubble / r.step_s)
    }),
    metric(STEP, "memory_per_gpu", "memory of a GPU", ("GB", Form::Plain), |c| {
        step(c, |r| r.memory.total_bytes as f64 / 1e9)
    }),
    metric(FAULTS, "interruptions_per_day", "interruptions per day", ("", Form::Plain), |c| {
        step(c, |r| 86_400.0 / r.reliability.mtbf_s)
    }),
    metric(FAULTS, "checkpoint_interval", "between checkpoints", ("min", Form::Plain), |c| {
        step(c, |r| r.reliability.interval_s / 60.0)
    }),
    metric(FAULTS, "goodput", "goodput", SHARE, |c| step(c, |r| r.goodput)),
    metric(FAULTS, "token_cost", "1M tokens", ("USD", Form::Dollars), |c| {
        step(c, |r| r.cost.usd_per_million_tokens)
    })
    .between(|c| {
        let cost = &c.job?.0.cost;
        Some((cost.usd_per_million_tokens_low, cost.usd_per_million_tokens_high))
    }),
    metric(JOBS, "jobs_step_s", "the longest step", ("s", Form::Plain), |c| number(c.jobs?.step_s)),
    metric(JOBS, "jobs_slowdown", "slowdown, the worst", ("", Form::Times), |c| {
        number(c.jobs?.jobs.iter().map(|job| job.slowdown).fold(1.0, f64::max))
    }),
    metric(JOBS, "jobs_all_s", "until all are over", ("s", Form::Plain), |c| number(c.jobs?.all_s)),
    metric(FLOWS, "completion_s", "what is looked at, done", ("s", Form::Plain), |c| {
        number(c.traffic?.parts.first()?.fct_s?.max)
    }),
    metric(FLOWS, "makespan_s", "makespan", ("s", Form::Plain), |c| number(c.traffic?.makespan_s?)),
    // Plain, for a mean over seeds may be less than one.
    metric(FLOWS, UNFINISHED, "unfinished flows", PLAIN, |c| {
        flows(c, |r| (r.flows - r.completed) as f64)
    }),
    metric(FLOWS, "fct_p50_s", "median completion", ("s", Form::Plain), |c| {
        number(several(c)?.fct_s?.p50)
    }),
    metric(FLOWS, "fct_p99_s", "99th percentile", ("s", Form::Plain), |c| {
        number(several(c)?.fct_s?.p99)
    }),
    metric(FLOWS, "busbw_GBps", "bus bandwidth", ("GB/s", Form::Plain), |c| {
        number(c.traffic?.parts.first()?.busbw_gbps?)
    }),
    metric(FLOWS, "goodput_bps", "all flows together", ("bit/s", Form::Scaled), |c| {
        number(several(c)?.goodput_bps?)
    }),
    metric(FLOWS, "link_imbalance", "links, busiest over mean", ("", Form::Times), |c| {
        flows(c, |r| r.links.imbalance)
    }),
    metric(FLOWS, "idle_links", "links, idle", SHARE, |c| flows(c, |r| r.links.idle_share)),
    metric(FLOWS, "uplink_imbalance", "uplinks, busiest over mean", ("", Form::Times), |c| {
        number(uplinks(c)?.at_switch.max_over_mean)
    }),
    metric(FLOWS, "uplinks_idle", "uplinks, idle", SHARE, |c| number(uplinks(c)?.at_switch.idle)),
    metric(FLOWS, "small_p50_s", "small messages, median", ("s", Form::Plain), |c| {
        small(c, |latency| latency.p50)
    }),
    metric(FLOWS, "small_p99_s", "small messages, p99", ("s", Form::Plain), |c| {
        small(c, |latency| latency.p99)
    }),
    metric(FLOWS, "small_p999_s", "small messages, p99.9", ("s", Form::Plain), |c| {
        small(c, |latency| latency.p999)
    }),
    metric(FLOWS, "drops", "drops", COUNT, |c| flows(c, |r| r.drops as f64)),
    metric(FLOWS, "retransmits", "sent again", COUNT, |c| flows(c, |r| r.retransmits as f64)),
    metric(FLOWS, "trims", "trimmed", COUNT, |c| flows(c, |r| r.trims as f64)),
    metric(FLOWS, "pauses", "pauses or stalls", COUNT, |c| flows(c, |r| r.pfc.pauses as f64)),
    metric(FLOWS, "paused_s", "their length together", ("s", Form::Plain), |c| {
        flows(c, |r| r.pfc.paused_s)
    }),
    metric(FLOWS, "paused_links", "links that were paused", COUNT, |c| {
        flows(c, |r| r.pfc.links as f64)
    }),
];

fn degrees(layout: &job::Layout) -> String {
    let all = [
        ("TP", layout.tp),
        ("CP", layout.cp),
        ("PP", layout.pp),
        ("DP", layout.dp),
        ("EP", layout.ep),
    ];
    let used: Vec<String> = all
        .iter()
        .filter(|(_, degree)| 1 < *degree)
        .map(|(name, degree)| format!("{name} {degree}"))
        .collect();
    if used.is_empty() { "none".to_owned() } else { used.join(", ") }
}

/// What the scenario's placement keeps inside zones that a random one would not.
fn cross_zone_saving(report: &wire::Report) -> f64 {
    let random = report.placements.iter().find(|row| row.placement == "random");
    match (report.placements.first(), random) {
        (Some(own), Some(random)) if 0.0 < random.cross_zone_bytes => {
            1.0 - own.cross_zone_bytes / random.cross_zone_bytes
        }
        _ => f64::NAN,
    }
}

/// How long a short message takes between the first server and the last, on one rail.
fn farthest(run: &Described<'_>) -> Option<Value> {
    let last = run.loaded.fabric().servers() - 1;
    number(message_latency(run.loaded, 0, last)?.as_secs_f64() * 1e6)
}

/// The rows that any column answers, and what is only reported.
pub(super) fn rows(columns: &[Column]) -> Vec<Row> {
    let mut rows = Vec::new();
    for metric in METRICS {
        let answers = columns.iter().map(|column| column.over_seeds(metric.answer));
        let (simulated, ci95): (Vec<Option<Value>>, Vec<Option<f64>>) = answers.unzip();
        let is_sure = ci95.iter().all(Option::is_none);
        let ends = metric.ends.map_or_else(Vec::new, |ends| {
            columns.iter().map(|column| column.ends(ends)).collect::<Vec<_>>()
        });
        let row = Row {
            metric: metric.key.to_owned(),
            unit: metric.unit.to_owned(),
            reported: columns.iter().map(|c| c.reported(metric.key).map(value)).collect(),
            source: columns.iter().map(|c| c.reported(metric.key).map(source)).collect(),
            simulated,
            ci95: if is_sure { Vec::new() } else { ci95 },
            low: ends.iter().map(|ends| ends.map(|(low, _)| low)).collect(),
            high: ends.iter().map(|ends| ends.map(|(_, high)| high)).collect(),
            theme: metric.theme,
            title: metric.title.to_owned(),
            form: metric.form,
            better: better(metric.key),
            digits: 3,
        }
        .with_digits();
        let answered = |cells: &[Option<Value>]| cells.iter().any(Option::is_some);
        let all_finished = row.metric == UNFINISHED && !row.simulated.iter().any(is_some_of_it);
        if !all_finished && (answered(&row.simulated) || answered(&row.reported)) {
            rows.push(row);
        }
    }
    rows.extend(only_said(columns));
    rows
}

fn is_some_of_it(value: &Option<Value>) -> bool {
    matches!(value, Some(Value::Number(number)) if 0.0 < *number)
}

/// Published figures of metrics that nothing here simulates.
fn only_said(columns: &[Column]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        for reported in &column.loaded.scenario.reported {
            if METRICS.iter().any(|metric| metric.key == reported.metric) {
                continue;
            }
            let known = rows.iter().position(|row| row.metric == reported.metric);
            let place = known.unwrap_or_else(|| {
                rows.push(Row {
                    metric: reported.metric.clone(),
                    unit: reported.unit.clone(),
                    reported: vec![None; columns.len()],
                    simulated: vec![None; columns.len()],
                    ci95: Vec::new(),
                    low: Vec::new(),
                    high: Vec::new(),
                    source: vec![None; columns.len()],
                    theme: ONLY_SAID,
                    title: reported.metric.replace('_', " "),
                    form: Form::Scaled,
                    better: Better::Neither,
                    digits: 3,
                });
                rows.len() - 1
            });
            rows[place].reported[at] = Some(value(reported));
            rows[place].source[at] = Some(source(reported));
        }
    }
    rows
}

fn value(reported: &Reported) -> Value {
    match (reported.value, reported.high, &reported.text) {
        (Some(low), Some(high), _) => Value::Range(low, high),
        (Some(value), None, _) => Value::Number(value),
        (None, _, text) => Value::Words(text.clone().unwrap_or_default()),
    }
}

fn source(reported: &Reported) -> String {
    let mut text = reported.source.clone();
    if !reported.note.is_empty() {
        text += &format!(" ({})", reported.note);
    }
    text
}
