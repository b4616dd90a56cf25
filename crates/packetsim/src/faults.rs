//! Faults at work: links that go down, lose packets or run slow, NICs that fall behind or storm.
//!
//! [`fabric::fault::Faults`] says what is wrong at which instant; here it is done to the run. No
//! switch runs ahead of the next change. A link that is down loses whatever would cross it, as a
//! switch that sends to a dead port does; `routing.rerouting()` later the routes follow, and queue
//! pairs whose path has changed take the new one. What was lost is repaired by the NICs.
//!
//! # Where this model departs from reality
//!
//! * All switches learn of a change at the same time.
//! * A packet that is on its way when a link comes back, before the time it arrives, is not lost.

use fabric::fault::{Fault, FaultKind, Leave};
use fabric::{Health, LinkId, NodeId};
use units::{Bytes, Id, Time};

use crate::entropy::Way;
use crate::ids::PairId;
use crate::packet::{Class, PATH_END};
use crate::port::NOWHERE;
use crate::simulation::{RareEvent, Simulation};

const NEVER: u64 = u64::MAX;

/// What is wrong with a link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum LinkFault {
    /// Nothing.
    #[default]
    None,
    /// It loses some packets.
    Grey,
    /// It loses all packets.
    Down,
}

/// Whether a fault makes a NIC send pauses.
pub(crate) fn pauses(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::SlowReceiver { .. } | FaultKind::PauseStorm)
}

