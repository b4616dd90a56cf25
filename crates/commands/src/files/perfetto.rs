//! A step, or synthetic traffic, as a trace for Perfetto's viewer.
//!
//! Of a step: a group of tracks for the representative rank of each pipeline stage, with its
//! computation, its communication beside it and its NIC; every operation of the timeline is a
//! slice. A message is an arrow from the pass that makes it over the NIC to the pass that waits for
//! it. Of synthetic traffic: every message is a slice at the NIC that sends it and one at the NIC
//! that gets it, with an arrow between them. In both, the busiest links are counters.
//!
//! Where it departs from the result: the timeline is the one before jitter, and of a very long
//! step it has fewer rounds ([`step::assemble`]). A link's load over a step is spread over the
//! windows in which its traffic may move; over synthetic traffic it is the mean.

use std::collections::BTreeMap;
use std::io::{self, Write};

use exports::perfetto::{Slice, Track, Writer};
use fabric::{Fabric, LinkId, NodeId};
use job::Coordinates;
use step::predict::Prediction;
use step::timeline::{LaneId, StepOpId, Stream, Timeline, Work};
use traffic::{OpKind, Outcome, Transfers};
use units::Time;

use super::Links;
use crate::failure::Failure;
use crate::run_job::busiest_over_time;
use crate::world::JobWorld;

/// Links that have a counter, the busiest.
const MOST_LINKS: usize = 64;

/// More messages than this are refused: no viewer opens them.
pub const MOST_MESSAGES: usize = 2_000_000;

fn ns(at: Time) -> u64 {
    at.as_ps() / 1_000
}

/// Writes a step.
pub fn write_step(
    world: &JobWorld<'_>,
    prediction: &Prediction,
    out: impl Write,
) -> io::Result<()> {
    let mut trace = Writer::new(out)?;
    let line = &prediction.line;
    let ranks = rank_tracks(world, line, &mut trace)?;
    let arrows = Arrows::of(line);
    let graph = line.graph();
    for op in graph.ops().ids() {
        let step = graph.ops()[op];
        let notes = [("microbatch", u64::from(step.micro)), ("part", u64::from(step.chunk))];
        let slice = Slice {
            name: step.work.words(),
            start_ns: ns(line.start(op)),
            end_ns: ns(line.end(op)),
            leaving: arrows.leaving.get(&op).map_or(&[], Vec::as_slice),
            arriving: arrows.arriving.get(&op).map_or(&[], Vec::as_slice),
            notes: &notes,
        };
        trace.slice(ranks.lanes[&step.lane], &slice)?;
    }
    let mut nics = Lanes::default();
    for message in &arrows.messages {
        let stage = graph.lanes()[graph.ops()[message.from].lane].stage;
        let name = match graph.ops()[message.from].work {
            Work::Forward => "activations",
            Work::ForwardBackward => "activations and gradients",
            _ => "gradients of activations",
        };
        let (nic, title) = &ranks.nics[stage as usize];
        let slice = Slice {
            name,
            start_ns: ns(message.start),
            end_ns: ns(message.end),
            leaving: &[message.flow + 1],
            arriving: &[message.flow],
            notes: &[],
        };
        nics.slice(&mut trace, *nic, title, &slice)?;
    }
    let loads = busiest_over_time(world, prediction, MOST_LINKS);
    link_counters(world.fabric(), &loads, line.length().as_secs_f64(), &mut trace)?;
    trace.finish()
}

/// The tracks of the representative ranks.
struct RankTracks {
    lanes: BTreeMap<LaneId, Track>,
    /// By stage: the rank's group, and what its NIC is called.
    nics: Vec<(Track, String)>,
}

