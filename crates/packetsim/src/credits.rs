//! Credits: a sender may send only into memory that the receiver has granted (InfiniBand).
//!
//! Every input port of a switch has a buffer of its own for data, counted in blocks of 64 bytes.
//! The sender knows how many blocks its packets still occupy there; when a full packet would not
//! fit any more it stalls. What the switch sends on frees its blocks, and the sender knows of it
//! when word has come back over the cable. Nothing is ever sent that has no room, so nothing is
//! ever dropped, and a stall spreads from switch to switch as a pause does.
//!
//! A port has several virtual lanes for data, each with a queue, a buffer at the far end and
//! credits of its own; the lanes that may send take turns, by their weights, and those of high
//! priority go first. A connection's service level says which lane its packets take on every link
//! (`sl_to_vl`). So a tenant whose packets stall holds back
//! nobody in another lane.
//!
//! A stall is counted, and its length measured, while something waits for it (what counters of
//! InfiniBand ports call PortXmitWait); running out of credits with nothing to send is none.
//!
//! Returning credits are no events. Each lane keeps a list of blocks and of the instants at which
//! they are known to be free, and looks at it only when its credits seem to be used up. If the list
//! does not help, the departures of the switch at the far end are applied until a cable's delay
//! ago: no later one can be known here. So the departures of a stalled port, too, are applied when
//! it is read.
//!
//! Source: InfiniBand Architecture Specification, Volume 1, section 7.9 (flow control: FCTBS and
//! FCCL in units of 64 bytes, for each virtual lane) and 7.6.9 (arbitration between them).
//!
//! # Where this model departs from it
//!
//! * Acknowledgements have a lane of their own that never runs short.
//! * A lane stands once in the tables of the arbiter, lanes of high priority are never held back
//!   for the others (its limit is "no limit"), NICs let queue pairs take turns whatever their
//!   lanes, and a service level is mapped to the same lane everywhere.
//! * A credit update is sent for every packet and takes no time on the wire.

use fabric::graph::Link;
use fabric::{Fabric, LinkId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Id, IdVec, Ranged, Ranges};

use crate::ids::PairId;
use crate::limits::{BLOCK_COUNT_BITS as COUNT_BITS, CREDIT_BYTES, Refusal};
use crate::packet::{ByClass, Class, DATA, DATA_CLASSES, LANES, Packet};
use crate::port::Port;
use crate::settings::{Settings, tier_of};
use crate::simulation::Simulation;

/// Bytes of a block (section 7.9.4.4).
pub(crate) const BLOCK: u32 = 64;

const NEVER: u64 = u64::MAX;

/// Credit-based flow control.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Whether data is sent by credits. It then takes the place of PFC.
    pub enabled: bool,
    /// Buffer of an input port for each lane; without it, what is on the way in a round trip of
    /// the cable and the switch's latency at the link's rate, and a lane's part of `spare`. Two
    /// full packets always fit.
    pub buffer: Option<Bytes>,
    /// What an input port can hold besides, all lanes together.
    pub spare: Bytes,
    /// Virtual lanes for data, 1 to 4. On Ethernet they are priorities, each with queues, pauses
    /// and headroom of its own.
    pub lanes: u8,
    /// The lane of each service level (on Ethernet: of each code point); those beyond the list take
    /// the last.
    pub sl_to_vl: Vec<u8>,
    /// How much each lane may send in its turn, in blocks of 64 bytes; a packet that is begun is
    /// sent whole. Lanes beyond the list, and those of weight 0, send one packet.
    pub weights: Vec<u8>,
    /// Lanes that go before the others.
    pub high_priority: Vec<u8>,
}

/// What a part of a fabric has of its own where credits are counted; what is left out is as
/// everywhere.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TierCredits {
    /// Buffer of an input port of these switches for each lane.
    pub buffer: Option<Bytes>,
    /// What an input port can hold besides, all lanes together.
    pub spare: Option<Bytes>,
    /// How much each lane may send in its turn, in blocks of 64 bytes.
    pub weights: Option<Vec<u8>>,
    /// Lanes that go before the others.
    pub high_priority: Option<Vec<u8>>,
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
            // Illustrative: packet by packet.
            weights: Vec::new(),
            high_priority: Vec::new(),
        }
    }
}

