//! A packet run as a capture: every packet as RoCEv2 writes it, in a pcapng file.
//!
//! What the engine moves is sizes: payloads are zeros. Everything else is what a NIC would have
//! sent: addresses, ports and queue pairs of the scenario, opcodes and sequence numbers of the
//! messages, marks that were met, and the checks over all of it. Each packet stands where its way
//! ended ([`packetsim::tap`]); one that was lost says so in a comment.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use exports::pcapng::{SHORTEST, Writer};
use fabric::address::Addresses;
use fabric::hash::FlowKey;
use fabric::transport::Transport;
use fabric::{Fabric, LinkId, NodeId};
use packetsim::nic::{Service, Verb};
use packetsim::packet::Forward;
use packetsim::tap::{Capture, Carries, Frame, Taped};
use roce::header::{BITS_24, Reth};
use roce::packet::{CNP_PAYLOAD, encode_ip};
use roce::{Aeth, Bth, Envelope, Headers, NakCode, Opcode, Operation, Syndrome};
use scenario::Loaded;
use serde::Serialize;
use units::{Bytes, Span};

use crate::engine::Engine;
use crate::failure::Failure;
use crate::files::save;

/// As long as a capture may be unless somebody says so: what Wireshark opens in seconds.
pub const USUAL_LIMIT: Bytes = Bytes::from_mib(256);

/// DSCP of data, and of notifications: what Mellanox's and SONiC's guides for RoCE map to priority
/// 3 and 6.
const DATA_DSCP: u8 = 26;
const CNP_DSCP: u8 = 48;
const FIRST_PRIORITY: u8 = 3;

/// Bits of ECN: capable of it, and congestion experienced.
const ECT: u8 = 2;
const CE: u8 = 3;

/// Numbers of queue pairs that only answer: above all that NICs open.
const ANSWERING: u32 = 1 << 23;

/// Where the memory of the first queue pair lies; no packet shows more than this of it.
const MEMORY: u64 = 0x7f00_0000_0000;

/// A capture that somebody wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its file.
    pub path: PathBuf,
    /// Its longest length.
    pub limit: Bytes,
}

/// What of a run stands in a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Captured {
    /// Its file.
    pub file: String,
    /// Its length.
    pub file_bytes: u64,
    /// The longest length that it might have had.
    pub limit_bytes: u64,
    /// Runs that are in it, one behind the other.
    pub runs: u64,
    /// Packets that are not in it because it was full.
    pub cut: u64,
    /// Data packets that were still under way when the run ended, where nothing was cut.
    pub under_way: u64,
    /// What is in it, by the words of `fatflow observe`.
    pub packets: Packets,
}

/// Packets of a capture, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Packets {
    /// Packets that carry data.
    pub data: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// Negative ones.
    pub naks: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Frames that pause, those that renew a pause among them.
    pub pauses: u64,
    /// Frames that end a pause.
    pub resumes: u64,
    /// Data packets with the mark "congestion experienced".
    pub marked: u64,
    /// Data packets whose sequence number was there before.
    pub retransmitted: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Payload of data packets.
    pub bytes: u64,
}

/// Refuses what cannot be captured.
pub fn refuse(loaded: &Loaded, engine: Engine, wanted: &Wanted) -> Result<(), Failure> {
    let settings = loaded.settings();
    let nic = &settings.nic;
    let reason = if !engine.moves_packets() {
        "--pcap writes packets, which only `--engine packet` moves"
    } else if loaded.scenario.network.transport != Transport::Rocev2 {
        "--pcap writes RoCEv2; other transports (`network.transport`) look different on the wire"
    } else if nic.service != Service::Rc || nic.verb == Verb::Read {
        "--pcap writes writes and sends of reliable connections (`network.nic.service`, \
         `network.nic.verb`)"
    } else if settings.packet.forward == Forward::Bounded {
        "--pcap writes acknowledgements too, which take no links with `network.packet.forward = \
         \"bounded\"`"
    } else if wanted.limit.get() < SHORTEST {
        "--pcap-limit must be 1 KiB or more"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(reason.to_owned()))
}

