//! The packet memory of a switch: who may use how much of it, when it asks for a pause, when it
//! marks.
//!
//! Every packet is charged to the ingress port over which it came (its priority group), first to
//! that port's reserve, then to the pool that all share, and above the dynamic threshold to the
//! port's headroom, which is there for what arrives after a pause was sent:
//!
//! ```text
//! threshold = alpha · (pool − shared in use)        pool = size − ports · (reserved + headroom)
//! ```
//!
//! A lossless class asks its sender to pause when it passes the threshold, and to go on when it is
//! `xon_below` under it again. A lossy class is charged to its egress queue and dropped there. The
//! accounting is that of HPCC's ns-3 (`switch-mmu.cc`), which follows Broadcom's; headroom by
//! SONiC's formula is in [`PfcConfig::headroom`].

use fabric::LinkId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Id, Ranged, Ranges, Rate, Span};

use crate::ids::{Maybe, SwitchId};
use crate::limits::{PORT_BYTES, QUEUE_BYTES};
use crate::packet::Class;
use crate::port::Port;
use crate::settings::LONGEST;

/// How the memory is organised.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Organisation {
    /// One memory that all ports share, on the chip.
    #[default]
    Shared,
    /// Deep memory, cut into equal parts for the ports, with a virtual output queue for each pair
    /// of ports: no port can take memory from another.
    DeepVoq,
}

/// The packet memory of a switch.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BufferConfig {
    /// How it is organised.
    pub organisation: Organisation,
    /// All of it.
    pub size: Bytes,
    /// Kept for each port, whatever the others do.
    pub reserved: Bytes,
    /// Kept for each port for what arrives after a pause was sent; without it, what SONiC's
    /// formula gives for the link.
    pub headroom: Option<Bytes>,
    /// A port may use this many times what is left of the shared pool.
    pub alpha: f64,
    /// The same for the egress queue of a lossy class.
    pub alpha_lossy: f64,
}

impl Default for BufferConfig {
    fn default() -> Self {
        Self {
            organisation: Organisation::Shared,
            // Tomahawk 5: lossless pool of Arista's 7060X6 in SONiC (pg_profile_lookup.ini,
            // buffers_defaults_t1.j2): 165,660,324 bytes.
            size: Bytes::new(165_660_324),
            // The same profile's `size` for 400G ports.
            reserved: Bytes::new(18_796),
            headroom: None,
            // The same profile's threshold column is 0: 2⁰.
            alpha: 1.0,
            alpha_lossy: 1.0,
        }
    }
}

/// A port that may use this many times what is left may use all of it.
const MOST_ALPHA: f64 = 128.0;

impl Ranged for BufferConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.within("alpha", self.alpha, [0.0, MOST_ALPHA]);
        check.within("alpha_lossy", self.alpha_lossy, [0.0, MOST_ALPHA]);
    }
}

/// When packets are marked for congestion.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkWhen {
    /// When a packet leaves, by what it leaves behind.
    #[default]
    Dequeue,
    /// When a packet arrives, by what it finds.
    Enqueue,
}

/// Marking by WRED, for each egress queue of data.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EcnConfig {
    /// Whether switches mark.
    pub enabled: bool,
    /// Below this no packet is marked.
    pub min: Bytes,
    /// Above this every packet is marked.
    pub max: Bytes,
    /// The probability just below `max`.
    pub probability: f64,
    /// When the queue is looked at.
    pub when: MarkWhen,
}

impl Default for EcnConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            // SONiC's AZURE_LOSSLESS profile (qos_config.j2): 1 MiB, 2 MiB, 5 %. The maximum is
            // quoted from memory in the sources.
            min: Bytes::from_mib(1),
            max: Bytes::from_mib(2),
            probability: 0.05,
            when: MarkWhen::Dequeue,
        }
    }
}

impl Ranged for EcnConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.share("probability", self.probability);
        check.ordered(("min", self.min), ("max", self.max));
    }
}

