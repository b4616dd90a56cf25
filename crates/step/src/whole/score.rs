//! What every stage does in the step's order, with what it costs: the acts of the job's program,
//! as far as they need a clock of their own.
//!
//! Kernels, and collectives that stay inside a server, take their closed form, so a chain of them
//! is one wait. What leaves the server stays an exchange or a message. What runs beside
//! computation begins with it, and what follows waits for both.

use job::Axis;
use job::program::order::{Act, Doing as Told, Message};
use job::program::{Call, Program, Unit};
use job::schedule::{Pass, Task};
use units::Span;

use crate::costs::{Costing, UnitApart, exchange_of, share_of};
use crate::network::{Exchange, Unserved};
use crate::timeline::{Parts, Share, Work};

/// Where a node runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lane {
    /// On the computation stream.
    Compute,
    /// On the stream of weights and gradients.
    Copies,
    /// On a stream beside computation.
    OverlapsWith,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Doing {
    /// Takes time.
    Time(Parts),
    /// A collective of all groups on the fabric.
    Exchange(Exchange),
    /// A message of every rank to the one that stands alike in another stage.
    Send(Message),
    /// Its arrival.
    Receive(Message),
    /// The optimizer, which waits for all stages.
    Optimize(Parts),
}

/// One thing that all copies of a stage do.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) lane: Lane,
    pub(super) work: Work,
    pub(super) micro: u32,
    pub(super) chunk: u32,
    pub(super) doing: Doing,
    /// Nodes of the same stage that it waits for.
    pub(super) after: Vec<u32>,
}

/// What a stage does.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    pub(super) nodes: Vec<Node>,
    /// Kernels and collectives that were told before chains of them became one wait.
    pub(super) unfolded: u64,
}

/// What a stage of a program does.
pub(super) fn stage(costing: &mut Costing<'_, '_>, stage: u64) -> Result<Stage, Unserved> {
    let mut acts = Vec::new();
    let program = costing.program();
    program.acts(stage, &mut |act| acts.push(act));
    let mut builder = Builder {
        costing,
        program,
        stage,
        nodes: Vec::new(),
        ends: vec![Vec::new(); acts.len()],
        apart: Vec::new(),
    };
    let mut first = 0;
    while first < acts.len() {
        let slot = acts[first].slot;
        let end = first + acts[first..].iter().take_while(|act| act.slot == slot).count();
        builder.slot(&acts[first..end], first)?;
        first = end;
    }
    let unfolded = builder.nodes.len() as u64;
    Ok(Stage { nodes: folded(builder.nodes), unfolded })
}

struct Builder<'c, 'a, 'n> {
    costing: &'c mut Costing<'a, 'n>,
    program: &'a Program,
    stage: u64,
    nodes: Vec<Node>,
    /// By act: the nodes that end it.
    ends: Vec<Vec<u32>>,
    /// What units cost, those that were asked for.
    apart: Vec<((Unit, Pass), UnitApart)>,
}

