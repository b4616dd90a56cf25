//! Connections, operations, and what they wait for.
//!
//! A [`Connection`] is what NCCL opens once for each channel and peer: a set of queue pairs between
//! two NICs, or a path between two GPUs of one scale-up domain. An operation sends a message on a
//! connection, moves the same bytes over many connections at one rate (a ring or tree channel,
//! folded), or just takes time.

use std::collections::BTreeMap;

use fabric::NodeId;
use units::{Bytes, Id, IdVec, Span, Time};

units::id!(
    /// A persistent connection.
    ConnectionId,
    /// One operation.
    OpId,
    /// What an operation belongs to, in words.
    LabelId,
);

/// A persistent connection between two NICs, or between two GPUs of one scale-up domain.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Connection {
    /// The sending NIC or GPU.
    pub from: NodeId,
    /// The receiving NIC or GPU.
    pub to: NodeId,
    /// Tells apart connections between the same two: NCCL's channel.
    pub channel: u32,
    /// How many queue pairs it has; 0 means the scenario's setting. Scale-up connections ignore it.
    pub queue_pairs: u16,
}

/// What an operation does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OpKind {
    /// Sends one message.
    Send {
        /// On this connection.
        connection: ConnectionId,
        /// So much.
        bytes: Bytes,
    },
    /// Moves `bytes` over each of these connections, all at one rate: a folded ring or tree
    /// channel. Engines that move packets refuse it; collectives can also write themselves out
    /// step by step.
    Coupled {
        /// Where its connections begin and end in [`Transfers::coupled`].
        edges: std::ops::Range<u32>,
        /// So much over each connection.
        bytes: Bytes,
        /// Latency that the steps behind the fold add once: the sum over the pipeline's fill.
        fill: Span,
    },
    /// Sends messages that begin together, and is over when the last has arrived: a folded
    /// exchange. Engines that move packets refuse it.
    Together {
        /// Where they are in [`Transfers::messages`].
        messages: std::ops::Range<u32>,
    },
    /// Takes time and no network: a computation, a launch, a pause.
    Wait {
        /// So long.
        span: Span,
    },
}

/// An operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// What it belongs to.
    pub label: LabelId,
}

/// Where the operations of other transfers went.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Appended {
    /// The operations, in their order.
    pub ops: std::ops::Range<usize>,
    connections: usize,
    coupled: u32,
    messages: u32,
    labels: usize,
}

/// A graph of operations.
#[derive(Clone, Debug, Default)]
pub struct Transfers {
    connections: IdVec<ConnectionId, Connection>,
    coupled: Vec<ConnectionId>,
    messages: Vec<(ConnectionId, Bytes)>,
    ops: IdVec<OpId, Op>,
    /// What op `n` waits for is `after[first_after[n]..first_after[n + 1]]`.
    first_after: Vec<u32>,
    after: Vec<OpId>,
    labels: IdVec<LabelId, String>,
    /// Service levels by connection; those beyond the list have 0.
    levels: Vec<u8>,
    /// Waits that take longer at some times, each with a place in `paces`.
    paced: BTreeMap<OpId, u32>,
    paces: Vec<Pace>,
}

/// Stretches of time, and the share of its speed that something has in each: from, until, share.
pub type Pace = Vec<(Time, Time, f64)>;

impl Transfers {
    /// No operations yet.
    pub fn new() -> Self {
        Self { first_after: vec![0], ..Self::default() }
    }

    /// Adds a label: "data-parallel ring 12".
    pub fn label(&mut self, text: impl Into<String>) -> LabelId {
        self.labels.push(text.into())
    }

    /// Opens a connection.
    pub fn connect(&mut self, connection: Connection) -> ConnectionId {
        self.connections.push(connection)
    }

    /// Adds an operation that waits for earlier ones.
    pub fn add(&mut self, kind: OpKind, label: LabelId, after: &[OpId]) -> OpId {
        let id = self.ops.push(Op { kind, label });
        assert!(after.iter().all(|earlier| *earlier < id), "{id:?} waits for a later operation");
        self.after.extend_from_slice(after);
        if self.first_after.is_empty() {
            self.first_after.push(0);
        }
        self.first_after.push(u32::try_from(self.after.len()).expect("under 2³² dependencies"));
        id
    }

    /// Adds a message.
    pub fn send(&mut self, on: ConnectionId, bytes: Bytes, label: LabelId, after: &[OpId]) -> OpId {
        self.add(OpKind::Send { connection: on, bytes }, label, after)
    }

