//! Writes the step of the whole cluster as one set of operations: every copy of every stage.
//!
//! A collective begins when all who meet in it are there, and is over for all of them at once. It
//! is written by its library's algorithm the first time, and from then on as a repetition of that:
//! the same channels, the same connections. A message goes from every rank to the one that stands
//! alike in the other stage.

use std::collections::BTreeMap;
use std::ops::Range;

use job::GroupKind;
use job::program::order::Message;
use traffic::collective::{Detail, Group, Limit};
use traffic::{LabelId, OpId, OpKind, Transfers};
use units::{Id, Span};

use super::cast::{ActorId, Cast};
use super::once::Known;
use super::score::{Doing, Node, Stage};
use crate::network::{Exchange, Network, Unserved};
use crate::timeline::{Parts, Share};

/// When a node happens, by copy of its stage.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// The operation that ends it.
    pub(super) ends: Vec<OpId>,
    /// The operation that begins once all are there, of exchanges and messages.
    pub(super) begins: Vec<OpId>,
}

/// A step, written out.
#[derive(Debug)]
pub struct Sheet {
    /// For an engine.
    pub transfers: Transfers,
    /// By stage and node.
    pub(super) written: Vec<Vec<Written>>,
    /// What the gradients' norm waits for, and what waits for it.
    pub(super) norm: OpId,
    /// The end of the step.
    pub end: OpId,
    /// Every exchange in the order of writing, where some are not written out.
    pub(super) made: Vec<Made>,
}

/// An exchange: who makes it, and the operations that begin and end it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) who: Who,
    pub(super) begin: OpId,
    pub(super) end: OpId,
}

/// Who makes a collective again and again.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Who {
    Club(Exchange, u32),
    Message { from: ActorId, to: ActorId },
}

/// A collective that was written before.
#[derive(Clone, Debug, Default)]
struct Template {
    launch: Span,
    end: Span,
    /// Of each group: its operations between its launch and its end, and these two.
    bodies: Vec<(Range<usize>, OpId, OpId)>,
    /// Of each group, in the same order: its messages, if all of them begin together and it is
    /// over with the last.
    together: Vec<Option<Range<u32>>>,
}

/// How a step is written out.
pub(super) struct Writing<'w, 'n> {
    pub(super) network: &'w Network<'n>,
    pub(super) cast: &'w mut Cast,
    pub(super) stages: &'w [Stage],
    pub(super) detail: Detail,
    /// The most operations.
    pub(super) most: usize,
    /// The message between two stages.
    pub(super) message: Exchange,
    /// How long it takes where it stays inside a server.
    pub(super) message_inside: Option<Span>,
    /// Exchanges that are not written out, because what they take is known.
    pub(super) known: Option<&'w Known>,
    /// Every exchange, written before.
    pub(super) book: Option<&'w Book>,
}

/// Every exchange of a step once, in the order in which the step opens their connections: so queue
/// pairs have their numbers, and their ways, whatever part of the step is run.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    transfers: Transfers,
    templates: BTreeMap<Who, Template>,
}

/// Writes every exchange once.
pub(super) fn write_book(writing: Writing<'_, '_>, order: &[Who]) -> Result<Book, Unserved> {
    let mut writer = Writer::new(writing);
    let begin = writer.wait(Span::ZERO, &[]);
    for who in order {
        if !writer.templates.contains_key(who) {
            writer.first(*who, &[begin])?;
        }
    }
    Ok(Book { transfers: writer.sheet.transfers, templates: writer.templates })
}

/// Writes one exchange by itself, so often in a row, with a pause before each repetition.
pub(super) fn write_alone(
    writing: Writing<'_, '_>,
    who: Who,
    (times, pause): (usize, Span),
) -> Result<Sheet, Unserved> {
    let mut writer = Writer::new(writing);
    let mut after: Vec<OpId> = Vec::new();
    for _ in 0..times {
        let (begin, end) = writer.made(who, &after)?;
        writer.sheet.made.push(Made { who, begin, end });
        after = vec![writer.wait(pause, &[end])];
    }
    Ok(writer.sheet)
}

