//! What congestion control makes of fair rates: DCQCN as a fluid.
//!
//! Fair rates are taken at once; DCQCN's are not. Flows that meet begin at line rate, fill the
//! queue before the link that they share, are cut while it is long, stay below their share until
//! their timers fire, and overshoot again; and what one leaves the others take only as fast as
//! their rates climb. So every flow has the state machine that packets step
//! ([`traffic::dcqcn`]), and its rate caps what the solver gives it. A link where more comes in
//! than it carries has a queue, a number of bytes; while that is long, it marks, at each tick, as
//! many packets as have left. Nothing happens where no link of a switch is shared.
//!
//! # Rings
//!
//! A queue pair of a ring sends a message at the rate that it has, waits for its neighbour, and
//! sends the next: it fills queues before links that are not full on average. Whoever crosses two
//! such queues is cut by both. If that happens before it is back at its target, the target falls to
//! where it was, and with ConnectX's parameters it climbs by 50 Mb/s in 300 us: for tens of
//! milliseconds that queue pair paces its ring, also when the others are done. Flows show this
//! where rings are written out message by message, if three things are as in packets: a sender goes
//! on as long as messages are posted behind the one whose rest is in the queue; it sends at its own
//! rate, in turns with the other queue pairs of its NIC, and not at what comes through; and what
//! waits before one link comes on to the next, however much its rate has been cut.
//!
//! # Where this departs from packets
//!
//! * The queue pairs of a connection that splits are one state, and of a folded channel those
//!   before one link. A folded channel goes at the pace of the slowest, evenly: it has no bursts,
//!   so what stands above under rings is not in it.
//! * As long as a queue is not empty its link is full, and rates that are cut are not seen behind
//!   it. Nothing is paused or dropped.

use std::collections::VecDeque;

use fabric::LinkId;
use fabric::graph::{LinkKind, NodeKind};
use traffic::OpKind;
use traffic::dcqcn::Dcqcn;
use units::{Bytes, Id, Random, Rate, Time};

use super::{Carrier, Event, Lane, NONE, Part, Simulation, time};
use crate::max_min::{FlowId, MaxMin, SolverLink};
use crate::settings::Control;

/// Rates closer than this share are the same to the solver while a queue is there.
const SAME: f64 = 0.01;

/// A queue is looked at after so many ticks at least: rates change for what others mark too.
const AT_LEAST: f64 = 8.0;

/// A link is not shared as long as no more than this share of its rate comes in too much.
const FULL: f64 = 1e-6;

/// The state of congestion control in a run.
pub(super) struct Controlled {
    control: Control,
    senders: Vec<Sender>,
    states: Vec<State>,
    /// By flow of the solver: its place in `senders`, or [`NONE`].
    of_flow: Vec<u32>,
    /// By lane, and by a folded channel's first connection: the same.
    of_lane: Vec<u32>,
    of_edge: Vec<u32>,
    /// By link of the fabric: its place in `queues`, or [`NONE`].
    queue_of: Vec<u32>,
    queues: Vec<Queue>,
    free: Vec<u32>,
    /// Links whose level has changed since queues were last looked at.
    changed: Vec<SolverLink>,
    inflow: Vec<Inflow>,
    wants: Vec<f64>,
    tick: f64,
    random: Random,
}

/// What a flow of the solver stands for.
struct Sender {
    flow: FlowId,
    /// The link of the solver that caps it.
    cap: u32,
    /// Its queue pairs on one way, and the line that they begin with.
    pairs: f64,
    line: Rate,
    /// Payload per second for one bit per second on the wire, all its queue pairs together.
    scale: f64,
    /// From where a packet leaves a queue until its notification is at the sender, about.
    feedback: f64,
    idle_since: f64,
    /// Whether each link that marks has other queue pairs of it before it.
    is_folded: bool,
    /// Places in `states`.
    states: Vec<u32>,
}

/// The queue pairs of a sender that one link marks, or all of them.
struct State {
    dcqcn: Dcqcn,
    sender: u32,
    /// The link before which these queue pairs are, or [`NONE`] for all.
    link: u32,
    /// Notifications that are under way.
    notices: VecDeque<f64>,
    next_notice: f64,
    /// When it is called next, in bits of seconds; 0 for never.
    due: u64,
    /// Until when the byte counter has counted.
    counted: f64,
}

/// What waits before a link that is, or was, too full.
struct Queue {
    bytes: f64,
    since: f64,
    /// What comes in and does not leave, in bytes per second.
    growth: f64,
    due: u64,
}

