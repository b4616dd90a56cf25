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
//!   because switches route around it (`routing.detection`).

use fabric::LinkId;
use units::Id;

use crate::ids::{PairId, Raw};
use crate::packet::{PATH_END, Packet, ROAMING};
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
    /// How many values each has in each plane.
    pub values: u16,
    /// Planes that it spreads over.
    planes: u16,
    /// By queue pair and plane.
    memories: Vec<Memory>,
    /// Places that a path takes in the list of paths, with its end, by queue pair: there, back.
    strides: Vec<[u32; 2]>,
}

impl Entropy {
    /// For a policy with so many values for each queue pair, in each of so many planes.
    pub(crate) fn new(values: u16, planes: u16) -> Self {
        Self { values: values.max(1), planes: planes.max(1), ..Self::default() }
    }

    /// How many paths each queue pair has.
    fn paths(&self) -> u32 {
        u32::from(self.values) * u32::from(self.planes)
    }

    /// Notes how long the paths of a queue pair are, and lets it begin with some value.
    pub(crate) fn note(&mut self, pair: PairId, way: Way, links: usize, begin: u16) {
        if !self.is_used() {
            return;
        }
        if self.strides.len() <= pair.index() {
            let first = |plane: u16| Memory::new(begin.wrapping_add(plane) % self.values);
            self.memories.extend((0..self.planes).map(first));
            self.strides.push([1; 2]);
        }
        self.strides[pair.index()][way as usize] = links as u32 + 1;
    }

    /// Whether queue pairs have more than one path.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        1 < self.paths()
    }

    /// Where the next packet of a queue pair begins its way in a plane, after the first of its
    /// paths.
    #[inline]
    pub(crate) fn next(&mut self, pair: PairId, plane: u16) -> u32 {
        if !self.is_used() {
            return 0;
        }
        let values = self.values;
        let value = self.memory(pair, plane).next(values);
        let number = u32::from(plane) * u32::from(values) + u32::from(value);
        number * self.stride(pair, Way::There)
    }

    fn memory(&mut self, pair: PairId, plane: u16) -> &mut Memory {
        &mut self.memories[pair.index() * usize::from(self.planes) + usize::from(plane)]
    }

    fn stride(&self, pair: PairId, way: Way) -> u32 {
        self.strides[pair.index()][way as usize]
    }

    /// The way back for the answer to a packet that ended its way here, after the first; `first`
    /// is the place of the packet's own first path.
    #[inline]
    pub(crate) fn back(&self, pair: PairId, end: u32, first: u32) -> u32 {
        self.number(pair, end, first, Way::There) * self.stride(pair, Way::Back)
    }

    /// The same for an answer that no packet's way says anything about: paths take turns.
    #[inline]
    pub(crate) fn any_back(&self, pair: PairId, psn: u32) -> u32 {
        psn % self.paths() * self.stride(pair, Way::Back)
    }

    /// The number of the path that a packet took whose way ended at a place in the list of paths.
    fn number(&self, pair: PairId, end: u32, first: u32, way: Way) -> u32 {
        // A path that has been laid again meanwhile lies elsewhere.
        let ahead = end.wrapping_sub(first) / self.stride(pair, way);
        ahead.min(self.paths() - 1)
    }

    /// An acknowledgement ended its way: its value is kept.
    #[inline]
    pub(crate) fn recycle(&mut self, pair: PairId, end: u32, first: u32) {
        let number = self.number(pair, end, first, Way::Back);
        let values = u32::from(self.values);
        self.memory(pair, (number / values) as u16).keep((number % values) as u16);
    }
}

impl Simulation<'_> {
    /// Lays the paths of a queue pair for all its entropy values, there or back, and returns where
    /// they begin. Paths that leave by another port, or are not as long, give way to the first.
    pub(crate) fn lay_paths_of_pair(&mut self, pair: PairId, path: &[LinkId], way: Way) -> u32 {
        if self.ends.planes.are_several() {
            return self.lay_planes_of_pair(pair, path, way);
        }
        let place = u32::try_from(self.net.paths.len()).expect("paths have places of 32 bits");
        let (there, back) = self.net.network.keys[pair];
        let key = match way {
            Way::There => there,
            Way::Back => back,
        };
        let lay = |paths: &mut Vec<u32>, path: &[LinkId]| {
            paths.extend(path.iter().map(|link| link.index() as u32));
            paths.push(PATH_END | pair.raw());
        };
        lay(&mut self.net.paths, path);
        for value in 1..self.ends.entropy.values {
            let other = self.net.network.walk(self.input.fabric, &key.with_entropy(value));
            let fits = |other: &&[LinkId]| other.len() == path.len() && other[0] == path[0];
            match other.ok().filter(fits) {
                Some(other) => lay(&mut self.net.paths, other),
                None => lay(&mut self.net.paths, path),
            }
        }
        self.ends.entropy.note(pair, way, path.len(), key.src_port);
        place
    }

    /// Where the first path of a queue pair's answers, or that of one packet's answer, begins. With
    /// several planes, answers to packets that say nothing of their plane take turns.
    #[inline]
    pub(crate) fn way_back(&self, pair: PairId, psn: u32, cause: Option<&Packet>) -> u32 {
        let first = self.ends.inboxes[pair].route;
        let entropy = &self.ends.entropy;
        match cause {
            _ if !entropy.is_used() => first,
            Some(packet) if packet.flags & ROAMING == 0 => {
                first + entropy.back(pair, packet.route, self.ends.pairs[pair].route)
            }
            _ if self.ends.planes.are_several() => first + entropy.any_back(pair, psn),
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
