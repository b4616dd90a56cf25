//! Which operation follows which on its connection, and for how long operations go on alike.
//!
//! A ring passes one message after the other over each of its connections, and each waits for the
//! same: one before it on this connection, and one on the connection that leads here. Once it is
//! known in which order operations end in a period, and which others each end lets begin, the
//! same can be tried one or more operations further on, without any packets ([`Chains::repeats`]):
//! if each end lets the successors of those begin that began before, and moves as much, the period
//! can be repeated.

use traffic::{OpId, OpKind, Replay, Transfers};
use units::{Id, IdVec};

use crate::ids::Maybe;

/// The order of operations on connections.
#[derive(Debug)]
pub(crate) struct Chains {
    /// The next operation on the same connection.
    next: IdVec<OpId, Maybe<OpId>>,
    /// The place of each among those of its connection.
    places: IdVec<OpId, u32>,
    /// Who waits for each operation, one after the other, and where those of each begin.
    followers: Vec<OpId>,
    first_follower: Vec<u32>,
}

/// Something that lets operations begin: a message arrives, or its sender knows that it has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Step {
    pub op: OpId,
    /// Its sender knows.
    pub is_over: bool,
    /// Operations that begin.
    pub begin: Vec<OpId>,
}

impl Chains {
    /// Those of all connections.
    pub(crate) fn new(transfers: &Transfers) -> Self {
        let ops = transfers.ops();
        let mut next = IdVec::from(vec![Maybe::NONE; ops.len()]);
        let mut places = IdVec::from(vec![0; ops.len()]);
        let mut last: Vec<Option<OpId>> = vec![None; transfers.connections().len()];
        let mut first_follower = vec![0_u32; ops.len() + 1];
        for (op, what) in ops.enumerate() {
            if let OpKind::Send { connection, .. } = what.kind
                && let Some(before) = last[connection.index()].replace(op)
            {
                next[before] = Maybe::some(op);
                places[op] = places[before] + 1;
            }
            transfers.after(op).iter().for_each(|at| first_follower[at.index() + 1] += 1);
        }
        for at in 0..ops.len() {
            first_follower[at + 1] += first_follower[at];
        }
        let mut followers = vec![OpId::from_index(0); first_follower[ops.len()] as usize];
        let mut filled = first_follower.clone();
        for op in ops.ids() {
            for earlier in transfers.after(op) {
                let place = &mut filled[earlier.index()];
                followers[*place as usize] = op;
                *place += 1;
            }
        }
        Self { next, places, followers, first_follower }
    }

    /// The one that comes so many later on its connection, if there is one.
    pub(crate) fn later(&self, op: OpId, count: u32) -> Option<OpId> {
        (0..count).try_fold(op, |op, _| self.next[op].get())
    }

    /// Its place among the operations of its connection.
    pub(crate) fn place(&self, op: OpId) -> u32 {
        self.places[op]
    }

    /// How often the steps of a period can be repeated, each time so many operations further on, at
    /// most `most` times, from a state of a walk through the operations.
    pub(crate) fn repeats(
        &self,
        transfers: &Transfers,
        replay: &Replay,
        steps: &[Step],
        ops: u32,
        most: u64,
    ) -> u64 {
        let mut waits: IdVec<OpId, Option<u32>> =
            transfers.ops().ids().map(|op| replay.waits(op)).collect();
        let mut period = steps.to_vec();
        for time in 0..most {
            for step in &mut period {
                if self.repeat(transfers, &mut waits, step, ops).is_none() {
                    return time;
                }
            }
        }
        most
    }

    /// Moves a step on and does it; none if it does not do what it did.
    fn repeat(
        &self,
        transfers: &Transfers,
        waits: &mut IdVec<OpId, Option<u32>>,
        step: &mut Step,
        ops: u32,
    ) -> Option<()> {
        let what = transfers.ops();
        let successor = |op: OpId| {
            let next = self.later(op, ops)?;
            (what[op].kind == what[next].kind).then_some(next)
        };
        step.op = successor(step.op)?;
        for op in &mut step.begin {
            *op = successor(*op)?;
        }
        // It must be under way. A host that is slow to take a message has it after its sender
        // knows.
        match (step.is_over, waits[step.op]) {
            (true, Some(0)) => waits[step.op] = None,
            (false, Some(0) | None) => {}
            _ => return None,
        }
        let at = step.op.index();
        let range = self.first_follower[at] as usize..self.first_follower[at + 1] as usize;
        let mut begin = step.begin.iter();
        for follower in &self.followers[range] {
            if Replay::is_patient(transfers, step.op, *follower) == step.is_over {
                let left = waits[*follower].as_mut()?;
                *left = left.checked_sub(1)?;
                if *left == 0 && begin.next() != Some(follower) {
                    return None;
                }
            }
        }
        begin.next().is_none().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use fabric::NodeId;
    use traffic::Connection;
    use units::Bytes;

    use super::*;

    /// Oracle: by hand. Two connections pass messages to and fro; the fifth of the first connection
    /// is larger, so what began with its second can be repeated twice.
    #[test]
    fn steps_repeat_until_one_differs() {
        let mut transfers = Transfers::new();
        let label = transfers.label("to and fro");
        let nodes = [0, 1].map(NodeId::from_index);
        let connections = [0, 1].map(|at: usize| {
            let (from, to) = (nodes[at], nodes[1 - at]);
            transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 })
        });
        let mut before: Vec<OpId> = Vec::new();
        for number in 0..12 {
            let bytes = Bytes::new(if number == 8 { 2 } else { 1 });
            before = vec![transfers.send(connections[number % 2], bytes, label, &before)];
        }
        let chains = Chains::new(&transfers);
        let op = OpId::from_index;
        assert_eq!((chains.later(op(1), 3), chains.later(op(1), 6)), (Some(op(7)), None));
        assert_eq!([0, 1, 11].map(|at| chains.place(op(at))), [0, 0, 5]);
        let (mut replay, mut ready) = Replay::start(&transfers);
        let mut steps = Vec::new();
        for number in 0..4 {
            ready.clear();
            replay.arrive(op(number), &mut ready);
            steps.push(Step { op: op(number), is_over: false, begin: ready.clone() });
            replay.know(op(number), &mut ready);
            steps.push(Step { op: op(number), is_over: true, begin: Vec::new() });
        }
        // The last two messages, again: 4 and 5 are like 2 and 3, of 6 and 7 the last begins 8.
        assert_eq!(chains.repeats(&transfers, &replay, &steps[4..], 1, 10), 1);
        assert_eq!(chains.repeats(&transfers, &replay, &steps, 2, 10), 0);
        // A host that takes a message after its sender knows changes nothing.
        let mut late = steps[4..].to_vec();
        late.chunks_mut(2).for_each(|both| both.swap(0, 1));
        assert_eq!(chains.repeats(&transfers, &replay, &late, 1, 10), 1);
    }
}
