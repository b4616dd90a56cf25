//! Prefetching: memory that is read before it is needed.
//!
//! A run on thousands of hosts has more state than the caches hold: each switch or NIC finds its
//! own evicted when its event is due. Which records it will read is known beforehand. So they are
//! read in rounds, all of one kind at once, and their cache misses overlap. No result depends on
//! what is read, and small runs, whose state stays in the caches, skip it.

use std::hint::black_box;

use crate::buffer::Switch;
use crate::calendar::Event;
use crate::ids::{PairId, Raw, SwitchId};
use crate::packet::{DATA, PATH_END, Packet};
use crate::port::Port;
use crate::ring::Ring;
use crate::simulation::Simulation;
use fabric::LinkId;
use units::Id;

/// Events whose records are read together.
const GROUP: usize = 16;

/// With fewer packets in a batch, the outputs of a switch are not read ahead.
const FEW: usize = 32;

impl Simulation<'_> {
    /// Reads the records that the next events of NICs need first.
    #[inline]
    pub(crate) fn read_for_nics(&mut self) {
        if !self.input.is_large {
            return;
        }
        let entries = self.time.calendar.fresh(GROUP);
        if entries.is_empty() {
            return;
        }
        // The link that leads to the NIC, and the one that leaves it.
        let mut cables = [[LinkId::from_index(0); 2]; GROUP];
        let mut count = 0;
        let mut sum = 0;
        for entry in entries {
            cables[count] = match entry.event() {
                Event::PacketArrived(link) => [link; 2],
                Event::StationAhead(station) => self.time.stations.cable(station),
                _ => continue,
            };
            count += 1;
        }
        let cables = &cables[..count];
        for entry in entries {
            if let Event::StationAhead(station) = entry.event() {
                sum ^= self.time.stations.soonest(station);
            }
        }
        for [into, out] in cables {
            let port = &self.net.ports[*out];
            sum ^= self.net.ports[*into].free_at ^ port.free_at ^ u64::from(port.queued);
        }
        let mut routes = [[0_u32; 3]; GROUP];
        for ([into, out], routes) in cables.iter().zip(&mut routes) {
            let wire = self.net.ports[*into].wire;
            for (route, behind) in routes.iter_mut().zip([0, 3, 6]) {
                let place = wire.place(wire.len().saturating_sub(1).min(behind));
                *route = self.net.wires.get(place).map_or(0, |packet| packet.route);
            }
            let Port { wire, classes, .. } = &self.net.ports[*out];
            sum ^= self.next_on(*wire);
            let first = self.net.queued.get(classes[DATA].queue.place(0));
            sum ^= first.map_or(0, |first| u64::from(first.from.raw()));
        }
        for route in routes[..count].as_flattened() {
            let end = self.net.paths.get(*route as usize).copied().unwrap_or(0);
            let pair = PairId::of(end & !PATH_END);
            if let Some(pair) = self.ends.pairs.get(pair) {
                sum ^= pair.next_send ^ pair.acked_bytes ^ pair.line_bps;
            }
            sum ^= self.ends.inboxes.get(pair).map_or(0, |inbox| u64::from(inbox.expected));
        }
        black_box(sum);
    }

    /// Reads the packets on the wires to a switch, and their routes.
    pub(crate) fn read_inputs(&self, switch: SwitchId) {
        if !self.input.is_large {
            return;
        }
        let Switch { inputs, .. } = &self.net.switches[switch];
        let mut sum = 0;
        for link in inputs {
            sum ^= self.net.ports[*link].free_at;
        }
        for link in inputs {
            let wire = self.net.ports[*link].wire;
            // Three packets share a line of the cache.
            for behind in (0..wire.len().min(24)).step_by(3) {
                let route = self.net.wires.at(wire.place(behind)).route as usize;
                sum ^= u64::from(self.net.paths.get(route).copied().unwrap_or(0));
            }
        }
        black_box(sum);
    }

    /// Reads the outputs of a batch of so many packets.
    pub(crate) fn read_outputs(
        &self,
        outputs: impl Iterator<Item = LinkId> + Clone,
        packets: usize,
    ) {
        if !self.input.is_large || packets < FEW {
            return;
        }
        let mut sum = 0;
        for link in outputs.clone() {
            let port = &self.net.ports[link];
            sum ^= port.free_at ^ u64::from(port.queued);
        }
        for link in outputs {
            let Port { wire, classes, .. } = &self.net.ports[link];
            sum ^= self.next_on(*wire);
            let queue = classes[DATA].queue;
            for behind in (0..queue.len().min(14)).step_by(2) {
                sum ^= u64::from(self.net.queued.at(queue.place(behind)).from.raw());
            }
        }
        black_box(sum);
    }

    /// Reads the place where the next packet of a wire will be written.
    #[inline]
    fn next_on(&self, wire: Ring) -> u64 {
        self.net.wires.get(wire.place(wire.len())).map_or(0, |old: &Packet| u64::from(old.at))
    }
}
