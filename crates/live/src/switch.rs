//! Switches and links in user space, as the scenario's fabric has them.
//!
//! One thread plays all of them: a packet that a rank hands over crosses its links one after the
//! other, each with its rate and queue; at every switch the scenario's routing policy chooses, with
//! its hash and seeds. Queues take shared memory and mark above their thresholds. Where the
//! scenario has pauses (`network.pfc`), a switch that a link has filled its share of pauses what
//! sends into that link: another port by a message on the wire, a rank by a frame that it obeys.
//! Without them, or where room still ends, packets are dropped. Two classes: acknowledgements,
//! notifications and packets with DSCP 48 or more pass waiting data. A packet whose time to live
//! ends at a switch is answered, as a router would. On request the switch loses, duplicates and
//! holds back packets where they enter.
//!
//! Departure: a pause lasts until it is ended; there is no watchdog.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabric::graph::NodeKind;
use fabric::hash::FlowKey;
use fabric::routes::Routes;
use fabric::routing::{Load, Routing};
use fabric::{Fabric, LinkId, NodeId};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use packetsim::Settings;
use roce::packet::decode_ip;
use serde::{Deserialize, Serialize};
use units::{Bytes, IdVec, Random};

use crate::frame::{self, switch_address};
use crate::wire::{abstract_address, rank_name};

/// What happens to packets where they enter, as shares of all packets.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Injected {
    /// Lost.
    pub loss: f64,
    /// Held back so long that others overtake them.
    pub reorder: f64,
    /// Sent twice.
    pub duplicate: f64,
}

/// What one link did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkCount {
    /// Payload of packets with data.
    pub payload: u64,
    /// Packets with data.
    pub packets: u64,
    /// Bytes of all packets with their IP headers.
    pub bytes: u64,
    /// The deepest its queue has been, in bytes.
    pub peak: u64,
    /// Packets that found no room.
    pub drops: u64,
    /// Packets that were marked.
    pub marks: u64,
    /// Pauses that were sent against it.
    pub pauses: u64,
}

/// What all switches did.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// By link.
    pub links: IdVec<LinkId, LinkCount>,
    /// By what packets with data show: the paths that they took, and how many.
    pub paths: BTreeMap<FlowKey, BTreeMap<Vec<LinkId>, u64>>,
    /// Packets that were lost, held back and duplicated on request.
    pub injected: [u64; 3],
    /// Packets that were none, or of nobody.
    pub strangers: u64,
}

struct Packet {
    bytes: Vec<u8>,
    key: FlowKey,
    number: u64,
    payload: u64,
    is_data: bool,
    is_control: bool,
    path: Vec<LinkId>,
}

/// What happens at a time.
enum Event {
    /// A packet reaches a node.
    Arrive(NodeId, Packet),
    /// A link has sent its packet.
    Sent(LinkId, Packet),
    /// A pause for what sends into a link begins or ends.
    Pause(LinkId, bool),
}

#[derive(Default)]
struct Queue {
    rate_bps: u64,
    data: VecDeque<Packet>,
    control: VecDeque<Packet>,
    /// Bytes of data that wait, or are being sent.
    bytes: u64,
    is_busy: bool,
    /// Whether the far end has asked for silence.
    is_paused: bool,
    /// Bytes at the far end that came by this link and are still there.
    held: u64,
    /// Whether the far end has sent a pause and not ended it.
    told: bool,
}

impl Queue {
    fn takes(&self, bytes: u64) -> u64 {
        8_000_000_000 * bytes / self.rate_bps.max(1)
    }
}

/// The queues as routing policies look at them.
struct Depths<'a>(&'a IdVec<LinkId, Queue>);

impl Load for Depths<'_> {
    fn queued(&self, link: LinkId) -> Bytes {
        Bytes::new(self.0[link].bytes)
    }
}

/// A rank as switches know it.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its NIC.
    pub nic: NodeId,
    /// Its number.
    pub rank: u32,
    /// The address that the scenario's hash sees.
    pub ip: u32,
}

