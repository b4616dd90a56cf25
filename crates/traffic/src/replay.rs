//! The walk through a graph of operations that all engines share.
//!
//! It never touches a network: it is told what has finished and answers what may start, so the
//! engines cannot disagree about dependencies.
//!
//! A message is known at its receiver sooner than at its sender, who waits for an acknowledgement.
//! An engine that knows both instants tells both ([`Replay::arrive`], [`Replay::know`]): what a
//! receiver passes on starts with the first, what the same sender sends next with the second.

use units::{Id, IdVec};

use crate::transfers::{OpId, OpKind, Transfers};

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
    /// The followers of op `n` are `followers[first_follower[n]..first_follower[n + 1]]`: from
    /// `first_patient[n]` on those that wait until its sender knows.
    first_follower: Vec<u32>,
    first_patient: Vec<u32>,
    followers: Vec<OpId>,
    unfinished: usize,
}

impl Replay {
    /// Whether `later` can start only when the sender of `earlier` knows that it has arrived: both
    /// are messages from the same place. All else happens where the message arrives.
    pub fn is_patient(transfers: &Transfers, earlier: OpId, later: OpId) -> bool {
        let from = |op: OpId| match transfers.ops()[op].kind {
            OpKind::Send { connection, .. } => Some(transfers.connections()[connection].from),
            _ => None,
        };
        from(earlier).is_some() && from(earlier) == from(later)
    }

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
        let total = first_follower[ops.len()] as usize;
        let mut followers = vec![OpId::from_index(0); total];
        // The impatient from the front, the patient from the back.
        let mut front = first_follower[..ops.len()].to_vec();
        let mut back = first_follower[1..].to_vec();
        for op in ops.ids() {
            for &earlier in transfers.after(op) {
                let at = earlier.index();
                if Self::is_patient(transfers, earlier, op) {
                    back[at] -= 1;
                    followers[back[at] as usize] = op;
                } else {
                    followers[front[at] as usize] = op;
                    front[at] += 1;
                }
            }
        }
        for (at, &first) in back.iter().enumerate() {
            followers[first as usize..first_follower[at + 1] as usize].reverse();
        }
        let ready = ops.ids().filter(|op| transfers.after(*op).is_empty()).collect();
        let replay = Self {
            waiting_for,
            first_follower,
            first_patient: back,
            followers,
            unfinished: ops.len(),
        };
        (replay, ready)
    }

    /// Records that a message has arrived, and appends to `ready` what may now start there.
    pub fn arrive(&mut self, op: OpId, ready: &mut Vec<OpId>) {
        let at = op.index();
        self.release(self.first_follower[at]..self.first_patient[at], ready);
    }

    /// Records that the sender of a message knows, and appends to `ready` what may now start
    /// there: what [`Self::arrive`] is to the receiver.
    pub fn know(&mut self, op: OpId, ready: &mut Vec<OpId>) {
        assert_eq!(self.waiting_for[op], 0, "{op:?} finished before it could start");
        self.waiting_for[op] = u32::MAX; // a second finish would trip over this
        self.unfinished -= 1;
        let at = op.index();
        self.release(self.first_patient[at]..self.first_follower[at + 1], ready);
    }

    /// Records that an operation has finished for everybody at once, and appends to `ready` those
    /// that may now start.
    pub fn finish(&mut self, op: OpId, ready: &mut Vec<OpId>) {
        self.arrive(op, ready);
        self.know(op, ready);
    }

    fn release(&mut self, slots: std::ops::Range<u32>, ready: &mut Vec<OpId>) {
        for slot in slots {
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
