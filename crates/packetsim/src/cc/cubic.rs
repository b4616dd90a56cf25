//! CUBIC: the congestion control of kernel TCP, a window at the sender.
//!
//! The window grows by a cubic function of the time since the last loss: fast far from the window
//! at which the loss happened, slowly near it, fast again beyond. A loss cuts it to `keep` of
//! itself. Before the first loss it doubles every round trip (slow start).
//!
//! Source: RFC 9438; its symbols stand in brackets after the parameters.
//!
//! # Where this model departs from its sources
//!
//! * HyStart++ is left out: slow start ends with a loss or at the largest window.
//! * Proportional rate reduction is left out: a cut is made at once, at most one per round trip.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Time};

use super::{Ack, Algorithm, Circumstances, Limit, Loss, MOST_FACTOR, Sender};

/// Parameters of CUBIC.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Packets per second cubed by which the window grows (C).
    pub growth: f64,
    /// What a loss leaves of the window (beta).
    pub keep: f64,
    /// The window at the beginning.
    pub initial_window: Bytes,
    /// The largest window: what sender and receiver can hold.
    pub max_window: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // RFC 9438, sections 5.1 and 4.6.
            growth: 0.4,
            keep: 0.7,
            // RFC 6928: ten segments of 1,460 bytes.
            initial_window: Bytes::new(14_600),
            // Linux: tcp_rmem's default maximum, 6 MiB.
            max_window: Bytes::from_mib(6),
        }
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Cubic::new(self, about))
    }

    fn ranges(&self, check: &mut Ranges) {
        check.within("growth", self.growth, [1e-9, MOST_FACTOR]);
        check.weight("keep", self.keep);
    }

    fn window(&self) -> Option<(Bytes, Bytes)> {
        Some((self.initial_window, self.max_window))
    }
}

/// The sending half. Windows are in packets.
#[derive(Debug)]
pub struct Cubic {
    config: Config,
    line: Rate,
    mtu: f64,
    window: f64,
    most: f64,
    threshold: f64,
    /// The window at the last loss (W_max).
    before: f64,
    /// When growth began, and how long it takes back to `before` (K).
    epoch: Option<(Time, f64)>,
    /// What Reno would have reached since (W_est).
    reno: f64,
    rtt_s: f64,
    last_cut: Time,
}

impl Cubic {
    /// A fresh connection.
    pub fn new(config: &Config, about: &Circumstances) -> Self {
        let mtu = about.mtu.as_f64();
        Self {
            config: config.clone(),
            line: about.line,
            mtu,
            window: (config.initial_window.as_f64() / mtu).max(1.0),
            most: (config.max_window.as_f64() / mtu).max(2.0),
            threshold: f64::INFINITY,
            before: 0.0,
            epoch: None,
            reno: 0.0,
            rtt_s: about.base_rtt.as_secs_f64(),
            last_cut: Time::ZERO,
        }
    }

    fn cut(&mut self, now: Time) {
        self.last_cut = now;
        // Fast convergence (section 4.7): a window that has not reached its last one gives way.
        let gives_way = self.window < self.before;
        self.before = self.window * if gives_way { (1.0 + self.config.keep) / 2.0 } else { 1.0 };
        self.window = (self.window * self.config.keep).max(1.0);
        self.threshold = self.window.max(2.0);
        self.epoch = None;
    }

    fn avoid_congestion(&mut self, now: Time, packets: f64) {
        let (growth, keep) = (self.config.growth, self.config.keep);
        let window = self.window;
        let (begun, back) = *self.epoch.get_or_insert_with(|| {
            let gap = (self.before - window).max(0.0);
            (now, (gap / growth).cbrt())
        });
        if begun == now {
            self.reno = window;
        }
        let time = now.since(begun).as_secs_f64() + self.rtt_s;
        let target = (growth * (time - back).powi(3) + self.before.max(window)).min(1.5 * window);
        if window < target {
            self.window += (target - window) / window * packets;
        }
        self.reno += 3.0 * (1.0 - keep) / (1.0 + keep) * packets / window;
        self.window = self.window.max(self.reno);
    }
}

impl Sender for Cubic {
    fn limit(&self) -> Limit {
        Limit { rate: self.line, window: Bytes::new((self.window * self.mtu) as u64) }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        self.rtt_s = now.since(ack.sent_at).as_secs_f64();
        let packets = ack.size.as_f64() / self.mtu;
        if self.window < self.threshold {
            self.window += packets;
        } else {
            self.avoid_congestion(now, packets);
        }
        self.window = self.window.min(self.most);
    }

    fn on_loss(&mut self, now: Time, loss: Loss) {
        if loss == Loss::Reported {
            if now.since(self.last_cut).as_secs_f64() < self.rtt_s && self.last_cut != Time::ZERO {
                return;
            }
            self.cut(now);
        } else {
            self.cut(now);
            self.window = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Span;

    fn cubic() -> Cubic {
        let about = Circumstances {
            line: Rate::from_gbps(100),
            base_rtt: Span::from_us(50),
            hops: 2,
            mtu: Bytes::new(1460),
        };
        Cubic::new(&Config::default(), &about)
    }

    fn tell(cubic: &mut Cubic, at_us: u64) {
        let ack = Ack {
            size: Bytes::new(1460),
            through: 1460,
            sent_through: 1460,
            sent_at: Time::from_ps((at_us - 50) * 1_000_000),
            marked: false,
            hops: &[],
        };
        cubic.on_ack(Time::from_ps(at_us * 1_000_000), &ack);
    }

    #[test]
    fn slow_start_doubles_and_a_loss_leaves_seven_tenths() {
        let mut cubic = cubic();
        assert_eq!(cubic.window, 10.0);
        (0..10).for_each(|_| tell(&mut cubic, 100));
        assert_eq!(cubic.window, 20.0);
        cubic.on_loss(Time::from_ps(200_000_000), Loss::Reported);
        assert_eq!(cubic.window, 14.0);
        cubic.on_loss(Time::from_ps(210_000_000), Loss::Reported);
        assert_eq!(cubic.window, 14.0, "once per round trip");
    }

    /// Oracle: the cube root of 0.3 · 1000 / 0.4 is the time back to the old window of 1,000
    /// packets, 9.09 s.
    #[test]
    fn the_old_window_is_reached_after_k_seconds() {
        let mut cubic = cubic();
        cubic.window = 1_000.0;
        cubic.on_loss(Time::from_ps(1_000_000), Loss::Reported);
        cubic.rtt_s = 0.1;
        tell(&mut cubic, 100);
        let (_, back) = cubic.epoch.expect("growth has begun");
        assert!((back - (750.0_f64).cbrt()).abs() < 1e-3, "{back}");
    }
}
