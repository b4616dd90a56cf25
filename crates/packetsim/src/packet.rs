//! A packet on its way: a small record that is copied from ring to ring, and what its headers cost.
//!
//! Nothing here owns memory. A packet knows its queue pair, its sequence number and where in the
//! list of paths its next link stands; everything else is looked up where it is needed.
//!
//! Header sizes are those of RoCEv2 over IPv4 without options (InfiniBand Architecture
//! Specification, Annex A17; Volume 1, chapter 9): Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16
//! on the first packet of a write, AETH 4 on an acknowledgement, ICRC 4, FCS 4. Preamble, start
//! delimiter and the gap between frames (IEEE 802.3: 8 + 12 bytes) take time on the wire but no
//! room in a buffer.

use fabric::LinkId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Rate, Span};

use crate::ids::Maybe;
use crate::limits::{GAP_BYTES, PACKET_BYTES, Refusal};
use crate::nic::{Service, Verb};

/// Traffic classes of a port, served in this order where they are strict. Frames of the link
/// itself (pauses) are in none: they are never queued behind anything and never paused.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Class(u8);

/// How many there are.
const CLASSES: usize = 1 + LANES;
/// Acknowledgements and notifications, where they have a class of their own.
pub(crate) const CONTROL: Class = Class(0);
/// Data, in the first of its lanes; the others follow.
pub(crate) const DATA: Class = Class(1);
/// Lanes of data: InfiniBand's virtual lanes, or priorities on Ethernet.
pub(crate) const LANES: usize = 4;
/// In masks of classes: all lanes of data.
pub(crate) const DATA_CLASSES: u8 = ((1 << LANES) - 1) << DATA.0;

impl Class {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> + Clone {
        (0..CLASSES as u8).map(Self)
    }

    /// Those of data.
    pub(crate) fn lanes() -> impl Iterator<Item = Self> + Clone {
        Self::all().skip(1)
    }

    /// The class of a lane of data.
    #[inline]
    pub(crate) fn of_lane(lane: usize) -> Self {
        assert!(lane < LANES, "lane {lane}");
        Self(DATA.0 + lane as u8)
    }

    /// The one with this number.
    #[inline]
    pub(crate) fn from_index(index: usize) -> Self {
        assert!(index < CLASSES, "class {index}");
        Self(index as u8)
    }

    /// The first of a mask that is not empty.
    #[inline]
    pub(crate) fn first_of(mask: u8) -> Self {
        Self(mask.trailing_zeros() as u8)
    }

    /// Its number.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The lane, of a class of data.
    #[inline]
    pub(crate) fn lane(self) -> usize {
        usize::from(self.0 - DATA.0)
    }

    /// The mask of it alone.
    #[inline]
    pub(crate) fn bit(self) -> u8 {
        1 << self.0
    }

    /// Whether a mask has it.
    #[inline]
    pub(crate) fn is_in(self, mask: u8) -> bool {
        mask >> self.0 & 1 == 1
    }
}

/// Something for each class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByClass<T>([T; CLASSES]);

impl<T> ByClass<T> {
    /// In the order of the classes.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> std::ops::Index<Class> for ByClass<T> {
    type Output = T;
    #[inline]
    fn index(&self, class: Class) -> &T {
        &self.0[class.index()]
    }
}

impl<T> std::ops::IndexMut<Class> for ByClass<T> {
    #[inline]
    fn index_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[class.index()]
    }
}

/// What a packet is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// A piece of a message.
    #[default]
    Data = 0,
    /// Everything before its sequence number has arrived.
    Ack = 1,
    /// The packet with its sequence number is missing.
    Nak = 2,
    /// Congestion was met (CNP).
    Notification = 3,
    /// The sender may go on to its sequence number (clear to send).
    Grant = 4,
    /// Stop, or go on, with a class: a PFC frame.
    Pause = 5,
    /// The headers of a data packet whose payload a switch has cut off.
    Trimmed = 6,
    /// Cells of a packet that crosses a scheduled fabric; `route` is the number of the crossing.
    Cell = 7,
}

pub(crate) const PURPOSES: usize = 8;

/// Met congestion on its way (CE), or acknowledges a packet that did.
pub(crate) const MARKED: u8 = 1;
/// `sent` is the number of a list of hop stamps, not a time.
pub(crate) const STAMPED: u8 = 2;
/// A pause frame that ends a pause.
pub(crate) const RESUME: u8 = 4;
/// A data packet whose sender cannot go on before it is acknowledged.
pub(crate) const ASKS: u8 = 4;
/// Damaged on the way; the receiver will throw it away.
pub(crate) const DAMAGED: u8 = 8;
/// Acknowledges a packet that has not arrived before, in order or not.
pub(crate) const FRESH: u8 = 16;
/// Its way is chosen at every switch; `route` is its queue pair.
pub(crate) const ROAMING: u8 = 32;

