//! What packets say, one direction of a queue pair after the other.
//!
//! A packet names its destination's queue pair and no other, so a flow is (source, destination,
//! destination's queue pair). Requests and the answers to READs have sequence numbers of their own.

use std::collections::BTreeMap;
use std::net::IpAddr;

use roce::packet::{Decoded, Icrc};
use roce::{Opcode, Operation, Syndrome, Transport};
use serde::Serialize;

use super::rate::Rate;
use crate::format::Reading;
use crate::observed::{Neighbour, Packets, QueuePair};

/// More flows than this are not told apart.
const MAX_FLOWS: usize = 1 << 20;
/// Holes in sequence numbers that are remembered for each flow.
const MAX_HOLES: usize = 32;
/// So many sequence numbers before the first that was seen may come behind it.
const BEFORE: u32 = 1 << 12;
/// Neighbours that are remembered.
const MAX_NEIGHBOURS: usize = 1 << 16;
/// Sequence numbers have 24 bits.
const PSN: u32 = 0xff_ffff;
/// A hole in more of the packets than this: they are samples.
const SAMPLED_SHARE: f64 = 0.5;
/// A flow of more bytes is an elephant, as `traffic` counts them.
const ELEPHANT_BYTES: u64 = 10 << 20;

/// Packets in more detail than [`Packets`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wire {
    /// From the first packet to the last.
    pub seconds: f64,
    /// Packets, messages and bytes by verb.
    pub verbs: BTreeMap<String, Verb>,
    /// Packets by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Packets of which only the beginning is in the file.
    pub truncated: u64,
    /// Packets that no transport has.
    pub malformed: u64,
    /// Packets whose check at the end is wrong.
    pub icrc_wrong: u64,
    /// VLAN tags.
    pub tagged: u64,
    /// Copies that a switch sent in a tunnel.
    pub mirrored: u64,
    /// Copies of the packet before, seen at another hop.
    pub copies: u64,
    /// Data packets that came before one that was sent earlier.
    pub out_of_order: u64,
    /// Sequence numbers that never came.
    pub missing: u64,
    /// Negative acknowledgements by what they say.
    pub naks: BTreeMap<String, u64>,
    /// LLDP frames.
    pub lldp: u64,
    /// Pause frames by class (`link` for the whole link): those that stop and those that start.
    pub pauses: BTreeMap<String, Pauses>,
    /// Pause frames by the station that sent them.
    pub pausing: BTreeMap<String, u64>,
    /// Packets on links whose type is not known, by its number.
    pub unknown_links: BTreeMap<u32, u64>,
    /// 5-tuples of data, and the entropy of the bytes over them: 1 where all carry the same.
    pub flows: u64,
    /// The entropy of the bytes over 5-tuples, divided by its largest.
    pub entropy: Option<f64>,
    /// The share of the bytes in flows of more than 10 MiB.
    pub elephant_share: Option<f64>,
    /// The mean rate of payload.
    pub mean_bps: Option<f64>,
    /// The busiest bin over the mean.
    pub peak_to_mean: Option<f64>,
    /// The share of bins in which there was payload.
    pub duty_cycle: Option<f64>,
    /// Runs of bins with payload.
    pub bursts: Option<u64>,
    /// The width of a bin.
    pub bin_s: f64,
    /// Payload in bits per second: the beginning of a bin in seconds, and its rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<(f64, f64)>,
    /// Whether the packets are samples: order and loss cannot be told then.
    pub is_sampled: bool,
}

/// What a verb did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verb {
    /// Its packets.
    pub packets: u64,
    /// Its messages, by their last packets.
    pub messages: u64,
    /// Its payload.
    pub bytes: u64,
}

/// Pause frames of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pauses {
    /// That stop it.
    pub xoff: u64,
    /// That let it go on.
    pub xon: u64,
    /// The times that they ask for, in units of 512 bit times.
    pub quanta: u64,
}

/// A packet as flows need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketFacts {
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    class: u8,
    ttl: u8,
    opcode: Opcode,
    qp: u32,
    psn: u32,
    fecn: bool,
    payload: u64,
    /// The length that an RDMA header asks for.
    asked: u32,
    syndrome: Option<Syndrome>,
    /// The check at the end is wrong.
    pub icrc_wrong: bool,
    /// There is no IP around it.
    pub is_native: bool,
    /// The extended headers are not in the file.
    pub headers_cut: bool,
}

