//! A tap on the wires: every packet once, where its way ends.
//!
//! A packet is noted when it reaches the NIC that it is for, or where it is lost; a pause frame
//! when it reaches the port that it is for. So no packet is there twice, marks are those that
//! arrived, and what was sent again follows from sequence numbers that come twice. What is still
//! under way when the run ends is not there. Nothing of this costs anything unless it is asked for:
//! it hangs on the recorder ([`crate::measure`]).
//!
//! Stations run ahead of the clock, so packets are noted a little out of order. What is kept is the
//! beginning of the run all the same: behind the latest packet that had to go, nothing is kept.

use std::collections::BinaryHeap;

use fabric::LinkId;
use fabric::hash::FlowKey;
use units::{Bytes, Span, Time};

use crate::ids::{PairId, Raw};
use crate::packet::{Class, MARKED, PATH_END, Packet, Purpose, RESUME, ROAMING, STAMPED};
use crate::pair::Message;
use crate::port::NOWHERE;
use crate::simulation::Simulation;

/// What a packet of a capture is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Carries {
    /// A piece of a message.
    Data {
        /// Where the message stands in what its queue pair sends, in bytes.
        message: u64,
        /// Bytes of the whole message.
        message_bytes: u64,
        /// Its bytes in this packet.
        payload: u32,
        /// Whether the message begins with it.
        is_first: bool,
        /// Whether it ends with it.
        is_last: bool,
    },
    /// Everything before its sequence number has arrived, so many whole messages among it.
    Ack {
        /// Whole messages that have arrived.
        messages: u32,
    },
    /// The packet with its sequence number is missing.
    Nak {
        /// Whole messages before it.
        messages: u32,
    },
    /// Congestion was met (CNP).
    Notification,
    /// Clear to send.
    Grant,
    /// Stop with a lane of data.
    Pause {
        /// The lane.
        lane: u8,
    },
    /// Go on with it.
    Resume {
        /// The lane.
        lane: u8,
    },
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// When it arrived or was lost.
    pub at: Time,
    /// When it was sent, to the nanosecond; of an acknowledgement, when the packet that it answers
    /// was. Nothing where packets carry stamps instead.
    pub sent: Option<Time>,
    /// The link at whose far end it arrived, or on which or before which it was lost.
    pub link: LinkId,
    /// Whether it was lost.
    pub is_lost: bool,
    /// What its queue pair shows on the wire, from the sender of this packet on; nothing of pauses.
    pub key: Option<FlowKey>,
    /// Its queue pair, by number in the order they were opened.
    pub pair: u32,
    /// Its sequence number; of an acknowledgement the one that is expected next.
    pub psn: u32,
    /// Whether it met congestion on its way; of an acknowledgement, whether it says so.
    pub is_marked: bool,
    /// What it is for.
    pub carries: Carries,
}

/// What a tap has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capture {
    /// In order of time, from the start of the run.
    pub frames: Vec<Frame>,
    /// Packets that were not kept because there were too many.
    pub left_out: u64,
    /// Headers whose payload a switch cut off: no RoCE packet looks so, and they are not kept.
    pub trimmed: u64,
    /// Bytes of the packets that were kept.
    pub bytes: u64,
}

/// What taps on several runs have seen, one run after the other, up to so many bytes of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tape {
    left: u64,
    /// The runs.
    pub runs: Vec<Taped>,
}

/// One run of a tape.
#[derive(Clone, Debug, PartialEq)]
pub struct Taped {
    /// What was run.
    pub what: String,
    /// Its packets.
    pub capture: Capture,
    /// How long it took.
    pub lasted: Span,
    /// Data packets that were sent.
    pub sent: u64,
}

impl Tape {
    /// An empty one for so many bytes.
    pub fn new(limit: Bytes) -> Self {
        Self { left: limit.get(), runs: Vec::new() }
    }

    /// The bytes that it still takes.
    pub fn left(&self) -> Bytes {
        Bytes::new(self.left)
    }

    /// Adds a run.
    pub fn add(&mut self, run: Taped) {
        self.left = self.left.saturating_sub(run.capture.bytes);
        self.runs.push(run);
    }
}

/// A packet as it was noted.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Noted {
    at: u64,
    order: u64,
    link: LinkId,
    pair: u32,
    psn: u32,
    /// The low 32 bits of the nanosecond at which it was sent.
    sent: u32,
    size: u16,
    purpose: u8,
    flags: u8,
    is_lost: bool,
}

/// A capture in the making.
#[derive(Debug)]
pub(crate) struct Tap {
    /// The most bytes of packets that are kept.
    limit: u64,
    bytes: u64,
    kept: BinaryHeap<Noted>,
    order: u64,
    /// Nothing at or behind this is kept.
    end: Option<(u64, u64)>,
    left_out: u64,
    trimmed: u64,
}

impl Tap {
    /// One that keeps so many bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let kept = BinaryHeap::new();
        Self { limit, bytes: 0, kept, order: 0, end: None, left_out: 0, trimmed: 0 }
    }

    fn note(&mut self, noted: Noted) {
        if noted.purpose == Purpose::Trimmed as u8 {
            self.trimmed += 1;
            return;
        }
        self.order += 1;
        let noted = Noted { order: self.order, ..noted };
        if self.end.is_some_and(|end| end <= (noted.at, noted.order)) {
            self.left_out += 1;
            return;
        }
        self.bytes += u64::from(noted.size);
        self.kept.push(noted);
        while self.limit < self.bytes
            && let Some(last) = self.kept.pop()
        {
            self.bytes -= u64::from(last.size);
            self.left_out += 1;
            self.end = Some((last.at, last.order));
        }
    }
}