/// Writes what taps have seen of runs, one run behind the other. Each run has queue pairs of its
/// own.
pub fn write(loaded: &Loaded, runs: &[Taped], wanted: &Wanted) -> Result<Captured, Failure> {
    let mut told = Captured {
        file: wanted.path.display().to_string(),
        limit_bytes: wanted.limit.get(),
        runs: runs.len() as u64,
        cut: runs.iter().map(|run| run.capture.left_out).sum(),
        ..Captured::default()
    };
    save(&wanted.path, |out| {
        let mut file = Writer::new(out, "fatflow", wanted.limit.get())?;
        let mut shift = Shift::default();
        let (mut interfaces, mut is_full) = (BTreeMap::new(), false);
        for run in runs {
            if is_full {
                told.cut += run.capture.frames.len() as u64;
                continue;
            }
            let comment = (1 < runs.len()).then(|| format!("here begins: {}", run.what));
            let run = (&run.capture, comment, run.lasted);
            let to = (&mut file, &mut interfaces, &mut shift);
            is_full = !write_frames(loaded, run, to, &mut told)?;
        }
        told.file_bytes = file.finish()?;
        Ok(())
    })?;
    if told.cut == 0 {
        let sent: u64 = runs.iter().map(|run| run.sent).sum();
        told.under_way = sent.saturating_sub(told.packets.data);
    }
    Ok(told)
}

/// By how much the times and the numbers of queue pairs of a run are later than its own.
#[derive(Clone, Copy, Debug, Default)]
struct Shift {
    ns: u64,
    number: u32,
    pair: u32,
}

/// Writes the packets of a run; whether all had room.
fn write_frames<W: Write>(
    loaded: &Loaded,
    (capture, comment, lasted): (&Capture, Option<String>, Span),
    (file, interfaces, shift): (&mut Writer<W>, &mut BTreeMap<LinkId, u32>, &mut Shift),
    told: &mut Captured,
) -> io::Result<bool> {
    let fabric = loaded.fabric();
    let scribe = Scribe {
        fabric,
        addresses: Addresses::of(fabric),
        verb: loaded.settings().nic.verb,
        quanta: match loaded.settings().pfc.quanta {
            0 => u16::MAX, // until it is ended
            quanta => quanta.min(u32::from(u16::MAX)) as u16,
        },
        shift: *shift,
    };
    let mut comment = comment;
    let mut seen: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut bytes = Vec::new();
    let (mut numbers, mut pairs) = (0, 0);
    for (number, frame) in capture.frames.iter().enumerate() {
        if let Some(key) = frame.key {
            (numbers, pairs) = (numbers.max(key.dst_qpn), pairs.max(frame.pair));
        }
        let known = interfaces.get(&frame.link).copied();
        let interface = match known {
            Some(known) => Some(known),
            None => file.interface(&fabric.link_name(frame.link))?,
        };
        bytes.clear();
        scribe.write(frame, &mut bytes);
        let begins = comment.take();
        let remark = if frame.is_lost { Some("lost here") } else { begins.as_deref() };
        let at = frame.at.as_ps() / 1_000 + shift.ns;
        let is_in = match interface {
            Some(number) => file.packet(number, at, &bytes, remark)?,
            None => false,
        };
        if !is_in {
            told.cut += (capture.frames.len() - number) as u64;
            return Ok(false);
        }
        interfaces.extend(interface.map(|interface| (frame.link, interface)));
        let is_data = matches!(frame.carries, Carries::Data { .. });
        let is_new = !is_data || seen.insert((frame.pair, frame.psn));
        told.packets.count(frame, is_new);
    }
    shift.ns += (lasted.as_ps() / 1_000 + 1).next_multiple_of(1_000);
    shift.number = (shift.number + numbers + 1) & BITS_24;
    shift.pair += pairs + 1;
    Ok(true)
}