fn rank_tracks<W: Write>(
    world: &JobWorld<'_>,
    line: &Timeline,
    trace: &mut Writer<W>,
) -> io::Result<RankTracks> {
    let (layout, fabric) = (&world.job.layout, world.fabric());
    let mut nics = Vec::new();
    for pp in 0..layout.pp {
        let rank = layout.rank(Coordinates { pp, ..Coordinates::default() });
        let gpu = usize::try_from(world.placement.gpu(rank)).expect("GPUs fit memory");
        let nic = fabric.name(fabric.nic_of(fabric.gpu(gpu)));
        let group = trace.group(&format!("rank {rank}: stage {pp}, GPU {gpu}"))?;
        nics.push((group, format!("{nic}: messages")));
    }
    let mut lanes = BTreeMap::new();
    for (id, lane) in line.graph().lanes().enumerate() {
        let name = match lane.stream {
            Stream::Compute => "computation",
            Stream::Communication => "weights and gradients",
        };
        lanes.insert(id, trace.track(nics[lane.stage as usize].0, name)?);
    }
    Ok(RankTracks { lanes, nics })
}

/// A message between two stages: from the end of a pass, as long as it is under way.
struct Message {
    from: StepOpId,
    start: Time,
    end: Time,
    /// The arrow to the NIC; the one from it is the next.
    flow: u64,
}

/// The messages of a step, and the arrows at each of its operations.
#[derive(Default)]
struct Arrows {
    messages: Vec<Message>,
    leaving: BTreeMap<StepOpId, Vec<u64>>,
    arriving: BTreeMap<StepOpId, Vec<u64>>,
}

impl Arrows {
    fn of(line: &Timeline) -> Self {
        let graph = line.graph();
        let stage = |op: StepOpId| graph.lanes()[graph.ops()[op].lane].stage;
        let mut arrows = Self::default();
        for op in graph.ops().ids() {
            for after in line.after(op).filter(|after| stage(after.op) != stage(op)) {
                if after.delay == units::Span::ZERO {
                    continue;
                }
                let start = line.end(after.op);
                let flow = 1 + 2 * arrows.messages.len() as u64;
                let end = start + after.delay;
                arrows.messages.push(Message { from: after.op, start, end, flow });
                arrows.leaving.entry(after.op).or_default().push(flow);
                arrows.arriving.entry(op).or_default().push(flow + 1);
            }
        }
        arrows.messages.sort_by_key(|message| (message.start, message.flow));
        arrows
    }
}

/// Tracks of groups on which slices may overlap: as many tracks as that takes.
#[derive(Default)]
struct Lanes {
    of: BTreeMap<(Track, String), Vec<Track>>,
}

impl Lanes {
    /// Puts a slice on the first track that is free. Slices come in the order of their starts.
    fn slice<W: Write>(
        &mut self,
        trace: &mut Writer<W>,
        group: Track,
        name: &str,
        slice: &Slice<'_>,
    ) -> io::Result<()> {
        let tracks = self.of.entry((group, name.to_owned())).or_default();
        let free = tracks.iter().find(|track| trace.free_at(**track) <= slice.start_ns);
        let track = match free {
            Some(track) => *track,
            None => {
                let number = tracks.len() + 1;
                let name = if number == 1 { name.to_owned() } else { format!("{name} ({number})") };
                let track = trace.track(group, &name)?;
                tracks.push(track);
                track
            }
        };
        trace.slice(track, slice)
    }
}

/// The loads of links over so many seconds, in equal steps of time.
fn link_counters<W: Write>(
    fabric: &Fabric,
    loads: &[(LinkId, Vec<f64>)],
    seconds: f64,
    trace: &mut Writer<W>,
) -> io::Result<()> {
    if loads.is_empty() {
        return Ok(());
    }
    let group = trace.group("busiest links")?;
    for (link, loads) in loads {
        let counter = trace.counter(group, &fabric.link_name(*link), "% of its rate")?;
        let at = |step: usize| (seconds * 1e9 * step as f64 / loads.len() as f64) as u64;
        for (step, load) in loads.iter().enumerate() {
            trace.count(counter, at(step), 100.0 * load)?;
        }
        trace.count(counter, at(loads.len()), 0.0)?;
    }
    Ok(())
}

