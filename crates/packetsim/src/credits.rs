//! Credits: a sender may send only into memory that the receiver has granted (InfiniBand).
//!
//! Every input port of a switch has a buffer of its own for data, counted in blocks of 64 bytes.
//! The sender knows how many blocks its packets still occupy there; when a full packet would not
//! fit any more it stalls, and it goes on when the switch has sent enough of its packets on and
//! tells it so. Nothing is ever sent that has no room, so nothing is ever dropped, and a stall
//! spreads from switch to switch as a pause does.
//!
//! A port has several virtual lanes for data, each with a queue, a buffer at the far end and
//! credits of its own; the lanes that may send take turns. A connection's service level says which
//! lane its packets take on every link (`sl_to_vl`). So a tenant whose packets stall holds back
//! nobody in another lane.
//!
//! A stall is counted, and its length measured, while something waits for it (what counters of
//! InfiniBand ports call PortXmitWait); running out of credits with nothing to send is none.
//!
//! Source: InfiniBand Architecture Specification, Volume 1, section 7.9 (flow control: FCTBS and
//! FCCL in units of 64 bytes, for each virtual lane).
//!
//! # Where this model departs from it
//!
//! * Acknowledgements have a lane of their own that never runs short.
//! * Lanes take turns packet by packet, without the specification's tables of weights, and a
//!   service level is mapped to the same lane everywhere.
//! * A sender that is not stalled learns at once what has been sent on. So the buffer counts
//!   without what is on the way for the length of the cable, which only a stalled sender waits for.
//! * Credit updates take the wire only when they end a stall.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::packet::{DATA, LANES, Packet, RESUME};
use crate::port::{NOWHERE, Port};
use crate::simulation::Simulation;

/// Bytes of a block (section 7.9.4.4).
const BLOCK: u32 = 64;

const NEVER: u64 = u64::MAX;

/// Credit-based flow control.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Whether data is sent by credits. It then takes the place of PFC.
    pub enabled: bool,
    /// Buffer of an input port for each lane; without it, what is on the way in a round trip of
    /// the cable at the link's rate, and a lane's part of `spare`.
    pub buffer: Option<Bytes>,
    /// What an input port can hold besides, all lanes together.
    pub spare: Bytes,
    /// Virtual lanes for data, 1 to 4.
    pub lanes: u8,
    /// The lane of each service level; those beyond the list take the last.
    pub sl_to_vl: Vec<u8>,
}

impl Default for CreditConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            buffer: None,
            // Illustrative: 64 packets of 4 KiB. Quantum's buffers are not published.
            spare: Bytes::from_kib(256),
            // OpenSM maps every service level to lane 0 unless QoS is switched on.
            lanes: 1,
            sl_to_vl: vec![0, 1, 2, 3],
        }
    }
}

impl CreditConfig {
    /// How many lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        if self.enabled { usize::from(self.lanes).clamp(1, LANES) } else { 1 }
    }

    /// The lane of a service level.
    pub(crate) fn lane(&self, level: u8) -> u8 {
        let known = self.sl_to_vl.get(usize::from(level)).or(self.sl_to_vl.last());
        known.copied().unwrap_or(0).min(self.lanes() as u8 - 1)
    }
}

/// Who owes how many blocks to whom.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    lanes: usize,
    /// Blocks that may be on the way to, or held by, the far end of each link in each lane; zero
    /// for links to endpoints, which take everything. Empty without credits.
    limits: Vec<u32>,
    /// Blocks that are, by link and lane.
    owed: Vec<u32>,
    /// Since when something waits for credits, by link and lane, or never.
    waiting: Vec<u64>,
    /// Blocks of a full packet.
    full: u32,
}

fn blocks(size: u32) -> u32 {
    size.div_ceil(BLOCK)
}

