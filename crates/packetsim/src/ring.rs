//! Rings of small records in one shared slab.
//!
//! There are hundreds of thousands of queues and wires, most of them short. Each is a power of two
//! of places in one big vector, known by where it begins; one that grows moves to a larger place,
//! and the old one serves the next that needs its size. A ring itself is sixteen bytes.

use std::ops::Range;

use units::Room;

use crate::bound;

/// A queue of records that lie in a [`Slab`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ring {
    base: u32,
    /// Places minus one; a ring without places has `head == tail` and is never read.
    mask: u32,
    head: u32,
    tail: u32,
}

impl Ring {
    /// Whether nothing is in it.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.head == self.tail
    }

    /// Where the oldest record lies, of a ring that is not empty.
    #[inline]
    pub(crate) fn head(self) -> usize {
        (self.base + (self.head & self.mask)) as usize
    }

    /// Where the record lies that is so many behind the oldest.
    #[inline]
    pub(crate) fn place(self, behind: u32) -> usize {
        (self.base + (self.head.wrapping_add(behind) & self.mask)) as usize
    }

    /// The places of all records, oldest first: at most two ranges.
    #[inline]
    pub(crate) fn places(self) -> [Range<usize>; 2] {
        let first = self.head();
        let count = self.len().min(self.mask + 1 - (self.head & self.mask));
        let (base, rest) = (self.base as usize, (self.len() - count) as usize);
        [first..first + count as usize, base..base + rest]
    }

    /// Whether there is room for a record.
    #[inline]
    pub(crate) fn has_room(self) -> bool {
        self.len() <= self.mask && self.mask != 0
    }

    /// Adds a place at the end, for a record that is to be written there, if there is room.
    #[inline]
    pub(crate) fn add_tail(&mut self) -> Option<usize> {
        if !self.has_room() {
            return None;
        }
        let place = (self.base + (self.tail & self.mask)) as usize;
        self.tail = self.tail.wrapping_add(1);
        Some(place)
    }

    /// Removes the oldest record. An empty ring begins again at its first place: what most queues
    /// hold lies there, and the memory behind it stays cold.
    #[inline]
    pub(crate) fn drop_head(&mut self) {
        assert!(self.head != self.tail, "a ring that is not empty");
        self.head = self.head.wrapping_add(1);
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Removes so many of the oldest records.
    #[inline]
    pub(crate) fn drop_heads(&mut self, count: u32) {
        assert!(count <= self.len(), "a ring that holds as many");
        self.head = self.head.wrapping_add(count);
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// How many records are in it.
    #[inline]
    pub(crate) fn len(self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }
}

/// What some runs keep beside each packet on a wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tag {
    /// Its rank among the arrivals of its instant.
    pub ticket: u32,
    /// The upper half of the time at which it arrives.
    pub high: u32,
}

impl Tag {
    /// For a packet that arrives then.
    pub(crate) fn new(ticket: u32, at: u64) -> Self {
        Self { ticket, high: (at >> 32) as u32 }
    }

    /// When the packet arrives, given the lower half.
    pub(crate) fn time(self, low: u32) -> u64 {
        u64::from(self.high) << 32 | u64::from(low)
    }
}

/// The memory of many rings.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<T>,
    /// Beside each record, where that is asked for.
    tags: Vec<Tag>,
    tagged: bool,
    /// Places that rings have grown out of, by the logarithm of their size.
    spare: [Vec<u32>; 32],
    /// What all of it may still take.
    room: Room,
}

impl<T: Copy + Default> Slab<T> {
    /// Memory for nothing yet.
    pub(crate) fn new() -> Self {
        let (places, tags, spare) = (Vec::new(), Vec::new(), Default::default());
        Self { places, tags, tagged: false, spare, room: Room::default() }
    }

    /// The same, with a tag beside each record.
    pub(crate) fn with_tags() -> Self {
        Self { tagged: true, ..Self::new() }
    }

    /// From now on it takes no more than there is room for.
    pub(crate) fn stay_within(&mut self, room: &Room) {
        self.room = room.clone();
    }

    /// Whether there is a tag beside each record.
    #[inline]
    pub(crate) fn is_tagged(&self) -> bool {
        self.tagged
    }

    /// The tag of the oldest record, of a ring that is not empty.
    pub(crate) fn tag(&self, ring: Ring) -> Tag {
        self.tags[ring.head()]
    }

