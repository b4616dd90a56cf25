//! What the step's communication costs on the fabric: all groups of a kind at once, on an engine.
//!
//! How it works. A phase of communication is one collective run by all groups of one kind at the
//! same time (all gradient rings of the cluster, all expert groups, every boundary of every
//! pipeline). Groups that stay inside one scale-up domain meet nobody, so the closed form is exact
//! for them. All others are written out as transfers over the whole cluster and given to the chosen
//! engine, once for each kind and collective. What it takes has two parts: hand-overs, the ways
//! through NICs, cables and switches and the filling of pipelines, which nobody else's bytes make
//! longer; and bytes on links. The ratio of the second part to that of an undisturbed group is what
//! the fabric costs (collisions, oversubscription, incast), and holds for other sizes of the same
//! phase; the first part is that of each size. A run that was mostly the first part says little of
//! larger sizes, so these are run themselves. Without an engine the closed form stands alone; of
//! contention it knows groups of one kind that share a NIC.
//!
//! The slowest group decides, because a step ends when all have ended and queue pairs keep their
//! paths: the same group is slow every time. Messages that a pipeline hides are another matter: a
//! microbatch crosses all boundaries in turn, so what counts is their mean, in the slowest copy
//! ([`Network::along`]).
//!
//! Several phases at once contend: [`Network::along_beside`].

use std::collections::BTreeMap;

use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId, NodeId};
use job::dispatch::{Dispatch, Spread};
use job::placement::Placement;
use job::{Axis, GroupKind, Layout};
use traffic::collective::{Ask, Detail, Group, Limit, Unlowered, Wanted, lower};
use traffic::nccl::{self, Settings};
use traffic::{Collective, Communicator, NotRun, OpId, OpKind, Outcome, Transfers};
use units::{Bytes, Id, IdVec, Span};

use crate::causes::{ByAxis, Cause, Causes, Excess, PhaseFacts};
use crate::costs::share_of;
use crate::jitter::Straggler;

/// What runs transfers on a fabric.
pub type Engine<'a> = dyn FnMut(&Fabric, &Transfers) -> Result<Outcome, NotRun> + 'a;

/// Circuits that are set anew, once all passes are over, for what copies of the model exchange, and
/// back again for the passes of the next step.
#[derive(Clone, Copy, Debug)]
pub struct Reset<'a> {
    /// The fabric as it is then.
    pub fabric: &'a Fabric,
    /// How long nothing crosses the circuits, each time.
    pub takes: Span,
}

/// An engine, and how it wants its transfers.
pub struct Runner<'a> {
    /// Runs them. A phase of which it has only seen the transfers counts as undisturbed.
    pub engine: &'a mut Engine<'a>,
    /// How finely collectives are written out.
    pub detail: Detail,
    /// The most bytes that a phase is run with, for engines whose cost grows with bytes; what
    /// comes out holds for larger ones in proportion.
    pub largest: Option<Bytes>,
    /// The most operations that a phase may be written out to: above, it is refused before it
    /// fills the memory.
    pub most_operations: usize,
    /// Phases that were run already and need not be run again.
    pub known: Vec<Phase>,
    /// What the engine knows of the fabric that the fabric does not.
    pub beside: EngineContext,
    /// How often those exchanges of a whole step are run that begin on idle links and stand for
    /// all equal ones; 0 where all are run.
    pub once: usize,
}

/// What an engine is told besides fabric and transfers, for telling causes apart.
#[derive(Clone, Debug, Default)]
pub struct EngineContext {
    /// What is down or worse from the beginning.
    pub faults: Option<fabric::Health>,
    /// Whether receivers punish packets that routing lets overtake each other.
    pub reorders: bool,
    /// Whether whole frames are counted on links, and not payload.
    pub counts_frames: bool,
}

impl<'a> Runner<'a> {
    /// An engine that takes folded collectives of any size.
    pub fn folded(engine: &'a mut Engine<'a>) -> Self {
        let (largest, most_operations, known) = (None, usize::MAX, Vec::new());
        let (detail, beside) = (Detail::Folded, EngineContext::default());
        Self { engine, detail, largest, most_operations, known, beside, once: 0 }
    }
}

/// One collective of all groups of a kind.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Exchange {
    /// Which groups.
    pub kind: GroupKind,
    /// What they do.
    pub collective: Collective,
    /// With how much, as nccl-tests counts it.
    pub bytes: Bytes,
    /// Which ranks have more of it than others.
    pub spread: Spread,
}

/// Exchanges with the same key differ by their bytes alone.
pub type Key = (GroupKind, Collective, Spread);

impl Exchange {
    /// What it is, whatever its bytes.
    pub fn key(&self) -> Key {
        (self.kind, self.collective, self.spread)
    }
}

/// What the fabric made of a phase.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What was run; `bytes` are those of the run.
    pub exchange: Exchange,
    /// As many bytes as the step wanted it with: more than were run where it was run in part.
    pub whole: Bytes,
    /// Groups that ran it.
    pub groups: u64,
    /// An undisturbed group, without the launch.
    pub alone: Span,
    /// The part of it that contention does not make longer: hand-overs, ways, filling pipelines.
    pub fixed: Span,
    /// The slowest group on the engine, without the launch; without an engine as `alone`, or as
    /// long as groups that share its NICs make it.
    pub slowest: Span,
    /// How much longer than undisturbed its bytes are on the links.
    pub contention: f64,
    /// The same of a message on its way down the slowest pipeline, on average over its boundaries.
    pub along: f64,
    /// What of that is whose.
    pub excess: Excess,
    /// What the links did; empty without an engine.
    pub links: IdVec<LinkId, traffic::LinkUse>,
    /// What the engine noticed.
    pub findings: Vec<String>,
}

