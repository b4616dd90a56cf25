//! Swift: a target for the round trip, a window at the sender.
//!
//! Below its target delay a flow's window grows by `step` packets per round trip; above it the
//! window is cut in proportion to the excess, at most by `max_cut` and once per round trip. The
//! target grows with the number of hops, and while the window is small: many flows on one link have
//! small windows and get a longer queue to share. Windows may fall below one packet; then packets
//! are paced further apart than a round trip.
//!
//! Source: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the
//! Datacenter", SIGCOMM 2020, Algorithm 1; its symbols stand in brackets after the parameters.
//!
//! # Where this model departs from its sources
//!
//! * Swift has a second window for delay in the hosts; packets here meet no host delay.
//! * A queue pair starts with a bandwidth-delay product, not a small window.
//! * Packets are paced only below a window of one packet, as in the paper; above, they are sent as
//!   acknowledgements come.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Span, Time};

use super::{
    Ack, Algorithm, Circumstances, Limit, Loss, MOST_FACTOR, MOST_ROOM, Needs, Sender,
    bandwidth_delay,
};
use crate::settings::LONGEST;

/// Parameters of Swift.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Target delay before anything is added (base_target).
    pub base_target: Span,
    /// Added for each link of the path.
    pub per_hop: Span,
    /// Most that is added for small windows (fs_range).
    pub flow_range: Span,
    /// Window in packets below which all of that is added (fs_min_cwnd).
    pub flow_min: f64,
    /// Window in packets above which none of it is added (fs_max_cwnd).
    pub flow_max: f64,
    /// Packets per round trip by which a window grows (ai).
    pub step: f64,
    /// How strongly a cut follows the excess (beta).
    pub cut: f64,
    /// No cut takes more than this share (max_mdf).
    pub max_cut: f64,
    /// Smallest window in packets (min_cwnd).
    pub min_window: f64,
    /// Room for timestamps on a data packet.
    pub data_bytes: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // The order of magnitude of the paper's figures; quoted from memory in the sources.
            base_target: Span::from_us(25),
            per_hop: Span::from_us(1),
            step: 1.0,
            cut: 0.8,
            max_cut: 0.5,
            // Section 3.5's shape with the paper's range of windows; illustrative.
            flow_range: Span::from_us(25),
            flow_min: 0.1,
            flow_max: 100.0,
            min_window: 0.001,
            data_bytes: Bytes::new(8),
        }
    }
}

