//! Steps as PyTorch's profiler would have recorded them: a file for one rank of each server.
//!
//! Every operation of the timeline is a kernel of each kind that computes and, behind them, kernels
//! of the collectives that nothing hides; what copies exchange beside computation, and the part of
//! tensor-parallel exchanges that a pass hides, are on streams of their own. How fast a server
//! computes is drawn anew for each step, as `jitter` says, and who is early waits for the slowest
//! in its next collective.
//!
//! Where it departs from such files: an operation is one kernel of each kind, collectives do not
//! say their sizes, and only tensor-parallel ones say their group. An exchange that hides is at
//! most as long as what hides it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use job::GroupKind;
use job::compute::KernelKind;
use job::program::Program;
use job::schedule::Pass;
use scenario::Loaded;
use serde_json::{Value, json};
use step::breakdown::Breakdown;
use step::costs::shares_by_kind;
use step::jitter::Jitter;
use step::predict::Prediction;
use step::timeline::{Share, Stream, Timeline, Work};
use units::{Random, Time};

use super::save;
use crate::failure::Failure;
use crate::world::JobWorld;

/// Servers beyond these have no file.
const MOST_SERVERS: usize = 256;
/// A timeline that is shorter than its step has fewer rounds than it.
const WHOLE: f64 = 0.999;

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Where the files go.
    pub folder: PathBuf,
    /// How many steps each has.
    pub steps: u32,
    /// How much exchanges vary from step to step: the deviation of their logarithm.
    pub noise: f64,
}

/// One operation of the rank's computation stream, in microseconds.
struct Operation {
    start: f64,
    end: f64,
    work: Work,
    compute: f64,
    /// The share of each kind of kernel in that.
    kinds: [f64; 3],
    /// Collectives that nothing hides, and how long each.
    exposed: Vec<(Share, f64)>,
    /// Tensor-parallel collectives that run beside it.
    hidden: f64,
}

/// What a rank does in a step.
struct Lanes {
    compute: Vec<Operation>,
    /// Collectives beside it: from, to.
    beside: Vec<(f64, f64)>,
}

/// The draws of one step.
struct Draw {
    /// How much longer this server's kernels take.
    own: f64,
    /// And the slowest server's.
    slowest: f64,
    /// How much longer exchanges take.
    exchange: f64,
    /// And those that computation hides.
    hidden: f64,
}

/// What of operations no timeline says: kinds of kernels, and what a pass hides.
struct Inside<'a> {
    world: &'a JobWorld<'a>,
    loaded: &'a Loaded,
    program: Program,
    known: BTreeMap<(u64, Work), [f64; 3]>,
}

impl Inside<'_> {
    /// The share of each kind of kernel in what a stage computes.
    fn kinds(&mut self, stage: u32, chunk: u32, work: Work) -> [f64; 3] {
        const ALL: [Pass; 3] = [Pass::Forward, Pass::Input, Pass::Weight];
        let passes = match work {
            Work::Forward => &ALL[..1],
            Work::Backward => &ALL[1..],
            Work::BackwardInputs => &ALL[1..2],
            Work::BackwardWeights => &ALL[2..],
            Work::ForwardBackward => &ALL[..],
            _ => return [0.0, 0.0, 1.0],
        };
        let parts = self.program.pipeline().parts_of(stage.into());
        let Some(part) = parts.get(chunk as usize) else { return [0.0, 0.0, 1.0] };
        let speeds = (&self.world.rates, &self.loaded.scenario.software);
        let shares = || {
            let place = usize::try_from(*part).unwrap_or(usize::MAX);
            let part = self.program.parts.get(place);
            part.map(|part| shares_by_kind(&self.program, part, passes, speeds))
        };
        let own = self.known.get(&(*part, work)).copied().or_else(shares);
        let own = own.unwrap_or([0.0, 0.0, 1.0]);
        self.known.insert((*part, work), own);
        own
    }

    /// What runs beside computation of an exchange of which so much is exposed.
    fn hidden(&self, exposed: f64) -> f64 {
        let share = self.loaded.scenario.software.exposed_tensor(self.world.job);
        if share > 0.0 { exposed * (1.0 - share) / share } else { 0.0 }
    }
}

fn us(at: Time) -> f64 {
    at.as_ps() as f64 / 1e6
}

/// Kernels' names as cuBLAS, FlashAttention and PyTorch have them.
fn computing(kind: KernelKind, work: Work) -> &'static str {
    match (kind, work) {
        (KernelKind::Product, _) => "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
        (KernelKind::Attention, Work::Forward) => "flash_fwd_kernel",
        (KernelKind::Attention, _) => "flash_bwd_kernel",
        (KernelKind::Memory, Work::Optimizer) => "multi_tensor_apply_kernel",
        (KernelKind::Memory, _) => "vectorized_elementwise_kernel",
    }
}