/// Where the lane of a data packet stands among its flags: two bits.
pub(crate) const LANE_SHIFT: u32 = 6;

/// In the list of paths: the end of one, with the number of its queue pair in the other bits.
pub(crate) const PATH_END: u32 = 1 << 31;

/// One packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packet {
    /// When it reaches the far end of its link: the lower half of picoseconds. That is enough for
    /// wires of 280 km; with longer ones the upper half stands beside it ([`crate::ring::Tag`]).
    /// While it waits, when it joined the queue: see [`joined`].
    pub at: u32,
    /// Its sequence number, or the one it acknowledges, asks for or grants.
    pub psn: u32,
    /// When its payload was first handed to the wire, in nanoseconds (wrapping), or its stamps.
    pub sent: u32,
    /// Where its next link stands in the list of paths; its queue pair's number stands at the end.
    pub route: u32,
    /// Bytes in a buffer: headers and payload.
    pub size: u16,
    /// What it is for.
    pub purpose: Purpose,
    /// Marks and such.
    pub flags: u8,
}

// Small on purpose: packets are copied at every hop.
const _: () = assert!(size_of::<Packet>() == 20);

impl Packet {
    /// Its lane.
    #[inline]
    pub(crate) fn lane(&self) -> usize {
        usize::from(self.flags >> LANE_SHIFT)
    }

    /// When it reaches the far end of its link, given an instant not later than that.
    #[inline]
    pub(crate) fn arrival(&self, before: u64) -> u64 {
        before + u64::from(self.at.wrapping_sub(before as u32))
    }
}

/// When a packet joins a queue: the low bits of 1,024 ps, enough for four seconds of waiting.
#[inline]
pub(crate) fn joined(now: u64) -> u32 {
    (now >> 10) as u32
}

/// How long a packet has waited that joined its queue then.
pub(crate) fn waited(joined_at: u32, now: u64) -> Span {
    Span::from_ps(u64::from(joined(now).wrapping_sub(joined_at)) << 10)
}

/// A packet that waits in a switch or NIC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// The packet.
    pub packet: Packet,
    /// The link over which it came in.
    pub from: Maybe<LinkId>,
}

/// What one direction of time and size is measured in.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Serialization and pacing are exact to a picosecond, rounded up.
    #[default]
    Picosecond,
    /// They are truncated to whole nanoseconds, and every departure is an event of its own, so that
    /// ties run in the order in which transmissions began: as in HPCC's ns-3. For comparisons with
    /// it, and slower.
    Nanosecond,
}

impl Clock {
    /// How long `bytes` take at `rate`, in picoseconds.
    pub(crate) fn time_to_send(self, rate: Rate, bytes: u64) -> u64 {
        match self {
            Self::Picosecond => rate.time_to_send(Bytes::new(bytes)).as_ps(),
            // ns-3 forms the time as a float of seconds and cuts it to 64.64 fixed point, so that
            // a whole number of nanoseconds comes out one too low.
            Self::Nanosecond => {
                let scaled = u128::from(bytes) * 8_000_000_000;
                (scaled.saturating_sub(1) / u128::from(rate.as_bps())) as u64 * 1_000
            }
        }
    }
}

/// Bytes of headers, by kind of packet. The defaults are RoCEv2's over IPv4.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Headers {
    /// On every data packet.
    pub data: Bytes,
    /// More on the first packet of a message (RETH: where it is written to).
    pub first: Bytes,
    /// More on the last packet of a message (immediate data, which tells the receiver).
    pub last: Bytes,
    /// A whole acknowledgement.
    pub ack: Bytes,
    /// A whole congestion notification (CNP).
    pub notification: Bytes,
    /// A whole clear-to-send message.
    pub grant: Bytes,
    /// A whole PFC frame.
    pub pause: Bytes,
    /// Preamble and gap between frames: time on the wire, no room in a buffer.
    pub gap: Bytes,
}

impl Default for Headers {
    fn default() -> Self {
        // Ethernet 14 + IPv4 20 + UDP 8 + BTH 12 + ICRC 4 + FCS 4 (see the top of this file).
        let frame = 14 + 20 + 8 + 12 + 4 + 4;
        Self {
            data: Bytes::new(frame),
            first: Bytes::new(16),                // RETH
            last: Bytes::new(4),                  // ImmDt
            ack: Bytes::new(frame + 4),           // AETH
            notification: Bytes::new(frame + 16), // 16 reserved bytes, Annex A17.9.3
            grant: Bytes::new(frame + 16 + 64),   // RETH and NCCL's 64-byte FIFO element
            pause: Bytes::new(64),                // the shortest Ethernet frame
            gap: Bytes::new(20),
        }
    }
}

