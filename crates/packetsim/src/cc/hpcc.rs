//! HPCC: telemetry from every hop, a rate and a window at the sender.
//!
//! Every switch stamps a data packet with the time, the bytes that its port has sent and the bytes
//! left in its queue; the receiver returns the stamps. From two stamps of a hop the sender computes
//! how busy it is, as rate over line rate plus queue over window, takes the busiest hop, smooths it
//! over a round trip (`U`), and sets its rate so that the hop would be busy to `utilisation`:
//! `R = Rc / (U / eta) + step`. The reference rate `Rc` moves once per round trip, so that several
//! acknowledgements of one round trip do not react twice to the same congestion.
//!
//! Source: Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, Algorithm 1; its
//! symbols stand in brackets after the parameters. The order of steps and the units of the stamps
//! are those of the authors' ns-3 (`rdma-hw.cc`, `int-header.h`).
//!
//! # Where this model departs from its sources
//!
//! * The window of the paper is kept as a rate, as in the ns-3: window = rate · base round trip.
//! * Stamps of a hop that go backwards come from another path; they are stored and say nothing.
//! * Losses change no rate: the retransmission and the queue's stamps do the rest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Span, Time};

use super::{
    Ack, Algorithm, Circumstances, Hop, Limit, MOST_ROOM, Needs, Sender, bandwidth_delay, window_at,
};
use crate::settings::LONGEST;

/// Parameters of HPCC. The defaults are those of the paper.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How busy the busiest hop is to be (eta).
    pub utilisation: f64,
    /// Additive increases before the rate follows the measured utilisation upwards too
    /// (maxStage); with 0 it always follows.
    pub additive_rounds: u32,
    /// Additive step (W_AI, as a rate); without it, `(1 - utilisation) / 100` of the line rate.
    pub step: Option<Rate>,
    /// No rate goes below this.
    pub min_rate: Rate,
    /// Unloaded round trip (T); without it, that of the queue pair's own path.
    pub base_rtt: Option<Span>,
    /// What one unit of sent bytes in a stamp stands for; the field has 20 bits.
    pub sent_unit: Bytes,
    /// What one unit of queued bytes in a stamp stands for.
    pub queue_unit: Bytes,
    /// Room for stamps on a data packet.
    pub data_bytes: Bytes,
    /// Room for stamps on an acknowledgement.
    pub ack_bytes: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Section 5.1: eta 95 %, maxStage 5.
            utilisation: 0.95,
            additive_rounds: 5,
            // Section 3.3: W_AI = W_init · (1 - eta) / N for N flows; 80 bytes there, N = 100.
            step: None,
            // The authors' ns-3 (RdmaHw, MinRate).
            min_rate: Rate::from_bps(100_000_000),
            base_rtt: None,
            // Section 4.1: units of 128 and 80 bytes; 42 bytes for five hops (figure 7).
            sent_unit: Bytes::new(128),
            queue_unit: Bytes::new(80),
            data_bytes: Bytes::new(42),
            ack_bytes: Bytes::new(42),
        }
    }
}

impl Config {
    /// As the authors' ns-3 runs it at `line` (its run.py): always multiplicative, coarser stamps
    /// on faster links. Header sizes are left at zero, because the runs state whole packets.
    pub fn ns3(line: Rate, base_rtt: Span) -> Self {
        let times = (line.as_bps() / 25_000_000_000).max(1);
        Self {
            utilisation: 0.95,
            additive_rounds: 0,
            step: Some(Rate::from_bps(line.as_bps() / 25_000 * 10)),
            min_rate: Rate::from_gbps(1),
            base_rtt: Some(base_rtt),
            sent_unit: Bytes::new(128 * times),
            queue_unit: Bytes::new(80 * times),
            data_bytes: Bytes::ZERO,
            ack_bytes: Bytes::ZERO,
        }
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Hpcc::new(self, about))
    }

    fn needs(&self) -> Needs {
        let (data_bytes, ack_bytes) = (self.data_bytes, self.ack_bytes);
        Needs { hops: true, data_bytes, ack_bytes, repace: true, ..Needs::default() }
    }

    fn ranges(&self, check: &mut Ranges) {
        check.weight("utilisation", self.utilisation);
        check.at_most("base_rtt", self.base_rtt.unwrap_or_default(), LONGEST);
        check.positive("sent_unit", self.sent_unit);
        check.positive("queue_unit", self.queue_unit);
        check.at_most("data_bytes", self.data_bytes, MOST_ROOM);
        check.at_most("ack_bytes", self.ack_bytes, MOST_ROOM);
    }
}

