//! The walk through a graph of operations that all engines share, and the one rule of its order.
//!
//! It has no network: engines report what has finished, and it returns what may start. So engines
//! cannot disagree about dependencies.
//!
//! # When an operation is over, and what starts then
//!
//! * A message has **arrived** ([`received`](crate::OpTimes::received)) when the receiver's
//!   software has its last byte: after the sending NIC, all links and switches, and the receiving
//!   NIC.
//! * Its **sender knows** when its NIC has the acknowledgement, which the receiving NIC sends
//!   before its own software knows: one way back after the last byte. There are no acknowledgements
//!   over the scale-up network, and a wait or a folded channel finishes at both ends at once: there
//!   both instants are one. Where the receiver's software takes longer than the way back the sender
//!   knows first; the message is over ([`finish`](crate::OpTimes::finish)) when both have happened.
//! * What waits for a message starts when it has arrived, because it happens there: a receiver
//!   passes on, reduces, or joins. The one exception is another message from the same place as the
//!   first ([`Replay::is_patient`]): it starts when the sender knows, because the sender needs its
//!   buffer back. So a sender's next message waits a round trip, and a chain of ranks does not.
//! * An operation that waits for several starts with the last of them.
//! * A run is over when its last operation is; a collective is over when its last rank has
//!   everything, which is when the operation that [`write`](crate::collective::write()) returns is,
//!   not when the last acknowledgement is back.
//!
//! An engine with a clock reports both instants when they come ([`Replay::arrive`],
//! [`Replay::know`]). One that knows them beforehand reports both at once ([`Replay::finish`]) and
//! takes the instant from [`Replay::start_of`].

use units::{Id, IdVec, Time};

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
#[derive(Clone, Debug)]
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

    /// When an operation may start: at once if it waits for nothing, never (`None`) if one of those
    /// that it waits for never finished. `happened` tells of each of these when it had arrived and
    /// when its sender knew.
    pub fn start_of(
        transfers: &Transfers,
        happened: impl Fn(OpId) -> Option<(Time, Time)>,
        op: OpId,
    ) -> Option<Time> {
        transfers.after(op).iter().try_fold(Time::ZERO, |latest, &earlier| {
            let (arrived, known) = happened(earlier)?;
            let patient = Self::is_patient(transfers, earlier, op);
            Some(latest.max(if patient { known } else { arrived }))
        })
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

    /// Records that an operation has finished at both ends at once, and appends to `ready` those
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

    /// How many an operation still waits for, or nothing if it has finished.
    pub fn waits(&self, op: OpId) -> Option<u32> {
        Some(self.waiting_for[op]).filter(|waits| *waits != u32::MAX)
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