/// Writes a step; `overhead` comes once behind it.
pub(super) fn write(writing: Writing<'_, '_>, overhead: Span) -> Result<Sheet, Unserved> {
    let mut writer = Writer::new(writing);
    writer.passes()?;
    writer.norm();
    writer.passes()?;
    let last = writer.sheet.written.iter().filter_map(|stage| stage.last());
    let last: Vec<OpId> = last.flat_map(|written| written.ends.iter().copied()).collect();
    let wait = OpKind::Wait { span: overhead };
    writer.sheet.end = writer.sheet.transfers.add(wait, writer.label, &last);
    Ok(writer.sheet)
}

struct Writer<'w, 'n> {
    writing: Writing<'w, 'n>,
    sheet: Sheet,
    label: LabelId,
    /// Of actors that have slow GPUs.
    paces: BTreeMap<ActorId, u32>,
    /// By stage: the node that is written next.
    next: Vec<usize>,
    /// Where messages were sent: the stage's node, by the stages and the tag.
    sent: BTreeMap<(u64, u64, u64), usize>,
    templates: BTreeMap<Who, Template>,
    groups: BTreeMap<(GroupKind, u64), Group>,
}

impl<'w, 'n> Writer<'w, 'n> {
    fn new(writing: Writing<'w, 'n>) -> Self {
        let mut transfers =
            writing.book.map_or_else(Transfers::new, |book| book.transfers.without_operations());
        let label = transfers.label("computation");
        let paces = writing.cast.paces.iter();
        let paces = paces.map(|(actor, pace)| (*actor, transfers.pace(pace.clone()))).collect();
        let (norm, stages) = (OpId::from_index(0), writing.stages.len());
        let (written, made) = (vec![Vec::new(); stages], Vec::new());
        Self {
            sent: BTreeMap::new(),
            templates: BTreeMap::new(),
            groups: BTreeMap::new(),
            next: vec![0; stages],
            sheet: Sheet { transfers, written, norm, end: norm, made },
            writing,
            label,
            paces,
        }
    }

    fn node(&self, stage: usize) -> Option<&Node> {
        self.writing.stages[stage].nodes.get(self.next[stage])
    }

    /// Writes all stages as far as they come, each until it waits for a message of another that is
    /// not written yet, or for the gradients' norm.
    fn passes(&mut self) -> Result<(), Unserved> {
        loop {
            let before: usize = self.next.iter().sum();
            for stage in 0..self.next.len() {
                while self.can_write(stage) {
                    self.write(stage)?;
                }
            }
            if self.next.iter().sum::<usize>() == before {
                return Ok(());
            }
        }
    }

    fn can_write(&self, stage: usize) -> bool {
        let Some(node) = self.node(stage) else { return false };
        match node.doing {
            Doing::Receive(message) => {
                self.sent.contains_key(&(message.stage, stage as u64, message.tag))
            }
            Doing::Exchange(exchange) if exchange.kind == GroupKind::Mirror => {
                let is_there = |doing| matches!(doing, Doing::Exchange(e) if e == exchange);
                let mirror = self.next.len() - 1 - stage;
                self.node(mirror).is_some_and(|node| is_there(node.doing))
            }
            // Behind the norm it has a place among what is written.
            Doing::Optimize(_) => self.sheet.norm != OpId::from_index(0),
            _ => true,
        }
    }

    /// The gradients' norm: all stages have theirs.
    fn norm(&mut self) {
        let stages = 0..self.next.len();
        let mut after: Vec<OpId> = Vec::new();
        for stage in stages {
            let node = self.node(stage).expect("a stage ends with its optimizer");
            let ends = node.after.iter().flat_map(|n| &self.sheet.written[stage][*n as usize].ends);
            after.extend(ends);
        }
        after.sort_unstable();
        after.dedup();
        self.sheet.norm = self.wait(Span::ZERO, &after);
    }

