//! The one order of a step: what a stage does, on which stream, after what.
//!
//! Whoever puts a step together reads it here: the operations that are written out
//! ([`operations`](super::operations)), the whole step on one clock (`step::whole`), and, folded to
//! passes, the timeline of representative ranks (`step::assemble`; a test holds it against this).
//!
//! How it works. The schedule's slots follow each other on the computation stream: a message is
//! received, the units of the part compute, a message is sent. Two passes that overlap (DualPipe)
//! begin together, and the next slot waits for both.
//!
//! Weights and gradients of all kinds have one stream of their own and run on it one after the
//! other, as they are issued. A process group of NCCL has one stream, on which reduce-scatters and
//! all-gathers run serially; so the next unit's weights are issued before the gradients of this
//! one, else these would block them and nothing would overlap in the backward pass (PyTorch, FSDP
//! notes, "FSDP Prefetch Nuances", docs/source/notes/fsdp.rst). How far ahead:
//!
//! * weights that are freed behind their unit: one unit, whose memory is free when the unit before
//!   this one has been computed (the same notes; FSDP2 keeps two outputs of all-gathers alive,
//!   pytorch pull request 128884);
//! * weights that stay for the step: as far as the stream comes, in the order in which they are
//!   needed. Megatron-Core dispatches a bucket when the one before it is there
//!   (`finish_param_sync` in core/distributed/param_and_grad_buffer.py), which comes to the same
//!   where a bucket takes no longer than its units;
//! * gradients: behind the unit that makes them; the optimizer waits for all.
//!
//! Where nothing is overlapped (`overlap` without `dp`), what is exchanged once per step comes
//! after the last pass (gradients) and after the optimizer (weights); what every microbatch
//! exchanges is waited for where it stands.

use std::iter::Peekable;

use units::Bytes;

use super::{Call, Every, Part, Piece, Program, Timed, Unit};
use crate::parallel::Axis;
use crate::schedule::{Pass, Slot, Task};

/// One thing that a stage does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// What.
    pub doing: Doing,
    /// In which pass over which part, for which microbatch.
    pub task: Task,
    /// In which slot of the schedule, counted from 0; what comes behind them has their number.
    pub slot: u64,
    /// Acts of the same stage that it waits for, by number from 0 in the order of telling.
    pub after: Vec<u64>,
}

/// What an act does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Waits for a message of the rank that stands alike in another stage.
    Receive(Message),
    /// Gathers weights, on the stream of weights and gradients.
    Gather(Call),
    /// Computes a unit, with its exchanges.
    Unit(Unit),
    /// Reduces gradients, on the stream of weights and gradients.
    Reduce(Call),
    /// Sends a message.
    Send(Message),
    /// Exchanges what is exchanged once, behind all passes.
    Close(Call),
    /// Runs the optimizer.
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
    /// Tells what a rank of a stage does, each act behind those that it waits for.
    pub fn acts(&self, stage: u64, tell: &mut dyn FnMut(Act)) {
        let mut walk = Walk::new(self, stage, tell);
        let order = self.pipeline().order(stage);
        let mut slots = order.slots().peekable();
        while let Some(slot) = slots.next() {
            walk.slot(slot, &mut slots);
        }
        walk.close();
    }

    pub(super) fn part(&self, index: u64) -> &Part {
        &self.parts[usize::try_from(index).expect("parts fit memory")]
    }

    /// The units of a part in the order of a pass.
    fn units(&self, task: Task) -> Vec<Unit> {
        let each = |piece: &Piece| {
            std::iter::repeat_n(piece.unit, usize::try_from(piece.repeat).expect("layers"))
        };
        let mut units: Vec<Unit> = self.part(task.part).pieces.iter().flat_map(each).collect();
        if task.pass != Pass::Forward {
            units.reverse();
        }
        units
    }
}

