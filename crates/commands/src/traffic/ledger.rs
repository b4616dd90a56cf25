//! What a step puts on every connection between NICs.
//!
//! How it works. The step program says how many bytes the groups of each kind exchange at each
//! stage. Every group is written out once as transfers, in the size of its largest call, with the
//! library's own choice of algorithm and channels; the bytes of each connection are then scaled to
//! what the stage exchanges in the whole step. Groups that stay inside a scale-up domain put
//! nothing on the network and are passed over. Connections are persistent: the collectives of one
//! communicator share them.
//!
//! Messages between stages, and the ring of context parallelism, go from rank to rank.

use std::collections::BTreeMap;

use fabric::{Fabric, NodeId, NodeKind};
use job::dispatch::{Dispatch, Spread};
use job::placement::Placement;
use job::program::{Call, Counted};
use job::{Axis, Coordinates, During, GroupKind, Job, Program};
use traffic::collective::{Detail, Group, Limit, Wanted, lower};
use traffic::nccl::Settings;
use traffic::{Collective, Communicator, Connection, OpKind, Transfers};
use units::{Bytes, Id};

use crate::failure::Failure;

/// What people call a way of exchanging data.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Primitive {
    /// Sums for everybody.
    AllReduce,
    /// Parts for everybody.
    AllGather,
    /// A part of the sum for each.
    ReduceScatter,
    /// From everybody to everybody.
    AllToAll,
    /// From one to another.
    SendRecv,
}

impl Primitive {
    /// All of them, in the order of the results.
    pub const ALL: [Self; 5] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::AllToAll, Self::SendRecv];

    /// The key that results use.
    pub fn word(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::SendRecv => "send_recv",
        }
    }

    fn of(collective: Collective) -> Self {
        match collective {
            Collective::AllReduce | Collective::Reduce => Self::AllReduce,
            Collective::AllGather | Collective::Broadcast => Self::AllGather,
            Collective::ReduceScatter => Self::ReduceScatter,
            Collective::SendRecv => Self::SendRecv,
            _ => Self::AllToAll,
        }
    }
}

/// A connection between two NICs and what a step puts on it.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// From which NIC to which, on which channel.
    pub connection: Connection,
    /// For which axis.
    pub axis: Axis,
    /// The pipeline stage of the sender's group.
    pub stage: u64,
    /// Bytes of the step, by primitive.
    pub bytes: [f64; 5],
}

impl Line {
    /// All bytes.
    pub fn total(&self) -> f64 {
        self.bytes.iter().sum()
    }
}

/// The size of one transfer: what a rank sends to one peer in one call, and all bytes that a step
/// moves in transfers of that size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferSize {
    /// For which axis.
    pub axis: Axis,
    /// What for.
    pub name: &'static str,
    /// One transfer.
    pub bytes: f64,
    /// All of them in a step.
    pub volume: f64,
    /// The stage of who sends.
    pub stage: u64,
    /// What of the step they belong to.
    pub during: During,
}

/// The job, its software and the fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<'a> {
    /// What a step exchanges.
    pub(crate) program: &'a Program,
    /// On what.
    pub(crate) fabric: &'a Fabric,
    /// Which rank runs where.
    pub(crate) placement: &'a Placement,
    /// By what software.
    pub(crate) settings: &'a Settings,
}

/// All calls of one collective on one kind of group.
struct Kind<'c> {
    collective: Collective,
    /// Which ranks have more of its bytes than others.
    spread: Spread,
    /// The size that groups are written in.
    unit: Bytes,
    /// By stage: bytes of the step, as the collective counts them.
    by_stage: Vec<f64>,
    calls: Vec<&'c Counted>,
}

