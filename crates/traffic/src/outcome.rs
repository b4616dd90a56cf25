//! What an engine answers: when each operation started and ended, and what the links did.

use fabric::LinkId;
use units::{Bytes, Id, IdVec, Span, Time};

use crate::transfers::OpId;

/// When an operation happened. What starts when is the rule of [`replay`](crate::replay).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OpTimes {
    /// It was allowed to start.
    pub start: Time,
    /// The receiver's software had its last byte.
    pub received: Time,
    /// The sender knew, because its NIC had the acknowledgement, and the receiver had it too.
    pub finish: Time,
}

/// What one directed link did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkUse {
    /// Bytes that crossed it: payload in the flow engine, whole frames in the packet engine.
    pub bytes: u64,
    /// Queue pairs that were routed over it.
    pub flows: u32,
    /// The deepest its queue has been.
    pub peak_queue: Bytes,
    /// How long it was paused or without credits.
    pub paused: Span,
}

/// Totals of a run. An engine leaves what it does not model at zero.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Events that the engine handled.
    pub events: u64,
    /// Links and flows that were looked at to keep rates fair.
    pub looks: u64,
    /// Data packets sent, retransmissions included.
    pub packets: u64,
    /// Data packets times links crossed.
    pub packet_hops: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets marked for congestion.
    pub ecn_marks: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Pauses begun.
    pub pauses: u64,
    /// Sum of all pauses' lengths over links.
    pub paused: Span,
    /// Packets cut to their header.
    pub trims: u64,
}

/// Something the user should hear of: a pause storm, a deadlock, a drop in a lossless class.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// When it was noticed.
    pub at: Time,
    /// What was noticed, in words.
    pub text: String,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// When each operation happened; `None` if it never finished (see `findings`).
    pub ops: IdVec<OpId, Option<OpTimes>>,
    /// What each link did.
    pub links: IdVec<LinkId, LinkUse>,
    /// Totals.
    pub counters: Counters,
    /// When the run ended, if it did before all operations had.
    pub stopped_at: Option<Time>,
    /// What the user should hear about.
    pub findings: Vec<Finding>,
    /// The queue pair that gave up first, which ended the run.
    pub gave_up: Option<Finding>,
    /// A fold of everything that happened: equal digests, equal runs.
    pub digest: u64,
}

/// Why an engine ran nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotRun {
    /// It cannot run this, and says why.
    Refused(String),
    /// Somebody stopped it.
    Interrupted,
    /// Whoever asked wanted to see the transfers and not to have them run.
    OnlySeen,
}

impl std::fmt::Display for NotRun {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(reason) => out.write_str(reason),
            Self::Interrupted => out.write_str("interrupted"),
            Self::OnlySeen => out.write_str("it was not to be run"),
        }
    }
}

impl std::error::Error for NotRun {}

impl Outcome {
    /// When an operation was over where it happens, as a collective is whose last operation this
    /// is; `None` if it never was.
    pub fn over(&self, op: OpId) -> Option<Span> {
        self.ops.get(op).copied().flatten().map(|times| times.received.since(Time::ZERO))
    }

    /// When the last operation finished, its acknowledgement included.
    pub fn makespan(&self) -> Span {
        let finishes = self.ops.iter().flatten().map(|times| times.finish);
        finishes.max().unwrap_or(Time::ZERO).since(Time::ZERO)
    }

    /// How long the run went on: until its last operation, or until it was stopped or nothing moved
    /// any more.
    pub fn elapsed(&self) -> Span {
        let stopped = self.stopped_at.unwrap_or(Time::ZERO).since(Time::ZERO);
        self.makespan().max(stopped)
    }

    /// What happened to some of the operations, on a clock that starts at `from`. Links and
    /// findings are everybody's.
    #[must_use]
    pub fn part(&self, ops: std::ops::Range<usize>, from: Time) -> Self {
        let earlier = |time: Time| Time::ZERO + time.since(from.min(time));
        let moved = |times: OpTimes| OpTimes {
            start: earlier(times.start),
            received: earlier(times.received),
            finish: earlier(times.finish),
        };
        let own = ops.map(|at| self.ops[OpId::from_index(at)].map(moved));
        let (links, findings) = (self.links.clone(), self.findings.clone());
        Self { ops: own.collect(), links, findings, gave_up: self.gave_up.clone(), ..*self }
    }

    /// How many operations finished.
    pub fn completed(&self) -> usize {
        self.ops.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    #[test]
    fn a_part_is_told_on_a_clock_of_its_own() {
        let times = |start: u64| {
            Some(OpTimes { start: at(start), received: at(start + 10), finish: at(start + 15) })
        };
        let outcome = Outcome {
            ops: [times(0), times(100), None].into_iter().collect(),
            links: [LinkUse { bytes: 7, ..LinkUse::default() }].into_iter().collect(),
            counters: Counters { packets: 3, ..Counters::default() },
            stopped_at: Some(at(200)),
            gave_up: Some(Finding { at: at(120), text: "gave up".to_owned() }),
            digest: 9,
            ..Outcome::default()
        };
        let op = OpId::from_index;
        assert_eq!(outcome.over(op(1)), Some(Span::from_ns(110)));
        assert_eq!((outcome.over(op(2)), outcome.over(op(3))), (None, None));
        assert_eq!(
            (outcome.makespan(), outcome.elapsed()),
            (Span::from_ns(115), Span::from_ns(200))
        );
        assert_eq!(outcome.completed(), 2);
        let part = outcome.part(1..3, at(90));
        assert_eq!(part.ops.as_slice(), [times(10), None]);
        assert_eq!((part.links[LinkId::from_index(0)].bytes, part.counters.packets), (7, 3));
        assert_eq!((part.gave_up, part.digest), (outcome.gave_up.clone(), 9));
        // What began before is told from the first instant on.
        assert_eq!(
            outcome.part(0..1, at(12)).ops.as_slice(),
            [Some(OpTimes { start: at(0), received: at(0), finish: at(3) })]
        );
    }

    #[test]
    fn why_nothing_ran_is_said() {
        let said = [NotRun::Refused("too large".to_owned()), NotRun::Interrupted, NotRun::OnlySeen];
        let said = said.map(|reason| reason.to_string());
        assert_eq!(said, ["too large", "interrupted", "it was not to be run"]);
    }
}