/// A stamp as its fields hold it.
#[derive(Clone, Copy, Debug, Default)]
struct Stamp {
    ns: u64,
    sent: u64,
    queued: u64,
    rate_bps: u64,
}

/// Bits of the fields of a stamp (section 4.1): they wrap around.
const TIME_BITS: u32 = 24;
const SENT_BITS: u32 = 20;

/// The sending half.
#[derive(Debug)]
pub struct Hpcc {
    config: Config,
    line_bps: u64,
    step_bps: u64,
    base_rtt_ns: u64,
    window: u64,
    rate_bps: u64,
    /// Rc: moves once per round trip.
    reference_bps: u64,
    /// U, smoothed.
    utilisation: f64,
    rounds: u32,
    /// An acknowledgement beyond this ends the round trip; zero before the first.
    last: u64,
    stamps: Vec<Stamp>,
}

impl Hpcc {
    /// A queue pair that starts at line rate, as the paper's does.
    pub fn new(config: &Config, about: &Circumstances) -> Self {
        let line_bps = about.line.as_bps();
        let base_rtt = config.base_rtt.unwrap_or(about.base_rtt);
        let share = (1.0 - config.utilisation) / 100.0;
        let step = config.step.map_or((line_bps as f64 * share) as u64, Rate::as_bps);
        Self {
            config: config.clone(),
            line_bps,
            step_bps: step,
            base_rtt_ns: (base_rtt.as_ps() / 1_000).max(1),
            window: bandwidth_delay(about.line, base_rtt),
            rate_bps: line_bps,
            reference_bps: line_bps,
            utilisation: 1.0,
            rounds: 0,
            last: 0,
            stamps: Vec::new(),
        }
    }

    fn stamp(&self, hop: &Hop) -> Stamp {
        Stamp {
            ns: hop.at.as_ps() / 1_000,
            sent: hop.sent / self.config.sent_unit.get().max(1),
            queued: hop.queued.get() / self.config.queue_unit.get().max(1),
            rate_bps: hop.rate_bps,
        }
    }

    fn store(&mut self, hops: &[Hop]) {
        let mut stamps = std::mem::take(&mut self.stamps);
        stamps.clear();
        stamps.extend(hops.iter().map(|hop| self.stamp(hop)));
        self.stamps = stamps;
    }

    /// How busy one hop was between two stamps, and how long that was; nothing if they are not
    /// two stamps of one port in order.
    fn of_hop(&self, before: Stamp, now: Stamp) -> Option<(f64, u64)> {
        if now.ns <= before.ns || now.sent < before.sent || now.rate_bps != before.rate_bps {
            return None;
        }
        let tau = (now.ns - before.ns) & ((1 << TIME_BITS) - 1);
        if tau == 0 {
            return None;
        }
        let units = (now.sent - before.sent) & ((1 << SENT_BITS) - 1);
        let bytes = units * self.config.sent_unit.get();
        let rate = (bytes * 8) as f64 / (tau as f64 * 1e-9);
        let queued = (now.queued.min(before.queued) * self.config.queue_unit.get()) as f64;
        let line = now.rate_bps as f64;
        let waiting = queued * self.line_bps as f64 / line / self.window.max(1) as f64;
        Some((rate / line + waiting, tau))
    }

    /// The rate that the measured utilisation asks for; false if nothing could be measured.
    fn react(&mut self, hops: &[Hop]) -> bool {
        // Over hops that were all idle no time counts, as in HPCC's ns-3.
        let mut busiest: Option<(f64, u64)> = None;
        for (hop, before) in hops.iter().zip(&self.stamps) {
            if let Some((busy, tau)) = self.of_hop(*before, self.stamp(hop)) {
                let most = busiest.unwrap_or((0.0, 0));
                busiest = Some(if most.0 < busy { (busy, tau) } else { most });
            }
        }
        let same_path = hops.len() == self.stamps.len();
        self.store(hops);
        let Some((busy, tau)) = busiest.filter(|_| same_path) else { return false };
        let (base, tau) = (self.base_rtt_ns, tau.min(self.base_rtt_ns));
        self.utilisation =
            (self.utilisation * (base - tau) as f64 + busy * tau as f64) / base as f64;
        true
    }