/// All switches of a fabric, with the sockets of the ranks.
pub struct Switches<'a> {
    fabric: &'a Fabric,
    settings: &'a Settings,
    routes: Routes,
    routing: Box<dyn Routing>,
    socket: UnixDatagram,
    hosts: BTreeMap<IpAddr, Host>,
    /// By NIC: the rank.
    ranks: BTreeMap<NodeId, u32>,
    run: String,
    queues: IdVec<LinkId, Queue>,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
    sent_of: BTreeMap<FlowKey, u64>,
    outbox: VecDeque<(u32, Vec<u8>)>,
    injected: Injected,
    random: Random,
    counted: Counted,
    begin: Instant,
}

/// What a switch's socket and policies are made of.
pub struct Setup<'a> {
    /// The fabric with its scaled rates.
    pub fabric: &'a Fabric,
    /// The scenario's settings.
    pub settings: &'a Settings,
    /// The ranks by address.
    pub hosts: BTreeMap<IpAddr, Host>,
    /// The name of the run.
    pub run: String,
    /// What happens to packets where they enter.
    pub injected: Injected,
}

impl<'a> Switches<'a> {
    /// Opens the socket with this abstract name.
    pub fn open(setup: Setup<'a>, name: &str) -> io::Result<Self> {
        let Setup { fabric, settings, hosts, run, injected } = setup;
        let socket = UnixDatagram::bind_addr(&abstract_address(name)?)?;
        socket.set_nonblocking(true)?;
        let queue = |link| Queue { rate_bps: fabric.class(link).rate.as_bps(), ..Queue::default() };
        Ok(Self {
            routes: Routes::of(fabric),
            routing: settings.routing.build(fabric, settings.seed),
            socket,
            ranks: hosts.values().map(|host| (host.nic, host.rank)).collect(),
            hosts,
            run,
            queues: fabric.links().ids().map(queue).collect(),
            agenda: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            sent_of: BTreeMap::new(),
            outbox: VecDeque::new(),
            injected,
            random: Random::new(settings.seed, "live switch", 0),
            counted: Counted {
                links: fabric.links().ids().map(|_| LinkCount::default()).collect(),
                ..Counted::default()
            },
            begin: Instant::now(),
            fabric,
            settings,
        })
    }

