//! How a claim is tested: one measure for each kind of figure, on the scenarios that it names.
//!
//! Every figure is what a command or an engine says; what a measure adds is one line of arithmetic,
//! which its words tell. To add one, write its line in [`MEASURES`].

use fabric::cost::NETWORK;
use fabric::hardware::Catalogue;

use super::Case;
use super::network;
use super::pairs;
use super::subject::{Figure, Subject};
use crate::{operations, run_job};

/// What a measure is asked.
pub(super) struct Question<'a> {
    /// The claim's scenarios.
    pub(super) subjects: Vec<&'a Subject>,
    /// Tokens of a whole run, if the claim is about one.
    pub(super) tokens: Option<f64>,
    /// The switch that the claim is about.
    pub(super) switch: Option<&'a str>,
    /// Settings to take the measure under.
    pub(super) cases: &'a [Case],
    /// Hardware.
    pub(super) catalogue: &'a Catalogue,
}

/// One figure for each scenario, or one for all together.
pub(super) type Figures = Result<Vec<f64>, String>;

/// How a figure is found.
pub(super) struct Measure {
    /// Its name in the list of claims.
    pub(super) name: &'static str,
    /// In words.
    pub(super) how: &'static str,
    /// Finds it.
    pub(super) of: fn(&Question<'_>) -> Figures,
}

const fn measure(
    name: &'static str,
    how: &'static str,
    of: fn(&Question<'_>) -> Figures,
) -> Measure {
    Measure { name, how, of }
}

/// The measure of this name.
pub(super) fn find(name: &str) -> Option<&'static Measure> {
    MEASURES.iter().find(|measure| measure.name == name)
}

fn each(question: &Question<'_>, of: impl Fn(&Subject) -> Figure) -> Figures {
    question.subjects.iter().map(|subject| of(subject)).collect()
}

/// A figure of a step, for each scenario.
fn step(question: &Question<'_>, of: impl Fn(&run_job::Report) -> f64) -> Figures {
    each(question, |subject| subject.step().map(&of))
}

/// A figure of the first two scenarios.
fn pair(question: &Question<'_>, of: impl Fn(&Subject, &Subject) -> Figure) -> Figures {
    match question.subjects[..] {
        [first, second] => Ok(vec![of(first, second)?]),
        _ => Err("this measure compares two scenarios".to_owned()),
    }
}

fn tokens(question: &Question<'_>) -> Figure {
    question.tokens.ok_or_else(|| "the claim does not say how many tokens".to_owned())
}

/// What is true of the job's share, for the whole cluster.
fn whole(subject: &Subject, of: impl Fn(&run_job::Report) -> f64) -> Figure {
    let report = subject.step()?;
    Ok(of(report) * subject.summary()?.gpus as f64 / report.gpus as f64)
}

pub(super) const MEASURES: &[Measure] = &[
    // The cluster, its parts and its price.
    measure("gpus", "GPUs of the cluster (topo)", |q| each(q, |s| Ok(s.summary()?.gpus as f64))),
    measure("gpus-per-server", "GPUs of a server (topo)", |q| {
        each(q, |s| Ok(s.summary()?.gpus as f64 / s.summary()?.nodes.max(1) as f64))
    }),
    measure("makers", "makers of Ethernet over makers of InfiniBand switches (catalogue)", |q| {
        let count = |credits: bool| operations::makers(q.catalogue, credits).len().max(1) as f64;
        Ok(vec![count(false) / count(true)])
    }),
    measure("configured-lines", "lines on all devices, first over second (compare)", |q| {
        pair(q, |a, b| Ok(configured_lines(a)? / configured_lines(b)?))
    }),
    measure("parameters", "parameters of the job's model", |q| {
        each(q, |s| {
            let job = s.loaded()?.job.as_ref().ok_or("no job")?;
            Ok(job.model.parameters().total() as f64)
        })
    }),
    measure("power", "power of the cluster with servers and cooling (run)", |q| {
        each(q, |s| whole(s, |r| r.cost.power_w))
    }),
    measure("capital", "price of GPUs, servers and network (run)", |q| {
        each(q, |s| whole(s, |r| r.cost.capital_usd))
    }),
    measure("capital-ratio", "price of the first cluster over the second's (run)", |q| {
        pair(q, |a, b| {
            let price = |s: &Subject| whole(s, |r| r.cost.capital_usd);
            Ok(price(a)? / price(b)?)
        })
    }),
    measure(
        "fabric-saving",
        "price of NICs, switches and cables: saved by the first (topo)",
        fabric_saving,
    ),
    measure("server-rate", "scale-out ports of a server (topo)", |q| each(q, server_rate)),
    measure("server-rate-all", "the same with its front-end ports (topo)", |q| {
        each(q, |s| Ok(server_rate(s)? + front_end_rate(s)?))
    }),
    measure("link-rate", "one port of a NIC (topo)", |q| {
        each(q, |s| Ok(s.summary()?.tiers.first().ok_or("no switches")?.rate_bps))
    }),
    measure("oversubscription", "of the tier where it is highest (topo)", |q| {
        each(q, |s| {
            Ok(s.summary()?.tiers.iter().map(|tier| tier.oversubscription).fold(1.0, f64::max))
        })
    }),
    measure("leaf-oversubscription", "of the lowest tier (topo)", |q| {
        each(q, |s| Ok(s.summary()?.tiers.first().ok_or("no switches")?.oversubscription))
    }),
    measure("gpu-memory", "of the catalogue's GPU", |q| {
        each(q, |s| {
            let scenario = &s.loaded()?.scenario;
            let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu).ok_or("no such GPU")?;
            Ok(gpu.memory_gb.value * 1e9)
        })
    }),
    measure("switch-ports", "of the catalogue's switch", |q| {
        let switch = q.switch.and_then(|name| q.catalogue.switch.get(name));
        Ok(vec![f64::from(switch.ok_or("no such switch")?.ports)])
    }),
    measure("latency-same-leaf", "64 bytes between two servers of a leaf, NICs included", |q| {
        each(q, network::same_leaf)
    }),
    measure("latency-cross-leaf", "64 bytes from the first server to the last", |q| {
        each(q, network::cross_leaf)
    }),
    // What the job puts on the wire.
    measure("step-bytes", "bytes between NICs in a step (traffic)", |q| {
        each(q, |s| Ok(s.wire()?.bytes_per_step))
    }),
    measure("run-bytes", "the same over the tokens of the run (traffic)", |q| {
        let tokens = tokens(q)?;
        each(q, |s| Ok(s.wire()?.bytes_per_step * tokens / s.step()?.tokens_per_step))
    }),
    measure("bits-per-day", "bytes of a step over its time, for a day (traffic, run)", |q| {
        each(q, |s| Ok(mean_rate(s)? * 86_400.0))
    }),
    measure("load-ratio", "mean rate on the fabric, first over second (traffic, run)", |q| {
        pair(q, |a, b| Ok(mean_rate(a)? / mean_rate(b)?))
    }),
    measure("fabric-demand", "highest rate of all NICs together in a step (traffic)", |q| {
        each(q, |s| Ok(s.wire()?.burst.peak_bps))
    }),
    measure("one-per-cent", "a hundredth of that (traffic)", |q| {
        each(q, |s| Ok(s.wire()?.burst.peak_bps / 100.0))
    }),
    measure("elephants", "share of bytes in transfers above 100 MB (traffic)", |q| {
        each(q, |s| Ok(s.wire()?.elephants.bytes_share))
    }),
    measure("largest-transfer", "what one rank sends to one peer in one call (traffic)", |q| {
        each(q, |s| Ok(s.wire()?.sizes.iter().map(|row| row.transfer_bytes).fold(0.0, f64::max)))
    }),
    measure("burst-length", "mean length of stretches above the mean rate (traffic)", |q| {
        each(q, burst_length)
    }),
    measure("all-to-all-share", "of the bytes between NICs (traffic)", |q| {
        each(q, |s| {
            let wire = s.wire()?;
            Ok(wire.by_primitive["all_to_all"] / wire.bytes_per_step)
        })
    }),
    measure(
        "routing-bound",
        "expert-parallel bytes between NICs, first over second (traffic)",
        |q| pair(q, |a, b| Ok(a.wire()?.by_axis["ep"] / b.wire()?.by_axis["ep"])),
    ),
    measure("cross-zone-saving", "bytes between zones, beside each placement (traffic)", |q| {
        let against = |case: &Case| {
            let name = case.name.strip_prefix("against ").unwrap_or(&case.name);
            cross_zone_saving(q.subjects[0], name)
        };
        q.cases.iter().map(against).collect()
    }),
    measure("idle-paths", "unused capacity of uplinks while the busiest is full (traffic)", |q| {
        each(q, |s| Ok(1.0 - 1.0 / s.wire()?.entropy.uplink_imbalance.max(1.0)))
    }),
    // The step.
    measure("mfu", "model FLOPs over the bf16 peak (run)", |q| step(q, |r| r.mfu)),
    measure("tflops", "model FLOPs per GPU (run)", |q| step(q, |r| 1e12 * r.tflops_per_gpu)),
    measure("exposed-ep", "expert-parallel communication that nothing hides (run)", |q| {
        step(q, |r| r.breakdown_s.ep / r.step_s)
    }),
    measure("part-ep", "expert parallelism over the largest part besides computation (run)", |q| {
        step(q, |r| part(r, r.breakdown_s.ep))
    }),
    measure("part-boundary", "a tier's or zone's boundary over the largest cause (run)", |q| {
        step(q, |r| cause(r, r.causes_s.boundary))
    }),
    measure("part-stragglers", "stragglers and faults over the largest cause (run)", |q| {
        step(q, |r| cause(r, r.causes_s.stragglers + r.causes_s.faults))
    }),
    measure("part-credits", "latency and stalls over the largest cause (run)", |q| {
        step(q, |r| cause(r, r.causes_s.latency + r.causes_s.stalls))
    }),
    measure("peak-utilisation", "busiest link in the phase that loads it most (run)", |q| {
        step(q, |r| r.phases.iter().map(|phase| phase.busiest_utilisation).fold(0.0, f64::max))
    }),
    measure("peak-link-rate", "what that link carries (run)", |q| {
        step(q, |r| r.phases.iter().map(|phase| phase.busiest_bps).fold(0.0, f64::max))
    }),
    measure("network-efficiency", "phases undisturbed over phases on the fabric (run)", |q| {
        step(q, efficiency)
    }),
    measure(
        "efficient-gpus",
        "GPUs of the cluster, if phases reach 90 % of undisturbed (run)",
        |q| {
            each(q, |s| {
                let reached = 0.9 <= efficiency(s.step()?);
                Ok(if reached { s.summary()?.gpus as f64 } else { 0.0 })
            })
        },
    ),
    measure("roce-over-ib", "MFU of the first over the second's (run)", |q| {
        pair(q, |a, b| Ok(a.step()?.mfu / b.step()?.mfu))
    }),
    measure("roce-scale", "GPUs of the job, if its step is within 5 % of the twin's (run)", |q| {
        pair(q, |a, b| {
            let (roce, infiniband) = (a.step()?, b.step()?);
            let level = roce.step_s <= 1.05 * infiniband.step_s;
            Ok(if level { roce.gpus as f64 } else { 0.0 })
        })
    }),
    measure("jitter-event", "MFU with one delay of 100 us a step, over MFU without", |q| {
        each(q, |s| {
            let step = s.with(&[]);
            let report = step.step()?;
            jittered(s, 1.0 / (report.gpus as f64 * report.step_s))
        })
    }),
    measure(
        "jitter-worst",
        "MFU with 100 us at every layer of every microbatch, over without",
        |q| each(q, |s| jittered(s, 1e3)),
    ),
    measure("training-days", "tokens over tokens per second and goodput (run)", |q| {
        let tokens = tokens(q)?;
        step(q, |r| tokens / r.tokens_per_s / r.goodput / 86_400.0)
    }),
    measure("run-flop", "model FLOPs of the run's tokens (run)", |q| {
        let tokens = tokens(q)?;
        step(q, |r| tokens / r.tokens_per_s * r.tflops_per_gpu * 1e12 * r.gpus as f64)
    }),
    measure("gpu-hours-per-trillion", "GPUs over tokens per second (run)", |q| {
        step(q, |r| 1e12 / r.tokens_per_s * r.gpus as f64 / 3_600.0)
    }),
    measure("run-cost", "price of a token times those of the run (run)", |q| {
        let tokens = tokens(q)?;
        step(q, |r| r.cost.usd_per_million_tokens * tokens / 1e6)
    }),
    measure("cluster-memory", "memory of a GPU times their number (run)", |q| {
        step(q, |r| r.memory.total_bytes as f64 * r.gpus as f64)
    }),
    measure("mtbf", "between interruptions, from Llama 3's rates by cause (run)", |q| {
        step(q, |r| r.reliability.mtbf_s / 3_600.0)
    }),
    measure("goodput", "share of the time that trains (run)", |q| step(q, |r| r.goodput)),
    // Collectives and packets.
    measure("all-reduce-gain", "bus bandwidth of 1 GiB on 1,024 GPUs: gained by the second", |q| {
        pair(q, |a, b| Ok(network::bus_bandwidth(b)? / network::bus_bandwidth(a)? - 1.0))
    }),
    measure("all-reduce-ratio", "bus bandwidth of 1 GiB, first over second (collective)", |q| {
        pair(q, |a, b| Ok(network::bus_bandwidth(a)? / network::bus_bandwidth(b)?))
    }),
    measure(
        "hierarchy-saving",
        "bytes from NICs, beside a ring whose hops all leave a server",
        |q| each(q, network::hierarchy_saving),
    ),
    measure("sharp-traffic", "bytes into NICs: ring over reduction in switches", |q| {
        each(q, network::sharp_traffic)
    }),
    measure("tensor-growth", "bytes of an all-gather among 8 GPUs over 4", |q| {
        each(q, network::tensor_growth)
    }),
    measure("all-reduce-growth", "bytes from NICs, all GPUs over half of them (flows)", |q| {
        each(q, network::all_reduce_growth)
    }),
    measure("dcqcn-queue", "deepest queue with DCQCN over without (packets)", |q| {
        each(q, pairs::dcqcn_queue)
    }),
    measure("reorder-cost", "makespan sprayed: go-back-N over direct placement (packets)", |q| {
        each(q, pairs::reorder_cost)
    }),
    measure("incast-buffer", "smallest shared buffer without loss or delay (run, packets)", |q| {
        each(q, network::smallest_buffer)
    }),
    measure("incast-drops", "packets lost (run, packets)", |q| each(q, network::drops)),
    measure("time-to-first-pause", "until the first sender is paused (packets)", |q| {
        each(q, network::first_pause)
    }),
    measure("circuit-queue", "deepest queue in front of a circuit (run, packets)", |q| {
        each(q, network::circuit_queue)
    }),
    measure("message-latency", "64 bytes from post to arrival (run, packets)", |q| {
        each(q, network::message)
    }),
    measure("latency-ratio", "the same, first over second", |q| {
        pair(q, |a, b| Ok(network::message(a)? / network::message(b)?))
    }),
    // Pairs and rankings.
    measure(
        "ecmp-ranking",
        "what plain ECMP leaves: to one other over to all (flows, 8 seeds)",
        |q| each(q, pairs::ecmp_ranking),
    ),
    measure("burst-ranking", "peak over mean: all-to-all over the others' most (traffic)", |q| {
        each(q, pairs::burst_ranking)
    }),
    measure("fan-in-ranking", "senders to one NIC: all-to-all over the others' most", |q| {
        each(q, pairs::fan_in_ranking)
    }),
    measure("forward-bytes", "bytes of forward over backward passes (traffic)", |q| {
        each(q, pairs::forward_bytes)
    }),
    measure("backward-peak", "highest rate of backward over forward passes (traffic)", |q| {
        each(q, pairs::backward_peak)
    }),
    measure("expert-peak", "highest rate of experts over forward passes (traffic)", |q| {
        each(q, pairs::expert_peak)
    }),
    measure("ecn-too-high", "deepest queue, marks from 4 MiB over from 100 KiB (packets)", |q| {
        each(q, pairs::ecn_too_high)
    }),
    measure("ecn-too-low", "makespan, marks from 2 KiB over from 100 KiB (packets)", |q| {
        each(q, pairs::ecn_too_low)
    }),
    measure("dcqcn-redundant", "makespan with admission: DCQCN over none (packets)", |q| {
        each(q, pairs::dcqcn_redundant)
    }),
    measure("host-pause", "first pause: hosts at 100 Gb/s over GPUs (packets)", |q| {
        each(q, pairs::host_pause)
    }),
    measure("entropy-dependence", "all-reduce, adaptive: one queue pair over 16", |q| {
        each(q, pairs::entropy_dependence)
    }),
    measure("largest-lever", "gain of reduction in switches over adaptive routing's", |q| {
        each(q, pairs::largest_lever)
    }),
    measure("spread-ratio", "99 % over median of completion, first over second (packets)", |q| {
        pair(q, |a, b| Ok(pairs::spread(a)? / pairs::spread(b)?))
    }),
    measure("step-cases", "a step with one setting over with another (run, analytic)", |q| {
        pairs::step_cases(q)
    }),
    measure("step-ratio", "step of the first over the second's (run)", |q| {
        pair(q, |a, b| Ok(a.step()?.step_s / b.step()?.step_s))
    }),
    measure("least-alike", "cosine of primitives' bytes, least of all pairs (traffic)", |q| {
        pairs::least_alike(q)
    }),
    measure("spine-load", "load of the top tier's links over that of NICs (traffic)", |q| {
        each(q, pairs::spine_load)
    }),
    measure("value", "tokens for a dollar, first over the best of the others (run)", |q| {
        pairs::value_over_others(q)
    }),
    measure(
        "three-patterns",
        "all-reduce, all-to-all, send and receive: their bytes (traffic)",
        |q| each(q, pairs::three_patterns),
    ),
    measure("paths-gain", "uplinks in use: gained by the second (traffic)", |q| {
        pair(q, pairs::paths_gain)
    }),
];

