//! A step over time: what ranks do, what their NICs carry, what the busiest links carry.
//!
//! Ranks are the representative ones of the step's timeline. What a NIC or a link carries of each
//! kind of communication comes from the phases that the engine ran; when it carries it, from the
//! windows of [`occupancy`](crate::occupancy): those of its own stage for a NIC, those of all
//! stages alike for a link between switches.

use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId};
use job::parallel::Coordinates;
use job::{Axis, Program};
use report::chart::distinct;
use report::number::bits_per_second;
use report::{Chart, ChartKind, Frame, Unit};
use serde_json::Value;
use step::predict::Prediction;
use step::timeline::{Lane, StepOpId, Stream, Timeline};
use units::Id;

use crate::Drawing;
use crate::links::{Pictures, busiest_of_each};
use crate::occupancy::{Habits, lay, windows};
use crate::world::JobWorld;

/// Operations that a timeline shows at most.
const MOST_OPERATIONS: usize = 6_000;
/// Stages whose NICs are shown at most.
const MOST_NICS: usize = 8;
/// Links that are shown at most.
const MOST_LINKS: usize = 16;
/// Links that have a lane of their own.
const LINK_LANES: usize = 8;
/// Steps of the clock.
const BINS: usize = 200;
/// Below this share of a lane's highest load it counts as idle.
const IDLE: f64 = 0.005;

/// What a timeline does not show one by one.
const AFTER: &str = "jitter, stragglers, repeated rounds, the loop";

/// A step over time, ready to be drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    operations: Frame,
    skipped: u32,
    carried: Frame,
    over_time: Frame,
    /// What the links did, if an engine ran them.
    pub(super) pictures: Option<Pictures>,
}

impl Lanes {
    pub(super) fn of(world: &JobWorld<'_>, prediction: &Prediction, drawing: Drawing) -> Self {
        if drawing == Drawing::Omitted {
            return Self::default();
        }
        let line = &prediction.line;
        let stages = shown_stages(line, world.job.layout.pp as u32);
        let skipped = world.job.layout.pp as u32 - stages.len() as u32;
        // Only a page draws timelines.
        let on_page = |frame: &dyn Fn() -> Frame| match drawing {
            Drawing::OnPage => frame(),
            _ => Frame::default(),
        };
        let step = prediction.breakdown.total().as_secs_f64();
        let operations = on_page(&|| operations(world, line, &stages, step));
        let Some(loads) = Loads::of(world, prediction) else {
            return Self { operations, skipped, ..Self::default() };
        };
        let load = |link| loads.over_step(link);
        let worst = |most: usize| busiest_of_each(world.fabric(), &load, most);
        Self {
            operations,
            skipped,
            carried: on_page(&|| carried(world, &loads, &stages, &worst(LINK_LANES))),
            over_time: over_time(&loads, &worst(MOST_LINKS)),
            pictures: Some(Pictures::of(world.fabric(), &load)),
        }
    }

    /// Draws faults as a lane of their own: what, from, until.
    pub(super) fn add_faults(&mut self, faults: &[(String, f64, f64)]) {
        if self.operations.rows.is_empty() {
            return;
        }
        for (what, from, until) in faults {
            let (name, work) = (what.as_str().into(), "fault".into());
            let row = vec!["faults".into(), seconds(*from), seconds(*until), name, work];
            self.operations.push(row);
        }
    }

    /// What every rank does.
    pub(super) fn ranks(&self) -> Chart {
        let left = match self.skipped {
            0 => String::new(),
            count => format!(" {count} stages between those shown are left out."),
        };
        Chart::new(
            ChartKind::Timeline,
            "What each rank does over the step",
            self.operations.clone(),
        )
        .caption(format!(
            "One rank stands for its pipeline stage: first its computation and the messages \
                 that it waits for, below it what its network stream does meanwhile. A gap is \
                 waiting: for another stage's computation it counts as bubble, for another \
                 stage's communication as that. The last bar is what slows the whole step and \
                 no operation shows.{left}"
        ))
        .axes("start_s", "lane")
        .spans("start_s", "end_s")
        .by("work")
        .named_by("name")
        .labels("time", "")
        .units(Unit::Seconds, Unit::Number)
    }

    /// What NICs and links carry, if an engine ran them.
    pub(super) fn network(&self) -> Option<Chart> {
        (!self.carried.rows.is_empty()).then(|| {
            Chart::new(
                ChartKind::Timeline,
                "What NICs and the busiest links carry over the step",
                self.carried.clone(),
            )
            .caption(
                "Coloured by the kind of communication that takes most of a moment; the rate is \
                 in the label. The bytes are those of the engine's run, spread over the time in \
                 which a stage may exchange them, and moved ahead where a link is full.",
            )
            .axes("start_s", "lane")
            .spans("start_s", "end_s")
            .by("traffic")
            .named_by("name")
            .labels("time", "")
            .units(Unit::Seconds, Unit::Number)
        })
    }

