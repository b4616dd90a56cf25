//! PowerTCP: telemetry from every hop, a window at the sender that follows the network's power.
//!
//! Every switch stamps a data packet with the time, the bytes that its port has sent and the bytes
//! left in its queue; the receiver returns the stamps. From two stamps of a hop the sender computes
//! the rate at which bytes arrive there (the "current", how fast the queue grows and how fast the
//! port sends), and what is in the queue and on the wire (the "voltage", queue plus
//! bandwidth-delay product). Their product is the power of the hop; over that of a link which is
//! busy and has no queue it is 1 where all is well. The hop with the most counts, smoothed over a
//! round trip, and the window becomes
//!
//! ```text
//! window = gamma · (window a round trip ago / power + beta) + (1 − gamma) · window
//! ```
//!
//! Power over that of a busy link is the sum of the windows of a round trip ago over the
//! bandwidth-delay product, whatever share of them is in the queue; dividing by it brings the sum
//! to one product in one step. The sum of all `beta` on a link is what waits there in the end.
//!
//! Source: Addanki, Michel and Schmid, "PowerTCP: Pushing the Performance Limits of Datacenter
//! Networks", NSDI 2022, Algorithm 1; its symbols stand in brackets after the parameters. What the
//! algorithm leaves open is as in the authors' ns-3 (inet-tub/ns3-datacenter, `rdma-hw.cc`,
//! `UpdateRatePower`): bounds of the window, and spans longer than a round trip.
//!
//! # Where this model departs from its sources
//!
//! * The window a round trip ago is that of the packets which arrived at the queue when the stamp
//!   was written: the stamped packet itself had waited there. With its own window, as the paper has
//!   it, windows swing for ten round trips.
//! * A window that shrinks does so by half of what is acknowledged, as in proportional rate
//!   reduction (RFC 6937): a sender that fell silent until its window had room would be measured as
//!   a current of zero.
//! * The authors' ns-3 divides the power by a utilisation of 0.95; the paper does not, nor does
//!   this.
//! * Stamps are exact; fields of a header would have units and wrap around.
//! * Stamps of a hop that go backwards come from another path; they are stored and say nothing.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Span, Time};

use super::{Ack, Algorithm, Circumstances, Hop, Limit, MOST_ROOM, Needs, Sender, bandwidth_delay};
use crate::settings::LONGEST;

/// Parameters of PowerTCP.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Weight of the window that the power asks for (gamma).
    pub gain: f64,
    /// Flows that are expected to share the sender's link (N): a window grows by a
    /// bandwidth-delay product over this in a round trip (beta).
    pub expected_flows: u32,
    /// No window goes below this rate over the unloaded round trip.
    pub min_rate: Rate,
    /// Unloaded round trip (tau); without it, that of the queue pair's own path.
    pub base_rtt: Option<Span>,
    /// Room for stamps on a data packet.
    pub data_bytes: Bytes,
    /// Room for stamps on an acknowledgement.
    pub ack_bytes: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Section 4: gamma 0.9.
            gain: 0.9,
            // The authors' ns-3 adds 150 Mb/s on hosts of 25 Gb/s. (Their Linux module expects 10
            // flows, with which two flows would keep a fifth of a bandwidth-delay product queued.)
            expected_flows: 167,
            // The authors' ns-3 (MIN_RATE of its configurations).
            min_rate: Rate::from_bps(100_000_000),
            base_rtt: None,
            // The authors' ns-3 uses HPCC's header: 42 bytes for five hops.
            data_bytes: Bytes::new(42),
            ack_bytes: Bytes::new(42),
        }
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(PowerTcp::new(self, about))
    }

    fn needs(&self) -> Needs {
        let (data_bytes, ack_bytes) = (self.data_bytes, self.ack_bytes);
        Needs { hops: true, data_bytes, ack_bytes, repace: true, ..Needs::default() }
    }

    fn ranges(&self, check: &mut Ranges) {
        check.weight("gain", self.gain);
        check.at_least("expected_flows", self.expected_flows, 1);
        check.at_most("base_rtt", self.base_rtt.unwrap_or_default(), LONGEST);
        check.at_most("data_bytes", self.data_bytes, MOST_ROOM);
        check.at_most("ack_bytes", self.ack_bytes, MOST_ROOM);
    }
}