/// What a flow brings to a queue.
struct Inflow {
    state: u32,
    /// The link that it comes over.
    over: u32,
    rate: f64,
}

impl Controlled {
    pub(super) fn new(control: &Control, links: usize, seed: u64) -> Self {
        Self {
            control: control.clone(),
            senders: Vec::new(),
            states: Vec::new(),
            of_flow: Vec::new(),
            of_lane: Vec::new(),
            of_edge: Vec::new(),
            queue_of: vec![NONE; links],
            queues: Vec::new(),
            free: Vec::new(),
            changed: Vec::new(),
            inflow: Vec::new(),
            wants: Vec::new(),
            tick: control.tick_s(),
            random: Random::new(seed, "marks of flows", 0),
        }
    }

    fn sender_of(&self, flow: FlowId) -> Option<usize> {
        let sender = self.of_flow.get(flow.index()).copied().filter(|at| *at != NONE)?;
        Some(sender as usize)
    }

    /// The link that caps a flow.
    pub(super) fn cap_of(&self, flow: FlowId) -> Option<u32> {
        self.sender_of(flow).map(|sender| self.senders[sender].cap)
    }

    /// The state of a sender's queue pairs before a link, which begins at line rate.
    fn state_at(&mut self, sender: usize, link: usize, now: f64) -> usize {
        let one = &self.senders[sender];
        let link = if one.is_folded { link as u32 } else { NONE };
        let known = one.states.iter().find(|state| self.states[**state as usize].link == link);
        if let Some(known) = known {
            return *known as usize;
        }
        self.states.push(State {
            dcqcn: Dcqcn::new(&self.control.dcqcn, one.line),
            sender: sender as u32,
            link,
            notices: VecDeque::new(),
            next_notice: 0.0,
            due: 0,
            counted: now,
        });
        let state = self.states.len() - 1;
        self.senders[sender].states.push(state as u32);
        state
    }

    fn queue(&self, link: usize) -> Option<&Queue> {
        self.queues.get(*self.queue_of.get(link)? as usize)
    }

    /// What a sender's states allow, all of them, in payload per second.
    fn allowed(&self, sender: usize) -> f64 {
        let one = &self.senders[sender];
        let rates = one.states.iter().map(|state| self.states[*state as usize].dcqcn.rate());
        rates.fold(one.line, Rate::min).as_bps_f64() * one.scale
    }

    /// What a NIC sends at most for one of its queue pairs: they take turns, and whoever has
    /// something to send sends it as fast as its state allows, however little of it comes through.
    fn turn_of(&self, network: &MaxMin, port: SolverLink, wants: &mut Vec<f64>) -> f64 {
        wants.clear();
        wants.extend(network.crossing(port).map(|flow| match self.sender_of(flow) {
            Some(sender) if !self.senders[sender].is_folded => self.allowed(sender),
            _ => network.rate(flow),
        }));
        wants.sort_unstable_by(f64::total_cmp);
        let mut left = network.capacity(port);
        for (at, want) in wants.iter().enumerate() {
            let even = left / (wants.len() - at) as f64;
            if even < *want {
                return even;
            }
            left -= want;
        }
        f64::INFINITY
    }

    /// What comes in, all of `inflow`: no more over a link than it carries.
    fn comes_in(&self, network: &MaxMin) -> f64 {
        let mut total = 0.0;
        for (at, Inflow { over, rate, .. }) in self.inflow.iter().enumerate() {
            if self.inflow[..at].iter().any(|one| one.over == *over && *over != NONE) {
                continue;
            }
            let same = self.inflow[at..].iter().filter(|one| one.over == *over);
            let sum: f64 = same.map(|one| one.rate).sum();
            total += match *over {
                NONE => *rate,
                over => sum.min(network.capacity(SolverLink::from_index(over as usize))),
            };
        }
        total
    }

    /// Lets pass what was due for a state, and returns what it allows, in payload per second.
    /// `rate` is what its sender has sent since.
    fn catch_up(&mut self, state: usize, now: f64, rate: f64) -> f64 {
        let state = &mut self.states[state];
        let sender = &self.senders[state.sender as usize];
        state.catch_up(&self.control, now, rate / sender.pairs);
        state.dcqcn.rate().as_bps_f64() * sender.scale
    }
}

/// The bytes of messages that are posted behind the one that a lane is at, counted until they are
/// so many.
fn posted(lane: &Lane, parts: &[Part], enough: f64) -> f64 {
    let mut next = parts[lane.head as usize].next;
    let mut bytes = 0.0;
    while bytes < enough && next != NONE {
        bytes += parts[next as usize].bytes;
        next = parts[next as usize].next;
    }
    bytes
}

