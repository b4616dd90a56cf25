//! Several ports: one queue pair over all ports of its NIC.
//!
//! Where a sender spreads packets over paths, as Ultra Ethernet and multi-path reliable connections
//! do, its paths begin at all ports of its NIC, each of which may lead into a plane of its own. The
//! ports of a NIC share one list of queue pairs, and whichever port is free takes the next packet;
//! so the fuller port sends less, and no port waits while another has a queue. Each queue pair
//! has all its entropy values in every plane, and the answer to a packet comes back on the path of
//! the same number, in the same plane.
//!
//! A port through which a receiver cannot be reached is left out as soon as the routes follow
//! (`routing.detection`); until then what it sends is lost, and the other ports send it again.
//! NICs that go back after a loss keep a queue pair on one port, since packets of several would
//! overtake each other.
//!
//! Source: Ultra Ethernet Specification 1.0 (entropy for every packet, selective acknowledgement).
//!
//! # Where this model departs from reality
//!
//! * A NIC hears of its own dead port when switches do, not by the loss of its light.

use fabric::routing::Grain;
use fabric::{Fabric, LinkId, NodeId, NodeKind};
use units::{IdVec, Rate};

use crate::entropy::Way;
use crate::ids::{Maybe, PairId, Raw, SenderId};
use crate::nic::Sender;
use crate::packet::{Class, PATH_END};
use crate::paths::Network;
use crate::settings::Settings;
use crate::simulation::Simulation;

const NEVER: u64 = u64::MAX;

/// Whether a policy spreads the packets of a queue pair over paths.
pub(crate) fn spreads(network: &Network) -> bool {
    network.routing.grain() == Grain::Packet || 1 < network.routing.entropies()
}

/// The ports over which the queue pairs of a run spread.
#[derive(Debug, Default)]
pub(crate) struct Planes {
    /// As many as the NIC with most has; 1 where each queue pair stays on one.
    pub count: u16,
    /// The number of each link among the ports of its NIC.
    number: IdVec<LinkId, u8>,
    /// Bit `n` is port `n`: those through which each queue pair reaches its receiver.
    usable: IdVec<PairId, u32>,
    /// Which port of each NIC begins.
    turn: IdVec<SenderId, u8>,
}

impl Planes {
    /// For the queue pairs of a network.
    pub(crate) fn new(fabric: &Fabric, network: &Network, stays: bool) -> Self {
        let ends = || network.keys.iter().flat_map(|(there, _)| [there.from, there.to]);
        let most = ends().map(|nic| fabric.ports(nic).len()).max().unwrap_or(1);
        // Switches that reduce end queue pairs too.
        let between_nics = ends().all(|end| is_nic(fabric, end));
        if stays || !spreads(network) || !between_nics || most < 2 {
            return Self { count: 1, ..Self::default() };
        }
        let mut number = IdVec::from(vec![0; fabric.links().len()]);
        for (id, link) in fabric.links().enumerate() {
            let place = fabric.ports(link.from).iter().position(|port| *port == id);
            number[id] = place.filter(|_| is_nic(fabric, link.from)).unwrap_or(0) as u8;
        }
        Self { count: most as u16, number, ..Self::default() }
    }

    /// Whether queue pairs use several ports.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        1 < self.count
    }

    /// The number of a NIC's port.
    #[inline]
    pub(crate) fn of_port(&self, port: LinkId) -> u16 {
        if self.are_several() { u16::from(self.number[port]) } else { 0 }
    }

    fn reaches(&self, pair: PairId, port: LinkId) -> bool {
        self.usable[pair] >> self.number[port] & 1 == 1
    }

    /// One list of queue pairs for each port of a NIC, or for all of them.
    pub(crate) fn senders(
        &mut self,
        fabric: &Fabric,
    ) -> (IdVec<SenderId, Sender>, IdVec<LinkId, Maybe<SenderId>>) {
        let mut senders = IdVec::default();
        let mut of_port = IdVec::from(vec![Maybe::NONE; fabric.links().len()]);
        for (id, link) in fabric.links().enumerate() {
            if !is_nic(fabric, link.from) {
                continue;
            }
            let first = of_port[fabric.ports(link.from)[0]];
            of_port[id] = match first {
                shared if self.are_several() && shared.is_some() => shared,
                _ => Maybe::some(senders.push(Sender::idle())),
            };
        }
        if self.are_several() {
            self.turn = vec![0; senders.len()].into();
        }
        (senders, of_port)
    }

    /// What a NIC can send at once: over all its ports, or over this one.
    pub(crate) fn line(&self, fabric: &Fabric, port: LinkId) -> Rate {
        let nic = fabric.links()[port].from;
        if !self.are_several() || !is_nic(fabric, nic) {
            return fabric.class(port).rate;
        }
        let rates = fabric.ports(nic).iter().map(|port| fabric.class(*port).rate.as_bps());
        Rate::from_bps(rates.sum())
    }
}