/// The sending half. Windows are in bytes, times in seconds.
#[derive(Debug)]
pub struct PowerTcp {
    gain: f64,
    line: Rate,
    base_rtt: f64,
    /// Beta.
    step: f64,
    least: f64,
    most: f64,
    window: f64,
    /// What may be under way: the window, or more while it shrinks.
    bound: f64,
    /// The last bounds, and since when each held.
    old_bounds: VecDeque<(Time, f64)>,
    /// The normalised power, smoothed.
    power: f64,
    stamps: Vec<Hop>,
}

impl PowerTcp {
    /// A queue pair that starts with a bandwidth-delay product, as the paper's does.
    pub fn new(config: &Config, about: &Circumstances) -> Self {
        let base_rtt = config.base_rtt.unwrap_or(about.base_rtt).max(Span::from_ns(1));
        let product = bandwidth_delay(about.line, base_rtt).max(1) as f64;
        let step = product / f64::from(config.expected_flows);
        let share = config.min_rate.as_bps_f64() / about.line.as_bps_f64();
        Self {
            gain: config.gain,
            line: about.line,
            base_rtt: base_rtt.as_secs_f64(),
            step,
            least: product * share.min(1.0),
            most: product + step,
            window: product,
            bound: product,
            old_bounds: VecDeque::from([(Time::ZERO, product)]),
            power: 1.0,
            stamps: Vec::new(),
        }
    }

    /// The normalised power of a hop between two stamps, and the seconds between them; nothing if
    /// they are not two stamps of one port in order.
    fn power_of(&self, before: &Hop, now: &Hop) -> Option<(f64, f64)> {
        if now.at <= before.at || now.sent < before.sent || now.rate_bps != before.rate_bps {
            return None;
        }
        let seconds = now.at.since(before.at).as_secs_f64();
        let line = now.rate_bps as f64 / 8.0;
        let product = line * self.base_rtt;
        let growth = (now.queued.as_f64() - before.queued.as_f64()) / seconds;
        let sending = (now.sent - before.sent) as f64 / seconds;
        let current = (growth + sending).max(0.0);
        let voltage = now.queued.as_f64() + product;
        Some((current * voltage / (line * product), seconds))
    }

    /// What could be under way when those packets were sent that arrived as this one was stamped.
    fn bound_at(&mut self, ack: &Ack<'_>) -> f64 {
        let wait = |hop: &Hop| Rate::from_bps(hop.rate_bps.max(1)).time_to_send(hop.queued);
        let waited = ack.hops.iter().map(wait).max().unwrap_or_default();
        let then = ack.sent_at + waited;
        while self.old_bounds.get(1).is_some_and(|(since, _)| *since <= then) {
            self.old_bounds.pop_front();
        }
        self.old_bounds[0].1
    }

    /// Brings the power up to date; false if nothing could be measured.
    fn measure(&mut self, hops: &[Hop]) -> bool {
        let same_path = hops.len() == self.stamps.len();
        let pairs = self.stamps.iter().zip(hops);
        let measured = pairs.filter_map(|(before, now)| self.power_of(before, now));
        let most = measured.max_by(|a, b| a.0.total_cmp(&b.0));
        self.stamps.clear();
        self.stamps.extend_from_slice(hops);
        let Some((power, seconds)) = most.filter(|_| same_path) else { return false };
        let weight = (seconds / self.base_rtt).min(1.0);
        self.power = self.power * (1.0 - weight) + power * weight;
        true
    }
}