fn slot(list: &mut Vec<u32>, at: usize) -> &mut u32 {
    if list.len() <= at {
        list.resize(at + 1, NONE);
    }
    &mut list[at]
}

impl State {
    /// Lets pass what was due until now. `rate` is what a queue pair has sent, in bytes per second.
    fn catch_up(&mut self, control: &Control, now: f64, rate: f64) {
        let unit = control.dcqcn.increase_after.as_f64();
        if 0.0 < unit && 0.0 < rate {
            let mut bytes = rate * (now - self.counted);
            while 0.0 < bytes {
                self.dcqcn.sent(Bytes::new(bytes.min(unit / 4.0).ceil() as u64));
                bytes -= unit / 4.0;
            }
        }
        self.counted = now;
        while let Some(notice) = self.notices.front().copied().filter(|notice| *notice <= now) {
            self.notices.pop_front();
            self.dcqcn.notified(time(notice));
        }
        self.dcqcn.advance(time(now));
    }

    /// When something changes by itself.
    fn next(&self, line: Rate) -> f64 {
        // At line rate nothing climbs, and looks find nothing.
        let timer = self.dcqcn.deadline().filter(|_| self.dcqcn.rate() < line);
        let timer = timer.map_or(f64::INFINITY, Time::as_secs_f64);
        self.notices.front().copied().unwrap_or(f64::INFINITY).min(timer)
    }
}

impl Simulation<'_, '_> {
    /// The rate that a flow over `lay` never exceeds, with so many queue pairs at line rate.
    pub(super) fn line_cap(&self, pairs: f64) -> Option<f64> {
        self.controlled.as_ref()?;
        let bps = self.line_of_lay()?.as_bps_f64();
        Some(pairs * bps / 8.0 * self.settings.wire.efficiency)
    }

    fn line_of_lay(&self) -> Option<Rate> {
        let links = self.lay.entries.iter().map(|(link, _)| *link as usize);
        let mut links = links.filter(|link| *link < self.fabric.links().len());
        let first = links.find(|link| {
            let link = LinkId::from_index(*link);
            self.fabric.class(link).kind == LinkKind::ScaleOut
        })?;
        Some(self.fabric.class(LinkId::from_index(first)).rate)
    }

    /// Finds who sends through a flow that has just been described with [`Self::line_cap`].
    pub(super) fn adopt(&mut self, flow: FlowId, pairs: f64) {
        let Some(line) = self.line_of_lay() else { return };
        let nics = 2.0 * self.settings.wire.nic_latency.as_secs_f64();
        let (cap, feedback) = (self.network.link_count() as u32 - 1, 1.5 * self.lay.delay + nics);
        let carrier = self.carriers[flow];
        let edges = |op| match &self.transfers.ops()[op].kind {
            OpKind::Coupled { edges, .. } => self.transfers.coupled(edges),
            _ => unreachable!("only folded channels have edges"),
        };
        let Some(controlled) = &mut self.controlled else { return };
        let (place, is_folded) = match carrier {
            Carrier::Lane(lane) => (slot(&mut controlled.of_lane, lane as usize), false),
            Carrier::Coupled(op) => {
                let edges = edges(op);
                (slot(&mut controlled.of_edge, edges[0].index()), 1 < edges.len())
            }
            Carrier::Background => return,
        };
        let is_free =
            |sender: &Sender| sender.is_folded == is_folded && self.network.is_idle(sender.flow);
        if *place == NONE || !is_free(&controlled.senders[*place as usize]) {
            *place = controlled.senders.len() as u32;
            let states = Vec::new();
            let (idle_since, scale) = (self.now, 0.0);
            let sender =
                Sender { flow, cap, pairs, line, scale, feedback, idle_since, is_folded, states };
            controlled.senders.push(sender);
        }
        let sender = &mut controlled.senders[*place as usize];
        (sender.flow, sender.cap, sender.pairs, sender.feedback) = (flow, cap, pairs, feedback);
        sender.scale = pairs * self.settings.wire.efficiency / 8.0;
        *slot(&mut controlled.of_flow, flow.index()) = *place;
    }