impl PacketFacts {
    pub(super) fn of(packet: &Decoded<'_>) -> Self {
        let (envelope, headers) = (&packet.envelope, &packet.headers);
        Self {
            src: envelope.src,
            dst: envelope.dst,
            src_port: envelope.src_port,
            class: envelope.class,
            ttl: envelope.ttl,
            opcode: headers.bth.opcode,
            qp: headers.bth.dest_qp,
            psn: headers.bth.psn,
            fecn: headers.bth.fecn,
            payload: packet.payload_bytes as u64,
            asked: headers.reth.map_or(0, |reth| reth.length),
            syndrome: headers.aeth.map(|aeth| aeth.syndrome),
            icrc_wrong: matches!(packet.icrc, Icrc::Wrong { .. }),
            is_native: false,
            headers_cut: false,
        }
    }
}

/// Sequence numbers of one kind of packet.
#[derive(Debug, Default)]
struct Sequence {
    next: Option<u32>,
    /// Holes among those before the first that was seen.
    early: Vec<(u32, u32)>,
    /// So many numbers may be left out after the packet before: answers to a READ take them.
    slack: u32,
    holes: Vec<(u32, u32)>,
}

/// What a sequence number says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    /// The next one.
    Next,
    /// Beyond the next: so many are missing.
    Ahead(u32),
    /// One that was missing.
    Late,
    /// One before the first that was seen.
    Early,
    /// One that was there.
    Again,
}

impl Sequence {
    fn see(&mut self, psn: u32, takes: u32) -> Order {
        let after = psn.wrapping_add(1) & PSN;
        let Some(next) = self.next else {
            (self.next, self.slack) = (Some(after), takes);
            self.early.push((psn.wrapping_sub(BEFORE) & PSN, BEFORE));
            return Order::Next;
        };
        let ahead = psn.wrapping_sub(next) & PSN;
        if ahead <= self.slack {
            (self.next, self.slack) = (Some(after), takes);
            return Order::Next;
        }
        if ahead <= PSN / 2 {
            if MAX_HOLES <= self.holes.len() {
                self.holes.remove(0);
            }
            self.holes.push((next, ahead));
            (self.next, self.slack) = (Some(after), takes);
            return Order::Ahead(ahead);
        }
        self.fill(psn)
    }

    /// One behind the next: was it missing?
    fn fill(&mut self, psn: u32) -> Order {
        match (fill(&mut self.holes, psn), fill(&mut self.early, psn)) {
            (true, _) => Order::Late,
            (false, true) => Order::Early,
            (false, false) => Order::Again,
        }
    }
}

/// Takes a number out of the hole that has it, if one has.
fn fill(holes: &mut Vec<(u32, u32)>, psn: u32) -> bool {
    let inside = |(first, count): &(u32, u32)| psn.wrapping_sub(*first) & PSN < *count;
    let Some(at) = holes.iter().position(inside) else { return false };
    let (first, count) = holes.remove(at);
    let before = psn.wrapping_sub(first) & PSN;
    let after = count - before - 1;
    let parts = [(first, before), (psn.wrapping_add(1) & PSN, after)];
    holes.extend(parts.into_iter().filter(|(_, count)| 0 < *count));
    holes.truncate(MAX_HOLES);
    true
}

/// One direction of a queue pair.
#[derive(Debug, Default)]
struct Flow {
    requests: Sequence,
    answers: Sequence,
    /// The last packet, to know a copy of it.
    last: Option<(u32, u8, Opcode)>,
    src_port: u16,
    dscp: u8,
    bytes: u64,
    packets: u64,
    marked: u64,
    /// The largest payload, which is the MTU of long messages.
    largest: u64,
    is_native: bool,
}

/// All that was seen so far.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub packets: Packets,
    pub wire: Wire,
    flows: BTreeMap<(IpAddr, IpAddr, u32), Flow>,
    tuples: BTreeMap<(IpAddr, IpAddr, u16), u64>,
    neighbours: BTreeMap<(String, String), Neighbour>,
    opcodes: BTreeMap<Opcode, u64>,
    /// Sequence numbers that a receiver asked for again, by its address and the sender's.
    wanted: BTreeMap<(IpAddr, IpAddr), Vec<u32>>,
    /// Packets that left a hole.
    holes: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    station: [u8; 6],
    rate: Rate,
    not_told_apart: u64,
}

