//! Reads a step off the engine's outcome: the timeline of the copy that ends last, and which
//! exchanges met.
//!
//! Every operation of that copy gets the time that the engine gave it, so its timeline is as long
//! as the run, and breakdown, critical path and pictures are made of it as of any other. Waiting
//! for a slower copy in a collective is `other`, as jitter is.

use std::collections::BTreeMap;

use job::program::order::Message;
use traffic::{OpId, Outcome};
use units::{Span, Time};

use super::cast::Cast;
use super::score::{Doing, Lane, Node, Stage};
use super::write::Sheet;
use crate::costs::share_of;
use crate::network::{Exchange, Unserved, words};
use crate::timeline::{After, LaneId, Parts, Share, StepGraph, StepOp, StepOpId, Stream, Work};

/// Exchanges of one kind and size, as they went in the whole step.
#[derive(Clone, Debug, PartialEq)]
pub struct Meeting {
    /// Whose, and what.
    pub what: String,
    /// With how many bytes.
    pub bytes: u64,
    /// How often, over all groups that make it together.
    pub times: u64,
    /// An undisturbed group, its launch included.
    pub alone: Span,
    /// The mean, from when all are there.
    pub mean: Span,
    /// The longest.
    pub longest: Span,
    /// With what it was under way at the same time, and for how long.
    pub beside: Vec<(String, Span)>,
}

pub(super) struct Reading<'r> {
    pub(super) stages: &'r [Stage],
    pub(super) sheet: &'r Sheet,
    pub(super) outcome: &'r Outcome,
    /// Whether whoever sends waits for its message.
    pub(super) blocking: bool,
    pub(super) overhead: Span,
    /// The copy that is read.
    pub(super) copy: usize,
}

/// The copy of the model that is the last to have its gradients.
pub(super) fn last_copy(stages: &[Stage], cast: &Cast, sheet: &Sheet, outcome: &Outcome) -> usize {
    let copies = cast.copies() as usize;
    let over = |copy: usize| {
        let ends = stages.iter().zip(&sheet.written).flat_map(|(stage, written)| {
            let is_last = |node: &&Node| matches!(node.doing, Doing::Optimize(_));
            let before = stage.nodes.iter().find(is_last).map_or(&[][..], |node| &node.after);
            before.iter().map(move |node| written[*node as usize].ends[copy])
        });
        ends.map(|op| received(outcome, op)).max()
    };
    (0..copies).max_by_key(|copy| (over(*copy), std::cmp::Reverse(*copy))).unwrap_or(0)
}

fn received(outcome: &Outcome, op: OpId) -> Time {
    outcome.ops[op].map_or(Time::ZERO, |times| times.received)
}

/// The streams of a stage.
struct Lanes {
    compute: LaneId,
    copies: LaneId,
    beside: LaneId,
}

