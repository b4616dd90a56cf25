//! Weighted max-min fair rates, kept up to date while flows come and go.
//!
//! A flow has a weight and crosses links, each with a coefficient: at rate `r` it puts `a · r` on
//! a link whose coefficient is `a`. Its level is its rate over its weight. In the max-min
//! allocation no level can rise except at the cost of one that is no higher; equivalently, every
//! flow crosses a full link on which nobody has a higher level. That link holds the flow back, and
//! the flows that a link holds back all have the link's level.
//!
//! So the state is one level for each link, and for each flow the link that holds it back. Four
//! numbers tell a link what it must know: its capacity, what the flows held back elsewhere put on
//! it, the weight of those it holds itself, and the highest level among the others. When something
//! changes, the links concerned are visited again from the lowest level upwards. A link whose
//! level moves tells the links that its own flows cross; a flow changes hands when a link on its
//! way can no longer grant it its level. Levels below the change never move, so a change touches
//! only what it can affect, and a flow that merely runs faster or slower costs nothing by itself.
//!
//! Where most of the flows are new the whole network is solved at once by progressive filling
//! (Bertsekas and Gallager, "Data Networks", 6.5.2) with a heap of links. The result of both is
//! the one max-min allocation; [`MaxMin::certificate`] proves it without trusting either.

mod certificate;
mod lists;
mod slack;
mod whole;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lists::Lists;
use units::{Id, IdVec};

units::id!(
    /// A flow of the solver.
    FlowId,
    /// A link of the solver: the fabric's come first, then wide ones and those of capped flows.
    SolverLink,
);

/// Two levels closer than this, relatively, are the same: below it lies only rounding.
const SAME: f64 = 1e-12;

/// A link's sums are computed afresh when it has been visited so often, so that rounding cannot
/// pile up.
const REFRESH: u32 = 64;

/// Nothing holds the flow back: it is not running.
const NOWHERE: u32 = u32::MAX;

/// One cache line, because a change visits links in no order.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct LinkState {
    /// What flows put on it that are held back elsewhere.
    fixed: f64,
    /// It must be visited when `fixed` passes this: always while it holds flows back, never
    /// while it is in line already, and else when it is full.
    alarm: f64,
    /// At least the highest level among flows held back elsewhere.
    highest: f64,
    capacity: f64,
    /// What its own flows put on it for each unit of level.
    free: f64,
    /// The level of the flows it holds back; 0 while there are none.
    level: f64,
    looks: u32,
    waiting: bool,
    reported: bool,
    /// Wide flows count at what they promise (see [`slack`]).
    slack: bool,
}

/// Other links that an [`Own`] can name.
const NEAR: usize = 6;

/// A flow among those that a link holds back. The other links of a short way are written down
/// here, next to those of its neighbours, because they are told of every change of the level.
#[derive(Clone, Copy, Debug)]
struct Own {
    flow: u32,
    /// How many links follow; [`NOWHERE`] if the way is too long or its loads differ.
    count: u32,
    links: [u32; NEAR],
    load: f64,
}

impl Own {
    fn new(flow: usize, entries: &[Entry], link: u32) -> Self {
        let mut own = Self { flow: flow as u32, count: 0, links: [0; NEAR], load: 0.0 };
        if NEAR + 1 < entries.len() || entries.iter().any(|e| e.load != entries[0].load) {
            own.count = NOWHERE;
            return own;
        }
        own.load = entries[0].load;
        for entry in entries.iter().filter(|entry| entry.link != link) {
            own.links[own.count as usize] = entry.link;
            own.count += 1;
        }
        own
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    flow: u32,
    entry: u32,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    first: u32,
    end: u32,
    /// The link that holds it back, or [`NOWHERE`].
    held: u32,
    /// Its place among the flows that this link holds back.
    place: u32,
    weight: f64,
    /// Its entries for tight links end here; only wide flows have others.
    tight: u32,
    wide: bool,
    /// The level at which slack links count it, if it is wide.
    promise: f64,
}

/// What a flow puts on a link, and where the link lists it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    link: u32,
    place: u32,
    /// Coefficient times weight: what it puts on the link for each unit of level.
    load: f64,
}

/// A heap entry: lowest level first, then lowest link.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Turn(Reverse<(u64, u32)>);

