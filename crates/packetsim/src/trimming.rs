//! Trimming: a switch that has no room for a data packet sends its headers on.
//!
//! The receiver learns at once which packet is missing and asks for it, so that a loss costs a
//! round trip and not a timeout. Headers travel in the queue of control, which is served first; if
//! even that is full they are dropped, and the timeout does the rest.
//!
//! Source: Handley et al., "Re-architecting datacenter networks and stacks for low latency and
//! high performance" (NDP), SIGCOMM 2017; Ultra Ethernet Specification 1.0, packet trimming.
//!
//! # Where this model departs from its sources
//!
//! * A trimmed packet always has 64 bytes, whatever headers the transport has.

use crate::ids::{Maybe, PairId};
use crate::packet::{CONTROL, Packet, Purpose, STAMPED, Waiting, joined};
use crate::simulation::Simulation;
use fabric::LinkId;

/// What is left of a packet: the shortest Ethernet frame.
const HEADERS: u16 = 64;

impl Simulation<'_> {
    /// Cuts a packet that came over `link` to its headers and queues them for `next`.
    #[cold]
    pub(crate) fn trim(&mut self, link: LinkId, next: LinkId, packet: Packet) {
        if packet.flags & STAMPED != 0 {
            self.net.stamps.free(packet.sent);
        }
        // The data is gone, whatever becomes of its headers.
        self.accounts.tally.dropped_data += 1;
        self.accounts.counters.trims += 1;
        let headers = Packet {
            at: joined(self.time.now),
            size: HEADERS,
            purpose: Purpose::Trimmed,
            flags: packet.flags & !STAMPED,
            ..packet
        };
        if self.admit_exactly(link, next, CONTROL, u32::from(HEADERS)) {
            self.enqueue(next, CONTROL, Waiting { packet: headers, from: Maybe::some(link) });
        } else {
            self.drop_packet(next, &headers);
        }
    }

    /// The headers of a trimmed packet reach the receiver, which asks for the packet again.
    pub(crate) fn trimmed_received(&mut self, number: PairId, packet: &Packet) {
        if self.input.rules.unreliable {
            return;
        }
        let inbox = &mut self.ends.inboxes[number];
        if packet.psn < inbox.expected || inbox.early.contains(packet.psn) {
            return;
        }
        let size = self.input.sizes.nak;
        if !self.input.rules.goes_back {
            self.send_control(number, Purpose::Nak, packet.psn, size, None, 0);
        } else if inbox.asked != inbox.expected {
            inbox.asked = inbox.expected;
            let expected = inbox.expected;
            self.send_control(number, Purpose::Nak, expected, size, None, 0);
        }
    }
}
