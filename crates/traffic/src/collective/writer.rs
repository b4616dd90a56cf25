//! How a collective becomes transfers: opened connections, a start, channels, an end.
//!
//! Every collective is written between two operations that take no network: a launch, which waits
//! for what came before and takes the time of starting a kernel on all ranks, and a join, which
//! waits for all its channels. So a collective is one id to those that come after it, whatever its
//! number of channels and messages.

use std::collections::BTreeMap;

use fabric::{Fabric, NodeId};
use units::{Bytes, Id, Span};

use super::communicator::{Communicator, Hop};
use super::{Ask, Collective};
use crate::nccl::route::Ways;
use crate::nccl::{Plan, Settings};
use crate::replay::Replay;
use crate::transfers::{Connection, ConnectionId, LabelId, OpId, OpKind, Transfers};

/// How finely a collective is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Detail {
    /// A channel is one coupled operation.
    #[default]
    Folded,
    /// Every message of every step, with what it waits for.
    Stepwise,
}

/// A communicator, and the connections that it has opened in one [`Transfers`].
#[derive(Clone, Debug)]
pub struct Group {
    /// Its ranks.
    pub communicator: Communicator,
    /// What was opened, for how many channels, and the first of its connections.
    opened: Vec<(&'static str, u32, u32)>,
}

impl Group {
    /// A group that has opened nothing yet.
    pub fn new(communicator: Communicator) -> Self {
        Self { communicator, opened: Vec::new() }
    }
}

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is to be done.
    pub collective: Collective,
    /// With how much, as nccl-tests counts it.
    pub bytes: Bytes,
    /// How finely.
    pub detail: Detail,
    /// What it belongs to: "data-parallel ring 12".
    pub label: LabelId,
    /// By what software.
    pub settings: &'a Settings,
    /// How; from [`crate::nccl::plan`].
    pub plan: &'a Plan,
    /// See [`Ask::weights`].
    pub weights: &'a [f64],
}

/// Writes a collective and returns the operation that ends it.
pub fn write(
    fabric: &Fabric,
    group: &mut Group,
    request: &Request<'_>,
    transfers: &mut Transfers,
    after: &[OpId],
) -> OpId {
    let Request { collective, bytes, detail, label, settings, plan, weights } = *request;
    let start = transfers.add(OpKind::Wait { span: plan.launch }, label, after);
    let Group { communicator, opened } = group;
    let mut sheet = Sheet {
        transfers,
        opened,
        label,
        detail,
        start,
        ends: Vec::new(),
        carried: false,
        edges: Vec::new(),
        hops: Vec::new(),
    };
    let ask = Ask { fabric, communicator, collective, bytes, settings, weights };
    if 1 < ask.shape().ranks {
        plan.algorithm.write(&ask, plan, &mut sheet);
    }
    let Sheet { mut ends, carried, .. } = sheet;
    if ends.is_empty() {
        ends.push(start);
    }
    // Hand-overs lie on the critical path one after the other. A coupled operation carries them
    // itself, and the drain. Of messages an engine shows the ways through NICs and wires, which
    // the plan's latency contains (see `nccl::route`), and the drain where they are written out.
    let span = if carried {
        Span::ZERO
    } else {
        let shown = shown_latency(&ask, plan, transfers, start);
        let drain = if detail == Detail::Folded { plan.drain } else { Span::ZERO };
        plan.latency.saturating_sub(shown) + drain + plan.slowdown
    };
    transfers.add(OpKind::Wait { span }, label, &ends)
}

