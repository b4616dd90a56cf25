//! Solving everything at once: all levels rise together from zero; when a link is full, the flows
//! that cross it stop there and the others go on.
//!
//! The next link to fill is the least of a heap. A link's fill level only rises while flows stop
//! elsewhere, so an entry that has become too low is put back with its new level.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::Id;

use super::{Entry, FlowId, MaxMin, Member, SAME, Turn};

impl MaxMin {
    /// Solves everything at once by progressive filling.
    pub(super) fn solve_whole(&mut self) {
        self.effort.whole_solves += 1;
        for at in 0..self.started.len() {
            self.join_links(self.started[at]);
        }
        self.started.clear();
        self.turns.clear();
        let mut filling = Filling::new(self);
        while 0 < filling.left
            && let Some(Turn(Reverse((key, link)))) = self.turns.pop()
        {
            let level = match filling.turn(link as usize, f64::from_bits(key)) {
                Saturation::Never => continue,
                Saturation::Later(level) => {
                    self.turns.push(Turn::new(level, link));
                    continue;
                }
                Saturation::Now(level) => level,
            };
            self.effort.looks += 1;
            self.fill(link, level, &mut filling);
        }
        // Of the links that are left none holds anybody back.
        self.turns.clear();
        self.loosen_all();
    }

    /// Freezes all flows that still rise on a link that has just become full.
    fn fill(&mut self, link: u32, level: f64, filling: &mut Filling) {
        self.links[link as usize].level = level;
        self.links[link as usize].alarm = f64::NEG_INFINITY;
        self.note_changed(link);
        for at in 0..self.members.len(link as usize) {
            let Member { flow, .. } = self.members.get(link as usize)[at];
            if !filling.rising[flow as usize] {
                continue;
            }
            filling.rising[flow as usize] = false;
            filling.left -= 1;
            for entry in self.range(flow as usize) {
                let Entry { link: crossed, load, .. } = self.entries[entry];
                let room = &mut filling.rooms[crossed as usize];
                room.0 -= load * level;
                room.1 -= load;
                room.2 -= 1;
                let state = &mut self.links[crossed as usize];
                if crossed == link {
                    state.free += load;
                } else {
                    state.fixed += load * level;
                    state.highest = state.highest.max(level);
                }
            }
            let before = self.flows[FlowId::from_index(flow as usize)].held;
            self.hold_flow(flow as usize, link);
            if before == link {
                self.moved.pop(); // it stays where it was
            }
        }
    }
}

/// When a link becomes full as all levels rise together.
enum Saturation {
    /// Nothing rises on it any more.
    Never,
    /// Not before this level.
    Later(f64),
    /// At this level.
    Now(f64),
}

/// The state of progressive filling.
struct Filling {
    /// By link: the capacity that is left, the load of rising flows per level, and their number.
    rooms: Vec<(f64, f64, u32)>,
    rising: Vec<bool>,
    /// How many flows still rise.
    left: usize,
}

impl Filling {
    /// Takes all running flows from their links and lets them rise from zero.
    fn new(network: &mut MaxMin) -> Self {
        let mut rising = vec![false; network.flows.len()];
        let mut rooms = Vec::with_capacity(network.links.len());
        let mut turns = Vec::new();
        for link in 0..network.links.len() {
            let members = network.members.get(link);
            let load = |member: &Member| network.entries[member.entry as usize].load;
            let total: f64 = members.iter().map(load).sum();
            for member in members {
                rising[member.flow as usize] = true;
            }
            if network.links[link].level != 0.0 {
                network.note_changed(link as u32);
            }
            network.own.clear(link);
            let state = &mut network.links[link];
            (state.fixed, state.free, state.level, state.highest) = (0.0, 0.0, 0.0, 0.0);
            (state.looks, state.waiting, state.slack) = (0, false, false);
            state.set_alarm();
            let flows = network.members.len(link) as u32;
            rooms.push((state.capacity, total, flows));
            if 0 < flows {
                turns.push(Turn::new(state.capacity / total, link as u32));
            }
        }
        for flow in network.flows.iter_mut() {
            flow.tight = flow.end;
        }
        network.turns = BinaryHeap::from(turns);
        Self { rooms, rising, left: network.running }
    }

    fn turn(&self, link: usize, key: f64) -> Saturation {
        let (left, load, flows) = self.rooms[link];
        if flows == 0 {
            return Saturation::Never;
        }
        let level = (left / load).max(key);
        if key * (1.0 + SAME) < level { Saturation::Later(level) } else { Saturation::Now(level) }
    }
}