impl Turn {
    fn new(level: f64, link: u32) -> Self {
        // Bit patterns of floats that are not negative are ordered as the floats are.
        Self(Reverse((level.max(0.0).to_bits(), link)))
    }
}

/// Flows on links, and their max-min fair rates.
///
/// ```
/// use flowsim::max_min::MaxMin;
/// let mut network = MaxMin::new(&[6.0, 10.0]);
/// let long = network.define(&[(0, 1.0), (1, 1.0)], 1.0, None);
/// let first = network.define(&[(0, 1.0)], 1.0, None);
/// let second = network.define(&[(1, 1.0)], 1.0, None);
/// for flow in [long, first, second] {
///     network.start(flow);
/// }
/// network.settle();
/// assert_eq!([long, first, second].map(|flow| network.rate(flow)), [3.0, 3.0, 7.0]);
/// ```
#[derive(Clone, Debug)]
pub struct MaxMin {
    links: Vec<LinkState>,
    /// The running flows that cross each link.
    members: Lists<Member>,
    /// The flows that each link holds back.
    own: Lists<Own>,
    flows: IdVec<FlowId, Flow>,
    entries: Vec<Entry>,
    /// By link, while a flow is described: its entry, or [`NOWHERE`].
    seen: Vec<u32>,
    running: usize,
    /// How far a level may be off before it is passed on.
    precision: f64,
    /// Flows that were started since the rates were last settled.
    started: Vec<u32>,
    turns: BinaryHeap<Turn>,
    changed: Vec<SolverLink>,
    moved: Vec<FlowId>,
    claims: Vec<(f64, u32, u32)>,
    effort: Effort,
}

/// What a solver has done, counted: the same on every machine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Effort {
    /// Links that were visited, and flows whose level was set.
    pub looks: u64,
    /// Links that were told of a flow's change.
    pub told: u64,
    /// How often everything was solved at once.
    pub whole_solves: u64,
}

impl MaxMin {
    /// A network of links with these capacities and no flows.
    pub fn new(capacities: &[f64]) -> Self {
        let mut network = Self {
            links: Vec::with_capacity(capacities.len()),
            members: Lists::default(),
            own: Lists::default(),
            flows: IdVec::default(),
            entries: Vec::new(),
            seen: Vec::new(),
            running: 0,
            precision: SAME,
            started: Vec::new(),
            turns: BinaryHeap::new(),
            changed: Vec::new(),
            moved: Vec::new(),
            claims: Vec::new(),
            effort: Effort::default(),
        };
        for &capacity in capacities {
            network.push_link(capacity);
        }
        network
    }

    /// Lets levels be off by this much, relatively, before they are passed on: the further a
    /// change would travel, the more this saves. At least 1e-12.
    pub fn set_precision(&mut self, precision: f64) {
        self.precision = precision.max(SAME);
    }

    /// Describes a flow that is not running yet: its links with their coefficients, its weight,
    /// and the rate it never exceeds. Links named twice add up.
    pub fn define(&mut self, path: &[(u32, f64)], weight: f64, cap: Option<f64>) -> FlowId {
        assert!(0.0 < weight && weight.is_finite(), "a flow of weight {weight}");
        let first = self.entries.len();
        let add = |&(link, coefficient): &(u32, f64)| Entry {
            link,
            place: 0,
            load: coefficient * weight,
        };
        self.entries.extend(path.iter().filter(|(_, coefficient)| 0.0 < *coefficient).map(add));
        self.merge_entries(first);
        if let Some(cap) = cap {
            let link = self.push_link(cap);
            self.entries.push(Entry { link, place: 0, load: weight });
        }
        let end = self.entries.len();
        assert!(first < end, "a flow that crosses no link has no rate");
        let index = |at: usize| u32::try_from(at).expect("under 2³² entries");
        let wide = slack::WIDE < end - first;
        let (first, end) = (index(first), index(end));
        let (held, place, tight, promise) = (NOWHERE, 0, end, 0.0);
        self.flows.push(Flow { first, end, held, place, weight, tight, wide, promise })
    }

    /// Lets a flow run. Its rate is known after [`Self::settle`].
    pub fn start(&mut self, flow: FlowId) {
        assert_eq!(self.flows[flow].held, NOWHERE, "{flow:?} is already running");
        self.flows[flow].held = NOWHERE - 1;
        self.started.push(flow.index() as u32);
        self.running += 1;
    }