    /// The busiest links over time, if an engine ran them.
    pub(super) fn heat(&self) -> Option<Chart> {
        (!self.over_time.rows.is_empty()).then(|| {
            Chart::new(
                ChartKind::Heat,
                "Load of the busiest links over the step",
                self.over_time.clone(),
            )
            .caption(
                "A row is a link, a column a two-hundredth of the step; the busiest links of each \
                 tier, from the NICs up.",
            )
            .axes("time_s", "link")
            .coloured_by("load")
            .labels("time", "")
            .units(Unit::Seconds, Unit::Number)
            .legend("load", Unit::Share)
        })
    }
}

/// As many stages, evenly, as have operations that a chart can show.
fn shown_stages(line: &Timeline, stages: u32) -> Vec<u32> {
    let each = line.graph().ops().len().div_ceil(stages.max(1) as usize).max(1);
    let room = (MOST_OPERATIONS / each).clamp(1, stages.max(1) as usize) as u32;
    (0..room).map(|at| if room == 1 { 0 } else { at * (stages - 1) / (room - 1) }).collect()
}

/// The rank that stands for a stage, and its NIC.
fn rank_of(world: &JobWorld<'_>, stage: u32) -> (u64, usize) {
    let at = Coordinates { tp: 0, cp: 0, pp: u64::from(stage), dp: 0 };
    let rank = world.job.layout.rank(at);
    let fabric = world.fabric();
    let gpu = fabric.gpu(usize::try_from(world.placement.gpu(rank)).expect("GPUs fit memory"));
    (rank, fabric.nic_number(fabric.nic_of(gpu)).expect("a GPU's NIC is a NIC"))
}

fn operations(world: &JobWorld<'_>, line: &Timeline, stages: &[u32], step_s: f64) -> Frame {
    let graph = line.graph();
    let mut frame = Frame::new(&["lane", "start_s", "end_s", "name", "work"]);
    let lane_of = |op: StepOpId| graph.lanes()[graph.ops()[op].lane];
    let shown =
        |op: &StepOpId| stages.contains(&lane_of(*op).stage) && line.start(*op) < line.end(*op);
    let mut ops: Vec<StepOpId> = graph.ops().ids().filter(shown).collect();
    ops.sort_by_key(|op| (lane_of(*op).stage, lane_of(*op).stream == Stream::Communication));
    let name = |lane: &Lane| {
        let stream = match lane.stream {
            Stream::Compute => "",
            Stream::Communication => ", network",
        };
        format!("stage {}, rank {}{stream}", lane.stage, rank_of(world, lane.stage).0)
    };
    let names: Vec<String> = graph.lanes().iter().map(name).collect();
    for op in ops {
        let step = graph.ops()[op];
        let words = step.work.words();
        frame.push(vec![
            names[step.lane.index()].as_str().into(),
            seconds(line.start(op).as_secs_f64()),
            seconds(line.end(op).as_secs_f64()),
            format!("{words}, microbatch {}, part {}", step.micro, step.chunk).into(),
            words.into(),
        ]);
    }
    // The step ends where the last bar does.
    let end = line.length().as_secs_f64();
    for (lane, name) in graph.lanes().iter().zip(&names) {
        let is_shown = stages.contains(&lane.stage) && lane.stream == Stream::Compute;
        if is_shown && end < step_s {
            let (from, to) = (seconds(end), seconds(step_s));
            let name = name.as_str().into();
            frame.push(vec![name, from, to, AFTER.into(), AFTER.into()]);
        }
    }
    frame
}

/// Tenths of a microsecond are finer than any screen.
fn seconds(value: f64) -> Value {
    ((value * 1e7).round() / 1e7).into()
}

/// What links carry, by axis, and when.
struct Loads<'a> {
    fabric: &'a Fabric,
    /// Bytes of the step, by axis and link.
    bytes: [Vec<f64>; 5],
    /// The share of an axis's bytes in each bin, by stage and axis.
    shares: Vec<[Vec<f64>; 5]>,
    /// The timeline, which ends before jitter and the loop around the step.
    length_s: f64,
    /// The whole step.
    step_s: f64,
}

