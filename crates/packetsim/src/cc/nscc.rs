//! NSCC: Ultra Ethernet's network-signalled congestion control, a window at the sender.
//!
//! Each acknowledgement brings two signals: whether the packet was marked, and how long it queued
//! (its round trip less the unloaded one). Four cases follow:
//!
//! | | short queue | long queue |
//! | --- | --- | --- |
//! | not marked | grow in proportion to what is left to the target | grow a little, for fairness |
//! | marked | wait: the queue is already draining | cut by how far the mean delay is above target |
//!
//! Growth is gathered and applied once per round trip or every few packets. With no queue at all
//! for a whole window it grows by a quarter of what arrives. After a trimmed packet, or far above
//! the target, the window becomes what was achieved in the last round trip ("quick adapt"), and
//! what was sent before is ignored.
//!
//! Source: Ultra Ethernet Specification 1.0, congestion management; order of steps and constants
//! are those of its reference simulation (ultraethernet/uet-htsim, htsim/sim/uec.cpp).
//!
//! # Where this model departs from its sources
//!
//! * The threshold in bytes for applying growth is eight packets, as in the simulation's default.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Span, Time};

use super::{Ack, Algorithm, Circumstances, Limit, Loss, MOST_FACTOR, Sender, bandwidth_delay};

/// Parameters of NSCC. The defaults are those of the reference simulation.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Queueing delay aimed at, as a share of the unloaded round trip.
    pub target: f64,
    /// How strongly a cut follows the excess (gamma).
    pub cut: f64,
    /// Packets of fair growth per window (fi), at the reference's speed.
    pub fair_step: f64,
    /// Packets of growth in every round trip (eta), at the reference's speed.
    pub steady_step: f64,
    /// Packets of proportional growth per window with no delay (alpha times the target).
    pub proportional_step: f64,
    /// Growth with an empty network, as a share of what arrives.
    pub fast_share: f64,
    /// Weight of the newest delay in the mean.
    pub delay_gain: f64,
    /// Delay in targets above which the window becomes what was achieved.
    pub quick_above: f64,
    /// The largest window in bandwidth-delay products.
    pub max_window: f64,
}

impl Default for Config {
    fn default() -> Self {
        // uet-htsim, uec.cpp: target 0.75 of the round trip with trimming; gamma 0.8; fi 5, eta
        // 0.15 and alpha 4 packets, scaled by the bandwidth-delay product; delay_alpha 0.0125;
        // quick adapt above four targets; windows of up to 1.5 bandwidth-delay products; fast
        // increase by a quarter.
        Self {
            target: 0.75,
            cut: 0.8,
            fair_step: 5.0,
            steady_step: 0.15,
            proportional_step: 4.0,
            fast_share: 0.25,
            delay_gain: 0.0125,
            quick_above: 4.0,
            max_window: 1.5,
        }
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Nscc::new(self, about))
    }

    fn ranges(&self, check: &mut Ranges) {
        let Self { target, cut, fair_step, steady_step, proportional_step, .. } = *self;
        check.within("target", target, [1e-9, MOST_FACTOR]);
        let factors = [
            ("cut", cut),
            ("fair_step", fair_step),
            ("steady_step", steady_step),
            ("proportional_step", proportional_step),
            ("fast_share", self.fast_share),
            ("quick_above", self.quick_above),
        ];
        for (key, factor) in factors {
            check.within(key, factor, [0.0, MOST_FACTOR]);
        }
        check.weight("delay_gain", self.delay_gain);
        check.within("max_window", self.max_window, [1e-9, MOST_FACTOR]);
    }
}