impl Flows {
    /// A record begins at this time.
    pub(super) fn time(&mut self, time_ns: Option<u64>) {
        if let Some(time) = time_ns {
            self.first_ns.get_or_insert(time);
            self.last_ns = self.last_ns.max(time);
        }
    }

    /// Who sent the frame.
    pub(super) fn station(&mut self, mac: &[u8]) {
        self.station = mac.try_into().unwrap_or_default();
    }

    pub(super) fn unknown_link(&mut self, link: u32) {
        *self.wire.unknown_links.entry(link).or_default() += 1;
    }

    pub(super) fn neighbour(&mut self, found: Neighbour) {
        let key = (found.chassis.clone(), found.port.clone());
        if self.neighbours.len() < MAX_NEIGHBOURS || self.neighbours.contains_key(&key) {
            let frames = self.neighbours.get(&key).map_or(0, |known| known.frames);
            self.neighbours.insert(key, Neighbour { frames: frames + 1, ..found });
        }
    }

    /// A pause frame: times by class, or of the whole link.
    pub(super) fn pause(&mut self, classes: Option<&[(u8, u16)]>, link_quanta: u16) {
        self.packets.pauses += 1;
        let station: Vec<String> =
            self.station.iter().map(|octet| format!("{octet:02x}")).collect();
        *self.wire.pausing.entry(station.join(":")).or_default() += 1;
        let mut add = |name: String, quanta: u16| {
            let entry = self.wire.pauses.entry(name).or_default();
            match quanta {
                0 => entry.xon += 1,
                _ => entry.xoff += 1,
            }
            entry.quanta += u64::from(quanta);
        };
        match classes {
            None => add("link".to_owned(), link_quanta),
            Some(classes) => {
                classes.iter().for_each(|(class, quanta)| add(class.to_string(), *quanta));
            }
        }
    }

    pub(super) fn packet(&mut self, seen: &PacketFacts) {
        *self.opcodes.entry(seen.opcode).or_default() += 1;
        self.wire.icrc_wrong += u64::from(seen.icrc_wrong);
        if seen.opcode == Opcode::CNP {
            self.packets.cnps += 1;
            return;
        }
        let is_data = seen.opcode.is_data();
        if !is_data && seen.opcode.is_response() {
            return self.answer(seen);
        }
        let key = (seen.src, seen.dst, seen.qp);
        if MAX_FLOWS <= self.flows.len() && !self.flows.contains_key(&key) {
            self.not_told_apart += 1;
            self.count(seen);
            return;
        }
        let flow = self.flows.entry(key).or_default();
        let copy = flow.last.is_some_and(|(psn, ttl, opcode)| {
            (psn, opcode) == (seen.psn, seen.opcode) && ttl != seen.ttl
        });
        if copy {
            self.wire.copies += 1;
            return;
        }
        flow.last = Some((seen.psn, seen.ttl, seen.opcode));
        flow.packets += 1;
        flow.bytes += seen.payload;
        flow.largest = flow.largest.max(seen.payload);
        flow.marked += u64::from(is_marked(seen));
        (flow.src_port, flow.dscp) = (seen.src_port, seen.class >> 2);
        flow.is_native = seen.is_native;
        // Datagrams may be lost and nobody asks for them again.
        if seen.opcode.transport != Transport::Ud {
            let sequence = match seen.opcode.is_response() {
                true => &mut flow.answers,
                false => &mut flow.requests,
            };
            let takes = match seen.opcode.operation {
                // The answers take numbers: as many as there are packets, at the smallest MTU.
                Operation::ReadRequest if seen.headers_cut => PSN / 2,
                Operation::ReadRequest => seen.asked.div_ceil(256),
                _ => 0,
            };
            // Answers to different READs begin anywhere behind the last.
            let is_begin = seen.opcode.is_response() && seen.opcode.is_first();
            if is_begin && sequence.next.is_some_and(|n| seen.psn.wrapping_sub(n) & PSN <= PSN / 2)
            {
                sequence.slack = PSN / 2;
            }
            let order = sequence.see(seen.psn, takes);
            self.order(order, seen);
        }
        self.count(seen);
    }