impl<'a> Loads<'a> {
    /// Nothing if no engine ran them.
    fn of(world: &'a JobWorld<'a>, prediction: &Prediction) -> Option<Self> {
        let fabric = world.fabric();
        let mut bytes: [Vec<f64>; 5] = Default::default();
        for phase in prediction.phases.iter().filter(|phase| !phase.links.is_empty()) {
            let times = prediction.repeats.get(&phase.exchange.key()).copied().unwrap_or(1.0);
            let of_axis = &mut bytes[phase.exchange.kind.axis() as usize];
            of_axis.resize(fabric.links().len(), 0.0);
            for (link, used) in phase.links.enumerate() {
                of_axis[link.index()] += used.bytes as f64 * times;
            }
        }
        if bytes.iter().all(Vec::is_empty) {
            return None;
        }
        let habits = Habits::of(&Program::new(world.job), prediction);
        let length = prediction.line.length().as_secs_f64();
        let stage = |stage: u32| {
            let windows = windows(&prediction.line, stage, habits);
            Axis::ALL.map(|axis| {
                let mut bins = vec![0.0; BINS];
                for (spans, share) in windows.of(axis) {
                    lay(spans, share, length, &mut bins);
                }
                bins
            })
        };
        let shares = (0..world.job.layout.pp as u32).map(stage).collect();
        let step_s = prediction.breakdown.total().as_secs_f64();
        Some(Self { fabric, bytes, shares, length_s: length, step_s })
    }

    fn bytes(&self, axis: Axis, link: LinkId) -> f64 {
        self.bytes[axis as usize].get(link.index()).copied().unwrap_or(0.0)
    }

    fn over_step(&self, link: LinkId) -> f64 {
        let bytes: f64 = Axis::ALL.iter().map(|axis| self.bytes(*axis, link)).sum();
        bytes / (self.fabric.class(link).rate.bytes_per_s() * self.step_s)
    }

    /// Load of a link by bin and axis; of one stage's traffic, or of all stages alike.
    fn by_axis(&self, link: LinkId, stage: Option<u32>) -> Vec<[f64; 5]> {
        let mut loads: Vec<[f64; 5]> = (0..BINS).map(|bin| self.at(link, bin, stage)).collect();
        settle(&mut loads);
        loads
    }

    fn at(&self, link: LinkId, bin: usize, stage: Option<u32>) -> [f64; 5] {
        let capacity = self.fabric.class(link).rate.bytes_per_s() * self.length_s / BINS as f64;
        let share = |axis: Axis| match stage {
            Some(stage) => self.shares[stage as usize][axis as usize][bin],
            None => {
                let all = self.shares.iter().map(|stage| stage[axis as usize][bin]);
                all.sum::<f64>() / self.shares.len() as f64
            }
        };
        Axis::ALL.map(|axis| {
            let bytes = self.bytes(axis, link);
            if bytes > 0.0 { bytes * share(axis) / capacity } else { 0.0 }
        })
    }

    /// Adds a lane: stretches in which the same kind of traffic takes most of the link.
    fn lane(&self, name: &str, link: LinkId, stage: Option<u32>, frame: &mut Frame) {
        let loads = self.by_axis(link, stage);
        let sum = |load: &[f64; 5]| load.iter().sum::<f64>();
        let kinds = kinds(&loads);
        let mut at = 0;
        while at < BINS {
            let now = kinds[at];
            let same = kinds[at..].iter().take_while(|kind| **kind == now).count();
            if let Some(axis) = now {
                let mean = loads[at..at + same].iter().map(sum).sum::<f64>() / same as f64;
                let rate = self.fabric.class(link).rate.bytes_per_s() * 8.0;
                let text = format!(
                    "{}, {} of {}",
                    axis_words(axis),
                    bits_per_second(mean * rate),
                    bits_per_second(rate)
                );
                let time = |bin: usize| seconds(bin as f64 * self.length_s / BINS as f64);
                let (from, to) = (time(at), time(at + same));
                frame.push(vec![name.into(), from, to, text.into(), axis_words(axis).into()]);
            }
            at += same;
        }
    }
}

fn axis_words(axis: Axis) -> &'static str {
    match axis {
        Axis::Tp => "tensor parallel",
        Axis::Cp => "context parallel",
        Axis::Ep => "expert parallel",
        Axis::Pp => "pipeline messages",
        Axis::Dp => "data parallel",
    }
}

fn carried(world: &JobWorld<'_>, loads: &Loads<'_>, stages: &[u32], worst: &[LinkId]) -> Frame {
    let fabric = world.fabric();
    let mut frame = Frame::new(&["lane", "start_s", "end_s", "name", "traffic"]);
    for stage in stages.iter().step_by(stages.len().div_ceil(MOST_NICS)) {
        let (rank, nic) = rank_of(world, *stage);
        let mut ports = fabric.ports(fabric.nic(nic)).iter();
        let port = ports.find(|link| fabric.class(**link).kind == LinkKind::ScaleOut);
        if let Some(port) = port {
            loads.lane(&format!("NIC {nic} of rank {rank}"), *port, Some(*stage), &mut frame);
        }
    }
    for (name, link) in names(fabric, worst).iter().zip(worst) {
        loads.lane(name, *link, None, &mut frame);
    }
    frame
}

