//! What a fault loses, and when it is sent again.
//!
//! A link that goes down loses what crosses it. A sender does not know: it goes on with what it has
//! to send, and if its way is mended meanwhile, the receiver misses what was lost and asks for it,
//! so that it goes on at once. If it has sent everything by then, nobody asks: it goes on when its
//! timer is over and it has a way then, or the next time, until its retries are used up.
//!
//! A row of messages is posted as a whole. Of a folded channel no more is than its receiver has
//! buffers for ([`Resend::buffer`]), because that has to name each of them, and then it waits for
//! the timer. A flow that is spread over several ways loses a part, and what arrives tells the
//! receiver which; it waits for a timer where a NIC has lost all its ports.

use std::cmp::Reverse;

use fabric::graph::LinkKind;
use fabric::routing::Spread;
use fabric::{LinkId, fault::Leave};
use traffic::{Finding, OpId};
use units::{Bytes, Id};

use super::{Carrier, Event, Held, NONE, Simulation, time};
use crate::max_min::FlowId;
use crate::settings::Resend;

impl Simulation<'_, '_> {
    /// Whether a way that a flow takes is dead, so that all that some queue pair sends is lost.
    pub(super) fn is_cut(&self, flow: FlowId) -> bool {
        if self.settings.resend.is_none() || !self.is_hurt {
            return false;
        }
        let spreads = self.paths.routing().spread(Bytes::MAX) != Spread::One;
        let links = self.network.path(flow).map(|(link, _)| link.index());
        let mut links = links.filter(|link| *link < self.fabric.links().len());
        links.any(|link| {
            let link = LinkId::from_index(link);
            let is_dead = self.health.is_down(link);
            is_dead
                && self.fabric.class(link).kind != LinkKind::ScaleUp
                && (!spreads || self.is_last_port(link))
        })
    }

    /// Whether one end of a dead link is a NIC that has no other port left.
    fn is_last_port(&self, link: LinkId) -> bool {
        let ends = self.fabric.links()[link];
        [ends.from, ends.to].into_iter().any(|node| {
            let ports = self.fabric.ports(node);
            self.fabric.nic_number(node).is_some()
                && ports.iter().all(|port| self.health.is_down(*port))
        })
    }

    /// At what rate something sends into a way that it finds dead: as fast as its port is.
    fn line_rate(&self, who: Carrier) -> f64 {
        let connection = match who {
            Carrier::Lane(lane) => Some(self.lanes[lane as usize].connection),
            Carrier::Coupled(op) => self.lost_edge_of(op),
            Carrier::Background => None,
        };
        let Some(connection) = connection else { return f64::INFINITY };
        let from = self.transfers.connections()[connection].from;
        let ports = self.fabric.ports(from).iter();
        ports.map(|port| self.fabric.class(*port).rate.bytes_per_s()).fold(0.0, f64::max)
    }

