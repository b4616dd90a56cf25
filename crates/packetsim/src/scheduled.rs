//! Scheduled Ethernet: virtual output queues, credits from the egress, cells over all links.
//!
//! A packet that comes from a NIC waits at its leaf in the virtual output queue of the port that it
//! will leave by, wherever in the fabric that is. The queue asks the port's scheduler for as many
//! bytes as it holds; the scheduler hands out credits at the port's rate, control before data and
//! the queues in turn, and none while too much of what it has granted has not been sent on. With
//! credit a packet is cut to cells, which take the links of the fabric in turn. The leaf of
//! the port puts the cells together, hands on the packets of a queue in their order, and sends
//! them. So no port is ever sent more than it can send, nothing is lost inside the fabric, no flow
//! collides with another on a link, and NICs see plain Ethernet: order, and pauses where the memory
//! of their own leaf fills.
//!
//! Sources: Meta, "Disaggregated scheduled fabric: scaling Meta's AI journey" (engineering.fb.com,
//! 20 October 2025); Arista, "7800R3 platform architecture" (white paper); Extreme Networks, SLX-OS
//! QoS guide ("egress scheduling": credit request and grant, a queue at each ingress for each
//! egress port and priority). Broadcom publishes nothing of Jericho's and Ramon's cells.
//!
//! # Where this model departs from them
//!
//! * Requests and credits are exact to the byte, are never lost, and take the time of the cables
//!   and `latency`, but none of the links. A real queue tells how full it is in steps.
//! * The cells of a packet that take the same link travel together, as one piece.
//! * Lanes of data take turns for credit; their weights act where a packet leaves.
//! * A leaf's memory is its own packets': what has been cut to cells is charged to nobody.
//! * A packet that has lost a cell is dropped when its other cells are there: nothing expires.

use std::collections::{BTreeMap, VecDeque};

use fabric::transport::ScheduledConfig;
use fabric::{LinkId, NodeId};
use units::{Bytes, Id, IdVec, Span};

use crate::buffer::{Admission, MarkWhen};
use crate::ids::{Maybe, PairId, Raw, SwitchId, VoqId};
use crate::limits::{PACKET_BYTES, Refusal};
use crate::packet::{
    Class, DATA, LANE_SHIFT, MARKED, PATH_END, Packet, Purpose, ROAMING, Sizes, Waiting, joined,
    waited,
};
use crate::ring::{Ring, Slab};
use crate::simulation::{RareEvent, Simulation};

/// What besides its rate a port may owe: credits that are on their way there and back, when it has
/// just begun.
const SPARE: u64 = 64 << 10;

/// What waits at one leaf for one port, in one class.
#[derive(Debug)]
struct Voq {
    leaf: NodeId,
    switch: SwitchId,
    port: LinkId,
    class: Class,
    queue: Ring,
    /// Bytes that wait, as a memory counts them.
    queued: u64,
    /// Bytes on the wire that the port knows of and has not granted.
    asked: u64,
    /// Bytes on the wire that were granted and not used; less than none if a packet took more than
    /// there was.
    granted: i64,
    /// What a request, or a credit, takes over the cables.
    way: u64,
    /// Packets that cross the fabric, in order.
    crossing: VecDeque<u32>,
}

/// A port whose scheduler grants credit.
#[derive(Debug, Default)]
struct Egress {
    /// Queues that have asked, in turn: those of control, and those of data.
    asking: [VecDeque<VoqId>; 2],
    /// All that it has granted will have been sent by then, at the port's rate.
    free_at: u64,
    /// An event will grant the next.
    pending: bool,
    /// Granted for data that has not reached the port, less what has on credit to come.
    under_way: i64,
    /// What may be.
    window: u64,
    /// Bytes that wait for it in queues anywhere.
    held: u64,
}

/// A packet that crosses the fabric as cells.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    packet: Packet,
    voq: VoqId,
    /// Pieces of it that have not arrived.
    left: u32,
    /// Where one was lost.
    lost: Maybe<LinkId>,
}