/// What the first network saves against the second, in each case. Only what a case sets differs
/// between its two sides: what both buy costs both the same.
fn fabric_saving(question: &Question<'_>) -> Figures {
    let saving = |a: &Subject, b: &Subject| Ok(1.0 - network_price(a)? / network_price(b)?);
    if question.cases.is_empty() {
        return pair(question, saving);
    }
    let [first, second] = question.subjects[..] else { return pair(question, saving) };
    let of = |case: &Case| {
        let settings = |own: &[String]| [&case.set, own].concat();
        saving(&first.with(&settings(&case.first)), &second.with(&settings(&case.second)))
    };
    question.cases.iter().map(of).collect()
}

fn network_price(subject: &Subject) -> Figure {
    Ok(subject.summary()?.bill.of(&NETWORK).0.value)
}

fn server_rate(subject: &Subject) -> Figure {
    let fabric = subject.loaded()?.fabric();
    let ports = fabric.ports(fabric.nic(0)).iter();
    let rate: f64 = ports.map(|link| fabric.class(*link).rate.as_bps_f64()).sum();
    Ok(fabric.nics_per_node() as f64 * rate)
}

fn front_end_rate(subject: &Subject) -> Figure {
    let scenario = &subject.loaded()?.scenario;
    let front_end = &scenario.cluster.front_end;
    let nic = scenario.catalogue.nic.get(&front_end.nic);
    let of_catalogue = nic.map(|nic| nic.rate_gbps.value * 1e9);
    let rate = front_end.rate.map(units::Rate::as_bps_f64).or(of_catalogue);
    Ok(f64::from(front_end.nics) * rate.ok_or("no front-end")?)
}