impl Sender for PowerTcp {
    fn limit(&self) -> Limit {
        let rate = (self.window * 8.0 / self.base_rtt) as u64;
        let rate = Rate::from_bps(rate.max(1)).min(self.line);
        Limit { rate, window: Bytes::new((self.bound as u64).max(1)) }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        if ack.hops.is_empty() {
            return;
        }
        let old = self.bound_at(ack);
        if self.measure(ack.hops) {
            let wanted = old / self.power.max(1e-9) + self.step;
            let window = self.gain * wanted + (1.0 - self.gain) * self.window;
            self.window = window.clamp(self.least, self.most);
            self.bound = self.window.max(self.bound - ack.size.as_f64() / 2.0);
            self.old_bounds.push_back((now, self.bound));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_gbps(400);

    fn about() -> Circumstances {
        Circumstances { line: LINE, base_rtt: Span::from_us(4), hops: 2, mtu: Bytes::new(4096) }
    }

    fn hop(ns: u64, sent: u64, queued: u64) -> Hop {
        let (at, queued) = (Time::from_ps(ns * 1_000), Bytes::new(queued));
        Hop { at, queued, sent, rate_bps: LINE.as_bps() }
    }

    fn ack(through: u64, hops: &[Hop]) -> Ack<'_> {
        let (size, sent_through) = (Bytes::new(4096), through + 200_000);
        Ack { size, through, sent_through, sent_at: Time::ZERO, marked: false, hops }
    }

    /// Oracle: by hand. The product is 200,000 bytes and beta 2,000. In a round trip the port sent
    /// at line rate and its queue grew by half a product: current 1.5, voltage 1.5, power 2.25.
    #[test]
    fn a_queue_cuts_by_its_length_and_its_growth() {
        let config = Config { expected_flows: 100, ..Config::default() };
        let mut power = PowerTcp::new(&config, &about());
        power.on_ack(Time::ZERO, &ack(4_096, &[hop(0, 0, 0)]));
        assert_eq!(power.limit().window, Bytes::new(200_000));
        power.on_ack(Time::ZERO, &ack(8_192, &[hop(4_000, 200_000, 100_000)]));
        let wanted = 0.9 * (200_000.0 / 2.25 + 2_000.0) + 0.1 * 200_000.0;
        // What is under way shrinks by half of what is acknowledged.
        assert_eq!(power.limit().window, Bytes::new(200_000 - 2_048));
        let rate = wanted * 8.0 / 4e-6;
        assert!((power.limit().rate.as_bps_f64() / rate - 1.0).abs() < 1e-9);
    }

    /// Oracle: an idle link has no power, and the window opens to its largest at once.
    #[test]
    fn an_idle_network_opens_the_window() {
        let mut power = PowerTcp::new(&Config::default(), &about());
        power.on_ack(Time::ZERO, &ack(4_096, &[hop(0, 0, 400_000)]));
        power.on_ack(Time::ZERO, &ack(8_192, &[hop(4_000, 200_000, 400_000)]));
        assert!(power.limit().rate < Rate::from_gbps(200));
        power.on_ack(Time::ZERO, &ack(12_288, &[hop(8_000, 200_000, 0)]));
        assert!(Bytes::new(200_000) < power.limit().window);
        assert_eq!(power.limit().rate, LINE);
    }

    /// Property: whatever stamps say, the window stays between its bounds.
    #[test]
    fn windows_stay_in_bounds() {
        for seed in 0..50 {
            let mut random = units::Random::new(seed, "powertcp", 0);
            let mut power = PowerTcp::new(&Config::default(), &about());
            for step in 1..500_u64 {
                let hops: Vec<Hop> = (0..=random.below(3))
                    .map(|_| {
                        hop(random.below(1 << 30), random.below(1 << 30), random.below(1 << 24))
                    })
                    .collect();
                power.on_ack(Time::ZERO, &ack(step * 4096, &hops));
                let window = power.limit().window.get();
                assert!((50..=201_198).contains(&window), "seed {seed}: {window}");
            }
        }
    }
}