/// Load of the busiest links of each kind over the step, in equal steps of time.
pub(crate) fn busiest_over_time(
    world: &JobWorld<'_>,
    prediction: &Prediction,
    most: usize,
) -> Vec<(LinkId, Vec<f64>)> {
    let Some(loads) = Loads::of(world, prediction) else { return Vec::new() };
    let links = busiest_of_each(world.fabric(), &|link| loads.over_step(link), most);
    let over_time = |link: LinkId| {
        let by_axis = loads.by_axis(link, None);
        (link, by_axis.iter().map(|load| load.iter().sum()).collect())
    };
    links.into_iter().map(over_time).collect()
}

/// When any of these links carries something, from the beginning of the step, as finely as the step
/// over time is drawn.
pub(super) fn used(
    world: &JobWorld<'_>,
    prediction: &Prediction,
    links: &[LinkId],
) -> Vec<(f64, f64)> {
    let Some(loads) = Loads::of(world, prediction) else { return Vec::new() };
    let mut sums = vec![[0.0; 5]; BINS];
    for link in links {
        for (sum, load) in sums.iter_mut().zip(loads.by_axis(*link, None)) {
            (0..5).for_each(|axis| sum[axis] += load[axis]);
        }
    }
    let at = |bin: usize| bin as f64 * loads.length_s / BINS as f64;
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for (bin, _) in kinds(&sums).iter().enumerate().filter(|(_, kind)| kind.is_some()) {
        match spans.last_mut().filter(|last| last.1 == at(bin)) {
            Some(last) => last.1 = at(bin + 1),
            None => spans.push((at(bin), at(bin + 1))),
        }
    }
    spans
}

/// What takes most of a link in each bin, unless it is next to nothing.
fn kinds(loads: &[[f64; 5]]) -> Vec<Option<Axis>> {
    let sum = |load: &[f64; 5]| load.iter().sum::<f64>();
    let most = loads.iter().map(sum).fold(0.0, f64::max);
    let kind = |load: &[f64; 5]| {
        let axes = Axis::ALL.into_iter();
        let largest = axes.max_by(|a, b| load[*a as usize].total_cmp(&load[*b as usize]));
        largest.filter(|_| IDLE * most < sum(load))
    };
    loads.iter().map(kind).collect()
}

fn names(fabric: &Fabric, links: &[LinkId]) -> Vec<String> {
    distinct(links.iter().map(|link| fabric.link_name(*link)))
}

fn over_time(loads: &Loads<'_>, worst: &[LinkId]) -> Frame {
    let mut frame = Frame::new(&["time_s", "link", "load"]);
    for (name, link) in names(loads.fabric, worst).iter().zip(worst) {
        for (bin, by_axis) in loads.by_axis(*link, None).iter().enumerate() {
            let load: f64 = by_axis.iter().sum();
            let time = seconds(bin as f64 * loads.length_s / BINS as f64);
            frame.push(vec![time, name.as_str().into(), ((load * 1e4).round() / 1e4).into()]);
        }
    }
    frame
}

/// No link carries more than its rate: what does not fit a bin is moved before it, as traffic that
/// overlaps computation is; what does not fit there either, after it.
fn settle(loads: &mut [[f64; 5]]) {
    let mut over = [0.0; 5];
    for bin in loads.iter_mut().rev() {
        over = fit(bin, over);
    }
    for bin in loads.iter_mut() {
        over = fit(bin, over);
    }
}

/// Adds to a bin what another had too much of; what is too much for this one.
fn fit(bin: &mut [f64; 5], over: [f64; 5]) -> [f64; 5] {
    let wanted: [f64; 5] = std::array::from_fn(|axis| bin[axis] + over[axis]);
    let sum: f64 = wanted.iter().sum();
    let kept = if 1.0 < sum { 1.0 / sum } else { 1.0 };
    *bin = wanted.map(|load| load * kept);
    wanted.map(|load| load * (1.0 - kept))
}

#[cfg(test)]
mod tests {
    use super::settle;

    #[test]
    fn nothing_is_lost_and_no_link_is_overfull() {
        let mut loads = vec![[0.0; 5]; 6];
        loads[4] = [0.0, 0.0, 0.0, 0.5, 2.0];
        loads[0] = [1.5, 0.0, 0.0, 0.0, 0.0];
        settle(&mut loads);
        let sums: Vec<f64> = loads.iter().map(|bin| bin.iter().sum()).collect();
        assert!(sums.iter().all(|sum| *sum < 1.0 + 1e-9), "{sums:?}");
        assert!((sums.iter().sum::<f64>() - 4.0).abs() < 1e-9, "{sums:?}");
        assert!(sums[5] < 1e-9 && 0.4 < sums[2], "moved before: {sums:?}");
    }
}