    /// Writes the tag of the newest record, of a ring that is not empty.
    pub(crate) fn set_tag(&mut self, ring: Ring, tag: Tag) {
        let newest = ring.base + (ring.tail.wrapping_sub(1) & ring.mask);
        self.tags[newest as usize] = tag;
    }

    fn take(&mut self, size: u32) -> u32 {
        if let Some(base) = self.spare[size.ilog2() as usize].pop() {
            return base;
        }
        let (base, end) = (self.places.len(), self.places.len() + size as usize);
        assert!(end <= 1 << 32, "fewer than 2³² packets under way");
        let more = size as usize;
        let grown = self.room.reserve("packets under way", &mut self.places, more);
        grown.unwrap_or_else(|out| bound::end_for(out));
        self.places.resize(end, T::default());
        if self.tagged {
            let grown = self.room.reserve("packets under way", &mut self.tags, more);
            grown.unwrap_or_else(|out| bound::end_for(out));
            self.tags.resize(end, Tag::default());
        }
        base as u32
    }

    /// The record at a place.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> &T {
        &self.places[place]
    }

    /// The record at a place, if there is one.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.places.get(place)
    }

    /// All places, to read.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        &self.places
    }

    /// All places, for loops that hold copies of rings.
    #[inline]
    pub(crate) fn places(&mut self) -> &mut [T] {
        &mut self.places
    }

    /// Adds a record at the end.
    #[inline]
    pub(crate) fn push(&mut self, ring: &mut Ring, record: T) {
        if ring.len() > ring.mask || ring.mask == 0 {
            self.grow(ring);
        }
        self.places[(ring.base + (ring.tail & ring.mask)) as usize] = record;
        ring.tail = ring.tail.wrapping_add(1);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, ring: &mut Ring) {
        let old = *ring;
        let size = old.mask.checked_add(1).and_then(|size| size.checked_mul(2));
        let size = size.expect("fewer than 2³¹ packets in one queue").max(4);
        let base = self.take(size);
        for number in 0..old.len() {
            let from = old.base + (old.head.wrapping_add(number) & old.mask);
            self.places[(base + number) as usize] = self.places[from as usize];
            if self.tagged {
                self.tags[(base + number) as usize] = self.tags[from as usize];
            }
        }
        if 0 < old.mask {
            self.spare[(old.mask + 1).ilog2() as usize].push(old.base);
        }
        *ring = Ring { base, mask: size - 1, head: 0, tail: old.len() };
    }

    /// The oldest record, of a ring that is not empty.
    #[inline]
    pub(crate) fn first(&self, ring: Ring) -> &T {
        assert!(!ring.is_empty(), "a ring that is not empty");
        &self.places[(ring.base + (ring.head & ring.mask)) as usize]
    }

    /// Takes the oldest record out of a ring that is not empty.
    #[inline]
    pub(crate) fn pop(&mut self, ring: &mut Ring) -> T {
        let record = self.places[ring.head()];
        ring.drop_head();
        record
    }

    /// All records of a ring with their tags, oldest first.
    pub(crate) fn iter_tagged(&self, ring: Ring) -> impl Iterator<Item = (&T, Tag)> {
        let places = (0..ring.len()).map(move |behind| ring.place(behind));
        places.map(|place| (&self.places[place], self.tags[place]))
    }

    /// All records of a ring, oldest first.
    pub(crate) fn iter(&self, ring: Ring) -> impl Iterator<Item = &T> {
        (0..ring.len()).map(move |number| {
            let place = ring.base + (ring.head.wrapping_add(number) & ring.mask);
            &self.places[place as usize]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Agreement with the standard library's queues, many rings in one slab.
    #[test]
    fn rings_are_queues() {
        let mut random = units::Random::new(1, "ring", 0);
        let mut slab: Slab<u64> = Slab::new();
        let mut rings = [Ring::default(); 5];
        let mut oracle: [VecDeque<u64>; 5] = Default::default();
        for step in 0..20_000 {
            let at = random.below(5) as usize;
            if random.below(100) < 52 {
                slab.push(&mut rings[at], step);
                oracle[at].push_back(step);
            } else if !rings[at].is_empty() {
                assert_eq!(slab.first(rings[at]), &oracle[at][0]);
                assert_eq!(Some(slab.pop(&mut rings[at])), oracle[at].pop_front());
            }
            assert_eq!(rings[at].len() as usize, oracle[at].len());
        }
        for (ring, oracle) in rings.iter().zip(&oracle) {
            assert!(slab.iter(*ring).eq(oracle.iter()));
        }
    }
}