/// The schedulers of a fabric; empty where it has none.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    pub is_on: bool,
    cell: u32,
    header: u32,
    credit: u64,
    latency: u64,
    window: Option<u64>,
    voqs: IdVec<VoqId, Voq>,
    voq_of: BTreeMap<(NodeId, LinkId, Class), VoqId>,
    ports: BTreeMap<LinkId, Egress>,
    crossings: Vec<Crossing>,
    free: Vec<u32>,
    /// Which link comes next from a switch to a leaf.
    turns: BTreeMap<(NodeId, NodeId), usize>,
    links: Vec<LinkId>,
}

impl Schedule {
    /// As the settings say.
    pub(crate) fn new(config: &ScheduledConfig, sizes: &Sizes) -> Result<Self, Refusal> {
        if !config.enabled {
            return Ok(Self::default());
        }
        let (cell, header) = (config.cell.get() as u32, config.cell_header.get() as u32);
        // Where there is one link, all cells of a packet are one piece.
        let largest = sizes.largest();
        PACKET_BYTES.check(u64::from(largest + largest.div_ceil(cell) * header))?;
        Ok(Self {
            is_on: true,
            cell,
            header,
            credit: config.credit.get(),
            latency: config.latency.as_ps(),
            window: config.window.map(Bytes::get),
            ..Self::default()
        })
    }

    /// The pieces of a packet of so many bytes over so many links: the bytes of each.
    fn pieces(&self, size: u32, links: usize) -> impl Iterator<Item = u16> + use<> {
        let (cell, header, links) = (self.cell, self.header, links as u32);
        let cells = size.div_ceil(cell);
        let last = (cells - 1) % links;
        (0..cells.min(links)).map(move |at| {
            let mine = cells / links + u32::from(at < cells % links);
            let short = if at == last { cells * cell - size } else { 0 };
            (mine * (cell + header) - short) as u16
        })
    }

    /// Packets that wait for credit, or cross as cells.
    pub(crate) fn packets<'s>(
        &'s self,
        queued: &'s Slab<Waiting>,
    ) -> impl Iterator<Item = &'s Packet> {
        let waiting = self.voqs.iter().flat_map(|voq| queued.iter(voq.queue));
        let crossing = self.voqs.iter().flat_map(|voq| voq.crossing.iter());
        let crossing = crossing.map(|number| &self.crossings[*number as usize].packet);
        waiting.map(|waiting| &waiting.packet).chain(crossing)
    }

    /// By which link each packet of data came that waits for credit, its class, and the port that
    /// it waits for.
    pub(crate) fn waiting<'s>(
        &'s self,
        queued: &'s Slab<Waiting>,
    ) -> impl Iterator<Item = (LinkId, Class, LinkId)> {
        let data = self.voqs.iter().filter(|voq| DATA <= voq.class);
        data.flat_map(|voq| {
            let comers = queued.iter(voq.queue).filter_map(|waiting| waiting.from.get());
            comers.map(|from| (from, voq.class, voq.port))
        })
    }

    /// The packet that a cell is part of.
    pub(crate) fn packet_of(&self, cell: &Packet) -> &Packet {
        &self.crossings[cell.route as usize].packet
    }

    fn begin(&mut self, crossing: Crossing) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.crossings[number as usize] = crossing;
                number
            }
            None => {
                self.crossings.push(crossing);
                self.crossings.len() as u32 - 1
            }
        }
    }
}