/// Kernels' names as the library has them.
fn kernel(share: Share) -> &'static str {
    match share {
        Share::Tp | Share::Dp => "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        _ => "ncclDevKernel_SendRecv",
    }
}

impl Lanes {
    fn of(line: &Timeline, stage: u32, inside: &mut Inside<'_>) -> Self {
        let graph = line.graph();
        let mut lanes = Self { compute: Vec::new(), beside: Vec::new() };
        for op in graph.ops().ids() {
            let (own, lane) = (graph.ops()[op], graph.lanes()[graph.ops()[op].lane]);
            let (start, end) = (us(line.start(op)), us(line.end(op)));
            match lane.stream {
                _ if lane.stage != stage => {}
                Stream::Communication => lanes.beside.push((start, end)),
                Stream::Compute => {
                    let of = |share: Share| 1e6 * own.parts.get(share).as_secs_f64();
                    let exchanges = Share::ALL.into_iter().filter(|s| s.is_communication());
                    let exposed = exchanges.map(|share| (share, of(share)));
                    let compute = of(Share::Compute) + of(Share::Optimizer);
                    lanes.compute.push(Operation {
                        start,
                        end,
                        work: own.work,
                        compute,
                        kinds: inside.kinds(stage, own.chunk, own.work),
                        exposed: exposed.filter(|(_, us)| 0.0 < *us).collect(),
                        hidden: inside.hidden(of(Share::Tp)),
                    });
                }
            }
        }
        lanes.compute.sort_by(|a, b| a.start.total_cmp(&b.start));
        lanes
    }

    /// Writes a step that begins at `from`, with what tensor-parallel exchanges say of their group;
    /// when it ends.
    fn write(
        &self,
        from: f64,
        (draw, group): (&Draw, &Value),
        out: &mut impl Write,
    ) -> io::Result<f64> {
        let mut places = vec![(0.0, from)];
        let (mut at, mut before) = (from, 0.0);
        for operation in &self.compute {
            at += operation.start - before;
            places.push((operation.start, at));
            let own = operation.compute * draw.own;
            let mut begin = at;
            for (kind, share) in KernelKind::ALL.into_iter().zip(operation.kinds) {
                if 0.0 < share * own {
                    event(out, "kernel", 7, computing(kind, operation.work), begin, share * own)?;
                    begin += share * own;
                }
            }
            let hidden = (operation.hidden * draw.hidden).min(own);
            if 0.0 < hidden {
                collective(out, 28, Share::Tp, (at, hidden), group)?;
            }
            let exchanges: f64 = operation.exposed.iter().map(|(_, us)| us * draw.exchange).sum();
            let planned: f64 = operation.exposed.iter().map(|(_, us)| us).sum();
            let rest = operation.end - operation.start - operation.compute - planned;
            begin = at + own;
            let mut waits = operation.compute * (draw.slowest - draw.own);
            for (share, length) in &operation.exposed {
                let length = length * draw.exchange + std::mem::take(&mut waits);
                collective(out, 20, *share, (begin, length), group)?;
                begin += length;
            }
            at += operation.compute * draw.slowest + exchanges + rest;
            before = operation.end;
            places.push((before, at));
        }
        let moved = |old: f64| {
            let next = places.partition_point(|place| place.0 < old).clamp(1, places.len() - 1);
            let ((x, y), (end, to)) = (places[next - 1], places[next]);
            if x < end { y + (old - x) / (end - x) * (to - y) } else { y + old - x }
        };
        let mut last = at;
        for (start, end) in &self.beside {
            let (start, end) = (moved(*start), moved(*end));
            event(out, "kernel", 24, kernel(Share::Dp), start, end - start)?;
            last = last.max(end);
        }
        Ok(last)
    }
}

/// A collective from a time on for so long; of a tensor-parallel one also its group.
fn collective(
    out: &mut impl Write,
    stream: u32,
    share: Share,
    (at, length): (f64, f64),
    group: &Value,
) -> io::Result<()> {
    let args = if share == Share::Tp { group.clone() } else { json!({}) };
    let event = json!({
        "ph": "X", "cat": "kernel", "name": kernel(share), "pid": 0, "tid": stream,
        "ts": (1e3 * at).round() / 1e3, "dur": (1e3 * length).round() / 1e3, "args": args,
    });
    write!(out, ",\n{event}")
}