/// What the watchdog does with a queue that has been paused for too long.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchdogAction {
    /// Reports it and does nothing.
    Alert,
    /// Throws away what waits, and what comes, until the pause ends.
    #[default]
    Drop,
    /// Sends in spite of the pause.
    Forward,
}

/// Priority flow control.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PfcConfig {
    /// Whether data is lossless. Without it, a full buffer drops.
    pub enabled: bool,
    /// Lanes (`network.credits.lanes`) that are not paused all the same: a full buffer drops what
    /// comes for them.
    pub lossy_lanes: Vec<u8>,
    /// A paused sender may go on when its use is this much below the threshold.
    pub xon_below: Bytes,
    /// How long a pause lasts unless it is renewed, in quanta of 512 bit times; 0 means until it
    /// is ended.
    pub quanta: u32,
    /// From the arrival of a pause frame until the sender obeys it, in quanta.
    pub response_quanta: u32,
    /// Paused for so long, a queue is taken for stuck; 0 means never.
    pub watchdog: Option<Span>,
    /// What is done with it.
    pub action: WatchdogAction,
}

impl Default for PfcConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            lossy_lanes: Vec::new(),
            // SONiC's profile for Tomahawk 5 at 400G: xon_offset 3,556 bytes.
            xon_below: Bytes::new(3_556),
            // IEEE 802.1Qbb: the field has 16 bits, and switches send its largest value.
            quanta: 65_535,
            response_quanta: 0,
            // Meta alarms above 200 ms (Gangidi et al., SIGCOMM 2024).
            watchdog: Some(Span::from_ms(200)),
            action: WatchdogAction::Drop,
        }
    }
}

impl Ranged for PfcConfig {
    fn ranges(&self, check: &mut Ranges) {
        // The field has 16 bits. A pause is renewed at half of its length: below some quanta its
        // frames alone, of 672 bits, would fill the link.
        if self.quanta != 0 {
            check.within("quanta", self.quanta, [16, 65_535]);
        }
        check.at_most("response_quanta", self.response_quanta, 65_535);
        check.at_most("watchdog", self.watchdog.unwrap_or_default(), LONGEST);
    }
}

impl PfcConfig {
    /// Headroom by SONiC's formula for NVIDIA switches (sonic-swss
    /// `cfgmgr/buffer_headroom_mellanox.lua`): what can still arrive between the decision to pause
    /// and its effect. Cells, gearbox and pipeline latencies are left out. SONiC knows a cable by
    /// its length; here it is the delay that the length, or the scenario, gives.
    pub fn headroom(rate: Rate, delay: Span, mtu: Bytes) -> Bytes {
        // Quanta that a peer needs to respond, by rate: 802.1Qbb as the same file lists it.
        let gbps = rate.as_bps() / 1_000_000_000;
        let quanta: u64 = match gbps {
            300.. => 905,
            150..300 => 453,
            75..150 => 394,
            45..75 => 147,
            30..45 => 118,
            15..30 => 80,
            _ => 67,
        };
        let in_flight = rate.bytes_in(delay * 2);
        mtu + mtu + in_flight + Bytes::new(quanta * 512 / 8)
    }
}