impl Simulation<'_> {
    /// Does what the faults say is wrong now, and arranges for the next change.
    pub(crate) fn apply_faults(&mut self) {
        // What was due before is sent as things were before.
        self.net.ports.ids().for_each(|link| self.apply_departures(link));
        let now = Time::from_ps(self.time.now);
        let health = self.input.faults.health(self.input.fabric, now);
        for (link, port) in self.net.ports.ids().zip(self.net.ports.iter_mut()) {
            port.set_rate(health.rate(self.input.fabric, link));
        }
        self.note_troubles(&health, now);
        self.clear_failed_links(&health);
        let troubled = self.input.faults.all().iter().filter(|fault| pauses(fault));
        let nics: Vec<NodeId> = troubled.flat_map(|fault| &fault.nodes).copied().collect();
        for nic in nics {
            self.apply_nic_faults(nic, now);
        }
        if 0 < self.time.now {
            let settings = &self.input.settings;
            let leave = match settings.nic.leave() {
                Leave::After(span) => Some(span),
                Leave::AtOnce | Leave::Never => None,
            };
            for after in std::iter::once(settings.routing.rerouting()).chain(leave) {
                let at = self.time.now + after.as_ps();
                self.time.reroutes.push_back(at);
                self.schedule_rare(at, RareEvent::Reroute);
            }
            self.time.reroutes.make_contiguous().sort_unstable();
        }
        // Links that fail and recover for ever do not keep a run alive whose senders have given up.
        let next = self
            .input
            .faults
            .next_change(now)
            .filter(|_| self.time.now == 0 || !self.all_gave_up());
        self.time.change_at = next.map_or(NEVER, Time::as_ps);
        self.set_barrier();
        if self.time.change_at != NEVER {
            self.schedule_rare(self.time.change_at, RareEvent::FaultChange);
        }
    }

    /// The fault of each link. One that routes have left is used again when routing knows that it
    /// is back.
    fn note_troubles(&mut self, health: &Health, now: Time) {
        self.net.troubles.iter_mut().for_each(|trouble| *trouble = LinkFault::None);
        for fault in self.input.faults.on(now) {
            if matches!(fault.kind, FaultKind::Grey { .. }) {
                fault.links.iter().for_each(|link| self.net.troubles[*link] = LinkFault::Grey);
            }
        }
        let known = self.net.network.health();
        for link in self.input.fabric.links().ids() {
            if health.is_down(link) || known.is_down(link) {
                self.net.troubles[link] = LinkFault::Down;
            }
        }
    }

    /// Links that go down forget their pauses, and switches that restart what they hold.
    fn clear_failed_links(&mut self, health: &Health) {
        for link in self.input.fabric.links().ids().filter(|link| health.is_down(*link)) {
            for class in self.input.rules.lossless_classes() {
                self.resume(link, class);
            }
        }
        let now = Time::from_ps(self.time.now);
        let goes_dark = |fault: &&Fault| {
            let kinds = [FaultKind::SwitchDown, FaultKind::SwitchRestart];
            fault.at == now && kinds.contains(&fault.kind)
        };
        let dark = self.input.faults.all().iter().filter(goes_dark).flat_map(|fault| &fault.nodes);
        for node in dark.copied().collect::<Vec<NodeId>>() {
            for at in 0..self.input.fabric.ports(node).len() {
                let link = self.input.fabric.ports(node)[at];
                Class::all().for_each(|class| self.drain_queue(link, class));
            }
            self.drain_voqs(node);
        }
    }

    /// Applies the faults of a NIC: its rate of receiving, and a storm of pauses.
    fn apply_nic_faults(&mut self, nic: NodeId, now: Time) {
        if let Some(host) = self.ends.hosts.get_mut(nic.index()) {
            let own = self.input.settings.nic.host_rate().unwrap_or(host.line);
            host.rate = self.input.faults.receive_rate(nic, now).map_or(own, |rate| rate.min(own));
        }
        let storming = self.input.faults.is_storming(nic, now);
        for at in 0..self.input.fabric.ports(nic).len() {
            let link = self.input.fabric.reverse(self.input.fabric.ports(nic)[at]);
            let pausing = self.net.ports[link].pausing & self.input.rules.lossless != 0;
            if storming && !pausing {
                self.nic_pauses(link);
            } else if !storming && pausing && !self.ends.hosts[nic.index()].pausing {
                self.nic_resumes(link);
            }
        }
    }

    /// Whether a link is out of service.
    pub(crate) fn is_down(&self, link: LinkId) -> bool {
        matches!(self.net.troubles.get(link), Some(LinkFault::Down))
    }

    /// Whether a link damages the packet of so many bytes that has crossed it.
    pub(crate) fn damages_packet(&mut self, link: LinkId, size: u32) -> bool {
        let mut kept = 1.0 - self.input.settings.loss;
        match self.net.troubles.get(link) {
            Some(LinkFault::Down) => return true,
            Some(LinkFault::Grey) => {
                let (id, size) = (link, Bytes::new(u64::from(size)));
                kept *= 1.0 - self.input.faults.loss(id, size, Time::from_ps(self.time.now));
            }
            Some(LinkFault::None) | None => {}
        }
        kept < 1.0 && kept <= self.net.damage[link].unit()
    }

    /// Sets the barrier: no node runs ahead of the next fault, sample or snapshot.
    pub(crate) fn set_barrier(&mut self) {
        let reroute = self.time.reroutes.front().copied().unwrap_or(NEVER);
        self.time.barrier = self.time.change_at.min(self.time.sample_at).min(reroute);
        let look_at = self.repetition.compare_at.min(self.steady.check_at);
        self.time.barrier = self.time.barrier.min(self.time.end_at.saturating_add(1)).min(look_at);
    }

    /// Lets the routes follow what has changed.
    pub(crate) fn reroute(&mut self) {
        self.time.reroutes.pop_front();
        self.set_barrier();
        let (now, leave) = (Time::from_ps(self.time.now), self.input.settings.nic.leave());
        let known = self.input.faults.known(self.input.fabric, now, leave);
        self.net.network.set_health(known);
        let health = self.input.faults.health(self.input.fabric, now);
        self.note_troubles(&health, now);
        let mut stranded = 0;
        for number in self.ends.pairs.ids() {
            let (key, back) = self.net.network.keys[number];
            let forth = self.net.network.walk(self.input.fabric, &key).map(<[LinkId]>::to_vec);
            let return_path =
                self.net.network.walk(self.input.fabric, &back).map(<[LinkId]>::to_vec);
            let (Ok(forth), Ok(return_path)) = (forth, return_path) else {
                stranded += 1;
                continue;
            };
            if self.ends.pairs[number].route != NOWHERE {
                let old = self.ends.pairs[number].route;
                self.ends.pairs[number].route = self.replace_path(old, &forth, number, Way::There);
            }
            let old = self.ends.inboxes[number].route;
            self.ends.inboxes[number].route =
                self.replace_path(old, &return_path, number, Way::Back);
            if self.ends.planes.are_several() {
                self.try_transmit(self.ends.pairs[number].port);
            } else {
                self.move_to_port(number, forth[0]);
            }
        }
        if 0 < stranded {
            self.report_finding(format!(
                "{stranded} queue pairs have no path to their destination"
            ));
        }
    }

    /// Where a path stands in the list: at the old place if it has not changed.
    fn replace_path(&mut self, old: u32, path: &[LinkId], pair: PairId, way: Way) -> u32 {
        let links = path.iter().map(|link| link.index() as u32);
        let known =
            self.net.paths[old as usize..].iter().copied().take_while(|at| at & PATH_END == 0);
        if known.eq(links) && !self.ends.entropy.is_used() {
            return old;
        }
        self.lay_paths_of_pair(pair, path, way)
    }

    /// Lets a queue pair send through another port of its NIC.
    fn move_to_port(&mut self, number: PairId, port: LinkId) {
        if self.ends.pairs[number].port == port {
            return;
        }
        if self.ends.pairs[number].place != NOWHERE {
            self.dequeue_pair(number);
        }
        self.ends.pairs[number].port = port;
        self.enqueue_pair(number);
        self.try_transmit(port);
    }
}
