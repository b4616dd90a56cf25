//! Lanes at a NIC: queue pairs whose lane is paused or has no credits are passed over.
//!
//! Where there is one lane the NIC is either paused or not. With several, the queue pairs of one
//! lane go on while those of another wait.

use crate::packet::DATA;
use crate::simulation::Simulation;

impl Simulation<'_> {
    /// The place of the queue pair whose turn it is at a NIC's port, among those that may send.
    #[inline]
    pub(crate) fn next_in_turn(&mut self, sender: usize, link: usize, at: u64) -> Option<usize> {
        if self.ports[link].paused == 0 {
            return self.senders[sender].next(at);
        }
        if self.rules.lanes == 1 {
            if self.credits.count() && self.senders[sender].next(at).is_some() {
                self.waits_for_credit(link, DATA);
            }
            return None;
        }
        let place = self.next_unpaused(sender, link, at);
        if place.is_none() && self.credits.count() {
            self.note_who_waits(sender, link);
        }
        place
    }

    /// Whether the lane of a queue pair may send over a link.
    fn may_send(&self, pair: u32, link: usize) -> bool {
        let class = DATA + usize::from(self.pairs[pair as usize].lane);
        self.ports[link].paused >> class & 1 == 0
    }

    fn next_unpaused(&self, sender: usize, link: usize, at: u64) -> Option<usize> {
        let state = &self.senders[sender];
        let count = state.pairs.len();
        let places = (0..count).map(|ahead| (state.turn + ahead) % count);
        let mut may = places.filter(|place| self.may_send(state.pairs[*place], link));
        may.find(|place| state.due[*place] <= at)
    }

    /// Wakes a NIC for the queue pairs whose lane may send.
    pub(crate) fn attend_unpaused(&mut self, sender: usize, link: usize) {
        if self.rules.lanes == 1 {
            return;
        }
        let state = &self.senders[sender];
        let pairs = state.pairs.iter().zip(&state.due);
        let due = pairs.filter(|(pair, _)| self.may_send(**pair, link)).map(|(_, due)| *due).min();
        if let Some(due) = due.filter(|due| *due != u64::MAX) {
            let at = due.max(self.ports[link].free_at).max(self.now);
            self.wake_sender(sender, link, at);
        }
    }

    /// Queue pairs that could send but for their credits wait for them.
    fn note_who_waits(&mut self, sender: usize, link: usize) {
        for place in 0..self.senders[sender].pairs.len() {
            let (pair, due) = (self.senders[sender].pairs[place], self.senders[sender].due[place]);
            if due <= self.now && !self.may_send(pair, link) {
                self.waits_for_credit(link, DATA + usize::from(self.pairs[pair as usize].lane));
            }
        }
    }
}