impl Kind<'_> {
    /// The sizes of its transfers. `share` is what goes to one peer of what the collective counts,
    /// `volume` what each stage moves.
    fn add_sizes(&self, axis: Axis, share: f64, volume: &[f64], sizes: &mut Vec<TransferSize>) {
        for counted in &self.calls {
            let at = usize::try_from(counted.stage).expect("few stages");
            let own = counted.call.bytes.as_f64() * counted.times as f64;
            sizes.push(TransferSize {
                axis,
                name: counted.call.name,
                bytes: share * counted.call.bytes.as_f64(),
                volume: volume[at] * own / self.by_stage[at].max(1.0),
                stage: counted.stage,
                during: counted.during,
            });
        }
    }
}

impl Walk<'_> {
    fn job(&self) -> &Job {
        &self.program.job
    }

    fn gpu(&self, rank: u64) -> NodeId {
        let gpu = usize::try_from(self.placement.gpu(rank)).expect("GPUs fit memory");
        self.fabric.gpu(gpu)
    }

    /// Visits every connection between NICs. The sizes of single transfers come back.
    pub(crate) fn each(&self, visit: &mut impl FnMut(&Line)) -> Result<Vec<TransferSize>, Failure> {
        let counted = self.program.counted();
        let mut sizes = Vec::new();
        for kind in GroupKind::ALL {
            let (messages, collectives): (Vec<&Counted>, Vec<&Counted>) = counted
                .iter()
                .filter(|counted| counted.call.kind == kind && 0 < counted.groups)
                .partition(|counted| {
                    counted.call.collective == Collective::SendRecv
                        && matches!(kind, GroupKind::Pipeline | GroupKind::Context)
                });
            if 1 < self.job().layout.group_size(kind) {
                self.groups(kind, &collectives, visit, &mut sizes)?;
                self.messages(&messages, visit, &mut sizes)?;
            }
        }
        Ok(sizes)
    }

    /// All groups of a kind, each with all its collectives.
    fn groups(
        &self,
        kind: GroupKind,
        calls: &[&Counted],
        visit: &mut impl FnMut(&Line),
        sizes: &mut Vec<TransferSize>,
    ) -> Result<(), Failure> {
        let kinds = self.kinds(calls);
        if kinds.is_empty() {
            return Ok(());
        }
        let layout = self.job().layout;
        let weights: Vec<Vec<f64>> = kinds.iter().map(|one| self.weights(kind, one)).collect();
        let mut shares = vec![0.0; kinds.len()];
        let mut volumes = vec![vec![0.0; usize::try_from(layout.pp).expect("few")]; kinds.len()];
        for number in 0..layout.groups(kind) {
            let group = layout.group(kind, number);
            let first = group.member(0);
            if group.members().all(|rank| !self.leaves(first, rank)) {
                continue;
            }
            let gpus: Vec<NodeId> = group.members().map(|rank| self.gpu(rank)).collect();
            let communicator = Communicator::new(self.fabric, &gpus);
            if communicator.domains() < 2 {
                continue;
            }
            let stage = layout.coordinates(first).pp;
            let at = usize::try_from(stage).expect("few stages");
            let mut group = Group::new(communicator);
            let mut transfers = Transfers::new();
            let mut bytes: Vec<[f64; 5]> = Vec::new();
            for (place, one) in kinds.iter().enumerate() {
                let from = transfers.ops().len();
                self.write(&mut group, one, &weights[place], &mut transfers)?;
                let primitive = Primitive::of(one.collective) as usize;
                let factor = one.by_stage[at] / one.unit.as_f64();
                let moved = moved(self.fabric, &transfers, from);
                bytes.resize(transfers.connections().len(), [0.0; 5]);
                for (connection, unit) in moved.iter().enumerate() {
                    bytes[connection][primitive] += unit * factor;
                    volumes[place][at] += unit * factor;
                }
                if shares[place] == 0.0 {
                    shares[place] = largest_pair(&transfers, &moved) / one.unit.as_f64();
                }
            }
            for (connection, bytes) in transfers.connections().iter().zip(&bytes) {
                if bytes.iter().any(|bytes| 0.0 < *bytes) {
                    visit(&Line {
                        connection: *connection,
                        axis: kind.axis(),
                        stage,
                        bytes: *bytes,
                    });
                }
            }
        }
        for ((one, share), volume) in kinds.iter().zip(&shares).zip(&volumes) {
            one.add_sizes(kind.axis(), *share, volume, sizes);
        }
        Ok(())
    }

    /// The collectives of a kind of group, with what every stage exchanges.
    fn kinds<'c>(&self, calls: &[&'c Counted]) -> Vec<Kind<'c>> {
        let stages = usize::try_from(self.job().layout.pp).expect("few stages");
        let mut kinds: Vec<Kind<'c>> = Vec::new();
        for counted in calls {
            let Call { collective, spread, .. } = counted.call;
            let same = |kind: &Kind<'c>| (kind.collective, kind.spread) == (collective, spread);
            let place = kinds.iter().position(same).unwrap_or_else(|| {
                let (unit, by_stage) = (Bytes::new(1), vec![0.0; stages]);
                kinds.push(Kind { collective, spread, unit, by_stage, calls: vec![] });
                kinds.len() - 1
            });
            let kind = &mut kinds[place];
            kind.unit = kind.unit.max(counted.call.bytes);
            let stage = usize::try_from(counted.stage).expect("few stages");
            kind.by_stage[stage] += counted.call.bytes.as_f64() * counted.times as f64;
            kind.calls.push(counted);
        }
        kinds
    }

    /// How the bytes of what experts' ranks exchange are shared out over them.
    fn weights(&self, kind: GroupKind, one: &Kind<'_>) -> Vec<f64> {
        let gpus_per_node = self.fabric.gpus_per_node() as u64;
        let dispatch = Dispatch::of(self.job(), gpus_per_node);
        let Some(dispatch) = dispatch.filter(|_| kind == GroupKind::Expert) else {
            return Vec::new();
        };
        if (one.collective, one.spread) == (Collective::AllToAll, Spread::Even) {
            return dispatch.shares(1 << 40).into_iter().map(|share| share as f64).collect();
        }
        dispatch.weights(one.spread, one.collective)
    }

    fn write(
        &self,
        group: &mut Group,
        kind: &Kind<'_>,
        weights: &[f64],
        transfers: &mut Transfers,
    ) -> Result<(), Failure> {
        let (collective, bytes) = (kind.collective, kind.unit);
        let (fabric, settings) = (self.fabric, self.settings);
        let (detail, limit) = (Detail::Folded, Limit::NONE);
        let label = transfers.label(collective.name());
        let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
        lower(fabric, group, &wanted, transfers, &[])?;
        Ok(())
    }

    /// Messages from rank to rank.
    fn messages(
        &self,
        calls: &[&Counted],
        visit: &mut impl FnMut(&Line),
        sizes: &mut Vec<TransferSize>,
    ) -> Result<(), Failure> {
        let Some(first) = calls.first() else { return Ok(()) };
        let layout = self.job().layout;
        let mut volumes = vec![0.0; calls.len()];
        let mut sent: Vec<(u64, f64)> = Vec::new();
        for rank in 0..layout.gpus() {
            let at = layout.coordinates(rank);
            sent.clear();
            for (counted, volume) in calls.iter().zip(&mut volumes) {
                if at.pp != counted.stage {
                    continue;
                }
                let to = self.receivers(counted, at);
                let own = counted.call.bytes.as_f64() * counted.times as f64 / to.len() as f64;
                for receiver in to.iter().map(|to| layout.rank(*to)) {
                    if !self.leaves(rank, receiver) {
                        continue;
                    }
                    *volume += own;
                    match sent.iter_mut().find(|(known, _)| *known == receiver) {
                        Some((_, bytes)) => *bytes += own,
                        None => sent.push((receiver, own)),
                    }
                }
            }
            sent.sort_unstable_by_key(|(receiver, _)| *receiver);
            for (to, bytes) in &sent {
                self.message(first, (rank, *to), *bytes, visit)?;
            }
        }
        for (counted, volume) in calls.iter().zip(volumes) {
            let (axis, name) = (counted.call.axis(), counted.call.name);
            let (bytes, stage, during) =
                (counted.call.bytes.as_f64(), counted.stage, counted.during);
            sizes.push(TransferSize { axis, name, bytes, volume, stage, during });
        }
        Ok(())
    }

    /// All that one rank sends another.
    fn message(
        &self,
        call: &Counted,
        (from, to): (u64, u64),
        bytes: f64,
        visit: &mut impl FnMut(&Line),
    ) -> Result<(), Failure> {
        let communicator = Communicator::new(self.fabric, &[self.gpu(from), self.gpu(to)]);
        let mut transfers = Transfers::new();
        let one = Kind {
            collective: Collective::SendRecv,
            spread: Spread::Even,
            unit: call.call.bytes,
            by_stage: Vec::new(),
            calls: Vec::new(),
        };
        self.write(&mut Group::new(communicator), &one, &[], &mut transfers)?;
        let stage = self.job().layout.coordinates(from).pp;
        let moved = moved(self.fabric, &transfers, 0);
        for (connection, unit) in transfers.connections().iter().zip(moved) {
            if 0.0 < unit {
                let mut by = [0.0; 5];
                by[Primitive::SendRecv as usize] = unit / one.unit.as_f64() * bytes;
                let (connection, axis) = (*connection, call.call.axis());
                visit(&Line { connection, axis, stage, bytes: by });
            }
        }
        Ok(())
    }

    /// Whether a message between two ranks leaves their scale-up domain.
    fn leaves(&self, from: u64, to: u64) -> bool {
        let domain = self.fabric.gpus_per_domain().max(1) as u64;
        self.placement.gpu(from) / domain != self.placement.gpu(to) / domain
    }

    /// Who gets a rank's message.
    fn receivers(&self, counted: &Counted, at: Coordinates) -> Vec<Coordinates> {
        let layout = &self.job().layout;
        if counted.call.kind == GroupKind::Context {
            return vec![Coordinates { cp: (at.cp + 1) % layout.cp, ..at }];
        }
        let up = Coordinates { pp: (at.pp + 1) % layout.pp, ..at };
        let down = Coordinates { pp: (at.pp + layout.pp - 1) % layout.pp, ..at };
        if self.job().is_bidirectional() {
            // Half of the microbatches go the other way; the ends have one neighbour.
            return match at.pp {
                0 => vec![up],
                last if last + 1 == layout.pp => vec![down],
                _ => vec![up, down],
            };
        }
        vec![if counted.call.name == "activations" { up } else { down }]
    }
}

