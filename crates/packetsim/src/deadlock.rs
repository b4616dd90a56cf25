//! Why a port has been paused for long: a cycle of switches that wait for each other, or a NIC that
//! does not let go.
//!
//! A port that is paused waits for the packets that came over it to leave the switch at its end. If
//! all of them wait there for ports that are paused themselves, and those in the same way for
//! others, nothing among them can ever move: the largest such set of ports is found by leaving out
//! every port that has a way to drain until no more can be left out (Hu et al., "Deadlocks in
//! datacenter networks: why do they form, and how to avoid them", HotNets 2016, call it a cyclic
//! buffer dependency). Following the waiting from any of them leads into the cycle.
//!
//! Where there is no such set, the same walk leads to whoever began: if that is a port to a NIC
//! that is paused, the NIC causes a storm.

use std::collections::{BTreeMap, BTreeSet};

use fabric::LinkId;
use units::Span;

use crate::buffer::{Switch, WatchdogAction};
use crate::ids::{Maybe, Raw};
use crate::packet::Class;
use crate::simulation::Simulation;

/// A pause that has lasted this long is looked into. Illustrative: congestion ends a pause within
/// the time to drain a threshold, tens of microseconds.
pub(crate) const SUSPICIOUS: Span = Span::from_ms(1);

/// For each lane of a port that is paused, those for which its packets wait at its far end. A lane
/// is known by a number: see [`Simulation::lane_number`].
type Waits = BTreeMap<u32, BTreeSet<u32>>;

impl Simulation<'_> {
    /// Says why a port has been paused for so long, if there is more to it than congestion.
    pub(crate) fn diagnose_pause(&mut self, link: LinkId, class: Class) {
        self.part.is_blind = true;
        let waits = self.wait_graph();
        let stuck = stuck(&waits);
        let lane = self.lane_number(link, class);
        if stuck.contains_key(&lane) {
            self.report_deadlock(&stuck);
        } else if let Some(port) = self.storming_port(lane, &waits) {
            self.report_storm(port);
        }
    }

    /// The number of a lane of a port.
    fn lane_number(&self, link: LinkId, class: Class) -> u32 {
        link.raw() * self.input.rules.lanes as u32 + class.lane() as u32
    }

    /// The port that a lane belongs to.
    fn port_of(&self, lane: u32) -> LinkId {
        LinkId::of(lane / self.input.rules.lanes as u32)
    }

    /// Whether ports wait for each other and no watchdog will throw packets away.
    pub(crate) fn is_deadlocked_for_ever(&self) -> bool {
        let watches = 0 < self.input.rules.watchdog && !self.net.credits.are_counted();
        let acts = watches && self.input.settings.pfc.action != WatchdogAction::Alert;
        !acts && !stuck(&self.wait_graph()).is_empty()
    }

    /// Searches for a deadlock at the end of a run that does not move.
    pub(crate) fn report_deadlocks(&mut self) {
        let stuck = stuck(&self.wait_graph());
        if !stuck.is_empty() {
            self.report_deadlock(&stuck);
        }
    }

    /// Whether a lane may not send: it is paused, or waits for credits.
    fn is_paused(&self, lane: u32) -> bool {
        let (link, class) =
            (self.port_of(lane), Class::of_lane(lane as usize % self.input.rules.lanes));
        class.is_in(self.net.ports[link].paused) || self.net.credits.are_awaited(link, class)
    }

    /// Which paused lanes wait for which of the switch at their far end.
    fn wait_graph(&self) -> Waits {
        let mut waits = Waits::new();
        let holds = |switch: &&Switch| 0 < switch.pausing || self.net.credits.are_counted();
        for switch in self.net.switches.iter().filter(holds) {
            for &out in &switch.ports {
                for class in Class::lanes().take(self.input.rules.lanes) {
                    let queue = self.net.ports[out].classes[class].queue;
                    let comers = self.net.queued.iter(queue).map(|waiting| waiting.from);
                    let lanes = comers.filter_map(Maybe::get);
                    let lanes = lanes.map(|from| self.lane_number(from, class));
                    for lane in lanes.filter(|lane| self.is_paused(*lane)) {
                        waits.entry(lane).or_default().insert(self.lane_number(out, class));
                    }
                }
            }
        }
        for (from, class, port) in self.net.schedule.waiting(&self.net.queued) {
            let lane = self.lane_number(from, class);
            if self.is_paused(lane) {
                waits.entry(lane).or_default().insert(self.lane_number(port, class));
            }
        }
        waits
    }

    /// The port to a NIC that keeps a port paused, if one does.
    fn storming_port(&self, lane: u32, waits: &Waits) -> Option<LinkId> {
        let mut at = lane;
        let mut seen = BTreeSet::new();
        while seen.insert(at) {
            let port = self.port_of(at);
            if self.net.ports[port].into.is_none() {
                return self.is_paused(at).then_some(port);
            }
            let next = waits.get(&at)?.iter().copied();
            at = next.filter(|out| self.is_paused(*out)).find(|out| !seen.contains(out))?;
        }
        None
    }

    fn name_of(&self, lane: u32) -> String {
        let name = self.input.fabric.link_name(self.port_of(lane));
        match self.input.rules.lanes as u32 {
            1 => name,
            lanes => format!("{name} (lane {})", lane % lanes),
        }
    }

    fn report_deadlock(&mut self, stuck: &Waits) {
        let cycle = cycle(stuck);
        if self.accounts.reported_deadlocks.contains(&cycle[0]) {
            return;
        }
        self.accounts.reported_deadlocks.extend(stuck.keys());
        let names: Vec<String> = cycle.iter().map(|lane| self.name_of(*lane)).collect();
        let (first, rest) = names.split_first().expect("a cycle has ports");
        let waits: String = rest.iter().map(|name| format!(" waits for {name},")).collect();
        let held = stuck.len() - cycle.len();
        self.report_finding(format!(
            "deadlock: {first}{waits} which waits for the first; {held} more paused ports wait for \
             them"
        ));
    }

    fn report_storm(&mut self, port: LinkId) {
        if self.accounts.reported_storms.contains(&port) {
            return;
        }
        self.accounts.reported_storms.push(port);
        let link = self.input.fabric.links()[port];
        let (nic, leaf) = (self.input.fabric.name(link.to), self.input.fabric.name(link.from));
        self.report_finding(format!(
            "pause storm: {nic} has kept {leaf} from sending to it without a break for {SUSPICIOUS}"
        ));
    }
}