    /// A flow begins: at the rate that its queue pairs have by now.
    pub(super) fn resume(&mut self, flow: FlowId) {
        let now = self.now;
        let Some(controlled) = &mut self.controlled else { return };
        let Some(at) = controlled.sender_of(flow) else { return };
        let sender = &controlled.senders[at];
        let restart = controlled.control.restart_after.map(|span| span.as_secs_f64());
        let is_new = restart.is_some_and(|span| span <= now - sender.idle_since);
        for state in sender.states.clone() {
            let (state, line) = (state as usize, controlled.senders[at].line);
            if is_new {
                controlled.states[state].dcqcn = Dcqcn::new(&controlled.control.dcqcn, line);
                controlled.states[state].notices.clear();
            }
            controlled.catch_up(state, now, 0.0);
        }
        self.set_cap(at, 0.0);
        self.call_all(at);
    }

    /// A flow has nothing left to send.
    pub(super) fn rest(&mut self, flow: FlowId) {
        let rate = self.network.rate(flow);
        let Some(controlled) = &mut self.controlled else { return };
        let Some(at) = controlled.sender_of(flow) else { return };
        for state in controlled.senders[at].states.clone() {
            controlled.catch_up(state as usize, self.now, rate);
        }
        controlled.senders[at].idle_since = self.now;
    }

    /// Caps a sender at what its queue pairs allow, if that differs by more than a share. As long
    /// as a queue is there from which a link is fed, those before it hold nobody back.
    fn set_cap(&mut self, sender: usize, share: f64) {
        let Some(controlled) = &self.controlled else { return };
        let Sender { flow, cap, scale, line, ref states, .. } = controlled.senders[sender];
        let drains = |link: usize| controlled.queue(link).is_some_and(|queue| queue.growth < 0.0);
        let counts = |state: &&State| match state.link {
            NONE => !self.network.path(flow).any(|(link, _)| drains(link.index())),
            link => !drains(link as usize),
        };
        let states = states.iter().map(|state| &controlled.states[*state as usize]);
        let rates = states.filter(counts).map(|state| state.dcqcn.rate());
        let rate = rates.fold(line, Rate::min).as_bps_f64() * scale;
        let before = self.network.capacity(SolverLink::from_index(cap as usize));
        if share * before < (rate - before).abs() {
            self.network.set_capacity(cap, rate);
        }
    }

    fn call_all(&mut self, sender: usize) {
        let Some(controlled) = &self.controlled else { return };
        for state in controlled.senders[sender].states.clone() {
            self.call_at(state as usize);
        }
    }

    /// Has a state called when something changes by itself.
    fn call_at(&mut self, at: usize) {
        let Some(controlled) = &mut self.controlled else { return };
        let state = &mut controlled.states[at];
        let next = state.next(controlled.senders[state.sender as usize].line).max(self.now);
        if next < f64::INFINITY && state.due != next.to_bits() {
            state.due = next.to_bits();
            self.schedule(next, Event::Rate(at as u32));
        }
    }

    /// Something changes by itself in a state.
    pub(super) fn rate_due(&mut self, at: u32) {
        let at = at as usize;
        let until = self.until();
        let Some(controlled) = &mut self.controlled else { return };
        let state = &mut controlled.states[at];
        if state.due == 0 || until < f64::from_bits(state.due) {
            return;
        }
        state.due = 0;
        let (sender, link) = (state.sender as usize, state.link);
        let flow = controlled.senders[sender].flow;
        let has_queue = match link {
            NONE => self.network.path(flow).any(|(one, _)| controlled.queue(one.index()).is_some()),
            link => controlled.queue(link as usize).is_some(),
        };
        // Where there is a queue its ticks do this, and who begins again is brought up to date.
        if has_queue || self.network.is_idle(flow) {
            return;
        }
        let rate = self.network.rate(flow);
        controlled.catch_up(at, self.now, rate);
        self.set_cap(sender, 0.0);
        self.call_at(at);
    }

    /// Whether a link can have a queue that marks.
    fn marks(&self, link: usize) -> bool {
        if self.fabric.links().len() <= link {
            return false;
        }
        let link = LinkId::from_index(link);
        let from = self.fabric.links()[link].from;
        self.fabric.class(link).kind == LinkKind::ScaleOut
            && self.fabric.nodes()[from].kind == NodeKind::Switch
    }

    /// Notes the links whose level has changed.
    pub(super) fn note_levels(&mut self) {
        if let Some(controlled) = &mut self.controlled {
            controlled.changed.extend_from_slice(self.progress.changed());
        }
    }