    fn wait(&mut self, span: Span, after: &[OpId]) -> OpId {
        self.sheet.transfers.add(OpKind::Wait { span }, self.label, after)
    }

    /// What a node waits for in one copy.
    fn after(&self, stage: usize, copy: usize) -> Vec<OpId> {
        let node = self.node(stage).expect("it is being written");
        let written = &self.sheet.written[stage];
        let mut after: Vec<OpId> =
            node.after.iter().map(|before| written[*before as usize].ends[copy]).collect();
        after.sort_unstable();
        after.dedup();
        after
    }

    /// Writes the next node of a stage, for all its copies.
    fn write(&mut self, stage: usize) -> Result<(), Unserved> {
        let doing = self.node(stage).expect("asked for before").doing;
        let copies = self.writing.cast.copies() as usize;
        let written = match doing {
            Doing::Time(parts) => self.times(stage, parts),
            Doing::Optimize(parts) => {
                let norm = self.sheet.norm;
                let ends = (0..copies).map(|copy| self.compute((stage, copy), &parts, &[norm]));
                Written { ends: ends.collect(), begins: Vec::new() }
            }
            Doing::Receive(message) => {
                let from = message.stage as usize;
                let node = self.sent[&(message.stage, stage as u64, message.tag)];
                self.sheet.written[from][node].clone()
            }
            Doing::Send(message) => self.send(stage, message)?,
            Doing::Exchange(exchange) => return self.exchange(stage, exchange),
        };
        self.put(stage, written);
        Ok(())
    }

    fn put(&mut self, stage: usize, written: Written) {
        self.sheet.written[stage].push(written);
        self.next[stage] += 1;
    }

    fn slowness(&self, stage: usize, copy: usize) -> f64 {
        let cast = &self.writing.cast;
        cast.slowness[cast.actor(stage as u64, copy as u64).index()]
    }

    fn times(&mut self, stage: usize, parts: Parts) -> Written {
        let copies = 0..self.writing.cast.copies() as usize;
        let ends = copies.map(|copy| {
            let after = self.after(stage, copy);
            self.compute((stage, copy), &parts, &after)
        });
        Written { ends: ends.collect(), begins: Vec::new() }
    }

    /// What a copy of a stage computes.
    fn compute(&mut self, (stage, copy): (usize, usize), parts: &Parts, after: &[OpId]) -> OpId {
        let span = slowed(parts, self.slowness(stage, copy));
        let actor = self.writing.cast.actor(stage as u64, copy as u64);
        let Some(&pace) = self.paces.get(&actor) else { return self.wait(span, after) };
        // A slow GPU is slow in its kernels; what its group exchanges takes as long as ever.
        let exchanged = parts.total().saturating_sub(parts.get(Share::Compute));
        let computed = self.wait(span.saturating_sub(exchanged), after);
        self.sheet.transfers.set_pace(computed, pace);
        self.wait(exchanged, &[computed])
    }

    /// The messages of all ranks of a stage.
    fn send(&mut self, stage: usize, message: Message) -> Result<Written, Unserved> {
        self.sent.insert((stage as u64, message.stage, message.tag), self.next[stage]);
        let mut written = Written::default();
        for copy in 0..self.writing.cast.copies() {
            let after = self.after(stage, copy as usize);
            let (begin, end) = match self.writing.message_inside {
                Some(span) => {
                    let op = self.wait(span, &after);
                    (op, op)
                }
                None => {
                    let cast = &self.writing.cast;
                    let from = cast.actor(stage as u64, copy);
                    let to = cast.actor(message.stage, copy);
                    self.exchanged(Who::Message { from, to }, &after)?
                }
            };
            written.begins.push(begin);
            written.ends.push(end);
        }
        Ok(written)
    }

