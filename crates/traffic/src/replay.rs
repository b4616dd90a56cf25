//! The walk through a graph of operations that all engines share.
//!
//! It never touches a network: it is told what has finished and answers what may start, so the
//! engines cannot disagree about dependencies.

use units::{Id, IdVec};

use crate::transfers::{OpId, Transfers};

/// The progress of one walk through [`Transfers`].
///
/// ```
/// use traffic::{OpKind, Replay, Transfers};
/// use units::Span;
///
/// let mut transfers = Transfers::new();
/// let label = transfers.label("think");
/// let think = OpKind::Wait { span: Span::from_us(10) };
/// let first = transfers.add(think.clone(), label, &[]);
/// let second = transfers.add(think, label, &[first]);
///
/// let (mut replay, ready) = Replay::start(&transfers);
/// assert_eq!(ready, [first]);
/// let mut next = Vec::new();
/// replay.finish(first, &mut next);
/// assert_eq!(next, [second]);
/// replay.finish(second, &mut next);
/// assert!(replay.is_done());
/// ```
#[derive(Debug)]
pub struct Replay {
    waiting_for: IdVec<OpId, u32>,
    first_follower: Vec<u32>,
    followers: Vec<OpId>,
    unfinished: usize,
}

impl Replay {
    /// Begins a walk. Also returns the operations that wait for nothing.
    pub fn start(transfers: &Transfers) -> (Self, Vec<OpId>) {
        let ops = transfers.ops();
        let waiting_for: IdVec<OpId, u32> =
            ops.ids().map(|op| transfers.after(op).len() as u32).collect();
        let mut first_follower = vec![0_u32; ops.len() + 1];
        for op in ops.ids() {
            for earlier in transfers.after(op) {
                first_follower[earlier.index() + 1] += 1;
            }
        }
        for at in 0..ops.len() {
            first_follower[at + 1] += first_follower[at];
        }
        let mut next = first_follower.clone();
        let total = first_follower[ops.len()] as usize;
        let mut followers = vec![OpId::from_index(0); total];
        for op in ops.ids() {
            for earlier in transfers.after(op) {
                let slot = &mut next[earlier.index()];
                followers[*slot as usize] = op;
                *slot += 1;
            }
        }
        let ready = ops.ids().filter(|op| transfers.after(*op).is_empty()).collect();
        (Self { waiting_for, first_follower, followers, unfinished: ops.len() }, ready)
    }

    /// Records that an operation has finished, and appends to `ready` those that may now start.
    pub fn finish(&mut self, op: OpId, ready: &mut Vec<OpId>) {
        assert_eq!(self.waiting_for[op], 0, "{op:?} finished before it could start");
        self.waiting_for[op] = u32::MAX; // a second finish would trip over this
        self.unfinished -= 1;
        let at = op.index();
        for slot in self.first_follower[at]..self.first_follower[at + 1] {
            let follower = self.followers[slot as usize];
            self.waiting_for[follower] -= 1;
            if self.waiting_for[follower] == 0 {
                ready.push(follower);
            }
        }
    }

    /// Whether everything has finished.
    pub fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// How many operations have not finished.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }
}
