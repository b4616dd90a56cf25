//! The clock of each node, from which its neighbours compute their lookahead.
//!
//! A switch or station that runs ahead needs its horizon: until when all arrivals are already on
//! its wires. The next action of a neighbour is either its next event (`next`), or follows from a
//! packet that has still to arrive there, which takes at least its shortest cable from now on. So
//! the horizon of a node is the least of its neighbours' clocks, each plus the cable from there.
//! It does not depend on the rest of the network: a leaf whose neighbours have handled their next
//! half microsecond may handle its own, whatever happens elsewhere.

use fabric::LinkId;
use units::{Id, IdVec};

use crate::ids::{Maybe, StationId, SwitchId};

const NEVER: u64 = u64::MAX;

/// A node without a clock.
const UNKNOWN: u32 = u32::MAX;

/// One node that can run ahead.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Its next event, as far as is known; zero if it goes event by event.
    next: u64,
    /// Its shortest incoming cable: no event elsewhere acts on it sooner.
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
    /// Clocks of so many switches and stations without events.
    pub(crate) fn new(switches: usize, stations: usize, links: usize) -> Self {
        let clock = Clock { next: NEVER, shortest: NEVER };
        Self {
            nodes: vec![clock; switches + stations],
            switches,
            sources: vec![UNKNOWN; links].into(),
        }
    }

    /// Adds a link between two nodes.
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

    /// Sets the next event of a switch; zero if it goes event by event.
    #[inline]
    pub(crate) fn set_switch_next(&mut self, switch: SwitchId, next: u64) {
        self.nodes[switch.index()].next = next;
    }

    /// Sets the next event of a station.
    #[inline]
    pub(crate) fn set_station_next(&mut self, station: StationId, next: u64) {
        self.nodes[self.switches + station.index()].next = next;
    }

    /// Until when all departures of the node that a link leaves are known, if no event is before
    /// `now`, and none elsewhere before `next_elsewhere`.
    #[inline]
    pub(crate) fn known_until(&self, link: LinkId, now: u64, next_elsewhere: u64) -> u64 {
        match self.nodes.get(self.sources[link] as usize) {
            Some(clock) => next_elsewhere.max(clock.next.min(now.saturating_add(clock.shortest))),
            None => next_elsewhere,
        }
    }
}