/// Bits per second between NICs, over a whole step.
fn mean_rate(subject: &Subject) -> Figure {
    Ok(8.0 * subject.wire()?.bytes_per_step / subject.step()?.step_s)
}

fn burst_length(subject: &Subject) -> Figure {
    let wire = subject.wire()?;
    let series = &wire.burst.series;
    let mean = series.iter().map(|(_, rate)| rate).sum::<f64>() / series.len().max(1) as f64;
    let above = series.iter().filter(|(_, rate)| mean < *rate).count() as f64;
    let seconds = wire.step_s * above / series.len().max(1) as f64;
    Ok(seconds / wire.burst.bursts.max(1) as f64)
}

fn cross_zone_saving(subject: &Subject, against: &str) -> Figure {
    let placements = &subject.wire()?.placements;
    let random = placements.iter().find(|row| row.placement == against);
    match (placements.first(), random) {
        (Some(own), Some(random)) if 0.0 < random.cross_zone_bytes => {
            Ok(1.0 - own.cross_zone_bytes / random.cross_zone_bytes)
        }
        _ => Err("nothing crosses zones".to_owned()),
    }
}

/// Part of a step over its largest part besides computation.
fn part(report: &run_job::Report, seconds: f64) -> f64 {
    let named = report.breakdown_s.named();
    let others = named.iter().filter(|(name, _)| *name != "compute");
    seconds / others.map(|(_, seconds)| *seconds).fold(f64::MIN_POSITIVE, f64::max)
}

