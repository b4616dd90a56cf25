//! Steps as PyTorch's profiler would have recorded them: a file for one rank of each server.
//!
//! Every operation of the timeline is a kernel that computes and, behind it, kernels of the
//! collectives that nothing hides; what copies exchange beside computation is on a stream of its
//! own. How fast a server computes is drawn anew for each step, as `jitter` says, and who is early
//! waits for the slowest in its next collective.
//!
//! Where it departs from such files: an operation is one kernel of each kind, tensor-parallel
//! exchanges that hide inside a pass are not there, and collectives do not say their sizes.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;
use step::breakdown::Breakdown;
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
    /// Collectives that nothing hides, and how long each.
    exposed: Vec<(&'static str, f64)>,
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
}

fn us(at: Time) -> f64 {
    at.as_ps() as f64 / 1e6
}

/// Kernels' names as the library has them.
fn kernel(share: Share) -> &'static str {
    match share {
        Share::Tp | Share::Dp => "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        _ => "ncclDevKernel_SendRecv",
    }
}

impl Lanes {
    fn of(line: &Timeline, stage: u32) -> Self {
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
                    let exposed = exchanges.map(|share| (kernel(share), of(share)));
                    lanes.compute.push(Operation {
                        start,
                        end,
                        work: own.work,
                        compute: of(Share::Compute) + of(Share::Optimizer),
                        exposed: exposed.filter(|(_, us)| 0.0 < *us).collect(),
                    });
                }
            }
        }
        lanes.compute.sort_by(|a, b| a.start.total_cmp(&b.start));
        lanes
    }

    /// Writes a step that begins at `from`; when it ends.
    fn write(&self, from: f64, draw: &Draw, out: &mut impl Write) -> io::Result<f64> {
        let mut places = vec![(0.0, from)];
        let (mut at, mut before) = (from, 0.0);
        for operation in &self.compute {
            at += operation.start - before;
            places.push((operation.start, at));
            let own = operation.compute * draw.own;
            let name = operation.work.words();
            event(out, "kernel", 7, name, at, own)?;
            let exchanges: f64 = operation.exposed.iter().map(|(_, us)| us * draw.exchange).sum();
            let planned: f64 = operation.exposed.iter().map(|(_, us)| us).sum();
            let rest = operation.end - operation.start - operation.compute - planned;
            let mut begin = at + own;
            let mut waits = operation.compute * (draw.slowest - draw.own);
            for (name, length) in &operation.exposed {
                let length = length * draw.exchange + std::mem::take(&mut waits);
                event(out, "kernel", 20, name, begin, length)?;
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
    let mut found = std::collections::BTreeMap::new();
    for rank in 0..world.job.layout.gpus() {
        found.entry(world.placement.gpu(rank) / each).or_insert(rank);
    }
    found.into_values().collect()
}

/// Writes the files.
pub fn write(
    world: &JobWorld<'_>,
    prediction: &Prediction,
    (jitter, seed): (&Jitter, u64),
    wanted: &Wanted,
) -> Result<(), Failure> {
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
    for (server, rank) in ranks.iter().enumerate().take(MOST_SERVERS) {
        let stage = u32::try_from(world.job.layout.coordinates(*rank).pp).unwrap_or(u32::MAX);
        let lanes = Lanes::of(&prediction.line, stage);
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
                let end = lanes.write(at, &draw, &mut out)?;
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
    Draw { own: all[server], slowest: all.iter().copied().fold(0.0, f64::max), exchange }
}