impl Phase {
    /// Whether an engine ran it in part: what came out was scaled up.
    pub fn is_part(&self) -> bool {
        self.exchange.bytes < self.whole
    }

    /// How much longer than undisturbed.
    pub fn slowdown(&self) -> f64 {
        self.slowest.as_secs_f64() / self.alone.as_secs_f64().max(1e-12)
    }

    /// Whether what it was run with tells how so many bytes fare: not if it was mostly hand-overs
    /// and ways, and they are many more.
    fn tells_of(&self, bytes: Bytes) -> bool {
        let is_like = bytes.get() <= self.exchange.bytes.get().saturating_mul(2);
        is_like || self.links.is_empty() || self.fixed + self.fixed <= self.alone
    }
}

/// Why there is no step: a phase that cannot be run on this fabric, or was not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unserved {
    /// A collective of these groups cannot be written out.
    Unlowered(GroupKind, Unlowered),
    /// The whole step is more than so many operations.
    TooLong(usize),
    /// The engine ran nothing.
    NotRun(NotRun),
    /// So many transfers of a phase did not end, and what the engine says of that.
    Unfinished(GroupKind, Collective, usize, String),
}

impl std::fmt::Display for Unserved {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlowered(kind, reason) => write!(out, "{}: {reason}", words(*kind)),
            Self::TooLong(most) => write!(
                out,
                "the whole step is more than {most} operations, more than memory holds: --force \
                 writes it all the same, and without --whole phases are run one by one"
            ),
            Self::NotRun(reason) => reason.fmt(out),
            Self::Unfinished(kind, collective, lost, why) => {
                let (groups, collective) = (words(*kind), collective.name());
                write!(out, "{lost} transfers of the {groups} {collective} did not end{why}")
            }
        }
    }
}

impl std::error::Error for Unserved {}

/// The fabric as one job sees it.
pub struct Network<'a> {
    fabric: &'a Fabric,
    reset: Option<Reset<'a>>,
    layout: Layout,
    placement: &'a Placement,
    settings: Settings,
    runner: Option<Runner<'a>>,
    /// How loaded the ranks' experts are; nothing for a dense model.
    dispatch: Option<Dispatch>,
    phases: BTreeMap<Key, Phase>,
    /// Whether phases that were run are told as if nobody had met anybody.
    undisturbed: bool,
    /// A phase that is told so although others are not.
    calm: Option<Key>,
    /// Messages that began together with another phase, as they were run.
    beside: BTreeMap<(Exchange, Exchange), Span>,
    /// By kind: a group that stands for the others.
    representatives: BTreeMap<GroupKind, Communicator>,
}

impl std::fmt::Debug for Network<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Network").field("phases", &self.phases).finish_non_exhaustive()
    }
}

impl<'a> Network<'a> {
    /// The fabric as a job with this layout and placement sees it.
    pub fn new(
        fabric: &'a Fabric,
        layout: Layout,
        placement: &'a Placement,
        settings: Settings,
        mut runner: Option<Runner<'a>>,
    ) -> Self {
        let (reset, dispatch, representatives) = (None, None, BTreeMap::new());
        let known = runner.as_mut().map(|runner| std::mem::take(&mut runner.known));
        let known = known.into_iter().flatten().map(|phase| (phase.exchange.key(), phase));
        let phases = known.collect();
        Self {
            fabric,
            reset,
            layout,
            placement,
            settings,
            runner,
            dispatch,
            phases,
            undisturbed: false,
            calm: None,
            beside: BTreeMap::new(),
            representatives,
        }
    }

    /// From here on phases take as long as if every group had the links to itself but for NICs
    /// that it shares.
    pub fn disturb_nobody(&mut self) {
        self.undisturbed = true;
    }

    /// From here on this phase alone is told as if its groups had met nobody.
    pub fn disturb_all_but(&mut self, calm: Option<Key>) {
        self.calm = calm;
    }

    /// What a phase's bytes are multiplied by if somebody meets them; else by NICs that they share.
    fn contention(&self, phase: &Phase, met: f64) -> f64 {
        let is_calm = self.undisturbed || self.calm == Some(phase.exchange.key());
        if is_calm { 1.0 + phase.excess.line_rate } else { met }
    }

    /// The same with experts that are loaded like this.
    #[must_use]
    pub fn with_dispatch(mut self, dispatch: Option<Dispatch>) -> Self {
        self.dispatch = dispatch;
        self
    }

    /// The same with circuits that are set anew for what copies exchange.
    #[must_use]
    pub fn with_reset(mut self, reset: Option<Reset<'a>>) -> Self {
        self.reset = reset;
        self
    }

    /// How long circuits take to be set anew between the passes and what copies exchange; nothing
    /// if both find the same circuits.
    pub fn reset(&self) -> Option<Span> {
        self.reset.map(|reset| reset.takes)
    }