    /// Looks at the links whose level has changed: on some more comes in than they carry.
    pub(super) fn look_at_queues(&mut self) {
        let Some(controlled) = &mut self.controlled else { return };
        let mut changed = std::mem::take(&mut controlled.changed);
        changed.sort_unstable();
        changed.dedup();
        let noted = changed.len();
        let mut looked = 0;
        while let Some(id) = changed.get(looked).copied() {
            looked += 1;
            let link = id.index();
            if !self.marks(link) {
                continue;
            }
            let Some(controlled) = &self.controlled else { return };
            let is_new = controlled.queue(link).is_none();
            if is_new && self.network.held(id).len() == 0 && looked <= noted {
                continue;
            }
            self.pass_queue(link);
            let growth = self.growth(link);
            let capacity = self.network.capacity(id);
            let Some(controlled) = &mut self.controlled else { return };
            if is_new {
                if growth <= FULL * capacity {
                    // What is before it may be as full.
                    for one in controlled.inflow.iter().filter(|one| one.over != NONE) {
                        let over = SolverLink::from_index(one.over as usize);
                        let is_known = changed[noted..].contains(&over);
                        if !is_known && self.network.held(id).len() > 0 {
                            changed.push(over);
                        }
                    }
                    continue;
                }
                let queue = Queue { bytes: 0.0, since: self.now, growth, due: 0 };
                controlled.queue_of[link] = match controlled.free.pop() {
                    Some(free) => {
                        controlled.queues[free as usize] = queue;
                        free
                    }
                    None => {
                        controlled.queues.push(queue);
                        controlled.queues.len() as u32 - 1
                    }
                };
            }
            let place = controlled.queue_of[link] as usize;
            controlled.queues[place].growth = growth;
            self.tick_at(link);
        }
        changed.clear();
        if let Some(controlled) = &mut self.controlled {
            controlled.changed = changed;
        }
    }

    /// Brings the length of a queue up to date.
    fn pass_queue(&mut self, link: usize) {
        let now = self.now;
        let Some(controlled) = &mut self.controlled else { return };
        if let Some(queue) = controlled.queues.get_mut(controlled.queue_of[link] as usize) {
            queue.bytes = (queue.bytes + queue.growth * (now - queue.since)).max(0.0);
            queue.since = now;
        }
    }

    /// What comes to a link and cannot leave at once, in bytes per second; fills `inflow`.
    fn growth(&mut self, link: usize) -> f64 {
        let id = SolverLink::from_index(link);
        let now = self.now;
        let Some(controlled) = &mut self.controlled else { return 0.0 };
        let waiting = controlled.queue(link).map_or(0.0, |queue| queue.bytes);
        let held = self.network.held(id).len().max(1) as f64;
        controlled.inflow.clear();
        let mut wants = std::mem::take(&mut controlled.wants);
        // Of full links one after the other the solver names one.
        let is_full = self.network.capacity(id) * (1.0 - FULL) <= self.network.carried(id);
        for flow in self.network.crossing(id) {
            let given = self.network.rate(flow);
            let (mut over, mut load) = (NONE, 1.0);
            let is_held = is_full || self.network.held_by(flow) == Some(id);
            let (mut allowed, mut state) = (given, NONE);
            let mut before = (NONE, 0.0);
            let weight = self.network.weight(flow);
            let is_folded = controlled
                .sender_of(flow)
                .is_some_and(|sender| controlled.senders[sender].is_folded);
            let (mut elsewhere, mut is_behind) = (f64::INFINITY, false);
            let mut waits_before = false;
            for (other, share) in self.network.path(flow) {
                let most = weight * self.network.level(other);
                if other == id {
                    // Where packets are spread they come over several.
                    over = if share <= before.1 { before.0 } else { NONE };
                    (load, is_behind) = (share, true);
                } else if is_held && (is_folded || !is_behind) && given * (1.0 + FULL) < most {
                    elsewhere = elsewhere.min(most);
                }
                if !is_folded && !is_behind {
                    let queue = controlled.queue(other.index());
                    waits_before |= queue.is_some_and(|queue| 0.0 < queue.bytes);
                }
                before = (other.index() as u32, share);
            }
            if let Some(sender) = controlled.sender_of(flow) {
                let at = controlled.state_at(sender, link, now);
                allowed = controlled.allowed(sender);
                state = at as u32;
            }
            let first = self.network.path(flow).next().map(|(first, _)| first);
            if let Some(first) = first.filter(|first| is_held && !is_folded && *first != id) {
                allowed = allowed.min(controlled.turn_of(&self.network, first, &mut wants));
            }
            let comes = if is_held { allowed.min(elsewhere) } else { allowed.min(given) };
            // What waits before a link on its way comes on, however much its rate has been cut.
            let mut rate = if waits_before { comes.max(given) } else { comes } * load;
            let own = waiting / held;
            let mut left = self.progress.left(flow, now, &self.network) * load;
            if let Carrier::Lane(lane) = self.carriers[flow] {
                left += load * posted(&self.lanes[lane as usize], &self.parts, (own - left) / load);
            }
            // All that it has left is in the queue.
            if is_held && left < own {
                rate = 0.0;
            }
            controlled.inflow.push(Inflow { state, over, rate });
        }
        controlled.wants = wants;
        controlled.comes_in(&self.network) - self.network.capacity(id)
    }