/// The sending half. Times are picoseconds, sizes bytes.
#[derive(Debug)]
pub struct Nscc {
    config: Config,
    line: Rate,
    mtu: f64,
    base_rtt: f64,
    target: f64,
    /// The reference's constants are for 100 Gb/s and 12 us; these scale them.
    scale: f64,
    target_scale: f64,
    most: f64,
    window: f64,
    delay: f64,
    /// Growth gathered, in bytes times bytes of window.
    gathered: f64,
    received: f64,
    /// What has arrived without queueing in a row.
    empty: f64,
    growing: bool,
    last_cut: u64,
    last_adjusted: u64,
    quick_end: u64,
    quick_wanted: bool,
    achieved: f64,
    /// Bytes of before the last quick adapt that are still to be ignored.
    to_ignore: f64,
}

/// Delays below this count as none (uec.cpp: one microsecond).
const NO_DELAY_PS: f64 = 1e6;

impl Nscc {
    /// A queue pair that starts with the largest window.
    pub fn new(config: &Config, about: &Circumstances) -> Self {
        let product = bandwidth_delay(about.line, about.base_rtt) as f64;
        let reference = bandwidth_delay(Rate::from_gbps(100), Span::from_us(12)) as f64;
        let base_rtt = about.base_rtt.as_ps() as f64;
        let target = base_rtt * config.target;
        let most = (product * config.max_window).max(2.0 * about.mtu.as_f64());
        Self {
            config: config.clone(),
            line: about.line,
            mtu: about.mtu.as_f64(),
            base_rtt,
            target,
            scale: product / reference,
            target_scale: target / 12e6,
            most,
            window: most,
            delay: 0.0,
            gathered: 0.0,
            received: 0.0,
            empty: 0.0,
            growing: false,
            last_cut: 0,
            last_adjusted: 0,
            quick_end: 0,
            quick_wanted: false,
            achieved: 0.0,
            to_ignore: 0.0,
        }
    }

    fn bound(&mut self) {
        self.window = self.window.clamp(self.mtu, self.most);
    }

    /// Makes the window what was achieved, if something went badly wrong; true if so, or if this
    /// packet is from before.
    fn quick_adapt(&mut self, now: u64, lost: bool, marked: bool, delay: f64) -> bool {
        let mut ignore = false;
        if 0.0 < self.to_ignore && marked {
            ignore = true;
        } else if self.quick_end < now {
            let bad = self.quick_wanted || lost || self.config.quick_above * self.target < delay;
            if self.quick_end != 0 && bad && self.achieved < self.most / 8.0 {
                self.to_ignore = self.window;
                self.window = self.achieved.max(self.mtu).min(self.window);
                self.quick_wanted = false;
                ignore = true;
            }
            self.achieved = 0.0;
            self.quick_end = now + (self.base_rtt + self.target) as u64;
        }
        if ignore {
            self.gathered = 0.0;
            self.received = 0.0;
        }
        ignore
    }

    fn note_delay(&mut self, delay: f64, marked: bool) {
        let sample = if !marked && self.target < delay { self.base_rtt * 0.25 } else { delay };
        let gain = self.config.delay_gain;
        self.delay = gain * sample + (1.0 - gain) * self.delay;
    }

    fn grow(&mut self, size: f64, delay: f64) {
        if self.target <= delay {
            self.gathered += self.config.fair_step * self.mtu * self.scale * size;
            return;
        }
        self.empty = if delay < NO_DELAY_PS { self.empty + size } else { 0.0 };
        self.growing = delay < NO_DELAY_PS && (self.window < self.empty || self.growing);
        if self.growing {
            self.window += size * self.config.fast_share;
        } else {
            let step = self.config.proportional_step * self.mtu * self.scale * self.target_scale;
            self.gathered += step * size * (self.target - delay) / self.target;
        }
    }

    fn shrink(&mut self, now: u64) {
        self.growing = false;
        self.empty = 0.0;
        if self.target < self.delay && self.base_rtt < (now - self.last_cut) as f64 {
            let excess = (self.delay - self.target) / self.delay;
            self.window *= (1.0 - self.config.cut * excess).max(0.5);
            self.last_cut = now;
        }
    }