struct Walk<'a> {
    program: &'a Program,
    stage: u64,
    tell: &'a mut dyn FnMut(Act),
    told: u64,
    slot: u64,
    /// What the next slot waits for.
    tails: Vec<u64>,
    /// The last act of the stream for weights and gradients.
    copied: Option<u64>,
    /// The gathers that were issued ahead for the next unit.
    ahead: Option<Vec<u64>>,
    /// By part of the stage: passes still to come.
    forward_done: Vec<u64>,
    backward_left: Vec<u64>,
    held: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, stage: u64, tell: &'a mut dyn FnMut(Act)) -> Self {
        let held = program.pipeline().parts_of(stage);
        let both = if program.job.is_bidirectional() { 2 } else { 1 };
        let passes = program.pipeline().microbatches / both;
        Self {
            program,
            stage,
            tell,
            told: 0,
            slot: 0,
            tails: Vec::new(),
            copied: None,
            ahead: None,
            forward_done: vec![0; held.len()],
            backward_left: vec![passes; held.len()],
            held,
        }
    }

    fn push(&mut self, doing: Doing, task: Task, after: Vec<u64>) -> u64 {
        (self.tell)(Act { doing, task, slot: self.slot, after });
        self.told += 1;
        self.told - 1
    }

    fn slot(&mut self, slot: Slot, later: &mut Peekable<impl Iterator<Item = Slot>>) {
        let before = std::mem::take(&mut self.tails);
        let mut tasks = slot.tasks().peekable();
        while let Some(task) = tasks.next() {
            let behind = tasks.peek().copied();
            let next = behind.or_else(|| later.peek().and_then(|slot| slot.tasks().next()));
            let ends = self.task(task, before.clone(), next);
            self.tails.extend(ends);
        }
        self.slot += 1;
    }

    /// One pass of one part. What the stage does next waits for the acts that come back.
    fn task(&mut self, task: Task, mut at: Vec<u64>, next: Option<Task>) -> Vec<u64> {
        if let Some(message) = self.message(task, Side::Before) {
            at = vec![self.push(Doing::Receive(message), task, at)];
        }
        let place = self.held.iter().position(|part| *part == task.part).expect("its own part");
        let units = self.program.units(task);
        let copies = self.copies(task, place);
        let count = units.len() as u64;
        for (done, unit) in (0..).zip(units) {
            let mut waits = self.gathered(task, &copies, done, &mut at);
            self.gather_ahead(task, done + 1, count, next, &at);
            waits.extend(at.iter().filter(|act| !waits.contains(act)).copied().collect::<Vec<_>>());
            at = vec![self.push(Doing::Unit(unit), task, waits)];
            at = self.reduce(task, &copies, done + 1, at);
        }
        match task.pass {
            Pass::Forward => self.forward_done[place] += 1,
            Pass::Backward | Pass::Weight => self.backward_left[place] -= 1,
            Pass::Input => {}
        }
        if let Some(message) = self.message(task, Side::Behind) {
            let sent = self.push(Doing::Send(message), task, at.clone());
            if !self.overlaps(Axis::Pp) {
                at = vec![sent];
            }
        }
        at
    }

    fn overlaps(&self, axis: Axis) -> bool {
        self.program.job.parallel.overlap.contains(&axis)
    }

    /// The weights and gradients that this pass exchanges.
    fn copies(&self, task: Task, place: usize) -> Vec<Timed> {
        let part = self.program.part(task.part);
        let overlaps = self.overlaps(Axis::Dp);
        let first = overlaps && self.forward_done[place] == 0;
        let last = overlaps && self.backward_left[place] == 1;
        let wanted = |timed: &&Timed, once: bool| timed.every == Every::Microbatch || once;
        let gathers = part.gathers.iter().filter(|timed| {
            needs(timed, task.pass) && wanted(timed, first && task.pass == Pass::Forward)
        });
        let reduces = matches!(task.pass, Pass::Backward | Pass::Weight);
        let reductions = part.reductions.iter().filter(|timed| reduces && wanted(timed, last));
        gathers.chain(reductions).copied().collect()
    }

    /// The gathers of the unit behind so many: those that were issued ahead, and the others now.
    fn gathered(&mut self, task: Task, copies: &[Timed], done: u64, at: &mut Vec<u64>) -> Vec<u64> {
        let ahead = self.ahead.take();
        let issued = |timed: &&Timed| ahead.is_some() && timed.every == Every::Microbatch;
        let now = copies.iter().filter(|timed| is_gather(timed) && timed.units == done);
        let now: Vec<Call> = now.filter(|timed| !issued(timed)).map(|timed| timed.call).collect();
        let mut waits = ahead.unwrap_or_default();
        for call in now {
            let gathered = self.copy(
                Doing::Gather(call),
                task,
                if self.overlaps(Axis::Dp) { &[] } else { &*at },
            );
            if self.overlaps(Axis::Dp) {
                waits.push(gathered);
            } else {
                *at = vec![gathered];
            }
        }
        waits
    }

    /// Issues the weights of the unit after this one, which are freed again behind it. They need
    /// the memory of the unit before this one.
    fn gather_ahead(&mut self, task: Task, done: u64, count: u64, next: Option<Task>, at: &[u64]) {
        if !self.overlaps(Axis::Dp) {
            return;
        }
        let (task, done) = if done < count { (Some(task), done) } else { (next, 0) };
        let Some(task) = task else { return };
        let program = self.program;
        let freed = program.part(task.part).gathers.iter().filter(|timed| {
            timed.every == Every::Microbatch && needs(timed, task.pass) && timed.units == done
        });
        let calls: Vec<Call> = freed.map(|timed| timed.call).collect();
        let issued = calls.into_iter().map(|call| self.copy(Doing::Gather(call), task, at));
        self.ahead = Some(issued.collect());
    }

    /// Gradients that are there after so many units.
    fn reduce(&mut self, task: Task, copies: &[Timed], done: u64, at: Vec<u64>) -> Vec<u64> {
        let now = copies.iter().filter(|timed| !is_gather(timed) && timed.units == done);
        let mut at = at;
        for timed in now {
            let reduced = self.copy(Doing::Reduce(timed.call), task, &at);
            if !self.overlaps(Axis::Dp) {
                at = vec![reduced];
            }
        }
        at
    }

    /// On the stream for weights and gradients, after others too.
    fn copy(&mut self, doing: Doing, task: Task, others: &[u64]) -> u64 {
        let mut after: Vec<u64> = self.copied.into_iter().collect();
        after.extend(others.iter().filter(|act| Some(**act) != self.copied));
        let act = self.push(doing, task, after);
        self.copied = Some(act);
        act
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
        for call in self.once(|part| &part.reductions) {
            at = vec![self.push(Doing::Reduce(call), task, at)];
        }
        let stage = usize::try_from(self.stage).expect("few stages");
        for call in self.program.closing[stage].clone() {
            if call.bytes != Bytes::ZERO {
                at = vec![self.push(Doing::Close(call), task, at)];
            }
        }
        at = vec![self.push(Doing::Optimize, task, at)];
        for call in self.once(|part| &part.gathers) {
            at = vec![self.push(Doing::Gather(call), task, at)];
        }
    }

    /// What is exchanged once per step and beside nothing.
    fn once(&self, of: impl Fn(&Part) -> &Vec<Timed>) -> Vec<Call> {
        if self.overlaps(Axis::Dp) {
            return Vec::new();
        }
        let parts = self.held.iter().flat_map(|part| of(self.program.part(*part)));
        parts.filter(|timed| timed.every == Every::Step).map(|timed| timed.call).collect()
    }
}

fn is_gather(timed: &Timed) -> bool {
    timed.call.collective == traffic::Collective::AllGather
}

/// Whether a pass needs these weights.
fn needs(timed: &Timed, pass: Pass) -> bool {
    match pass {
        Pass::Forward => timed.pass == Pass::Forward,
        Pass::Backward | Pass::Input => timed.pass != Pass::Forward,
        Pass::Weight => false,
    }
}

/// Which message of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
}
