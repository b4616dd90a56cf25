//! Measures that run something of their own on a scenario's fabric: collectives and packets.

use fabric::graph::LinkKind;
use fabric::{Fabric, Link, LinkId, NodeKind};
use packetsim::MeasureConfig;
use scenario::Loaded;
use traffic::collective::{Collective, Communicator, Detail, Group, Limit, Wanted, lower};
use traffic::{Outcome, Transfers, nccl};
use units::{Bytes, Span, Time};

use super::subject::{Figure, Subject};
use crate::engine::{self, Engine};
use crate::packets::Patience;
use crate::work::{self, Work};
use crate::{collective, run_traffic, world};

/// The all-reduces that bandwidth is measured by: the largest that NCCL's own tests end with.
const ALL_REDUCE: Bytes = Bytes::from_mib(1024);

/// The GPUs of those: a third of an AI Zone.
const ALL_REDUCE_GPUS: usize = 1024;

/// Bus bandwidth of an all-reduce on the flow engine, in 10⁹ bytes per second.
pub(super) fn bus_bandwidth(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    let options = collective::Options {
        engine: Engine::Flow,
        patience: Patience::Usual,
        collective: Collective::AllReduce,
        sizes: collective::Sizes { min: ALL_REDUCE, max: ALL_REDUCE, factor: 2 },
        gpus: Some(ALL_REDUCE_GPUS.min(loaded.fabric().gpus())),
        iterations: 1,
    };
    let ran = collective::run(loaded, &options, &mut packetsim::Watch::default());
    let rows = ran.map_err(|failure| failure.to_string())?.rows;
    rows.first().map(|row| row.busbw_gbps).ok_or_else(|| "no size was run".to_owned())
}

/// The first so many GPUs run a collective on the flow engine, by the library's own choice or by
/// the algorithm that is named.
fn run_collective(
    loaded: &Loaded,
    gpus: usize,
    collective: Collective,
    algorithm: Option<&str>,
) -> Result<Outcome, String> {
    let fabric = loaded.fabric();
    let ranks: Vec<_> = (0..gpus.min(fabric.gpus())).map(|gpu| fabric.gpu(gpu)).collect();
    let mut settings = engine::library(loaded);
    if let Some(name) = algorithm {
        settings.algorithm = Some(name.to_owned());
        settings.sharp = nccl::Usage::Enabled;
    }
    let (settings, bytes) = (&settings, ALL_REDUCE);
    let weights = &[][..];
    let mut transfers = Transfers::new();
    let label = transfers.label(collective.name());
    let (detail, limit) = (Detail::Folded, Limit::NONE);
    let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
    let mut group = Group::new(Communicator::new(fabric, &ranks));
    let lowered = lower(fabric, &mut group, &wanted, &mut transfers, &[]);
    let plan = lowered.map_err(|reason| reason.to_string())?.plan;
    if algorithm.is_some_and(|name| plan.algorithm.name() != name) {
        return Err(format!("{} cannot run on this fabric", algorithm.unwrap_or_default()));
    }
    let ran = engine::run(loaded, Engine::Flow, &transfers, &mut packetsim::Watch::default());
    ran.map_err(|reason| reason.to_string())
}

/// Bytes on the links that are chosen.
fn bytes(fabric: &Fabric, outcome: &Outcome, chosen: impl Fn(&Fabric, Link) -> bool) -> f64 {
    let links = outcome.links.ids().filter(|link| chosen(fabric, fabric.links()[*link]));
    links.map(|link| outcome.links[link].bytes as f64).sum()
}

fn kind_of(fabric: &Fabric, link: Link) -> (LinkKind, NodeKind, NodeKind) {
    let node = |id| fabric.nodes()[id].kind;
    (fabric.classes()[link.class].kind, node(link.from), node(link.to))
}

/// From a NIC into the scale-out network.
fn leaves_a_nic(fabric: &Fabric, link: Link) -> bool {
    matches!(kind_of(fabric, link), (LinkKind::ScaleOut, NodeKind::Nic, _))
}

/// From the scale-out network into a NIC.
fn reaches_a_nic(fabric: &Fabric, link: Link) -> bool {
    matches!(kind_of(fabric, link), (LinkKind::ScaleOut, _, NodeKind::Nic))
}

/// From a GPU into the scale-up network.
fn leaves_a_gpu(fabric: &Fabric, link: Link) -> bool {
    matches!(kind_of(fabric, link), (LinkKind::ScaleUp, NodeKind::Gpu, _))
}

/// What NCCL's all-reduce keeps off the NICs beside a ring in which every neighbour is on another
/// server.
pub(super) fn hierarchy_saving(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    let gpus = ALL_REDUCE_GPUS.min(loaded.fabric().gpus());
    let outcome = run_collective(loaded, gpus, Collective::AllReduce, None)?;
    let flat = 2.0 * (gpus as f64 - 1.0) * ALL_REDUCE.as_f64();
    Ok(1.0 - bytes(loaded.fabric(), &outcome, leaves_a_nic) / flat)
}

/// What reaches the NICs of a ring's all-reduce over what reaches them where switches reduce.
pub(super) fn sharp_traffic(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    let reaching = |algorithm: &str| {
        let gpus = loaded.fabric().gpus();
        let outcome = run_collective(loaded, gpus, Collective::AllReduce, Some(algorithm))?;
        Ok::<f64, String>(bytes(loaded.fabric(), &outcome, reaches_a_nic))
    };
    Ok(reaching("ring")? / reaching("sharp")?)
}

