//! Arrivals at a switch: admission, forwarding, marks, and pauses of the sender.

use std::collections::VecDeque;

use fabric::graph::Link;
use fabric::{Fabric, LinkId};
use traffic::Finding;
use units::{Id, Random, Time};

use crate::buffer::{Admission, EcnConfig, MarkWhen, WatchdogAction};
use crate::calendar::Event;
use crate::deadlock::SUSPICIOUS;
use crate::ids::{Maybe, PairId, Raw, SwitchId};
use crate::limits::QUEUE_BYTES;
use crate::nic::AcksWhilePaused;
use crate::packet::{
    CONTROL, Class, DAMAGED, DATA, DATA_CLASSES, LANES, MARKED, Packet, Purpose, RESUME, ROAMING,
    STAMPED, Waiting, joined,
};
use crate::settings::{LinkRetry, Settings, tier_of};
use crate::simulation::{RareEvent, Simulation};

/// Draws marks.
#[derive(Debug)]
pub(crate) struct Marker {
    lanes: [Thresholds; LANES],
    /// Of the tiers that have their own, and by link which of them is its switch's; none where all
    /// are alike.
    tiers: Vec<Thresholds>,
    of_link: Vec<Option<u8>>,
    /// One stream of dice for each link.
    dice: Vec<Random>,
    /// How often they were thrown.
    pub throws: u64,
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
    /// For the links of a fabric.
    pub(crate) fn new(settings: &Settings, fabric: &Fabric) -> Self {
        let of_lane = |lane| settings.ecn_of_lane.get(lane).unwrap_or(&settings.ecn);
        let lanes = std::array::from_fn(|lane| Thresholds::new(of_lane(lane)));
        let marks = settings.all_marks().any(|ecn| ecn.enabled);
        let links = if marks { 0..fabric.links().len() as u64 } else { 0..0 };
        let dice = links.map(|link| Random::new(settings.seed, "mark", link)).collect();
        let of_tier = &settings.ecn_of_tier;
        let tiers = of_tier.values().map(Thresholds::new).collect();
        let place = |link: &Link| {
            let tier = tier_of(fabric, link.from)?;
            of_tier.keys().position(|name| name == tier).map(|place| place as u8)
        };
        let of_link = if of_tier.is_empty() {
            Vec::new()
        } else {
            fabric.links().iter().map(place).collect()
        };
        Self { lanes, tiers, of_link, dice, throws: 0 }
    }

    /// When the queue before a link marks.
    #[inline]
    fn thresholds(&self, link: LinkId, lane: usize) -> Thresholds {
        match self.of_link.get(link.index()) {
            Some(Some(place)) => self.tiers[usize::from(*place)],
            _ => self.lanes[lane],
        }
    }

    /// From how many bytes on the queue before a link marks, where data has one lane; none where
    /// it never does.
    pub(crate) fn marks_from(&self, link: LinkId) -> Option<u64> {
        Some(self.thresholds(link, 0).min).filter(|min| *min < u64::MAX)
    }