impl Builder<'_, '_, '_> {
    /// All acts of a slot, of which the first has this number.
    fn slot(&mut self, acts: &[Act], first: usize) -> Result<(), Unserved> {
        let is_pass = |act: &Act| matches!(act.doing, Told::Unit(_));
        let mut tasks: Vec<Task> =
            acts.iter().filter(|act| is_pass(act)).map(|act| act.task).collect();
        tasks.dedup();
        if 1 < tasks.len() {
            return self.together(acts, first);
        }
        for (number, act) in (first..).zip(acts) {
            let after = self.nodes_of(&act.after);
            self.ends[number] = self.act(act, after)?;
        }
        Ok(())
    }

    fn nodes_of(&self, acts: &[u64]) -> Vec<u32> {
        let ends = acts.iter().flat_map(|act| &self.ends[*act as usize]).copied();
        let mut nodes: Vec<u32> = ends.collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    fn push(&mut self, lane: Lane, work: Work, task: Task, doing: Doing, after: Vec<u32>) -> u32 {
        let chunk = (task.part / self.program.job.layout.pp.max(1)) as u32;
        let micro = task.microbatch as u32;
        self.nodes.push(Node { lane, work, micro, chunk, doing, after });
        self.nodes.len() as u32 - 1
    }

    /// One act; the nodes that end it.
    fn act(&mut self, act: &Act, after: Vec<u32>) -> Result<Vec<u32>, Unserved> {
        let task = act.task;
        Ok(match act.doing {
            Told::Receive(message) => self.receive(task, message, after)?,
            Told::Gather(call) => vec![self.copy(Work::GatherWeights, task, call, after)?],
            Told::Reduce(call) => vec![self.copy(Work::ReduceGradients, task, call, after)?],
            Told::Unit(unit) => self.unit(task, unit, after)?,
            Told::Send(message) => {
                let doing = Doing::Send(message);
                vec![self.push(Lane::Compute, Work::Message, task, doing, after)]
            }
            Told::Close(call) => {
                let doing = self.exchange(call)?;
                vec![self.push(Lane::Compute, Work::ReduceGradients, task, doing, after)]
            }
            Told::Optimize => {
                let span = self.costing.kernels(&self.program.optimizer(self.stage));
                let doing = Doing::Optimize(Parts::of(Share::Optimizer, span));
                vec![self.push(Lane::Compute, Work::Optimizer, task, doing, after)]
            }
        })
    }

    fn receive(
        &mut self,
        task: Task,
        message: Message,
        after: Vec<u32>,
    ) -> Result<Vec<u32>, Unserved> {
        let doing = Doing::Receive(message);
        // Whoever waits for a message also waits for what its own stage did before.
        let mut at = after.clone();
        at.push(self.push(Lane::Compute, Work::Message, task, doing, after));
        if let Some(gather) = self.program.message_gather() {
            let doing = Doing::Time(Parts::of(Share::Pp, self.costing.call(&gather)?));
            at = vec![self.push(Lane::Compute, Work::Message, task, doing, at)];
        }
        Ok(at)
    }

    /// A collective: on the fabric, or its closed form inside a server.
    fn exchange(&mut self, call: Call) -> Result<Doing, Unserved> {
        if self.costing.network().leaves_the_domain(call.kind) {
            return Ok(Doing::Exchange(exchange_of(&call)));
        }
        let span = self.costing.call(&call)?;
        Ok(Doing::Time(Parts::of(share_of(call.axis()), span)))
    }

    fn copy(
        &mut self,
        work: Work,
        task: Task,
        call: Call,
        after: Vec<u32>,
    ) -> Result<u32, Unserved> {
        let doing = self.exchange(call)?;
        let lane = if self.costing.overlaps(Axis::Dp) { Lane::Copies } else { Lane::Compute };
        Ok(self.push(lane, work, task, doing, after))
    }

    fn apart(&mut self, unit: Unit, pass: Pass) -> Result<UnitApart, Unserved> {
        if let Some((_, apart)) = self.apart.iter().find(|(key, _)| *key == (unit, pass)) {
            return Ok(apart.clone());
        }
        let apart = self.costing.unit_apart(unit, pass)?;
        self.apart.push(((unit, pass), apart.clone()));
        Ok(apart)
    }

    /// A pass over a unit: its time, and beside or behind it what it exchanges.
    fn unit(&mut self, task: Task, unit: Unit, mut at: Vec<u32>) -> Result<Vec<u32>, Unserved> {
        let work = work_of(task.pass);
        for &pass in task.pass.parts() {
            let UnitApart { parts, away } = self.apart(unit, pass)?;
            let hidden: Span = away.iter().map(|away| away.hidden).sum();
            let first = without(parts, hidden);
            at = vec![self.push(Lane::Compute, work, task, Doing::Time(first), at)];
            for away in away {
                let lane =
                    if away.hidden == Span::ZERO { Lane::Compute } else { Lane::OverlapsWith };
                let mut ends = Vec::new();
                if lane == Lane::OverlapsWith {
                    let beside = Doing::Time(Parts::of(Share::Compute, away.hidden));
                    ends.push(self.push(Lane::Compute, work, task, beside, at.clone()));
                }
                for call in away.calls {
                    let doing = Doing::Exchange(exchange_of(&call));
                    at = vec![self.push(lane, work, task, doing, at)];
                }
                at.extend(ends);
            }
        }
        Ok(at)
    }

    /// Two passes that overlap: they compute one after the other, and the tokens of both travel
    /// beside that. Both begin when both have their messages, and send when both are over.
    fn together(&mut self, acts: &[Act], first: usize) -> Result<(), Unserved> {
        let mut begin: Vec<u32> = Vec::new();
        for (number, act) in (first..).zip(acts) {
            let outside = act.after.iter().filter(|before| (**before as usize) < first);
            let outside: Vec<u64> = outside.copied().collect();
            let after = self.nodes_of(&outside);
            match act.doing {
                Told::Receive(message) => {
                    self.ends[number] = self.receive(act.task, message, after)?;
                    begin.extend(&self.ends[number]);
                }
                Told::Unit(_) => begin.extend(after),
                _ => {}
            }
        }
        let beside = self.costing.overlaps(Axis::Ep);
        let tokens = if beside { self.tokens(acts, begin.clone())? } else { None };
        let mut last: Option<u32> = None;
        for (number, act) in (first..).zip(acts) {
            match act.doing {
                Told::Receive(_) | Told::Send(_) => {}
                Told::Unit(unit) => {
                    let mut after = self.nodes_of(&act.after);
                    after.extend(last.map_or(begin.clone(), |last| vec![last]));
                    let doing = Doing::Time(self.computed(act.task, unit)?);
                    let node = self.sorted(Work::ForwardBackward, act.task, doing, after);
                    last = Some(node);
                    self.ends[number] = vec![node];
                }
                _ => {
                    let after = self.nodes_of(&act.after);
                    self.ends[number] = self.act(act, after)?;
                }
            }
        }
        let mut ends: Vec<u32> = tokens.into_iter().chain(last).collect();
        if !beside && let Some(behind) = self.tokens(acts, ends.clone())? {
            ends = vec![behind];
        }
        self.end_together(acts, first, ends)
    }

    /// Pushes a node on the computation stream whose waits are in no order yet.
    fn sorted(&mut self, work: Work, task: Task, doing: Doing, mut after: Vec<u32>) -> u32 {
        after.sort_unstable();
        after.dedup();
        self.push(Lane::Compute, work, task, doing, after)
    }

    /// What a unit computes, with its exchanges inside the server but those of tokens.
    fn computed(&mut self, task: Task, unit: Unit) -> Result<Parts, Unserved> {
        let mut sum = Parts::default();
        for &pass in task.pass.parts() {
            let parts = self.apart(unit, pass)?.parts;
            sum = sum.plus(&without_share(parts, Share::Ep));
        }
        Ok(sum)
    }

    /// The exchanges of tokens of overlapped passes, one after the other; the last of them.
    fn tokens(&mut self, acts: &[Act], begin: Vec<u32>) -> Result<Option<u32>, Unserved> {
        let mut at = begin;
        at.sort_unstable();
        at.dedup();
        let mut last = None;
        for act in acts {
            let Told::Unit(unit) = act.doing else { continue };
            for &pass in act.task.pass.parts() {
                for away in self.apart(unit, pass)?.away {
                    for call in away.calls {
                        let doing = Doing::Exchange(exchange_of(&call));
                        let work = Work::ForwardBackward;
                        let node = self.push(Lane::OverlapsWith, work, act.task, doing, at);
                        (at, last) = (vec![node], Some(node));
                    }
                }
            }
        }
        Ok(last)
    }

    /// What overlapped passes take longer because they overlap, and what they send.
    fn end_together(
        &mut self,
        acts: &[Act],
        first: usize,
        mut ends: Vec<u32>,
    ) -> Result<(), Unserved> {
        let units: Vec<(Unit, Pass)> = acts
            .iter()
            .filter_map(|act| match act.doing {
                Told::Unit(unit) => Some(act.task.pass.parts().iter().map(move |p| (unit, *p))),
                _ => None,
            })
            .flatten()
            .collect();
        let more = self.costing.interleaving(&units)?;
        let task = acts.last().expect("a slot has acts").task;
        if more.total() != Span::ZERO
            && let Some(last) = ends.pop()
        {
            let doing = Doing::Time(more);
            ends.push(self.push(Lane::Compute, Work::ForwardBackward, task, doing, vec![last]));
        }
        for (number, act) in (first..).zip(acts) {
            match act.doing {
                Told::Send(message) => {
                    let doing = Doing::Send(message);
                    let node = self.sorted(Work::Message, act.task, doing, ends.clone());
                    self.ends[number] = vec![node];
                }
                Told::Unit(_) => self.ends[number].extend(&ends),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parts with less computation.
fn without(parts: Parts, computation: Span) -> Parts {
    let left = parts.get(Share::Compute).saturating_sub(computation);
    without_share(parts, Share::Compute).with(Share::Compute, left)
}

fn without_share(parts: Parts, share: Share) -> Parts {
    let others = Share::ALL.into_iter().filter(|other| *other != share);
    others.fold(Parts::default(), |sum, other| sum.with(other, parts.get(other)))
}

fn work_of(pass: Pass) -> Work {
    match pass {
        Pass::Forward => Work::Forward,
        Pass::Backward => Work::Backward,
        Pass::Input => Work::BackwardInputs,
        Pass::Weight => Work::BackwardWeights,
    }
}

/// The same with chains of waits of one pass as one wait: those that only the next one waits for.
fn folded(nodes: Vec<Node>) -> Vec<Node> {
    let mut followers = vec![0_u32; nodes.len()];
    for before in nodes.iter().flat_map(|node| &node.after) {
        followers[*before as usize] += 1;
    }
    let mut kept: Vec<Node> = Vec::new();
    let mut place: Vec<u32> = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        if let (Doing::Time(parts), Lane::Compute, [before]) =
            (node.doing, node.lane, &node.after[..])
            && followers[*before as usize] == 1
        {
            let at = place[*before as usize];
            let last = &mut kept[at as usize];
            let same = |node: &Node| (node.work, node.micro, node.chunk, node.lane);
            if let Doing::Time(sum) = &mut last.doing
                && (last.work, last.micro, last.chunk, last.lane) == same(&node)
            {
                *sum = sum.plus(&parts);
                place.push(at);
                continue;
            }
        }
        node.after = node.after.iter().map(|before| place[*before as usize]).collect();
        node.after.sort_unstable();
        node.after.dedup();
        place.push(kept.len() as u32);
        kept.push(node);
    }
    kept
}