    /// Forwards until told to stop.
    pub fn forward(mut self, stop: &AtomicBool) -> io::Result<Counted> {
        let _ = nix::sys::prctl::set_timerslack(1);
        let mut buffer = vec![0; 65_536];
        while !stop.load(Ordering::Relaxed) {
            self.take_in(&mut buffer)?;
            self.advance();
            self.hand_out()?;
            self.wait()?;
        }
        Ok(self.counted)
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn take_in(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..64 {
            match self.socket.recv(buffer) {
                Ok(length) => self.enter(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A packet from a rank: looks at its headers, does to it what was asked for.
    fn enter(&mut self, bytes: &[u8]) {
        let Ok(decoded) = decode_ip(bytes) else {
            self.counted.strangers += 1;
            return;
        };
        let envelope = decoded.envelope;
        let (Some(from), Some(to)) = (self.hosts.get(&envelope.src), self.hosts.get(&envelope.dst))
        else {
            self.counted.strangers += 1;
            return;
        };
        let key = FlowKey {
            from: from.nic,
            to: to.nic,
            src_ip: from.ip,
            dst_ip: to.ip,
            protocol: fabric::hash::UDP,
            src_port: envelope.src_port,
            dst_port: fabric::hash::ROCE_V2_PORT,
            dst_qpn: decoded.headers.bth.dest_qp,
        };
        let is_data = decoded.headers.bth.opcode.is_data();
        let is_control = !is_data || frame::CONTROL_DSCP <= envelope.dscp();
        let is_data = is_data && !is_control;
        let payload = decoded.payload_bytes as u64;
        let sent = self.sent_of.entry(key).or_default();
        let number = std::mem::replace(sent, *sent + 1);
        let packet = |bytes: &[u8]| Packet {
            bytes: bytes.to_vec(),
            key,
            number,
            payload,
            is_data,
            is_control,
            path: Vec::new(),
        };
        let [lose, hold, twice] =
            [self.injected.loss, self.injected.reorder, self.injected.duplicate]
                .map(|share| 0.0 < share && self.random.unit() < share);
        for (count, happens) in self.counted.injected.iter_mut().zip([lose, hold, twice]) {
            *count += u64::from(happens);
        }
        if lose {
            return;
        }
        let now = self.now();
        // Held back for up to eight packets of its link.
        let link = self.fabric.ports(key.from)[0];
        let packet_ns = self.queues[link].takes(bytes.len() as u64);
        let late = if hold { (1 + self.random.below(8)) * packet_ns } else { 0 };
        self.schedule(now + late, Event::Arrive(key.from, packet(bytes)));
        if twice {
            self.schedule(now + late, Event::Arrive(key.from, packet(bytes)));
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.agenda.push(Reverse((at, self.next)));
        self.events.insert(self.next, event);
        self.next += 1;
    }

    /// Does what is due.
    fn advance(&mut self) {
        let now = self.now();
        while let Some(Reverse((at, number))) =
            self.agenda.peek().copied().filter(|one| one.0.0 <= now)
        {
            self.agenda.pop();
            match self.events.remove(&number).expect("it was scheduled") {
                Event::Arrive(node, packet) => self.arrive(at, node, packet),
                Event::Sent(link, packet) => {
                    self.queues[link].is_busy = false;
                    self.leave(at, link, packet);
                    self.start(at, link);
                }
                Event::Pause(link, begins) => self.pause(at, link, begins),
            }
        }
    }

    /// A packet has crossed a link: its queue and the switch before it have room again.
    fn leave(&mut self, now: u64, link: LinkId, mut packet: Packet) {
        let size = packet.bytes.len() as u64;
        if !packet.is_control {
            self.queues[link].bytes -= size;
            if let Some(before) = packet.path.last().copied() {
                self.queues[before].held -= size;
                self.look(now, before);
            }
        }
        packet.path.push(link);
        self.arrive(now, self.fabric.links()[link].to, packet);
    }

    fn arrive(&mut self, now: u64, at: NodeId, mut packet: Packet) {
        if at == packet.key.to {
            if packet.is_data {
                let paths = self.counted.paths.entry(packet.key).or_default();
                *paths.entry(packet.path).or_default() += 1;
            }
            let rank = self.ranks[&packet.key.to];
            self.outbox.push_back((rank, packet.bytes));
            return;
        }
        let is_switch = self.fabric.nodes()[at].kind != NodeKind::Nic;
        if is_switch && !frame::count_down(&mut packet.bytes) {
            let ipv6 = packet.bytes[0] >> 4 == 6;
            let from = switch_address(self.fabric.switch_ordinal(at).unwrap_or(0), ipv6);
            let answer = frame::time_exceeded(from, &packet.bytes);
            self.outbox.push_back((self.ranks[&packet.key.from], answer));
            return;
        }
        let mut hops = Vec::new();
        self.routes.next_hops(self.fabric, at, packet.key.to, &mut hops);
        let link = match &hops[..] {
            [] => return,
            [only] => *only,
            several => {
                let depths = Depths(&self.queues);
                let at = self.routing.choose(at, &packet.key, packet.number, several, &depths);
                several[at]
            }
        };
        let size = packet.bytes.len() as u64;
        let depth = self.queues[link].bytes;
        if is_switch && !packet.is_control {
            if self.room(at, &packet, depth) < size {
                self.counted.links[link].drops += 1;
                return;
            }
            if self.marks(depth) && frame::mark(&mut packet.bytes) {
                self.counted.links[link].marks += 1;
            }
        }
        let count = &mut self.counted.links[link];
        count.bytes += size;
        if packet.is_data {
            count.packets += 1;
            count.payload += packet.payload;
        }
        if packet.is_control {
            self.queues[link].control.push_back(packet);
        } else {
            count.peak = count.peak.max(depth + size);
            let before = packet.path.last().copied();
            self.queues[link].bytes += size;
            self.queues[link].data.push_back(packet);
            if let Some(before) = before {
                self.queues[before].held += size;
                self.look(now, before);
            }
        }
        self.start(now, link);
    }

    /// Sends the next packet of a link, if it may.
    fn start(&mut self, now: u64, link: LinkId) {
        let queue = &mut self.queues[link];
        if queue.is_busy {
            return;
        }
        let next = match queue.control.pop_front() {
            Some(packet) => Some(packet),
            None if queue.is_paused => None,
            None => queue.data.pop_front(),
        };
        let Some(packet) = next else { return };
        queue.is_busy = true;
        let there = now + queue.takes(packet.bytes.len() as u64);
        self.schedule(there, Event::Sent(link, packet));
    }

    /// Memory of a switch that nobody uses.
    fn free(&self, switch: NodeId) -> u64 {
        let ports = self.fabric.ports(switch).iter();
        let used: u64 = ports.map(|link| self.queues[*link].bytes).sum();
        self.settings.buffer.size.get().saturating_sub(used)
    }

    /// The room for a packet at a switch. Without pauses a queue may have a share of what is left
    /// of the memory; with them, a link into the switch may, and beyond that its headroom.
    fn room(&self, switch: NodeId, packet: &Packet, depth: u64) -> u64 {
        let buffer = &self.settings.buffer;
        match packet.path.last().filter(|_| self.settings.pfc.enabled) {
            Some(before) => {
                let most = self.share(switch) + self.headroom(*before);
                most.saturating_sub(self.queues[*before].held)
            }
            None => {
                let most = (buffer.alpha_lossy * self.free(switch) as f64) as u64;
                (most + buffer.reserved.get()).saturating_sub(depth)
            }
        }
    }

    /// What one link may fill of a switch's memory before it is paused.
    fn share(&self, switch: NodeId) -> u64 {
        let buffer = &self.settings.buffer;
        (buffer.alpha * self.free(switch) as f64) as u64 + buffer.reserved.get()
    }

    /// What may still come after a pause was sent: what the settings say, or a few packets.
    fn headroom(&self, link: LinkId) -> u64 {
        let packet = self.settings.packet.mtu.get() + 128;
        let on_the_way = self.queues[link].rate_bps / 8 / 100; // Ten milliseconds.
        self.settings.buffer.headroom.map_or(on_the_way.max(4 * packet), Bytes::get)
    }

    /// Whether what sends into a link must be paused, or may go on.
    fn look(&mut self, now: u64, link: LinkId) {
        if !self.settings.pfc.enabled {
            return;
        }
        let switch = self.fabric.links()[link].to;
        let (most, queue) = (self.share(switch), &self.queues[link]);
        let below = most.saturating_sub(self.settings.pfc.xon_below.get());
        let begins = !queue.told && most < queue.held;
        let ends = queue.told && (queue.held <= below || queue.held == 0);
        if begins || ends {
            let there = now + queue.takes(frame::PAUSE as u64);
            self.queues[link].told = begins;
            self.counted.links[link].pauses += u64::from(begins);
            self.schedule(there, Event::Pause(link, begins));
        }
    }

    /// A pause reaches what sends into a link; a rank gets it as a frame.
    fn pause(&mut self, now: u64, link: LinkId, begins: bool) {
        self.queues[link].is_paused = begins;
        if let Some(rank) = self.ranks.get(&self.fabric.links()[link].from) {
            self.outbox.push_back((*rank, frame::pause(begins)));
        }
        if !begins {
            self.start(now, link);
        }
    }

    /// Whether a packet that meets a queue of this depth is marked.
    fn marks(&mut self, depth: u64) -> bool {
        let ecn = &self.settings.ecn;
        let (min, max) = (ecn.min.get(), ecn.max.get());
        if !ecn.enabled || depth < min {
            return false;
        }
        let share = (depth - min) as f64 / (max - min).max(1) as f64;
        max <= depth || self.random.unit() < share * ecn.probability
    }

    fn hand_out(&mut self) -> io::Result<()> {
        let mut full: Vec<u32> = Vec::new();
        let mut left = VecDeque::new();
        while let Some((rank, bytes)) = self.outbox.pop_front() {
            if full.contains(&rank) {
                left.push_back((rank, bytes));
                continue;
            }
            let to = abstract_address(&rank_name(&self.run, rank))?;
            match self.socket.send_to_addr(&bytes, &to) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    full.push(rank);
                    left.push_back((rank, bytes));
                }
                // A rank that is gone needs nothing more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        self.outbox = left;
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let next = self.agenda.peek().map(|one| one.0.0.saturating_sub(self.now()));
        let most = if self.outbox.is_empty() { 20_000_000 } else { 200_000 };
        let timeout = Duration::from_nanos(next.unwrap_or(most).min(most));
        let mut sockets = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut sockets, Some(TimeSpec::from(timeout)), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