/// A switch. Departures that have not been applied yet are still counted, so what is in use is an
/// upper bound; it is exact where departures are events.
#[derive(Debug)]
pub(crate) struct Switch {
    /// All that is charged, lossless and lossy, whatever it is charged to.
    pub charged: u64,
    /// While less than this is charged, no port can have passed the threshold.
    pub safe_level: u64,
    /// How much of the pool lossless classes use.
    pub shared: u64,
    /// How much of the pool lossy classes use.
    pub lossy: u64,
    /// What all ports share.
    pub pool: u64,
    /// Alpha in 1/65,536.
    pub alpha: u64,
    /// Alpha of lossy queues in 1/65,536.
    pub alpha_lossy: u64,
    /// Kept for each port.
    pub reserved: u32,
    /// How many (ingress, class) are pausing their sender.
    pub pausing: u32,
    /// Ports have fixed parts: the threshold does not depend on what others use.
    pub fixed: bool,
    /// Every departure is an event, because one of them may end a pause.
    pub departures_are_events: bool,
    /// Reasons to go event by event; without any, it is batched.
    pub event_reasons: u32,
    /// The time of its batch event, at its next arrival; see [`crate::batch`].
    pub next_at: u64,
    /// No event elsewhere can act on it sooner than this.
    pub lookahead: u64,
    /// No event here can act elsewhere sooner than this: its shortest outgoing cable.
    pub egress_delay: u64,
    /// While so much less than `safe_level` is charged, it pauses no sender within the longest
    /// lookahead.
    pub margin: u64,
    /// An incoming link leaves the part of another thread.
    pub at_edge: bool,
    /// The departures of all its ports have been applied until then; see [`crate::credits`].
    pub worked_off: u64,
    /// The outgoing links.
    pub ports: Vec<LinkId>,
    /// The incoming links, and their delays.
    pub inputs: Vec<LinkId>,
    pub cables: Vec<Cable>,
}

/// An incoming link of a switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cable {
    /// The switch that it comes from, if it does.
    pub from: Maybe<SwitchId>,
    /// Until a packet from there has arrived and been looked up.
    pub delay: u64,
    /// Until a pause frame has arrived.
    pub pause_delay: u64,
}

/// What becomes of a packet that arrives at a switch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// It is taken in.
    Taken,
    /// It is taken in, and its sender must pause.
    TakenAndPause,
    /// There is no room.
    Dropped,
}

impl Switch {
    /// An empty switch with these outgoing links, of which each keeps `kept` bytes for itself in
    /// the mean (reserve and headroom).
    pub(crate) fn new(config: &BufferConfig, ports: Vec<LinkId>, kept: u64) -> Self {
        // In order of their numbers, as packets of one instant are served.
        let mut inputs: Vec<LinkId> =
            ports.iter().map(|link| LinkId::from_index(link.index() ^ 1)).collect();
        inputs.sort_unstable();
        let fixed = config.organisation == Organisation::DeepVoq;
        let whole = config.size.get().saturating_sub(kept);
        let pool = if fixed { whole / ports.len().max(1) as u64 } else { whole };
        let q16 = |alpha: f64| (alpha * 65_536.0).round() as u64;
        let alpha = if fixed { 65_536 } else { q16(config.alpha) };
        let alpha_lossy = q16(config.alpha_lossy);
        // A port uses at most what is charged in all. With c charged its threshold is at least
        // alpha (pool - c), so nobody has passed it while c < alpha pool / (1 + alpha).
        let least = alpha.min(alpha_lossy);
        let safe = (u128::from(pool) * u128::from(least) / u128::from(65_536 + least)) as u64;
        Self {
            charged: 0,
            safe_level: safe.min(PORT_BYTES).saturating_sub(1 << 16),
            shared: 0,
            lossy: 0,
            pool,
            alpha,
            alpha_lossy,
            reserved: config.reserved.get() as u32,
            pausing: 0,
            fixed,
            departures_are_events: false,
            event_reasons: 0,
            next_at: u64::MAX,
            lookahead: 0,
            egress_delay: 0,
            margin: 0,
            at_edge: false,
            worked_off: 0,
            inputs,
            cables: Vec::new(),
            ports,
        }
    }

    /// Whether it handles what reaches it in batches.
    #[inline]
    pub(crate) fn is_batched(&self) -> bool {
        self.event_reasons == 0
    }

    /// Whether it pauses no sender within the longest lookahead, for sure.
    #[inline]
    pub(crate) fn stays_below_thresholds(&self) -> bool {
        self.charged + self.margin < self.safe_level && !self.departures_are_events
    }

    /// Whether a packet can be admitted without exact counts: not even by upper bounds
    /// does anybody come near a threshold.
    #[inline]
    pub(crate) fn is_below_thresholds(&self) -> bool {
        self.charged < self.safe_level && !self.departures_are_events
    }