impl Packets {
    fn count(&mut self, frame: &Frame, is_new: bool) {
        self.lost += u64::from(frame.is_lost);
        match frame.carries {
            Carries::Data { payload, .. } => {
                self.data += 1;
                self.bytes += u64::from(payload);
                self.marked += u64::from(frame.is_marked);
                self.retransmitted += u64::from(!is_new);
            }
            // NCCL's clearance is a small write of the receiver.
            Carries::Grant => {
                self.data += 1;
                self.bytes += GRANT as u64;
            }
            Carries::Ack { .. } => self.acks += 1,
            Carries::Nak { .. } => self.naks += 1,
            Carries::Notification => self.cnps += 1,
            Carries::Pause { .. } => self.pauses += 1,
            Carries::Resume { .. } => self.resumes += 1,
        }
    }
}

/// Bytes of NCCL's clear-to-send message, a FIFO element.
const GRANT: usize = 64;

/// Who writes packets.
struct Scribe<'a> {
    fabric: &'a Fabric,
    addresses: Addresses,
    verb: Verb,
    quanta: u16,
    shift: Shift,
}

impl Scribe<'_> {
    fn write(&self, frame: &Frame, to: &mut Vec<u8>) {
        let Some(key) = frame.key else { return self.pause(frame, to) };
        let link = &self.fabric.links()[frame.link];
        to.extend(self.mac(link.to));
        to.extend(self.mac(link.from));
        to.extend([0x08, 0x00]);
        let (headers, payload) = self.headers(frame, &key);
        let envelope = envelope(frame, &key);
        let zeros;
        let payload: &[u8] = match frame.carries {
            Carries::Notification => &CNP_PAYLOAD,
            _ => {
                zeros = vec![0; payload];
                &zeros
            }
        };
        encode_ip(&envelope, &headers, payload, to);
        pad_to_shortest(to);
    }

    /// The transport headers of a packet, and how much payload follows.
    fn headers(&self, frame: &Frame, key: &FlowKey) -> (Headers, usize) {
        let psn = frame.psn & BITS_24;
        let pair = frame.pair + self.shift.pair;
        let answered = ANSWERING | (pair & (ANSWERING - 1));
        match frame.carries {
            Carries::Data { message, message_bytes, payload, is_first, is_last } => {
                let opcode = Opcode::rc(operation(self.verb, is_first, is_last));
                let mut headers = Headers::new(Bth::new(
                    opcode,
                    (key.dst_qpn + self.shift.number) & BITS_24,
                    psn,
                ));
                headers.bth.ack_request = is_last;
                let length = u32::try_from(message_bytes).unwrap_or(u32::MAX);
                let (address, key) = (MEMORY.wrapping_add(message), pair);
                let reth = Reth { address, key, length };
                headers.reth = opcode.has_reth().then_some(reth);
                headers.immediate = opcode.has_immediate().then_some(length);
                (headers, payload as usize)
            }
            Carries::Ack { messages } => {
                let aeth = Aeth { syndrome: Syndrome::ACK, msn: messages & BITS_24 };
                // The last packet that has arrived, not the next one.
                let psn = frame.psn.wrapping_sub(1) & BITS_24;
                let mut headers = Headers::ack(answered, psn, aeth);
                headers.bth.becn = frame.is_marked;
                (headers, 0)
            }
            Carries::Nak { messages } => {
                let syndrome = Syndrome::Nak(NakCode::PsnSequence);
                let aeth = Aeth { syndrome, msn: messages & BITS_24 };
                (Headers::ack(answered, psn, aeth), 0)
            }
            Carries::Grant => {
                let opcode = Opcode::rc(Operation::WriteOnly);
                let mut headers = Headers::new(Bth::new(opcode, answered, psn));
                let (address, length) = (MEMORY, GRANT as u32);
                headers.reth = Some(Reth { address, key: pair, length });
                (headers, GRANT)
            }
            _ => (Headers::cnp(answered), CNP_PAYLOAD.len()),
        }
    }

    /// A PFC frame (IEEE 802.1Qbb): the classes that it is for, and how long each is to stop.
    fn pause(&self, frame: &Frame, to: &mut Vec<u8>) {
        let (lane, quanta) = match frame.carries {
            Carries::Pause { lane } => (lane, self.quanta),
            Carries::Resume { lane } => (lane, 0),
            _ => return,
        };
        let priority = FIRST_PRIORITY + lane;
        to.extend([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
        to.extend(self.mac(self.fabric.links()[frame.link].from));
        to.extend([0x88, 0x08, 0x01, 0x01, 0, 1 << priority]);
        for class in 0..8 {
            let time = if class == priority { quanta } else { 0 };
            to.extend(time.to_be_bytes());
        }
        pad_to_shortest(to);
    }

    fn mac(&self, node: NodeId) -> [u8; 6] {
        self.addresses.mac(node, 0).0
    }
}

/// Frames have 60 bytes or more, and their check sequence.
fn pad_to_shortest(frame: &mut Vec<u8>) {
    frame.resize(frame.len().max(60), 0);
}

/// IP and UDP around a packet.
fn envelope(frame: &Frame, key: &FlowKey) -> Envelope {
    let ip = |bits: u32| IpAddr::V4(Ipv4Addr::from_bits(bits));
    let mut envelope = Envelope::new(ip(key.src_ip), ip(key.dst_ip), key.src_port);
    envelope.class = match frame.carries {
        Carries::Data { .. } if frame.is_marked => DATA_DSCP << 2 | CE,
        Carries::Data { .. } => DATA_DSCP << 2 | ECT,
        Carries::Notification => CNP_DSCP << 2,
        _ => DATA_DSCP << 2,
    };
    envelope
}

/// What a data packet does, by its place in the message.
fn operation(verb: Verb, is_first: bool, is_last: bool) -> Operation {
    use Operation::{
        SendFirst, SendLast, SendMiddle, SendOnly, WriteFirst, WriteLast, WriteLastImmediate,
        WriteMiddle, WriteOnly, WriteOnlyImmediate,
    };
    match (verb, is_first, is_last) {
        (Verb::Send, true, true) => SendOnly,
        (Verb::Send, true, false) => SendFirst,
        (Verb::Send, false, true) => SendLast,
        (Verb::Send, false, false) => SendMiddle,
        (Verb::WriteWithImmediate, true, true) => WriteOnlyImmediate,
        (Verb::WriteWithImmediate, false, true) => WriteLastImmediate,
        (_, true, true) => WriteOnly,
        (_, true, false) => WriteFirst,
        (_, false, true) => WriteLast,
        (_, false, false) => WriteMiddle,
    }
}

impl Captured {
    /// What is told of it.
    pub fn words(&self) -> String {
        use report::number::grouped;
        let Packets { data, acks, naks, cnps, pauses, .. } = self.packets;
        let size = Bytes::new(self.file_bytes);
        let mut words = format!(
            "{}: {size:.1} with {} data packets, {} acknowledgements, {} negative ones, {} \
             notifications and {} pauses, each where its way ended",
            self.file,
            grouped(data),
            grouped(acks),
            grouped(naks),
            grouped(cnps),
            grouped(pauses),
        );
        if 1 < self.runs {
            words += &format!(
                "; {} runs stand in it, one behind the other, each with queue pairs of its own",
                grouped(self.runs)
            );
        }
        if 0 < self.cut {
            let limit = Bytes::new(self.limit_bytes);
            words += &format!(
                "; {} packets after that were left out (--pcap-limit {limit:.0})",
                grouped(self.cut)
            );
        } else if 0 < self.under_way {
            let more = grouped(self.under_way);
            words += &format!("; {more} data packets were still under way at the end");
        }
        words + "."
    }
}
