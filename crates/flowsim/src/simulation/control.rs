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
//! # Where this departs from packets
//!
//! * A flow's queue pairs are one state: those of a connection that splits, and of a folded channel
//!   those of all its edges, which go at the pace of the slowest.
//! * As long as a queue is not empty its link is full, and rates that are cut are not seen behind
//!   it. Nothing is paused or dropped.

use std::collections::VecDeque;

use fabric::LinkId;
use fabric::graph::LinkKind;
use fabric::graph::NodeKind;
use traffic::dcqcn::Dcqcn;
use units::{Bytes, Id, Random, Rate, Time};

use super::{Carrier, Event, NONE, Simulation, time};
use crate::max_min::{FlowId, SolverLink};
use crate::settings::Control;

/// Rates closer than this share are the same to the solver while a queue is there.
const SAME: f64 = 0.01;

/// A link is not shared as long as no more than this share of its rate comes in too much.
const FULL: f64 = 1e-6;

/// The state of congestion control in a run.
pub(super) struct Controlled {
    control: Control,
    states: Vec<State>,
    /// By flow of the solver: its place in `states`, or [`NONE`].
    of_flow: Vec<u32>,
    /// By lane, and by place of a folded channel's first edge: the same.
    of_lane: Vec<u32>,
    of_edges: Vec<u32>,
    /// By link of the fabric: its place in `queues`, or [`NONE`].
    queue_of: Vec<u32>,
    queues: Vec<Queue>,
    free: Vec<u32>,
    /// Links whose level has changed since queues were last looked at.
    changed: Vec<SolverLink>,
    inflow: Vec<Inflow>,
    tick: f64,
    random: Random,
}

/// The queue pairs of a flow.
struct State {
    dcqcn: Dcqcn,
    flow: FlowId,
    /// The link of the solver that caps it.
    cap: u32,
    /// Payload per second for one bit per second on the wire, all its queue pairs together.
    scale: f64,
    pairs: f64,
    line: Rate,
    /// From where a packet leaves a queue until its notification is at the sender, about.
    feedback: f64,
    /// Notifications that are under way.
    notices: VecDeque<f64>,
    next_notice: f64,
    /// When it is called next, in bits of seconds; 0 for never.
    due: u64,
    /// Until when the byte counter has counted.
    counted: f64,
    idle_since: f64,
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
    flow: FlowId,
    state: u32,
    /// The link that it comes over.
    over: u32,
    rate: f64,
}

impl Controlled {
    pub(super) fn new(control: &Control, links: usize, seed: u64) -> Self {
        Self {
            control: control.clone(),
            states: Vec::new(),
            of_flow: Vec::new(),
            of_lane: Vec::new(),
            of_edges: Vec::new(),
            queue_of: vec![NONE; links],
            queues: Vec::new(),
            free: Vec::new(),
            changed: Vec::new(),
            inflow: Vec::new(),
            tick: control.tick_s(),
            random: Random::new(seed, "marks of flows", 0),
        }
    }

    fn state_of(&self, flow: FlowId) -> Option<usize> {
        let state = self.of_flow.get(flow.index()).copied().filter(|state| *state != NONE)?;
        Some(state as usize)
    }

    /// The link that caps a flow.
    pub(super) fn cap_of(&self, flow: FlowId) -> Option<u32> {
        self.state_of(flow).map(|state| self.states[state].cap)
    }
}

fn slot(list: &mut Vec<u32>, at: usize) -> &mut u32 {
    if list.len() <= at {
        list.resize(at + 1, NONE);
    }
    &mut list[at]
}