    /// Adds a folded channel over `edges`.
    pub fn couple(
        &mut self,
        edges: &[ConnectionId],
        bytes: Bytes,
        fill: Span,
        label: LabelId,
        after: &[OpId],
    ) -> OpId {
        let first = self.coupled.len() as u32;
        self.coupled.extend_from_slice(edges);
        let edges = first..self.coupled.len() as u32;
        self.add(OpKind::Coupled { edges, bytes, fill }, label, after)
    }

    /// Lists the messages of these operations, if they are nothing else and wait for `start` alone:
    /// their place in [`Transfers::messages`].
    pub fn gather(
        &mut self,
        ops: std::ops::Range<usize>,
        start: OpId,
    ) -> Option<std::ops::Range<u32>> {
        let first = self.messages.len();
        for op in ops.map(OpId::from_index) {
            match self.ops[op].kind {
                _ if self.after(op) != [start] => (),
                OpKind::Send { connection, bytes } => {
                    self.messages.push((connection, bytes));
                    continue;
                }
                OpKind::Wait { span: Span::ZERO } => continue,
                _ => (),
            }
            self.messages.truncate(first);
            return None;
        }
        let end = u32::try_from(self.messages.len()).expect("under 2³² messages");
        (1 < self.messages.len() - first).then_some(first as u32..end)
    }

    /// Writes operations again that were written one after the other, with what they wait for
    /// among themselves; those that waited for `start` wait for `anew`. A folded channel keeps its
    /// place in [`Transfers::coupled`], so that an engine can tell that it is the same one. By how
    /// many places the new ones are later.
    pub fn again(&mut self, ops: std::ops::Range<usize>, start: OpId, anew: OpId) -> usize {
        let later = self.ops.len() - ops.start;
        let mut after = Vec::new();
        for at in ops.clone() {
            let op = OpId::from_index(at);
            let Op { kind, label } = self.ops[op].clone();
            after.clear();
            after.extend(self.after(op).iter().map(|earlier| match earlier.index() {
                _ if *earlier == start => anew,
                inside => OpId::from_index(inside + later),
            }));
            self.add(kind, label, &after);
        }
        later
    }

    /// The same connections and labels without any operation.
    #[must_use]
    pub fn without_operations(&self) -> Self {
        Self {
            ops: IdVec::default(),
            first_after: vec![0],
            after: Vec::new(),
            paced: BTreeMap::new(),
            paces: Vec::new(),
            ..self.clone()
        }
    }

    /// Writes operations of `other`, whose connections and labels these are too, as
    /// [`Transfers::again`] does; the first of the new ones.
    pub fn again_from(
        &mut self,
        other: &Self,
        ops: std::ops::Range<usize>,
        start: OpId,
        anew: OpId,
    ) -> usize {
        let (first, from) = (self.ops.len(), ops.start);
        let mut after = Vec::new();
        for at in ops {
            let op = OpId::from_index(at);
            let Op { kind, label } = other.ops[op].clone();
            after.clear();
            after.extend(other.after(op).iter().map(|earlier| match earlier.index() {
                _ if *earlier == start => anew,
                inside => OpId::from_index(inside - from + first),
            }));
            self.add(kind, label, &after);
        }
        first
    }

    /// Adds all operations of `other`, whose labels get a name before them; those that wait for
    /// nothing wait for `after`. They have connections of their own, or those of `same`: an earlier
    /// repetition, so that queue pairs are kept.
    pub fn append(
        &mut self,
        other: &Self,
        name: &str,
        after: &[OpId],
        same: Option<&Appended>,
    ) -> Appended {
        let first = self.ops.len();
        let (connections, coupled, messages, labels) = match same {
            Some(same) => (same.connections, same.coupled, same.messages, same.labels),
            None => self.take_ends(other, name),
        };
        let connection = |id: ConnectionId| ConnectionId::from_index(id.index() + connections);
        let mut waits: Vec<OpId> = Vec::new();
        for (id, op) in other.ops.enumerate() {
            let kind = match op.kind.clone() {
                OpKind::Send { connection: on, bytes } => {
                    OpKind::Send { connection: connection(on), bytes }
                }
                OpKind::Coupled { edges, bytes, fill } => {
                    let edges = edges.start + coupled..edges.end + coupled;
                    OpKind::Coupled { edges, bytes, fill }
                }
                OpKind::Together { messages: of } => {
                    OpKind::Together { messages: of.start + messages..of.end + messages }
                }
                wait @ OpKind::Wait { .. } => wait,
            };
            waits.clear();
            waits.extend(other.after(id).iter().map(|op| OpId::from_index(op.index() + first)));
            let label = LabelId::from_index(op.label.index() + labels);
            self.add(kind, label, if waits.is_empty() { after } else { &waits });
        }
        let earlier = self.paces.len() as u32;
        self.paces.extend(other.paces.iter().cloned());
        for (op, pace) in &other.paced {
            self.paced.insert(OpId::from_index(op.index() + first), pace + earlier);
        }
        Appended { ops: first..self.ops.len(), connections, coupled, messages, labels }
    }