fn is_nic(fabric: &Fabric, node: NodeId) -> bool {
    matches!(fabric.nodes()[node].kind, NodeKind::Nic | NodeKind::FrontEndNic)
}

/// What keeps queue pairs on one port of a NIC with several, if something does.
pub(crate) fn stays(settings: &Settings, explicit: bool) -> Option<&'static str> {
    use fabric::hardware::Reorder;
    if settings.nic.reorder == Reorder::None {
        return Some("its NIC goes back after a packet out of order (`network.nic.reorder`)");
    }
    explicit.then_some("the clock is that of HPCC's ns-3 (`network.packet.clock`)")
}

impl Simulation<'_> {
    /// Lays the paths of a queue pair in all planes, for all its entropy values; returns where they
    /// begin. `path` is one that there is: where a port leads nowhere, or not as directly, it takes
    /// its place.
    pub(crate) fn lay_planes_of_pair(&mut self, pair: PairId, path: &[LinkId], way: Way) -> u32 {
        let place = u32::try_from(self.net.paths.len()).expect("paths have places of 32 bits");
        let fabric = self.input.fabric;
        let (there, back) = self.net.network.keys[pair];
        let key = match way {
            Way::There => there,
            Way::Back => back,
        };
        let mut usable = 0_u32;
        for number in 0..usize::from(self.ends.planes.count) {
            let port = fabric.ports(key.from).get(number).copied();
            let mut first = None;
            for value in 0..self.ends.entropy.values {
                let network = &mut self.net.network;
                let walked =
                    port.and_then(|port| network.walk_from(fabric, &key.with_entropy(value), port));
                let walked = walked.filter(|walked| walked.len() == path.len()).or(first.clone());
                let laid = walked.as_deref().unwrap_or(path);
                self.net.paths.extend(laid.iter().map(|link| link.raw()));
                self.net.paths.push(PATH_END | pair.raw());
                first = walked;
            }
            usable |= u32::from(first.is_some()) << number;
        }
        self.ends.entropy.note(pair, way, path.len(), key.src_port);
        if matches!(way, Way::There) {
            // What leads nowhere at all is sent all the same, and lost until the routes change.
            let some = path.first().map_or(0, |port| self.ends.planes.number[*port]);
            let usable = if usable == 0 { 1 << some } else { usable };
            let known = &mut self.ends.planes.usable;
            match known.get_mut(pair) {
                Some(known) => *known = usable,
                None => {
                    known.push(usable);
                }
            }
        }
        place
    }

    /// Lets all ports of a NIC send that can, beginning with another one each time.
    pub(crate) fn try_transmit_in_planes(&mut self, link: LinkId) {
        let fabric = self.input.fabric;
        let ports = fabric.ports(fabric.links()[link].from);
        let sender = self.ends.sender_of_port[link].known();
        let begin = usize::from(self.ends.planes.turn[sender]);
        for ahead in 0..ports.len() {
            let at = (begin + ahead) % ports.len();
            let port = ports[at];
            self.apply_departures(port);
            let free = self.net.ports[port].is_free(self.time.now, self.time.ticket);
            if free && let Some(place) = self.next_in_plane(sender, port) {
                self.send_packet(sender, place, port);
                self.ends.planes.turn[sender] = ((at + 1) % ports.len()) as u8;
            }
        }
        let at = ports.iter().map(|port| self.due_in_plane(sender, *port)).min();
        self.wake_sender_at(sender, link, at.unwrap_or(NEVER));
    }

    /// Whether a queue pair may use a port: it leads to the receiver, and its lane is not paused.
    fn may_use(&self, pair: PairId, port: LinkId) -> bool {
        let class = Class::of_lane(usize::from(self.ends.pairs[pair].lane));
        self.ends.planes.reaches(pair, port) && !class.is_in(self.net.ports[port].paused)
    }

    /// The place of the queue pair whose turn it is at a port.
    fn next_in_plane(&self, sender: SenderId, port: LinkId) -> Option<usize> {
        let state = &self.ends.senders[sender];
        let (count, now) = (state.pairs.len(), self.time.now);
        let mut places = (0..count).map(|ahead| (state.turn + ahead) % count);
        places.find(|place| state.due[*place] <= now && self.may_use(state.pairs[*place], port))
    }

    /// When a port may send next: it must be free, and a queue pair that may use it be due.
    fn due_in_plane(&self, sender: SenderId, port: LinkId) -> u64 {
        let state = &self.ends.senders[sender];
        let pairs = state.pairs.iter().zip(&state.due);
        let mut first = NEVER;
        for (pair, due) in pairs {
            if *due < first && self.may_use(*pair, port) {
                first = *due;
            }
        }
        if first == NEVER {
            NEVER
        } else {
            first.max(self.net.ports[port].free_at).max(self.time.now)
        }
    }
}