/// What an all-gather of the same activations moves among eight GPUs over what among four.
pub(super) fn tensor_growth(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    let moved = |gpus: usize| {
        let outcome = run_collective(loaded, gpus, Collective::AllGather, Some("ring"))?;
        Ok::<f64, String>(bytes(loaded.fabric(), &outcome, leaves_a_gpu))
    };
    Ok(moved(8)? / moved(4)?)
}

/// What an all-reduce of all GPUs puts on NICs over what one of half of them does.
pub(super) fn all_reduce_growth(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    let moved = |gpus: usize| {
        let outcome = run_collective(loaded, gpus, Collective::AllReduce, Some("ring"))?;
        Ok::<f64, String>(bytes(loaded.fabric(), &outcome, leaves_a_nic))
    };
    let gpus = loaded.fabric().gpus();
    Ok(moved(gpus)? / moved(gpus / 2)?)
}

/// The scenario's synthetic traffic on the packet engine.
pub(super) fn packets(subject: &Subject) -> Result<(run_traffic::Report, Work, Outcome), String> {
    let options = run_traffic::Options { engine: Engine::Packet, ..Default::default() };
    let ran = run_traffic::run(subject.loaded()?, &options, &mut packetsim::Watch::default());
    ran.map_err(|failure| failure.to_string())
}

/// The smallest buffer of all of a switch's ports together, in powers of two, with which an incast
/// loses nothing and takes at most a twentieth longer than with what the switch has.
pub(super) fn smallest_buffer(subject: &Subject) -> Figure {
    let (reference, _, _) = packets(subject)?;
    for power in 0..12 {
        let size = Bytes::from_mib(1 << power);
        let small = subject.with(&[format!("network.buffer_of_tier.leaf.size={}B", size.get())]);
        let (report, _, _) = packets(&small)?;
        if report.drops == 0 && report.makespan_s <= reference.makespan_s.map(|most| 1.05 * most) {
            return Ok(size.as_f64());
        }
    }
    Err("no buffer that was tried is enough".to_owned())
}

/// The deepest queue in front of an optical circuit, and drops would be an error.
pub(super) fn circuit_queue(subject: &Subject) -> Figure {
    let (report, _, outcome) = packets(subject)?;
    if 0 < report.drops {
        return Err(format!("{} packets were dropped", report.drops));
    }
    let fabric = subject.loaded()?.fabric();
    let circuit = |link: &LinkId| fabric.class(*link).name.contains("circuit");
    let queues: Vec<Bytes> = outcome
        .links
        .ids()
        .filter(circuit)
        .filter(|link| 0 < outcome.links[*link].bytes)
        .map(|link| outcome.links[link].peak_queue)
        .collect();
    queues.iter().max().map(|queue| queue.as_f64()).ok_or_else(|| "no circuit was used".to_owned())
}

/// Packets that an incast lost.
pub(super) fn drops(subject: &Subject) -> Figure {
    Ok(packets(subject)?.0.drops as f64)
}

/// From the beginning of an incast until the first sender is paused.
pub(super) fn first_pause(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    let fabric = loaded.fabric();
    let work = work::work(loaded, Engine::Packet, Patience::Usual);
    let work = work.map_err(|failure| failure.to_string())?;
    let nics = fabric.links().ids().filter(|link| leaves_a_nic(fabric, fabric.links()[*link]));
    // Fine enough for microseconds, and enough of them for the whole run.
    let measure = MeasureConfig {
        interval: Span::from_ns(250),
        samples: 100_000,
        links: nics.collect(),
        ..MeasureConfig::default()
    };
    let (settings, mut watch) = (loaded.settings(), packetsim::Watch::default());
    let faults = &loaded.faults;
    let ran =
        packetsim::run_measured(fabric, &work.transfers, &settings, faults, &measure, &mut watch);
    let (_, recording) = ran.map_err(|refusal| refusal.to_string())?;
    let paused = |at: &usize| {
        let mut links = recording.links.iter();
        links.any(|(_, lane)| lane.samples.get(*at).is_some_and(|s| Span::ZERO < s.paused))
    };
    let first = (0..recording.at.len()).find(paused).ok_or("nobody was paused")?;
    Ok(recording.at[first].since(Time::ZERO).as_secs_f64())
}

/// From posting the scenario's first message until its last byte is at the receiver.
pub(super) fn message(subject: &Subject) -> Figure {
    let (_, work, outcome) = packets(subject)?;
    let end = work.ends.first().and_then(|end| outcome.ops[*end]);
    let times = end.ok_or("the message never arrived")?;
    Ok(times.received.as_secs_f64() - work.flows[0].start.as_secs_f64())
}

/// How long 64 bytes take between two servers of one leaf.
pub(super) fn same_leaf(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    let fabric = loaded.fabric();
    let leaf = |server: usize| world::leaf_of(fabric, fabric.nic(server * fabric.nics_per_node()));
    let near = (1..fabric.servers()).find(|server| leaf(*server) == leaf(0));
    let near = near.ok_or("no other server is on the first one's leaf")?;
    latency(loaded, near)
}

/// How long 64 bytes take between the first server and the last.
pub(super) fn cross_leaf(subject: &Subject) -> Figure {
    let loaded = subject.loaded()?;
    latency(loaded, loaded.fabric().servers() - 1)
}

fn latency(loaded: &Loaded, to: usize) -> Figure {
    let span = world::message_latency(loaded, 0, to).ok_or("nothing joins the two servers")?;
    Ok(span.as_secs_f64())
}