    /// Stops everything whose way is dead now. To be called while rates are those of before.
    pub(super) fn lose(&mut self) {
        self.is_hurt = self.fabric.links().ids().any(|link| self.health.is_down(link));
        if !self.is_hurt {
            return;
        }
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[at];
            let (head, Some(flow)) = (lane.head, lane.flow) else { continue };
            if head == NONE || !self.is_cut(flow) {
                continue;
            }
            let rate = self.network.rate(flow);
            let part = &self.parts[head as usize];
            let left = self.stop_flow(flow, part.begun, part.bytes);
            let part = &mut self.parts[head as usize];
            (part.begun, part.bytes) = (self.now, left);
            self.lanes[at].flow = None;
            self.hold_at(Carrier::Lane(at as u32), rate);
        }
        let cut = self.coupled.iter().filter(|(_, running)| self.is_cut(running.flow));
        for (op, running) in cut.map(|(op, running)| (*op, *running)).collect::<Vec<_>>() {
            self.coupled.remove(&op);
            let rate = self.network.rate(running.flow);
            let left = self.stop_flow(running.flow, running.begun, running.bytes);
            self.left.insert(op, left);
            self.hold_at(Carrier::Coupled(op), rate);
        }
    }

    /// Lets something wait for its timer that finds its way dead, unless it does.
    pub(super) fn hold(&mut self, who: Carrier) {
        self.hold_at(who, self.line_rate(who));
    }

    /// The same for something that went on sending at a rate.
    fn hold_at(&mut self, who: Carrier, rate: f64) {
        let Some(Resend { timeout, .. }) = self.settings.resend else { return };
        if self.held.contains_key(&who) {
            return;
        }
        self.held.insert(who, Held { since: self.now, tries: 0, rate });
        self.set_timer(who, self.now + timeout.as_secs_f64());
        self.note_stall(who, self.now);
        if self.is_hurt && !std::mem::replace(&mut self.told_of_losses, true) {
            let text = format!(
                "a fault lost what was on its way: queue pairs whose last packets are among it \
                 send them again after {timeout:.1} without an answer (`network.nic.timeout`)"
            );
            self.outcome.findings.push(Finding { at: time(self.now), text });
        }
    }

    fn set_timer(&mut self, who: Carrier, at: f64) {
        self.timers.push(Reverse((at.to_bits(), who)));
        self.schedule(at, Event::Resend);
    }

    /// Timers are over: who has a way goes on, and the others wait once more.
    pub(super) fn resend(&mut self) {
        let Some(Resend { timeout, retries, .. }) = self.settings.resend else { return };
        while let Some(&Reverse((at, who))) = self.timers.peek() {
            if self.now < f64::from_bits(at) {
                return;
            }
            self.timers.pop();
            let due = |held: &Held| held.since + f64::from(held.tries + 1) * timeout.as_secs_f64();
            // A timer of a loss that it has got over tells nothing.
            let is_due = |held: &Held| due(held) <= self.now * (1.0 + 1e-12);
            let Some(held) = self.held.get_mut(&who).filter(|held| is_due(held)) else { continue };
            held.tries += 1;
            let (tries, next) = (held.tries, due(held));
            if retries < tries {
                self.stop_trying(tries);
            } else if !self.go_on(who) {
                self.set_timer(who, next);
            }
        }
    }

    /// A queue pair has used up its retries. Where that ends the run, or somebody moves it to
    /// another port, others see to it.
    fn stop_trying(&mut self, tries: u32) {
        if self.settings.give_up.is_none() {
            let text = format!(
                "a queue pair gave up after {tries} timeouts without an answer \
                 (`network.nic.retries`)"
            );
            let told = self.outcome.findings.iter().rev().take(64).any(|one| one.text == text);
            if !told {
                self.outcome.findings.push(Finding { at: time(self.now), text });
            }
        }
    }

    /// Lets go on who needs no timer: those who still send, so that the receiver notices what it
    /// misses, and those whom the library has moved to another port.
    pub(super) fn release(&mut self) {
        let posted = |lane: u32| {
            let part = |at: u32| self.parts.get(at as usize).filter(|_| at != NONE);
            let first = part(self.lanes[lane as usize].head);
            let parts = std::iter::successors(first, |one| part(one.next));
            parts.map(|one| one.bytes).sum::<f64>()
        };
        let is_free = |(who, held): &(&Carrier, &Held)| {
            let still = self.now - held.since;
            let moved = match self.settings.leave {
                Leave::After(span) => span.as_secs_f64() * (1.0 - 1e-9) <= still,
                Leave::AtOnce | Leave::Never => false,
            };
            let sends = match who {
                Carrier::Lane(lane) => still * held.rate < posted(*lane),
                Carrier::Coupled(op) => still * held.rate < self.posted_by(*op),
                Carrier::Background => false,
            };
            moved || sends
        };
        let free: Vec<Carrier> = self.held.iter().filter(is_free).map(|(who, _)| *who).collect();
        for who in free {
            self.go_on(who);
        }
    }

    /// What a folded channel posts at most on an edge whose receiver says nothing.
    fn posted_by(&self, op: OpId) -> f64 {
        let buffer = self.settings.resend.map_or(0.0, |resend| resend.buffer.as_f64());
        self.left.get(&op).copied().unwrap_or(0.0).min(buffer)
    }

    /// Sends again what was lost, if there is a way now.
    fn go_on(&mut self, who: Carrier) -> bool {
        let goes = match who {
            Carrier::Lane(lane) => {
                let head = self.lanes[lane as usize].head;
                let part = &mut self.parts[head as usize];
                part.begun = self.now;
                let bytes = part.bytes;
                self.start_lane(lane, bytes);
                self.lanes[lane as usize].flow.is_some()
            }
            Carrier::Coupled(op) => {
                self.start_coupled(op);
                self.coupled.contains_key(&op)
            }
            Carrier::Background => false,
        };
        if goes {
            self.held.remove(&who);
            self.stalled.remove(&who);
        }
        goes
    }
}