    /// Counts what a sequence number says; only of data.
    fn order(&mut self, order: Order, seen: &PacketFacts) {
        match order {
            Order::Next => {}
            Order::Ahead(missing) => {
                self.holes += 1;
                self.wire.missing += u64::from(missing);
            }
            Order::Late | Order::Early => {
                let was_missing = u64::from(order == Order::Late);
                self.wire.missing = self.wire.missing.saturating_sub(was_missing);
                // The receiver asked for it: it was lost and comes again.
                let asked = self.wanted.get(&(seen.dst, seen.src));
                match asked.is_some_and(|numbers| numbers.contains(&seen.psn)) {
                    true => self.packets.retransmitted += 1,
                    false => self.wire.out_of_order += 1,
                }
            }
            Order::Again if seen.opcode.is_data() => self.packets.retransmitted += 1,
            Order::Again => {}
        }
    }

    /// Counts a packet that carries a part of a message or asks for one.
    fn count(&mut self, seen: &PacketFacts) {
        let verb = self.wire.verbs.entry(verb(seen.opcode).to_owned()).or_default();
        verb.packets += 1;
        let is_request = !seen.opcode.is_data();
        verb.messages += u64::from(is_request || seen.opcode.is_last());
        verb.bytes += seen.payload;
        if is_request {
            return;
        }
        self.packets.data += 1;
        self.packets.bytes += seen.payload;
        self.packets.marked += u64::from(is_marked(seen));
        if self.tuples.len() < MAX_FLOWS {
            *self.tuples.entry((seen.src, seen.dst, seen.src_port)).or_default() += seen.payload;
        }
        if self.first_ns.is_some() {
            self.rate.add(self.last_ns, seen.payload);
        }
    }

    /// An acknowledgement.
    fn answer(&mut self, seen: &PacketFacts) {
        let name = match seen.syndrome {
            _ if seen.headers_cut => "cut off".to_owned(),
            Some(Syndrome::Ack { .. }) | None => {
                self.packets.acks += 1;
                return;
            }
            Some(Syndrome::Nak(code)) => format!("{code:?}"),
            Some(other) => {
                format!("{other:?}").split([' ', '(', '{']).next().unwrap_or("").to_owned()
            }
        };
        if seen.headers_cut {
            self.packets.acks += 1;
        } else {
            self.packets.naks += 1;
        }
        *self.wire.naks.entry(name).or_default() += 1;
        let wanted = self.wanted.entry((seen.src, seen.dst)).or_default();
        if 16 <= wanted.len() {
            wanted.remove(0);
        }
        wanted.push(seen.psn);
    }

    /// Adds all that was seen to what was observed.
    pub(super) fn finish(mut self, reading: &mut Reading<'_>) {
        let shown = self.opcodes.iter().map(|(opcode, count)| (opcode.to_string(), *count));
        self.wire.opcodes = shown.collect();
        let (data, holes) = (self.packets.data, self.holes);
        self.wire.is_sampled = SAMPLED_SHARE * data as f64 <= holes as f64 && 8 < holes;
        if self.wire.is_sampled {
            let reason = "its packets are samples: loss, order and retransmission cannot be told";
            reading.problem(0, reason);
            (self.packets.retransmitted, self.wire.out_of_order) = (0, 0);
            self.wire.missing = 0;
        }
        for (link, count) in &self.wire.unknown_links {
            let reason = format!("{count} packets are of link type {link}, which is not read");
            reading.source.problem(0, &reason);
        }
        if 0 < self.not_told_apart {
            let reason = format!("more than {MAX_FLOWS} flows: the rest is not told apart");
            reading.problem(0, &reason);
        }
        self.sum_up();
        self.queue_pairs(reading);
        reading.observed.neighbours.extend(self.neighbours.into_values());
        add(&mut reading.observed.packets, &self.packets);
        let observed = &mut reading.observed.wire;
        match observed.seconds == 0.0 && *observed == Wire::default() {
            true => *observed = self.wire,
            false => observed.add(self.wire),
        }
    }