    /// Whether a packet is marked when so much of its class is queued on a link.
    #[inline]
    pub(crate) fn marks(&mut self, queued: u64, link: LinkId, class: Class) -> bool {
        let Thresholds { min, max, slope } = self.thresholds(link, class.lane());
        if queued <= min {
            return false;
        }
        if max < queued {
            return true;
        }
        self.throws += 1;
        self.dice[link.index()].unit() < (queued - min) as f64 * slope
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
    /// By lane: when it last asked for one.
    pub asked_at: [u64; LANES],
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
    pub(crate) fn lane_pause(&mut self, link: LinkId, class: Class) -> &mut LanePause {
        let place = link.index() * self.input.rules.lanes + class.lane();
        &mut self.net.lane_pauses[place]
    }

    /// Handles [`Event::PacketArrived`]: the oldest packet on a wire reaches the far end.
    #[inline]
    pub(crate) fn packet_arrived(&mut self, link: LinkId) {
        let port = &mut self.net.ports[link];
        if port.into.is_some() {
            // A switch that has been batched in the meantime has taken the packet already.
            if self.net.switches[port.into.known()].is_batched() || port.wire.is_empty() {
                return;
            }
            if self.next_arrival(link) != (self.time.now, self.time.ticket) {
                return;
            }
        }
        let port = &mut self.net.ports[link];
        let packet = self.net.wires.pop(&mut port.wire);
        debug_assert_eq!(packet.at, self.time.now as u32);
        if !port.wire.is_empty() {
            let (at, ticket) = self.next_arrival(link);
            self.schedule(at, ticket, Event::PacketArrived(link));
        } else if port.sendable() != 0 && !self.runs_ahead() {
            self.apply_departures(link);
            if self.net.ports[link].wire.is_empty() {
                self.schedule_free_event(link);
            }
        }
        self.link_crossed(link, packet);
    }

    /// A packet has crossed a link.
    #[inline]
    pub(crate) fn link_crossed(&mut self, link: LinkId, packet: Packet) {
        self.accounts.counters.packet_hops += u64::from(packet.purpose == Purpose::Data);
        let damaged =
            !self.net.damage.is_empty() && self.damages_packet(link, u32::from(packet.size));
        if damaged && self.link_retries(link, &packet) {
            let class = self.class_of(&packet);
            self.apply_departures(link);
            self.net.credits.take_back(link, class, u32::from(packet.size));
            let packet = Packet { at: joined(self.time.now), ..packet };
            self.enqueue(link, class, Waiting { packet, from: Maybe::NONE });
        } else if damaged || packet.flags & DAMAGED != 0 {
            if self.net.ports[link].into.is_some() {
                self.give_credit(link, &packet, self.time.now);
            }
            self.drop_packet(link, &packet);
        } else if self.net.ports[link].into.is_none() {
            self.packet_delivered(link, packet);
        } else {
            self.forward(link, packet);
        }
    }

    /// Forwards a packet: transmits it on its next link, or enqueues it there.
    #[inline]
    fn forward(&mut self, link: LinkId, mut packet: Packet) {
        if self.net.schedule.is_on && self.forward_scheduled(link, packet) {
            return;
        }
        if self.ends_here(&packet) {
            self.give_credit(link, &packet, self.time.now);
            self.packet_delivered(link, packet);
            return;
        }
        let class = self.class_of(&packet);
        let next = self.next_link(link, &mut packet);
        let Some(next) = next else {
            // No link leads there any more.
            self.give_credit(link, &packet, self.time.now);
            self.drop_packet(link, &packet);
            return;
        };
        if class.is_in(self.net.ports[next].paused) && self.watchdog_discards(next, class) {
            self.give_credit(link, &packet, self.time.now);
            self.drop_packet(next, &packet);
            return;
        }
        self.apply_departures(next);
        let is_idle = self.is_idle(next, class) && self.has_credit(next, class);
        if self.net.ports[next].queued.checked_add(u32::from(packet.size)).is_none() {
            self.drop_above_queue_limit(link, next, &packet);
            return;
        }
        let number = self.net.ports[link].into.known();
        let switch = &mut self.net.switches[number];
        if switch.is_below_thresholds() {
            if is_idle {
                // What it would be charged for is given back at the same instant.
                if packet.flags & STAMPED != 0 {
                    self.stamp(next, &packet, self.time.now, 0);
                }
                self.give_credit(link, &packet, self.time.now);
                if self.accounts.recorder.is_some() {
                    self.record_wait(next, packet.purpose, units::Span::ZERO);
                }
                self.put_on_wire(next, self.time.now, packet);
                return;
            }
            let size = u32::from(packet.size);
            if self.net.credits.are_counted() {
                // Its credits are its charge.
            } else if class.is_in(self.input.rules.lossless) {
                switch.charge(&mut self.net.ports[link], class, size);
            } else {
                switch.charge_lossy(size);
            }
        } else if !self.admit_exactly(link, next, class, u32::from(packet.size)) {
            if self.input.rules.trims && packet.purpose == Purpose::Data {
                self.trim(link, next, packet);
            } else {
                self.drop_without_room(link, next, &packet, class);
            }
            return;
        }
        if self.input.rules.mark_when == MarkWhen::Enqueue
            && DATA <= class
            && self.net.marker.marks(self.net.ports[next].classes[class].queued.into(), next, class)
            && packet.purpose == Purpose::Data
        {
            packet.flags |= MARKED;
            self.count_mark(next, &packet);
        }
        packet.at = joined(self.time.now);
        self.enqueue(next, class, Waiting { packet, from: Maybe::some(link) });
    }

    /// Whether the watchdog throws away what comes for a paused link.
    #[cold]
    fn watchdog_discards(&self, link: LinkId, class: Class) -> bool {
        class.is_in(self.net.pauses[link].discards)
    }

    /// The link that a packet takes next.
    #[inline]
    fn next_link(&mut self, link: LinkId, packet: &mut Packet) -> Option<LinkId> {
        if packet.flags & ROAMING != 0 {
            return self.choose_link(link, packet);
        }
        let next = self.net.paths[packet.route as usize];
        packet.route += 1;
        Some(LinkId::of(next))
    }

    /// Admission where somebody may pass a threshold. If not even by upper bounds does this packet,
    /// that is enough; else everything is counted that has left the switch until now.
    #[inline(never)]
    pub(crate) fn admit_exactly(
        &mut self,
        link: LinkId,
        next: LinkId,
        class: Class,
        size: u32,
    ) -> bool {
        let number = self.net.ports[link].into.known();
        if !class.is_in(self.input.rules.lossless) {
            // The departures of this port have been applied.
            let queued = u64::from(self.net.ports[next].classes[class].queued + size);
            if self.net.switches[number].lossy_limit() < queued {
                self.apply_switch_departures(number);
            }
            let switch = &mut self.net.switches[number];
            let fits = queued <= switch.lossy_limit();
            if fits {
                switch.charge_lossy(size);
            }
            return fits;
        }
        let switch = &mut self.net.switches[number];
        if !switch.departures_are_events
            && switch.surely_stays_below(&self.net.ports[link], class, size)
        {
            switch.charge(&mut self.net.ports[link], class, size);
            return true;
        }
        self.apply_switch_departures(number);
        let switch = &mut self.net.switches[number];
        match switch.admit(&mut self.net.ports[link], class, size) {
            Admission::Taken => true,
            Admission::TakenAndPause => {
                self.pause_upstream(link, class);
                true
            }
            Admission::Dropped => false,
        }
    }

    /// Applies the departures of all ports of a switch.
    fn apply_switch_departures(&mut self, number: SwitchId) {
        if self.net.switches[number].departures_are_events {
            return;
        }
        for at in 0..self.net.switches[number].ports.len() {
            self.apply_departures(self.net.switches[number].ports[at]);
        }
    }

    /// Asks the sender at the other end of a link to pause a class.
    pub(crate) fn pause_upstream(&mut self, link: LinkId, class: Class) {
        self.net.ports[link].pausing |= class.bit();
        let number = self.net.ports[link].into.known();
        let switch = &mut self.net.switches[number];
        switch.pausing += 1;
        if !switch.departures_are_events {
            switch.departures_are_events = true;
            self.require_events(Maybe::some(number));
            for at in 0..self.net.switches[number].ports.len() {
                self.schedule_free_event(self.net.switches[number].ports[at]);
            }
        }
        self.ask_for_pause(link, class);
    }

    /// Sends a pause frame, and schedules the renewal of the pause.
    fn ask_for_pause(&mut self, link: LinkId, class: Class) {
        self.net.pauses[link].asked_at[class.lane()] = self.time.now;
        self.send_pause(link, class, 0);
        self.schedule_renewal(link, class);
    }

    /// How long so many quanta of 512 bit times are on a link.
    pub(crate) fn quanta(&self, link: LinkId, quanta: u32) -> u64 {
        let quantum = self.net.ports[link].rate.time_to_send(units::Bytes::new(64));
        quantum.as_ps() * u64::from(quanta)
    }

    /// A NIC asks its switch to pause everything.
    pub(crate) fn nic_pauses(&mut self, link: LinkId) {
        for class in self.input.rules.lossless_classes() {
            self.net.ports[link].pausing |= class.bit();
            self.ask_for_pause(link, class);
        }
    }

    /// A NIC lets its switch go on.
    pub(crate) fn nic_resumes(&mut self, link: LinkId) {
        for class in self.input.rules.lossless_classes() {
            self.net.ports[link].pausing &= !class.bit();
            self.send_pause(link, class, RESUME);
        }
    }

    /// Schedules the renewal of a pause before it runs out.
    pub(crate) fn schedule_renewal(&mut self, link: LinkId, class: Class) {
        let lasts = self.quanta(link, self.input.rules.pause_quanta);
        let log = &mut self.net.pauses[link];
        if 0 < lasts && !class.is_in(log.renewal_pending) {
            log.renewal_pending |= class.bit();
            let at = self.time.now.max(log.asked_at[class.lane()]) + lasts / 2;
            self.schedule_rare(at, RareEvent::Renew { link, class });
        }
    }

    /// A pause that still holds is renewed before it runs out.
    pub(crate) fn renew_pause(&mut self, link: LinkId, class: Class) {
        self.net.pauses[link].renewal_pending &= !class.bit();
        if class.is_in(self.net.ports[link].pausing) {
            // A switch that has run ahead of the clock may have begun it later than now.
            if self.net.pauses[link].asked_at[class.lane()] <= self.time.now {
                self.send_pause(link, class, 0);
            }
            self.schedule_renewal(link, class);
        }
    }

    /// Handles [`Event::PauseFrame`]: a pause frame reaches the far end of a link, whose sender
    /// there is the reverse link's port.
    pub(crate) fn pause_frame_arrived(&mut self, link: LinkId) {
        let frame = self.net.pauses[link].flying.pop_front().expect("a frame was on the wire");
        let reverse = self.input.fabric.reverse(link);
        let class = Class::from_index(frame.psn as usize);
        let retried = self.input.settings.switch.link_retry == LinkRetry::On && !self.is_down(link);
        let is_lost = !self.net.damage.is_empty()
            && self.damages_packet(link, u32::from(frame.size))
            && !retried;
        if self.accounts.recorder.is_some() {
            self.capture(link, &frame, is_lost);
        }
        if is_lost || !class.is_in(self.input.rules.lossless) {
            // It did not arrive, or nobody listens to pauses of its class.
        } else if frame.flags & RESUME == 0 {
            self.pause(reverse, class);
        } else {
            self.resume(reverse, class);
        }
        self.release_events(self.net.ports[link].into);
    }

    /// A port may not send a class any more.
    pub(crate) fn pause(&mut self, link: LinkId, class: Class) {
        self.apply_departures(link);
        let (now, lasts) = (self.time.now, self.quanta(link, self.input.rules.pause_quanta));
        let halt = self.lane_pause(link, class);
        halt.until = if lasts == 0 { u64::MAX } else { now + lasts };
        if lasts != 0 && !halt.expiry_pending {
            halt.expiry_pending = true;
            let until = halt.until;
            self.schedule_rare(until, RareEvent::Expire { link, class });
        }
        if class.is_in(self.net.ports[link].paused | self.net.pauses[link].defies) {
            return;
        }
        self.accounts.counters.pauses += 1;
        let is_watched = self.net.ports[link].switch.is_some() && 0 < self.input.rules.watchdog;
        let halt = self.lane_pause(link, class);
        halt.since = now;
        if is_watched && !halt.watchdog_pending {
            halt.watchdog_pending = true;
            let at = now + self.input.rules.watchdog;
            self.schedule_rare(at, RareEvent::Watchdog { link, class });
        }
        let port = &mut self.net.ports[link];
        port.paused |= class.bit();
        if port.switch.is_none() && self.input.rules.acks_hold == AcksWhilePaused::Hold {
            port.paused |= CONTROL.bit();
        }
        self.require_events(self.net.ports[link].switch);
    }

    /// How long a lane of a link has been paused, or has waited for credits, until now.
    pub(crate) fn paused_for(&self, link: LinkId, lane: usize) -> u64 {
        let halt = &self.net.lane_pauses[link.index() * self.input.rules.lanes + lane];
        let is_paused = Class::of_lane(lane).is_in(self.net.ports[link].paused);
        let running = if is_paused { self.time.now.saturating_sub(halt.since) } else { 0 };
        halt.total + running + self.net.credits.waited(link, lane, self.time.now)
    }

    /// A port may send a class again.
    pub(crate) fn resume(&mut self, link: LinkId, class: Class) {
        let log = &mut self.net.pauses[link];
        log.discards &= !class.bit();
        log.defies &= !class.bit();
        if !class.is_in(self.net.ports[link].paused) {
            return;
        }
        self.apply_departures(link);
        let now = self.time.now;
        let halt = self.lane_pause(link, class);
        halt.total += now - halt.since;
        let port = &mut self.net.ports[link];
        port.paused &= !class.bit();
        if port.switch.is_none() {
            if port.paused & DATA_CLASSES == 0 {
                port.paused &= !CONTROL.bit();
            }
            self.start_transmitter(link);
            self.try_transmit(link);
        } else {
            self.start_transmitter(link);
            if self.ends.sender_of_port[link].is_some() {
                self.try_transmit(link);
            }
            self.grant_credit(link);
            self.release_events(self.net.ports[link].switch);
        }
    }

    /// Ends a pause that has run out without being renewed.
    pub(crate) fn expire_pause(&mut self, link: LinkId, class: Class) {
        let halt = self.lane_pause(link, class);
        halt.expiry_pending = false;
        let until = halt.until;
        if !class.is_in(self.net.ports[link].paused | self.net.pauses[link].defies) {
            return;
        }
        if until <= self.time.now {
            self.resume(link, class);
        } else {
            let now = self.time.now;
            let halt = self.lane_pause(link, class);
            halt.expiry_pending = true;
            if halt.since + SUSPICIOUS.as_ps() <= now && halt.examined != Some(halt.since) {
                halt.examined = Some(halt.since);
                self.diagnose_pause(link, class);
            }
            self.schedule_rare(until, RareEvent::Expire { link, class });
        }
    }

    /// Checks whether a queue has been paused for so long that it must be stuck.
    pub(crate) fn watchdog_expired(&mut self, link: LinkId, class: Class) {
        let halt = self.lane_pause(link, class);
        halt.watchdog_pending = false;
        let since = halt.since;
        if !class.is_in(self.net.ports[link].paused) {
            return;
        }
        if self.time.now < since + self.input.rules.watchdog {
            self.lane_pause(link, class).watchdog_pending = true;
            let at = since + self.input.rules.watchdog;
            self.schedule_rare(at, RareEvent::Watchdog { link, class });
            return;
        }
        let name = self.input.fabric.link_name(link);
        let span = units::Span::from_ps(self.input.rules.watchdog);
        let acts = match self.input.settings.pfc.action {
            WatchdogAction::Alert => "tells",
            WatchdogAction::Forward => "lets it send",
            WatchdogAction::Drop => "drops what waits and what comes",
        };
        self.report_finding(format!("{name} has been paused for {span}: the watchdog {acts}"));
        self.diagnose_pause(link, class);
        match self.input.settings.pfc.action {
            WatchdogAction::Alert => {}
            WatchdogAction::Forward => {
                self.resume(link, class);
                self.net.pauses[link].defies |= class.bit();
            }
            WatchdogAction::Drop => {
                self.net.pauses[link].discards |= class.bit();
                self.drain_queue(link, class);
            }
        }
    }

    /// Throws away what waits in a queue and gives its memory back.
    pub(crate) fn drain_queue(&mut self, link: LinkId, class: Class) {
        self.apply_departures(link);
        while !self.net.ports[link].classes[class].queue.is_empty() {
            let port = &mut self.net.ports[link];
            let waiting = self.net.queued.pop(&mut port.classes[class].queue);
            port.left(class, u32::from(waiting.packet.size));
            if port.switch.is_some() {
                let number = port.switch.known();
                self.release_memory(number, &waiting, class);
            }
            self.drop_packet(link, &waiting.packet);
        }
        self.grant_credit(link);
    }

    /// Gives back what a packet that leaves a switch was charged for.
    pub(crate) fn release_memory(&mut self, number: SwitchId, waiting: &Waiting, class: Class) {
        let Some(from) = waiting.from.get() else { return };
        let size = u32::from(waiting.packet.size);
        if self.net.credits.are_counted() {
            self.net.credits.give(from, class, size, self.time.now);
            return;
        }
        let switch = &mut self.net.switches[number];
        if !class.is_in(self.input.rules.lossless) {
            switch.release_lossy(size);
            return;
        }
        let port = &mut self.net.ports[from];
        switch.release(port, class, size);
        if class.is_in(port.pausing) && switch.may_resume(port, class, self.input.rules.xon_below) {
            self.resume_upstream(from, class);
        }
    }

    /// A packet that came over a link finds no room in the queue of the next.
    #[cold]
    pub(crate) fn drop_without_room(
        &mut self,
        link: LinkId,
        next: LinkId,
        packet: &Packet,
        class: Class,
    ) {
        if class.is_in(self.input.rules.lossless) {
            let node = self.input.fabric.links()[link].to;
            self.report_lossless_drop(node, "headroom");
        }
        self.drop_packet(next, packet);
    }

    /// So much waits for a link that a packet more could not be counted.
    #[cold]
    fn drop_above_queue_limit(&mut self, link: LinkId, next: LinkId, packet: &Packet) {
        let name = self.input.fabric.link_name(next);
        let most = units::Bytes::new(u64::from(QUEUE_BYTES));
        self.report_finding(format!(
            "{most:.0} wait for {name}, and the packet engine counts no more: what comes is dropped"
        ));
        self.give_credit(link, packet, self.time.now);
        self.drop_packet(next, packet);
    }

    /// A lossless class has lost a packet, which must not happen: the first of a node is reported.
    #[cold]
    pub(crate) fn report_lossless_drop(&mut self, node: fabric::NodeId, too_small: &str) {
        if self.accounts.dropped_lossless.contains(&node) {
            return;
        }
        self.accounts.dropped_lossless.push(node);
        let name = self.input.fabric.name(node);
        self.report_finding(format!(
            "{name} dropped a packet of the lossless class: its {too_small} is too small"
        ));
    }

    /// Whether a link sends a damaged packet again: one that is up does until its sender gives up.
    #[cold]
    fn link_retries(&self, link: LinkId, packet: &Packet) -> bool {
        if self.input.settings.switch.link_retry == LinkRetry::Off || self.is_down(link) {
            return false;
        }
        let pair = self.pair_under_way(packet);
        !self.ends.pairs[PairId::of(pair)].broken
    }

    /// A packet is gone: on a link, or in the queue for it.
    #[cold]
    pub(crate) fn drop_packet(&mut self, link: LinkId, packet: &Packet) {
        if packet.purpose == Purpose::Cell {
            self.count_cell(packet, Maybe::some(link));
            return;
        }
        if self.accounts.recorder.is_some() {
            self.capture(link, packet, true);
        }
        self.count_drop(link, packet);
    }

    /// Counts a packet that is gone.
    #[cold]
    pub(crate) fn count_drop(&mut self, link: LinkId, packet: &Packet) {
        self.accounts.counters.drops += 1;
        let class = self.class_of(packet);
        self.net.ports[link].drops[class] += 1;
        if packet.purpose == Purpose::Data {
            self.accounts.tally.dropped_data += 1;
        }
        if packet.flags & STAMPED != 0 {
            self.net.stamps.free(packet.sent);
        }
    }

    /// Adds a finding for the user, unless it is there already.
    pub(crate) fn report_finding(&mut self, text: String) {
        self.part.is_blind = true;
        let is_new = self.accounts.findings.iter().all(|finding| finding.text != text);
        if is_new && self.accounts.findings.len() < 1_000 {
            let at = self.steady.real_time(Time::from_ps(self.time.now));
            self.accounts.findings.push(Finding { at, text });
        }
    }
}
