//! Measures of statements that have no number: pairs and rankings of runs.

use traffic::Collective;
use units::Bytes;

use super::measures::{Figures, Question};
use super::network;
use super::subject::{Figure, Subject};
use crate::engine::Engine;
use crate::packets::Patience;
use crate::{collective, run_traffic, traffic as wire};

const PLAIN: [&str; 2] = ["network.routing.policy=ecmp", "network.routing.qps=1"];

fn set(subject: &Subject, settings: &[&str]) -> Subject {
    let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
    subject.with(&settings)
}

/// Bus bandwidth of a collective of 256 MiB on all GPUs, as flows.
fn bandwidth(subject: &Subject, collective: Collective) -> Figure {
    let size = Bytes::from_mib(256);
    let options = collective::Options {
        engine: Engine::Flow,
        patience: Patience::Usual,
        collective,
        sizes: collective::Sizes { min: size, max: size, factor: 2 },
        gpus: None,
        iterations: 1,
    };
    let ran = collective::run(subject.loaded()?, &options, &mut packetsim::Watch::default());
    let rows = ran.map_err(|failure| failure.to_string())?.rows;
    rows.first().map(|row| row.busbw_gbps).ok_or_else(|| "no size was run".to_owned())
}

/// Seeds over which flows are hashed.
const SEEDS: u64 = 8;

/// How long a pattern of flows takes, on average over seeds.
fn flows(subject: &Subject, pattern: &str, routing: &[&str]) -> Figure {
    let mut sum = 0.0;
    for seed in 0..SEEDS {
        let (pattern, seed) = (format!("traffic.pattern={pattern}"), format!("seed={seed}"));
        let changed = set(subject, &[&[pattern.as_str(), seed.as_str()], routing].concat());
        let options = run_traffic::Options { engine: Engine::Flow, ..Default::default() };
        let mut watch = packetsim::Watch::default();
        let ran = run_traffic::run(changed.loaded()?, &options, &mut watch);
        let (report, ..) = ran.map_err(|failure| failure.to_string())?;
        sum += report.makespan_s.ok_or("nothing ended")?;
    }
    Ok(sum / SEEDS as f64)
}

/// What plain ECMP leaves of messages from each host to one other, over what it leaves of messages
/// from each to all.
pub(super) fn ecmp_ranking(subject: &Subject) -> Figure {
    let left = |pattern: &str| {
        let spread = flows(subject, pattern, &["network.routing.policy=adaptive"])?;
        Ok::<f64, String>(spread / flows(subject, pattern, &PLAIN)?)
    };
    Ok(left("permutation")? / left("all-to-all")?)
}

/// A figure of all-to-all over the most that another primitive of the job has of it, among those
/// that carry a hundredth of the bytes or more.
fn over_others(subject: &Subject, of: impl Fn(&wire::Profile) -> f64) -> Figure {
    let wire = subject.wire()?;
    let counts =
        |row: &&wire::Profile| wire.bytes_per_step <= 100.0 * wire.by_primitive[row.primitive];
    let profile: Vec<&wire::Profile> = wire.profile.iter().filter(counts).collect();
    let own = profile.iter().find(|row| row.primitive == "all_to_all");
    let own = own.map(|row| of(row)).ok_or("no all-to-all leaves a server")?;
    let others = profile.iter().filter(|row| row.primitive != "all_to_all").map(|row| of(row));
    Ok(own / others.fold(f64::MIN_POSITIVE, f64::max))
}

/// How much more all-to-all comes in bursts than the burstiest of the others.
pub(super) fn burst_ranking(subject: &Subject) -> Figure {
    over_others(subject, |row| row.peak_to_mean)
}

/// How many more send to one NIC at once.
pub(super) fn fan_in_ranking(subject: &Subject) -> Figure {
    over_others(subject, |row| row.fan_in as f64)
}

/// Bytes of forward passes over those of backward passes.
pub(super) fn forward_bytes(subject: &Subject) -> Figure {
    let wire = subject.wire()?;
    Ok(wire.by_pass["forward"] / wire.by_pass["backward"].max(f64::MIN_POSITIVE))
}