    /// The fabric as it is when groups of this kind talk.
    fn fabric_for(&self, kind: GroupKind) -> &'a Fabric {
        match self.reset {
            Some(reset) if kind.axis() == Axis::Dp => reset.fabric,
            _ => self.fabric,
        }
    }

    /// How long a phase takes, its launch included. Nothing for groups of one rank.
    pub fn time(&mut self, exchange: Exchange) -> Result<Span, Unserved> {
        if self.layout.group_size(exchange.kind) <= 1 || exchange.bytes.get() == 0 {
            return Ok(Span::ZERO);
        }
        let alone = self.phase_of(exchange)?;
        let phase = &self.phases[&exchange.key()];
        let contention = self.contention(phase, phase.contention);
        Ok(self.settings.launch + alone.contended(contention))
    }

    /// The same of a message of a pipeline that waits for none of them: a microbatch crosses all
    /// boundaries in turn, so it is the mean over them, in the slowest copy of the model.
    pub fn along(&mut self, message: Exchange) -> Result<Span, Unserved> {
        let alone = self.phase_of(message)?;
        let phase = &self.phases[&message.key()];
        let contention = self.contention(phase, phase.along);
        Ok(self.settings.launch + alone.contended(contention))
    }

    /// An undisturbed group. What the fabric makes of all is among the phases then.
    fn phase_of(&mut self, exchange: Exchange) -> Result<UndisturbedPhase, Unserved> {
        let alone = self.alone(exchange)?;
        let key = exchange.key();
        let whole = self.runner.as_ref().is_none_or(|runner| runner.largest.is_none());
        let known = self.phases.get(&key);
        let tells = |phase: &Phase| self.undisturbed || !whole || phase.tells_of(exchange.bytes);
        if !known.is_some_and(tells) {
            let phase = self.run(exchange, alone)?;
            self.phases.insert(key, phase);
        }
        Ok(alone)
    }

    /// How long a message takes on its way down a pipeline ([`along`](Self::along)) that begins
    /// together with another phase and shares the links, launch included. As long as
    /// alone without an engine that runs phases whole, and where they do not meet because circuits
    /// are set anew between them.
    pub fn along_beside(&mut self, message: Exchange, other: Exchange) -> Result<Span, Unserved> {
        let apart = self.runner.as_ref().is_none_or(|runner| runner.largest.is_some());
        let is_calm = [message, other].iter().any(|one| self.calm == Some(one.key()));
        if apart || self.undisturbed || is_calm || self.reset.is_some() {
            return self.along(message);
        }
        if let Some(known) = self.beside.get(&(message, other)) {
            return Ok(*known);
        }
        let mut transfers = Transfers::new();
        let ends = self.write(message, &mut transfers)?;
        self.write(other, &mut transfers)?;
        let runner = self.runner.as_mut().expect("asked for above");
        let outcome = match (runner.engine)(self.fabric, &transfers) {
            Err(NotRun::OnlySeen) => return self.along(message),
            ran => ran.map_err(Unserved::NotRun)?,
        };
        let took = self.along_pipelines(&transfers, &outcome, &ends);
        self.beside.insert((message, other), took);
        Ok(took)
    }

    /// What so many exchanges of each axis come to, by cause. Their phases must have been run.
    pub fn by_cause(
        &mut self,
        exchanges: impl Iterator<Item = (Exchange, f64)>,
    ) -> Result<ByAxis, Unserved> {
        let mut totals: BTreeMap<Exchange, f64> = BTreeMap::new();
        for (exchange, times) in exchanges {
            *totals.entry(exchange).or_default() += times;
        }
        let mut axes = ByAxis::new();
        for (exchange, times) in totals {
            if self.layout.group_size(exchange.kind) <= 1 {
                continue;
            }
            let alone = self.alone(exchange)?;
            let Some(phase) = self.phases.get(&exchange.key()) else { continue };
            let excess = match self.undisturbed {
                true => Excess { line_rate: phase.excess.line_rate, ..Excess::default() },
                false => phase.excess,
            };
            let contention = self.contention(phase, phase.contention);
            let one = alone.causes(self.settings.launch, contention, &excess);
            axes.entry(share_of(exchange.kind.axis())).or_default().add_all(&one, times);
        }
        Ok(axes)
    }

    /// The phases that were run, with what the fabric made of them.
    pub fn phases(&self) -> impl Iterator<Item = &Phase> {
        self.phases.values()
    }

    /// Whether the groups of a kind leave their scale-up domain.
    pub fn leaves_the_domain(&mut self, kind: GroupKind) -> bool {
        self.represent(kind);
        1 < self.representatives[&kind].domains()
    }

    /// The closed form of an undisturbed group, without the launch.
    fn alone(&mut self, exchange: Exchange) -> Result<UndisturbedPhase, Unserved> {
        self.represent(exchange.kind);
        self.closed_form(exchange, &self.settings)
    }

    /// How much longer bytes are on the links because groups of the same kind share a NIC.
    fn shared_nics(
        &mut self,
        exchange: Exchange,
        alone: UndisturbedPhase,
    ) -> Result<f64, Unserved> {
        let groups = self.groups_on_a_nic(exchange.kind);
        let Some(nic) = self.representatives[&exchange.kind].shape().nic_rate else {
            return Ok(1.0);
        };
        if groups <= 1 {
            return Ok(1.0);
        }
        let share = nic.scaled(self.settings.wire_efficiency / groups as f64);
        let host_rate = self.settings.host_rate.map_or(share, |host| host.min(share));
        let settings = Settings { host_rate: Some(host_rate), ..self.settings.clone() };
        let shared = self.closed_form(exchange, &settings)?;
        let moving = shared.time().saturating_sub(alone.fixed).as_secs_f64();
        Ok((moving / alone.moving.as_secs_f64().max(1e-12)).max(1.0))
    }

    /// How many groups of a kind send over the first NIC of the one that stands for them.
    fn groups_on_a_nic(&self, kind: GroupKind) -> usize {
        let fabric = self.fabric;
        let Some(&nic) = self.representatives[&kind].rails(0).first() else {
            return 0;
        };
        let mut groups = Vec::new();
        for (rank, &gpu) in self.placement.gpus().iter().enumerate() {
            let gpu = fabric.gpu(gpu as usize);
            if fabric.server_of(gpu) == fabric.server_of(nic)
                && fabric.nics_of(gpu).any(|near| near == nic)
                && let Some(group) = self.layout.group_of(kind, rank as u64)
                && !groups.contains(&group)
            {
                groups.push(group);
            }
        }
        groups.len()
    }

    fn closed_form(
        &self,
        exchange: Exchange,
        settings: &Settings,
    ) -> Result<UndisturbedPhase, Unserved> {
        let Exchange { kind, collective, bytes, .. } = exchange;
        let (fabric, communicator) = (self.fabric, &self.representatives[&kind]);
        let weights = &self.weights(exchange)[..];
        let ask = Ask { fabric, communicator, collective, bytes, settings, weights };
        let ranks = communicator.ranks() as u32;
        let estimate = nccl::estimate_of(&ask)
            .ok_or(Unserved::Unlowered(kind, Unlowered::NoAlgorithm { collective, ranks }))?;
        let fixed = estimate.plan.fill();
        let moving = estimate.time.saturating_sub(estimate.plan.launch + fixed);
        let (answers, algorithm) = (estimate.plan.answers, estimate.plan.algorithm.name());
        Ok(UndisturbedPhase { fixed, moving, answers, algorithm })
    }

    /// How an exchange's bytes are shared out over the ranks of a group; empty for equally.
    fn weights(&self, exchange: Exchange) -> Vec<f64> {
        let Exchange { collective, spread, .. } = exchange;
        self.dispatch.as_ref().map_or(Vec::new(), |dispatch| dispatch.weights(spread, collective))
    }

    /// What a user should hear whose algorithm cannot run an exchange.
    fn not_as_asked(&self, exchange: Exchange, alone: UndisturbedPhase) -> Option<String> {
        let asked = self.settings.algorithm.as_ref().filter(|name| *name != alone.algorithm)?;
        let (kind, collective) = (words(exchange.kind), exchange.collective.name());
        let chosen = alone.algorithm;
        Some(format!(
            "library.algorithm={asked} cannot run the {kind} {collective}: {chosen} was chosen"
        ))
    }

    /// Runs a phase of the whole cluster.
    fn run(&mut self, exchange: Exchange, alone: UndisturbedPhase) -> Result<Phase, Unserved> {
        let groups = self.layout.groups(exchange.kind);
        let mut phase = Phase {
            exchange,
            whole: exchange.bytes,
            groups,
            alone: alone.time(),
            fixed: alone.fixed,
            slowest: alone.time(),
            contention: 1.0,
            along: 1.0,
            excess: Excess::default(),
            links: IdVec::default(),
            findings: Vec::new(),
        };
        phase.findings.extend(alone.finding(exchange));
        phase.findings.extend(self.not_as_asked(exchange, alone));
        if !self.leaves_the_domain(exchange.kind) {
            return Ok(phase);
        }
        if self.runner.is_none() {
            phase.contention = self.shared_nics(exchange, alone)?;
            phase.along = phase.contention;
            phase.excess.line_rate = phase.contention - 1.0;
            phase.slowest = alone.contended(phase.contention);
            return Ok(phase);
        }
        let mut run = alone;
        if let Some(largest) = self.runner.as_ref().and_then(|runner| runner.largest)
            && largest < exchange.bytes
        {
            phase.exchange.bytes = largest;
            run = self.alone(phase.exchange)?;
            (phase.alone, phase.fixed) = (run.time(), run.fixed);
        }
        let mut transfers = Transfers::new();
        let ends = self.write(phase.exchange, &mut transfers)?;
        let fabric = self.fabric_for(exchange.kind);
        let runner = self.runner.as_mut().expect("asked for above");
        let outcome = match (runner.engine)(fabric, &transfers) {
            Err(NotRun::OnlySeen) => {
                return Ok(Phase { exchange, alone: alone.time(), fixed: alone.fixed, ..phase });
            }
            ran => ran.map_err(Unserved::NotRun)?,
        };
        let lost = outcome.ops.len() - outcome.completed();
        if 0 < lost {
            let why = outcome.findings.first().map(|finding| format!(": {}", finding.text));
            let (kind, collective) = (exchange.kind, exchange.collective);
            return Err(Unserved::Unfinished(kind, collective, lost, why.unwrap_or_default()));
        }
        let took = last_over(&outcome, &ends).saturating_sub(self.settings.launch);
        let contention = |took: Span| {
            let moving = took.saturating_sub(run.fixed).as_secs_f64();
            moving / run.moving.as_secs_f64().max(1e-12)
        };
        phase.contention = contention(took);
        phase.along = match exchange.kind {
            GroupKind::Pipeline => {
                let along = self.along_pipelines(&transfers, &outcome, &ends);
                contention(along.saturating_sub(self.settings.launch))
            }
            _ => phase.contention,
        };
        phase.slowest = run.contended(phase.contention);
        phase.excess = self.excess(fabric, (run.moving, took), &outcome, phase.contention);
        phase.findings.extend(outcome.findings.into_iter().map(|finding| finding.text));
        phase.links = outcome.links;
        Ok(phase)
    }

    /// What a message takes on its way down a pipeline: at each boundary the slowest of the ranks
    /// that wait for each other, of the boundaries the mean, of the copies the slowest.
    fn along_pipelines(&self, transfers: &Transfers, outcome: &Outcome, ends: &[OpId]) -> Span {
        let together = (self.layout.tp * self.layout.cp).max(1) as usize;
        let copies = ends.chunks(together).map(|groups| {
            let mut boundaries: Vec<Span> = Vec::new();
            for end in groups {
                for (at, over) in arrivals(transfers, outcome, *end).into_iter().enumerate() {
                    match boundaries.get_mut(at) {
                        Some(latest) => *latest = over.max(*latest),
                        None => boundaries.push(over),
                    }
                }
            }
            let sum: f64 = boundaries.iter().map(|over| over.as_secs_f64()).sum();
            Span::from_secs_f64(sum / boundaries.len().max(1) as f64)
        });
        copies.max().unwrap_or(Span::ZERO)
    }

    /// What of a run's contention is whose; the run took so long in all.
    fn excess(
        &self,
        fabric: &Fabric,
        (moving, took): (Span, Span),
        outcome: &Outcome,
        contention: f64,
    ) -> Excess {
        let Some(runner) = &self.runner else { return Excess::default() };
        let EngineContext { faults, reorders, counts_frames } = &runner.beside;
        let efficiency = if *counts_frames { 1.0 } else { self.settings.wire_efficiency };
        let seen = PhaseFacts {
            fabric,
            faults: faults.as_ref(),
            links: &outcome.links,
            counters: &outcome.counters,
            reorders: *reorders,
            efficiency,
            moving,
            took,
        };
        seen.excess(contention)
    }

    /// Writes a phase out. The operations that end its groups.
    fn write(&self, exchange: Exchange, transfers: &mut Transfers) -> Result<Vec<OpId>, Unserved> {
        let Exchange { kind, collective, bytes, .. } = exchange;
        let weights = &self.weights(exchange)[..];
        let mut ends = Vec::new();
        if self.layout.group_size(kind) <= 1 {
            return Ok(ends);
        }
        let groups = self.layout.groups(kind);
        let runner = self.runner.as_ref();
        let operations = runner.map_or(usize::MAX, |runner| runner.most_operations);
        let detail = runner.map_or(Detail::Folded, |runner| runner.detail);
        for number in 0..groups {
            let mut group = Group::new(self.communicator(kind, number));
            let label = transfers.label(format!("{} {} {number}", words(kind), collective.name()));
            let (settings, limit) = (&self.settings, Limit { operations, copies: groups });
            let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
            let lowered = lower(self.fabric, &mut group, &wanted, transfers, &[]);
            ends.push(lowered.map_err(|reason| Unserved::Unlowered(kind, reason))?.end);
        }
        Ok(ends)
    }

    /// Finds a group that stands for the others: one that spreads widest among a few. The first
    /// ones are asked in a row, since where groups do not divide domains only some of them cross.
    fn represent(&mut self, kind: GroupKind) {
        if self.representatives.contains_key(&kind) {
            return;
        }
        let groups = self.layout.groups(kind);
        let numbers = (0..groups.min(4)).chain([groups / 2, groups - 1]);
        let candidates = numbers.map(|number| self.communicator(kind, number));
        let first_widest = |widest: Communicator, other: Communicator| {
            if widest.domains() < other.domains() { other } else { widest }
        };
        let widest = candidates.reduce(first_widest).expect("there is a group");
        self.representatives.insert(kind, widest);
    }

    fn communicator(&self, kind: GroupKind, number: u64) -> Communicator {
        self.communicator_of(self.layout.group(kind, number).members())
    }

    /// The communicator of these ranks.
    pub(crate) fn communicator_of(&self, ranks: impl Iterator<Item = u64>) -> Communicator {
        let gpus: Vec<NodeId> = ranks.map(|rank| self.gpu(rank)).collect();
        Communicator::new(self.fabric, &gpus)
    }

    /// The GPU of a rank.
    pub(crate) fn gpu(&self, rank: u64) -> NodeId {
        let gpu = usize::try_from(self.placement.gpu(rank)).expect("GPUs fit memory");
        self.fabric.gpu(gpu)
    }

    /// The server of a rank.
    pub(crate) fn server(&self, rank: u64) -> Option<usize> {
        self.fabric.server_of(self.gpu(rank))
    }

    /// Writes an exchange of one group out, the way its library runs it.
    pub(crate) fn write_group(
        &self,
        exchange: Exchange,
        group: &mut Group,
        (detail, limit): (Detail, Limit),
        transfers: &mut Transfers,
        after: &[OpId],
    ) -> Result<OpId, Unserved> {
        let Exchange { kind, collective, bytes, .. } = exchange;
        let (weights, settings) = (&self.weights(exchange)[..], &self.settings);
        let label = transfers.label(format!("{} {}", words(kind), collective.name()));
        let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
        let lowered = lower(self.fabric, group, &wanted, transfers, after);
        Ok(lowered.map_err(|reason| Unserved::Unlowered(kind, reason))?.end)
    }
}

