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

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Length, Rate, Span};

use crate::packet::CLASSES;

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
    /// A paused sender may go on when its use is this much below the threshold.
    pub xon_below: Bytes,
    /// How long a pause lasts unless it is renewed, in quanta of 512 bit times; 0 means until it
    /// is ended.
    pub quanta: u32,
    /// From the arrival of a pause frame until the sender obeys it, in quanta.
    pub response_quanta: u32,
    /// Paused for so long, a queue is taken for stuck.
    pub watchdog: Option<Span>,
    /// What is done with it.
    pub action: WatchdogAction,
}

impl Default for PfcConfig {
    fn default() -> Self {
        Self {
            enabled: true,
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

impl PfcConfig {
    /// Headroom by SONiC's formula for NVIDIA switches (sonic-swss
    /// `cfgmgr/buffer_headroom_mellanox.lua`): what can still arrive between the decision to pause
    /// and its effect. Cells, gearbox and pipeline latencies are left out.
    pub fn headroom(rate: Rate, length: Length, mtu: Bytes) -> Bytes {
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
        let in_flight = rate.bytes_in(length.propagation() * 2);
        mtu + mtu + in_flight + Bytes::new(quanta * 512 / 8)
    }
}

/// What one link's far end, a port of a switch, has taken in and not yet sent on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ingress {
    /// The switch, or nowhere.
    pub switch: u32,
    /// Classes whose sender has been asked to pause.
    pub pausing: u8,
    /// Kept for what arrives after a pause was sent.
    pub headroom: u32,
    /// Charged to reserve and pool, by class.
    pub used: [u32; CLASSES],
    /// Charged to headroom, by class.
    pub over: [u32; CLASSES],
}

/// A switch.
#[derive(Debug)]
pub(crate) struct Switch {
    /// What all ports share.
    pub pool: u64,
    /// How much of it lossless classes use. Departures that nobody has looked at yet are still
    /// counted unless the switch is alert, so this is an upper bound.
    pub shared: u64,
    /// How much of it lossy classes use; an upper bound too.
    pub lossy: u64,
    /// Kept for each port.
    pub reserved: u32,
    /// Alpha in 1/65,536.
    pub alpha: u64,
    /// Alpha of lossy queues in 1/65,536.
    pub alpha_lossy: u64,
    /// Ports have fixed parts: the threshold does not depend on what others use.
    pub fixed: bool,
    /// How many (ingress, class) are pausing their sender.
    pub pausing: u32,
    /// Every departure is an event, because one of them may end a pause.
    pub alert: bool,
    /// The outgoing links.
    pub ports: Vec<u32>,
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
    /// What one ingress port may use of the pool, when `shared` of it is in use.
    #[inline]
    pub(crate) fn threshold(&self, shared: u64) -> u64 {
        let base = if self.fixed { self.pool } else { self.pool.saturating_sub(shared) };
        // 2⁴⁸ bytes of pool times 2¹⁶ stay below 2⁶⁴.
        (base * self.alpha) >> 16
    }

    /// Whether a packet can be taken in without a look at anything else: even by upper bounds it
    /// stays under the threshold. If so, it is charged.
    #[inline]
    pub(crate) fn admit_lightly(&mut self, from: &mut Ingress, class: usize, size: u32) -> bool {
        if self.alert {
            return false;
        }
        let used = from.used[class] + size;
        let above = used.saturating_sub(self.reserved);
        if self.threshold(self.shared + self.lossy + u64::from(size)) <= u64::from(above) {
            return false;
        }
        from.used[class] = used;
        self.shared += u64::from(above.min(size));
        true
    }

    /// Charges a packet of a lossless class, with exact counts.
    pub(crate) fn admit(&mut self, from: &mut Ingress, class: usize, size: u32) -> Admission {
        let threshold = self.threshold(self.shared + self.lossy);
        let shared_by_port = u64::from(from.used[class].saturating_sub(self.reserved));
        let fits = from.over[class] + size <= from.headroom;
        if !fits && threshold < shared_by_port + u64::from(size) {
            return Admission::Dropped;
        }
        let used = from.used[class] + size;
        if used <= self.reserved {
            from.used[class] = used;
        } else if threshold < u64::from(used - self.reserved) {
            from.over[class] += size;
        } else {
            from.used[class] = used;
            self.shared += u64::from(size.min(used - self.reserved));
        }
        if from.pausing >> class & 1 == 0 && self.should_pause(from, class) {
            return Admission::TakenAndPause;
        }
        Admission::Taken
    }

    fn should_pause(&self, from: &Ingress, class: usize) -> bool {
        let shared_by_port = u64::from(from.used[class].saturating_sub(self.reserved));
        0 < from.over[class] || self.threshold(self.shared + self.lossy) <= shared_by_port
    }

    /// Whether a paused sender may go on.
    pub(crate) fn may_resume(&self, from: &Ingress, class: usize, xon_below: u64) -> bool {
        let shared_by_port = u64::from(from.used[class].saturating_sub(self.reserved));
        let threshold = self.threshold(self.shared + self.lossy);
        from.over[class] == 0 && (shared_by_port == 0 || shared_by_port + xon_below <= threshold)
    }

    /// Gives back what a packet of a lossless class was charged for: headroom first.
    #[inline]
    pub(crate) fn release(&mut self, from: &mut Ingress, class: usize, size: u32) {
        let over = from.over[class].min(size);
        from.over[class] -= over;
        let rest = size - over;
        let shared = rest.min(from.used[class].saturating_sub(self.reserved));
        self.shared -= u64::from(shared);
        from.used[class] -= rest;
    }

    /// What a lossy egress queue may hold.
    #[inline]
    pub(crate) fn lossy_limit(&self) -> u64 {
        (self.pool.saturating_sub(self.shared + self.lossy) * self.alpha_lossy) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: by hand from the formula: two MTUs, 905 quanta of 64 bytes, and 2 x 5 m of cable at
    /// 400 Gb/s (2 x 25,253 ps, 2,525 bytes).
    #[test]
    fn headroom_follows_sonic() {
        let headroom =
            PfcConfig::headroom(Rate::from_gbps(400), Length::from_metres(5), Bytes::new(4158));
        assert_eq!(headroom, Bytes::new(2 * 4158 + 905 * 64 + 2525));
    }

    fn switch(pool: u64) -> Switch {
        Switch {
            pool,
            shared: 0,
            lossy: 0,
            reserved: 4096,
            alpha: 65_536 / 8,
            alpha_lossy: 65_536,
            fixed: false,
            pausing: 0,
            alert: false,
            ports: Vec::new(),
        }
    }

    /// Property: whatever comes and goes, counts end where they began and the pool is never
    /// overdrawn; light admission never lets pass what exact admission would pause.
    #[test]
    fn every_charge_is_given_back() {
        for seed in 0..50 {
            let mut random = units::Random::new(seed, "buffer", 0);
            let mut switch = switch(100_000 + random.below(1_000_000));
            let mut ports = [Ingress { headroom: 60_000, ..Ingress::default() }; 4];
            let mut held: Vec<(usize, u32)> = Vec::new();
            for _ in 0..2_000 {
                if random.below(2) == 0 || held.is_empty() {
                    let port = random.below(4) as usize;
                    let size = 64 + random.below(4_100) as u32;
                    // Headroom in use means that somebody is paused, and then nothing is light.
                    switch.alert = ports.iter().any(|port| 0 < port.over[2]);
                    let before = (switch.shared, ports[port]);
                    let lightly = switch.admit_lightly(&mut ports[port], 2, size);
                    if lightly {
                        let after = (switch.shared, ports[port].used);
                        (switch.shared, ports[port]) = before;
                        let exact = switch.admit(&mut ports[port], 2, size);
                        assert_eq!(exact, Admission::Taken, "seed {seed}");
                        assert_eq!((switch.shared, ports[port].used), after, "seed {seed}");
                        held.push((port, size));
                    } else if switch.admit(&mut ports[port], 2, size) != Admission::Dropped {
                        held.push((port, size));
                    }
                    assert!(switch.shared <= switch.pool, "seed {seed}");
                } else {
                    let (port, size) = held.swap_remove(random.below(held.len() as u64) as usize);
                    switch.release(&mut ports[port], 2, size);
                }
            }
            for (port, size) in held {
                switch.release(&mut ports[port], 2, size);
            }
            assert_eq!(switch.shared, 0);
            assert!(ports.iter().all(|port| port.used == [0; 4] && port.over == [0; 4]));
        }
    }
}