impl Config {
    /// The target delay over so many hops without what it grants to flows that share a link.
    fn fixed_target(&self, hops: u32) -> Span {
        self.base_target + self.per_hop * u64::from(hops)
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Swift::new(self, about))
    }

    fn needs(&self) -> Needs {
        Needs { data_bytes: self.data_bytes, ..Needs::default() }
    }

    /// It slows down for ever where even an idle network takes longer than its target.
    fn finding(&self, about: &Circumstances) -> Option<String> {
        let most = self.fixed_target(about.hops) + self.flow_range;
        (most < about.base_rtt).then(|| {
            format!(
                "swift's target is {most} at most, but an idle round trip takes {}: its flows slow \
                 down for ever (`network.congestion.base_target`)",
                about.base_rtt
            )
        })
    }

    fn ranges(&self, check: &mut Ranges) {
        let Self { base_target, per_hop, flow_range, .. } = *self;
        let spans =
            [("base_target", base_target), ("per_hop", per_hop), ("flow_range", flow_range)];
        for (key, span) in spans {
            check.at_most(key, span, LONGEST);
        }
        check.within("flow_min", self.flow_min, [1e-9, MOST_FACTOR]);
        check.within("flow_max", self.flow_max, [1e-9, MOST_FACTOR]);
        if self.flow_max <= self.flow_min {
            let range = format!("below `flow_max`, which is {}", self.flow_max);
            check.refuse(&["flow_min", "flow_max"], self.flow_min, &range);
        }
        check.within("step", self.step, [0.0, MOST_FACTOR]);
        check.within("cut", self.cut, [0.0, MOST_FACTOR]);
        check.share("max_cut", self.max_cut);
        check.within("min_window", self.min_window, [1e-9, MOST_FACTOR]);
        check.at_most("data_bytes", self.data_bytes, MOST_ROOM);
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Swift {
    config: Config,
    line: Rate,
    mtu: f64,
    fixed_target_ps: f64,
    /// In packets.
    window: f64,
    most: f64,
    rtt: Span,
    last_cut: Time,
}

impl Swift {
    /// A fresh queue pair.
    pub fn new(config: &Config, about: &Circumstances) -> Self {
        let mtu = about.mtu.as_f64();
        let fixed = config.fixed_target(about.hops);
        let most = about.base_rtt + fixed + config.flow_range;
        let most = bandwidth_delay(about.line, most) as f64;
        Self {
            config: config.clone(),
            line: about.line,
            mtu,
            fixed_target_ps: fixed.as_ps() as f64,
            window: (bandwidth_delay(about.line, about.base_rtt) as f64 / mtu).max(1.0),
            most: (most / mtu).max(1.0),
            rtt: about.base_rtt,
            last_cut: Time::ZERO,
        }
    }

    /// The target delay at the present window, in picoseconds.
    fn target(&self) -> f64 {
        let config = &self.config;
        let range = config.flow_range.as_ps() as f64;
        let at = |window: f64| 1.0 / window.sqrt();
        let scale = range / (at(config.flow_min) - at(config.flow_max));
        let extra = scale * (at(self.window) - at(config.flow_max));
        self.fixed_target_ps + extra.clamp(0.0, range)
    }

    fn shrink(&mut self, now: Time, factor: f64) {
        if now.as_ps().saturating_sub(self.last_cut.as_ps()) < self.rtt.as_ps() {
            return;
        }
        self.last_cut = now;
        self.window = (self.window * factor).max(self.config.min_window);
    }
}

impl Sender for Swift {
    fn limit(&self) -> Limit {
        if 1.0 <= self.window {
            let window = Bytes::new((self.window * self.mtu) as u64);
            return Limit { rate: self.line, window };
        }
        let seconds = self.rtt.as_secs_f64().max(1e-9);
        let rate = (self.window * self.mtu * 8.0 / seconds) as u64;
        let rate = rate.clamp(1_000_000, self.line.as_bps());
        Limit { rate: Rate::from_bps(rate), window: Bytes::new(1) }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        self.rtt = now.since(ack.sent_at);
        let (delay, target) = (self.rtt.as_ps() as f64, self.target());
        if delay < target {
            let packets = ack.size.as_f64() / self.mtu;
            let grown = if 1.0 <= self.window {
                self.window + self.config.step / self.window * packets
            } else {
                self.window + self.config.step * packets
            };
            self.window = grown.min(self.most);
        } else {
            let excess = (delay - target) / delay;
            let factor = (1.0 - self.config.cut * excess).max(1.0 - self.config.max_cut);
            self.shrink(now, factor);
        }
    }

    fn on_loss(&mut self, now: Time, _loss: Loss) {
        self.shrink(now, 1.0 - self.config.max_cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swift() -> Swift {
        let about = Circumstances {
            line: Rate::from_gbps(400),
            base_rtt: Span::from_us(8),
            hops: 4,
            mtu: Bytes::new(4000),
        };
        Swift::new(&Config::default(), &about)
    }

    fn tell(swift: &mut Swift, at_us: u64, rtt_us: u64) {
        let ack = Ack {
            size: Bytes::new(4000),
            through: 4000,
            sent_through: 4000,
            sent_at: Time::from_ps((at_us - rtt_us) * 1_000_000),
            marked: false,
            hops: &[],
        };
        swift.on_ack(Time::from_ps(at_us * 1_000_000), &ack);
    }

    /// Oracle: by hand. 100 packets are the bandwidth-delay product; a window of them grows by one
    /// packet; the target is 29 us there; 58 us is twice that, so the cut is 0.8 / 2 of the window.
    #[test]
    fn windows_grow_by_a_packet_and_are_cut_once_per_round_trip() {
        let mut swift = swift();
        assert_eq!(swift.window, 100.0);
        for _ in 0..100 {
            tell(&mut swift, 1_000, 8);
        }
        assert!((swift.window - 101.0).abs() < 0.01);
        swift.window = 100.0;
        tell(&mut swift, 2_000, 58);
        assert!((swift.window - 60.0).abs() < 1e-9);
        tell(&mut swift, 2_001, 58);
        assert!((swift.window - 60.0).abs() < 1e-9, "not twice in a round trip");
    }

    #[test]
    fn small_windows_get_a_longer_target_and_are_paced() {
        let mut swift = swift();
        let far = swift.target();
        swift.window = 0.1;
        assert!((swift.target() - far - 25e6).abs() < 1.0);
        assert_eq!(swift.limit().rate.as_bps(), (0.1 * 4000.0 * 8.0 / 8e-6) as u64);
    }
}