/// What a phase costs an undisturbed group, without the launch.
#[derive(Clone, Copy, Debug)]
struct UndisturbedPhase {
    /// Hand-overs, ways, filling pipelines, and what software adds.
    fixed: Span,
    /// Bytes on links.
    moving: Span,
    /// The part of `fixed` that is spent waiting for answers.
    answers: Span,
    /// What runs it.
    algorithm: &'static str,
}

impl UndisturbedPhase {
    fn time(self) -> Span {
        self.fixed + self.moving
    }

    /// The same where bytes are so many times as long on the links: answers come meanwhile.
    fn contended(self, contention: f64) -> Span {
        let moving = Span::from_secs_f64(self.moving.as_secs_f64() * contention);
        self.fixed.saturating_sub(self.answers) + moving.max(self.moving + self.answers)
    }

    /// What one exchange is spent on, its launch included.
    fn causes(self, launch: Span, contention: f64, excess: &Excess) -> Causes {
        let mut causes = Causes::default();
        let all = (launch + self.contended(contention)).as_secs_f64();
        let moving = self.moving.as_secs_f64();
        let latency = (launch + self.fixed.saturating_sub(self.answers)).as_secs_f64();
        causes.add(Cause::LineRate, moving);
        causes.add(Cause::Latency, latency);
        let more = (all - latency - moving).max(0.0);
        if more <= self.answers.as_secs_f64() {
            causes.add(Cause::Latency, more);
        } else {
            excess.share_out(more, &mut causes);
        }
        causes
    }