    fn wanted(&self) -> (u64, u32) {
        let over = self.utilisation / self.config.utilisation;
        let (rate, rounds) = if 1.0 <= over || self.config.additive_rounds <= self.rounds {
            ((self.reference_bps as f64 / over) as u64, 0)
        } else {
            (self.reference_bps, self.rounds + 1)
        };
        let rate = rate.saturating_add(self.step_bps).max(self.config.min_rate.as_bps());
        (rate.min(self.line_bps), rounds)
    }
}

impl Sender for Hpcc {
    fn limit(&self) -> Limit {
        Limit {
            rate: Rate::from_bps(self.rate_bps),
            window: window_at(self.window, self.rate_bps, self.line_bps),
        }
    }

    fn has_steady_mean(&self) -> bool {
        true
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack<'_>) {
        if ack.hops.is_empty() {
            return;
        }
        if self.last == 0 {
            self.last = ack.sent_through;
            self.store(ack.hops);
            return;
        }
        let measured = self.react(ack.hops);
        if measured {
            let (rate, rounds) = self.wanted();
            self.rate_bps = rate;
            if self.last < ack.through {
                self.reference_bps = rate;
                self.rounds = rounds;
            }
        }
        if self.last < ack.through {
            self.last = self.last.max(ack.sent_through);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_gbps(400);

    fn about() -> Circumstances {
        Circumstances { line: LINE, base_rtt: Span::from_ns(4_000), hops: 2, mtu: Bytes::new(4096) }
    }

    fn hop(ns: u64, sent: u64, queued: u64) -> Hop {
        let (at, queued) = (Time::from_ps(ns * 1_000), Bytes::new(queued));
        Hop { at, queued, sent, rate_bps: LINE.as_bps() }
    }

    fn ack(through: u64, sent_through: u64, hops: &[Hop]) -> Ack<'_> {
        let size = Bytes::new(4096);
        Ack { size, through, sent_through, sent_at: Time::ZERO, marked: false, hops }
    }

    /// Oracle: by hand. The link ran at its rate for a whole base round trip with a queue of half
    /// a window: U is 1.5, and the rate becomes 400 G / (1.5 / 0.95) + step.
    #[test]
    fn a_full_queue_cuts_by_what_it_holds() {
        let config = Config {
            sent_unit: Bytes::new(1),
            queue_unit: Bytes::new(1),
            ..Config::ns3(LINE, Span::from_us(4))
        };
        let mut hpcc = Hpcc::new(&config, &about());
        hpcc.on_ack(Time::ZERO, &ack(4096, 200_000, &[hop(0, 0, 100_000)]));
        assert_eq!(hpcc.limit().rate, LINE);
        hpcc.on_ack(Time::ZERO, &ack(8192, 200_000, &[hop(4_000, 200_000, 150_000)]));
        let wanted = (400e9 / (1.5 / 0.95)) as u64 + 160_000_000;
        assert_eq!(hpcc.limit().rate.as_bps(), wanted);
        assert_eq!(hpcc.reference_bps, LINE.as_bps(), "not yet a round trip");
    }

    /// Property: whatever stamps say, the rate stays between its bounds.
    #[test]
    fn rates_stay_in_bounds() {
        for seed in 0..50 {
            let mut random = units::Random::new(seed, "hpcc", 0);
            let mut hpcc = Hpcc::new(&Config::default(), &about());
            for step in 1..500_u64 {
                let hops: Vec<Hop> = (0..=random.below(3))
                    .map(|_| {
                        hop(random.below(1 << 30), random.below(1 << 30), random.below(1 << 24))
                    })
                    .collect();
                hpcc.on_ack(Time::ZERO, &ack(step * 4096, step * 4096 + 65_536, &hops));
                let rate = hpcc.limit().rate.as_bps();
                assert!((100_000_000..=LINE.as_bps()).contains(&rate), "seed {seed}: {rate}");
            }
        }
    }
}