/// The ports of which none can move before another of them has.
fn stuck(waits: &Waits) -> Waits {
    let mut stuck = waits.clone();
    loop {
        let can_drain = |outs: &BTreeSet<u32>| outs.iter().any(|out| !stuck.contains_key(out));
        let free: Vec<u32> =
            stuck.iter().filter(|(_, outs)| can_drain(outs)).map(|(link, _)| *link).collect();
        if free.is_empty() {
            return stuck;
        }
        free.iter().for_each(|link| {
            stuck.remove(link);
        });
    }
}

/// A cycle of ports that wait for each other, from its smallest on.
fn cycle(stuck: &Waits) -> Vec<u32> {
    let mut way: Vec<u32> = stuck.keys().take(1).copied().collect();
    loop {
        let last = way.last().expect("somebody is stuck");
        let next = *stuck[last].first().expect("a stuck port waits for another");
        if let Some(at) = way.iter().position(|port| *port == next) {
            let mut cycle = way.split_off(at);
            let least = cycle.iter().min().expect("a cycle has ports");
            let turn = cycle.iter().position(|port| port == least).expect("it is in there");
            cycle.rotate_left(turn);
            return cycle;
        }
        way.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(edges: &[(u32, u32)]) -> Waits {
        let mut waits = Waits::new();
        for (from, to) in edges {
            waits.entry(*from).or_default().insert(*to);
        }
        waits
    }

    #[test]
    fn a_cycle_is_found_and_a_chain_is_not() {
        let ring = waits(&[(0, 3), (3, 5), (5, 1), (1, 3), (9, 0)]);
        let stuck_ports = stuck(&ring);
        assert_eq!(stuck_ports.keys().copied().collect::<Vec<_>>(), [0, 1, 3, 5, 9]);
        assert_eq!(cycle(&stuck_ports), [1, 3, 5]);
        // The last one's packets wait for a port that is not paused.
        assert!(stuck(&waits(&[(0, 3), (3, 5), (5, 7)])).is_empty());
        // A cycle with a way out drains: some of 3's packets leave through 8.
        assert!(stuck(&waits(&[(0, 3), (3, 0), (3, 8)])).is_empty());
    }
}