    /// What a user should hear of who wonders why long cables cost more than their delay.
    fn finding(self, exchange: Exchange) -> Option<String> {
        let Exchange { kind, collective, bytes, .. } = exchange;
        let (answers, time) = (self.answers, self.time());
        (time < answers * 10).then(|| {
            format!(
                "{} {} of {bytes}: {answers:.1} of {time:.1} is waiting for answers, because \
                 buffers (`library.buffer`) or windows of connections hold less than a round trip",
                words(kind),
                collective.name()
            )
        })
    }
}

/// When the last of these is over.
fn last_over(outcome: &Outcome, ends: &[OpId]) -> Span {
    ends.iter().filter_map(|end| outcome.over(*end)).max().unwrap_or(Span::ZERO)
}

/// When each rank of a pipeline but the first had its message, by the operation that ends them.
fn arrivals(transfers: &Transfers, outcome: &Outcome, end: OpId) -> Vec<Span> {
    let rest = match transfers.ops()[end].kind {
        OpKind::Wait { span } => span,
        OpKind::Send { .. } | OpKind::Coupled { .. } | OpKind::Together { .. } => Span::ZERO,
    };
    let mut arrivals: Vec<(NodeId, Span)> = Vec::new();
    for op in transfers.after(end) {
        let connection = match &transfers.ops()[*op].kind {
            OpKind::Send { connection, .. } => Some(connection),
            OpKind::Coupled { edges, .. } => transfers.coupled(edges).last(),
            OpKind::Together { .. } | OpKind::Wait { .. } => None,
        };
        let Some(to) = connection.map(|one| transfers.connections()[*one].to) else { continue };
        let over = outcome.over(*op).unwrap_or(Span::ZERO) + rest;
        match arrivals.last_mut().filter(|(receiver, _)| *receiver == to) {
            Some((_, latest)) => *latest = over.max(*latest),
            None => arrivals.push((to, over)),
        }
    }
    arrivals.into_iter().map(|(_, over)| over).collect()
}