    /// What an input port could use of an empty switch, if that is more than is counted.
    pub(crate) fn uncounted(&self) -> Option<u64> {
        let share = u128::from(self.pool) * u128::from(self.alpha);
        let most = share / if self.fixed { 65_536 } else { 65_536 + u128::from(self.alpha) };
        u64::try_from(most).ok().filter(|most| PORT_BYTES < *most)
    }

    /// What one ingress port may use of the pool.
    #[inline]
    fn threshold(&self) -> u64 {
        let base =
            if self.fixed { self.pool } else { self.pool.saturating_sub(self.shared + self.lossy) };
        // 2⁴⁰ bytes of memory times 2²³ of alpha stay below 2⁶⁴.
        ((base * self.alpha) >> 16).min(PORT_BYTES)
    }

    /// Charges a packet of a lossless class that came over `from`, when no threshold is near.
    #[inline]
    pub(crate) fn charge(&mut self, from: &mut Port, class: Class, size: u32) {
        let used = &mut from.used[class.lane()];
        *used += size;
        self.charged += u64::from(size);
        self.shared += u64::from(used.saturating_sub(self.reserved).min(size));
    }

    /// Gives it back, when the switch pauses no sender: then nothing is in headroom.
    #[inline]
    pub(crate) fn discharge(&mut self, from: &mut Port, class: Class, size: u32) {
        debug_assert!(from.over[class] == 0, "somebody is paused");
        let used = &mut from.used[class.lane()];
        self.charged -= u64::from(size);
        self.shared -= u64::from(used.saturating_sub(self.reserved).min(size));
        *used -= size;
    }

    /// Whether a packet leaves its ingress port below the threshold, by counts that hold at least
    /// what is there: then it does so by exact ones, which leave more to share.
    #[inline]
    pub(crate) fn surely_stays_below(&self, from: &Port, class: Class, size: u32) -> bool {
        let charged = self.shared + self.lossy + u64::from(size);
        let left = if self.fixed { self.pool } else { self.pool.saturating_sub(charged) };
        let used = u64::from(from.used[class.lane()].saturating_sub(self.reserved) + size);
        used < ((left * self.alpha) >> 16).min(PORT_BYTES)
    }

    /// Charges a packet of a lossless class, with exact counts.
    pub(crate) fn admit(&mut self, from: &mut Port, class: Class, size: u32) -> Admission {
        let threshold = self.threshold();
        let shared_by_port = u64::from(from.used[class.lane()].saturating_sub(self.reserved));
        let fits = from.over[class] + size <= from.headroom;
        let used = from.used[class.lane()] + size;
        if !fits && self.reserved < used && threshold < shared_by_port + u64::from(size) {
            return Admission::Dropped;
        }
        self.charged += u64::from(size);
        if used <= self.reserved {
            from.used[class.lane()] = used;
        } else if threshold < u64::from(used - self.reserved) {
            from.over[class] += size;
        } else {
            from.used[class.lane()] = used;
            self.shared += u64::from(size.min(used - self.reserved));
        }
        if !class.is_in(from.pausing) && self.should_pause(from, class) {
            return Admission::TakenAndPause;
        }
        Admission::Taken
    }

    fn should_pause(&self, from: &Port, class: Class) -> bool {
        let shared_by_port = u64::from(from.used[class.lane()].saturating_sub(self.reserved));
        // Its reserve is its own, even where nothing is left to share.
        0 < from.over[class] || (0 < shared_by_port && self.threshold() <= shared_by_port)
    }

    /// Whether a paused sender may go on.
    pub(crate) fn may_resume(&self, from: &Port, class: Class, xon_below: u64) -> bool {
        let shared_by_port = u64::from(from.used[class.lane()].saturating_sub(self.reserved));
        from.over[class] == 0
            && (shared_by_port == 0 || shared_by_port + xon_below <= self.threshold())
    }

