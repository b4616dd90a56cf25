//! Lanes at a NIC: queue pairs whose lane is paused or has no credits are passed over.
//!
//! Where there is one lane the NIC either may send or not. With several, the queue pairs of one
//! lane go on while those of another wait.

use crate::ids::{PairId, SenderId};
use crate::packet::{Class, DATA};
use crate::simulation::Simulation;
use fabric::LinkId;

const NEVER: u64 = u64::MAX;

impl Simulation<'_> {
    /// The place of the queue pair whose turn it is at a NIC's port, among those that may send.
    #[inline]
    pub(crate) fn next_in_turn(
        &mut self,
        sender: SenderId,
        link: LinkId,
        at: u64,
    ) -> Option<usize> {
        let paused = self.net.ports[link].paused;
        if self.is_as_ns3() && self.input.rules.lanes == 1 {
            return self.next_in_turn_as_ns3(sender, paused != 0);
        }
        if paused != 0 && self.input.rules.lanes == 1 {
            return None;
        }
        if !self.net.credits.are_counted() {
            if paused == 0 {
                return self.ends.senders[sender].next(at);
            }
            let state = &self.ends.senders[sender];
            let count = state.pairs.len();
            let mut places = (0..count).map(|ahead| (state.turn + ahead) % count);
            let may = |place: &usize| {
                state.due[*place] <= at && !self.class_of_pair(state.pairs[*place]).is_in(paused)
            };
            return places.find(may);
        }
        if self.input.rules.lanes == 1 {
            let place = self.ends.senders[sender].next(at)?;
            if self.has_credit(link, DATA) {
                return Some(place);
            }
            self.waits_for_credit(link, DATA, self.time.now);
            return None;
        }
        let count = self.ends.senders[sender].pairs.len();
        for ahead in 0..count {
            let state = &self.ends.senders[sender];
            let place = (state.turn + ahead) % count;
            if state.due[place] <= at {
                let class = self.class_of_pair(state.pairs[place]);
                if self.has_credit(link, class) {
                    return Some(place);
                }
                self.waits_for_credit(link, class, self.time.now);
            }
        }
        None
    }

    fn class_of_pair(&self, pair: PairId) -> Class {
        Class::of_lane(usize::from(self.ends.pairs[pair].lane))
    }

    /// When a NIC may send next: its transmitter must be free, a queue pair be due, and its lane
    /// neither be paused nor lack credits.
    pub(crate) fn send_due(&mut self, sender: SenderId, link: LinkId) -> u64 {
        let free = self.net.ports[link].free_at.max(self.time.now);
        let paused = self.net.ports[link].paused;
        let state = &self.ends.senders[sender];
        if paused != 0 {
            let pairs = state.pairs.iter().zip(&state.due);
            let may = pairs.filter(|(pair, _)| !self.class_of_pair(**pair).is_in(paused));
            let first = may.map(|(_, due)| *due).min().unwrap_or(NEVER);
            return if first == NEVER { NEVER } else { first.max(free) };
        }
        // Most often the next in turn may send as soon as the transmitter is free.
        let at = match state.next(free) {
            Some(_) => free,
            None => state.first_due(),
        };
        if !self.net.credits.are_counted() || at == NEVER {
            return at;
        }
        if self.input.rules.lanes == 1 {
            return at.max(self.credit_due(link, DATA));
        }
        let mut first = NEVER;
        for place in 0..self.ends.senders[sender].pairs.len() {
            let state = &self.ends.senders[sender];
            let (due, class) = (state.due[place], self.class_of_pair(state.pairs[place]));
            if due < first {
                first = first.min(due.max(free).max(self.credit_due(link, class)));
            }
        }
        first
    }
}