/// The fabric with the named slow NICs and links.
pub fn straggling(fabric: &Fabric, stragglers: &[Straggler]) -> Result<Fabric, String> {
    let mut slow = fabric.clone();
    let mut health = fabric.health().clone();
    for straggler in stragglers {
        let (links, speed) = match straggler {
            Straggler::Gpu { .. } => continue,
            Straggler::Nic { node, speed } => (nic_links(fabric, *node as usize)?, *speed),
            Straggler::Link { name, speed } => {
                let links = fabric::naming::links(fabric, name);
                (links.map_err(|wrong| wrong.reason.clone())?, *speed)
            }
        };
        for link in links {
            health.degrade(link, fabric.class(link).rate.scaled(speed.clamp(1e-6, 1.0)));
        }
    }
    slow.set_health(health);
    Ok(slow)
}

/// Both directions of the first NIC's cables of a server.
fn nic_links(fabric: &Fabric, server: usize) -> Result<Vec<LinkId>, String> {
    if fabric.servers() <= server {
        return Err(format!("there is no node {server}: there are {}", fabric.servers()));
    }
    let nic = fabric.nic(server * fabric.nics_per_node());
    let out = fabric.ports(nic).iter().copied();
    let out = out.filter(|link| fabric.class(*link).kind == LinkKind::ScaleOut);
    Ok(out.flat_map(|link| [link, fabric.reverse(link)]).collect())
}

/// A kind of group in words.
pub fn words(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Tensor => "tensor-parallel",
        GroupKind::Context => "context-parallel",
        GroupKind::Pipeline => "pipeline",
        GroupKind::Gradient => "data-parallel",
        GroupKind::Expert => "expert-parallel",
        GroupKind::ExpertGradient => "data-parallel (experts)",
        GroupKind::Shard => "data-parallel (shards)",
        GroupKind::Replica => "data-parallel (copies)",
        GroupKind::ExpertShard => "data-parallel (shards of experts)",
        GroupKind::ExpertReplica => "data-parallel (copies of experts)",
        GroupKind::Ends => "embedding",
        GroupKind::Mirror => "data-parallel (mirrored stages)",
        GroupKind::ExpertTensor => "tensor-parallel (experts)",
    }
}

/// How the scale-out links were used over a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSummary {
    /// The busiest link's bytes over what it could have carried in the step.
    pub max_utilisation: f64,
    /// Busiest over mean, among links between switches that carry anything of their tier.
    pub imbalance: f64,
    /// The busiest links, with words.
    pub worst: Vec<WorstLink>,
}

/// A link that is busier than others.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstLink {
    /// The link.
    pub link: LinkId,
    /// Its name.
    pub name: String,
    /// Its share of the step at full rate.
    pub utilisation: f64,
    /// Which phase put most on it, on how many queue pairs, against how many on others like it.
    pub why: String,
}

/// How often a phase's bytes are moved in one step, as a multiple of the run that was simulated.
pub type Repeats = BTreeMap<Key, f64>;

/// What the links did over a step of this length.
pub fn link_summary(
    fabric: &Fabric,
    phases: &[&Phase],
    repeats: &Repeats,
    step: Span,
    count: usize,
) -> LinkSummary {
    let mut bytes = vec![0.0; fabric.links().len()];
    for phase in phases.iter().filter(|phase| !phase.links.is_empty()) {
        let times = repeats.get(&phase.exchange.key());
        for (link, used) in phase.links.enumerate() {
            bytes[link.index()] += used.bytes as f64 * times.copied().unwrap_or(1.0);
        }
    }
    summary_of(fabric, &bytes, (phases, repeats), step, count)
}