    /// Takes a flow out. The others' rates are known after [`Self::settle`].
    pub fn stop(&mut self, flow: FlowId) {
        let Flow { held, tight, wide, promise, .. } = self.flows[flow];
        assert!(held < NOWHERE - 1, "{flow:?} is stopped without having been settled");
        let level = self.links[held as usize].level;
        let range = self.range(flow.index());
        self.release_flow(flow.index());
        for at in range {
            let Entry { link, place, load } = self.entries[at];
            self.leave_link(link, place);
            let counted = if at < tight as usize { level } else { promise };
            if link != held {
                self.add_fixed_load(link, -load * counted, 0.0);
                if wide {
                    self.loosen_if_spare(link);
                }
            }
        }
        self.queue_link(held);
        self.flows[flow].held = NOWHERE;
        self.running -= 1;
    }

    /// Changes what a link can carry.
    pub fn set_capacity(&mut self, link: u32, capacity: f64) {
        let state = &mut self.links[link as usize];
        state.capacity = capacity;
        state.set_alarm();
        self.queue_link(link);
    }

    /// Brings all rates up to date.
    pub fn settle(&mut self) {
        let news = self.started.len();
        if news > 64 && news * 4 > self.running {
            self.solve_whole();
            return;
        }
        for at in 0..news {
            self.admit(self.started[at]);
        }
        self.started.clear();
        let limit = self.effort.looks + 64 * (self.links.len() as u64 + self.running as u64);
        while let Some(Turn(Reverse((key, link)))) = self.turns.pop() {
            self.effort.looks += 1;
            if limit < self.effort.looks {
                // Never seen, but rounding is not to be trusted with a promise to end.
                self.solve_whole();
                return;
            }
            self.update_link(link, f64::from_bits(key));
        }
    }

    /// The rate of a flow; 0 if it is not running.
    pub fn rate(&self, flow: FlowId) -> f64 {
        let Flow { held, weight, .. } = self.flows[flow];
        if held < NOWHERE - 1 { weight * self.links[held as usize].level } else { 0.0 }
    }

    /// Whether a flow could be started: it is described and does not run.
    pub fn is_idle(&self, flow: FlowId) -> bool {
        self.flows[flow].held == NOWHERE
    }

    /// The link that holds a running flow back.
    pub fn held_by(&self, flow: FlowId) -> Option<SolverLink> {
        let held = self.flows[flow].held;
        (held < NOWHERE - 1).then(|| SolverLink::from_index(held as usize))
    }

    /// The flow's weight.
    pub fn weight(&self, flow: FlowId) -> f64 {
        self.flows[flow].weight
    }

    /// The level of the flows that a link holds back; 0 if there are none.
    pub fn level(&self, link: SolverLink) -> f64 {
        self.links[link.index()].level
    }

    /// The flows that a link holds back.
    pub fn held(&self, link: SolverLink) -> impl ExactSizeIterator<Item = FlowId> {
        self.own.get(link.index()).iter().map(|own| FlowId::from_index(own.flow as usize))
    }

    /// The running flows that cross a link.
    pub fn crossing(&self, link: SolverLink) -> impl ExactSizeIterator<Item = FlowId> {
        self.members.get(link.index()).iter().map(|member| FlowId::from_index(member.flow as usize))
    }

    /// What a link carries now.
    pub fn carried(&self, link: SolverLink) -> f64 {
        self.added_up(link.index())
    }

    /// What a link can carry.
    pub fn capacity(&self, link: SolverLink) -> f64 {
        self.links[link.index()].capacity
    }

    /// The links that a flow crosses, and what it puts on each of them at rate 1.
    pub fn path(&self, flow: FlowId) -> impl ExactSizeIterator<Item = (SolverLink, f64)> + Clone {
        let weight = self.flows[flow].weight;
        let entries = &self.entries[self.range(flow.index())];
        entries.iter().map(move |e| (SolverLink::from_index(e.link as usize), e.load / weight))
    }

