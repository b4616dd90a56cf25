//! Credits: a sender may send only into memory that the receiver has granted (InfiniBand).
//!
//! Every input port of a switch has a buffer of its own for data, counted in blocks of 64 bytes.
//! The sender knows how many blocks its packets still occupy there; when a full packet would not
//! fit any more it stalls, and it goes on when the switch has sent enough of its packets on and
//! tells it so. Nothing is ever sent that has no room, so nothing is ever dropped, and a stall
//! spreads from switch to switch as a pause does. Stalls are counted as pauses are.
//!
//! Source: InfiniBand Architecture Specification, Volume 1, section 7.9 (flow control: FCTBS and
//! FCCL in units of 64 bytes, for each virtual lane).
//!
//! # Where this model departs from it
//!
//! * There is one lane for data; acknowledgements have a lane of their own that never runs short.
//! * A sender that is not stalled learns at once what has been sent on. So the buffer counts
//!   without what is on the way for the length of the cable, which only a stalled sender waits for.
//! * Credit updates take the wire only when they end a stall.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::packet::{DATA, Packet, RESUME};
use crate::port::{NOWHERE, Port};
use crate::simulation::Simulation;

/// Bytes of a block (section 7.9.4.4).
const BLOCK: u32 = 64;

/// Credit-based flow control.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Whether data is sent by credits. It then takes the place of PFC.
    pub enabled: bool,
    /// Buffer of an input port; without it, what is on the way in a round trip of the cable at the
    /// link's rate, and `spare`.
    pub buffer: Option<Bytes>,
    /// What an input port can hold besides.
    pub spare: Bytes,
}

impl Default for CreditConfig {
    fn default() -> Self {
        // Illustrative: 64 packets of 4 KiB. Quantum's buffers are not published.
        Self { enabled: false, buffer: None, spare: Bytes::from_kib(256) }
    }
}

/// Who owes how many blocks to whom.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    /// Blocks that may be on the way to, or held by, the far end of each link; zero for links to
    /// endpoints, which take everything. Empty without credits.
    limits: Vec<u32>,
    /// Blocks that are.
    owed: Vec<u32>,
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
        let limit = |port: &Port| {
            if port.into == NOWHERE {
                return 0;
            }
            let one_way = port.rate.bytes_in(units::Span::from_ps(port.delay)).get();
            let held = match config.buffer {
                Some(buffer) => buffer.get().saturating_sub(one_way),
                None => one_way + config.spare.get(),
            };
            u32::try_from(held / u64::from(BLOCK)).unwrap_or(u32::MAX / 2).max(2 * full)
        };
        let limits: Vec<u32> = ports.iter().map(limit).collect();
        let owed = vec![0; limits.len()];
        Self { limits, owed, full }
    }

    /// Whether credits are counted.
    #[inline]
    pub(crate) fn count(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Whether a full packet may be sent over a link.
    #[inline]
    fn suffice(&self, link: usize) -> bool {
        !self.count() || self.limits[link] == 0 || self.owed[link] + self.full <= self.limits[link]
    }
}

impl Simulation<'_> {
    /// A packet goes onto a wire: its blocks are lent, and if the next full packet would not fit
    /// the sender stalls.
    #[inline]
    pub(crate) fn spend(&mut self, link: usize, packet: &Packet) {
        let class = usize::from(self.rules.class_in_switch[packet.purpose as usize]);
        if class != DATA || self.credits.limits[link] == 0 {
            return;
        }
        self.credits.owed[link] += blocks(u32::from(packet.size));
        if !self.credits.suffice(link) {
            self.stall(link);
        }
    }

    /// A sender has no credits left.
    #[cold]
    fn stall(&mut self, link: usize) {
        if self.ports[link].paused >> DATA & 1 == 1 {
            return;
        }
        self.ports[link].paused |= 1 << DATA;
        self.ports[link].pausing |= 1 << DATA;
        self.counters.pauses += 1;
        self.pauses[link].since = self.now;
        self.make_eventful(self.ports[link].switch);
    }

    /// A switch has sent on, or lost, a packet that came over a link: its blocks are free again,
    /// and a sender that waits for them is told.
    pub(crate) fn give_credit(&mut self, link: usize, size: u32) {
        if self.credits.limits[link] == 0 {
            return;
        }
        self.credits.owed[link] -= blocks(size);
        if self.ports[link].pausing >> DATA & 1 == 1 && self.credits.suffice(link) {
            self.ports[link].pausing &= !(1 << DATA);
            self.send_pause(link, DATA, RESUME);
        }
    }
}
