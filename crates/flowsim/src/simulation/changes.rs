//! What changes while a run goes on: links fail and come back, planners look again, background
//! traffic comes and goes.

use std::cmp::Reverse;

use fabric::NodeId;
use fabric::fault::Leave;
use fabric::routing::RoutingConfig;
use traffic::{ConnectionId, Finding, OpId, OpKind};
use units::Id;

use super::{Carrier, Event, Lane, NONE, Part, Running, Simulation, time};
use crate::capacity;
use crate::max_min::{FlowId, SolverLink};

impl Simulation<'_, '_> {
    /// The fabric changes: links carry what they can, though routes do not know yet.
    pub(super) fn changed(&mut self) {
        let now = time(self.now);
        self.settle();
        self.health = capacity::health(self.fabric, &self.settings.faults, now);
        self.lose();
        let capacities =
            capacity::capacities(self.fabric, &self.health, self.settings, &self.loads, now);
        for (link, capacity) in capacities.into_iter().enumerate() {
            let id = SolverLink::from_index(link);
            if self.network.capacity(id) != capacity {
                self.network.set_capacity(link as u32, capacity);
            }
        }
        let rerouting = self.settings.routing.rerouting().as_secs_f64();
        self.schedule(self.now + rerouting, Event::Converged);
        if let Leave::After(span) = self.settings.leave {
            self.schedule(self.now + span.as_secs_f64(), Event::Converged);
        }
        self.release();
        self.note_stalls();
        if let Some(change) = self.settings.faults.next_change(now) {
            self.schedule(change.as_secs_f64(), Event::Changed);
        }
    }

    /// Switches route around what has failed, and over what has come back.
    pub(super) fn converged(&mut self) {
        let known = self.settings.faults.known(self.fabric, time(self.now), self.settings.leave);
        self.paths.set_health(known);
        self.reroute();
        self.release();
        self.note_stalls();
    }

    /// Looks at everything that has something to send: what does not move, and since when.
    fn note_stalls(&mut self) {
        self.settle();
        let busy = self.lanes.iter().enumerate().filter(|(_, lane)| lane.head != NONE);
        let still =
            busy.filter(|(_, lane)| lane.flow.is_none_or(|flow| self.network.rate(flow) == 0.0));
        let mut stalled: Vec<Carrier> = still.map(|(at, _)| Carrier::Lane(at as u32)).collect();
        let running = self.coupled.iter();
        let still = running.filter(|(_, running)| self.network.rate(running.flow) == 0.0);
        stalled.extend(still.map(|(op, _)| Carrier::Coupled(*op)));
        stalled.extend(self.stranded.iter().copied());
        stalled.retain(|who| !self.held.contains_key(who));
        let before = std::mem::take(&mut self.stalled);
        for who in stalled {
            self.note_stall(who, before.get(&who).copied().unwrap_or(self.now));
        }
        for (who, held) in self.held.clone() {
            self.note_stall(who, held.since);
        }
    }

    /// Notes that something moves nothing since an instant.
    pub(super) fn note_stall(&mut self, who: Carrier, since: f64) {
        let Some(give_up) = self.settings.give_up else { return };
        if self.stalled.insert(who, since).is_none() {
            self.schedule(since + give_up.as_secs_f64(), Event::GiveUp);
        }
    }

    /// Ends the run if something has moved nothing for as long as its retries last.
    pub(super) fn give_up(&mut self) {
        let Some(give_up) = self.settings.give_up else { return };
        let is_over = |since: f64| give_up.as_secs_f64() * (1.0 - 1e-9) <= self.now - since;
        let Some((who, _)) = self.stalled.iter().find(|(_, since)| is_over(**since)) else {
            return;
        };
        let connection = match who {
            Carrier::Lane(lane) => Some(self.lanes[*lane as usize].connection),
            Carrier::Coupled(op) => self.lost_edge_of(*op),
            Carrier::Background => None,
        };
        let name = connection.map_or("a queue pair".to_owned(), |connection| {
            let ends = &self.transfers.connections()[connection];
            let [from, to] = [ends.from, ends.to].map(|node| self.fabric.name(node));
            format!("{from} to {to}")
        });
        let text = format!("{name}: nothing moved for {give_up:.1}, all retries are used up");
        self.outcome.gave_up = Some(Finding { at: time(self.now), text });
    }