    /// Gives back what a packet of a lossless class was charged for: headroom first.
    #[inline]
    pub(crate) fn release(&mut self, from: &mut Port, class: Class, size: u32) {
        self.charged -= u64::from(size);
        let over = from.over[class].min(size);
        from.over[class] -= over;
        let rest = size - over;
        let shared = rest.min(from.used[class.lane()].saturating_sub(self.reserved));
        self.shared -= u64::from(shared);
        from.used[class.lane()] -= rest;
    }

    /// Charges a packet of a lossy class.
    #[inline]
    pub(crate) fn charge_lossy(&mut self, size: u32) {
        self.charged += u64::from(size);
        self.lossy += u64::from(size);
    }

    /// Gives back what a packet of a lossy class was charged for.
    #[inline]
    pub(crate) fn release_lossy(&mut self, size: u32) {
        self.charged -= u64::from(size);
        self.lossy -= u64::from(size);
    }

    /// What a lossy egress queue may hold: its part of the pool, and never less than the reserve.
    pub(crate) fn lossy_limit(&self) -> u64 {
        let left = self.pool.saturating_sub(self.shared + self.lossy);
        let limit = ((left * self.alpha_lossy) >> 16).max(u64::from(self.reserved));
        limit.min(u64::from(QUEUE_BYTES - u32::from(u16::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use units::Length;

    use super::*;
    use crate::packet::DATA;

    /// Oracle: by hand from the formula: two MTUs, 905 quanta of 64 bytes, and 2 x 5 m of cable at
    /// 400 Gb/s (2 x 25,253 ps, 2,525 bytes).
    #[test]
    fn headroom_follows_sonic() {
        let delay = Length::from_metres(5).propagation();
        let headroom = PfcConfig::headroom(Rate::from_gbps(400), delay, Bytes::new(4158));
        assert_eq!(headroom, Bytes::new(2 * 4158 + 905 * 64 + 2525));
    }

    /// Property: whatever comes and goes, counts end where they began and the pool is never
    /// overdrawn; a switch below its thresholds never admits what exact admission would pause or
    /// drop.
    #[test]
    fn every_charge_is_given_back() {
        for seed in 0..50 {
            let mut random = units::Random::new(seed, "buffer", 0);
            let config = BufferConfig {
                size: Bytes::new(100_000 + random.below(1_000_000)),
                reserved: Bytes::new(4096),
                alpha: [0.125, 1.0, 4.0][random.below(3) as usize],
                ..BufferConfig::default()
            };
            let mut switch = Switch::new(&config, vec![LinkId::from_index(0); 4], 0);
            let here = Maybe::some(SwitchId::from_index(0));
            let mut ports: Vec<Port> =
                (0..4).map(|_| Port::new(Rate::from_gbps(400), 0, 0, here, here)).collect();

            ports.iter_mut().for_each(|port| port.headroom = 60_000);
            let mut held: Vec<(usize, u32)> = Vec::new();
            for _ in 0..2_000 {
                if random.below(2) == 0 || held.is_empty() {
                    let at = random.below(4) as usize;
                    let size = 64 + random.below(4_100) as u32;
                    // Headroom in use means that a sender is paused, and then the switch is not
                    // below its thresholds.
                    switch.departures_are_events = ports.iter().any(|port| 0 < port.over[DATA]);
                    let calm = switch.is_below_thresholds();
                    let taken = switch.admit(&mut ports[at], DATA, size);
                    assert!(!calm || taken == Admission::Taken, "seed {seed}: {taken:?}");
                    if taken != Admission::Dropped {
                        held.push((at, size));
                    }
                    assert!(switch.shared <= switch.pool, "seed {seed}");
                } else {
                    let (at, size) = held.swap_remove(random.below(held.len() as u64) as usize);
                    switch.release(&mut ports[at], DATA, size);
                }
            }
            for (at, size) in held {
                switch.release(&mut ports[at], DATA, size);
            }
            assert_eq!((switch.shared, switch.charged), (0, 0));
            assert!(ports.iter().all(|port| port.used[0] == 0 && port.over[DATA] == 0));
        }
    }
}