fn event(
    out: &mut impl Write,
    category: &str,
    stream: u32,
    name: &str,
    at: f64,
    length: f64,
) -> io::Result<()> {
    let event = json!({
        "ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream,
        "ts": (1e3 * at).round() / 1e3, "dur": (1e3 * length).round() / 1e3,
    });
    write!(out, ",\n{event}")
}

/// What computation and exposed communication of a step come to, in seconds.
pub fn parts_of(breakdown: &Breakdown) -> (f64, f64) {
    let of = |share| breakdown.get(share).as_secs_f64();
    let compute = of(Share::Compute) + of(Share::Optimizer);
    (compute, breakdown.communication().as_secs_f64())
}

/// The first rank on each server, by server.
pub fn ranks_by_server(world: &JobWorld<'_>) -> Vec<u64> {
    let each = world.fabric().gpus_per_node().max(1) as u64;
    let mut found = BTreeMap::new();
    for rank in 0..world.job.layout.gpus() {
        found.entry(world.placement.gpu(rank) / each).or_insert(rank);
    }
    found.into_values().collect()
}

/// Writes the files.
pub fn write(
    world: &JobWorld<'_>,
    prediction: &Prediction,
    loaded: &Loaded,
    wanted: &Wanted,
) -> Result<(), Failure> {
    let (jitter, seed) = (&loaded.scenario.jitter, loaded.scenario.seed);
    let other = prediction.breakdown.get(Share::Other);
    let whole = prediction.breakdown.total().saturating_sub(other).as_secs_f64();
    if prediction.line.length().as_secs_f64() < WHOLE * whole {
        let reason = "--profile: this step has so many rounds that not all of them are drawn";
        return Err(Failure::Run(reason.to_owned()));
    }
    let ranks = ranks_by_server(world);
    std::fs::create_dir_all(&wanted.folder).map_err(|error| {
        Failure::Run(format!("cannot make {}: {error}", wanted.folder.display()))
    })?;
    let (program, known) = (Program::new(world.job), BTreeMap::new());
    let mut inside = Inside { world, loaded, program, known };
    for (server, rank) in ranks.iter().enumerate().take(MOST_SERVERS) {
        let group = world.job.layout.group_of(GroupKind::Tensor, *rank);
        let members: Vec<u64> = group.map_or(vec![*rank], |group| group.members().collect());
        let group = json!({
            "Process Group Name": format!("tp{}", members[0]), "Group size": members.len(),
            "Process Group Ranks": format!("{members:?}"),
            "Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP",
        });
        let stage = u32::try_from(world.job.layout.coordinates(*rank).pp).unwrap_or(u32::MAX);
        let lanes = Lanes::of(&prediction.line, stage, &mut inside);
        let path = wanted.folder.join(format!("rank-{rank}.json"));
        save(&path, |mut out| {
            let about = json!({"rank": rank, "world_size": world.job.layout.gpus()});
            writeln!(out, "{{\"schemaVersion\": 1, \"distributedInfo\": {about},")?;
            let title = json!({"ph": "M", "name": "process_name", "pid": 0, "ts": 0,
                "args": {"name": "python"}});
            write!(out, "\"traceEvents\": [\n{title}")?;
            let mut at = 0.0;
            for step in 0..wanted.steps {
                let draw = draw((jitter, seed), step, server, ranks.len(), wanted.noise);
                let end = lanes.write(at, (&draw, &group), &mut out)?;
                let name = format!("ProfilerStep#{step}");
                event(&mut out, "user_annotation", 1, &name, at, end - at)?;
                at = end;
            }
            out.write_all(b"\n]}\n")
        })?;
    }
    Ok(())
}

/// A server's slowdown lies beyond the mean of all, which is in the kernels themselves.
fn draw(
    (jitter, seed): (&Jitter, u64),
    step: u32,
    server: usize,
    servers: usize,
    noise: f64,
) -> Draw {
    let mut random = Random::new(seed, "profile", u64::from(step));
    let exchange = (noise * random.normal()).exp();
    let mean = if 1 < servers { jitter.mean } else { 0.0 };
    let mut one = || 1.0 - mean * (1.0 - random.unit()).max(f64::MIN_POSITIVE).ln() - mean;
    let all: Vec<f64> = (0..servers).map(|_| one()).collect();
    let hidden = (noise * Random::new(seed, "profile, hidden", u64::from(step)).normal()).exp();
    let slowest = all.iter().copied().fold(0.0, f64::max);
    Draw { own: all[server], slowest, exchange, hidden }
}