impl Ranged for CreditConfig {
    fn ranges(&self, check: &mut Ranges) {
        const KEY: &str = "lanes";
        let lanes = self.lanes;
        check.within(KEY, lanes, [1, LANES as u8]);
        // The default has an entry for every lane that there can be.
        let is_default = self.sl_to_vl == Self::default().sl_to_vl;
        let named = [
            ("high_priority", &self.high_priority),
            ("sl_to_vl", if is_default { &Vec::new() } else { &self.sl_to_vl }),
        ];
        for (key, named) in named {
            if let Some(lane) = named.iter().find(|lane| lanes <= **lane) {
                check.refuse(&[key, KEY], lane, &format!("a lane below {lanes}"));
            }
        }
        let length = self.weights.len();
        if usize::from(lanes) < length {
            let range = format!("a list of at most {lanes}, one entry for each lane");
            check.refuse(&["weights", KEY], format!("a list of {length}"), &range);
        }
    }
}

impl CreditConfig {
    /// The same with what a tier has of its own.
    pub(crate) fn with(&self, own: &TierCredits) -> Self {
        let TierCredits { buffer, spare, weights, high_priority } = own.clone();
        let has_spare = spare.is_some();
        Self {
            buffer: buffer.or(self.buffer.filter(|_| !has_spare)),
            spare: spare.unwrap_or(self.spare),
            weights: weights.unwrap_or_else(|| self.weights.clone()),
            high_priority: high_priority.unwrap_or_else(|| self.high_priority.clone()),
            ..self.clone()
        }
    }

    /// How many lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        usize::from(self.lanes).clamp(1, LANES)
    }

    /// The turns of the lanes of a port.
    fn turns(&self) -> Turns {
        let mut allowances = ByClass::default();
        for (lane, weight) in self.weights.iter().take(LANES).enumerate() {
            allowances[Class::of_lane(lane)] = i32::from(*weight) * BLOCK as i32;
        }
        let lanes = self.high_priority.iter().filter(|lane| usize::from(**lane) < LANES);
        let first = lanes.fold(0, |mask, lane| mask | Class::of_lane(usize::from(*lane)).bit());
        Turns { allowances, first }
    }

    /// The lane of a service level.
    pub(crate) fn lane(&self, level: u8) -> u8 {
        let known = self.sl_to_vl.get(usize::from(level)).or(self.sl_to_vl.last());
        known.copied().unwrap_or(0).min(self.lanes() as u8 - 1)
    }
}

/// Word never takes less than this, in picoseconds; no cable is shorter than 20 cm.
const SHORTEST: u64 = 1_000;

/// The credits of one lane of a link.
#[derive(Clone, Debug)]
struct Lane {
    /// Blocks on the way to the far end or held by it, as far as the sender knows.
    owed: u32,
    /// How many may be.
    limit: u32,
    /// How long word takes to come back.
    back: u64,
    /// Since when something waits for credits, or never.
    since: u64,
    /// There are none before this.
    not_before: u64,
    /// Blocks that were freed, and when that is known, in no order.
    returns: Vec<u64>,
}

impl Lane {
    /// Counts the blocks of which word has come.
    fn collect(&mut self, until: u64) {
        let owed = &mut self.owed;
        self.returns.retain(|word| {
            let has_come = word >> COUNT_BITS <= until;
            if has_come {
                *owed -= (word & ((1 << COUNT_BITS) - 1)) as u32;
            }
            !has_come
        });
    }

    /// Whether a full packet may be sent at an instant, by what is known without a look elsewhere.
    #[inline]
    fn suffices(&mut self, full: u32, at: u64) -> bool {
        if self.owed + full <= self.limit {
            return true;
        }
        self.collect(at);
        self.owed + full <= self.limit
    }

    /// When a full packet may be sent first, from one instant until another.
    fn ready(&mut self, full: u32, from: u64, until: u64) -> Option<u64> {
        if self.suffices(full, from) {
            return Some(from);
        }
        self.returns.sort_unstable();
        let mut owed = self.owed;
        for word in &self.returns {
            let at = word >> COUNT_BITS;
            if until < at {
                break;
            }
            owed -= (word & ((1 << COUNT_BITS) - 1)) as u32;
            if owed + full <= self.limit {
                return Some(at);
            }
        }
        None
    }
}