/// The same of links that carried so many bytes; the phases say why.
pub(crate) fn summary_of(
    fabric: &Fabric,
    bytes: &[f64],
    (phases, repeats): (&[&Phase], &Repeats),
    step: Span,
    count: usize,
) -> LinkSummary {
    let step_s = step.as_secs_f64().max(1e-12);
    let is_scale_out =
        |link: &LinkId| matches!(fabric.class(*link).kind, LinkKind::ScaleOut | LinkKind::Circuit);
    let utilisation =
        |link: &LinkId| bytes[link.index()] / (fabric.class(*link).rate.bytes_per_s() * step_s);
    let mut order: Vec<LinkId> = fabric.links().ids().filter(is_scale_out).collect();
    order.sort_by(|a, b| utilisation(b).total_cmp(&utilisation(a)).then(a.cmp(b)));
    let worst =
        order.iter().take(count).filter(|link| 0.0 < utilisation(link)).map(|link| WorstLink {
            link: *link,
            name: fabric.link_name(*link),
            utilisation: utilisation(link),
            why: why(fabric, phases, repeats, *link),
        });
    LinkSummary {
        max_utilisation: order.first().map_or(0.0, utilisation),
        imbalance: imbalance(fabric, &order, bytes),
        worst: worst.collect(),
    }
}

/// Busiest over mean between switches, of the class of links where that is worst.
fn imbalance(fabric: &Fabric, links: &[LinkId], bytes: &[f64]) -> f64 {
    let mut classes: BTreeMap<fabric::graph::ClassId, (f64, f64, f64)> = BTreeMap::new();
    for link in links {
        let fabric::Link { from, to, class } = fabric.links()[*link];
        let switch = |node: NodeId| fabric.nodes()[node].kind == fabric::NodeKind::Switch;
        if switch(from) && switch(to) {
            let (sum, most, count) = classes.entry(class).or_default();
            *sum += bytes[link.index()];
            *most = f64::max(*most, bytes[link.index()]);
            *count += 1.0;
        }
    }
    let ratio = |(sum, most, count): &(f64, f64, f64)| {
        if *sum == 0.0 { 1.0 } else { most / (sum / count) }
    };
    classes.values().map(ratio).fold(1.0, f64::max)
}