/// The messages of every queue pair, in order, given the last of each. Each knows the one after it.
fn messages_of(lasts: &[u32], all: &[Message]) -> Vec<Vec<Message>> {
    let mut follows = vec![false; all.len()];
    for message in all {
        if let Some(after) = follows.get_mut(message.next as usize) {
            *after = true;
        }
    }
    let mut pair_of = vec![NOWHERE; all.len()];
    for (pair, last) in lasts.iter().enumerate() {
        if let Some(known) = pair_of.get_mut(*last as usize) {
            *known = pair as u32;
        }
    }
    let mut of_pairs = vec![Vec::new(); lasts.len()];
    for first in (0..all.len()).filter(|at| !follows[*at]) {
        let (mut chain, mut at) = (vec![all[first]], first);
        while let Some(next) = all.get(all[at].next as usize) {
            at = all[at].next as usize;
            chain.push(*next);
        }
        if let Some(messages) = of_pairs.get_mut(pair_of[at] as usize) {
            *messages = chain;
        }
    }
    of_pairs
}

impl Simulation<'_> {
    /// Notes a packet whose way ends, if somebody captures.
    #[cold]
    pub(crate) fn capture(&mut self, link: LinkId, packet: &Packet, is_lost: bool) {
        let has_tap = self.accounts.recorder.as_ref().is_some_and(|to| to.tap.is_some());
        if !has_tap {
            return;
        }
        let pair = match packet.purpose {
            Purpose::Pause => NOWHERE,
            _ => self.pair_under_way(packet),
        };
        let Packet { psn, sent, size, purpose, flags, .. } = *packet;
        let (at, order, purpose) = (self.time.now, 0, purpose as u8);
        let noted = Noted { at, order, link, pair, psn, sent, size, purpose, flags, is_lost };
        if let Some(tap) = self.accounts.recorder.as_mut().and_then(|to| to.tap.as_mut()) {
            tap.note(noted);
        }
    }

    /// The queue pair of a packet anywhere on its way.
    pub(crate) fn pair_under_way(&self, packet: &Packet) -> u32 {
        if packet.purpose == Purpose::Cell {
            return self.pair_under_way(self.net.schedule.packet_of(packet));
        }
        if packet.flags & ROAMING != 0 {
            return packet.route;
        }
        let mut ahead = self.net.paths[packet.route as usize..].iter();
        let end = ahead.find(|at| **at & PATH_END != 0);
        end.expect("every path has an end") & !PATH_END
    }

    /// What the tap has seen, with what its packets carry.
    pub(crate) fn finish_capture(&mut self) -> Option<Capture> {
        let tap = self.accounts.recorder.as_mut()?.tap.take()?;
        let lasts: Vec<u32> = self.ends.pairs.iter().map(|pair| pair.last).collect();
        let messages = messages_of(&lasts, &self.ends.messages);
        let frame = |noted: &Noted| self.frame(noted, &messages);
        let Tap { left_out, trimmed, bytes, kept, .. } = tap;
        let frames = kept.into_sorted_vec().iter().map(frame).collect();
        Some(Capture { frames, left_out, trimmed, bytes })
    }

    fn frame(&self, noted: &Noted, messages: &[Vec<Message>]) -> Frame {
        let Noted { at, link, pair, psn, flags, is_lost, .. } = *noted;
        let of_pair = messages.get(pair as usize).map_or(&[][..], Vec::as_slice);
        // Whole messages before a sequence number.
        let before = of_pair.partition_point(|message| message.end() <= psn);
        let lane = || Class::from_index(psn as usize).lane() as u8;
        let carries = match noted.purpose {
            purpose if purpose == Purpose::Data as u8 => {
                let message = &of_pair[before];
                Carries::Data {
                    message: message.before,
                    message_bytes: message.bytes,
                    payload: message.payload(psn, self.input.sizes.mtu),
                    is_first: psn == message.first,
                    is_last: psn + 1 == message.end(),
                }
            }
            purpose if purpose == Purpose::Ack as u8 => Carries::Ack { messages: before as u32 },
            purpose if purpose == Purpose::Nak as u8 => Carries::Nak { messages: before as u32 },
            purpose if purpose == Purpose::Notification as u8 => Carries::Notification,
            purpose if purpose == Purpose::Grant as u8 => Carries::Grant,
            _ if flags & RESUME == 0 => Carries::Pause { lane: lane() },
            _ => Carries::Resume { lane: lane() },
        };
        let keys = self.net.network.keys.get(PairId::of(pair));
        let forth = matches!(carries, Carries::Data { .. });
        let key = keys.map(|(there, back)| if forth { *there } else { *back });
        let ago = ((at / 1_000) as u32).wrapping_sub(noted.sent);
        let sent = Time::from_ps((at / 1_000).saturating_sub(ago.into()) * 1_000);
        let sent = (flags & STAMPED == 0).then_some(sent);
        let (at, is_marked) = (Time::from_ps(at), flags & MARKED != 0);
        Frame { at, sent, link, is_lost, key, pair, psn, is_marked, carries }
    }
}