    /// A collective of all actors of a stage; of mirrored stages, of both.
    fn exchange(&mut self, stage: usize, exchange: Exchange) -> Result<(), Unserved> {
        let cast = &mut *self.writing.cast;
        let copies = cast.copies() as usize;
        let clubs = cast.clubs(exchange.kind).clone();
        let mut stages = vec![stage];
        if exchange.kind == GroupKind::Mirror && stage != self.next.len() - 1 - stage {
            stages.push(self.next.len() - 1 - stage);
        }
        let mut written = Vec::new();
        for stage in &stages {
            // Whoever is in no group goes on.
            let ends = (0..copies).map(|copy| {
                let alone = clubs.of[stage * copies + copy].is_none();
                if alone {
                    self.wait(Span::ZERO, &self.after(*stage, copy))
                } else {
                    self.sheet.norm
                }
            });
            let ends: Vec<OpId> = ends.collect();
            written.push(Written { begins: ends.clone(), ends });
        }
        for (number, club) in (0..).zip(&clubs.all) {
            let place = |actor: &ActorId| {
                let (at, copy) = (actor.index() / copies, actor.index() % copies);
                stages.iter().position(|stage| *stage == at).map(|place| (place, copy))
            };
            let here: Vec<(usize, usize)> = club.actors.iter().filter_map(place).collect();
            if here.is_empty() {
                continue;
            }
            let after = here.iter().flat_map(|(place, copy)| self.after(stages[*place], *copy));
            let mut after: Vec<OpId> = after.collect();
            after.sort_unstable();
            after.dedup();
            let (begin, end) = self.exchanged(Who::Club(exchange, number), &after)?;
            for (place, copy) in here {
                written[place].begins[copy] = begin;
                written[place].ends[copy] = end;
            }
        }
        for (stage, written) in stages.into_iter().zip(written) {
            self.put(stage, written);
        }
        Ok(())
    }

    /// A collective or a message, written out or as long as it is known to take: the operation
    /// that begins it and the one that ends it.
    fn exchanged(&mut self, who: Who, after: &[OpId]) -> Result<(OpId, OpId), Unserved> {
        let Some(known) = self.writing.known else { return self.made(who, after) };
        let exchange = self.exchange_of(who);
        let (begin, end) = match known.span(self.sheet.made.len(), who, exchange) {
            None => self.made(who, after)?,
            Some(span) => {
                let begin = self.wait(Span::ZERO, after);
                (begin, self.wait(span, &[begin]))
            }
        };
        self.sheet.made.push(Made { who, begin, end });
        Ok((begin, end))
    }

    fn exchange_of(&self, who: Who) -> Exchange {
        match who {
            Who::Club(exchange, _) => exchange,
            Who::Message { .. } => self.writing.message,
        }
    }

    /// A collective or a message: the operation that begins it and the one that ends it.
    fn made(&mut self, who: Who, after: &[OpId]) -> Result<(OpId, OpId), Unserved> {
        self.refuse_too_many()?;
        if let Some(book) = self.writing.book {
            return Ok(self.write_from_book(book, who, after));
        }
        let Some(template) = self.templates.get(&who) else { return self.first(who, after) };
        let Template { launch, end, bodies, together } = template.clone();
        let begin = self.wait(launch, after);
        let transfers = &mut self.sheet.transfers;
        let mut ends: Vec<OpId> = Vec::new();
        for ((body, start, end), together) in bodies.into_iter().zip(together) {
            if let Some(messages) = together {
                let label = transfers.ops()[start].label;
                ends.push(transfers.add(OpKind::Together { messages }, label, &[begin]));
                continue;
            }
            let later = transfers.again(body, start, begin);
            let of_end = transfers.after(end).iter().map(|op| match *op == start {
                true => begin,
                false => OpId::from_index(op.index() + later),
            });
            ends.extend(of_end);
        }
        ends.dedup();
        Ok((begin, self.wait(end, &ends)))
    }