/// The latencies of NICs and wires on the longest chain of messages that are passed on, from an
/// operation to the last one written. What the other slices of a chunk take hides them.
fn shown_latency(ask: &Ask<'_>, plan: &Plan, transfers: &Transfers, start: OpId) -> Span {
    let (fabric, shape) = (ask.fabric, ask.shape());
    let first = start.index() + 1;
    let is_nic = |node| fabric.nic_number(node).is_some();
    let mut ways = Ways::of(ask);
    // By connection: those of other groups are many, and of no interest here.
    let mut known: BTreeMap<ConnectionId, Span> = BTreeMap::new();
    let mut latest: Vec<Span> = Vec::with_capacity(transfers.ops().len() - first);
    for op in (first..transfers.ops().len()).map(OpId::from_index) {
        // What a sender waits for before it sends again is hidden behind what is under way.
        let passed_on = |earlier: &&OpId| {
            first <= earlier.index() && !Replay::is_patient(transfers, **earlier, op)
        };
        let before = transfers.after(op).iter().filter(passed_on);
        let before = before.map(|earlier| latest[earlier.index() - first]).max();
        let own = match transfers.ops()[op].kind {
            OpKind::Send { connection, bytes } => {
                let Connection { from, to, .. } = transfers.connections()[connection];
                let outside = is_nic(from) || is_nic(to);
                let way = known.entry(connection).or_insert_with(|| ways.between(from, to));
                let (rate, links) = match outside {
                    true => (shape.nic_rate, f64::from(shape.rails)),
                    false => (shape.scale_up_rate, 1.0),
                };
                let sharing = f64::from(plan.channels) / links.max(1.0);
                let others = f64::from(plan.slices - 1) * bytes.as_f64() * sharing.max(1.0);
                let hidden = rate.map_or(0.0, |rate| others / rate.bytes_per_s());
                way.saturating_sub(Span::from_secs_f64(hidden))
            }
            _ => Span::ZERO,
        };
        latest.push(before.unwrap_or(Span::ZERO) + own);
    }
    latest.into_iter().max().unwrap_or(Span::ZERO)
}

/// Where an algorithm writes.
#[derive(Debug)]
pub struct Sheet<'a> {
    transfers: &'a mut Transfers,
    opened: &'a mut Vec<(&'static str, u32, u32)>,
    label: LabelId,
    /// How finely to write.
    pub detail: Detail,
    /// What everything waits for.
    pub start: OpId,
    ends: Vec<OpId>,
    /// Whether coupled operations carry the hand-overs.
    carried: bool,
    /// Room for the edges of a channel.
    pub edges: Vec<ConnectionId>,
    /// Room for the hops of a ring or path.
    pub hops: Vec<Hop>,
}

impl Sheet<'_> {
    /// The first of the connections that `open` opens, which happens only the first time. The
    /// others follow it.
    pub fn open(
        &mut self,
        what: &'static str,
        channels: u32,
        open: impl FnOnce(&mut Opening<'_>),
    ) -> ConnectionId {
        let known = self.opened.iter().find(|(name, count, _)| (*name, *count) == (what, channels));
        if let Some((_, _, first)) = known {
            return ConnectionId::from_index(*first as usize);
        }
        let first = self.transfers.connections().len();
        self.opened.push((what, channels, first as u32));
        open(&mut Opening { transfers: self.transfers, hops: &mut self.hops });
        ConnectionId::from_index(first)
    }

    /// Where a connection leads from and to.
    pub fn connection(&self, connection: ConnectionId) -> &Connection {
        &self.transfers.connections()[connection]
    }

    /// Adds a folded channel over the connections in [`Self::edges`].
    pub fn couple(&mut self, bytes: u64, fill: Span, after: &[OpId]) -> OpId {
        self.carried = true;
        self.transfers.couple(&self.edges, Bytes::new(bytes), fill, self.label, after)
    }

    /// Adds a message; nothing but order where there is nothing to send.
    pub fn send(&mut self, on: ConnectionId, bytes: u64, after: &[OpId]) -> OpId {
        if bytes == 0 {
            return self.transfers.add(OpKind::Wait { span: Span::ZERO }, self.label, after);
        }
        self.transfers.send(on, Bytes::new(bytes), self.label, after)
    }

    /// Adds a wait after an operation; nothing where it takes no time.
    pub fn wait(&mut self, span: Span, after: OpId) -> OpId {
        if span == Span::ZERO {
            return after;
        }
        self.transfers.add(OpKind::Wait { span }, self.label, &[after])
    }

    /// Adds a point that many can wait for at once.
    pub fn join(&mut self, after: &[OpId]) -> OpId {
        self.transfers.add(OpKind::Wait { span: Span::ZERO }, self.label, after)
    }

    /// The collective is not over before this is.
    pub fn end(&mut self, op: OpId) {
        self.ends.push(op);
    }
}