    fn sum_up(&mut self) {
        let seconds = self.first_ns.map_or(0, |first| self.last_ns - first) as f64 * 1e-9;
        let wire = &mut self.wire;
        wire.seconds = seconds;
        let sent: Vec<u64> = self.tuples.values().copied().filter(|bytes| 0 < *bytes).collect();
        wire.flows = self.tuples.len() as u64;
        let total: u64 = sent.iter().sum();
        if 0 < total {
            let share = |bytes: &u64| *bytes as f64 / total as f64;
            let bits: f64 = sent.iter().map(share).map(|part| -part * part.log2()).sum();
            wire.entropy = (1 < sent.len()).then(|| bits / (sent.len() as f64).log2());
            let large = sent.iter().filter(|bytes| ELEPHANT_BYTES < **bytes);
            wire.elephant_share = Some(large.sum::<u64>() as f64 / total as f64);
            wire.mean_bps = (0.0 < seconds).then(|| total as f64 * 8.0 / seconds);
        }
        wire.bin_s = self.rate.width_ns as f64 * 1e-9;
        wire.rate = self.rate.series();
        if let Some((peak, duty, bursts)) = self.rate.bursts() {
            (wire.peak_to_mean, wire.duty_cycle) = (Some(peak), Some(duty));
            wire.bursts = Some(bursts);
        }
    }

    fn queue_pairs(&mut self, reading: &mut Reading<'_>) {
        for ((src, dst, qp), flow) in std::mem::take(&mut self.flows) {
            let name = |address: IpAddr| match (flow.is_native, address) {
                (true, IpAddr::V4(lid)) => format!("LID {}", u32::from(lid)),
                (_, address) => address.to_string(),
            };
            reading.observed.queue_pairs.push(QueuePair {
                host: name(dst),
                number: qp,
                peer: name(src),
                source_port: (!flow.is_native).then_some(flow.src_port),
                mtu_bytes: u32::try_from(flow.largest).ok().filter(|largest| 0 < *largest),
                dscp: (!flow.is_native).then_some(flow.dscp),
                bytes: flow.bytes,
                packets: flow.packets,
                marked: flow.marked,
                ..QueuePair::default()
            });
        }
    }
}

fn is_marked(seen: &PacketFacts) -> bool {
    match seen.is_native {
        true => seen.fecn,
        false => seen.class & 3 == 3,
    }
}

fn verb(opcode: Opcode) -> &'static str {
    use Operation::{
        CompareSwap, FetchAdd, ReadRequest, ReadResponseFirst, ReadResponseLast,
        ReadResponseMiddle, ReadResponseOnly, WriteFirst, WriteLast, WriteLastImmediate,
        WriteMiddle, WriteOnly, WriteOnlyImmediate,
    };
    match opcode.operation {
        WriteFirst | WriteMiddle | WriteLast | WriteLastImmediate => "write",
        WriteOnly | WriteOnlyImmediate => "write",
        ReadRequest => "read request",
        ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly => "read",
        CompareSwap | FetchAdd => "atomic",
        _ => "send",
    }
}

/// Adds the packets of one file to those of others.
fn add(to: &mut Packets, more: &Packets) {
    to.data += more.data;
    to.acks += more.acks;
    to.naks += more.naks;
    to.cnps += more.cnps;
    to.pauses += more.pauses;
    to.marked += more.marked;
    to.retransmitted += more.retransmitted;
    to.bytes += more.bytes;
}

impl Wire {
    /// Adds another capture; what describes one alone (rates, entropy) is left out.
    fn add(&mut self, more: Self) {
        self.seconds = self.seconds.max(more.seconds);
        for (name, verb) in more.verbs {
            let own = self.verbs.entry(name).or_default();
            own.packets += verb.packets;
            own.messages += verb.messages;
            own.bytes += verb.bytes;
        }
        for (name, count) in more.opcodes {
            *self.opcodes.entry(name).or_default() += count;
        }
        for (name, count) in more.naks {
            *self.naks.entry(name).or_default() += count;
        }
        for (name, count) in more.pausing {
            *self.pausing.entry(name).or_default() += count;
        }
        for (name, pauses) in more.pauses {
            let own = self.pauses.entry(name).or_default();
            own.xoff += pauses.xoff;
            own.xon += pauses.xon;
            own.quanta += pauses.quanta;
        }
        self.truncated += more.truncated;
        self.malformed += more.malformed;
        self.icrc_wrong += more.icrc_wrong;
        self.tagged += more.tagged;
        self.mirrored += more.mirrored;
        self.copies += more.copies;
        self.out_of_order += more.out_of_order;
        self.missing += more.missing;
        self.lldp += more.lldp;
        self.flows += more.flows;
        self.is_sampled |= more.is_sampled;
        (self.entropy, self.elephant_share, self.mean_bps) = (None, None, None);
        (self.peak_to_mean, self.duty_cycle, self.bursts) = (None, None, None);
        self.rate = Vec::new();
    }
}
