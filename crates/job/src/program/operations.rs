//! The program of one stage, operation by operation, with what each waits for.
//!
//! All ranks of a stage do the same; who their peers are is arithmetic on the layout. Operations
//! are told in an order in which each comes behind what it waits for, so a step of any length can
//! be written out without being kept.
//!
//! How it works. The schedule's slots follow each other on the computation stream: a message is
//! received, the units of the part compute and exchange, a message is sent. Two passes that overlap
//! (DualPipe) begin together, and the next slot waits for both. Weights are gathered before the
//! unit that needs them, gradients reduced behind the units that have made them, on a stream of
//! their own where the job overlaps them. The optimizer waits for everything.
//!
//! Where it departs from reality: of a unit the kernels come first and its exchanges behind them,
//! where a real layer alternates.

use units::Bytes;

use super::{Call, Every, Part, Program, Timed, Unit};
use crate::parallel::Axis;
use crate::schedule::{Pass, Slot, Task};

/// One operation of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub work: Work,
    /// The part of the model that it belongs to; 0 for what concerns the whole stage.
    pub part: u64,
    /// The microbatch; 0 where it is for all.
    pub microbatch: u64,
    /// Operations of the same rank that it waits for, by number from 0 in the order of telling.
    pub after: Vec<u64>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The kernels of a unit.
    Compute {
        /// Which.
        unit: Unit,
        /// In which pass.
        pass: Pass,
    },
    /// A collective of the rank's group; blocks passed round a ring once.
    Exchange(Call),
    /// A message to the rank that stands alike in another stage.
    Send(Message),
    /// A message from it.
    Receive(Message),
    /// The optimizer's kernels.
    Optimize,
}

/// A message between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it carries.
    pub name: &'static str,
    /// The other stage.
    pub stage: u64,
    /// How long it is.
    pub bytes: Bytes,
    /// Tells the messages between two stages apart.
    pub tag: u64,
}

impl Program {
    /// About how many operations a rank of a stage has: at least as many as are told.
    pub fn operations_about(&self, stage: u64) -> u64 {
        let pipeline = self.pipeline();
        let parts = pipeline.parts_of(stage).into_iter();
        let of_part = |index: u64| {
            let part = self.part(index);
            let calls = |unit, pass| -> u64 {
                self.calls_of(unit, pass).iter().map(|call| 1 + call.times).sum()
            };
            let passes = [Pass::Forward, Pass::Input, Pass::Weight];
            let unit = |unit| -> u64 { passes.iter().map(|pass| 1 + calls(unit, *pass)).sum() };
            let units: u64 = part.pieces.iter().map(|piece| piece.repeat * unit(piece.unit)).sum();
            units + (part.gathers.len() + part.reductions.len()) as u64 + 6
        };
        let closing = self.closing[usize::try_from(stage).expect("few stages")].len() as u64;
        parts.map(of_part).sum::<u64>() * pipeline.microbatches + closing + 1
    }

    /// Tells the operations of a rank of a stage.
    pub fn operations(&self, stage: u64, tell: &mut dyn FnMut(Operation)) {
        let mut walk = Walk::new(self, stage, tell);
        let order = self.pipeline().order(stage);
        for slot in order.slots() {
            walk.slot(slot);
        }
        walk.close();
    }

    fn part(&self, index: u64) -> &Part {
        &self.parts[usize::try_from(index).expect("parts fit memory")]
    }
}