/// Who owes how many blocks to whom.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    count: usize,
    /// The lanes of each link, link by link. Empty without credits.
    lanes: Vec<Lane>,
    /// Blocks of a full packet.
    full: u32,
    /// The turns of lanes: of most ports, then of those of single tiers; and by link which of
    /// them, where there are several.
    turns: Vec<Turns>,
    of_link: Vec<u8>,
}

/// The turns of the lanes of a port.
#[derive(Debug)]
struct Turns {
    /// What each class may send in its turn, in bytes.
    allowances: ByClass<i32>,
    /// The classes that go first.
    first: u8,
}

fn blocks(size: u32) -> u32 {
    size.div_ceil(BLOCK)
}

impl Credits {
    /// For these links, with packets of at most `largest` bytes.
    pub(crate) fn new(
        settings: &Settings,
        fabric: &Fabric,
        ports: &IdVec<LinkId, Port>,
        largest: u32,
    ) -> Result<Self, Refusal> {
        let (all, own) = (&settings.credits, &settings.credits_of_tier);
        let configs: Vec<CreditConfig> =
            std::iter::once(all.clone()).chain(own.values().map(|own| all.with(own))).collect();
        let turns = configs.iter().map(CreditConfig::turns).collect();
        // Their place among those that differ, by the switch at one end of a link.
        let place = |node: NodeId| {
            let tier = tier_of(fabric, node);
            tier.and_then(|tier| own.keys().position(|name| name == tier)).map_or(0, |at| at + 1)
        };
        let from = fabric.links().iter().map(|link| place(link.from) as u8);
        let of_link = if own.is_empty() { Vec::new() } else { from.collect() };
        if !all.enabled {
            return Ok(Self { turns, of_link, ..Self::default() });
        }
        let (count, full) = (all.lanes(), blocks(largest));
        let limit = |(port, link): (&Port, &Link)| {
            let config = &configs[place(link.to)];
            if port.into.is_none() {
                // Endpoints take everything.
                return Ok(u32::MAX);
            }
            let away = units::Span::from_ps(2 * port.delay - port.latency);
            let spare = Bytes::new(config.spare.get() / count as u64);
            let held = config.buffer.unwrap_or_else(|| port.rate.bytes_in(away) + spare);
            CREDIT_BYTES.check(held.get())?;
            Ok(((held.get() / u64::from(BLOCK)) as u32).max(2 * full))
        };
        let limits: Result<Vec<u32>, Refusal> =
            ports.iter().zip(fabric.links().iter()).map(limit).collect();
        let lane = |(port, limit): (&Port, u32)| Lane {
            owed: 0,
            limit,
            back: (port.delay - port.latency).max(SHORTEST),
            since: NEVER,
            not_before: 0,
            returns: Vec::new(),
        };
        let lanes = ports.iter().zip(limits?).flat_map(|port| vec![lane(port); count]).collect();
        Ok(Self { count, lanes, full, turns, of_link })
    }

    /// The lane whose turn it is at a port among those that may send, of which there is one.
    #[inline]
    pub(crate) fn next_lane(&self, link: LinkId, port: &mut Port, may: u8) -> Class {
        let place = self.of_link.get(link.index()).copied().unwrap_or(0);
        let Turns { allowances, first } = &self.turns[usize::from(place)];
        let first = if may & first != 0 { may & first } else { may };
        port.next_lane(first, allowances)
    }

    /// Whether credits are counted.
    #[inline]
    pub(crate) fn are_counted(&self) -> bool {
        0 < self.count
    }

    /// How long word of free blocks takes to come back over a link.
    pub(crate) fn back(&self, link: LinkId) -> u64 {
        self.lanes[link.index() * self.count].back
    }

    fn place(&self, link: LinkId, class: Class) -> usize {
        link.index() * self.count + class.lane()
    }

    fn lane(&mut self, link: LinkId, class: Class) -> &mut Lane {
        let place = self.place(link, class);
        &mut self.lanes[place]
    }

    /// Whether a packet of a class may be sent over a link at an instant, by what is known without
    /// a look elsewhere.
    #[inline]
    pub(crate) fn suffice(&mut self, link: LinkId, class: Class, at: u64) -> bool {
        let full = self.full;
        class < DATA || self.lane(link, class).suffices(full, at)
    }