    /// The same from the book of all exchanges.
    fn write_from_book(&mut self, book: &Book, who: Who, after: &[OpId]) -> (OpId, OpId) {
        let Template { launch, end, bodies, .. } = &book.templates[&who];
        let begin = self.wait(*launch, after);
        let mut ends: Vec<OpId> = Vec::new();
        for (body, start, end) in bodies {
            let transfers = &mut self.sheet.transfers;
            let first = transfers.again_from(&book.transfers, body.clone(), *start, begin);
            let of_end = book.transfers.after(*end).iter().map(|op| match *op == *start {
                true => begin,
                false => OpId::from_index(op.index() - body.start + first),
            });
            ends.extend(of_end);
        }
        ends.dedup();
        (begin, self.wait(*end, &ends))
    }

    fn refuse_too_many(&self) -> Result<(), Unserved> {
        let (written, most) = (self.sheet.transfers.ops().len(), self.writing.most);
        if written <= most {
            return Ok(());
        }
        Err(Unserved::TooLong(most))
    }

    /// The same for the first time, by the library's algorithm.
    fn first(&mut self, who: Who, after: &[OpId]) -> Result<(OpId, OpId), Unserved> {
        let mut template = Template::default();
        let mut ends = Vec::new();
        let begin = OpId::from_index(self.sheet.transfers.ops().len());
        let (exchange, groups) = match who {
            Who::Club(exchange, club) => {
                let clubs = self.writing.cast.clubs(exchange.kind);
                (exchange, clubs.all[club as usize].groups.clone())
            }
            Who::Message { .. } => {
                (self.writing.message, (0..self.writing.cast.layout.tp).collect())
            }
        };
        for number in groups {
            let mut group = self.group(who, number);
            let start = OpId::from_index(self.sheet.transfers.ops().len());
            let (detail, most) = (self.writing.detail, self.writing.most);
            let operations = most.saturating_sub(start.index());
            let limit = Limit { operations, copies: 1 };
            let (network, transfers) = (self.writing.network, &mut self.sheet.transfers);
            let end =
                network.write_group(exchange, &mut group, (detail, limit), transfers, after)?;
            if let Who::Club(..) = who {
                self.groups.insert((exchange.kind, number), group);
            }
            let span = |op: OpId| match self.sheet.transfers.ops()[op].kind {
                OpKind::Wait { span } => span,
                _ => Span::ZERO,
            };
            template.launch = template.launch.max(span(start));
            template.end = template.end.max(span(end));
            let body = start.index() + 1..end.index();
            // What ends it must wait for all of them.
            let joins = self.sheet.transfers.after(end).len() == body.len();
            let folds = self.writing.detail == Detail::Folded && joins;
            let gathered = folds.then(|| self.sheet.transfers.gather(body.clone(), start));
            template.together.push(gathered.flatten());
            template.bodies.push((body, start, end));
            ends.push(end);
        }
        self.templates.insert(who, template);
        let end = if let [one] = ends[..] { one } else { self.wait(Span::ZERO, &ends) };
        Ok((begin, end))
    }

    fn group(&mut self, who: Who, number: u64) -> Group {
        let (network, cast) = (self.writing.network, &self.writing.cast);
        match who {
            Who::Club(exchange, _) => {
                let known = self.groups.remove(&(exchange.kind, number));
                known.unwrap_or_else(|| {
                    let members = cast.layout.group(exchange.kind, number).members();
                    Group::new(network.communicator_of(members))
                })
            }
            Who::Message { from, to } => {
                let ranks = [from, to].map(|actor| cast.rank(actor, number));
                Group::new(network.communicator_of(ranks.into_iter()))
            }
        }
    }
}

/// How long parts take if computation takes so many times as long.
pub(super) fn slowed(parts: &Parts, factor: f64) -> Span {
    let computed = parts.get(Share::Compute);
    let others = parts.total().saturating_sub(computed);
    others + Span::from_secs_f64(computed.as_secs_f64() * factor)
}
