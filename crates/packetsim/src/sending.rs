//! The sending side of a NIC: whose turn it is, packets out, acknowledgements in, losses repaired.
//!
//! Acknowledgements and grants go first. Then the queue pairs of a port take turns, in the order
//! in which they got something to send; one that must wait for its pacing or its window is passed
//! over.

use fabric::LinkId;
use traffic::OpId;
use units::{Bytes, Id, Rate, Time};

use crate::calendar::Event;
use crate::cc::{Ack, Loss};
use crate::ids::{PairId, Raw, SenderId};
use crate::nic::AfterIdle;
use crate::packet::{ASKS, FRESH, LANE_SHIFT, MARKED, Packet, Purpose, ROAMING, STAMPED};
use crate::pair::Message;
use crate::port::NOWHERE;
use crate::simulation::Simulation;

const NEVER: u64 = u64::MAX;

/// So many queue pairs that gave up are reported one by one; of more, their number.
pub(crate) const MOST_REPORTED: u32 = 3;

/// What is told of a queue pair that has used up its retries.
pub(crate) const GAVE_UP: &str = "gave up after";

impl Simulation<'_> {
    /// Hands a message to a queue pair, which may begin when the host has posted it.
    pub(crate) fn post_message(&mut self, pair: PairId, op: OpId, bytes: u64, posted: u64) {
        if self.ends.pairs[pair].broken {
            return;
        }
        let (key, _) = &self.net.network.keys[pair];
        let fetch = self.ends.fetches[key.from.index()] + self.ends.fetches[key.to.index()];
        let state = &mut self.ends.pairs[pair];
        let was_idle = state.una == state.end;
        let waits = state.sending != NOWHERE;
        let posted = if was_idle { posted + fetch } else { posted };
        self.part.note_message(pair, op, bytes, posted);
        let number = self.queue_message(pair, op, bytes, posted);
        let state = &mut self.ends.pairs[pair];
        if !waits {
            state.sending = number;
            state.posted = posted;
            self.log_send_start(op, false);
        }
        let state = &mut self.ends.pairs[pair];
        if state.waiting == NOWHERE {
            state.waiting = number;
        }
        if was_idle && self.input.settings.nic.after_idle == AfterIdle::Restart {
            self.restart_after_idle(pair);
        }
        if was_idle
            && self.input.rules.flowlet_gap <= self.time.now - self.ends.pairs[pair].busy_until
        {
            self.ends.pairs[pair].choices += 1;
        }
        if self.input.rules.admits {
            self.send_grants(pair);
            self.arm_timeout(pair);
        } else if waits && !self.is_as_ns3() {
            // It has data to send already: one more message changes nothing before its turn.
            return;
        }
        self.enqueue_pair(pair);
        if self.is_as_ns3() {
            self.list_as_ns3(pair);
        }
        self.try_transmit(self.ends.pairs[pair].port);
    }

    /// Adds a message to those of a queue pair; returns its number.
    pub(crate) fn queue_message(&mut self, pair: PairId, op: OpId, bytes: u64, posted: u64) -> u32 {
        let packets = self.input.sizes.packets(bytes);
        let number = self.ends.messages.len() as u32;
        let state = &mut self.ends.pairs[pair];
        let before = match state.last {
            NOWHERE => 0,
            last => {
                let earlier = &mut self.ends.messages[last as usize];
                earlier.next = number;
                earlier.before + earlier.bytes
            }
        };
        let first = state.end;
        self.ends.messages.push(Message {
            op,
            first,
            packets,
            received: 0,
            next: NOWHERE,
            bytes,
            before,
            posted,
        });
        let end = first.checked_add(packets).expect("a queue pair sends fewer than 2³² packets");
        state.end = end;
        state.last = number;
        let inbox = &mut self.ends.inboxes[pair];
        if inbox.message == NOWHERE {
            inbox.message = number;
            inbox.message_end = end;
        }
        number
    }

    /// Resets the congestion control of a queue pair that was idle for long.
    fn restart_after_idle(&mut self, pair: PairId) {
        let idle = self.time.now - self.ends.pairs[pair].busy_until;
        if self.input.settings.nic.idle_reset.as_ps() <= idle {
            let control = self.congestion(pair).build(&self.circumstances(pair));
            self.ends.pairs[pair].control = control;
            self.update_limit(pair);
        }
    }

    /// Puts a queue pair into its port's list if it has something to send, and notes when it may.
    #[inline]
    pub(crate) fn enqueue_pair(&mut self, number: PairId) {
        let pair = &mut self.ends.pairs[number];
        let sender = &mut self.ends.senders[self.ends.sender_of_port[pair.port].known()];
        if pair.place != NOWHERE {
            if pair.has_work() {
                sender.due[pair.place as usize] = pair.due();
            } else {
                self.dequeue_pair(number);
            }
        } else if !pair.broken && pair.has_work() {
            pair.place = sender.pairs.len() as u32;
            sender.pairs.push(number);
            sender.due.push(pair.due());
        }
    }

    /// Takes a queue pair that has nothing left to send off its port's list.
    pub(crate) fn dequeue_pair(&mut self, number: PairId) {
        let pair = &mut self.ends.pairs[number];
        let place = pair.place as usize;
        pair.place = NOWHERE;
        let sender = &mut self.ends.senders[self.ends.sender_of_port[pair.port].known()];
        sender.remove(place);
        for (at, pair) in sender.pairs.iter().enumerate().skip(place) {
            self.ends.pairs[*pair].place = at as u32;
        }
    }

    /// Lets a NIC's port send if it can: acknowledgements first, then the next queue pair.
    pub(crate) fn try_transmit(&mut self, link: LinkId) {
        if self.is_switch_port(link) {
            self.try_transmit_unit(link);
            return;
        }
        if self.ends.planes.are_several() {
            self.try_transmit_in_planes(link);
            return;
        }
        self.apply_departures(link);
        let port = &self.net.ports[link];
        let sender = self.ends.sender_of_port[link].known();
        let free = port.is_free(self.time.now, self.time.ticket);
        if free && let Some(place) = self.next_in_turn(sender, link, self.time.now) {
            self.send_packet(sender, place, link);
        }
        if self.is_as_ns3() {
            self.schedule_wake_up_as_ns3(sender, link);
        } else {
            self.schedule_wake_up(sender, link);
        }
    }

    /// Wakes a NIC when its transmitter is free and a queue pair may send.
    #[inline]
    fn schedule_wake_up(&mut self, sender: SenderId, link: LinkId) {
        if self.net.ports[link].paused == 0 || 1 < self.input.rules.lanes {
            let at = self.send_due(sender, link);
            self.wake_sender_at(sender, link, at);
        }
    }

    /// Schedules a wake-up of a sender, unless there is an earlier one.
    #[inline]
    pub(crate) fn wake_sender_at(&mut self, sender: SenderId, link: LinkId, at: u64) {
        let sender = &mut self.ends.senders[sender];
        if at < sender.wake_at {
            sender.wake_at = at;
            self.schedule(at, link.raw(), Event::SenderWoken(link));
        }
    }

    /// Handles [`Event::SenderWoken`].
    pub(crate) fn sender_woken(&mut self, link: LinkId) {
        let sender = self.ends.sender_of_port[link].known();
        let due = self.ends.senders[sender].wake_at == self.time.now;
        if due && !self.has_moved_as_ns3(sender) {
            self.ends.senders[sender].wake_at = NEVER;
            self.try_transmit(link);
        }
    }

    /// Puts the next packet of a queue pair onto the wire.
    pub(crate) fn send_packet(&mut self, sender: SenderId, place: usize, link: LinkId) {
        let mtu = self.input.sizes.mtu;
        self.ends.senders[sender].turn = place + 1;
        let number = self.ends.senders[sender].pairs[place];
        let pair = &mut self.ends.pairs[number];
        let again = pair.resend.pop();
        let psn = again.unwrap_or(pair.next);
        let message = match again {
            None => &self.ends.messages[pair.sending as usize],
            Some(psn) => {
                let mut at = pair.waiting;
                while self.ends.messages[at as usize].end() <= psn {
                    at = self.ends.messages[at as usize].next;
                }
                &self.ends.messages[at as usize]
            }
        };
        let payload = message.payload(psn, mtu);
        let more = self.input.sizes.more(psn == message.first, psn + 1 == message.end());
        let size = payload + self.input.sizes.data + more;
        let turn = match again {
            None => pair.advance(&self.ends.messages, message.offset(psn, mtu), payload),
            Some(_) => None,
        };
        if psn < pair.high {
            self.accounts.counters.retransmits += 1;
        } else {
            pair.high = psn + 1;
        }
        let wire = u64::from(size) + self.input.sizes.gap;
        let gap = if payload == mtu && size == mtu + self.input.sizes.data {
            pair.gap
        } else {
            self.input.clock.time_to_send(Rate::from_bps(pair.rate_bps), wire)
        };
        pair.next_send = self.time.now + gap;
        pair.last_size = wire as u32;
        pair.busy_until = self.time.now;
        let now = Time::from_ps(self.time.now);
        pair.control.on_sent(now, Bytes::new(u64::from(payload)));
        let (sent, flags) = if self.input.rules.needs.hops {
            (self.net.stamps.begin(self.time.now), STAMPED)
        } else {
            ((self.time.now / 1_000) as u32, 0)
        };
        let (route, more) = self.first_step(number, link);
        let pair = &mut self.ends.pairs[number];
        let flags = flags | more | pair.lane << LANE_SHIFT;
        let flags = if pair.asks(psn) { flags | ASKS } else { flags };
        let (size, purpose) = (size as u16, Purpose::Data);
        let packet = Packet { at: 0, psn, sent, route, size, purpose, flags };
        self.accounts.counters.packets += 1;
        if pair.has_work() {
            self.ends.senders[sender].due[place] = pair.due();
        } else {
            self.dequeue_pair(number);
        }
        self.send_from_node(link, packet);
        let fetched = self.time.now + self.ends.senders[sender].fetching;
        let port = &mut self.net.ports[link];
        port.free_at = port.free_at.max(fetched);
        if let Some(op) = turn {
            self.log_send_start(op, true);
        }
        self.wait_for_ack(number);
    }

    /// A packet has been sent: its acknowledgement is waited for, if there will be one.
    #[inline]
    fn wait_for_ack(&mut self, number: PairId) {
        if self.input.rules.unreliable {
            self.forget_sent(number);
        } else {
            self.arm_timeout(number);
        }
    }

    /// Where a packet that leaves by a port begins its way, and what its flags say of that.
    #[inline]
    fn first_step(&mut self, number: PairId, link: LinkId) -> (u32, u8) {
        match self.ends.pairs[number].route {
            NOWHERE => (number.raw(), ROAMING),
            route => {
                let plane = self.ends.planes.of_port(link);
                (route + self.ends.entropy.next(number, plane) + 1, 0)
            }
        }
    }

    /// Arms the retransmission timeout of a queue pair.
    #[inline]
    fn arm_timeout(&mut self, number: PairId) {
        let pair = &mut self.ends.pairs[number];
        if !pair.overdue_pending {
            pair.overdue_pending = true;
            pair.progress_at = self.time.now;
            let (at, ticket) = (self.time.now + pair.timeout, self.time.calendar.ticket());
            self.schedule(at, ticket, Event::Timeout(number));
        }
    }

    /// Handles [`Event::Timeout`]: nothing may have been heard for the retransmission timeout.
    pub(crate) fn timeout_expired(&mut self, number: PairId) {
        let pair = &mut self.ends.pairs[number];
        pair.overdue_pending = false;
        if pair.broken {
            return;
        }
        if pair.una == pair.next {
            if self.input.rules.admits && pair.next < pair.end {
                self.request_grant(number);
            }
            return;
        }
        let due = pair.progress_at + pair.timeout;
        if self.time.now < due {
            pair.overdue_pending = true;
            let ticket = self.time.calendar.ticket();
            self.schedule(due, ticket, Event::Timeout(number));
            return;
        }
        pair.tries = pair.tries.saturating_add(1);
        if self.input.settings.nic.retries < pair.tries {
            self.give_up(number);
            return;
        }
        if self.input.rules.reads {
            // The reader has waited in vain: it asks for everything from here on.
            let (expected, size) = (self.ends.inboxes[number].expected, self.input.sizes.nak);
            self.send_control(number, Purpose::Nak, expected, size, None, ASKS);
            self.arm_timeout(number);
            return;
        }
        pair.control.on_loss(Time::from_ps(self.time.now), Loss::Timeout);
        if self.input.rules.goes_back {
            self.go_back(number, self.ends.pairs[number].una);
        } else {
            self.resend_missing(number);
        }
        self.update_limit(number);
        self.arm_timeout(number);
        self.try_transmit(self.ends.pairs[number].port);
    }

    /// A sender that has long waited for a clearance asks for it; a grant that got lost is
    /// repeated. The request itself takes no time here.
    fn request_grant(&mut self, number: PairId) {
        let granted = self.ends.inboxes[number].granted;
        let pair = &mut self.ends.pairs[number];
        if pair.granted < granted {
            pair.tries = pair.tries.saturating_add(1);
            if self.input.settings.nic.retries < pair.tries {
                self.give_up(number);
                return;
            }
            self.send_control(number, Purpose::Grant, granted, self.input.sizes.grant, None, 0);
        }
        self.arm_timeout(number);
    }

    /// Retransmits what the receiver does not have. Real acknowledgements say what has arrived;
    /// here the receiver's own list is read, which is newer by half a round trip.
    fn resend_missing(&mut self, number: PairId) {
        self.part.is_blind = true;
        let (pair, inbox) = (&mut self.ends.pairs[number], &self.ends.inboxes[number]);
        let first = pair.una.max(inbox.expected);
        let missing = (first..pair.next).rev().filter(|psn| !inbox.early.contains(*psn));
        pair.resend.clear();
        pair.resend.extend(missing);
        pair.arrived = inbox.expected + inbox.early.len();
        if pair.resend.is_empty() && pair.una < pair.next {
            // Everything has arrived and the acknowledgements were lost: one packet asks for one.
            pair.resend.push(pair.una);
        }
        pair.progress_at = self.time.now;
        self.enqueue_pair(number);
    }

    fn give_up(&mut self, number: PairId) {
        self.part.is_blind = true;
        let pair = &mut self.ends.pairs[number];
        pair.broken = true;
        pair.resend.clear();
        pair.end = pair.next;
        let listed = pair.place != NOWHERE;
        if listed {
            self.dequeue_pair(number);
        }
        self.stop_waiting_for_credit(number);
        let pair = &self.ends.pairs[number];
        let name = self.input.fabric.link_name(pair.port);
        let timeouts = pair.tries;
        self.accounts.tally.broken += 1;
        if self.input.rules.counts_granted {
            let inbox = &self.ends.inboxes[number];
            let come = (inbox.expected + inbox.early.len()).max(self.input.rules.unasked);
            self.return_grants(number, inbox.granted.saturating_sub(come));
        }
        if self.accounts.tally.broken <= MOST_REPORTED {
            let does = if self.input.rules.reads { "is read from" } else { "sends" };
            self.report_finding(format!(
                "a queue pair that {does} over {name} {GAVE_UP} {timeouts} timeouts without an \
                 answer (`network.nic.retries`)"
            ));
        }
    }

    /// Sends everything from a packet on once more.
    fn go_back(&mut self, number: PairId, psn: u32) {
        let mtu = self.input.sizes.mtu;
        let pair = &mut self.ends.pairs[number];
        pair.resend.clear();
        if pair.next <= psn {
            return;
        }
        let mut at = pair.waiting;
        while self.ends.messages[at as usize].end() <= psn {
            at = self.ends.messages[at as usize].next;
        }
        pair.next = psn;
        pair.sending = at;
        pair.sent_bytes = self.ends.messages[at as usize].offset(psn, mtu);
        pair.progress_at = self.time.now;
        self.enqueue_pair(number);
    }

    /// An acknowledgement reaches the sender.
    pub(crate) fn ack_received(&mut self, number: PairId, packet: &Packet) {
        let advanced = self.advance_una(number, packet.psn);
        let pair = &mut self.ends.pairs[number];
        let fresh = packet.flags & FRESH != 0;
        let known = pair.arrived;
        if pair.selective != 0 {
            pair.arrived = (pair.arrived + u32::from(fresh)).max(pair.una);
        }
        let alone = u64::from(pair.arrived - known) * u64::from(pair.selective);
        let (sent_at, hops) = if packet.flags & STAMPED != 0 {
            self.net.stamps.get(packet.sent)
        } else {
            // The low 32 bits of nanoseconds: the packet was sent less than four seconds ago.
            let now = self.time.now / 1_000;
            let ago = (now as u32).wrapping_sub(packet.sent);
            ((now - u64::from(ago)) * 1_000, [].as_slice())
        };
        let sprays = self.ends.entropy.is_used() && pair.route != NOWHERE;
        if sprays && packet.flags & MARKED == 0 {
            self.ends.entropy.recycle(number, packet.route, self.ends.inboxes[number].route);
        }
        let ack = Ack {
            size: Bytes::new(if pair.selective == 0 { advanced } else { alone }),
            through: pair.acked_bytes,
            sent_through: pair.sent_bytes,
            sent_at: Time::from_ps(sent_at),
            marked: packet.flags & MARKED != 0,
            hops,
        };
        pair.control.on_ack(Time::from_ps(self.time.now), &ack);
        if packet.flags & STAMPED != 0 {
            self.net.stamps.free(packet.sent);
        }
        self.update_limit(number);
        if 1 < self.input.rules.ack_every {
            self.probe_closed_window(number);
        }
        if 0 < advanced {
            self.complete_messages(number);
        }
        self.try_transmit_if_due(number);
    }

    /// A window that has shrunk can be shut although nothing under way asks for an acknowledgement;
    /// a receiver that coalesces them would keep silent until the timeout. So the newest packet is
    /// sent once more and asks, as TCP's probe for tail loss does (RFC 8985, section 7).
    fn probe_closed_window(&mut self, number: PairId) {
        let pair = &mut self.ends.pairs[number];
        let is_shut = pair.window <= pair.outstanding() && pair.una < pair.next;
        let is_silent = pair.asked <= pair.una && pair.resend.is_empty();
        if is_shut && is_silent && pair.next < pair.end {
            pair.resend.push(pair.next - 1);
            pair.probes = true;
            self.enqueue_pair(number);
        }
    }

    /// Lets a NIC send if an acknowledgement or notification may have made that possible.
    #[inline]
    fn try_transmit_if_due(&mut self, number: PairId) {
        let pair = &self.ends.pairs[number];
        let link = pair.port;
        if self.input.departures.are_events() {
            self.try_transmit(link);
        } else if pair.place != NOWHERE {
            let sender = self.ends.sender_of_port[link].known();
            if pair.due() < self.ends.senders[sender].wake_at {
                self.try_transmit(link);
            }
        }
    }

    /// Moves the oldest unacknowledged packet on; returns the payload that this acknowledges.
    pub(crate) fn advance_una(&mut self, number: PairId, psn: u32) -> u64 {
        let pair = &mut self.ends.pairs[number];
        if psn <= pair.una {
            return 0;
        }
        debug_assert!(psn <= pair.high, "nothing is acknowledged that was never sent");
        let mut at = pair.waiting;
        while self.ends.messages[at as usize].end() < psn {
            at = self.ends.messages[at as usize].next;
        }
        let through = self.ends.messages[at as usize].offset(psn, self.input.sizes.mtu);
        let advanced = through - pair.acked_bytes;
        pair.acked_bytes = through;
        pair.una = psn;
        pair.tries = 0;
        pair.progress_at = self.time.now;
        if pair.next < psn {
            // Packets that were to be sent once more have arrived after all.
            pair.next = psn;
            pair.sent_bytes = through;
            let message = &self.ends.messages[at as usize];
            pair.sending = if psn == message.end() { message.next } else { at };
        }
        if !pair.resend.is_empty() {
            pair.resend.retain(|missing| psn <= *missing);
            pair.probes &= !pair.resend.is_empty();
        }
        advanced
    }

    /// A reader has everything before a packet. What it read need not be kept, as if it had been
    /// acknowledged; but no packet says so.
    pub(crate) fn complete_read(&mut self, number: PairId, psn: u32) {
        if 0 < self.advance_una(number, psn) {
            self.complete_messages(number);
        }
        if self.ends.pairs[number].place != NOWHERE {
            self.enqueue_pair(number);
        }
    }

    /// Ends the messages that have been acknowledged in full.
    pub(crate) fn complete_messages(&mut self, number: PairId) {
        loop {
            let pair = &mut self.ends.pairs[number];
            if pair.waiting == NOWHERE {
                return;
            }
            let message = self.ends.messages[pair.waiting as usize];
            if pair.una < message.end() {
                return;
            }
            pair.waiting = message.next;
            self.part_acknowledged(message.op);
        }
    }

    /// The receiver asks for a packet again.
    pub(crate) fn nak_received(&mut self, number: PairId, packet: &Packet) {
        // A reader may have got on since it asked.
        let psn = packet.psn.max(self.ends.pairs[number].una);
        self.ends.pairs[number].control.on_loss(Time::from_ps(self.time.now), Loss::Reported);
        if self.input.rules.goes_back || packet.flags & ASKS != 0 {
            let advanced = self.advance_una(number, psn);
            self.go_back(number, psn);
            if 0 < advanced {
                self.complete_messages(number);
            }
        } else {
            let pair = &mut self.ends.pairs[number];
            if pair.una <= psn && psn < pair.next && !pair.resend.contains(&psn) {
                pair.resend.insert(0, psn);
            }
            self.enqueue_pair(number);
        }
        self.update_limit(number);
        self.try_transmit(self.ends.pairs[number].port);
    }

    /// A congestion notification (CNP) reaches the sender.
    pub(crate) fn notification_received(&mut self, number: PairId) {
        self.ends.pairs[number].control.on_notified(Time::from_ps(self.time.now));
        self.update_limit(number);
    }

    /// The receiver has granted packets for the sender.
    pub(crate) fn grant_received(&mut self, number: PairId, packet: &Packet) {
        let pair = &mut self.ends.pairs[number];
        pair.granted = pair.granted.max(packet.psn);
        self.enqueue_pair(number);
        self.try_transmit(self.ends.pairs[number].port);
    }

    /// Handles [`Event::ControlTimer`]: the congestion control asked to be called.
    pub(crate) fn control_timer_expired(&mut self, number: PairId) {
        let pair = &mut self.ends.pairs[number];
        if pair.timer_at != self.time.now || pair.broken {
            return;
        }
        pair.timer_at = NEVER;
        let now = Time::from_ps(self.time.now);
        if pair.control.deadline().is_some_and(|due| due <= now) {
            pair.control.on_timer(now);
        }
        let window = pair.window;
        self.update_limit(number);
        if !self.input.departures.are_events() || window != self.ends.pairs[number].window {
            self.try_transmit_if_due(number);
        }
    }

    /// Asks a queue pair's congestion control what it may do now and when to call it again.
    pub(crate) fn update_limit(&mut self, number: PairId) {
        let pair = &mut self.ends.pairs[number];
        let limit = pair.control.limit();
        pair.window = limit.window.get();
        if limit.rate.as_bps() != pair.rate_bps {
            let rate = Rate::from_bps(limit.rate.as_bps().min(pair.line_bps));
            let old = pair.rate_bps;
            pair.rate_bps = rate.as_bps();
            let full =
                u64::from(self.input.sizes.mtu + self.input.sizes.data) + self.input.sizes.gap;
            pair.gap = self.input.clock.time_to_send(rate, full);
            if self.input.rules.needs.repace && 0 < pair.last_size {
                let last = u64::from(pair.last_size);
                let before = self.input.clock.time_to_send(Rate::from_bps(old), last);
                let after = self.input.clock.time_to_send(rate, last);
                pair.next_send = (pair.next_send + after).saturating_sub(before);
                self.advance_wake_up(number);
            }
        }
        let pair = &mut self.ends.pairs[number];
        if let Some(due) = pair.control.deadline() {
            let due = due.as_ps().max(self.time.now);
            if due < pair.timer_at {
                pair.timer_at = due;
                // A timer was set long before whatever else happens at its instant.
                self.schedule(due, 0, Event::ControlTimer(number));
            }
        }
        if self.ends.pairs[number].place != NOWHERE {
            self.enqueue_pair(number);
        }
    }

    /// A queue pair's next transmission has moved: the NIC must not sleep past it.
    fn advance_wake_up(&mut self, number: PairId) {
        if self.is_as_ns3() {
            self.advance_wake_up_as_ns3(number);
            return;
        }
        let pair = &self.ends.pairs[number];
        if pair.place == NOWHERE {
            return;
        }
        let (link, due) = (pair.port, pair.next_send.max(self.time.now));
        let sender = &mut self.ends.senders[self.ends.sender_of_port[link].known()];
        if sender.wake_at != NEVER && due < sender.wake_at {
            let at = if self.input.departures.are_events() || self.ends.planes.are_several() {
                due
            } else {
                due.max(self.net.ports[link].free_at)
            };
            if at < sender.wake_at {
                sender.wake_at = at;
                let ticket = if self.input.departures.are_events() {
                    self.time.calendar.ticket()
                } else {
                    link.raw()
                };
                self.schedule(at, ticket, Event::SenderWoken(link));
            }
        }
    }
}
