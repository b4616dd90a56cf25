//! How long a schedule takes.
//!
//! Every stage runs its slots in order, each as soon as its data are there; the result is exact
//! in picoseconds. A long run is not walked through: once the rounds of all stages repeat with
//! one constant delay, that delay is multiplied.
//!
//! When that is allowed is checked, not believed. A slot's start is the latest of its
//! predecessors' ends, and predecessors lie at most `D` rounds before or behind it. If all slots
//! of rounds `k` and `k + c` differ by one constant over `2D + 1` consecutive `k`, then every
//! later equation is one of the equations already seen, moved by that constant, so the rounds
//! repeat for ever. The rounds looked at must not depend on the end of the run: each slot carries
//! the latest round among its ancestors, and a run whose rounds reach into its end is lengthened.
//! What never repeats is walked through to the end: slower, never wrong. (Unequal stages can take
//! thousands of rounds to settle, above all under ZB-H1; a run that is four times as long then
//! costs twice as much.)
//!
//! This is what schedules are checked with, alone and beneath the whole step of the `step` crate,
//! which times them in its own way; no command waits for it.

use units::Span;

use super::{Order, Pass, Pipeline, Schedule, Slot, Task};

/// How long the passes take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassTimes {
    /// Forward, for each part of the model.
    pub forward: Vec<Span>,
    /// Gradients of inputs, for each part.
    pub input: Vec<Span>,
    /// Gradients of weights, for each part.
    pub weight: Vec<Span>,
    /// A forward and a backward pass that overlap, for each stage; DualPipe alone has them.
    pub together: Vec<Span>,
    /// From the end of a pass to its data being at the next stage.
    pub transfer: Span,
}

impl PassTimes {
    /// The same for every part; overlapped passes gain nothing.
    pub fn uniform(pipeline: &Pipeline, forward: Span, input: Span, weight: Span) -> Self {
        let parts = usize::try_from(pipeline.parts()).expect("parts fit memory");
        let stages = usize::try_from(pipeline.stages).expect("stages fit memory");
        Self {
            forward: vec![forward; parts],
            input: vec![input; parts],
            weight: vec![weight; parts],
            together: vec![forward + input + weight; stages],
            transfer: Span::ZERO,
        }
    }

    /// How long one slot of a stage takes.
    pub fn slot(&self, stage: u64, slot: Slot) -> Span {
        match slot {
            Slot::Alone(Task { pass, part, .. }) => {
                let part = index(part);
                match pass {
                    Pass::Forward => self.forward[part],
                    Pass::Input => self.input[part],
                    Pass::Weight => self.weight[part],
                    Pass::Backward => self.input[part] + self.weight[part],
                }
            }
            Slot::Together(..) => self.together[index(stage)],
        }
    }
}

/// What a schedule came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// From the first slot's start to the last slot's end.
    pub makespan: Span,
    /// How long each stage worked.
    pub busy: Vec<Span>,
    /// When each stage ended its last slot.
    pub end: Vec<Span>,
    /// Slots that were walked through to know this, over all stages.
    pub walked: u64,
}

impl Evaluation {
    /// How long a stage waited, its start-up and its end among it.
    pub fn idle(&self, stage: u64) -> Span {
        self.makespan - self.busy[index(stage)]
    }

    /// Idle time over work of the busiest stage: the bubble as papers give it.
    pub fn bubble(&self) -> f64 {
        let busiest = self.busy.iter().copied().max().unwrap_or(Span::ZERO);
        (self.makespan.as_secs_f64() / busiest.as_secs_f64()) - 1.0
    }
}

/// Runs a pipeline.
pub fn evaluate(pipeline: &Pipeline, times: &PassTimes) -> Evaluation {
    let orders: Vec<Order> = (0..pipeline.stages).map(|stage| pipeline.order(stage)).collect();
    let busy = (0..).zip(&orders).map(|(stage, order)| busy(stage, order, times)).collect();
    let (end, walked) = if pipeline.schedule == Schedule::Gpipe && 1 < pipeline.stages {
        (gpipe(pipeline, times), 2 * pipeline.stages)
    } else {
        folded(pipeline, times, &orders)
    };
    let makespan = end.iter().copied().max().expect("a pipeline has a stage");
    Evaluation { makespan, busy, end, walked }
}

/// The same slot by slot, for checking it.
pub fn evaluate_unfolded(pipeline: &Pipeline, times: &PassTimes) -> Evaluation {
    let lines: Vec<Line> = (0..pipeline.stages)
        .map(|stage| Line { slots: pipeline.unfolded(stage), start: 0, cycle: 0, rounds: 0 })
        .collect();
    let walk = Walk::through(pipeline, times, &lines);
    let busy = (0..)
        .zip(&lines)
        .map(|(stage, line)| line.slots.iter().map(|&slot| times.slot(stage, slot)).sum())
        .collect();
    let end = walk.end();
    let makespan = end.iter().copied().max().expect("a pipeline has a stage");
    Evaluation { makespan, busy, end, walked: walk.walked() }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("stages, parts and rounds fit memory")
}