fn why(fabric: &Fabric, phases: &[&Phase], repeats: &Repeats, link: LinkId) -> String {
    let put = |phase: &&Phase| {
        let times = repeats.get(&phase.exchange.key());
        let used = phase.links.get(link).map_or(0, |used| used.bytes);
        used as f64 * times.copied().unwrap_or(1.0)
    };
    let most = phases.iter().max_by(|a, b| put(a).total_cmp(&put(b)));
    let Some(phase) = most.filter(|phase| !phase.links.is_empty()) else {
        return "no phase crosses it".to_owned();
    };
    let class = fabric.links()[link].class;
    let (mut flows, mut like) = (0_u64, 0_u64);
    for (other, used) in phase.links.enumerate() {
        if fabric.links()[other].class == class {
            flows += u64::from(used.flows);
            like += 1;
        }
    }
    let mean = flows as f64 / (like as f64).max(1.0);
    let own = phase.links[link].flows;
    let (groups, collective) = (words(phase.exchange.kind), phase.exchange.collective.name());
    if own == 1 {
        return format!("one queue pair of the {groups} {collective} has it for itself");
    }
    format!(
        "{own} queue pairs of the {groups} {collective} share it; the mean of its kind is {mean:.1}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::hardware::Catalogue;
    use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
    use job::parallel::RankOrder;
    use job::placement::{PlacementConfig, Policy, Slots, place};

    fn world(nodes: u64) -> (Fabric, Layout, Placement) {
        let cluster = ClusterConfig { nodes: Some(nodes), ..ClusterConfig::default() };
        let config = FabricConfig { topology: TopologyKind::Clos, ..FabricConfig::default() };
        let fabric = build(&cluster, &config, &Catalogue::default()).unwrap();
        let order = RankOrder::TpCpDpPp;
        let dp = nodes / 2;
        let (ep, etp, shard) = (1, 8, dp);
        let layout = Layout { tp: 8, cp: 1, pp: 2, vpp: 1, dp, ep, etp, shard, order };
        let slots = Slots { nodes, gpus_per_node: 8, nodes_per_leaf: 4, nodes_per_zone: nodes };
        let config = PlacementConfig { policy: Policy::Linear, busy: 0.0 };
        let placement = place(&config, &layout, &slots, &[], 1).unwrap();
        (fabric, layout, placement)
    }

    fn gradients(mib: u64) -> Exchange {
        let bytes = Bytes::from_mib(mib);
        let (kind, spread) = (GroupKind::Gradient, Spread::Even);
        Exchange { kind, collective: Collective::AllReduce, bytes, spread }
    }

    /// An engine that says that everything ends after 20 ms.
    fn stub(_: &Fabric, transfers: &Transfers) -> Result<Outcome, NotRun> {
        let mut outcome = Outcome::default();
        for _ in transfers.ops().iter() {
            let end = units::Time::ZERO + Span::from_ms(20);
            let times = traffic::OpTimes { start: units::Time::ZERO, received: end, finish: end };
            outcome.ops.push(Some(times));
        }
        Ok(outcome)
    }

    #[test]
    fn without_an_engine_the_closed_form_stands() {
        let (fabric, layout, placement) = world(8);
        let mut network = Network::new(&fabric, layout, &placement, Settings::default(), None);
        let time = network.time(gradients(64)).unwrap();
        // A ring over four nodes, one NIC of 50 GB/s each: 2·3/4·64 MiB and latencies.
        let floor = 1.5 * 67_108_864.0 / 50e9;
        assert!((1.0..1.4).contains(&(time.as_secs_f64() / floor)), "{time}");
        let nothing = Exchange { bytes: Bytes::new(0), ..gradients(1) };
        assert_eq!(network.time(nothing), Ok(Span::ZERO));
    }

    /// Two groups to a NIC take twice as long, whether or not an engine runs them.
    #[test]
    fn groups_that_share_a_nic_share_its_rate() {
        let (_, layout, placement) = world(8);
        let alone = world(8).0;
        let cluster =
            ClusterConfig { nodes: Some(8), nics_per_node: 4, ..ClusterConfig::default() };
        let config = FabricConfig { topology: TopologyKind::Clos, ..FabricConfig::default() };
        let shared = build(&cluster, &config, &Catalogue::default()).unwrap();
        let [own, halves] = [&alone, &shared].map(|fabric| {
            let mut network = Network::new(fabric, layout, &placement, Settings::default(), None);
            network.time(gradients(1024)).unwrap().as_secs_f64()
        });
        assert!((1.9..2.1).contains(&(halves / own)), "{own} {halves}");
    }

    #[test]
    fn a_slow_nic_is_slow_both_ways_and_a_missing_one_is_said() {
        let (fabric, ..) = world(8);
        let slow = straggling(&fabric, &[Straggler::Nic { node: 3, speed: 0.5 }]).unwrap();
        let nic = slow.nic(3 * slow.nics_per_node());
        let link = slow.ports(nic)[0];
        for link in [link, slow.reverse(link)] {
            let half = slow.class(link).rate.scaled(0.5);
            assert_eq!(slow.health().rate(&slow, link), half);
        }
        let beyond = straggling(&fabric, &[Straggler::Nic { node: 8, speed: 0.5 }]);
        assert_eq!(beyond.unwrap_err(), "there is no node 8: there are 8");
    }

    /// An engine whose cost grows with bytes runs a part; the slowdown holds for the whole.
    #[test]
    fn large_phases_can_be_run_in_part() {
        let (fabric, layout, placement) = world(8);
        let mut engine = stub;
        let largest = Some(Bytes::from_mib(8));
        let runner = Runner { largest, ..Runner::folded(&mut engine) };
        let settings = Settings::default();
        let mut network = Network::new(&fabric, layout, &placement, settings, Some(runner));
        let time = network.time(gradients(64)).unwrap();
        assert_eq!(network.phases().next().unwrap().exchange.bytes, Bytes::from_mib(8));
        // 8 MiB took the 20 ms; 64 MiB take about eight times that.
        assert!((120.0..165.0).contains(&(time.as_secs_f64() * 1e3)), "{time}");
    }

    /// Two copies of four stages. One message takes 90 ms longer than the others: senders that wait
    /// feel it whole, a microbatch that crosses three boundaries feels a third of it.
    #[test]
    fn a_slow_boundary_counts_once_on_the_way_down_a_pipeline() {
        let (fabric, layout, _) = world(8);
        let layout = Layout { pp: 4, dp: 2, shard: 2, ..layout };
        let slots = Slots { nodes: 8, gpus_per_node: 8, nodes_per_leaf: 4, nodes_per_zone: 8 };
        let config = PlacementConfig { policy: Policy::Linear, busy: 0.0 };
        let placement = place(&config, &layout, &slots, &[], 1).unwrap();
        let mut engine = |fabric: &Fabric, transfers: &Transfers| {
            let mut outcome = stub(fabric, transfers)?;
            let mut ops = transfers.ops().enumerate();
            let is_message = |op: &traffic::Op| !matches!(op.kind, OpKind::Wait { .. });
            let mut messages = transfers.ops().enumerate().filter(|(_, op)| is_message(op));
            let (slow, _) = messages.nth(2).expect("three boundaries, two channels");
            let end = ops.find(|(id, _)| transfers.after(*id).contains(&slow)).unwrap().0;
            for id in [slow, end] {
                let times = outcome.ops[id].as_mut().unwrap();
                times.received = units::Time::ZERO + Span::from_ms(110);
            }
            Ok(outcome)
        };
        let settings = Settings::default();
        let runner = Some(Runner::folded(&mut engine));
        let mut network = Network::new(&fabric, layout, &placement, settings, runner);
        let (kind, collective) = (GroupKind::Pipeline, Collective::SendRecv);
        let bytes = Bytes::from_mib(64);
        let message = Exchange { kind, collective, bytes, spread: Spread::Even };
        let slowest = network.time(message).unwrap().as_secs_f64();
        let along = network.along(message).unwrap().as_secs_f64();
        assert!((slowest - 0.11).abs() < 1e-6 && (along - 0.05).abs() < 1e-6, "{slowest} {along}");
    }

    #[test]
    fn a_phase_is_run_once_and_its_slowdown_holds_for_other_sizes() {
        let (fabric, layout, placement) = world(8);
        let mut runs = 0;
        let mut engine = |fabric: &Fabric, transfers: &Transfers| {
            runs += 1;
            stub(fabric, transfers)
        };
        let settings = Settings::default();
        let launch = settings.launch;
        let mut network =
            Network::new(&fabric, layout, &placement, settings, Some(Runner::folded(&mut engine)));
        let first = network.time(gradients(64)).unwrap();
        assert_eq!(first, Span::from_ms(20));
        let double = network.time(gradients(128)).unwrap() - launch;
        let ratio = double.as_secs_f64() / (first - launch).as_secs_f64();
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        // Tensor groups stay in their node: nobody to meet.
        let inside = Exchange { kind: GroupKind::Tensor, ..gradients(64) };
        assert!(network.time(inside).unwrap() < Span::from_ms(2));
        assert_eq!(network.phases().count(), 2);
        drop(network);
        assert_eq!(runs, 1);
    }
}
