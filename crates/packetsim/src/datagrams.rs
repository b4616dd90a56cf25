//! Queue pairs that promise nothing: unreliable connections (UC) and unreliable datagrams (UD).
//!
//! Nothing is acknowledged and nothing is sent again. The sender is done with a packet when that is
//! on the wire; a message is there when all its packets are, and a message of which one is lost
//! never is. An unreliable connection takes packets in order only: one that comes after a later one
//! has come is thrown away, and with it its message. Datagrams are taken in any order: each packet
//! is a message of its own to the NIC, with eight more bytes of header (DETH), and software puts
//! them together.
//!
//! Source: InfiniBand Architecture Specification, Volume 1, sections 9.8.2 (UC), 9.8.3 (UD) and
//! 9.3.1 (DETH).
//!
//! # Where this model departs from it
//!
//! * Messages that do not arrive whole are counted and reported; no software asks for them again.

use crate::ids::PairId;
use crate::nic::Service;
use crate::packet::Packet;
use crate::simulation::Simulation;

impl Simulation<'_> {
    /// What an unreliable queue pair has sent it need not keep.
    pub(crate) fn forget_sent(&mut self, number: PairId) {
        let next = self.ends.pairs[number].next;
        if 0 < self.advance_una(number, next) {
            self.complete_messages(number);
        }
    }

    /// A data packet of an unreliable queue pair is in the host's memory.
    pub(crate) fn datagram_received(&mut self, number: PairId, packet: &Packet) {
        self.free_stamps(packet);
        let inbox = &mut self.ends.inboxes[number];
        let is_late = packet.psn < inbox.expected;
        inbox.expected = inbox.expected.max(packet.psn + 1);
        self.accounts.tally.reordered += u64::from(is_late);
        if is_late && self.input.settings.nic.service == Service::Uc {
            self.accounts.tally.discarded_data += 1;
            return;
        }
        self.count_delivery(number, packet.psn);
        let messages = &mut self.ends.messages;
        let mut at = self.ends.inboxes[number].message as usize;
        while messages[at].end() <= packet.psn {
            at = messages[at].next as usize;
        }
        messages[at].received += 1;
        let message = messages[at];
        if message.received < message.packets {
            return;
        }
        let inbox = &mut self.ends.inboxes[number];
        while let Some(first) = messages.get(inbox.message as usize)
            && first.received == first.packets
        {
            inbox.message = first.next;
        }
        self.part_arrived(message.op);
    }

    /// Says how many messages were lost for want of somebody who sends them again.
    pub(crate) fn report_lost_messages(&mut self) {
        let service = self.input.settings.nic.service;
        if service == Service::Rc {
            return;
        }
        let sent_in_part = |message: &&crate::pair::Message| message.received < message.packets;
        let lost = self.ends.messages.iter().filter(sent_in_part).count();
        if 0 < lost {
            let name = service.name();
            self.report_finding(format!(
                "{lost} messages did not arrive whole, and over `network.nic.service = \"{name}\"` \
                 nobody sends them again"
            ));
        }
    }
}
