//! The receiving side of a NIC: packets in order and out of it, acknowledgements, notifications,
//! clearances.
//!
//! A receiver that goes back throws away what comes out of order and asks once for the packet it
//! expects. One with selective repeat keeps it and asks for each packet that is missing. One with
//! direct placement keeps it too, but knows that packets on several paths overtake each other, and
//! asks only for what is `reorder_window` packets late.

use fabric::hardware::Reorder;
use traffic::OpId;
use units::{Bytes, Id, Span, Time};

use crate::admission::AdmissionPolicy;
use crate::cc::{Data, Feedback};
use crate::packet::{
    ASKS, CONTROL, DATA, FRESH, MARKED, PATH_END, Packet, Purpose, ROAMING, STAMPED, Waiting,
    joined,
};
use crate::pair::Message;
use crate::port::NOWHERE;
use crate::simulation::{Agenda, Simulation};

impl Simulation<'_> {
    /// A packet reaches the NIC at the end of its way.
    #[inline]
    pub(crate) fn delivered(&mut self, link: usize, packet: Packet) {
        let pair = self.pair_of(&packet);
        if self.recorder.is_some() && packet.purpose != Purpose::Data {
            self.record_age(&packet);
        }
        match packet.purpose {
            Purpose::Data if self.rules.slow_hosts && self.ports[link].into == NOWHERE => {
                self.queue_for_host(pair, link, packet);
            }
            Purpose::Data => self.received(pair, &packet),
            Purpose::Ack => self.acknowledged(pair, &packet),
            Purpose::Nak => self.asked_again(pair, &packet),
            Purpose::Notification => self.notified(pair),
            Purpose::Grant => self.granted(pair, &packet),
            Purpose::Trimmed => self.received_trimmed(pair, &packet),
            Purpose::Pause => unreachable!("pauses have their own event"),
        }
    }

    /// The queue pair of a packet at the end of its way.
    #[inline]
    pub(crate) fn pair_of(&self, packet: &Packet) -> usize {
        if packet.flags & ROAMING != 0 {
            return packet.route as usize;
        }
        let end = self.paths[packet.route as usize];
        debug_assert!(end & PATH_END != 0, "it is at the end of its way");
        (end & !PATH_END) as usize
    }

    /// A data packet is in the host's memory.
    pub(crate) fn received(&mut self, number: usize, packet: &Packet) {
        if self.recorder.is_some() {
            self.record_age(packet);
        }
        let marked = packet.flags & MARKED != 0;
        let inbox = &mut self.inboxes[number];
        let feedback = match &mut inbox.control {
            None => Feedback { echo: marked, notify: false },
            Some(control) => {
                let size = Bytes::new(u64::from(packet.size));
                control.on_data(Time::from_ps(self.now), &Data { size, marked })
            }
        };
        if feedback.notify || (feedback.echo && self.rules.echo_is_notice) {
            self.counters.cnps += 1;
            let size = self.sizes.notification;
            self.answer(number, Purpose::Notification, packet.psn, size, None, 0);
        }
        let echo = if feedback.echo { MARKED } else { 0 };
        let inbox = &mut self.inboxes[number];
        let expected = inbox.expected;
        if packet.psn == expected {
            self.take_in(number, packet.psn);
            let inbox = &mut self.inboxes[number];
            inbox.expected += 1;
            // What came early has told the sender of less than it must know now (RFC 5681, 4.2).
            let in_gap = 0 < inbox.early.len();
            while 0 < inbox.early.len() && inbox.early.remove(inbox.expected) {
                inbox.expected += 1;
            }
            inbox.unacked += 1;
            let ended = inbox.message_end <= inbox.expected;
            if ended {
                self.end_messages(number);
            }
            if self.rules.admits {
                self.clear_more(number);
            }
            let inbox = &self.inboxes[number];
            let asked = packet.flags & ASKS != 0 || echo != 0;
            if ended || self.rules.ack_every <= inbox.unacked || in_gap || asked {
                self.acknowledge(number, packet, echo | FRESH);
            } else {
                self.forget_stamps(packet);
            }
        } else if packet.psn < expected || inbox.early.contains(packet.psn) {
            // A copy: the acknowledgement may have been lost.
            self.tally.duplicate_data += 1;
            self.acknowledge(number, packet, echo);
        } else {
            self.received_early(number, packet, echo);
        }
    }

    /// Counts a data packet that arrives for the first time.
    #[inline]
    fn take_in(&mut self, number: usize, psn: u32) {
        self.tally.delivered_data += 1;
        // What was sent unasked was never cleared.
        if self.rules.counts_cleared && self.rules.unasked <= psn {
            self.settle(number, 1);
        }
    }

    /// A data packet arrives before one that was sent before it.
    fn received_early(&mut self, number: usize, packet: &Packet, echo: u8) {
        self.tally.reordered += 1;
        let inbox = &mut self.inboxes[number];
        let (expected, psn) = (inbox.expected, packet.psn);
        match self.settings.nic.reorder {
            Reorder::None => {
                self.tally.discarded_data += 1;
                let ask = inbox.asked != expected;
                inbox.asked = expected;
                self.forget_stamps(packet);
                if ask {
                    self.answer(number, Purpose::Nak, expected, self.sizes.nak, None, echo);
                }
            }
            Reorder::SelectiveRepeat => {
                inbox.early.insert(psn);
                self.take_in(number, psn);
                let inbox = &mut self.inboxes[number];
                // Everything between what was asked for before and this packet is missing.
                let from = if inbox.asked == NOWHERE { expected } else { inbox.asked + 1 };
                let from = from.max(expected);
                let missing: Vec<u32> =
                    (from..psn).filter(|psn| !inbox.early.contains(*psn)).collect();
                if let Some(last) = missing.last() {
                    inbox.asked = *last;
                }
                for psn in missing {
                    self.answer(number, Purpose::Nak, psn, self.sizes.nak, None, 0);
                }
                self.acknowledge(number, packet, echo | FRESH);
            }
            Reorder::DirectPlacement => {
                inbox.early.insert(psn);
                self.take_in(number, psn);
                let inbox = &mut self.inboxes[number];
                let late = expected + self.settings.nic.reorder_window <= psn;
                if late && inbox.asked != expected {
                    inbox.asked = expected;
                    self.answer(number, Purpose::Nak, expected, self.sizes.nak, None, 0);
                }
                self.acknowledge(number, packet, echo | FRESH);
            }
        }
    }

    /// Notes the messages that have now arrived in full.
    fn end_messages(&mut self, number: usize) {
        while self.inboxes[number].message_end <= self.inboxes[number].expected {
            let inbox = &mut self.inboxes[number];
            let message = &self.messages[inbox.message as usize];
            inbox.message = message.next;
            let next = self.messages.get(message.next as usize);
            inbox.message_end = next.map_or(u32::MAX, Message::end);
            self.part_arrived(OpId::from_index(message.op as usize));
        }
    }

    /// Acknowledges everything before the packet that is expected next.
    #[inline]
    fn acknowledge(&mut self, number: usize, cause: &Packet, echo: u8) {
        let inbox = &mut self.inboxes[number];
        inbox.unacked = 0;
        let expected = inbox.expected;
        if self.rules.reads {
            self.read_through(number, expected);
            return;
        }
        self.answer(number, Purpose::Ack, expected, self.sizes.ack, Some(cause), echo);
    }

    /// Sends a small packet back to the sender.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        number: usize,
        purpose: Purpose,
        psn: u32,
        size: u16,
        cause: Option<&Packet>,
        flags: u8,
    ) {
        let route = self.way_back(number, cause);
        let link = self.paths[route as usize] as usize;
        let stamped = cause.map_or(0, |packet| packet.flags & STAMPED);
        let packet = Packet {
            psn,
            at: joined(self.now),
            sent: cause.map_or((self.now / 1_000) as u32, |packet| packet.sent),
            route: route + 1,
            size,
            purpose,
            flags: flags | stamped,
        };
        self.catch_up(link);
        if self.is_idle(link, CONTROL) {
            if self.recorder.is_some() {
                self.record_wait(link, purpose, Span::ZERO);
            }
            self.send(link, self.now, packet);
            if self.explicit {
                self.attend_explicitly(self.sender_of_port[link] as usize, link);
            }
        } else {
            self.join(link, CONTROL, Waiting { packet, from: NOWHERE });
        }
    }

    fn forget_stamps(&mut self, packet: &Packet) {
        if packet.flags & STAMPED != 0 {
            self.stamps.free(packet.sent);
        }
    }

    /// Clears more packets for a sender, as far as its window allows.
    pub(crate) fn clear_more(&mut self, number: usize) {
        if self.pairs[number].broken {
            return;
        }
        let config = &self.rules.admission;
        // A receiver that reads without being careful asks for all of a message at once.
        let buffer = match config.policy {
            AdmissionPolicy::None => u32::MAX,
            AdmissionPolicy::ReceiverDriven => self.sizes.packets(config.buffer.get()),
        };
        let end = self.pairs[number].end;
        let node = self.inboxes[number].node as usize;
        let mut to = self.inboxes[number].cleared;
        let ahead = buffer.saturating_mul(config.window);
        let reach = self.inboxes[number].expected.saturating_add(ahead);
        let total = config.receiver_window.map_or(u64::MAX, Bytes::get);
        while to < end {
            // A buffer is used again when all of it has arrived.
            let more = buffer.min(end - to);
            if reach < to.saturating_add(more) {
                break;
            }
            let bytes = u64::from(more) * u64::from(self.sizes.mtu);
            let clerk = &mut self.clerks[node];
            if 0 < clerk.cleared && total < clerk.cleared.saturating_add(bytes) {
                if !self.inboxes[number].queued {
                    self.inboxes[number].queued = true;
                    clerk.queue.push_back(number as u32);
                }
                break;
            }
            clerk.cleared += bytes;
            to += more;
        }
        if self.inboxes[number].cleared < to {
            self.inboxes[number].cleared = to;
            self.answer(number, Purpose::Grant, to, self.sizes.grant, None, 0);
        }
    }

    /// So many packets that were cleared have arrived, or never will; whoever waits for the
    /// receiver may have its turn.
    pub(crate) fn settle(&mut self, number: usize, packets: u32) {
        let node = self.inboxes[number].node as usize;
        let bytes = u64::from(packets) * u64::from(self.sizes.mtu);
        let clerk = &mut self.clerks[node];
        clerk.cleared = clerk.cleared.saturating_sub(bytes);
        let waiting = clerk.queue.len();
        for _ in 0..waiting {
            let clerk = &mut self.clerks[node];
            let buffer = self.rules.admission.buffer.get();
            let total = self.rules.admission.receiver_window.map_or(u64::MAX, Bytes::get);
            if 0 < clerk.cleared && total < clerk.cleared + buffer {
                break;
            }
            let Some(next) = clerk.queue.pop_front() else { break };
            self.inboxes[next as usize].queued = false;
            self.clear_more(next as usize);
        }
    }

    /// The links that lead to a NIC: its buffer is one, whatever port a packet came through.
    fn links_into(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        let fabric = self.fabric;
        let out = fabric.ports(fabric::NodeId::from_index(node)).iter();
        let links: Vec<usize> = out.map(|link| fabric.reverse(*link).index()).collect();
        links.into_iter()
    }

    /// Holds a packet until the host has taken what came before it over PCIe.
    fn queue_for_host(&mut self, pair: usize, link: usize, packet: Packet) {
        let node = self.inboxes[pair].node as usize;
        let (now, size) = (self.now, u64::from(packet.size));
        let host = &mut self.hosts[node];
        if host.queue.is_empty()
            && host.line <= host.rate
            && self.settings.nic.host_rate().is_none()
        {
            // This host takes packets as fast as they come.
            self.received(pair, &packet);
            return;
        }
        let time = self.clock.time_to_send(host.rate, size);
        host.free_at = host.free_at.max(now) + time;
        host.held += size;
        let at = host.free_at;
        host.queue.push_back(packet);
        let full = self.settings.nic.receive_buffer.get() / 2 < host.held;
        let lossless = self.rules.lossless >> (DATA + packet.lane()) & 1 == 1;
        if full && !host.pausing && lossless {
            host.pausing = true;
            self.links_into(node).for_each(|link| self.nic_pauses(link));
        } else if self.settings.nic.receive_buffer.get() < host.held {
            let host = &mut self.hosts[node];
            let packet = host.queue.pop_back().expect("it was pushed above");
            host.held -= size;
            host.free_at -= time;
            if lossless {
                self.tell_of_loss(fabric::NodeId::from_index(node), "receive buffer");
            }
            self.lose(link, &packet);
            return;
        }
        self.plan(at, Agenda::HostTook { node: node as u32 });
    }

    /// The host has taken the oldest packet that its NIC held.
    pub(crate) fn host_took(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        let Some(packet) = host.queue.pop_front() else { return };
        host.held -= u64::from(packet.size);
        if host.pausing && host.held <= self.settings.nic.receive_buffer.get() / 4 {
            host.pausing = false;
            self.links_into(node).for_each(|link| self.nic_resumes(link));
        }
        let pair = self.pair_of(&packet);
        self.received(pair, &packet);
    }
}