struct Walk<'a> {
    program: &'a Program,
    stage: u64,
    tell: &'a mut dyn FnMut(Operation),
    told: u64,
    /// What the next slot waits for.
    tails: Vec<u64>,
    /// The last operation of the stream for weights and gradients.
    copied: Option<u64>,
    /// By part of the stage: passes still to come.
    forward_done: Vec<u64>,
    backward_left: Vec<u64>,
    held: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, stage: u64, tell: &'a mut dyn FnMut(Operation)) -> Self {
        let held = program.pipeline().parts_of(stage);
        let both = if program.job.is_bidirectional() { 2 } else { 1 };
        let passes = program.pipeline().microbatches / both;
        Self {
            program,
            stage,
            tell,
            told: 0,
            tails: Vec::new(),
            copied: None,
            forward_done: vec![0; held.len()],
            backward_left: vec![passes; held.len()],
            held,
        }
    }

    fn push(&mut self, work: Work, task: Task, after: Vec<u64>) -> u64 {
        let Task { part, microbatch, .. } = task;
        (self.tell)(Operation { work, part, microbatch, after });
        self.told += 1;
        self.told - 1
    }

    fn slot(&mut self, slot: Slot) {
        let before = std::mem::take(&mut self.tails);
        let mut ends = Vec::new();
        for task in slot.tasks() {
            ends.extend(self.task(task, before.clone()));
        }
        self.tails = ends;
    }

    /// One pass of one part. What the stage does next waits for the operations that come back.
    fn task(&mut self, task: Task, mut at: Vec<u64>) -> Vec<u64> {
        if let Some(message) = self.message(task, Side::Before) {
            at = vec![self.push(Work::Receive(message), task, at)];
            if let Some(gather) = self.program.message_gather() {
                at = vec![self.push(Work::Exchange(gather), task, at)];
            }
        }
        let place = self.held.iter().position(|part| *part == task.part).expect("its own part");
        let units: Vec<Unit> = self.units(task);
        let copies = self.copies(task, place);
        for (done, unit) in (0..).zip(units) {
            at = self.gather(task, &copies, done, at);
            at = self.unit(task, unit, at);
            at = self.reduce(task, &copies, done + 1, at);
        }
        match task.pass {
            Pass::Forward => self.forward_done[place] += 1,
            Pass::Backward | Pass::Weight => self.backward_left[place] -= 1,
            Pass::Input => {}
        }
        if let Some(message) = self.message(task, Side::Behind) {
            let sent = self.push(Work::Send(message), task, at.clone());
            if !self.overlaps(Axis::Pp) {
                at = vec![sent];
            }
        }
        at
    }

    fn overlaps(&self, axis: Axis) -> bool {
        self.program.job.parallel.overlap.contains(&axis)
    }

    /// The units of a part in the order of the pass.
    fn units(&self, task: Task) -> Vec<Unit> {
        let pieces = self.program.part(task.part).pieces.iter();
        let each = |piece: &super::Piece| {
            std::iter::repeat_n(piece.unit, usize::try_from(piece.repeat).expect("layers"))
        };
        let mut units: Vec<Unit> = pieces.flat_map(each).collect();
        if task.pass != Pass::Forward {
            units.reverse();
        }
        units
    }

    /// The weights and gradients that this pass exchanges.
    fn copies(&self, task: Task, place: usize) -> Vec<Timed> {
        let part = self.program.part(task.part);
        let first = self.forward_done[place] == 0;
        let last = self.backward_left[place] == 1;
        let wanted = |timed: &&Timed, once: bool| timed.every == Every::Microbatch || once;
        let gathers = part.gathers.iter().filter(|timed| match task.pass {
            Pass::Forward => timed.pass == Pass::Forward && wanted(timed, first),
            Pass::Backward | Pass::Input => timed.pass != Pass::Forward && wanted(timed, false),
            Pass::Weight => false,
        });
        let reduces = matches!(task.pass, Pass::Backward | Pass::Weight);
        let reductions = part.reductions.iter().filter(|timed| reduces && wanted(timed, last));
        gathers.chain(reductions).copied().collect()
    }

    fn is_gather(timed: &Timed) -> bool {
        timed.call.collective == traffic::Collective::AllGather
    }

    /// Weights that the next unit needs, after so many.
    fn gather(&mut self, task: Task, copies: &[Timed], done: u64, at: Vec<u64>) -> Vec<u64> {
        let now = copies.iter().filter(|timed| Self::is_gather(timed) && timed.units == done);
        let mut at = at;
        for timed in now {
            let gathered = self.copy(task, timed.call, &at, false);
            if self.overlaps(Axis::Dp) {
                at.push(gathered);
            } else {
                at = vec![gathered];
            }
        }
        at
    }

    /// Gradients that are there after so many units.
    fn reduce(&mut self, task: Task, copies: &[Timed], done: u64, at: Vec<u64>) -> Vec<u64> {
        let now = copies.iter().filter(|timed| !Self::is_gather(timed) && timed.units == done);
        let mut at = at;
        for timed in now {
            let reduced = self.copy(task, timed.call, &at, true);
            if !self.overlaps(Axis::Dp) {
                at = vec![reduced];
            }
        }
        at
    }

    /// On the stream for weights and gradients. Gradients wait for what made them; weights only if
    /// nothing is overlapped.
    fn copy(&mut self, task: Task, call: Call, at: &[u64], made: bool) -> u64 {
        let mut after: Vec<u64> = self.copied.into_iter().collect();
        if made || !self.overlaps(Axis::Dp) {
            after.extend(at.iter().filter(|op| Some(**op) != self.copied));
        }
        let op = self.push(Work::Exchange(call), task, after);
        self.copied = Some(op);
        op
    }

    fn unit(&mut self, task: Task, unit: Unit, mut at: Vec<u64>) -> Vec<u64> {
        let passes: &[Pass] = match task.pass {
            Pass::Backward => &[Pass::Input, Pass::Weight],
            Pass::Forward => &[Pass::Forward],
            Pass::Input => &[Pass::Input],
            Pass::Weight => &[Pass::Weight],
        };
        for pass in passes {
            at = vec![self.push(Work::Compute { unit, pass: *pass }, task, at)];
            for call in self.program.calls_of(unit, *pass) {
                for _ in 0..call.times {
                    let once = Call { times: 1, ..call };
                    if once.bytes != Bytes::ZERO {
                        at = vec![self.push(Work::Exchange(once), task, at)];
                    }
                }
            }
        }
        at
    }

    /// The message before or behind a pass, where its neighbour is another stage.
    fn message(&self, task: Task, side: Side) -> Option<Message> {
        let pipeline = self.program.pipeline();
        let (up, name) = match task.pass {
            Pass::Forward => (side == Side::Behind, "activations"),
            Pass::Backward | Pass::Input => (side == Side::Before, "their gradients"),
            Pass::Weight => return None,
        };
        let last = pipeline.parts() - 1;
        let Task { part, microbatch, .. } = task;
        let other =
            if up { part.checked_add(1).filter(|next| *next <= last) } else { part.checked_sub(1) };
        let other = other?;
        let stage = pipeline.stage_of(other, microbatch);
        if stage == self.stage {
            return None;
        }
        // The boundary that it crosses, once in each direction for every microbatch.
        let boundary = part.min(other);
        let direction = u64::from(name == "activations");
        let tag = 2 * (microbatch * pipeline.parts() + boundary) + direction;
        Some(Message { name, stage, bytes: self.program.message(), tag })
    }

    /// What is exchanged once, and the optimizer.
    fn close(&mut self) {
        let task = Task { pass: Pass::Weight, part: 0, microbatch: 0 };
        let mut at = std::mem::take(&mut self.tails);
        at.extend(self.copied.filter(|copied| !at.contains(copied)));
        let stage = usize::try_from(self.stage).expect("few stages");
        for call in self.program.closing[stage].clone() {
            if call.bytes != Bytes::ZERO {
                at = vec![self.push(Work::Exchange(call), task, at)];
            }
        }
        self.push(Work::Optimize, task, at);
    }
}

/// Which message of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
}
