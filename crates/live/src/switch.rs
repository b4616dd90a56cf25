//! Switches and links in user space, as the scenario's fabric has them.
//!
//! One thread plays all of them: a packet that a rank hands over crosses its links one after the
//! other, each with its rate and queue; at every switch the scenario's routing policy chooses, with
//! its hash and seeds. Queues take shared memory, mark above their thresholds and drop what finds
//! no room. Acknowledgements and notifications pass waiting data, as with a class of their own.
//! On request it loses, duplicates and holds back packets where they enter.
//!
//! Departure: no pauses; a packet that finds no room is lost, whatever its class.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
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
    path: Vec<LinkId>,
}

/// A packet at the end of a link, or held back at its first node.
struct Arrival {
    at: NodeId,
    packet: Packet,
}

struct Queue {
    rate_bps: u64,
    busy_until: u64,
}

impl Queue {
    fn depth(&self, now: u64) -> u64 {
        let left = self.busy_until.saturating_sub(now);
        (u128::from(left) * u128::from(self.rate_bps) / 8_000_000_000) as u64
    }
}

/// The queues as routing policies look at them.
struct Depths<'a> {
    queues: &'a IdVec<LinkId, Queue>,
    now: u64,
}

impl Load for Depths<'_> {
    fn queued(&self, link: LinkId) -> Bytes {
        Bytes::new(self.queues[link].depth(self.now))
    }
}

/// All switches of a fabric, with the sockets of the ranks.
pub struct Switches<'a> {
    fabric: &'a Fabric,
    settings: &'a Settings,
    routes: Routes,
    routing: Box<dyn Routing>,
    socket: UnixDatagram,
    nodes: BTreeMap<u32, (NodeId, u32)>,
    run: String,
    queues: IdVec<LinkId, Queue>,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    arrivals: BTreeMap<u64, Arrival>,
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
    /// By address: the NIC, and its rank.
    pub nodes: BTreeMap<u32, (NodeId, u32)>,
    /// The name of the run.
    pub run: String,
    /// What happens to packets where they enter.
    pub injected: Injected,
}

impl<'a> Switches<'a> {
    /// Opens the socket with this abstract name.
    pub fn open(setup: Setup<'a>, name: &str) -> io::Result<Self> {
        let Setup { fabric, settings, nodes, run, injected } = setup;
        let socket = UnixDatagram::bind_addr(&abstract_address(name)?)?;
        socket.set_nonblocking(true)?;
        let rate = |link| Queue { rate_bps: fabric.class(link).rate.as_bps(), busy_until: 0 };
        Ok(Self {
            routes: Routes::of(fabric),
            routing: settings.routing.build(fabric, settings.seed),
            socket,
            nodes,
            run,
            queues: fabric.links().ids().map(rate).collect(),
            agenda: BinaryHeap::new(),
            arrivals: BTreeMap::new(),
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
        let bits = |address| match address {
            std::net::IpAddr::V4(address) => u32::from(address),
            std::net::IpAddr::V6(_) => 0,
        };
        let (src_ip, dst_ip) = (bits(decoded.envelope.src), bits(decoded.envelope.dst));
        let (Some(from), Some(to)) = (self.nodes.get(&src_ip), self.nodes.get(&dst_ip)) else {
            self.counted.strangers += 1;
            return;
        };
        let key = FlowKey {
            from: from.0,
            to: to.0,
            src_ip,
            dst_ip,
            protocol: fabric::hash::UDP,
            src_port: decoded.envelope.src_port,
            dst_port: fabric::hash::ROCE_V2_PORT,
            dst_qpn: decoded.headers.bth.dest_qp,
        };
        let is_data = decoded.headers.bth.opcode.is_data();
        let payload = decoded.payload_bytes as u64;
        let sent = self.sent_of.entry(key).or_default();
        let number = std::mem::replace(sent, *sent + 1);
        let packet = |bytes: &[u8]| Packet {
            bytes: bytes.to_vec(),
            key,
            number,
            payload,
            is_data,
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
        let packet_ns = 8_000_000_000 * bytes.len() as u64 / self.queues[link].rate_bps.max(1);
        let late = if hold { (1 + self.random.below(8)) * packet_ns } else { 0 };
        self.schedule(now + late, Arrival { at: key.from, packet: packet(bytes) });
        if twice {
            self.schedule(now + late, Arrival { at: key.from, packet: packet(bytes) });
        }
    }

    fn schedule(&mut self, at: u64, arrival: Arrival) {
        self.agenda.push(Reverse((at, self.next)));
        self.arrivals.insert(self.next, arrival);
        self.next += 1;
    }

    /// Moves packets on whose time has come.
    fn advance(&mut self) {
        let now = self.now();
        while let Some(Reverse((at, number))) =
            self.agenda.peek().copied().filter(|one| one.0.0 <= now)
        {
            self.agenda.pop();
            let arrival = self.arrivals.remove(&number).expect("it was scheduled");
            self.arrive(at, arrival);
        }
    }

    fn arrive(&mut self, now: u64, arrival: Arrival) {
        let Arrival { at, mut packet } = arrival;
        if at == packet.key.to {
            if packet.is_data {
                let paths = self.counted.paths.entry(packet.key).or_default();
                *paths.entry(packet.path).or_default() += 1;
            }
            let rank = self.nodes[&packet.key.dst_ip].1;
            self.outbox.push_back((rank, packet.bytes));
            return;
        }
        let mut hops = Vec::new();
        self.routes.next_hops(self.fabric, at, packet.key.to, &mut hops);
        let depths = Depths { queues: &self.queues, now };
        let link = match &hops[..] {
            [] => return,
            [only] => *only,
            several => {
                let at = self.routing.choose(at, &packet.key, packet.number, several, &depths);
                several[at]
            }
        };
        let is_switch = self.fabric.nodes()[at].kind != NodeKind::Nic;
        let size = packet.bytes.len() as u64;
        let depth = self.queues[link].depth(now);
        if is_switch && packet.is_data && self.room(at, now) < depth + size {
            self.counted.links[link].drops += 1;
            return;
        }
        if is_switch && packet.is_data && self.marks(depth) && packet.bytes[1] & 3 != 0 {
            packet.bytes[1] |= 3;
            self.counted.links[link].marks += 1;
        }
        let queue = &mut self.queues[link];
        let takes = 8_000_000_000 * size / queue.rate_bps.max(1);
        queue.busy_until = queue.busy_until.max(now) + takes;
        let there = if packet.is_data { queue.busy_until } else { now + takes };
        let count = &mut self.counted.links[link];
        count.bytes += size;
        count.peak = count.peak.max(depth + size);
        if packet.is_data {
            count.packets += 1;
            count.payload += packet.payload;
        }
        packet.path.push(link);
        self.schedule(there, Arrival { at: self.fabric.links()[link].to, packet });
    }

    /// How deep a queue of a switch may be: a share of what is left of its memory.
    fn room(&self, switch: NodeId, now: u64) -> u64 {
        let buffer = &self.settings.buffer;
        let ports = self.fabric.ports(switch).iter();
        let used: u64 = ports.map(|link| self.queues[*link].depth(now)).sum();
        let free = buffer.size.get().saturating_sub(used);
        (buffer.alpha_lossy * free as f64) as u64 + buffer.reserved.get()
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
