//! Hop stamps: what links wrote on packets whose congestion control asked for it.
//!
//! A stamped packet carries the number of its list; the acknowledgement takes it over and brings it
//! back. The number stands where other packets have the time at which they were sent, so the list
//! keeps that too.

use units::Room;

use crate::bound;
use crate::cc::Hop;
use crate::limits::STAMPS;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    sent: u64,
    count: u32,
    hops: [Hop; STAMPS],
}

/// The lists of all packets on their way.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    entries: Vec<Entry>,
    free: Vec<u32>,
    room: Room,
}

impl Stamps {
    /// From now on they take no more than there is room for.
    pub(crate) fn stay_within(&mut self, room: &Room) {
        self.room = room.clone();
    }

    /// A fresh list for a packet sent now.
    pub(crate) fn begin(&mut self, sent: u64) -> u32 {
        match self.free.pop() {
            Some(number) => {
                // Old stamps are written over as new ones come.
                let entry = &mut self.entries[number as usize];
                (entry.sent, entry.count) = (sent, 0);
                number
            }
            None => {
                let number = u32::try_from(self.entries.len()).expect("fewer than 2³² packets");
                let grown = self.room.reserve("stamps on packets", &mut self.entries, 1);
                grown.unwrap_or_else(|out| bound::end_for(out));
                self.entries.push(Entry { sent, ..Entry::default() });
                number
            }
        }
    }

    /// Adds a stamp.
    #[inline]
    pub(crate) fn push(&mut self, number: u32, hop: Hop) {
        let entry = &mut self.entries[number as usize];
        if (entry.count as usize) < STAMPS {
            entry.hops[entry.count as usize] = hop;
            entry.count += 1;
        }
    }

    /// When the packet was sent, and its stamps.
    pub(crate) fn get(&self, number: u32) -> (u64, &[Hop]) {
        let entry = &self.entries[number as usize];
        (entry.sent, &entry.hops[..entry.count as usize])
    }

    /// Throws a list away.
    pub(crate) fn free(&mut self, number: u32) {
        debug_assert!(!self.free.contains(&number), "a list is thrown away once");
        self.free.push(number);
    }

    /// How many lists are in use.
    pub(crate) fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