impl Simulation<'_> {
    /// What a switch of a scheduled fabric does with a packet that came over a link; says no to
    /// those that it sends on as any switch does.
    pub(crate) fn forward_scheduled(&mut self, link: LinkId, packet: Packet) -> bool {
        if packet.purpose == Purpose::Cell {
            self.forward_cell(link, packet);
            return true;
        }
        // From another switch comes what an aggregation unit sent.
        self.net.ports[link].switch.is_none() && self.join_voq(link, packet)
    }

    /// The port of the fabric that a packet will leave by, from the node that it has reached; none
    /// if there is no way.
    fn port_of_packet(&mut self, mut at: NodeId, packet: &mut Packet) -> Option<LinkId> {
        if packet.flags & ROAMING == 0 {
            let ahead = self.net.paths[packet.route as usize..].iter();
            let hops = ahead.take_while(|at| **at & PATH_END == 0).count();
            packet.route += hops as u32;
            return Some(LinkId::of(self.net.paths[packet.route as usize - 1]));
        }
        loop {
            let link = self.choose_at(at, PairId::of(packet.route), 0)?;
            if self.net.ports[link].into.is_none() {
                return Some(link);
            }
            at = self.input.fabric.links()[link].to;
        }
    }

    /// A packet joins the virtual output queue of the port that it will leave by; says no if it
    /// ends its way at a switch.
    fn join_voq(&mut self, link: LinkId, mut packet: Packet) -> bool {
        if self.ends_here(&packet) {
            return false;
        }
        let leaf = self.input.fabric.links()[link].to;
        let class = self.class_of(&packet);
        let Some(port) = self.port_of_packet(leaf, &mut packet) else {
            self.drop_packet(link, &packet);
            return true;
        };
        if self.net.ports[port].into.is_some() {
            return false;
        }
        let number = self.voq(leaf, link, port, class);
        let size = u32::from(packet.size);
        let switch = self.net.ports[link].into.known();
        let queued = self.net.schedule.voqs[number].queued;
        let admission = if class.is_in(self.input.rules.lossless) {
            self.net.switches[switch].admit(&mut self.net.ports[link], class, size)
        } else if queued + u64::from(size) <= self.net.switches[switch].lossy_limit() {
            self.net.switches[switch].charge_lossy(size);
            Admission::Taken
        } else {
            Admission::Dropped
        };
        match admission {
            Admission::Taken => {}
            Admission::TakenAndPause => self.pause_upstream(link, class),
            Admission::Dropped => {
                self.drop_without_room(link, port, &packet, class);
                return true;
            }
        }
        self.mark_in_voq(MarkWhen::Enqueue, queued, (port, class), &mut packet);
        packet.at = joined(self.time.now);
        let schedule = &mut self.net.schedule;
        let voq = &mut schedule.voqs[number];
        voq.queued += u64::from(size);
        self.net.queued.push(&mut voq.queue, Waiting { packet, from: Maybe::some(link) });
        let (at, bytes) = (self.time.now + voq.way, self.wire_bytes(&packet));
        let egress = self.net.schedule.ports.get_mut(&port).expect("its queue knows it");
        egress.held += u64::from(size);
        // What waits for a port is its queue, wherever it lies.
        let all = u32::try_from(egress.held).unwrap_or(u32::MAX);
        let state = &mut self.net.ports[port];
        state.peak = state.peak.max(all.saturating_add(state.queued));
        self.schedule_rare(at, RareEvent::CreditAsked { voq: number, bytes });
        true
    }

    fn wire_bytes(&self, packet: &Packet) -> u64 {
        u64::from(packet.size) + self.input.sizes.gap
    }

    /// Marks a data packet by what waits in its queue.
    fn mark_in_voq(
        &mut self,
        when: MarkWhen,
        queued: u64,
        (port, class): (LinkId, Class),
        packet: &mut Packet,
    ) {
        if self.input.rules.mark_when == when
            && packet.purpose == Purpose::Data
            && packet.flags & MARKED == 0
            && self.net.marker.marks(queued, port, class)
        {
            packet.flags |= MARKED;
            self.count_mark(port, packet);
        }
    }

    /// The queue at a leaf for a port and a class.
    fn voq(&mut self, leaf: NodeId, from: LinkId, port: LinkId, class: Class) -> VoqId {
        if let Some(known) = self.net.schedule.voq_of.get(&(leaf, port, class)) {
            return *known;
        }
        let (way, through) = self.way_through(leaf, port);
        let rate = self.net.ports[port].rate;
        let schedule = &mut self.net.schedule;
        let usual = rate.bytes_in(Span::from_ps(2 * through)).get() + SPARE;
        let window = schedule.window.unwrap_or(usual);
        let egress = schedule.ports.entry(port).or_default();
        egress.window = egress.window.max(window);
        let number = schedule.voqs.push(Voq {
            leaf,
            switch: self.net.ports[from].into.known(),
            port,
            class,
            queue: Ring::default(),
            queued: 0,
            asked: 0,
            granted: 0,
            way,
            crossing: VecDeque::new(),
        });
        schedule.voq_of.insert((leaf, port, class), number);
        number
    }

    /// What the cables between a leaf and that of a port take, and what a packet takes there with
    /// the latencies of switches.
    fn way_through(&mut self, leaf: NodeId, port: LinkId) -> (u64, u64) {
        let (mut at, mut cables, mut all) = (leaf, 0, 0);
        while let Some(link) = self.list_cell_links(at, port).first().copied() {
            let passed = &self.net.ports[link];
            cables += passed.delay - passed.latency;
            all += passed.delay;
            at = self.input.fabric.links()[link].to;
        }
        (cables, all)
    }

    /// The links that lead from a switch to the leaf of a port; none at that leaf.
    fn list_cell_links(&mut self, at: NodeId, port: LinkId) -> &[LinkId] {
        let fabric = self.input.fabric;
        let link = fabric.links()[port];
        let mut links = std::mem::take(&mut self.net.schedule.links);
        links.clear();
        if at != link.from {
            self.net.network.lookup_next_hops(fabric, at, link.to, &mut links);
            // A NIC with ports at several leaves: the packet leaves by the port that granted.
            if links.iter().any(|next| fabric.links()[*next].to == link.from) {
                links.retain(|next| fabric.links()[*next].to == link.from);
            }
            links.retain(|next| fabric.links()[*next].to != link.to);
        }
        self.net.schedule.links = links;
        &self.net.schedule.links
    }

    /// Handles [`RareEvent::CreditAsked`]: a request reaches the scheduler of a port.
    pub(crate) fn credit_asked(&mut self, number: VoqId, bytes: u64) {
        let schedule = &mut self.net.schedule;
        let voq = &mut schedule.voqs[number];
        if voq.asked == 0 {
            let egress = schedule.ports.get_mut(&voq.port).expect("its queue knows it");
            egress.asking[usize::from(DATA <= voq.class)].push_back(number);
        }
        voq.asked += bytes;
        let port = voq.port;
        self.grant_credit(port);
    }

    /// Handles [`RareEvent::CreditDue`]: a port may grant again.
    pub(crate) fn credit_is_due(&mut self, port: LinkId) {
        if let Some(egress) = self.net.schedule.ports.get_mut(&port) {
            egress.pending = false;
        }
        self.grant_credit(port);
    }

    /// Grants the next credit of a port if it may; else schedules the next attempt.
    pub(crate) fn grant_credit(&mut self, port: LinkId) {
        let now = self.time.now;
        if !self.net.schedule.ports.contains_key(&port) {
            return;
        }
        self.apply_departures(port);
        let state = &self.net.ports[port];
        let (queued, busy, free_at) = (state.queued, state.sendable() != 0, state.free_at);
        let (latency, most) = (self.net.schedule.latency, self.net.schedule.credit);
        let egress = self.net.schedule.ports.get_mut(&port).expect("looked for above");
        let [control, data] = &mut egress.asking;
        let is_full = egress.window as i64 <= egress.under_way + i64::from(queued);
        let is_data = control.is_empty();
        if egress.pending || (is_data && data.is_empty()) {
            return;
        }
        if now < egress.free_at || (is_data && is_full) {
            // A full port tries again when it has sent a packet. If it may not send, or if all is
            // still in flight, the event that changes that tries again.
            let at = if now < egress.free_at { egress.free_at } else { free_at.max(now + 1) };
            if now < egress.free_at || busy {
                egress.pending = true;
                self.schedule_rare(at, RareEvent::CreditDue { port });
            }
            return;
        }
        let asking = &mut egress.asking[usize::from(is_data)];
        let number = asking.pop_front().expect("somebody asks");
        let voq = &mut self.net.schedule.voqs[number];
        let bytes = voq.asked.min(most);
        voq.asked -= bytes;
        if 0 < voq.asked {
            asking.push_back(number);
        }
        egress.under_way += if is_data { bytes as i64 } else { 0 };
        egress.free_at = now + self.net.ports[port].time_to_send(bytes, self.input.clock);
        let more = egress.asking.iter().any(|asking| !asking.is_empty());
        let again = egress.free_at;
        egress.pending = more;
        let at = now + latency + voq.way;
        self.schedule_rare(at, RareEvent::CreditArrived { voq: number, bytes });
        if more {
            self.schedule_rare(again, RareEvent::CreditDue { port });
        }
    }

    /// Handles [`RareEvent::CreditArrived`]: a queue may send so much more.
    pub(crate) fn credit_arrived(&mut self, number: VoqId, bytes: u64) {
        self.net.schedule.voqs[number].granted += bytes as i64;
        loop {
            let voq = &mut self.net.schedule.voqs[number];
            if voq.queue.is_empty() {
                break;
            }
            // Any credit lets a packet go, whole; what it lacks is made good by the next.
            if voq.granted <= 0 {
                return;
            }
            let waiting = self.net.queued.pop(&mut voq.queue);
            voq.granted -= i64::from(waiting.packet.size) + self.input.sizes.gap as i64;
            self.leave_voq(number, waiting);
        }
        // Credit for what has been thrown away meanwhile goes back.
        let voq = &mut self.net.schedule.voqs[number];
        let (port, is_data) = (voq.port, DATA <= voq.class);
        let unused = voq.granted.max(0);
        voq.granted -= unused;
        if 0 < unused && is_data {
            self.give_back(port, unused);
        }
    }

    /// What a port had granted is no longer under way to it.
    fn give_back(&mut self, port: LinkId, bytes: i64) {
        let egress = self.net.schedule.ports.get_mut(&port).expect("its queue knows it");
        egress.under_way -= bytes;
        self.grant_credit(port);
    }

    /// Counts a packet out of its queue.
    fn count_out(&mut self, number: VoqId, size: u64) -> u64 {
        let schedule = &mut self.net.schedule;
        let voq = &mut schedule.voqs[number];
        voq.queued -= size;
        let egress = schedule.ports.get_mut(&voq.port).expect("its queue knows it");
        egress.held -= size;
        voq.queued
    }

    /// A packet has its credit: it is cut to cells, which take the links of the fabric in turn.
    fn leave_voq(&mut self, number: VoqId, waiting: Waiting) {
        let Voq { leaf, switch, port, class, .. } = self.net.schedule.voqs[number];
        let mut packet = waiting.packet;
        let left = self.count_out(number, u64::from(packet.size));
        if self.accounts.recorder.is_some() {
            self.record_wait(port, packet.purpose, waited(packet.at, self.time.now));
        }
        self.mark_in_voq(MarkWhen::Dequeue, left, (port, class), &mut packet);
        self.release_memory(switch, &waiting, class);
        let crossing = Crossing { packet, voq: number, left: 0, lost: Maybe::NONE };
        let place = self.net.schedule.begin(crossing);
        self.net.schedule.voqs[number].crossing.push_back(place);
        let to = self.input.fabric.links()[port].from;
        let links = self.list_cell_links(leaf, port).to_vec();
        if leaf != to && links.is_empty() {
            self.net.schedule.crossings[place as usize].lost = Maybe::some(port);
        }
        if links.is_empty() {
            self.hand_on(number);
            return;
        }
        let turn = *self.net.schedule.turns.entry((leaf, to)).or_insert(leaf.index());
        let size = u32::from(packet.size);
        let pieces: Vec<u16> = self.net.schedule.pieces(size, links.len()).collect();
        let cells = size.div_ceil(self.net.schedule.cell) as usize;
        self.net.schedule.turns.insert((leaf, to), (turn + cells) % links.len());
        self.net.schedule.crossings[place as usize].left = pieces.len() as u32;
        let lane = packet.lane() as u8;
        for (at, size) in pieces.into_iter().enumerate() {
            let (purpose, flags) = (Purpose::Cell, lane << LANE_SHIFT);
            let at = links[(turn + at) % links.len()];
            let cell = Packet { route: place, size, purpose, flags, ..Packet::default() };
            self.queue_cell(at, cell);
        }
    }

    fn queue_cell(&mut self, link: LinkId, cell: Packet) {
        self.apply_departures(link);
        let packet = Packet { at: joined(self.time.now), ..cell };
        self.enqueue(link, self.class_of(&packet), Waiting { packet, from: Maybe::NONE });
    }

    /// A piece of a packet reaches a switch.
    fn forward_cell(&mut self, link: LinkId, cell: Packet) {
        let at = self.input.fabric.links()[link].to;
        let crossing = &self.net.schedule.crossings[cell.route as usize];
        let port = self.net.schedule.voqs[crossing.voq].port;
        let to = self.input.fabric.links()[port].from;
        if at == to {
            self.count_cell(&cell, Maybe::NONE);
            return;
        }
        let links = self.list_cell_links(at, port);
        let Some(count) = Some(links.len()).filter(|count| 0 < *count) else {
            self.count_cell(&cell, Maybe::some(link));
            return;
        };
        let turn = self.net.schedule.turns.entry((at, to)).or_insert(at.index());
        let next = self.net.schedule.links[*turn % count];
        *turn = (*turn + 1) % count;
        self.queue_cell(next, cell);
    }

    /// A piece has arrived, or was lost on a link.
    pub(crate) fn count_cell(&mut self, cell: &Packet, lost: Maybe<LinkId>) {
        let crossing = &mut self.net.schedule.crossings[cell.route as usize];
        crossing.left -= 1;
        crossing.lost = if lost.is_some() { lost } else { crossing.lost };
        let number = crossing.voq;
        self.hand_on(number);
    }

    /// Hands on the packets of a queue that are whole, in their order.
    fn hand_on(&mut self, number: VoqId) {
        let Voq { port, class, .. } = self.net.schedule.voqs[number];
        loop {
            let schedule = &mut self.net.schedule;
            let crossing = &mut schedule.voqs[number].crossing;
            let whole = |place: &&mut u32| schedule.crossings[**place as usize].left == 0;
            let Some(place) = crossing.front_mut().filter(whole).copied() else { return };
            crossing.pop_front();
            schedule.free.push(place);
            let Crossing { packet, lost, .. } = schedule.crossings[place as usize];
            let discards = class.is_in(self.net.ports[port].paused)
                && class.is_in(self.net.pauses[port].discards);
            if let Some(link) = lost.get() {
                self.drop_packet(link, &packet);
            } else if discards {
                self.drop_packet(port, &packet);
            } else {
                self.apply_departures(port);
                let packet = Packet { at: joined(self.time.now), ..packet };
                self.enqueue(port, class, Waiting { packet, from: Maybe::NONE });
            }
            if DATA <= class {
                let bytes = self.wire_bytes(&packet);
                self.give_back(port, bytes as i64);
            }
        }
    }

    /// A leaf forgets what waits in it for credit.
    pub(crate) fn drain_voqs(&mut self, leaf: NodeId) {
        for number in self.net.schedule.voqs.ids() {
            let Voq { leaf: at, switch, port, class, .. } = self.net.schedule.voqs[number];
            while at == leaf && !self.net.schedule.voqs[number].queue.is_empty() {
                let waiting = self.net.queued.pop(&mut self.net.schedule.voqs[number].queue);
                self.count_out(number, u64::from(waiting.packet.size));
                self.release_memory(switch, &waiting, class);
                self.drop_packet(port, &waiting.packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketConfig;

    /// Oracle: by hand. 4,158 bytes are 17 cells, the last of 62; over eight links the first takes
    /// three, and 136 bytes of headers are added in all.
    #[test]
    fn a_packet_is_cut_over_all_links() {
        let sizes = Sizes::new(&PacketConfig::default(), 0, 0).expect("they fit");
        let config = ScheduledConfig { enabled: true, ..ScheduledConfig::default() };
        let schedule = Schedule::new(&config, &sizes).expect("it fits");
        let pieces = |links| schedule.pieces(4_158, links).collect::<Vec<u16>>();
        assert_eq!(pieces(8), [2 * 264 + 70, 528, 528, 528, 528, 528, 528, 528]);
        assert_eq!(pieces(17), [vec![264; 16], vec![70]].concat());
        assert_eq!(pieces(40), pieces(17));
        assert_eq!(pieces(1), [4_158 + 17 * 8]);
        assert_eq!(schedule.pieces(66, 4).collect::<Vec<_>>(), [74]);
    }
}