    /// How many links there are, those of capped flows included.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// How many flows run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// What has been done so far.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Hands over the links whose level and the flows whose holder changed since last asked.
    pub fn take_news(&mut self, changed: &mut Vec<SolverLink>, moved: &mut Vec<FlowId>) {
        changed.clear();
        moved.clear();
        std::mem::swap(changed, &mut self.changed);
        std::mem::swap(moved, &mut self.moved);
        for link in changed {
            self.links[link.index()].reported = false;
        }
    }

    /// Adds a link. Returns its number.
    pub fn push_link(&mut self, capacity: f64) -> u32 {
        assert!(0.0 <= capacity && capacity.is_finite(), "a capacity of {capacity}");
        let (fixed, free, level, highest) = (0.0, 0.0, 0.0, 0.0);
        let (looks, waiting, reported, alarm) = (0, false, false, capacity * (1.0 + SAME));
        let slack = true;
        self.links.push(LinkState {
            fixed,
            alarm,
            highest,
            capacity,
            free,
            level,
            looks,
            waiting,
            reported,
            slack,
        });
        self.members.add();
        self.own.add();
        u32::try_from(self.links.len() - 1).expect("under 2³² links")
    }

    /// Adds up entries for the same link among those from `first` on.
    fn merge_entries(&mut self, first: usize) {
        let new = &self.entries[first..];
        if new.len() <= 16
            && (1..new.len()).all(|at| new[..at].iter().all(|e| e.link != new[at].link))
        {
            return;
        }
        self.seen.resize(self.links.len(), NOWHERE);
        let mut end = first;
        for at in first..self.entries.len() {
            let entry = self.entries[at];
            let seen = &mut self.seen[entry.link as usize];
            if *seen == NOWHERE {
                *seen = end as u32;
                self.entries[end] = entry;
                end += 1;
            } else {
                self.entries[*seen as usize].load += entry.load;
            }
        }
        self.entries.truncate(end);
        for entry in &self.entries[first..] {
            self.seen[entry.link as usize] = NOWHERE;
        }
    }

    fn range(&self, flow: usize) -> std::ops::Range<usize> {
        let Flow { first, end, .. } = self.flows[FlowId::from_index(flow)];
        first as usize..end as usize
    }

    /// The entries of a flow for links that are told of its level.
    fn tight_range(&self, flow: usize) -> std::ops::Range<usize> {
        let Flow { first, tight, .. } = self.flows[FlowId::from_index(flow)];
        first as usize..tight as usize
    }

    /// Puts a link in line to be updated.
    #[cold]
    fn queue_link(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        if !state.waiting {
            state.waiting = true;
            state.alarm = f64::INFINITY;
            let key = state.wanted().unwrap_or(state.highest);
            self.turns.push(Turn::new(key, link));
        }
    }

    /// Notes that a link's level changed.
    fn note_changed(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        if !state.reported {
            state.reported = true;
            self.changed.push(SolverLink::from_index(link as usize));
        }
    }

    /// Puts a flow on the lists of the links that it crosses.
    fn join_links(&mut self, flow: u32) {
        for at in self.range(flow as usize) {
            let link = self.entries[at].link as usize;
            self.entries[at].place = self.members.len(link) as u32;
            self.members.push(link, Member { flow, entry: at as u32 });
        }
    }

    /// Strikes a flow off a link's list of members.
    fn leave_link(&mut self, link: u32, place: u32) {
        if let Some(filler) = self.members.swap_remove(link as usize, place) {
            self.entries[filler.entry as usize].place = place;
        }
    }

    /// Takes a flow from the link that holds it back.
    fn release_flow(&mut self, flow: usize) {
        let Flow { held, place, .. } = self.flows[FlowId::from_index(flow)];
        if let Some(filler) = self.own.swap_remove(held as usize, place) {
            self.flows[FlowId::from_index(filler.flow as usize)].place = place;
        }
        let emptied = self.own.len(held as usize) == 0;
        let load = self.load_on(flow, held);
        let state = &mut self.links[held as usize];
        state.free -= load;
        if emptied {
            (state.free, state.level) = (0.0, 0.0);
            state.set_alarm();
            self.note_changed(held);
        }
    }

    /// Gives a flow to the link that shall hold it back.
    fn hold_flow(&mut self, flow: usize, link: u32) {
        let own = Own::new(flow, &self.entries[self.range(flow)], link);
        let record = &mut self.flows[FlowId::from_index(flow)];
        (record.held, record.place) = (link, self.own.len(link as usize) as u32);
        self.own.push(link as usize, own);
        self.moved.push(FlowId::from_index(flow));
    }

