//! Lanes at a NIC: queue pairs whose lane is paused or has no credits are passed over.
//!
//! Where there is one lane the NIC either may send or not. With several, the queue pairs of one
//! lane go on while those of another wait.

use crate::packet::DATA;
use crate::simulation::Simulation;

const NEVER: u64 = u64::MAX;

impl Simulation<'_> {
    /// The place of the queue pair whose turn it is at a NIC's port, among those that may send.
    #[inline]
    pub(crate) fn next_in_turn(&mut self, sender: usize, link: usize, at: u64) -> Option<usize> {
        let paused = self.ports[link].paused;
        if paused != 0 && self.rules.lanes == 1 {
            return None;
        }
        if !self.credits.are_counted() {
            if paused == 0 {
                return self.senders[sender].next(at);
            }
            let state = &self.senders[sender];
            let count = state.pairs.len();
            let mut places = (0..count).map(|ahead| (state.turn + ahead) % count);
            let may = |place: &usize| {
                state.due[*place] <= at
                    && paused >> self.class_of_pair(state.pairs[*place]) & 1 == 0
            };
            return places.find(may);
        }
        if self.rules.lanes == 1 {
            let place = self.senders[sender].next(at)?;
            if self.has_credit(link, DATA) {
                return Some(place);
            }
            self.waits_for_credit(link, DATA, self.now);
            return None;
        }
        let count = self.senders[sender].pairs.len();
        for ahead in 0..count {
            let state = &self.senders[sender];
            let place = (state.turn + ahead) % count;
            if state.due[place] <= at {
                let class = self.class_of_pair(state.pairs[place]);
                if self.has_credit(link, class) {
                    return Some(place);
                }
                self.waits_for_credit(link, class, self.now);
            }
        }
        None
    }

    fn class_of_pair(&self, pair: u32) -> usize {
        DATA + usize::from(self.pairs[pair as usize].lane)
    }

    /// When a NIC may send next: its transmitter must be free, a queue pair be due, and its lane
    /// neither be paused nor lack credits.
    pub(crate) fn send_due(&mut self, sender: usize, link: usize) -> u64 {
        let free = self.ports[link].free_at.max(self.now);
        let paused = self.ports[link].paused;
        let state = &self.senders[sender];
        if paused != 0 {
            let pairs = state.pairs.iter().zip(&state.due);
            let may = pairs.filter(|(pair, _)| paused >> self.class_of_pair(**pair) & 1 == 0);
            let first = may.map(|(_, due)| *due).min().unwrap_or(NEVER);
            return if first == NEVER { NEVER } else { first.max(free) };
        }
        // Most often the next in turn may send as soon as the transmitter is free.
        let at = match state.next(free) {
            Some(_) => free,
            None => state.first_due(),
        };
        if !self.credits.are_counted() || at == NEVER {
            return at;
        }
        if self.rules.lanes == 1 {
            return at.max(self.credit_due(link, DATA));
        }
        let mut first = NEVER;
        for place in 0..self.senders[sender].pairs.len() {
            let state = &self.senders[sender];
            let (due, class) = (state.due[place], self.class_of_pair(state.pairs[place]));
            if due < first {
                first = first.min(due.max(free).max(self.credit_due(link, class)));
            }
        }
        first
    }
}