    /// The edge of a folded channel that has lost its way.
    pub(super) fn lost_edge_of(&self, op: OpId) -> Option<ConnectionId> {
        match &self.transfers.ops()[op].kind {
            OpKind::Coupled { edges, .. } => self.lost_edge(edges),
            _ => None,
        }
    }

    /// Of a folded channel that does not move, the edge that has lost its way: one that ends at a
    /// NIC with a dead port.
    fn lost_edge(&self, edges: &std::ops::Range<u32>) -> Option<ConnectionId> {
        let is_dead =
            |node: NodeId| self.fabric.ports(node).iter().any(|port| self.health.is_down(*port));
        let edges = self.transfers.coupled(edges);
        let is_hit = |edge: &&ConnectionId| {
            let ends = &self.transfers.connections()[**edge];
            is_dead(ends.from) || is_dead(ends.to)
        };
        edges.iter().find(is_hit).or(edges.first()).copied()
    }

    /// The planner runs again.
    pub(super) fn planned(&mut self) {
        self.paths.plan(self.transfers);
        self.reroute();
        if let Some(interval) = self.paths.routing().interval() {
            self.schedule(self.now + interval.as_secs_f64(), Event::Planned);
        }
    }

    /// The planner measures what every connection has to send, and hears of it later.
    pub(super) fn measured(&mut self) {
        self.settle();
        let known = self.backlog();
        self.known.push_back(known);
        let RoutingConfig { interval, staleness, .. } = self.settings.routing;
        match staleness.as_secs_f64() {
            0.0 => self.followed(),
            later => self.schedule(self.now + later, Event::Followed),
        }
        // Measurements alone do not keep a run going.
        let is_work = |event: Event| !matches!(event, Event::Measured | Event::Followed);
        let mut entries = self.calendar.iter();
        if self.progress.next() < f64::INFINITY || entries.any(|Reverse((_, one))| is_work(*one)) {
            self.schedule(self.now + interval.as_secs_f64(), Event::Measured);
        }
    }

    /// Flows follow the plan of the oldest measurement.
    pub(super) fn followed(&mut self) {
        let known = self.known.pop_front().unwrap_or_default();
        if known.iter().any(|bytes| 0 < *bytes) {
            self.paths.plan_for(&known);
            self.reroute();
        }
    }