impl State {
    /// Lets pass what was due until now. `rate` is what it sends, in payload per second.
    fn catch_up(&mut self, control: &Control, now: f64, rate: f64) {
        let unit = control.dcqcn.increase_after.as_f64();
        if 0.0 < unit && 0.0 < rate {
            let mut bytes = rate / self.pairs * (now - self.counted);
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

    /// What it may send, in payload per second.
    fn rate(&self) -> f64 {
        self.dcqcn.rate().as_bps_f64() * self.scale
    }

    /// When something changes by itself.
    fn next(&self) -> f64 {
        // At line rate nothing climbs, and looks find nothing.
        let timer = self.dcqcn.deadline().filter(|_| self.dcqcn.rate() < self.line);
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

    /// Gives a flow that has just been described with [`Self::line_cap`] its state: that of its
    /// queue pairs.
    pub(super) fn adopt(&mut self, flow: FlowId, pairs: f64) {
        let Some(line) = self.line_of_lay() else { return };
        let nics = 2.0 * self.settings.wire.nic_latency.as_secs_f64();
        let (cap, feedback) = (self.network.link_count() as u32 - 1, 1.5 * self.lay.delay + nics);
        let edges = match self.carriers[flow] {
            Carrier::Coupled(op) => self.first_edge(op),
            _ => 0,
        };
        let carrier = self.carriers[flow];
        let Some(controlled) = &mut self.controlled else { return };
        let place = match carrier {
            Carrier::Lane(lane) => slot(&mut controlled.of_lane, lane as usize),
            Carrier::Coupled(_) => slot(&mut controlled.of_edges, edges),
            Carrier::Background => return,
        };
        let is_free = |state: &State| self.network.is_idle(state.flow);
        if *place == NONE || !is_free(&controlled.states[*place as usize]) {
            *place = controlled.states.len() as u32;
            controlled.states.push(State {
                dcqcn: Dcqcn::new(&controlled.control.dcqcn, line),
                flow,
                cap,
                scale: 0.0,
                pairs,
                line,
                feedback,
                notices: VecDeque::new(),
                next_notice: 0.0,
                due: 0,
                counted: self.now,
                idle_since: self.now,
            });
        }
        let state = &mut controlled.states[*place as usize];
        (state.flow, state.cap, state.pairs, state.feedback) = (flow, cap, pairs, feedback);
        state.scale = pairs * self.settings.wire.efficiency / 8.0;
        *slot(&mut controlled.of_flow, flow.index()) = *place;
    }

    /// A flow begins: at the rate that its queue pairs have by now.
    pub(super) fn resume(&mut self, flow: FlowId) {
        let Some(controlled) = &mut self.controlled else { return };
        let Some(at) = controlled.state_of(flow) else { return };
        let state = &mut controlled.states[at];
        if let Some(restart) = controlled.control.restart_after
            && restart.as_secs_f64() <= self.now - state.idle_since
        {
            state.dcqcn = Dcqcn::new(&controlled.control.dcqcn, state.line);
            state.notices.clear();
        }
        state.catch_up(&controlled.control, self.now, 0.0);
        let (cap, rate) = (state.cap, state.rate());
        self.network.set_capacity(cap, rate);
        self.call_at(at);
    }

    /// A flow has nothing left to send.
    pub(super) fn rest(&mut self, flow: FlowId) {
        let rate = self.network.rate(flow);
        let Some(controlled) = &mut self.controlled else { return };
        let Some(at) = controlled.state_of(flow) else { return };
        let state = &mut controlled.states[at];
        state.catch_up(&controlled.control, self.now, rate);
        state.idle_since = self.now;
    }

    /// Has a state called when something changes by itself.
    fn call_at(&mut self, at: usize) {
        let Some(controlled) = &mut self.controlled else { return };
        let state = &mut controlled.states[at];
        let next = state.next();
        if next < f64::INFINITY {
            state.due = next.max(self.now).to_bits();
            self.schedule(next.max(self.now), Event::Rate(at as u32));
        }
    }

    /// Something changes by itself in the state of a flow.
    pub(super) fn rate_due(&mut self, at: u32) {
        let at = at as usize;
        let Some(controlled) = &mut self.controlled else { return };
        let state = &mut controlled.states[at];
        if state.due != self.now.to_bits() {
            return;
        }
        state.due = 0;
        let flow = state.flow;
        if self.network.is_idle(flow) || self.network.held_by(flow).is_none() {
            return;
        }
        // Where there is a queue its ticks do this.
        if self.waits(flow) {
            return;
        }
        let rate = self.network.rate(flow);
        let Some(controlled) = &mut self.controlled else { return };
        let state = &mut controlled.states[at];
        state.catch_up(&controlled.control, self.now, rate);
        let (cap, rate) = (state.cap, state.rate());
        self.network.set_capacity(cap, rate);
        self.call_at(at);
    }

    /// Whether a flow has a queue on its way.
    fn waits(&self, flow: FlowId) -> bool {
        let Some(controlled) = &self.controlled else { return false };
        self.network.path(flow).any(|(link, _)| {
            controlled.queue_of.get(link.index()).is_some_and(|queue| *queue != NONE)
        })
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
        for link in &changed {
            let link = link.index();
            if !self.marks(link) {
                continue;
            }
            let Some(controlled) = &self.controlled else { return };
            let is_new = controlled.queue_of[link] == NONE;
            if is_new && self.network.held(SolverLink::from_index(link)).len() == 0 {
                continue;
            }
            self.pass_queue(link);
            let growth = self.growth(link);
            let capacity = self.network.capacity(SolverLink::from_index(link));
            let Some(controlled) = &mut self.controlled else { return };
            if is_new {
                if growth <= FULL * capacity {
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
        let capacity = self.network.capacity(id);
        let Some(controlled) = &mut self.controlled else { return 0.0 };
        let waiting = controlled.queues.get(controlled.queue_of[link] as usize);
        let waiting = waiting.map_or(0.0, |queue| queue.bytes);
        let held = self.network.held(id).len().max(1) as f64;
        controlled.inflow.clear();
        for flow in self.network.crossing(id) {
            let given = self.network.rate(flow);
            let state = controlled.state_of(flow);
            let allowed = state.map_or(given, |state| controlled.states[state].rate());
            let mut over = NONE;
            let mut before = NONE;
            let mut load = 1.0;
            for (other, share) in self.network.path(flow) {
                if other == id {
                    (over, load) = (before, share);
                    break;
                }
                before = other.index() as u32;
            }
            let is_held = self.network.held_by(flow) == Some(id);
            let mut rate = if is_held { allowed } else { allowed.min(given) } * load;
            // What it has left is in the queue.
            if is_held && self.progress.left(flow, self.now, &self.network) * load < waiting / held
            {
                rate = 0.0;
            }
            let state = state.map_or(NONE, |state| state as u32);
            controlled.inflow.push(Inflow { flow, state, over, rate });
        }
        // No more comes over a link than it carries.
        let mut total = 0.0;
        for at in 0..controlled.inflow.len() {
            let over = controlled.inflow[at].over;
            if controlled.inflow[..at].iter().any(|one| one.over == over && over != NONE) {
                continue;
            }
            let same = controlled.inflow[at..].iter().filter(|one| one.over == over);
            let sum: f64 = same.map(|one| one.rate).sum();
            total += match over {
                NONE => controlled.inflow[at].rate,
                _ => sum.min(self.network.capacity(SolverLink::from_index(over as usize))),
            };
        }
        total - capacity
    }

    /// When a queue is looked at next.
    fn tick_at(&mut self, link: usize) {
        let now = self.now;
        let Some(controlled) = &mut self.controlled else { return };
        let place = controlled.queue_of[link] as usize;
        let (tick, least) = (controlled.tick, controlled.control.marks_from.as_f64());
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
            let called = states.map(|one| controlled.states[one.state as usize].next() - now);
            called.fold(reached, f64::min).max(tick / 4.0)
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
        let queue = controlled.queues.get(controlled.queue_of[link] as usize);
        if queue.is_none_or(|queue| queue.due != now.to_bits()) {
            return;
        }
        self.pass_queue(link);
        let id = SolverLink::from_index(link);
        let packet = self.settings.wire.packet.as_f64();
        let Some(controlled) = &mut self.controlled else { return };
        let length = controlled.queues[controlled.queue_of[link] as usize].bytes;
        let share = controlled.control.marked(length);
        for flow in self.network.crossing(id) {
            let Some(at) = controlled.state_of(flow) else { continue };
            let rate = self.network.rate(flow);
            let state = &mut controlled.states[at];
            if 0.0 < share && state.next_notice <= now {
                let packets = rate / state.pairs * controlled.tick / packet;
                if controlled.random.unit() < 1.0 - (1.0 - share).powf(packets) {
                    let apart = controlled.control.dcqcn.notify_every.as_secs_f64();
                    state.next_notice = now + apart * (1.0 - 1e-9);
                    state.notices.push_back(now + state.feedback);
                }
            }
            state.catch_up(&controlled.control, now, rate);
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
        let inflow = std::mem::take(&mut controlled.inflow);
        for one in inflow.iter().filter(|one| one.state != NONE) {
            let Some(controlled) = &mut self.controlled else { return };
            let state = &controlled.states[one.state as usize];
            let (cap, rate) = (state.cap, state.rate());
            let before = self.network.capacity(SolverLink::from_index(cap as usize));
            if is_over {
                if !self.waits(one.flow) {
                    self.network.set_capacity(cap, rate);
                    self.call_at(one.state as usize);
                }
            } else if 0.0 <= growth && SAME * before < (rate - before).abs() {
                self.network.set_capacity(cap, rate);
            }
        }
        if let Some(controlled) = &mut self.controlled {
            controlled.inflow = inflow;
        }
        if !is_over {
            self.tick_at(link);
        }
    }
}