    fn load_on(&self, flow: usize, link: u32) -> f64 {
        let entries = &self.entries[self.tight_range(flow)];
        let entry = entries.iter().find(|entry| entry.link == link);
        entry.expect("a flow is held back only where it goes").load
    }

    /// Adds a flow: the lowest link on its path holds it back until that is visited.
    fn admit(&mut self, flow: u32) {
        let range = self.range(flow as usize);
        let room = |entry: &Entry| {
            let state = &self.links[entry.link as usize];
            match state.free {
                0.0 => ((state.capacity - state.fixed) / entry.load).max(state.highest),
                _ => state.level,
            }
        };
        let entries = self.entries[range.clone()].iter();
        let lowest = entries.min_by(|a, b| room(a).total_cmp(&room(b)));
        let lowest = lowest.expect("a flow crosses a link");
        let (holder, promise) = (lowest.link, Self::promise_at(room(lowest)));
        if self.links[holder as usize].slack {
            self.tighten(holder);
        }
        if self.flows[FlowId::from_index(flow as usize)].wide {
            self.sort_entries(flow as usize, promise);
        }
        self.join_links(flow);
        let level = self.links[holder as usize].level;
        let tight = self.tight_range(flow as usize);
        for at in range {
            let Entry { link, load, .. } = self.entries[at];
            let counted = if tight.contains(&at) { level } else { promise };
            if link == holder {
                self.links[link as usize].free += load;
                self.queue_link(link);
            } else {
                self.add_fixed_load(link, load * counted, counted);
            }
        }
        self.hold_flow(flow as usize, holder);
    }

    /// Puts more on a link, from a flow that is held back elsewhere at `level`.
    fn add_fixed_load(&mut self, link: u32, more: f64, level: f64) {
        let state = &mut self.links[link as usize];
        state.fixed += more;
        state.highest = state.highest.max(level);
        if state.alarm < state.fixed {
            self.queue_link(link);
        }
    }

    /// Updates a link whose turn it is: its level, who it must hand over, whom it must claim.
    fn update_link(&mut self, link: u32, key: f64) {
        if self.links[link as usize].slack {
            self.tighten(link);
        }
        let state = &mut self.links[link as usize];
        state.looks += 1;
        if state.looks.is_multiple_of(REFRESH) || state.free == 0.0 {
            self.recompute_sums(link);
        }
        let state = &self.links[link as usize];
        let wanted = state.wanted();
        if let (Some(level), Some(next)) = (wanted, self.turns.peek()) {
            // It has risen since it was put in line: let the lower ones go first.
            let Turn(Reverse((next, _))) = *next;
            if key.max(f64::from_bits(next)) * (1.0 + SAME) < level {
                self.turns.push(Turn::new(level, link));
                return;
            }
        }
        let state = &mut self.links[link as usize];
        state.waiting = false;
        state.set_alarm();
        self.claim_flows(link);
        self.propagate_level(link);
    }

    /// Adds up a link's sums afresh.
    fn recompute_sums(&mut self, link: u32) {
        let (mut fixed, mut free, mut highest) = (0.0, 0.0, 0.0_f64);
        for member in self.members.get(link as usize) {
            let held = self.flows[FlowId::from_index(member.flow as usize)].held;
            let load = self.entries[member.entry as usize].load;
            if held == link {
                free += load;
            } else {
                let level = self.links[held as usize].level;
                fixed += load * level;
                highest = highest.max(level);
            }
        }
        let state = &mut self.links[link as usize];
        (state.fixed, state.free, state.highest) = (fixed, free, highest);
    }

    /// Changes the link that holds a flow back; its level becomes that of the new one.
    fn move_to(&mut self, flow: usize, holder: u32) {
        let before = self.flows[FlowId::from_index(flow)].held;
        let (old, new) = (self.links[before as usize].level, self.links[holder as usize].level);
        self.release_flow(flow);
        let tight = self.tight_range(flow);
        self.effort.told += tight.len() as u64;
        for at in tight {
            let Entry { link, load, .. } = self.entries[at];
            if link == holder {
                let state = &mut self.links[link as usize];
                state.fixed -= load * old;
                state.free += load;
                state.set_alarm();
            } else if link == before {
                self.add_fixed_load(link, load * new, new);
            } else if old != new {
                self.add_fixed_load(link, load * (new - old), new);
            }
        }
        if self.flows[FlowId::from_index(flow)].wide {
            self.renew_promise(flow, new);
        }
        self.hold_flow(flow, holder);
    }

