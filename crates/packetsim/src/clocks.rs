//! How soon each node can be felt by its neighbours.
//!
//! A switch or station that runs ahead of the clock needs to know until when nothing reaches it
//! that is not on its wires already. What a neighbour does next is either the first thing that it
//! knows of (`next`), or follows from something that is still to reach it, which takes at least its
//! shortest cable from now on. So a node's horizon is the least of its neighbours' clocks, each
//! with the cable from there, and not that of the whole network: a leaf whose neighbours have
//! handled their next half microsecond may handle its own, whatever happens elsewhere.

use fabric::LinkId;
use units::{Id, IdVec};

use crate::ids::{Maybe, StationId, SwitchId};

const NEVER: u64 = u64::MAX;

/// A node of which no clock is kept.
const UNKNOWN: u32 = u32::MAX;

/// One node that can run ahead.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// When the first thing happens that it knows of; zero if it goes event by event.
    next: u64,
    /// Nothing that happens elsewhere makes it do anything sooner than this.
    shortest: u64,
}

/// The clocks of all nodes: switches, then stations.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    nodes: Vec<Clock>,
    switches: usize,
    /// The node that each link leaves.
    sources: IdVec<LinkId, u32>,
}

impl Clocks {
    /// For so many switches and stations, none of which knows of anything.
    pub(crate) fn new(switches: usize, stations: usize, links: usize) -> Self {
        let clock = Clock { next: NEVER, shortest: NEVER };
        Self {
            nodes: vec![clock; switches + stations],
            switches,
            sources: vec![UNKNOWN; links].into(),
        }
    }

    /// Adds a link to what is known of both of its ends.
    pub(crate) fn add_link(
        &mut self,
        link: LinkId,
        delay: u64,
        from: (Maybe<SwitchId>, Maybe<StationId>),
        to: (Maybe<SwitchId>, Maybe<StationId>),
    ) {
        let node = |(switch, station): (Maybe<SwitchId>, Maybe<StationId>)| {
            let station = station.get().map(|station| self.switches + station.index());
            switch.get().map(SwitchId::index).or(station)
        };
        let (from, to) = (node(from), node(to));
        self.sources[link] = from.map_or(UNKNOWN, |from| from as u32);
        if let Some(to) = to {
            let shortest = &mut self.nodes[to].shortest;
            *shortest = delay.min(*shortest);
        }
    }

    /// A switch knows of nothing before this instant; zero if it goes event by event.
    #[inline]
    pub(crate) fn set_switch(&mut self, switch: SwitchId, next: u64) {
        self.nodes[switch.index()].next = next;
    }

    /// The same of a station.
    #[inline]
    pub(crate) fn set_station(&mut self, station: StationId, next: u64) {
        self.nodes[self.switches + station.index()].next = next;
    }

    /// Before this instant the node that a link leaves does nothing that has not been done, if
    /// nothing at all happens before `now` and nothing but what happens here before `least`.
    #[inline]
    pub(crate) fn of_source(&self, link: LinkId, now: u64, least: u64) -> u64 {
        match self.nodes.get(self.sources[link] as usize) {
            Some(clock) => least.max(clock.next.min(now.saturating_add(clock.shortest))),
            None => least,
        }
    }
}