    /// A packet goes onto a wire: its blocks are lent. Returns how long it has waited for them.
    #[inline]
    pub(crate) fn spend(&mut self, link: LinkId, class: Class, size: u32, start: u64) -> u64 {
        if class < DATA {
            return 0;
        }
        let lane = self.lane(link, class);
        if lane.limit != u32::MAX {
            lane.owed += blocks(size);
        }
        let since = std::mem::replace(&mut lane.since, NEVER);
        if since == NEVER { 0 } else { start - since }
    }

    /// A switch has sent on, at some instant, a packet that came over a link: its blocks are free.
    #[inline]
    pub(crate) fn give(&mut self, link: LinkId, class: Class, size: u32, at: u64) {
        if class < DATA {
            return;
        }
        let lane = self.lane(link, class);
        lane.returns.push((at + lane.back) << COUNT_BITS | u64::from(blocks(size)));
    }

    /// A packet that did not reach the far end is sent once more: its blocks are not lent yet.
    pub(crate) fn take_back(&mut self, link: LinkId, class: Class, size: u32) {
        if self.are_counted() && DATA <= class {
            let lane = self.lane(link, class);
            lane.owed = lane.owed.saturating_sub(blocks(size));
        }
    }

    /// Whether it is known already that the first lane of a link has none at an instant.
    #[inline]
    pub(crate) fn are_out(&self, link: LinkId, at: u64) -> bool {
        self.are_counted() && at < self.lanes[link.index() * self.count].not_before
    }

    /// How long a lane of a link has waited, if it still does.
    pub(crate) fn waited(&self, link: LinkId, lane: usize, now: u64) -> u64 {
        let lane =
            self.lanes.get(link.index() * self.count + lane).filter(|lane| lane.since != NEVER);
        lane.map_or(0, |lane| now.saturating_sub(lane.since))
    }

    /// Whether something waits for credits of a class.
    pub(crate) fn are_awaited(&self, link: LinkId, class: Class) -> bool {
        self.lanes.get(self.place(link, class)).is_some_and(|lane| lane.since != NEVER)
    }
}