    /// The tier of the switch whose queue is before a link.
    fn tier_before(&self, link: usize) -> u8 {
        let from = self.fabric.links()[LinkId::from_index(link)].from;
        self.fabric.nodes()[from].tier
    }

    /// When a queue is looked at next.
    fn tick_at(&mut self, link: usize) {
        let (now, tier) = (self.now, self.tier_before(link));
        let Some(controlled) = &mut self.controlled else { return };
        let place = controlled.queue_of[link] as usize;
        let marks = controlled.control.marks_at(tier);
        let (tick, least) = (controlled.tick, marks.from.as_f64());
        let queue = &controlled.queues[place];
        let wait = if least <= queue.bytes {
            tick
        } else {
            let reached = if 0.0 < queue.growth {
                (least - queue.bytes) / queue.growth
            } else {
                -queue.bytes / queue.growth
            };
            let states = controlled.inflow.iter().filter(|one| one.state != NONE);
            let states = states.map(|one| &controlled.states[one.state as usize]);
            let called = states
                .map(|state| state.next(controlled.senders[state.sender as usize].line) - now);
            called.fold(reached, f64::min).clamp(tick / 4.0, AT_LEAST * tick)
        };
        let due = now + wait;
        controlled.queues[place].due = due.to_bits();
        self.schedule(due, Event::Queue(link as u32));
    }

    /// A queue is looked at: who is notified, what comes in now.
    pub(super) fn queue_due(&mut self, link: u32) {
        let link = link as usize;
        let now = self.now;
        let Some(controlled) = &self.controlled else { return };
        let until = self.until();
        if controlled.queue(link).is_none_or(|queue| until < f64::from_bits(queue.due)) {
            return;
        }
        self.pass_queue(link);
        let (id, tier) = (SolverLink::from_index(link), self.tier_before(link));
        let packet = self.settings.wire.packet.as_f64();
        let Some(controlled) = &mut self.controlled else { return };
        let length = controlled.queue(link).map_or(0.0, |queue| queue.bytes);
        let share = controlled.control.marks_at(tier).share(length);
        let apart = controlled.control.dcqcn.notify_every.as_secs_f64() * (1.0 - 1e-9);
        for flow in self.network.crossing(id) {
            let Some(sender) = controlled.sender_of(flow) else { continue };
            let at = controlled.state_at(sender, link, now);
            let rate = self.network.rate(flow);
            let Sender { pairs, feedback, .. } = controlled.senders[sender];
            let state = &mut controlled.states[at];
            if 0.0 < share && state.next_notice <= now {
                let packets = rate / pairs * controlled.tick / packet;
                if controlled.random.unit() < 1.0 - (1.0 - share).powf(packets) {
                    state.next_notice = now + apart;
                    state.notices.push_back(now + feedback);
                }
            }
            controlled.catch_up(at, now, rate);
        }
        let growth = self.growth(link);
        let Some(controlled) = &mut self.controlled else { return };
        let place = controlled.queue_of[link];
        controlled.queues[place as usize].growth = growth;
        let is_over = length <= 1.0 && growth <= FULL * self.network.capacity(id);
        if is_over {
            controlled.queue_of[link] = NONE;
            controlled.queues[place as usize].due = 0;
            controlled.free.push(place);
        }
        if is_over || 0.0 <= growth {
            let inflow = std::mem::take(&mut controlled.inflow);
            for one in inflow.iter().filter(|one| one.state != NONE) {
                let Some(controlled) = &self.controlled else { return };
                let sender = controlled.states[one.state as usize].sender as usize;
                self.set_cap(sender, if is_over { 0.0 } else { SAME });
                if is_over {
                    self.call_at(one.state as usize);
                }
            }
            if let Some(controlled) = &mut self.controlled {
                controlled.inflow = inflow;
            }
        }
        if !is_over {
            self.tick_at(link);
        }
    }
}