    /// By connection: what its queue pairs have been given and have not finished.
    fn backlog(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.transfers.connections().len()];
        for lane in &self.lanes {
            let mut part = lane.head;
            while part != NONE {
                bytes[lane.connection.index()] += self.parts[part as usize].bytes as u64;
                part = self.parts[part as usize].next;
            }
        }
        let waiting = self.stranded.iter().chain(self.held.keys());
        let stranded = waiting.filter_map(|who| match who {
            Carrier::Coupled(op) => Some(*op),
            _ => None,
        });
        for op in self.coupled.keys().copied().chain(stranded) {
            if let OpKind::Coupled { edges, bytes: more, .. } = &self.transfers.ops()[op].kind {
                for connection in self.transfers.coupled(edges) {
                    bytes[connection.index()] += more.get();
                }
            }
        }
        bytes
    }

    /// Walks everything again and moves what has another way now.
    fn reroute(&mut self) {
        // What started in this instant must be known to the solver before it can be moved.
        self.settle();
        let stranded = std::mem::take(&mut self.stranded);
        self.described.clear();
        for lane in 0..self.lanes.len() as u32 {
            self.reroute_lane(lane);
        }
        for (op, running) in std::mem::take(&mut self.coupled) {
            self.reroute_coupled(op, running);
        }
        for who in stranded {
            match who {
                Carrier::Lane(lane) if self.lanes[lane as usize].head != NONE => {
                    let part = &mut self.parts[self.lanes[lane as usize].head as usize];
                    part.begun = self.now;
                    let bytes = part.bytes;
                    self.start_lane(lane, bytes);
                }
                Carrier::Coupled(op) => self.start_coupled(op),
                _ => {}
            }
        }
    }

    fn reroute_lane(&mut self, lane: u32) {
        let Lane { flow: Some(flow), head, .. } = self.lanes[lane as usize] else { return };
        let laid = self.lay_lane(lane);
        if laid.is_ok() && self.is_where_it_was(flow) {
            return;
        }
        self.lanes[lane as usize].flow = None;
        if head == NONE {
            return;
        }
        let Part { begun, bytes, .. } = self.parts[head as usize];
        let left = self.stop_flow(flow, begun, bytes);
        let part = &mut self.parts[head as usize];
        (part.begun, part.bytes) = (self.now, left);
        match laid {
            Ok(weight) => {
                self.define_lane(lane, weight);
                self.start_lane(lane, left);
            }
            Err(no_path) => self.note_no_path(Carrier::Lane(lane), no_path),
        }
    }

    fn reroute_coupled(&mut self, op: OpId, running: Running) {
        let laid = self.lay_coupled(op);
        let Running { flow, begun, bytes } = running;
        if laid.is_ok() && self.is_where_it_was(flow) {
            self.coupled.insert(op, running);
            return;
        }
        let left = self.stop_flow(flow, begun, bytes);
        match laid {
            Ok(weight) => self.run_coupled(op, weight, left),
            // It goes on with what is left when there is a way again.
            Err(no_path) => {
                self.left.insert(op, left);
                self.note_no_path(Carrier::Coupled(op), no_path);
            }
        }
    }

    /// Whether the flow already crosses exactly what `lay` says.
    fn is_where_it_was(&self, flow: FlowId) -> bool {
        let cap = self.controlled.as_ref().and_then(|controlled| controlled.cap_of(flow));
        let links = self.network.path(flow).map(|(link, _)| link.index() as u32);
        let mut old: Vec<u32> = links.filter(|link| Some(*link) != cap).collect();
        let mut new: Vec<u32> = self.lay.entries.iter().map(|(link, _)| *link).collect();
        old.sort_unstable();
        new.sort_unstable();
        new.dedup();
        old == new
    }

    /// Stops a running flow. Notes what it has carried of `bytes` since it began, and returns what
    /// is left.
    pub(super) fn stop_flow(&mut self, flow: FlowId, begun: f64, bytes: f64) -> f64 {
        let left = self.progress.left(flow, self.now, &self.network);
        self.count_bytes(flow, begun, bytes - left);
        self.rest(flow);
        self.network.stop(flow);
        self.progress.end(flow);
        left
    }

    pub(super) fn background(&mut self, number: usize) {
        if let Some(flow) = self.background[number].take() {
            self.network.settle();
            self.network.stop(flow);
            self.progress.end(flow);
            return;
        }
        let background = &self.settings.background[number];
        let from_to = (background.from, background.to);
        match self.paths.lay_background(from_to, number as u64, &mut self.lay) {
            Ok(()) => {
                let rate = background.rate.bytes_per_s();
                let flow = self.network.define(&self.lay.entries, 1.0, Some(rate));
                self.carriers.push(Carrier::Background);
                self.background[number] = Some(flow);
                self.network.start(flow);
                self.progress.begin(flow, f64::INFINITY, &self.network);
            }
            Err(no_path) => {
                let text = no_path.describe(self.fabric);
                self.outcome.findings.push(Finding { at: time(self.now), text });
            }
        }
    }
}