/// Where connections are opened.
#[derive(Debug)]
pub struct Opening<'a> {
    transfers: &'a mut Transfers,
    /// Room for the hops of a ring or path.
    pub hops: &'a mut Vec<Hop>,
}

impl Opening<'_> {
    /// Opens a connection with the scenario's number of queue pairs.
    pub fn connect(&mut self, from: NodeId, to: NodeId, channel: u32) {
        self.transfers.connect(Connection { from, to, channel, queue_pairs: 0 });
    }

    /// Opens a connection for each hop.
    pub fn connect_hops(&mut self, channel: u32) {
        for at in 0..self.hops.len() {
            let Hop { from, to, .. } = self.hops[at];
            self.connect(from, to, channel);
        }
    }
}

/// The connection `offset` places after another that was opened with it.
pub(crate) fn nth(first: ConnectionId, offset: usize) -> ConnectionId {
    ConnectionId::from_index(first.index() + offset)
}

/// Messages that move along a chain of connections, chunk by chunk and slice by slice.
///
/// A slice waits for its arrival from the edge before, and for the slice that used its place in
/// the receiver's buffer: NCCL has eight slots for each connection and takes two for each slice.
#[derive(Debug)]
pub(crate) struct Flow {
    /// By edge: the last messages, oldest first.
    sent: Vec<Vec<OpId>>,
    after: Vec<OpId>,
    start: OpId,
    window: usize,
}

/// Slices of a collective that may be under way on one connection: `NCCL_STEPS` (8) slots, two for
/// each slice.
pub(super) const SLICES: usize = 4;

/// Chunks of a send that may be under way: one slot each.
pub(super) const CHUNKS: usize = 8;

impl Flow {
    /// For the slices of a collective.
    pub(crate) fn new(edges: usize, start: OpId) -> Self {
        Self { sent: vec![Vec::new(); edges], after: Vec::new(), start, window: SLICES }
    }

    /// For slices of which another number may be under way.
    pub(crate) fn of_slices(edges: usize, start: OpId, window: usize) -> Self {
        Self { window, ..Self::new(edges, start) }
    }

    /// For the chunks of sends.
    pub(crate) fn of_sends(edges: usize, start: OpId) -> Self {
        Self { window: CHUNKS, ..Self::new(edges, start) }
    }

    /// Sends one slice over the hops of an edge, after `arrived`.
    pub(crate) fn send(
        &mut self,
        sheet: &mut Sheet<'_>,
        edge: usize,
        hops: &[ConnectionId],
        bytes: u64,
        arrived: &[OpId],
    ) -> OpId {
        self.after.clear();
        self.after.extend_from_slice(arrived);
        if self.after.is_empty() {
            self.after.push(self.start);
        }
        let sent = &mut self.sent[edge];
        let (last, before) = hops.split_last().expect("an edge has a hop");
        for hop in before {
            let op = sheet.send(*hop, bytes, &self.after);
            self.after.clear();
            self.after.push(op);
        }
        // A place in the buffer is free when its sender knows that it has been taken.
        if let Some(at) = sent.len().checked_sub(self.window) {
            self.after.push(sent[at]);
        }
        let op = sheet.send(*last, bytes, &self.after);
        if 2 * self.window <= sent.len() {
            sent.drain(..self.window);
        }
        sent.push(op);
        op
    }
}