impl Simulation<'_> {
    /// Whether a packet of a class may be sent over a link now.
    pub(crate) fn has_credit(&mut self, link: LinkId, class: Class) -> bool {
        if !self.net.credits.are_counted() || self.net.credits.suffice(link, class, self.time.now) {
            return true;
        }
        if self.time.now < self.net.credits.lane(link, class).not_before {
            return false;
        }
        let back = self.net.credits.lane(link, class).back;
        self.apply_far_departures(link, self.time.now.saturating_sub(back));
        self.net.credits.suffice(link, class, self.time.now)
    }

    /// Notes when the first lane of a switch's port, which has no credits at an instant, may have
    /// some, as far as the departures of the far end have been applied.
    fn note_next_credit(&mut self, link: LinkId, at: u64) {
        let (full, into) = (self.net.credits.full, self.net.ports[link].into);
        let worked_off = self.net.switches[into.known()].worked_off;
        let lane = self.net.credits.lane(link, DATA);
        let known = worked_off + lane.back;
        lane.not_before = lane.ready(full, at, known).unwrap_or(known + 1);
    }

    /// Something has to wait for a lane's credits, from an instant on.
    pub(crate) fn waits_for_credit(&mut self, link: LinkId, class: Class, from: u64) {
        let lane = self.net.credits.lane(link, class);
        if lane.since == NEVER {
            lane.since = from;
            self.accounts.counters.pauses += 1;
        }
    }

    /// A queue pair has given up: if it was the last of its lane, nothing waits there any more.
    pub(crate) fn stop_waiting_for_credit(&mut self, number: PairId) {
        let (link, lane) = (self.ends.pairs[number].port, self.ends.pairs[number].lane);
        let class = Class::of_lane(usize::from(lane));
        if !self.net.credits.are_counted() || !self.net.credits.are_awaited(link, class) {
            return;
        }
        let waiting = &self.ends.senders[self.ends.sender_of_port[link].known()].pairs;
        if waiting.iter().any(|pair| self.ends.pairs[*pair].lane == lane) {
            return;
        }
        let since = std::mem::replace(&mut self.net.credits.lane(link, class).since, NEVER);
        let waited = self.time.now.saturating_sub(since);
        self.lane_pause(link, class).total += waited;
    }

    /// When a NIC that waits for credits may have some, or must look again.
    pub(crate) fn credit_due(&mut self, link: LinkId, class: Class) -> u64 {
        let (now, full) = (self.time.now, self.net.credits.full);
        let lane = self.net.credits.lane(link, class);
        if lane.since == NEVER || lane.suffices(full, now) {
            return now;
        }
        if now < lane.not_before {
            return lane.not_before;
        }
        // Everything is known that happens elsewhere until the next event.
        let back = lane.back;
        let known = self.time.calendar.peek().unwrap_or(now).min(now + back).max(1) - 1;
        self.apply_far_departures(link, known);
        let lane = self.net.credits.lane(link, class);
        let due = lane.ready(full, now, known + back).unwrap_or((known + back).max(now + 1));
        lane.not_before = due;
        due
    }

    /// Lets the first packet of a port go that has the credits for it, if that is until an instant;
    /// else returns false.
    pub(crate) fn depart_by_credit(&mut self, link: LinkId, until: u64) -> bool {
        let port = &self.net.ports[link];
        let (from, sendable) = (port.free_at, port.sendable());
        if sendable & !DATA_CLASSES != 0 {
            self.transmit(link, from);
            return true;
        }
        let lanes = Class::lanes().filter(move |class| class.is_in(sendable));
        let credits = &mut self.net.credits;
        if !lanes.clone().all(|class| credits.suffice(link, class, from)) {
            let back = self.net.credits.lane(link, DATA).back;
            self.apply_far_departures(link, until.saturating_sub(back));
            let port = &self.net.ports[link];
            if (port.free_at, port.sendable()) != (from, sendable) {
                // The far end had to know of this port in its turn.
                return true;
            }
        }
        let mut start = NEVER;
        let mut may = 0_u8;
        for class in lanes {
            let full = self.net.credits.full;
            let at = self.net.credits.lane(link, class).ready(full, from, until).unwrap_or(NEVER);
            if from < at {
                self.waits_for_credit(link, class, from);
            }
            if at < start {
                (start, may) = (at, 0);
            }
            if at == start && at != NEVER {
                may |= class.bit();
            }
        }
        if start == NEVER {
            let port = &mut self.net.ports[link];
            (port.free_at, port.free_ticket) = (port.free_at.max(until), 0);
            self.note_next_credit(link, until);
            return false;
        }
        let port = &mut self.net.ports[link];
        let class = self.net.credits.next_lane(link, port, may);
        port.deficits[class] -=
            i32::from(self.net.queued.first(port.classes[class].queue).packet.size);
        self.transmit_class(link, class, start);
        true
    }

    /// Applies what the switch at the far end of a link has sent until an instant.
    ///
    /// Where its ports stall in their turn, those behind them are applied until one more cable's
    /// delay earlier; a stalled port is looked at at least as often, so this does not go far.
    fn apply_far_departures(&mut self, link: LinkId, until: u64) {
        let number = self.net.ports[link].into.known();
        if until <= self.net.switches[number].worked_off {
            return;
        }
        // As far as everything is known, so that it need not be done again soon.
        let until = if self.net.in_far_end { until } else { until.max(self.net.known_until) };
        let outermost = !std::mem::replace(&mut self.net.in_far_end, true);
        for at in 0..self.net.switches[number].ports.len() {
            self.apply_departures_before(self.net.switches[number].ports[at], until + 1);
        }
        self.net.in_far_end = !outermost;
        let switch = &mut self.net.switches[number];
        switch.worked_off = switch.worked_off.max(until);
    }

    /// A switch has sent on, or lost, a packet that came over a link.
    #[inline]
    pub(crate) fn give_credit(&mut self, link: LinkId, packet: &Packet, at: u64) {
        if self.net.credits.are_counted() {
            let class = self.class_of(packet);
            self.net.credits.give(link, class, u32::from(packet.size), at);
        }
    }

    /// A packet goes onto a wire.
    #[inline]
    pub(crate) fn spend_credit(&mut self, link: LinkId, packet: &Packet, start: u64) {
        if self.net.credits.are_counted() {
            let class = self.class_of(packet);
            let size = u32::from(packet.size);
            let waited = self.net.credits.spend(link, class, size, start);
            if 0 < waited {
                self.lane_pause(link, class).total += waited;
            }
        }
    }
}