    /// Opens the connections of others; where theirs begin among these: connections, those of
    /// folded channels, messages of folded exchanges, labels.
    fn take_ends(&mut self, other: &Self, name: &str) -> (usize, u32, u32, usize) {
        let connections = self.connections.len();
        let coupled = u32::try_from(self.coupled.len()).expect("under 2³² edges");
        let labels = self.labels.len();
        for (id, connection) in other.connections.enumerate() {
            self.connections.push(*connection);
            let level = other.service_level(id);
            if level != 0 {
                self.set_service_level(connections + id.index(), level);
            }
        }
        let moved = |id: &ConnectionId| ConnectionId::from_index(id.index() + connections);
        self.coupled.extend(other.coupled.iter().map(moved));
        let messages = u32::try_from(self.messages.len()).expect("under 2³² messages");
        let them = other.messages.iter().map(|(connection, bytes)| (moved(connection), *bytes));
        self.messages.extend(them);
        for label in other.labels.iter() {
            self.labels.push(format!("{name}: {label}"));
        }
        (connections, coupled, messages, labels)
    }

    /// Gives all connections from this one on a service level, which decides their virtual lane.
    pub fn set_service_level(&mut self, first: usize, level: u8) {
        if level != 0 || first < self.levels.len() {
            self.levels.resize(self.connections.len().max(first), 0);
            self.levels[first..].fill(level);
        }
    }

    /// The service level of a connection.
    pub fn service_level(&self, connection: ConnectionId) -> u8 {
        self.levels.get(connection.index()).copied().unwrap_or(0)
    }

    /// Lets waits have a pace: what the answer is given to takes longer at these times.
    pub fn pace(&mut self, pace: Pace) -> u32 {
        self.paces.push(pace);
        self.paces.len() as u32 - 1
    }

    /// Gives a wait a pace.
    pub fn set_pace(&mut self, op: OpId, pace: u32) {
        self.paced.insert(op, pace);
    }

    /// Whether a wait has a pace.
    pub fn is_paced(&self, op: OpId) -> bool {
        self.paced.contains_key(&op)
    }

    /// When a wait is over that begins at an instant.
    pub fn end_of_wait(&self, op: OpId, start: Time, span: Span) -> Time {
        match self.paced.get(&op) {
            None => start + span,
            Some(pace) => end_at_pace(&self.paces[*pace as usize], start, span),
        }
    }

    /// All connections.
    pub fn connections(&self) -> &IdVec<ConnectionId, Connection> {
        &self.connections
    }

    /// The connections of a folded channel.
    pub fn coupled(&self, edges: &std::ops::Range<u32>) -> &[ConnectionId] {
        &self.coupled[edges.start as usize..edges.end as usize]
    }

    /// The messages of a folded exchange.
    pub fn messages(&self, of: &std::ops::Range<u32>) -> &[(ConnectionId, Bytes)] {
        &self.messages[of.start as usize..of.end as usize]
    }

    /// All operations.
    pub fn ops(&self) -> &IdVec<OpId, Op> {
        &self.ops
    }

    /// What an operation waits for.
    pub fn after(&self, op: OpId) -> &[OpId] {
        let at = op.index();
        &self.after[self.first_after[at] as usize..self.first_after[at + 1] as usize]
    }

    /// The words of a label.
    pub fn label_text(&self, label: LabelId) -> &str {
        &self.labels[label]
    }

    /// All bytes that cross a connection, scale-up and scale-out together.
    pub fn total_bytes(&self) -> u128 {
        let bytes = |op: &Op| match &op.kind {
            OpKind::Send { bytes, .. } => u128::from(bytes.get()),
            OpKind::Coupled { edges, bytes, .. } => {
                u128::from(bytes.get()) * u128::from(edges.end - edges.start)
            }
            OpKind::Together { messages } => {
                self.messages(messages).iter().map(|(_, bytes)| u128::from(bytes.get())).sum()
            }
            OpKind::Wait { .. } => 0,
        };
        self.ops.iter().map(bytes).sum()
    }
}

