//! A NIC's turns as HPCC's ns-3 takes them, for runs on its clock of whole nanoseconds.
//!
//! That simulator looks for a packet whenever the transmitter is free, an acknowledgement comes, a
//! flow starts or a wake-up fires (`QbbNetDevice::DequeueAndTransmit`). Three of its habits decide
//! ties, and ties decide which of two flows is a packet ahead:
//!
//! * Flows stay in the list until they are acknowledged in full, and leave it when a scan meets
//!   them: then all finished ones from the first that it met on. The place of the flow that was
//!   served last is not moved along (`RdmaEgressQueue::GetNextQindex`).
//! * There is one wake-up, which is not moved to an earlier time; but HPCC's changes of rate do
//!   move it, even those of a flow that has nothing left to send (`UpdateNextAvail`).
//! * A flow starts behind everything that was due at that instant already: its start is handed on
//!   as a new event, twice ([`RareEvent::HandOn`](crate::simulation::RareEvent::HandOn)).

use fabric::LinkId;

use crate::calendar::Event;
use crate::ids::{PairId, SenderId};
use crate::simulation::Simulation;

const NEVER: u64 = u64::MAX;

/// The flows of a NIC's port as that simulator lists them.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Queue pairs in the order in which they started, finished ones too.
    pairs: Vec<PairId>,
    /// The place of the one that was served last.
    last: usize,
    /// The ticket of the pending wake-up.
    wake_ticket: u32,
}

impl Simulation<'_> {
    /// Whether NICs take turns as HPCC's ns-3 does.
    #[inline]
    pub(crate) fn is_as_ns3(&self) -> bool {
        self.input.departures.are_events() && !self.net.credits.are_counted()
    }

    /// A queue pair has something to send: it has a turn from now on.
    pub(crate) fn list_as_ns3(&mut self, number: PairId) {
        let sender = self.ends.sender_of_port[self.ends.pairs[number].port].known();
        let turns = &mut self.ends.senders[sender].as_ns3;
        if !turns.pairs.contains(&number) {
            turns.pairs.push(number);
        }
    }

    /// The place, among those with something to send, of the queue pair whose turn it is.
    pub(crate) fn next_in_turn_as_ns3(&mut self, sender: SenderId, paused: bool) -> Option<usize> {
        let (pairs, now) = (&self.ends.pairs, self.time.now);
        let turns = &mut self.ends.senders[sender].as_ns3;
        let is_over = |pair: PairId| pairs[pair].una == pairs[pair].end;
        let (mut found, mut first_over) = (None, None);
        let count = turns.pairs.len();
        for ahead in 1..=count {
            let place = (turns.last + ahead) % count;
            let number = turns.pairs[place];
            let pair = &pairs[number];
            let due = pair.due();
            if !paused && pair.has_work() && due != NEVER {
                if due <= now {
                    found = Some(number);
                    break;
                }
            } else if is_over(number) {
                first_over = Some(first_over.map_or(place, |first: usize| first.min(place)));
            }
        }
        if let Some(first) = first_over {
            let mut at = 0;
            turns.pairs.retain(|number| {
                at += 1;
                at <= first || !is_over(*number)
            });
        }
        let number = found?;
        turns.last = turns.pairs.iter().position(|pair| *pair == number)?;
        Some(pairs[number].place as usize)
    }

    /// Wakes a NIC when its transmitter is free, or at the earliest instant at which a queue pair
    /// with something to send may send, if no wake-up is pending.
    pub(crate) fn schedule_wake_up_as_ns3(&mut self, sender: SenderId, link: LinkId) {
        let port = &mut self.net.ports[link];
        let free = port.is_free(self.time.now, self.time.ticket);
        let sender = &mut self.ends.senders[sender];
        if !free {
            if !port.free_event_pending && (!sender.pairs.is_empty() || port.sendable() != 0) {
                port.free_event_pending = true;
                let (at, ticket) = (port.free_at, port.free_ticket);
                self.schedule(at, ticket, Event::TransmitterFreed(link));
            }
            return;
        }
        let pairs = sender.pairs.iter().map(|pair| &self.ends.pairs[*pair]);
        let due = pairs.filter(|pair| pair.has_work()).map(|pair| pair.next_send).min();
        if let Some(due) = due.filter(|due| self.time.now < *due)
            && sender.wake_at == NEVER
        {
            self.set_wake_up_as_ns3(link, due);
        }
    }

    /// A queue pair's next transmission has moved: an earlier one moves the pending wake-up.
    pub(crate) fn advance_wake_up_as_ns3(&mut self, number: PairId) {
        let pair = &self.ends.pairs[number];
        let link = pair.port;
        let wake_at = self.ends.senders[self.ends.sender_of_port[link].known()].wake_at;
        if wake_at != NEVER && pair.next_send < wake_at {
            self.set_wake_up_as_ns3(link, pair.next_send.max(self.time.now));
        }
    }

    fn set_wake_up_as_ns3(&mut self, link: LinkId, at: u64) {
        let ticket = self.time.calendar.ticket();
        let sender = &mut self.ends.senders[self.ends.sender_of_port[link].known()];
        sender.wake_at = at;
        sender.as_ns3.wake_ticket = ticket;
        self.schedule(at, ticket, Event::SenderWoken(link));
    }

    /// Whether a wake-up that has come has been moved to another instant.
    pub(crate) fn has_moved_as_ns3(&self, sender: SenderId) -> bool {
        self.is_as_ns3() && self.ends.senders[sender].as_ns3.wake_ticket != self.time.ticket
    }
}