/// Whether what can be computed is simulated all the same.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forward {
    /// Every packet, always.
    Off,
    /// What repeats itself exactly is simulated once, and time jumps over the rest: completions,
    /// bytes, deepest queues, marks and pauses are the same to the picosecond.
    #[default]
    Exact,
    /// The same, and acknowledgements arrive in the time that their way takes but take no time of
    /// the links, and time in which rates stay as they are is passed over. Findings say how well
    /// completions are known.
    Bounded,
}

/// How messages become packets.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PacketConfig {
    /// Payload of a full packet: the path MTU.
    pub mtu: Bytes,
    /// What headers cost.
    pub headers: Headers,
    /// The grain of time. Anything but picoseconds is for comparisons only.
    pub clock: Clock,
    /// The most bytes of each phase of a step that are run; what is left takes in proportion. Left
    /// out: all of them where that ends within ten minutes, else as many as do.
    pub phase_bytes: Option<Bytes>,
    /// Whether what can be computed is simulated all the same.
    pub forward: Forward,
    /// Threads of one run. Left out: as many as there are processors where one run is asked for and
    /// large enough, else one. Results do not depend on it.
    pub threads: Option<u32>,
}

impl Default for PacketConfig {
    fn default() -> Self {
        // 4096 is the largest MTU of InfiniBand and RoCE (IBTA Volume 1, 9.2) and what training
        // clusters use.
        let mtu = Bytes::new(4096);
        Self {
            mtu,
            headers: Headers::default(),
            clock: Clock::Picosecond,
            phase_bytes: None,
            forward: Forward::Exact,
            threads: None,
        }
    }
}

/// More header than this is none, and a larger packet of control is none.
const MOST_HEADER: Bytes = Bytes::from_kib(4);
const MOST_CONTROL: Bytes = Bytes::from_kib(32);

/// So that a packet with all its headers has a size of 16 bits.
const MTU: [Bytes; 2] = [Bytes::new(64), Bytes::from_kib(48)];

/// More threads than this wait for each other more than they work.
const THREADS: [u32; 2] = [1, 64];

/// Less of a phase is mostly latency.
const PHASE: [Bytes; 2] = [Bytes::from_kib(64), Bytes::new(1 << 50)];

impl Ranged for PacketConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.within("mtu", self.mtu, MTU);
        if let Some(bytes) = self.phase_bytes {
            check.within("phase_bytes", bytes, PHASE);
        }
        if let Some(threads) = self.threads {
            check.within("threads", threads, THREADS);
        }
        check.table("headers", &self.headers);
    }
}

impl Ranged for Headers {
    fn ranges(&self, check: &mut Ranges) {
        let Self { data, first, last, ack, notification, grant, pause, gap } = *self;
        let added = [("data", data), ("first", first), ("last", last), ("gap", gap)];
        for (key, bytes) in added {
            check.at_most(key, bytes, MOST_HEADER);
        }
        let whole =
            [("ack", ack), ("notification", notification), ("grant", grant), ("pause", pause)];
        for (key, bytes) in whole {
            check.at_most(key, bytes, MOST_CONTROL);
        }
    }
}

/// Sizes as the hot loop wants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub mtu: u32,
    pub data: u32,
    pub first: u32,
    pub last: u32,
    /// More on the packet of a message that has no other.
    pub only: u32,
    pub ack: u16,
    /// A whole packet that asks for data once more.
    pub nak: u16,
    pub notification: u16,
    pub grant: u16,
    pub pause: u16,
    pub gap: u64,
}

impl Sizes {
    /// From the settings, with what the congestion control adds to data and acknowledgements.
    pub(crate) fn new(
        config: &PacketConfig,
        data_more: u64,
        ack_more: u64,
    ) -> Result<Self, Refusal> {
        let headers = &config.headers;
        let whole = |bytes: u64| PACKET_BYTES.check(bytes).map(|()| bytes as u16);
        let mtu = config.mtu.get();
        whole(mtu + headers.data.get() + data_more + headers.first.get() + headers.last.get())?;
        GAP_BYTES.check(headers.gap.get())?;
        Ok(Self {
            mtu: mtu as u32,
            data: (headers.data.get() + data_more) as u32,
            first: headers.first.get() as u32,
            last: headers.last.get() as u32,
            only: (headers.first.get() + headers.last.get()) as u32,
            nak: whole(headers.ack.get() + ack_more)?,
            ack: whole(headers.ack.get() + ack_more)?,
            notification: whole(headers.notification.get())?,
            grant: whole(headers.grant.get())?,
            pause: whole(headers.pause.get())?,
            gap: headers.gap.get(),
        })
    }

