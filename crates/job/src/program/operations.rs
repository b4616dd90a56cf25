//! The program of one stage, operation by operation, with what each waits for.
//!
//! All ranks of a stage do the same; who their peers are is arithmetic on the layout. Operations
//! are told in an order in which each comes behind what it waits for, so a step of any length can
//! be written out without being kept. What follows what is the [`order`](super::order)'s business:
//! here its acts are taken apart into kernels and exchanges.
//!
//! Where it departs from reality: of a unit the kernels come first and its exchanges behind them,
//! where a real layer alternates.

use units::Bytes;

pub use super::order::Message;
use super::order::{Act, Doing};
use super::{Call, Program, Unit};
use crate::schedule::Pass;

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
        let mut told = 0;
        // By act: the operation that ends it.
        let mut ends: Vec<u64> = Vec::new();
        self.acts(stage, &mut |act| {
            let Act { doing, task, after, .. } = act;
            let mut after: Vec<u64> = after.iter().map(|act| ends[*act as usize]).collect();
            self.works(doing, task.pass, &mut |work| {
                let after = std::mem::replace(&mut after, vec![told]);
                let (part, microbatch) = (task.part, task.microbatch);
                tell(Operation { work, part, microbatch, after });
                told += 1;
            });
            ends.push(told - 1);
        });
    }

    /// What an act is made of, one after the other.
    fn works(&self, doing: Doing, pass: Pass, tell: &mut dyn FnMut(Work)) {
        match doing {
            Doing::Receive(message) => {
                tell(Work::Receive(message));
                if let Some(gather) = self.message_gather() {
                    tell(Work::Exchange(gather));
                }
            }
            Doing::Unit(unit) => self.unit_works(unit, pass, tell),
            Doing::Gather(call) | Doing::Reduce(call) | Doing::Close(call) => {
                tell(Work::Exchange(call));
            }
            Doing::Send(message) => tell(Work::Send(message)),
            Doing::Optimize => tell(Work::Optimize),
        }
    }

    fn unit_works(&self, unit: Unit, pass: Pass, tell: &mut dyn FnMut(Work)) {
        for &pass in pass.parts() {
            tell(Work::Compute { unit, pass });
            for call in self.calls_of(unit, pass) {
                for _ in 0..call.times {
                    let once = Call { times: 1, ..call };
                    if once.bytes != Bytes::ZERO {
                        tell(Work::Exchange(once));
                    }
                }
            }
        }
    }
}