fn busy(stage: u64, order: &Order, times: &PassTimes) -> Span {
    let rounds = order.segments.iter().map(|segment| {
        let round: Span = segment.slots.iter().map(|&slot| times.slot(stage, slot)).sum();
        round * segment.rounds
    });
    rounds.sum()
}

/// GPipe has two rounds that repeat, not one, but a closed form: equal microbatches queue at the
/// slowest stage passed so far, on the way forward as on the way back.
fn gpipe(pipeline: &Pipeline, times: &PassTimes) -> Vec<Span> {
    let last = pipeline.microbatches - 1;
    let sweep = |start: Span, passes: Vec<Span>| -> Vec<Span> {
        let (mut path, mut slowest) = (start, Span::ZERO);
        let mut ends = Vec::with_capacity(passes.len());
        for (index, pass) in passes.into_iter().enumerate() {
            path += pass + if index == 0 { Span::ZERO } else { times.transfer };
            slowest = slowest.max(pass);
            ends.push(path + slowest * last);
        }
        ends
    };
    let forward = sweep(Span::ZERO, times.forward.clone());
    let gradients = times.input.iter().zip(&times.weight).map(|(&input, &weight)| input + weight);
    let turn = *forward.last().expect("a pipeline has a stage");
    let mut end = sweep(turn, gradients.rev().collect());
    end.reverse();
    end
}

/// Periods of more rounds than this are not looked for. A delay that goes round several stages
/// before it is felt again makes for periods of up to their number.
const MOST_PERIODS: usize = 64;

fn folded(pipeline: &Pipeline, times: &PassTimes, orders: &[Order]) -> (Vec<Span>, u64) {
    let rounds = match orders[0].segments.as_slice() {
        [_, cycle, _] => cycle.rounds,
        _ => 1,
    };
    let (mut short, mut walked) = (16, 0);
    let mut periods = 1..=MOST_PERIODS;
    while short < rounds {
        let walk = walk(pipeline, times, orders, short);
        walked += walk.walked();
        match periods.find_map(|period| Some((period as u64, walk.repeats(period)?))) {
            Some((period, delay)) if (rounds - short).is_multiple_of(period) => {
                let skipped = delay * ((rounds - short) / period);
                return (walk.end().into_iter().map(|end| end + skipped).collect(), walked);
            }
            // What is left out must be whole periods: once more with the rest of one.
            Some((period, _)) => {
                short += (rounds - short) % period;
                periods = index(period)..=index(period);
            }
            None => {
                short *= 2;
                periods = 1..=MOST_PERIODS;
            }
        }
    }
    let walk = walk(pipeline, times, orders, rounds);
    (walk.end(), walked + walk.walked())
}

/// Walks through the orders with so many rounds.
fn walk(pipeline: &Pipeline, times: &PassTimes, orders: &[Order], rounds: u64) -> Walk {
    let mut left_out = 0;
    let lines: Vec<Line> = orders
        .iter()
        .map(|order| match order.segments.as_slice() {
            [start, cycle, end] => {
                left_out = (cycle.rounds - rounds) * cycle.step;
                let middle = (0..rounds).flat_map(|round| {
                    cycle.slots.iter().map(move |slot| slot.later(round * cycle.step))
                });
                let end = end.slots.iter().map(|slot| slot.earlier(left_out));
                Line {
                    slots: start.slots.iter().copied().chain(middle).chain(end).collect(),
                    start: start.slots.len(),
                    cycle: cycle.slots.len(),
                    rounds: index(rounds),
                }
            }
            _ => Line { slots: order.slots().collect(), start: 0, cycle: 0, rounds: 0 },
        })
        .collect();
    let shorter = Pipeline { microbatches: pipeline.microbatches - left_out, ..*pipeline };
    Walk::through(&shorter, times, &lines)
}

/// The slots of one stage, and where among them the rounds are.
struct Line {
    slots: Vec<Slot>,
    start: usize,
    cycle: usize,
    rounds: usize,
}

impl Line {
    /// The round that a slot is in: before the first one it is -1, behind the last one their
    /// number.
    fn round(&self, position: usize) -> i64 {
        let Some(inside) = position.checked_sub(self.start) else { return -1 };
        let round = inside.checked_div(self.cycle).unwrap_or(0).min(self.rounds);
        i64::try_from(round).expect("rounds fit i64")
    }
}

/// A finished task or slot.
#[derive(Clone, Copy)]
struct Done {
    end: Span,
    /// Its own round.
    round: i64,
    /// The latest round among it and its ancestors.
    reach: i64,
    /// How many rounds its own predecessors are away at most.
    offset: i64,
}

/// A run, slot by slot.
struct Walk {
    /// For each stage, its slots in order.
    done: Vec<Vec<Done>>,
    starts: Vec<usize>,
    cycles: Vec<usize>,
    rounds: usize,
}