    /// The same with the headers of an operation (InfiniBand Architecture Specification, Volume 1,
    /// 9.2 and 9.4): a send has neither address nor immediate data; a read's answers have an AETH
    /// of 4 bytes first and last, and its request is a packet of headers. What is missing is asked
    /// for by another request, unless answers are acknowledged.
    pub(crate) fn of_verb(self, verb: Verb, no_acks: bool) -> Self {
        const AETH: u32 = 4;
        let request = (self.data + self.first) as u16;
        match verb {
            Verb::WriteWithImmediate => self,
            Verb::Write => Self { last: 0, only: self.first, ..self },
            Verb::Send => Self { first: 0, last: 0, only: 0, ..self },
            Verb::Read => {
                let nak = if no_acks { request } else { self.nak };
                Self { first: AETH, last: AETH, only: AETH, grant: request, nak, ..self }
            }
        }
    }

    /// The same with what a service adds: every datagram has a DETH and is a send of its own.
    pub(crate) fn of_service(self, service: Service) -> Self {
        const DETH: u32 = 8;
        match service {
            Service::Rc | Service::Uc => self,
            Service::Ud => Self { data: self.data + DETH, first: 0, last: 0, only: 0, ..self },
        }
    }

    /// Bytes of a message's packet besides those of every data packet.
    #[inline]
    pub(crate) fn more(&self, is_first: bool, is_last: bool) -> u32 {
        match (is_first, is_last) {
            (true, true) => self.only,
            (true, false) => self.first,
            (false, true) => self.last,
            (false, false) => 0,
        }
    }

    /// Bytes of the largest packet in a buffer.
    pub(crate) fn largest(&self) -> u32 {
        self.mtu + self.data + self.only.max(self.first).max(self.last)
    }

    /// How many packets a message of so many bytes becomes: even an empty one is a packet.
    pub(crate) fn packets(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(self.mtu)).max(1))
            .expect("a message of fewer than 2³² packets")
    }
}

/// The time that a lone message needs: what tests and estimates compare with.
pub fn lone_message(config: &PacketConfig, hops: &[(Rate, Span)], bytes: Bytes) -> Span {
    let sizes = Sizes::new(config, 0, 0).expect("packets of at most 64 KiB");
    let packets = u64::from(sizes.packets(bytes.get()));
    let size = |index: u64| {
        let payload = if index + 1 == packets {
            bytes.get() - (packets - 1) * u64::from(sizes.mtu)
        } else {
            u64::from(sizes.mtu)
        };
        let more = sizes.more(index == 0, index + 1 == packets);
        payload + u64::from(sizes.data + more) + sizes.gap
    };
    let send = |rate: Rate, bytes: u64| Span::from_ps(config.clock.time_to_send(rate, bytes));
    // Each hop holds a packet until the one before it has left and it has itself arrived.
    let mut free = vec![Span::ZERO; hops.len()];
    let mut done = Span::ZERO;
    for index in 0..packets {
        let mut at = Span::ZERO;
        for (&(rate, delay), free) in hops.iter().zip(&mut free) {
            *free = at.max(*free) + send(rate, size(index));
            at = *free + delay;
        }
        done = at;
    }
    let ack = u64::from(sizes.ack) + sizes.gap;
    hops.iter().fold(done, |at, &(rate, delay)| at + send(rate, ack) + delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nanosecond_clock_truncates_as_ns3_does() {
        let at = |bytes| Clock::Nanosecond.time_to_send(Rate::from_gbps(400), bytes);
        assert_eq!(
            [at(4144), at(4152), at(4186), at(60), at(43)],
            [82_000, 83_000, 83_000, 1_000, 0]
        );
        let slow = Clock::Nanosecond.time_to_send(Rate::from_gbps(1), 4152);
        assert_eq!(slow, 33_215_000);
        assert_eq!(Clock::Picosecond.time_to_send(Rate::from_gbps(400), 4144), 82_880);
    }

    #[test]
    fn a_full_roce_packet_is_4158_bytes_in_a_buffer() {
        let sizes = Sizes::new(&PacketConfig::default(), 0, 0).expect("they fit");
        assert_eq!(sizes.mtu + sizes.data, 4158);
        assert_eq!(sizes.ack, 66);
        assert_eq!([sizes.packets(0), sizes.packets(4096), sizes.packets(4097)], [1, 1, 2]);
    }
}