impl Credits {
    /// For these links, with packets of at most `largest` bytes.
    pub(crate) fn new(config: &CreditConfig, ports: &[Port], largest: u32) -> Self {
        if !config.enabled {
            return Self::default();
        }
        let full = blocks(largest);
        let lanes = config.lanes();
        let limit = |port: &Port| {
            if port.into == NOWHERE {
                return 0;
            }
            let one_way = port.rate.bytes_in(units::Span::from_ps(port.delay)).get();
            let held = match config.buffer {
                Some(buffer) => buffer.get().saturating_sub(one_way),
                None => one_way + config.spare.get() / lanes as u64,
            };
            u32::try_from(held / u64::from(BLOCK)).unwrap_or(u32::MAX / 2).max(2 * full)
        };
        let limits: Vec<u32> = ports.iter().map(limit).collect();
        let count = lanes * limits.len();
        Self { lanes, owed: vec![0; count], waiting: vec![NEVER; count], limits, full }
    }

    /// Whether credits are counted.
    #[inline]
    pub(crate) fn count(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Whether a full packet may be sent over a link in a lane.
    #[inline]
    fn suffice(&self, link: usize, place: usize) -> bool {
        self.limits[link] == 0 || self.owed[place] + self.full <= self.limits[link]
    }

    fn place(&self, link: usize, class: usize) -> usize {
        link * self.lanes + class - DATA
    }
}

impl Simulation<'_> {
    /// A packet goes onto a wire: its blocks are lent, and if the next full packet would not fit
    /// the sender stalls.
    #[inline]
    pub(crate) fn spend(&mut self, link: usize, packet: &Packet) {
        let class = self.class_of(packet);
        if class < DATA || self.credits.limits[link] == 0 {
            return;
        }
        let place = self.credits.place(link, class);
        self.credits.owed[place] += blocks(u32::from(packet.size));
        if !self.credits.suffice(link, place) {
            self.stall(link, class);
        }
    }

    /// A sender has no credits left.
    #[cold]
    fn stall(&mut self, link: usize, class: usize) {
        let port = &mut self.ports[link];
        if port.paused >> class & 1 == 1 {
            return;
        }
        port.paused |= 1 << class;
        port.pausing |= 1 << class;
        if 0 < port.queued[class] {
            self.waits_for_credit(link, class);
        }
        self.make_eventful(self.ports[link].switch);
    }

    /// Something has to wait for a lane's credits.
    pub(crate) fn waits_for_credit(&mut self, link: usize, class: usize) {
        let place = self.credits.place(link, class);
        if self.credits.waiting[place] == NEVER {
            self.credits.waiting[place] = self.now;
            self.counters.pauses += 1;
        }
    }

    /// A lane has credits again: a wait for them is over.
    pub(crate) fn has_credit(&mut self, link: usize, class: usize) {
        let place = self.credits.place(link, class);
        let since = std::mem::replace(&mut self.credits.waiting[place], NEVER);
        if since != NEVER {
            self.pauses[link].total += self.now - since;
        }
    }

    /// How long the lanes of a link have waited that still do.
    pub(crate) fn waited_for_credit(&self, link: usize) -> u64 {
        let lanes = self.credits.lanes;
        let waiting = self.credits.waiting.get(link * lanes..(link + 1) * lanes);
        let since = waiting.unwrap_or_default().iter().filter(|since| **since != NEVER);
        since.map(|since| self.now - since).sum()
    }

    /// A switch has sent on, or lost, a packet that came over a link: its blocks are free again,
    /// and a sender that waits for them is told.
    pub(crate) fn give_credit(&mut self, link: usize, packet: &Packet) {
        let class = self.class_of(packet);
        if class < DATA || self.credits.limits[link] == 0 {
            return;
        }
        let place = self.credits.place(link, class);
        self.credits.owed[place] -= blocks(u32::from(packet.size));
        let port = &mut self.ports[link];
        if port.pausing >> class & 1 == 1 && self.credits.suffice(link, place) {
            port.pausing &= !(1 << class);
            self.send_pause(link, class, RESUME);
        }
    }
}
