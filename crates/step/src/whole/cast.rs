//! Who acts: tensor groups, how fast each computes, and who meets whom in a collective.
//!
//! The ranks of a tensor group compute alike and wait for each other with every layer, so they are
//! one actor. That is exact as long as they are alike; a slow GPU slows its group.

use std::collections::BTreeMap;

use fabric::NodeId;
use fabric::fault::{Fault, FaultKind, Faults};
use job::parallel::Coordinates;
use job::{GroupKind, Layout};
use traffic::Pace;
use units::{Id, Random};

use crate::jitter::{Jitter, Straggler};
use crate::network::Network;

units::id!(
    /// A tensor group.
    ActorId,
);

/// Actors that meet in a collective of a kind, and the groups that make it.
#[derive(Clone, Debug, Default)]
pub(super) struct Club {
    pub(super) actors: Vec<ActorId>,
    pub(super) groups: Vec<u64>,
}

/// The clubs of a kind of group.
#[derive(Clone, Debug, Default)]
pub(super) struct Clubs {
    pub(super) all: Vec<Club>,
    /// By actor: its club.
    pub(super) of: Vec<Option<u32>>,
}

/// All actors of a job.
#[derive(Clone, Debug)]
pub(super) struct Cast {
    pub(super) layout: Layout,
    /// By actor: how much longer its computation takes than it should.
    pub(super) slowness: Vec<f64>,
    clubs: BTreeMap<GroupKind, Clubs>,
    /// By actor that has slow GPUs: when, and how slow.
    pub(super) paces: BTreeMap<ActorId, Pace>,
}

impl Cast {
    /// The actors of a layout, all alike.
    pub(super) fn new(layout: Layout) -> Self {
        let actors = layout.pp * layout.dp * layout.cp;
        let slowness = vec![1.0; actors as usize];
        Self { layout, slowness, clubs: BTreeMap::new(), paces: BTreeMap::new() }
    }

    /// Copies of a stage.
    pub(super) fn copies(&self) -> u64 {
        self.layout.dp * self.layout.cp
    }

    /// The actor of a copy of a stage.
    pub(super) fn actor(&self, stage: u64, copy: u64) -> ActorId {
        ActorId::from_index((stage * self.copies() + copy) as usize)
    }

    /// The copy that an actor is of its stage.
    pub(super) fn copy(&self, actor: ActorId) -> u64 {
        actor.index() as u64 % self.copies()
    }

    /// A rank of an actor.
    pub(super) fn rank(&self, actor: ActorId, tp: u64) -> u64 {
        let (pp, copy) = (actor.index() as u64 / self.copies(), self.copy(actor));
        self.layout.rank(Coordinates {
            tp,
            cp: copy % self.layout.cp,
            pp,
            dp: copy / self.layout.cp,
        })
    }

    fn actor_of(&self, rank: u64) -> ActorId {
        let Coordinates { cp, pp, dp, .. } = self.layout.coordinates(rank);
        self.actor(pp, dp * self.layout.cp + cp)
    }

    /// Draws how slow every node is, and makes the named slow GPUs slow: each is one of the first
    /// copy of its stage. A draw is relative to the mean, which measured kernels contain. A copy of
    /// the model goes at the pace of the slowest of its nodes: its stages hand microbatches on, and
    /// the mean slowdown was set with published steps under this assumption. Every step of a run
    /// draws anew.
    pub(super) fn slow_down(
        &mut self,
        network: &Network<'_>,
        jitter: &Jitter,
        stragglers: &[Straggler],
        (seed, step): (u64, u32),
    ) {
        let drawn = |rank: u64| {
            let server = network.server(rank).unwrap_or(0) as u64 + (u64::from(step) << 32);
            Random::new(seed, "jitter of nodes", server).exponential(jitter.mean)
        };
        for copy in 0..self.copies() {
            let actors = (0..self.layout.pp).map(|stage| self.actor(stage, copy));
            let ranks = actors.flat_map(|actor| (0..self.layout.tp).map(move |tp| (actor, tp)));
            let draws = ranks.map(|(actor, tp)| drawn(self.rank(actor, tp)));
            let pace = (1.0 + draws.fold(0.0, f64::max) - jitter.mean).max(0.0);
            for stage in 0..self.layout.pp {
                let named = stragglers.iter().filter(|_| copy == 0);
                let named = named.map(|slow| slow.compute_factor(stage as u32));
                let actor = self.actor(stage, copy);
                self.slowness[actor.index()] = pace * named.fold(1.0, f64::max);
            }
        }
    }

    /// Notes whose GPUs are slow at times: a slow one slows its group.
    pub(super) fn set_paces(&mut self, network: &Network<'_>, faults: &Faults) {
        let is_slow = |fault: &Fault| matches!(fault.kind, FaultKind::SlowGpu { .. });
        if !faults.all().iter().any(is_slow) {
            return;
        }
        for actor in (0..self.slowness.len()).map(ActorId::from_index) {
            let ranks = (0..self.layout.tp).map(|tp| network.gpu(self.rank(actor, tp)));
            let pace = faults.paces(&ranks.collect::<Vec<NodeId>>());
            if !pace.is_empty() {
                self.paces.insert(actor, pace);
            }
        }
    }

    /// Who meets in collectives of a kind.
    pub(super) fn clubs(&mut self, kind: GroupKind) -> &Clubs {
        if !self.clubs.contains_key(&kind) {
            let clubs = self.meet(kind);
            self.clubs.insert(kind, clubs);
        }
        &self.clubs[&kind]
    }

    fn meet(&self, kind: GroupKind) -> Clubs {
        let groups = self.layout.groups(kind);
        let members = |group: u64| -> Vec<ActorId> {
            let ranks = self.layout.group(kind, group).members();
            ranks.map(|rank| self.actor_of(rank)).collect()
        };
        // By actor: one that it meets, towards the first of its club.
        let mut towards: Vec<u32> = (0..self.slowness.len() as u32).collect();
        let first = |towards: &[u32], mut at: u32| {
            while towards[at as usize] != at {
                at = towards[at as usize];
            }
            at
        };
        for group in 0..groups {
            let members = members(group);
            for pair in members.windows(2) {
                let [one, other] = [pair[0], pair[1]].map(|a| first(&towards, a.index() as u32));
                towards[one.max(other) as usize] = one.min(other);
            }
        }
        let mut clubs = Clubs { all: Vec::new(), of: vec![None; self.slowness.len()] };
        let mut by_first: BTreeMap<u32, u32> = BTreeMap::new();
        for group in 0..groups {
            let members = members(group);
            let root = first(&towards, members[0].index() as u32);
            let club = *by_first.entry(root).or_insert_with(|| {
                clubs.all.push(Club::default());
                clubs.all.len() as u32 - 1
            });
            clubs.all[club as usize].groups.push(group);
            for member in members {
                if clubs.of[member.index()].is_none() {
                    clubs.of[member.index()] = Some(club);
                    clubs.all[club as usize].actors.push(member);
                }
            }
        }
        clubs
    }
}
