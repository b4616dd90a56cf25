//! Entropy values: which of a queue pair's paths its next packet takes.
//!
//! Where the policy gives a queue pair several entropy values, all their paths are laid before the
//! run, side by side and equally long, and so are the paths of acknowledgements: the one that
//! answers a packet takes the path of the same number back, so the place where it ends says which
//! value it had. Values of unmarked acknowledgements are kept, at most eight, and used first;
//! else the values have their turn.
//!
//! Source: see `fabric::routing::reps`; eight is the paper's buffer.
//!
//! # Where this model departs from it
//!
//! * There is no frozen mode: a path that fails is left because its values do not come back, and
//!   because switches route around it (`switch.reroute_after`).

use fabric::LinkId;
use units::Id;

use crate::packet::{PATH_END, Packet};
use crate::simulation::Simulation;

/// Values that a sender keeps.
const KEPT: usize = 8;

/// What a queue pair remembers of its entropy values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    kept: [u16; KEPT],
    first: u8,
    count: u8,
    /// Whose turn it is among values of which nothing is known.
    turn: u16,
}

impl Memory {
    /// One that knows nothing and begins with this value.
    fn new(turn: u16) -> Self {
        Self { turn, ..Self::default() }
    }

    /// The value of the next packet, of so many.
    fn next(&mut self, values: u16) -> u16 {
        if 0 < self.count {
            let value = self.kept[usize::from(self.first)];
            self.first = (self.first + 1) % KEPT as u8;
            self.count -= 1;
            return value;
        }
        let value = self.turn;
        self.turn = (value + 1) % values;
        value
    }

    /// A packet with this value met no congestion.
    fn keep(&mut self, value: u16) {
        let place = (usize::from(self.first) + usize::from(self.count)) % KEPT;
        self.kept[place] = value;
        if usize::from(self.count) < KEPT {
            self.count += 1;
        } else {
            self.first = (self.first + 1) % KEPT as u8;
        }
    }
}

/// The entropy values of all queue pairs; empty where each has one path.
#[derive(Debug, Default)]
pub(crate) struct Entropy {
    /// How many values each has.
    pub values: u16,
    memories: Vec<Memory>,
    /// Places that a path takes in the list of paths, with its end, by queue pair: there, back.
    strides: Vec<[u32; 2]>,
}

impl Entropy {
    /// For a policy with so many values for each queue pair.
    pub(crate) fn new(values: u16) -> Self {
        Self { values: values.max(1), ..Self::default() }
    }

    /// Notes how long the paths of a queue pair are, and lets it begin with some value.
    fn note(&mut self, pair: usize, way: Way, links: usize, begin: u16) {
        if !self.is_used() {
            return;
        }
        if self.memories.len() <= pair {
            self.memories.push(Memory::new(begin % self.values));
            self.strides.push([1; 2]);
        }
        self.strides[pair][way as usize] = links as u32 + 1;
    }

    /// Whether queue pairs have more than one path.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        1 < self.values
    }

    /// Where the next packet of a queue pair begins its way, after the first of its paths.
    #[inline]
    pub(crate) fn next(&mut self, pair: usize) -> u32 {
        if !self.is_used() {
            return 0;
        }
        let value = self.memories[pair].next(self.values);
        u32::from(value) * self.stride(pair, Way::There)
    }

    fn stride(&self, pair: usize, way: Way) -> u32 {
        self.strides[pair][way as usize]
    }

    /// The way back for the answer to a packet that ended its way here, after the first; `first`
    /// is the place of the packet's own first path.
    #[inline]
    pub(crate) fn back(&self, pair: usize, end: u32, first: u32) -> u32 {
        u32::from(self.value(pair, end, first, Way::There)) * self.stride(pair, Way::Back)
    }

    /// The value of a packet whose way ended at a place in the list of paths.
    fn value(&self, pair: usize, end: u32, first: u32, way: Way) -> u16 {
        // A path that has been laid again meanwhile lies elsewhere.
        let ahead = end.wrapping_sub(first) / self.stride(pair, way);
        (ahead as u16).min(self.values - 1)
    }

    /// An acknowledgement ended its way: its value is kept.
    #[inline]
    pub(crate) fn recycle(&mut self, pair: usize, end: u32, first: u32) {
        let value = self.value(pair, end, first, Way::Back);
        self.memories[pair].keep(value);
    }
}

impl Simulation<'_> {
    /// Lays the paths of a queue pair for all its entropy values, there or back, and returns where
    /// they begin. Paths that leave by another port, or are not as long, give way to the first.
    pub(crate) fn lay_paths_of_pair(&mut self, pair: usize, path: &[LinkId], way: Way) -> u32 {
        let place = u32::try_from(self.paths.len()).expect("paths have places of 32 bits");
        let (there, back) = self.network.keys[pair];
        let key = match way {
            Way::There => there,
            Way::Back => back,
        };
        let lay = |paths: &mut Vec<u32>, path: &[LinkId]| {
            paths.extend(path.iter().map(|link| link.index() as u32));
            paths.push(PATH_END | pair as u32);
        };
        lay(&mut self.paths, path);
        for value in 1..self.entropy.values {
            let other = self.network.walk(self.fabric, &key.with_entropy(value));
            let fits = |other: &&[LinkId]| other.len() == path.len() && other[0] == path[0];
            match other.ok().filter(fits) {
                Some(other) => lay(&mut self.paths, other),
                None => lay(&mut self.paths, path),
            }
        }
        self.entropy.note(pair, way, path.len(), key.src_port);
        place
    }

    /// Where the first path of a queue pair's answers, or that of one packet's answer, begins.
    #[inline]
    pub(crate) fn way_back(&self, pair: usize, cause: Option<&Packet>) -> u32 {
        let first = self.inboxes[pair].route;
        match cause {
            Some(packet) if self.entropy.is_used() => {
                first + self.entropy.back(pair, packet.route, self.pairs[pair].route)
            }
            _ => first,
        }
    }
}

/// Which way packets go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// From sender to receiver.
    There,
    /// Acknowledgements.
    Back,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: by hand. Nothing known: in turn; what came back is used first, oldest first, and of
    /// more than eight the oldest are forgotten.
    #[test]
    fn values_that_came_back_go_first() {
        let mut memory = Memory::new(3);
        let next = |memory: &mut Memory, count: usize| -> Vec<u16> {
            (0..count).map(|_| memory.next(4)).collect()
        };
        assert_eq!(next(&mut memory, 5), [3, 0, 1, 2, 3]);
        memory.keep(2);
        memory.keep(1);
        assert_eq!(next(&mut memory, 3), [2, 1, 0]);
        (0..10).for_each(|value| memory.keep(value));
        assert_eq!(next(&mut memory, 9), [2, 3, 4, 5, 6, 7, 8, 9, 1]);
    }
}