impl Reading<'_> {
    /// The operations of the copy, each as long as it took.
    pub(super) fn graph(&self) -> StepGraph {
        let mut graph = StepGraph::new();
        let mut ops: Vec<Vec<Option<StepOpId>>> = Vec::new();
        for (number, stage) in self.stages.iter().enumerate() {
            let lanes = Lanes {
                compute: graph.lane(number as u32, Stream::Compute),
                copies: graph.lane(number as u32, Stream::Communication),
                beside: graph.lane(number as u32, Stream::Communication),
            };
            let nodes = stage.nodes.iter().enumerate();
            let push = |(at, node)| self.op((number, at), node, &lanes).map(|op| graph.push(op));
            ops.push(nodes.map(push).collect());
        }
        for (number, stage) in self.stages.iter().enumerate() {
            for (at, node) in stage.nodes.iter().enumerate() {
                let Some(op) = ops[number][at] else { continue };
                for after in self.waits(number, node, &ops) {
                    graph.wait(op, after);
                }
            }
        }
        self.end(&mut graph, &ops);
        graph
    }

    fn end_of(&self, stage: usize, node: u32) -> Time {
        received(self.outcome, self.sheet.written[stage][node as usize].ends[self.copy])
    }

    /// When everything was there that a node waits for.
    fn ready(&self, stage: usize, node: &Node) -> Time {
        match node.doing {
            Doing::Optimize(_) => received(self.outcome, self.sheet.norm),
            _ => {
                let ends = node.after.iter().map(|before| self.end_of(stage, *before));
                ends.max().unwrap_or(Time::ZERO)
            }
        }
    }

    /// A node as an operation; nothing where it is a message that only the receiver waits for.
    fn op(&self, (stage, at): (usize, usize), node: &Node, lanes: &Lanes) -> Option<StepOp> {
        // A message may have arrived long before anybody waits for it.
        let waits = match node.doing {
            Doing::Send(_) => self.blocking,
            Doing::Receive(_) => false,
            _ => true,
        };
        if !waits {
            return None;
        }
        let (from, to) = (self.ready(stage, node), self.end_of(stage, at as u32));
        let took = to.since(from);
        let written = &self.sheet.written[stage][at];
        let all_there = || {
            let begin = self.outcome.ops[written.begins[self.copy]];
            begin.map_or(from, |times| times.start).max(from).min(to)
        };
        let parts = match node.doing {
            Doing::Time(parts) | Doing::Optimize(parts) => stretched(parts, took),
            Doing::Exchange(exchange) => {
                let late = all_there().since(from);
                let share = share_of(exchange.kind.axis());
                Parts::of(share, took.saturating_sub(late)).with(Share::Other, late)
            }
            Doing::Send(_) | Doing::Receive(_) => Parts::of(Share::Pp, took),
        };
        let lane = match node.lane {
            Lane::Compute => lanes.compute,
            Lane::Copies => lanes.copies,
            Lane::OverlapsWith => lanes.beside,
        };
        let Node { work, micro, chunk, .. } = *node;
        Some(StepOp { lane, work, micro, chunk, parts })
    }

    /// What an operation waits for.
    fn waits(&self, stage: usize, node: &Node, ops: &[Vec<Option<StepOpId>>]) -> Vec<After> {
        let mut waits = Vec::new();
        if let Doing::Optimize(_) = node.doing {
            for (other, stage) in self.stages.iter().enumerate() {
                let last = stage.nodes.iter().find(|n| matches!(n.doing, Doing::Optimize(_)));
                let last = last.expect("a stage ends with its optimizer");
                waits.extend(self.afters(other, &last.after, ops));
            }
            return waits;
        }
        waits.extend(self.afters(stage, &node.after, ops));
        waits
    }

    fn afters(&self, stage: usize, nodes: &[u32], ops: &[Vec<Option<StepOpId>>]) -> Vec<After> {
        let mut waits = Vec::new();
        for before in nodes {
            match (ops[stage][*before as usize], self.stages[stage].nodes[*before as usize].doing) {
                (Some(op), _) => {
                    let delay_share = Share::Dp;
                    waits.push(After { op, delay: Span::ZERO, delay_share });
                }
                (None, Doing::Receive(message)) => {
                    waits.extend(self.flight(stage, *before, message, ops));
                }
                (None, _) => {}
            }
        }
        waits
    }

    /// A message as a wait for whoever sent it, with the time that it was under way.
    fn flight(
        &self,
        stage: usize,
        node: u32,
        message: Message,
        ops: &[Vec<Option<StepOpId>>],
    ) -> Option<After> {
        let from = message.stage as usize;
        let arrived = self.end_of(stage, node);
        let is_it = |node: &Node| {
            matches!(node.doing, Doing::Send(sent)
                if sent.tag == message.tag && sent.stage == stage as u64)
        };
        let sender = self.stages[from].nodes.iter().position(is_it)?;
        let sent = &self.stages[from].nodes[sender];
        let own = ops[from][sender].map(|op| (op, arrived));
        let made = sent.after.iter().filter_map(|before| {
            ops[from][*before as usize].map(|op| (op, self.end_of(from, *before)))
        });
        let (op, end) = own.or_else(|| made.max_by_key(|(_, end)| *end))?;
        let delay = arrived.since(end.min(arrived));
        Some(After { op, delay, delay_share: Share::Pp })
    }

    /// What comes once behind everything.
    fn end(&self, graph: &mut StepGraph, ops: &[Vec<Option<StepOpId>>]) {
        // The first stage's computation is the first lane.
        let lane = graph.lanes().ids().next().expect("there is a stage");
        let parts = Parts::of(Share::Other, self.overhead);
        let (work, micro, chunk) = (Work::Overhead, 0, 0);
        let end = graph.push(StepOp { lane, work, micro, chunk, parts });
        for last in ops.iter().filter_map(|stage| stage.iter().flatten().next_back()) {
            graph.wait(end, After { op: *last, delay: Span::ZERO, delay_share: Share::Dp });
        }
    }

    /// The exchanges of the step, and which of them were under way at the same time.
    pub(super) fn meetings(
        &self,
        message: Exchange,
        alone: &mut dyn FnMut(Exchange) -> Result<Span, Unserved>,
    ) -> Result<Vec<Meeting>, Unserved> {
        let seen = self.exchanges(message);
        let unions: Vec<(&Exchange, Vec<(Time, Time)>)> =
            seen.iter().map(|(exchange, spans)| (exchange, union(spans.clone()))).collect();
        let mut meetings = Vec::new();
        for ((exchange, spans), (_, own)) in seen.iter().zip(&unions) {
            let mut beside: BTreeMap<String, Span> = BTreeMap::new();
            for (other, others) in &unions {
                let shared = common(own, others);
                if other.key() != exchange.key() && shared != Span::ZERO {
                    *beside.entry(named(other)).or_default() += shared;
                }
            }
            let lengths = spans.iter().map(|(from, to)| to.since(*from));
            let all: u128 = lengths.clone().map(|span| u128::from(span.as_ps())).sum();
            let mean = u64::try_from(all / spans.len().max(1) as u128);
            meetings.push(Meeting {
                what: named(exchange),
                bytes: exchange.bytes.get(),
                times: spans.len() as u64,
                alone: alone(*exchange)?,
                mean: Span::from_ps(mean.expect("a mean is no longer than the longest")),
                longest: lengths.max().unwrap_or(Span::ZERO),
                beside: beside.into_iter().collect(),
            });
        }
        Ok(meetings)
    }

    /// From when to when each exchange was under way, once for those that meet in it.
    fn exchanges(&self, message: Exchange) -> BTreeMap<Exchange, Vec<(Time, Time)>> {
        let mut seen: BTreeMap<Exchange, Vec<(Time, Time)>> = BTreeMap::new();
        for (stage, written) in self.stages.iter().zip(&self.sheet.written) {
            for (node, written) in stage.nodes.iter().zip(written) {
                let exchange = match node.doing {
                    Doing::Exchange(exchange) => exchange,
                    Doing::Send(_) if written.begins != written.ends => message,
                    _ => continue,
                };
                let mut pairs: Vec<(OpId, OpId)> =
                    written.begins.iter().copied().zip(written.ends.iter().copied()).collect();
                pairs.sort_unstable();
                pairs.dedup();
                let spans = pairs.into_iter().map(|(begin, end)| {
                    let start = self.outcome.ops[begin].map_or(Time::ZERO, |times| times.start);
                    (start, received(self.outcome, end))
                });
                seen.entry(exchange).or_default().extend(spans);
            }
        }
        seen
    }
}

