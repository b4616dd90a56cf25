//! What a node does with a packet that arrives: takes it in, sends it on, pauses its sender.

use std::collections::VecDeque;

use traffic::Finding;
use units::{Id, Random, Time};

use crate::buffer::{Admission, EcnConfig, MarkWhen, WatchdogAction};
use crate::calendar::Kind;
use crate::deadlock::SUSPICIOUS;
use crate::limits::QUEUE_BYTES;
use crate::nic::AcksWhilePaused;
use crate::packet::{
    CONTROL, DAMAGED, DATA, LANES, MARKED, PATH_END, Packet, Purpose, RESUME, ROAMING, STAMPED,
    Waiting, joined,
};
use crate::port::NOWHERE;
use crate::settings::{LinkRetry, Settings};
use crate::simulation::{Agenda, Simulation};

/// Draws marks.
#[derive(Debug)]
pub(crate) struct Marker {
    lanes: [Thresholds; LANES],
    /// One stream of dice for each link.
    dice: Vec<Random>,
}

/// When a queue marks.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    min: u64,
    max: u64,
    /// Probability for each byte above `min`.
    slope: f64,
}

impl Thresholds {
    fn new(config: &EcnConfig) -> Self {
        let (min, max) = (config.min.get(), config.max.get());
        let slope = if min < max { config.probability / (max - min) as f64 } else { 0.0 };
        if config.enabled {
            Self { min, max, slope }
        } else {
            Self { min: u64::MAX, max: u64::MAX, slope }
        }
    }
}

impl Marker {
    /// For so many links.
    pub(crate) fn new(settings: &Settings, links: usize) -> Self {
        let of_lane = |lane| settings.ecn_of_lane.get(lane).unwrap_or(&settings.ecn);
        let lanes = std::array::from_fn(|lane| Thresholds::new(of_lane(lane)));
        let marks = settings.ecn.enabled || settings.ecn_of_lane.iter().any(|ecn| ecn.enabled);
        let links = if marks { 0..links as u64 } else { 0..0 };
        let dice = links.map(|link| Random::new(settings.seed, "mark", link)).collect();
        Self { lanes, dice }
    }

    /// Whether a packet is marked when so much of its class is queued on a link.
    #[inline]
    pub(crate) fn marks(&mut self, queued: u64, link: usize, class: usize) -> bool {
        let Thresholds { min, max, slope } = self.lanes[class - DATA];
        if queued <= min {
            return false;
        }
        max < queued || self.dice[link].unit() < (queued - min) as f64 * slope
    }
}

/// How long, and until when, the classes of a link have been paused.
#[derive(Clone, Debug, Default)]
pub(crate) struct PauseLog {
    /// Pause frames that wait for the transmitter.
    pub waiting: VecDeque<Packet>,
    /// Pause frames on the wire.
    pub flying: VecDeque<Packet>,
    /// By class: an event will renew the pause that this end of the link asked for.
    pub renewal_pending: u8,
    /// By class: the watchdog throws away what comes until the pause ends.
    pub discards: u8,
    /// By class: the watchdog lets it send in spite of the pause.
    pub defies: u8,
}

/// The pauses of one lane of a link, or its waiting for credits; the last of them above all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LanePause {
    /// How long all that have ended were together.
    pub total: u64,
    /// When it began.
    pub since: u64,
    /// When it ends unless it is renewed.
    pub until: u64,
    /// An event will look whether it has run out.
    pub expiry_pending: bool,
    /// An event will look whether the queue is stuck.
    pub watchdog_pending: bool,
    /// The pause that began then has been looked into.
    pub examined: Option<u64>,
}