impl Walk {
    fn through(pipeline: &Pipeline, times: &PassTimes, lines: &[Line]) -> Self {
        let mut board = Board::new(pipeline, times.transfer);
        let mut done: Vec<Vec<Done>> =
            lines.iter().map(|line| Vec::with_capacity(line.slots.len())).collect();
        let mut left: usize = lines.iter().map(|line| line.slots.len()).sum();
        while 0 < left {
            let before = left;
            for (stage, line) in (0..).zip(lines) {
                let done = &mut done[index(stage)];
                while let Some(&slot) = line.slots.get(done.len()) {
                    let round = line.round(done.len());
                    let Some(ready) = board.ready(stage, slot, done.last(), round) else { break };
                    let finished = Done { end: ready.end + times.slot(stage, slot), ..ready };
                    slot.tasks().for_each(|task| board.finish(task, finished));
                    done.push(finished);
                    left -= 1;
                }
            }
            assert!(left < before, "a schedule whose stages wait for each other for ever");
        }
        Self {
            done,
            starts: lines.iter().map(|line| line.start).collect(),
            cycles: lines.iter().map(|line| line.cycle).collect(),
            rounds: lines[0].rounds,
        }
    }

    /// When each stage ended.
    fn end(&self) -> Vec<Span> {
        self.done.iter().map(|done| done.last().map_or(Span::ZERO, |last| last.end)).collect()
    }

    fn walked(&self) -> u64 {
        self.done.iter().map(|done| done.len() as u64).sum()
    }

    /// The slots of one round of one stage.
    fn round(&self, stage: usize, round: usize) -> &[Done] {
        let from = self.starts[stage] + round * self.cycles[stage];
        &self.done[stage][from..from + self.cycles[stage]]
    }

    /// The constant delay from round to round `period` later, if the rounds repeat for ever: see
    /// the proof at the top.
    fn repeats(&self, period: usize) -> Option<Span> {
        let stages = 0..self.done.len();
        let end = i64::try_from(self.rounds).expect("rounds fit i64");
        let all = |round: usize| stages.clone().flat_map(move |stage| self.round(stage, round));
        // The last round that knows nothing of the end.
        let last = (0..self.rounds).rev().find(|&k| all(k).all(|done| done.reach < end))?;
        let half = self.rounds / 2;
        let offset = (half..self.rounds).flat_map(all).map(|done| done.offset).max()?;
        let first = last.checked_sub(2 * usize::try_from(offset).ok()? + period)?;
        if first < half {
            return None;
        }
        let mut delays = stages.flat_map(|stage| {
            (first..=last - period).flat_map(move |k| {
                let pairs = self.round(stage, k).iter().zip(self.round(stage, k + period));
                pairs.map(|(early, late)| late.end - early.end)
            })
        });
        let delay = delays.next()?;
        delays.all(|other| other == delay).then_some(delay)
    }
}

/// What has been computed, by part and microbatch.
struct Board {
    pipeline: Pipeline,
    transfer: Span,
    forward: Vec<Option<Done>>,
    gradient: Vec<Option<Done>>,
}

impl Board {
    fn new(pipeline: &Pipeline, transfer: Span) -> Self {
        let size = index(pipeline.parts() * pipeline.microbatches);
        let (forward, gradient) = (vec![None; size], vec![None; size]);
        Self { pipeline: *pipeline, transfer, forward, gradient }
    }

    fn at(&self, part: u64, microbatch: u64) -> usize {
        index(part * self.pipeline.microbatches + microbatch)
    }

    fn finish(&mut self, task: Task, done: Done) {
        let at = self.at(task.part, task.microbatch);
        match task.pass {
            Pass::Forward => self.forward[at] = Some(done),
            Pass::Backward | Pass::Input => self.gradient[at] = Some(done),
            Pass::Weight => {}
        }
    }

    /// When a slot can start; nothing if its data are not known yet. `end` is the start here.
    fn ready(&self, stage: u64, slot: Slot, before: Option<&Done>, round: i64) -> Option<Done> {
        let mut ready = Done { end: Span::ZERO, round, reach: round, offset: 0 };
        let mut wait = |done: Done, delay: Span| {
            ready.end = ready.end.max(done.end + delay);
            ready.reach = ready.reach.max(done.reach);
            ready.offset = ready.offset.max((round - done.round).abs());
        };
        if let Some(&before) = before {
            wait(before, Span::ZERO);
        }
        for task in slot.tasks() {
            let Task { pass, part, microbatch } = task;
            let (source, from) = match pass {
                Pass::Forward if part == 0 => continue,
                Pass::Forward => (&self.forward, part - 1),
                Pass::Weight => (&self.gradient, part),
                Pass::Backward | Pass::Input if part + 1 == self.pipeline.parts() => {
                    (&self.forward, part)
                }
                Pass::Backward | Pass::Input => (&self.gradient, part + 1),
            };
            let far = self.pipeline.stage_of(from, microbatch) != stage;
            let delay = if far { self.transfer } else { Span::ZERO };
            wait(source[self.at(from, microbatch)]?, delay);
        }
        Some(ready)
    }
}