fn named(exchange: &Exchange) -> String {
    format!("{} {}", words(exchange.kind), exchange.collective.name())
}

/// Parts that took so long: what is longer is `other`.
fn stretched(parts: Parts, took: Span) -> Parts {
    let nominal = parts.total();
    if nominal <= took {
        return parts.with(Share::Other, took - nominal);
    }
    let mut less = nominal - took;
    let mut left = Parts::default();
    for share in Share::ALL {
        let cut = parts.get(share).min(less);
        left.add(share, parts.get(share) - cut);
        less = less.saturating_sub(cut);
    }
    left
}

/// Stretches of time without overlap, in order.
fn union(mut spans: Vec<(Time, Time)>) -> Vec<(Time, Time)> {
    spans.sort_unstable();
    let mut all: Vec<(Time, Time)> = Vec::new();
    for (from, to) in spans {
        match all.last_mut() {
            Some((_, end)) if from <= *end => *end = (*end).max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

/// How long both last at the same time.
fn common(one: &[(Time, Time)], other: &[(Time, Time)]) -> Span {
    let (mut a, mut b, mut sum) = (0, 0, Span::ZERO);
    while a < one.len() && b < other.len() {
        let (from, to) = (one[a].0.max(other[b].0), one[a].1.min(other[b].1));
        if from < to {
            sum += to.since(from);
        }
        if one[a].1 < other[b].1 { a += 1 } else { b += 1 }
    }
    sum
}