impl Simulation<'_> {
    /// The present or last pause of a class of data.
    pub(crate) fn lane_pause(&mut self, link: usize, class: usize) -> &mut LanePause {
        let place = link * self.rules.lanes + class - DATA;
        &mut self.lane_pauses[place]
    }

    /// Handles [`Kind::PacketArrived`]: the oldest packet on a wire reaches the far end.
    #[inline]
    pub(crate) fn packet_arrived(&mut self, link: usize) {
        let port = &mut self.ports[link];
        if port.into != NOWHERE {
            // A switch that has been batched in the meantime has taken the packet already.
            if self.switches[port.into as usize].is_batched() || port.wire.is_empty() {
                return;
            }
            if self.next_arrival(link) != (self.now, self.ticket) {
                return;
            }
        }
        let port = &mut self.ports[link];
        let packet = self.wires.pop(&mut port.wire);
        debug_assert_eq!(packet.at, self.now as u32);
        if !port.wire.is_empty() {
            let (at, ticket) = self.next_arrival(link);
            self.schedule(at, ticket, Kind::PacketArrived, link);
        } else if port.sendable() != 0 && !self.runs_ahead() {
            self.apply_departures(link);
            if self.ports[link].wire.is_empty() {
                self.schedule_free_event(link);
            }
        }
        self.link_crossed(link, packet);
    }

    /// A packet has crossed a link.
    #[inline]
    pub(crate) fn link_crossed(&mut self, link: usize, packet: Packet) {
        self.counters.packet_hops += u64::from(packet.purpose == Purpose::Data);
        let damaged = !self.damage.is_empty() && self.damages_packet(link, u32::from(packet.size));
        if damaged && self.link_retries(link, &packet) {
            let class = self.class_of(&packet);
            self.apply_departures(link);
            self.credits.take_back(link, class, u32::from(packet.size));
            let packet = Packet { at: joined(self.now), ..packet };
            self.enqueue(link, class, Waiting { packet, from: NOWHERE });
        } else if damaged || packet.flags & DAMAGED != 0 {
            if self.ports[link].into != NOWHERE {
                self.give_credit(link, &packet, self.now);
            }
            self.drop_packet(link, &packet);
        } else if self.ports[link].into == NOWHERE {
            self.packet_delivered(link, packet);
        } else {
            self.forward(link, packet);
        }
    }

    /// Takes a packet into a switch and sends it on, or queues it for its next link.
    #[inline]
    fn forward(&mut self, link: usize, mut packet: Packet) {
        if self.ends_here(&packet) {
            self.give_credit(link, &packet, self.now);
            self.packet_delivered(link, packet);
            return;
        }
        let class = self.class_of(&packet);
        let next = self.next_link(link, &mut packet);
        let is_lost = match self.ports.get(next) {
            Some(port) => port.paused >> class & 1 == 1 && self.watchdog_discards(next, class),
            // No link leads there any more.
            None => true,
        };
        if is_lost {
            self.give_credit(link, &packet, self.now);
            self.drop_packet(if next < self.ports.len() { next } else { link }, &packet);
            return;
        }
        self.apply_departures(next);
        let is_idle = self.is_idle(next, class) && self.has_credit(next, class);
        if self.ports[next].queued.checked_add(u32::from(packet.size)).is_none() {
            self.drop_above_queue_limit(link, next, &packet);
            return;
        }
        let number = self.ports[link].into as usize;
        let switch = &mut self.switches[number];
        if switch.is_calm() {
            if is_idle {
                // What it would be charged for is given back at the same instant.
                if packet.flags & STAMPED != 0 {
                    self.stamp(next, &packet, self.now, 0);
                }
                self.give_credit(link, &packet, self.now);
                if self.recorder.is_some() {
                    self.record_wait(next, packet.purpose, units::Span::ZERO);
                }
                self.put_on_wire(next, self.now, packet);
                return;
            }
            let size = u32::from(packet.size);
            if self.credits.are_counted() {
                // Its credits are its charge.
            } else if self.rules.lossless >> class & 1 == 1 {
                switch.charge(&mut self.ports[link], class, size);
            } else {
                switch.charge_lossy(size);
            }
        } else if !self.admit_exactly(link, next, class, u32::from(packet.size)) {
            if self.rules.trims && packet.purpose == Purpose::Data {
                self.trim(link, next, packet);
            } else {
                self.drop_without_room(link, next, &packet, class);
            }
            return;
        }
        if self.rules.mark_when == MarkWhen::Enqueue
            && DATA <= class
            && self.marker.marks(self.ports[next].classes[class].queued.into(), next, class)
            && packet.purpose == Purpose::Data
        {
            packet.flags |= MARKED;
            self.count_mark(next, &packet);
        }
        packet.at = joined(self.now);
        self.enqueue(next, class, Waiting { packet, from: link as u32 });
    }

    /// Whether the watchdog throws away what comes for a paused link.
    #[cold]
    fn watchdog_discards(&self, link: usize, class: usize) -> bool {
        self.pauses[link].discards >> class & 1 == 1
    }

    /// The link that a packet takes next.
    #[inline]
    fn next_link(&mut self, link: usize, packet: &mut Packet) -> usize {
        if packet.flags & ROAMING != 0 {
            return self.choose_link(link, packet);
        }
        let next = self.paths[packet.route as usize];
        packet.route += 1;
        next as usize
    }

    /// Admission where somebody may pass a threshold. If not even by upper bounds does this packet,
    /// that is enough; else everything is counted that has left the switch until now.
    #[inline(never)]
    pub(crate) fn admit_exactly(
        &mut self,
        link: usize,
        next: usize,
        class: usize,
        size: u32,
    ) -> bool {
        let number = self.ports[link].into as usize;
        if self.rules.lossless >> class & 1 == 0 {
            // The departures of this port have been applied.
            let queued = u64::from(self.ports[next].classes[class].queued + size);
            if self.switches[number].lossy_limit() < queued {
                self.apply_switch_departures(number);
            }
            let switch = &mut self.switches[number];
            let fits = queued <= switch.lossy_limit();
            if fits {
                switch.charge_lossy(size);
            }
            return fits;
        }
        let switch = &mut self.switches[number];
        if !switch.alert && switch.surely_stays_below(&self.ports[link], class, size) {
            switch.charge(&mut self.ports[link], class, size);
            return true;
        }
        self.apply_switch_departures(number);
        let switch = &mut self.switches[number];
        match switch.admit(&mut self.ports[link], class, size) {
            Admission::Taken => true,
            Admission::TakenAndPause => {
                self.pause_upstream(link, class);
                true
            }
            Admission::Dropped => false,
        }
    }

    /// Applies the departures of all ports of a switch.
    fn apply_switch_departures(&mut self, number: usize) {
        if self.switches[number].alert {
            return;
        }
        for at in 0..self.switches[number].ports.len() {
            self.apply_departures(self.switches[number].ports[at] as usize);
        }
    }

    /// Asks the sender at the other end of a link to pause a class.
    fn pause_upstream(&mut self, link: usize, class: usize) {
        self.ports[link].pausing |= 1 << class;
        let number = self.ports[link].into as usize;
        let switch = &mut self.switches[number];
        switch.pausing += 1;
        if !switch.alert {
            switch.alert = true;
            self.require_events(number as u32);
            for at in 0..self.switches[number].ports.len() {
                self.schedule_free_event(self.switches[number].ports[at] as usize);
            }
        }
        self.send_pause(link, class, 0);
        self.schedule_renewal(link, class);
    }

    /// How long so many quanta of 512 bit times are on a link.
    pub(crate) fn quanta(&self, link: usize, quanta: u32) -> u64 {
        let quantum = self.ports[link].rate.time_to_send(units::Bytes::new(64));
        quantum.as_ps() * u64::from(quanta)
    }

    /// A NIC asks its switch to pause everything.
    pub(crate) fn nic_pauses(&mut self, link: usize) {
        for class in self.rules.lossless_classes() {
            self.ports[link].pausing |= 1 << class;
            self.send_pause(link, class, 0);
            self.schedule_renewal(link, class);
        }
    }

    /// A NIC lets its switch go on.
    pub(crate) fn nic_resumes(&mut self, link: usize) {
        for class in self.rules.lossless_classes() {
            self.ports[link].pausing &= !(1 << class);
            self.send_pause(link, class, RESUME);
        }
    }

    /// Sees to it that a pause is renewed before it runs out.
    pub(crate) fn schedule_renewal(&mut self, link: usize, class: usize) {
        let lasts = self.quanta(link, self.rules.pause_quanta);
        let pending = &mut self.pauses[link].renewal_pending;
        if 0 < lasts && *pending >> class & 1 == 0 {
            *pending |= 1 << class;
            let at = self.now + lasts / 2;
            self.schedule_rare(at, Agenda::Renew { link: link as u32, class: class as u8 });
        }
    }

    /// A pause that still holds is renewed before it runs out.
    pub(crate) fn renew_pause(&mut self, link: usize, class: usize) {
        self.pauses[link].renewal_pending &= !(1 << class);
        if self.ports[link].pausing >> class & 1 == 1 {
            self.send_pause(link, class, 0);
            self.schedule_renewal(link, class);
        }
    }

    /// Handles [`Kind::PauseFrame`]: a pause frame reaches the far end of a link, whose sender
    /// there is the reverse link's port.
    pub(crate) fn pause_frame_arrived(&mut self, link: usize) {
        let frame = self.pauses[link].flying.pop_front().expect("a frame was on the wire");
        let reverse = self.fabric.reverse(fabric::LinkId::from_index(link)).index();
        let class = frame.psn as usize;
        let retried = self.settings.switch.link_retry == LinkRetry::On && !self.is_down(link);
        let is_lost =
            !self.damage.is_empty() && self.damages_packet(link, u32::from(frame.size)) && !retried;
        if is_lost || self.rules.lossless >> class & 1 == 0 {
            // It did not arrive, or nobody listens to pauses of its class.
        } else if frame.flags & RESUME == 0 {
            self.pause(reverse, class);
        } else {
            self.resume(reverse, class);
        }
        self.release_events(self.ports[link].into);
    }

    /// A port may not send a class any more.
    pub(crate) fn pause(&mut self, link: usize, class: usize) {
        self.apply_departures(link);
        let (now, lasts) = (self.now, self.quanta(link, self.rules.pause_quanta));
        let halt = self.lane_pause(link, class);
        halt.until = if lasts == 0 { u64::MAX } else { now + lasts };
        if lasts != 0 && !halt.expiry_pending {
            halt.expiry_pending = true;
            let until = halt.until;
            self.schedule_rare(until, Agenda::Expire { link: link as u32, class: class as u8 });
        }
        if (self.ports[link].paused | self.pauses[link].defies) >> class & 1 == 1 {
            return;
        }
        self.counters.pauses += 1;
        let is_watched = self.ports[link].switch != NOWHERE && 0 < self.rules.watchdog;
        let halt = self.lane_pause(link, class);
        halt.since = now;
        if is_watched && !halt.watchdog_pending {
            halt.watchdog_pending = true;
            let at = now + self.rules.watchdog;
            self.schedule_rare(at, Agenda::Watchdog { link: link as u32, class: class as u8 });
        }
        let port = &mut self.ports[link];
        port.paused |= 1 << class;
        if port.switch == NOWHERE && self.rules.acks_hold == AcksWhilePaused::Hold {
            port.paused |= 1 << CONTROL;
        }
        self.require_events(self.ports[link].switch);
    }

    /// How long a lane of a link has been paused, or has waited for credits, until now.
    pub(crate) fn paused_for(&self, link: usize, lane: usize) -> u64 {
        let halt = &self.lane_pauses[link * self.rules.lanes + lane];
        let is_paused = self.ports[link].paused >> (DATA + lane) & 1 == 1;
        let running = if is_paused { self.now.saturating_sub(halt.since) } else { 0 };
        halt.total + running + self.credits.waited(link, lane, self.now)
    }

    /// A port may send a class again.
    pub(crate) fn resume(&mut self, link: usize, class: usize) {
        let log = &mut self.pauses[link];
        log.discards &= !(1 << class);
        log.defies &= !(1 << class);
        if self.ports[link].paused >> class & 1 == 0 {
            return;
        }
        self.apply_departures(link);
        let now = self.now;
        let halt = self.lane_pause(link, class);
        halt.total += now - halt.since;
        let port = &mut self.ports[link];
        port.paused &= !(1 << class);
        if port.switch == NOWHERE {
            if port.paused >> DATA == 0 {
                port.paused &= !(1 << CONTROL);
            }
            self.start_transmitter(link);
            self.try_transmit(link);
        } else {
            self.start_transmitter(link);
            if self.sender_of_port[link] != NOWHERE {
                self.try_transmit(link);
            }
            self.release_events(self.ports[link].switch);
        }
    }

    /// Looks whether a pause has run out without being renewed.
    pub(crate) fn expire_pause(&mut self, link: usize, class: usize) {
        let halt = self.lane_pause(link, class);
        halt.expiry_pending = false;
        let until = halt.until;
        if (self.ports[link].paused | self.pauses[link].defies) >> class & 1 == 0 {
            return;
        }
        if until <= self.now {
            self.resume(link, class);
        } else {
            let now = self.now;
            let halt = self.lane_pause(link, class);
            halt.expiry_pending = true;
            if halt.since + SUSPICIOUS.as_ps() <= now && halt.examined != Some(halt.since) {
                halt.examined = Some(halt.since);
                self.diagnose_pause(link, class);
            }
            self.schedule_rare(until, Agenda::Expire { link: link as u32, class: class as u8 });
        }
    }

    /// Looks whether a queue has been paused for so long that it must be stuck.
    pub(crate) fn watchdog_expired(&mut self, link: usize, class: usize) {
        let halt = self.lane_pause(link, class);
        halt.watchdog_pending = false;
        let since = halt.since;
        if self.ports[link].paused >> class & 1 == 0 {
            return;
        }
        if self.now < since + self.rules.watchdog {
            self.lane_pause(link, class).watchdog_pending = true;
            let at = since + self.rules.watchdog;
            self.schedule_rare(at, Agenda::Watchdog { link: link as u32, class: class as u8 });
            return;
        }
        let name = self.fabric.link_name(fabric::LinkId::from_index(link));
        let span = units::Span::from_ps(self.rules.watchdog);
        let acts = match self.settings.pfc.action {
            WatchdogAction::Alert => "tells",
            WatchdogAction::Forward => "lets it send",
            WatchdogAction::Drop => "drops what waits and what comes",
        };
        self.report_finding(format!("{name} has been paused for {span}: the watchdog {acts}"));
        self.diagnose_pause(link, class);
        match self.settings.pfc.action {
            WatchdogAction::Alert => {}
            WatchdogAction::Forward => {
                self.resume(link, class);
                self.pauses[link].defies |= 1 << class;
            }
            WatchdogAction::Drop => {
                self.pauses[link].discards |= 1 << class;
                self.drain_queue(link, class);
            }
        }
    }

    /// Throws away what waits in a queue and gives its memory back.
    pub(crate) fn drain_queue(&mut self, link: usize, class: usize) {
        self.apply_departures(link);
        while !self.ports[link].classes[class].queue.is_empty() {
            let port = &mut self.ports[link];
            let waiting = self.queued.pop(&mut port.classes[class].queue);
            port.left(class, u32::from(waiting.packet.size));
            if port.switch != NOWHERE {
                let number = port.switch as usize;
                self.release_memory(number, &waiting, class);
            }
            self.drop_packet(link, &waiting.packet);
        }
    }

    /// Gives back what a packet that leaves a switch was charged for.
    fn release_memory(&mut self, number: usize, waiting: &Waiting, class: usize) {
        if waiting.from == NOWHERE {
            return;
        }
        let size = u32::from(waiting.packet.size);
        let from = waiting.from as usize;
        if self.credits.are_counted() {
            self.credits.give(from, class, size, self.now);
            return;
        }
        let switch = &mut self.switches[number];
        if self.rules.lossless >> class & 1 == 0 {
            switch.release_lossy(size);
            return;
        }
        let port = &mut self.ports[from];
        switch.release(port, class, size);
        if port.pausing >> class & 1 == 1 && switch.may_resume(port, class, self.rules.xon_below) {
            self.resume_upstream(from, class);
        }
    }

    /// A packet that came over a link finds no room in the queue of the next.
    #[cold]
    fn drop_without_room(&mut self, link: usize, next: usize, packet: &Packet, class: usize) {
        if self.rules.lossless >> class & 1 == 1 {
            let node = self.fabric.links()[fabric::LinkId::from_index(link)].to;
            self.report_lossless_drop(node, "headroom");
        }
        self.drop_packet(next, packet);
    }

    /// So much waits for a link that a packet more could not be counted.
    #[cold]
    fn drop_above_queue_limit(&mut self, link: usize, next: usize, packet: &Packet) {
        let name = self.fabric.link_name(fabric::LinkId::from_index(next));
        let most = units::Bytes::new(u64::from(QUEUE_BYTES));
        self.report_finding(format!(
            "{most:.0} wait for {name}, and the packet engine counts no more: what comes is dropped"
        ));
        self.give_credit(link, packet, self.now);
        self.drop_packet(next, packet);
    }

    /// A lossless class has lost a packet, which must not happen: the first of a node is reported.
    #[cold]
    pub(crate) fn report_lossless_drop(&mut self, node: fabric::NodeId, too_small: &str) {
        if self.dropped_lossless.contains(&node) {
            return;
        }
        self.dropped_lossless.push(node);
        let name = self.fabric.name(node);
        self.report_finding(format!(
            "{name} dropped a packet of the lossless class: its {too_small} is too small"
        ));
    }

    /// Whether a link sends a damaged packet again: one that is up does until its sender gives up.
    #[cold]
    fn link_retries(&self, link: usize, packet: &Packet) -> bool {
        if self.settings.switch.link_retry == LinkRetry::Off || self.is_down(link) {
            return false;
        }
        let pair = if packet.flags & ROAMING != 0 {
            packet.route
        } else {
            let end = self.paths[packet.route as usize..].iter().find(|at| **at & PATH_END != 0);
            end.expect("every path has an end") & !PATH_END
        };
        !self.pairs[pair as usize].broken
    }

    /// A packet is gone: on a link, or in the queue for it.
    #[cold]
    pub(crate) fn drop_packet(&mut self, link: usize, packet: &Packet) {
        self.counters.drops += 1;
        let class = self.class_of(packet);
        self.ports[link].classes[class].drops += 1;
        if packet.purpose == Purpose::Data {
            self.tally.dropped_data += 1;
        }
        if packet.flags & STAMPED != 0 {
            self.stamps.free(packet.sent);
        }
    }

    /// Adds a finding for the user, unless it is there already.
    pub(crate) fn report_finding(&mut self, text: String) {
        let is_new = self.findings.iter().all(|finding| finding.text != text);
        if is_new && self.findings.len() < 1_000 {
            self.findings.push(Finding { at: Time::from_ps(self.now), text });
        }
    }
}
