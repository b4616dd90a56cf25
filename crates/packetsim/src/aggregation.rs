//! Aggregation nodes: switches that end queue pairs and begin them (SHARP).
//!
//! Reduction in the network is written as transfers between neighbours of an aggregation tree
//! (`traffic::collective::sharp`): from NICs to their leaf, from switch to switch, and down again.
//! What a sum waits for is in the transfers; what a switch must do besides forwarding is here. Its
//! aggregation unit receives packets of queue pairs that end at the switch, acknowledges them, and
//! sends its own messages by putting packets into the queue of the port that they leave through, as
//! fast as that port sends; there they share the wire with what the switch forwards.
//!
//! Source: Graham et al., "Scalable Hierarchical Aggregation Protocol (SHArP): A Hardware
//! Architecture for Efficient Data Reduction", COM-HPC 2016: aggregation nodes joined by reliable
//! connections.
//!
//! # Where this model departs from it
//!
//! * The arithmetic takes no time beyond the switch's own latency.
//! * The unit's memory is apart from the packet buffers: what it sends is charged to no input port.

use fabric::{Fabric, LinkId, NodeId, NodeKind};
use traffic::{OpId, OpKind, Transfers};
use units::{Id, Span};

use crate::ids::{Maybe, SwitchId};
use crate::packet::{DATA, PATH_END, Packet, ROAMING, Waiting, joined};
use crate::simulation::Simulation;

/// Whether a node is a switch of the scale-out network.
fn is_switch(fabric: &Fabric, node: NodeId) -> bool {
    fabric.nodes()[node].kind == NodeKind::Switch
}

/// The switches that begin or end a connection, in order.
pub(crate) fn units(fabric: &Fabric, transfers: &Transfers) -> Vec<NodeId> {
    let ends = transfers.connections().iter().flat_map(|pair| [pair.from, pair.to]);
    let mut switches: Vec<NodeId> = ends.filter(|node| is_switch(fabric, *node)).collect();
    switches.sort_unstable();
    switches.dedup();
    switches
}

impl Simulation<'_> {
    /// Lets the aggregation units at switches take part: their ports get a list of queue pairs,
    /// and each packet that they receive is an event of its own.
    pub(crate) fn set_up_aggregation(&mut self) {
        for node in units(self.input.fabric, self.input.transfers) {
            for &link in self.input.fabric.ports(node) {
                let sender = self.ends.senders.push(crate::nic::Sender::idle());
                self.ends.sender_of_port[link] = Maybe::some(sender);
            }
            if let Some(number) = self.input.fabric.switch_ordinal(node) {
                self.net.switches[SwitchId::from_index(number)].event_reasons += 1;
            }
            self.input.aggregates = true;
        }
    }

    /// Whether a port belongs to a switch, and so to its aggregation unit if it sends by itself.
    #[inline]
    pub(crate) fn is_switch_port(&self, link: LinkId) -> bool {
        self.net.ports[link].switch.is_some()
    }

    /// Lets an aggregation unit put what it has into the queue of a port.
    pub(crate) fn try_transmit_unit(&mut self, link: LinkId) {
        self.apply_departures(link);
        let sender = self.ends.sender_of_port[link].known();
        while let Some(place) = self.ends.senders[sender].next(self.time.now) {
            self.send_packet(sender, place, link);
        }
        let due = self.ends.senders[sender].first_due().max(self.time.now);
        self.wake_sender_at(sender, link, due);
    }

    /// Puts a packet that begins its way here onto the wire of a NIC, or into the queue of a
    /// switch.
    #[inline]
    pub(crate) fn send_from_node(&mut self, link: LinkId, packet: Packet) {
        let class = self.class_of(&packet).max(DATA);
        if !self.is_switch_port(link) || (self.is_idle(link, class) && self.has_credit(link, class))
        {
            self.put_on_wire(link, self.time.now, packet);
        } else {
            let packet = Packet { at: joined(self.time.now), ..packet };
            self.enqueue(link, class, Waiting { packet, from: Maybe::NONE });
        }
    }

    /// Whether a packet ends its way at the switch that it has reached.
    #[inline]
    pub(crate) fn ends_here(&self, packet: &Packet) -> bool {
        self.input.aggregates
            && packet.flags & ROAMING == 0
            && self.net.paths[packet.route as usize] & PATH_END != 0
    }

    /// What the software and the card take before a message is on the wire; switches have neither.
    pub(crate) fn send_latency(&self, op: OpId) -> u64 {
        self.latency_at(op, |connection| connection.from, self.input.settings.nic.send_latency)
    }

    /// What they take after it has arrived.
    pub(crate) fn receive_latency(&self, op: OpId) -> u64 {
        self.latency_at(op, |connection| connection.to, self.input.settings.nic.receive_latency)
    }

    fn latency_at(&self, op: OpId, end: fn(&traffic::Connection) -> NodeId, latency: Span) -> u64 {
        if self.input.aggregates
            && let OpKind::Send { connection, .. } = self.input.transfers.ops()[op].kind
            && is_switch(self.input.fabric, end(&self.input.transfers.connections()[connection]))
        {
            return 0;
        }
        latency.as_ps()
    }
}