/// When work is done that begins at an instant, at the lowest of the shares that hold.
fn end_at_pace(pace: &Pace, start: Time, span: Span) -> Time {
    let (mut now, mut left) = (start, span.as_secs_f64());
    loop {
        let on = pace.iter().filter(|(from, until, _)| *from <= now && now < *until);
        let speed = on.map(|(_, _, share)| *share).fold(1.0, f64::min);
        let bounds = pace.iter().flat_map(|(from, until, _)| [*from, *until]);
        let next = bounds.filter(|at| now < *at && *at < Time::MAX).min();
        let Some(next) = next else { return now + Span::from_secs_f64(left / speed) };
        let lasts = next.since(now).as_secs_f64();
        if left <= lasts * speed {
            return now + Span::from_secs_f64(left / speed);
        }
        left -= lasts * speed;
        now = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: 10 s of work at half speed from 4 s to 8 s: 4 + 4 · 0.5 are done by then, 4 s are
    /// left.
    #[test]
    fn work_at_half_its_speed_takes_twice_as_long() {
        let at = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds);
        let pace = vec![(at(4.0), at(8.0), 0.5)];
        let end = |start, work| end_at_pace(&pace, at(start), Span::from_secs_f64(work));
        assert_eq!(end(0.0, 10.0), at(12.0));
        assert_eq!(end(5.0, 1.0), at(7.0));
        assert_eq!(end(8.0, 1.0), at(9.0));
        assert_eq!(end(0.0, 4.0), at(4.0));
        // Of two that hold, the slower counts.
        let both = vec![(at(0.0), Time::MAX, 0.5), (at(0.0), at(2.0), 0.25)];
        assert_eq!(end_at_pace(&both, at(0.0), Span::from_secs_f64(1.0)), at(3.0));
    }

    /// Paces stay with their waits, also when operations are added to others that have some.
    #[test]
    fn paces_stay_with_their_waits() {
        let at = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds);
        let wait = |transfers: &mut Transfers| {
            let label = transfers.label("wait");
            transfers.add(OpKind::Wait { span: Span::ZERO }, label, &[])
        };
        let paced = |transfers: &mut Transfers, share: f64| {
            let op = wait(transfers);
            let pace = transfers.pace(vec![(Time::ZERO, Time::MAX, share)]);
            transfers.set_pace(op, pace);
            op
        };
        let mut all = Transfers::new();
        let [half, quarter] = [0.5, 0.25].map(|share| paced(&mut all, share));
        let mut inner = Transfers::new();
        let free = wait(&mut inner);
        let eighth = paced(&mut inner, 0.125);
        let first = all.append(&inner, "inner", &[], None).ops.start;
        let [free, eighth] = [free, eighth].map(|op| OpId::from_index(first + op.index()));
        let ends = [half, quarter, eighth, free]
            .map(|op| all.end_of_wait(op, Time::ZERO, Span::from_secs_f64(1.0)));
        assert_eq!(ends, [2.0, 4.0, 8.0, 1.0].map(at));
        assert_eq!([half, eighth, free].map(|op| all.is_paced(op)), [true, true, false]);
    }

    /// Two connections, a message on each, the second after the first.
    fn two() -> Transfers {
        let mut transfers = Transfers::new();
        let label = transfers.label("a");
        let ends = |from: usize, to: usize| Connection {
            from: NodeId::from_index(from),
            to: NodeId::from_index(to),
            channel: 0,
            queue_pairs: 1,
        };
        let [one, other] = [ends(0, 1), ends(1, 2)].map(|ends| transfers.connect(ends));
        let first = transfers.send(one, Bytes::new(7), label, &[]);
        transfers.send(other, Bytes::new(9), label, &[first]);
        transfers
    }

    #[test]
    fn without_operations_connections_and_labels_are_left_and_new_ones_wait_for_new_ones() {
        let mut empty = two().without_operations();
        assert_eq!((empty.ops().len(), empty.connections().len()), (0, 2));
        let label = empty.label("b");
        assert_eq!((empty.label_text(LabelId::from_index(0)), empty.label_text(label)), ("a", "b"));
        let span = Span::from_us(1);
        let first = empty.add(OpKind::Wait { span }, label, &[]);
        let second = empty.add(OpKind::Wait { span }, label, &[first]);
        assert_eq!(empty.after(first), []);
        assert_eq!(empty.after(second), [first]);
    }

    /// Levels are those of the connections from one on; what was given before stays, and 0 takes a
    /// level back.
    #[test]
    fn a_service_level_holds_from_a_connection_on() {
        let mut transfers = two();
        let level = |transfers: &Transfers| {
            [0, 1].map(|at| transfers.service_level(ConnectionId::from_index(at)))
        };
        transfers.set_service_level(1, 0);
        assert_eq!(level(&transfers), [0, 0]);
        transfers.set_service_level(1, 3);
        assert_eq!(level(&transfers), [0, 3]);
        transfers.set_service_level(0, 2);
        assert_eq!(level(&transfers), [2, 2]);
        transfers.set_service_level(1, 0);
        assert_eq!(level(&transfers), [2, 0]);
    }
}