/// The highest rate of one part of a step over that of another.
fn peaks(subject: &Subject, part: &str, other: &str) -> Figure {
    let passes = &subject.wire()?.passes;
    let peak = |name: &str| {
        let found = passes.iter().find(|pass| pass.pass == name).map(|pass| pass.peak_bps);
        found.filter(|peak| 0.0 < *peak).ok_or(format!("{name}: nothing moves between servers"))
    };
    Ok(peak(part)? / peak(other)?)
}

/// The spike of backward passes over that of forward passes.
pub(super) fn backward_peak(subject: &Subject) -> Figure {
    peaks(subject, "backward", "forward")
}

/// The burst of experts over that of forward passes.
pub(super) fn expert_peak(subject: &Subject) -> Figure {
    peaks(subject, "expert", "forward")
}

const DCQCN: &str = "network.congestion.control=dcqcn";

/// The deepest queue of a run of packets.
fn deepest(subject: &Subject, settings: &[&str]) -> Figure {
    let (_, _, outcome) = network::packets(&set(subject, settings))?;
    let deepest = outcome.links.iter().map(|link| link.peak_queue).max();
    Ok(deepest.ok_or("no link")?.as_f64())
}

/// The deepest queue of an incast with marks from 4 MiB on, over that with marks from 100 KiB on.
pub(super) fn ecn_too_high(subject: &Subject) -> Figure {
    let late = deepest(subject, &[DCQCN, "network.ecn.min=4MiB", "network.ecn.max=8MiB"])?;
    let early = deepest(subject, &[DCQCN, "network.ecn.min=100KiB", "network.ecn.max=400KiB"])?;
    Ok(late / early)
}

/// The deepest queue of an incast with DCQCN, over that without.
pub(super) fn dcqcn_queue(subject: &Subject) -> Figure {
    let with = deepest(subject, &[DCQCN])?;
    Ok(with / deepest(subject, &["network.congestion.control=none"])?)
}

/// How long packets take that are sprayed where receivers want them in order, over where they
/// place them as they come.
pub(super) fn reorder_cost(subject: &Subject) -> Figure {
    let spray = "network.routing.policy=spray";
    let in_order = makespan(subject, &[spray, "network.nic.reorder=none"])?;
    Ok(in_order / makespan(subject, &[spray, "network.nic.reorder=direct-placement"])?)
}

fn makespan(subject: &Subject, settings: &[&str]) -> Figure {
    let (report, _, _) = network::packets(&set(subject, settings))?;
    report.makespan_s.ok_or_else(|| "nothing ended".to_owned())
}

/// How long an incast takes with marks from 2 KiB on, over marks from 100 KiB on.
pub(super) fn ecn_too_low(subject: &Subject) -> Figure {
    let early = makespan(subject, &[DCQCN, "network.ecn.min=2KiB", "network.ecn.max=8KiB"])?;
    Ok(early / makespan(subject, &[DCQCN, "network.ecn.min=100KiB", "network.ecn.max=400KiB"])?)
}

/// How long an incast with admission takes with DCQCN, over without.
pub(super) fn dcqcn_redundant(subject: &Subject) -> Figure {
    let admitted = "network.admission.policy=receiver-driven";
    let with = makespan(subject, &[admitted, DCQCN])?;
    Ok(with / makespan(subject, &[admitted, "network.congestion.control=none"])?)
}

/// The first pause where a host feeds each NIC through PCIe 3.0, over where GPUs do.
pub(super) fn host_pause(subject: &Subject) -> Figure {
    let host = network::first_pause(&set(subject, &["cluster.pcie=100Gbps"]))?;
    Ok(host / network::first_pause(subject)?)
}

/// Bandwidth under adaptive routing with one queue pair for each connection, over with sixteen.
pub(super) fn entropy_dependence(subject: &Subject) -> Figure {
    let with = |pairs: &str| {
        let changed = set(subject, &["network.routing.policy=adaptive", pairs]);
        bandwidth(&changed, Collective::AllReduce)
    };
    Ok(with("network.routing.qps=1")? / with("network.routing.qps=16")?)
}

