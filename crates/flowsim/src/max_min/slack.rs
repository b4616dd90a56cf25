//! Links with room to spare, which flows over very many links need not tell of every change.
//!
//! A folded channel can cross ten thousand links, of which a few hold anybody back. So a wide flow
//! has a promise: a level somewhat above its own. A link that could carry all its wide flows at
//! what they promise is slack: its sum counts them at that, and it is told when a promise changes,
//! not when a level does. When the sum passes the link's capacity it becomes tight, which means
//! exact. The links that hold flows back are always tight, and those of a wide flow come first
//! among its entries.

use units::Id;

use super::{FlowId, MaxMin, Member, NOWHERE};

/// A flow over more links than this is wide.
pub(super) const WIDE: usize = 64;

/// What a wide flow promises is this much above its level. More makes fewer links slack; less
/// makes promises change more often.
const PROMISE: f64 = 1.06;

/// A tight link that carries less than this share of its capacity may become slack again.
const SPARE: f64 = 0.8;

impl MaxMin {
    /// Puts the entries of a wide flow that is about to start into order.
    pub(super) fn sort_entries(&mut self, flow: usize, promise: f64) {
        let range = self.range(flow);
        let mut tight = range.start;
        for at in range.clone() {
            if !self.links[self.entries[at].link as usize].slack {
                self.entries.swap(at, tight);
                tight += 1;
            }
        }
        let record = &mut self.flows[FlowId::from_index(flow)];
        (record.tight, record.promise) = (tight as u32, promise);
    }

    /// What a flow promises when it runs at this level.
    pub(super) fn promise_at(level: f64) -> f64 {
        PROMISE * level
    }

    /// Tells the slack links of a wide flow if its level is above what it promised, or far below.
    pub(super) fn renew_promise(&mut self, flow: usize, level: f64) {
        let record = &mut self.flows[FlowId::from_index(flow)];
        let old = record.promise;
        if level <= old && old <= 1.2 * PROMISE * level {
            return;
        }
        let new = Self::promise_at(level);
        record.promise = new;
        let slack = record.tight as usize..record.end as usize;
        self.effort.told += slack.len() as u64;
        for at in slack {
            let entry = self.entries[at];
            self.add_fixed_load(entry.link, entry.load * (new - old), new);
        }
    }

    /// The level at which a slack link counts a flow.
    fn counted(&self, flow: u32) -> f64 {
        let flow = &self.flows[FlowId::from_index(flow as usize)];
        if flow.wide { flow.promise } else { self.links[flow.held as usize].level }
    }

    /// Makes a slack link tight: its sums become exact.
    pub(super) fn tighten(&mut self, link: u32) {
        self.links[link as usize].slack = false;
        let mut any = false;
        for place in 0..self.members.len(link as usize) {
            let Member { flow, entry } = self.members.get(link as usize)[place];
            let record = &mut self.flows[FlowId::from_index(flow as usize)];
            if record.wide {
                let first_slack = record.tight;
                record.tight += 1;
                self.swap_entries(entry, first_slack);
                any = true;
            }
        }
        if any {
            self.recompute_sums(link);
        }
    }

    /// Makes a tight link slack if it holds no flow back and could carry all that is promised.
    pub(super) fn loosen(&mut self, link: u32) {
        let state = &self.links[link as usize];
        if state.slack || state.waiting || state.free != 0.0 {
            return;
        }
        let (mut fixed, mut highest) = (0.0, 0.0_f64);
        for &Member { flow, entry } in self.members.get(link as usize) {
            let level = self.counted(flow);
            fixed += self.entries[entry as usize].load * level;
            highest = highest.max(level);
        }
        let state = &mut self.links[link as usize];
        if state.capacity < fixed {
            return;
        }
        (state.slack, state.fixed, state.highest) = (true, fixed, highest);
        for place in 0..self.members.len(link as usize) {
            let Member { flow, entry } = self.members.get(link as usize)[place];
            let record = &mut self.flows[FlowId::from_index(flow as usize)];
            if record.wide {
                record.tight -= 1;
                let last_tight = record.tight;
                self.swap_entries(entry, last_tight);
            }
        }
    }

    /// The same for a link that a wide flow has just left, if it has become nearly idle.
    pub(super) fn loosen_if_spare(&mut self, link: u32) {
        let state = &self.links[link as usize];
        if state.fixed < SPARE * state.capacity {
            self.loosen(link);
        }
    }

    /// After everything was solved at once: promises follow the levels, links become slack.
    pub(super) fn loosen_all(&mut self) {
        let mut any = false;
        for at in 0..self.flows.len() {
            let record = self.flows[FlowId::from_index(at)];
            if record.wide && record.held < NOWHERE - 1 {
                let level = self.links[record.held as usize].level;
                self.flows[FlowId::from_index(at)].promise = Self::promise_at(level);
                any = true;
            }
        }
        if any {
            (0..self.links.len()).for_each(|link| self.loosen(link as u32));
        }
    }

    /// Exchanges two entries of a running flow.
    fn swap_entries(&mut self, a: u32, b: u32) {
        if a == b {
            return;
        }
        self.entries.swap(a as usize, b as usize);
        for at in [a, b] {
            let entry = self.entries[at as usize];
            self.members.get_mut(entry.link as usize)[entry.place as usize].entry = at;
        }
    }
}