    fn adjust(&mut self, now: u64) {
        let since = (now - self.last_adjusted) as f64;
        if self.received <= 8.0 * self.mtu && since <= self.base_rtt {
            return;
        }
        self.window += self.gathered / self.window;
        if self.base_rtt <= since {
            self.window += self.config.steady_step * self.mtu * self.scale;
            self.last_adjusted = now;
        }
        self.gathered = 0.0;
        self.received = 0.0;
    }
}

impl Sender for Nscc {
    fn limit(&self) -> Limit {
        Limit { rate: self.line, window: Bytes::new(self.window as u64) }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        let size = ack.size.as_f64();
        let delay = (now.since(ack.sent_at).as_ps() as f64 - self.base_rtt).max(0.0);
        let now = now.as_ps();
        self.note_delay(delay, ack.marked);
        self.received += size;
        self.achieved += size;
        self.to_ignore = (self.to_ignore - size).max(0.0);
        if self.quick_adapt(now, false, ack.marked, delay) {
            return;
        }
        match ack.marked {
            false => self.grow(size, delay),
            true if self.target <= delay => self.shrink(now),
            true => {}
        }
        self.bound();
        self.adjust(now);
        self.bound();
    }

    fn on_loss(&mut self, now: Time, loss: Loss) {
        self.to_ignore = (self.to_ignore - self.mtu).max(0.0);
        self.quick_wanted = true;
        let adapted = self.quick_adapt(now.as_ps(), true, true, 0.0);
        if !adapted && loss == Loss::Reported {
            self.window -= self.mtu;
        }
        self.bound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nscc() -> Nscc {
        let about = Circumstances {
            line: Rate::from_gbps(400),
            base_rtt: Span::from_us(8),
            hops: 4,
            mtu: Bytes::new(4000),
        };
        Nscc::new(&Config::default(), &about)
    }

    fn tell(nscc: &mut Nscc, at_us: u64, rtt_us: u64, marked: bool) {
        let ack = Ack {
            size: Bytes::new(4000),
            through: 4000,
            sent_through: 8000,
            sent_at: Time::from_ps((at_us - rtt_us) * 1_000_000),
            marked,
            hops: &[],
        };
        nscc.on_ack(Time::from_ps(at_us * 1_000_000), &ack);
    }

    /// Oracle: the window starts at 1.5 bandwidth-delay products and no acknowledgement moves it
    /// beyond.
    #[test]
    fn a_lone_flow_keeps_the_largest_window() {
        let mut nscc = nscc();
        assert_eq!(nscc.limit().window, Bytes::new(600_000));
        for at in 100..200 {
            tell(&mut nscc, at, 8, false);
        }
        assert_eq!(nscc.limit().window, Bytes::new(600_000));
    }

    /// Oracle: by hand. The mean delay is 30 us, the target 6 us: the cut is 0.8 · 24 / 30, which
    /// is more than a half, so a half.
    #[test]
    fn long_marked_queues_cut_at_most_by_half_and_once_per_round_trip() {
        let mut nscc = nscc();
        nscc.delay = 30e6;
        nscc.quick_end = u64::MAX - 1;
        nscc.last_adjusted = 1_000_000_000;
        tell(&mut nscc, 1_000, 38, true);
        assert_eq!(nscc.window, 300_000.0);
        tell(&mut nscc, 1_001, 38, true);
        assert_eq!(nscc.window, 300_000.0);
    }

    /// After a trimmed packet the window becomes what the last round trip achieved.
    #[test]
    fn a_trimmed_packet_makes_the_window_what_was_achieved() {
        let mut nscc = nscc();
        tell(&mut nscc, 100, 8, false);
        for at in 101..=105 {
            tell(&mut nscc, at, 14, true);
        }
        nscc.on_loss(Time::from_ps(200_000_000), Loss::Reported);
        assert_eq!(nscc.window, 5.0 * 4000.0);
    }
}
