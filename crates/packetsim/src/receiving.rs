//! The receiving side of a NIC: packets in order and out of it, acknowledgements, notifications,
//! clearances.
//!
//! A receiver that goes back throws away what comes out of order and asks once for the packet it
//! expects. One with selective repeat keeps it and asks for each packet that is missing. One with
//! direct placement keeps it too, but knows that packets on several paths overtake each other, and
//! asks only for what is `reorder_window` packets late.

use fabric::hardware::Reorder;
use fabric::{LinkId, NodeId};
use units::{Bytes, Id, Span, Time};

use crate::admission::SenderDemand;
use crate::cc::{Data, Feedback};
use crate::ids::{Maybe, PairId, Raw};
use crate::packet::{
    ASKS, CONTROL, Class, FRESH, MARKED, PATH_END, Packet, Purpose, ROAMING, STAMPED, Waiting,
    joined,
};
use crate::pair::Message;
use crate::port::NOWHERE;
use crate::simulation::{RareEvent, Simulation};

impl Simulation<'_> {
    /// A packet reaches the NIC at the end of its way.
    #[inline]
    pub(crate) fn packet_delivered(&mut self, link: LinkId, packet: Packet) {
        let pair = self.pair_of(&packet);
        if self.accounts.recorder.is_some() {
            self.capture(link, &packet, false);
            if packet.purpose != Purpose::Data {
                self.record_age(&packet);
            }
        }
        match packet.purpose {
            Purpose::Data if self.input.rules.slow_hosts && self.net.ports[link].into.is_none() => {
                self.queue_for_host(pair, link, packet);
            }
            Purpose::Data => self.data_received(pair, &packet),
            Purpose::Ack => self.ack_received(pair, &packet),
            Purpose::Nak => self.nak_received(pair, &packet),
            Purpose::Notification => self.notification_received(pair),
            Purpose::Grant => self.grant_received(pair, &packet),
            Purpose::Trimmed => self.trimmed_received(pair, &packet),
            Purpose::Pause => unreachable!("pauses have their own event"),
            Purpose::Cell => unreachable!("cells end in the fabric"),
        }
    }

    /// The queue pair of a packet at the end of its way.
    #[inline]
    pub(crate) fn pair_of(&self, packet: &Packet) -> PairId {
        if packet.flags & ROAMING != 0 {
            return PairId::of(packet.route);
        }
        let end = self.net.paths[packet.route as usize];
        debug_assert!(end & PATH_END != 0, "it is at the end of its way");
        PairId::of(end & !PATH_END)
    }

    /// A data packet is in the host's memory.
    pub(crate) fn data_received(&mut self, number: PairId, packet: &Packet) {
        if self.accounts.recorder.is_some() {
            self.record_age(packet);
        }
        let marked = packet.flags & MARKED != 0;
        let inbox = &mut self.ends.inboxes[number];
        let feedback = match &mut inbox.control {
            None => Feedback { echo: marked, notify: false },
            Some(control) => {
                let size = Bytes::new(u64::from(packet.size));
                control.on_data(Time::from_ps(self.time.now), &Data { size, marked })
            }
        };
        if feedback.notify || (feedback.echo && self.input.rules.echo_is_notice) {
            self.accounts.counters.cnps += 1;
            let size = self.input.sizes.notification;
            self.send_control(number, Purpose::Notification, packet.psn, size, None, 0);
        }
        if self.input.rules.unreliable {
            self.datagram_received(number, packet);
            return;
        }
        let echo = if feedback.echo { MARKED } else { 0 };
        let inbox = &mut self.ends.inboxes[number];
        let expected = inbox.expected;
        if packet.psn == expected {
            self.count_delivery(number, packet.psn);
            let inbox = &mut self.ends.inboxes[number];
            inbox.expected += 1;
            // Acknowledgements of what came early said less than the sender must know now (RFC
            // 5681, 4.2).
            let in_gap = 0 < inbox.early.len();
            while 0 < inbox.early.len() && inbox.early.remove(inbox.expected) {
                inbox.expected += 1;
            }
            inbox.unacked += 1;
            let ended = inbox.message_end <= inbox.expected;
            if ended {
                self.complete_received_messages(number);
            }
            if self.input.rules.admits {
                self.send_grants(number);
            }
            let inbox = &self.ends.inboxes[number];
            let asked = packet.flags & ASKS != 0 || echo != 0;
            if ended || self.input.rules.ack_every <= inbox.unacked || in_gap || asked {
                self.send_ack(number, packet, echo | FRESH);
            } else {
                self.free_stamps(packet);
            }
        } else if packet.psn < expected || inbox.early.contains(packet.psn) {
            // A copy: the acknowledgement may have been lost.
            self.accounts.tally.duplicate_data += 1;
            self.send_ack(number, packet, echo);
        } else {
            self.data_received_early(number, packet, echo);
        }
    }

    /// Counts a data packet that arrives for the first time.
    #[inline]
    pub(crate) fn count_delivery(&mut self, number: PairId, psn: u32) {
        self.accounts.tally.delivered_data += 1;
        // What was sent unasked was never granted.
        if self.input.rules.counts_granted && self.input.rules.unasked <= psn {
            self.return_grants(number, 1);
        }
    }

    /// A data packet arrives before one that was sent before it.
    fn data_received_early(&mut self, number: PairId, packet: &Packet, echo: u8) {
        self.accounts.tally.reordered += 1;
        let inbox = &mut self.ends.inboxes[number];
        let (expected, psn) = (inbox.expected, packet.psn);
        match self.input.settings.nic.reorder {
            Reorder::None => {
                self.accounts.tally.discarded_data += 1;
                let ask = inbox.asked != expected;
                inbox.asked = expected;
                self.free_stamps(packet);
                if ask {
                    self.send_control(
                        number,
                        Purpose::Nak,
                        expected,
                        self.input.sizes.nak,
                        None,
                        echo,
                    );
                }
            }
            Reorder::SelectiveRepeat => {
                inbox.early.insert(psn);
                self.count_delivery(number, psn);
                let inbox = &mut self.ends.inboxes[number];
                // Everything between what was asked for before and this packet is missing.
                let from = if inbox.asked == NOWHERE { expected } else { inbox.asked + 1 };
                let from = from.max(expected);
                let missing: Vec<u32> =
                    (from..psn).filter(|psn| !inbox.early.contains(*psn)).collect();
                if let Some(last) = missing.last() {
                    inbox.asked = *last;
                }
                for psn in missing {
                    self.send_control(number, Purpose::Nak, psn, self.input.sizes.nak, None, 0);
                }
                self.send_ack(number, packet, echo | FRESH);
            }
            Reorder::DirectPlacement => {
                inbox.early.insert(psn);
                self.count_delivery(number, psn);
                let inbox = &mut self.ends.inboxes[number];
                let late = expected.saturating_add(self.input.settings.nic.reorder_window) <= psn;
                if late && inbox.asked != expected {
                    inbox.asked = expected;
                    self.send_control(
                        number,
                        Purpose::Nak,
                        expected,
                        self.input.sizes.nak,
                        None,
                        0,
                    );
                }
                self.send_ack(number, packet, echo | FRESH);
            }
        }
    }

    /// Notes the messages that have now arrived in full.
    fn complete_received_messages(&mut self, number: PairId) {
        while self.ends.inboxes[number].message_end <= self.ends.inboxes[number].expected {
            let inbox = &mut self.ends.inboxes[number];
            let message = &self.ends.messages[inbox.message as usize];
            inbox.message = message.next;
            let next = self.ends.messages.get(message.next as usize);
            inbox.message_end = next.map_or(u32::MAX, Message::end);
            self.part_arrived(message.op);
        }
    }

    /// Acknowledges everything before the packet that is expected next.
    #[inline]
    fn send_ack(&mut self, number: PairId, cause: &Packet, echo: u8) {
        let inbox = &mut self.ends.inboxes[number];
        inbox.unacked = 0;
        let expected = inbox.expected;
        if self.input.rules.reads {
            self.complete_read(number, expected);
            return;
        }
        if self.input.rules.light_acks {
            self.send_light_ack(number, cause, expected, echo);
            return;
        }
        self.send_control(number, Purpose::Ack, expected, self.input.sizes.ack, Some(cause), echo);
    }

    /// Sends a small packet back to the sender.
    #[inline]
    pub(crate) fn send_control(
        &mut self,
        number: PairId,
        purpose: Purpose,
        psn: u32,
        size: u16,
        cause: Option<&Packet>,
        flags: u8,
    ) {
        let route = self.way_back(number, psn, cause);
        let link = LinkId::of(self.net.paths[route as usize]);
        let stamped = cause.map_or(0, |packet| packet.flags & STAMPED);
        let packet = Packet {
            psn,
            at: joined(self.time.now),
            sent: cause.map_or((self.time.now / 1_000) as u32, |packet| packet.sent),
            route: route + 1,
            size,
            purpose,
            flags: flags | stamped,
        };
        self.apply_departures(link);
        if self.is_idle(link, CONTROL) {
            if self.accounts.recorder.is_some() {
                self.record_wait(link, purpose, Span::ZERO);
            }
            self.put_on_wire(link, self.time.now, packet);
            if self.input.departures.are_events() {
                self.schedule_wake_up_as_ns3(self.ends.sender_of_port[link].known(), link);
            }
        } else {
            self.enqueue(link, CONTROL, Waiting { packet, from: Maybe::NONE });
        }
    }

    pub(crate) fn free_stamps(&mut self, packet: &Packet) {
        if packet.flags & STAMPED != 0 {
            self.net.stamps.free(packet.sent);
        }
    }

    /// Clears more packets for a sender, as far as its window allows.
    pub(crate) fn send_grants(&mut self, number: PairId) {
        if self.ends.pairs[number].broken {
            return;
        }
        let rules = self.input.rules.admission.rules(self.input.sizes.mtu);
        let inbox = &self.ends.inboxes[number];
        let (expected, granted, queued) = (inbox.expected, inbox.granted, inbox.queued);
        let asked = SenderDemand { expected, granted, end: self.ends.pairs[number].end, queued };
        let ledger = &mut self.ends.grant_ledgers[inbox.node.index()];
        let (to, queued) = ledger.extend(&rules, number, asked);
        self.ends.inboxes[number].queued = queued;
        if self.ends.inboxes[number].granted < to {
            self.ends.inboxes[number].granted = to;
            self.send_control(number, Purpose::Grant, to, self.input.sizes.grant, None, 0);
        }
    }

    /// So many packets that were granted have arrived, or never will: the next sender that waits
    /// for the receiver may get its grant.
    pub(crate) fn return_grants(&mut self, number: PairId, packets: u32) {
        let node = self.ends.inboxes[number].node;
        let rules = self.input.rules.admission.rules(self.input.sizes.mtu);
        self.ends.grant_ledgers[node.index()].give_back(&rules, packets);
        let waiting = self.ends.grant_ledgers[node.index()].waiting();
        for _ in 0..waiting {
            let ledger = &mut self.ends.grant_ledgers[node.index()];
            let Some(next) = ledger.next_in_turn(&rules) else { break };
            self.ends.inboxes[next].queued = false;
            self.send_grants(next);
        }
    }

    /// The links that lead to a NIC: its buffer is one, whatever port a packet came through.
    fn links_into(&self, node: NodeId) -> impl Iterator<Item = LinkId> + use<> {
        let fabric = self.input.fabric;
        let out = fabric.ports(node).iter();
        let links: Vec<LinkId> = out.map(|link| fabric.reverse(*link)).collect();
        links.into_iter()
    }

    /// Holds a packet until the host has taken what came before it over PCIe.
    fn queue_for_host(&mut self, pair: PairId, link: LinkId, packet: Packet) {
        let node = self.ends.inboxes[pair].node;
        let (now, size) = (self.time.now, u64::from(packet.size));
        let host = &mut self.ends.hosts[node.index()];
        if host.queue.is_empty()
            && host.line <= host.rate
            && self.input.settings.nic.host_rate().is_none()
        {
            // This host takes packets as fast as they come.
            self.data_received(pair, &packet);
            return;
        }
        let time = self.input.clock.time_to_send(host.rate, size);
        host.free_at = host.free_at.max(now) + time;
        host.held += size;
        let at = host.free_at;
        host.queue.push_back(packet);
        let full = self.input.settings.nic.receive_buffer.get() / 2 < host.held;
        let lossless = Class::of_lane(packet.lane()).is_in(self.input.rules.lossless);
        if full && !host.pausing && lossless {
            host.pausing = true;
            self.links_into(node).for_each(|link| self.nic_pauses(link));
        } else if self.input.settings.nic.receive_buffer.get() < host.held {
            let host = &mut self.ends.hosts[node.index()];
            let packet = host.queue.pop_back().expect("it was pushed above");
            host.held -= size;
            host.free_at -= time;
            if lossless {
                self.report_lossless_drop(node, "receive buffer");
            }
            self.count_drop(link, &packet);
            return;
        }
        self.schedule_rare(at, RareEvent::HostRead { node });
    }

    /// The host has taken the oldest packet that its NIC held.
    pub(crate) fn host_read_packet(&mut self, node: NodeId) {
        let host = &mut self.ends.hosts[node.index()];
        let Some(packet) = host.queue.pop_front() else { return };
        host.held -= u64::from(packet.size);
        if host.pausing && host.held <= self.input.settings.nic.receive_buffer.get() / 4 {
            host.pausing = false;
            self.links_into(node).for_each(|link| self.nic_resumes(link));
        }
        let pair = self.pair_of(&packet);
        self.data_received(pair, &packet);
    }
}