/// What reduction in switches gains for an all-reduce, over what adaptive routing does.
pub(super) fn largest_lever(subject: &Subject) -> Figure {
    let with = |settings: &[&str]| bandwidth(&set(subject, settings), Collective::AllReduce);
    let ring = "library.algorithm=ring";
    let plain = with(&[ring, "network.routing.policy=ecmp"])?;
    let routed = with(&[ring])?;
    let reduced = with(&["library.sharp=enabled", "library.algorithm=sharp"])?;
    Ok((reduced / routed) / (routed / plain))
}

/// How far completion times spread: 99 % over the median.
pub(super) fn spread(subject: &Subject) -> Figure {
    let (report, _, _) = network::packets(subject)?;
    let times = report.fct_s.ok_or("nothing ended")?;
    Ok(times.p99 / times.p50)
}

/// A step of the first settings of each case over that of the second; closed forms.
pub(super) fn step_cases(question: &Question<'_>) -> Figures {
    let [subject] = question.subjects[..] else {
        return Err("this measure changes one scenario".to_owned());
    };
    let of = |case: &super::Case| {
        let step = |own: &[String]| {
            let changed = subject.with(&[&case.set, own].concat());
            changed.step().map(|report| report.step_s)
        };
        Ok(step(&case.first)? / step(&case.second)?)
    };
    question.cases.iter().map(of).collect()
}

/// How alike the primitives' shares of two jobs are, where that is least: the cosine.
pub(super) fn least_alike(question: &Question<'_>) -> Figures {
    let mut shares: Vec<Vec<f64>> = Vec::new();
    for subject in &question.subjects {
        shares.push(subject.wire()?.by_primitive.values().copied().collect());
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut least = 1.0_f64;
    for (at, a) in shares.iter().enumerate() {
        for b in &shares[at + 1..] {
            let length = (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE);
            least = least.min(dot(a, b) / length);
        }
    }
    Ok(vec![least])
}

/// What the links below the top tier carry of their capacity over a step, over what NICs do.
pub(super) fn spine_load(subject: &Subject) -> Figure {
    let (wire, tiers) = (subject.wire()?, &subject.summary()?.tiers);
    let load = |tier: &fabric::summary::TierSummary| {
        let bytes = wire.per_tier_bytes.get(&tier.name).copied().unwrap_or(0.0);
        8.0 * bytes / (tier.links as f64 * tier.rate_bps)
    };
    let (Some(first), Some(last)) = (tiers.first(), tiers.last()) else {
        return Err("no switches".to_owned());
    };
    Ok(load(last) / load(first).max(f64::MIN_POSITIVE))
}

/// Tokens for a dollar of the first cluster, over those of the best of the others.
pub(super) fn value_over_others(question: &Question<'_>) -> Figures {
    let of = |subject: &&Subject| {
        let report = subject.step()?;
        Ok::<f64, String>(report.tokens_per_s / report.cost.capital_usd)
    };
    let values: Vec<f64> = question.subjects.iter().map(of).collect::<Result<_, _>>()?;
    let [first, others @ ..] = &values[..] else { return Err("no scenario".to_owned()) };
    Ok(vec![first / others.iter().copied().fold(f64::MIN_POSITIVE, f64::max)])
}

/// The share of bytes that all-reduce, all-to-all and messages between stages carry together.
pub(super) fn three_patterns(subject: &Subject) -> Figure {
    let wire = subject.wire()?;
    let three = ["all_reduce", "all_to_all", "send_recv"];
    Ok(three.iter().map(|name| wire.by_primitive[name]).sum::<f64>() / wire.bytes_per_step)
}

/// Uplinks in use of the second over the first, less one.
pub(super) fn paths_gain(a: &Subject, b: &Subject) -> Figure {
    let used = |subject: &Subject| Ok::<_, String>(1.0 - subject.wire()?.entropy.idle_uplinks);
    Ok(used(b)? / used(a)? - 1.0)
}