/// Refuses what no viewer opens.
pub fn refuse_too_many(transfers: &Transfers) -> Result<(), Failure> {
    let messages: usize = transfers.ops().iter().map(|op| edges(transfers, &op.kind).len()).sum();
    if messages <= MOST_MESSAGES {
        return Ok(());
    }
    Err(Failure::Run(format!(
        "{messages} messages are more than the {MOST_MESSAGES} that a trace may have; \
         --flows-out FILE.parquet takes any number"
    )))
}

fn edges<'t>(transfers: &'t Transfers, kind: &'t OpKind) -> &'t [traffic::ConnectionId] {
    match kind {
        OpKind::Send { connection, .. } => std::slice::from_ref(connection),
        OpKind::Coupled { edges, .. } => transfers.coupled(edges),
        OpKind::Together { .. } | OpKind::Wait { .. } => &[],
    }
}

/// Writes what became of transfers.
pub fn write_run(
    links: &Links<'_>,
    transfers: &Transfers,
    outcome: &Outcome,
    out: impl Write,
) -> io::Result<()> {
    let mut trace = Writer::new(out)?;
    let mut ended: Vec<_> =
        outcome.ops.enumerate().filter_map(|(op, times)| Some((op, (*times)?))).collect();
    ended.sort_by_key(|(op, times)| (times.start, *op));
    let mut groups: BTreeMap<NodeId, Track> = BTreeMap::new();
    for (op, _) in &ended {
        for edge in edges(transfers, &transfers.ops()[*op].kind) {
            let connection = transfers.connections()[*edge];
            for node in [connection.from, connection.to] {
                groups.entry(node).or_insert(Track::NONE);
            }
        }
    }
    for (node, track) in &mut groups {
        *track = trace.group(&links.fabric.name(*node))?;
    }
    let mut lanes = Lanes::default();
    let mut flow = 0;
    for (op, times) in &ended {
        let op = &transfers.ops()[*op];
        let bytes = match op.kind {
            OpKind::Send { bytes, .. } | OpKind::Coupled { bytes, .. } => bytes.get(),
            OpKind::Together { .. } | OpKind::Wait { .. } => 0,
        };
        let label = transfers.label_text(op.label);
        for edge in edges(transfers, &op.kind) {
            let connection = transfers.connections()[*edge];
            let sends = format!("{label} to {}", links.fabric.name(connection.to));
            let gets = format!("{label} from {}", links.fabric.name(connection.from));
            flow += 1;
            let notes = [("bytes", bytes), ("channel", u64::from(connection.channel))];
            let (start_ns, leaving, arriving) = (ns(times.start), &[flow][..], &[][..]);
            let end_ns = ns(times.finish);
            let sent = Slice { name: &sends, start_ns, end_ns, leaving, arriving, notes: &notes };
            lanes.slice(&mut trace, groups[&connection.from], "sends", &sent)?;
            let end_ns = ns(times.received);
            let (leaving, arriving) = (arriving, leaving);
            let got = Slice { name: &gets, start_ns, end_ns, leaving, arriving, notes: &notes };
            lanes.slice(&mut trace, groups[&connection.to], "receives", &got)?;
        }
    }
    let mut busiest: Vec<LinkId> = links.scale_out().collect();
    busiest.retain(|link| 0.0 < links.of(*link).bytes);
    busiest.sort_by(|a, b| links.utilisation(*b).total_cmp(&links.utilisation(*a)).then(a.cmp(b)));
    busiest.truncate(MOST_LINKS);
    let loads: Vec<_> =
        busiest.iter().map(|link| (*link, vec![links.utilisation(*link)])).collect();
    link_counters(links.fabric, &loads, links.seconds, &mut trace)?;
    trace.finish()
}