    /// Flows that are held back elsewhere at more than this link can grant become its own, from
    /// the highest down, while they are above the level that this gives.
    fn claim_flows(&mut self, link: u32) {
        let state = &self.links[link as usize];
        let level = match state.wanted() {
            Some(level) => level,
            None if state.capacity * (1.0 + SAME) < state.fixed => 0.0,
            None => return,
        };
        if state.highest <= level * (1.0 + SAME) {
            return;
        }
        self.claims.clear();
        let mut highest = 0.0_f64;
        for (place, member) in self.members.get(link as usize).iter().enumerate() {
            let held = self.flows[FlowId::from_index(member.flow as usize)].held;
            if held == link {
                continue;
            }
            let theirs = self.links[held as usize].level;
            if level * (1.0 + SAME) < theirs {
                self.claims.push((theirs, member.flow, place as u32));
            } else {
                highest = highest.max(theirs);
            }
        }
        self.claims.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let (mut fixed, mut free) = (state.fixed, state.free);
        let capacity = state.capacity;
        let mut claimed = 0;
        for &(theirs, _, place) in &self.claims {
            let level = if free == 0.0 { 0.0 } else { ((capacity - fixed) / free).max(0.0) };
            if theirs <= level * (1.0 + SAME) {
                break;
            }
            let member = self.members.get(link as usize)[place as usize];
            let load = self.entries[member.entry as usize].load;
            fixed -= load * theirs;
            free += load;
            claimed += 1;
        }
        let rest = self.claims.get(claimed).map_or(highest, |claim| claim.0.max(highest));
        self.links[link as usize].highest = rest;
        // The claimed get this link's new level at once, so that no old one is read.
        self.set_level(link, ((capacity - fixed) / free).max(0.0));
        for at in 0..claimed {
            let flow = self.claims[at].1 as usize;
            let before = self.flows[FlowId::from_index(flow)].held;
            self.move_to(flow, link);
            self.queue_link(before);
        }
    }

    /// Gives a link the level that its sums ask for and tells the links that its flows cross.
    fn propagate_level(&mut self, link: u32) {
        let state = &self.links[link as usize];
        let Some(level) = state.wanted() else { return };
        if (level - state.level).abs() <= self.precision * level.max(state.level) {
            return;
        }
        self.set_level(link, level);
    }

    /// Sets the level of a link's own flows.
    fn set_level(&mut self, link: u32, level: f64) {
        let old = std::mem::replace(&mut self.links[link as usize].level, level);
        self.note_changed(link);
        let own = self.own.len(link as usize);
        self.effort.looks += own as u64;
        for at in 0..own {
            let Own { flow, count, links, load } = self.own.get(link as usize)[at];
            if count != NOWHERE {
                self.effort.told += u64::from(count);
                for &other in links.iter().take(count as usize) {
                    self.add_fixed_load(other, load * (level - old), level);
                }
                continue;
            }
            let tight = self.tight_range(flow as usize);
            self.effort.told += tight.len() as u64;
            for entry in tight {
                let Entry { link: other, load, .. } = self.entries[entry];
                if other != link {
                    self.add_fixed_load(other, load * (level - old), level);
                }
            }
            if self.flows[FlowId::from_index(flow as usize)].wide {
                self.renew_promise(flow as usize, level);
            }
        }
    }
}

impl LinkState {
    /// The level that its sums ask for, if it holds any flow back.
    fn wanted(&self) -> Option<f64> {
        (self.free != 0.0).then(|| ((self.capacity - self.fixed) / self.free).max(0.0))
    }

    /// Sets the alarm as its state asks for.
    fn set_alarm(&mut self) {
        self.alarm = match (self.waiting, self.free == 0.0) {
            (true, _) => f64::INFINITY,
            (false, true) => self.capacity * (1.0 + SAME),
            (false, false) => f64::NEG_INFINITY,
        };
    }
}

#[cfg(test)]
mod tests;