/// Bytes of the operations from `first` on, by connection; nothing for those inside a domain.
fn moved(fabric: &Fabric, transfers: &Transfers, first: usize) -> Vec<f64> {
    let mut moved = vec![0.0; transfers.connections().len()];
    let is_nic = |connection: &Connection| fabric.nodes()[connection.from].kind == NodeKind::Nic;
    for op in transfers.ops().iter().skip(first) {
        let (connections, bytes) = match &op.kind {
            OpKind::Send { connection, bytes } => (std::slice::from_ref(connection), *bytes),
            OpKind::Coupled { edges, bytes, .. } => (transfers.coupled(edges), *bytes),
            OpKind::Together { .. } | OpKind::Wait { .. } => continue,
        };
        for connection in connections {
            if is_nic(&transfers.connections()[*connection]) {
                moved[connection.index()] += bytes.as_f64();
            }
        }
    }
    moved
}

/// The most that one NIC sends to one other, all channels together.
fn largest_pair(transfers: &Transfers, moved: &[f64]) -> f64 {
    let mut pairs: BTreeMap<(NodeId, NodeId), f64> = BTreeMap::new();
    for (connection, bytes) in transfers.connections().iter().zip(moved) {
        *pairs.entry((connection.from, connection.to)).or_default() += bytes;
    }
    pairs.values().copied().fold(0.0, f64::max)
}