/// A cause over the largest besides computation.
fn cause(report: &run_job::Report, seconds: f64) -> f64 {
    seconds / report.causes_s.leads().1.max(f64::MIN_POSITIVE)
}

/// Lines that all devices of a network must be told.
fn configured_lines(subject: &Subject) -> Figure {
    let asked = operations::Operations::of(subject.loaded()?, subject.summary()?);
    Ok(asked.map_err(|failure| failure.to_string())?.lines as f64)
}

/// How long the phases take undisturbed, over how long they take on the fabric.
fn efficiency(report: &run_job::Report) -> f64 {
    let phases = report.phases.iter().filter(|phase| phase.on_fabric);
    let (alone, slowest) =
        phases.fold((0.0, 0.0), |(a, b), phase| (a + phase.alone_s, b + phase.slowest_s));
    if slowest > 0.0 { alone / slowest } else { 1.0 }
}

/// MFU with delays of 100 us, so many per rank and second, over MFU without.
fn jittered(subject: &Subject, per_rank_per_s: f64) -> Figure {
    let calm = subject.with(&["jitter.events.per_rank_per_s=0.0".to_owned()]);
    let hit = subject.with(&[
        format!("jitter.events.per_rank_per_s={per_rank_per_s:.9}"),
        "jitter.events.length=100us".to_owned(),
    ]);
    Ok(hit.step()?.mfu / calm.step()?.mfu)
}
