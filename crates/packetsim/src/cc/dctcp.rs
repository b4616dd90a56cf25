//! DCTCP: the share of marked packets, a window at the sender.
//!
//! The sender counts which share of a window's acknowledgements carry a mark and smooths it
//! (`alpha`). A mark cuts the window by `alpha / 2`, at most once per window; a window without a
//! cut grows by one packet.
//!
//! Source: Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, and RFC 8257. The order of
//! steps is that of HPCC's ns-3 (`rdma-hw.cc`), which also paces packets by the window
//! ([`Pacing::Paced`]).
//!
//! # Where this model departs from its sources
//!
//! * The window is kept as the rate at which it would be sent in the unloaded round trip.
//! * Without `initial_window` a queue pair starts with a bandwidth-delay product, as RDMA does;
//!   with it, in slow start, as TCP does.
//! * Every packet's mark is echoed; delayed acknowledgements (RFC 8257, 3.2) are not modelled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Span, Time};

use super::{
    Ack, Algorithm, Circumstances, Limit, Loss, Needs, Sender, bandwidth_delay, window_at,
};
use crate::settings::LONGEST;

/// What spaces packets within a window.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// Nothing but acknowledgements.
    AckClocked,
    /// The rate of the window over the unloaded round trip (HPCC's ns-3).
    Paced,
}

/// Parameters of DCTCP. The defaults are those of the RFC.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Weight of the newest window in `alpha` (g).
    pub gain: f64,
    /// `alpha` at the beginning.
    pub alpha_start: f64,
    /// What spaces packets.
    pub pacing: Pacing,
    /// Growth per window, as a rate; without it, one packet per base round trip.
    pub step: Option<Rate>,
    /// No window goes below this rate over the base round trip.
    pub min_rate: Rate,
    /// Unloaded round trip; without it, that of the queue pair's own path.
    pub base_rtt: Option<Span>,
    /// The window at the beginning; without it, a bandwidth-delay product.
    pub initial_window: Option<Bytes>,
    /// The largest window; without it, a bandwidth-delay product.
    pub max_window: Option<Bytes>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // RFC 8257, sections 3.3 and 4.2: g 1/16, alpha starts at one.
            gain: 1.0 / 16.0,
            alpha_start: 1.0,
            pacing: Pacing::AckClocked,
            step: None,
            // Illustrative: a window of a packet keeps every path moving, and the engine lets one
            // packet go however small the window is.
            min_rate: Rate::from_bps(100_000_000),
            base_rtt: None,
            initial_window: None,
            max_window: None,
        }
    }
}

impl Config {
    /// As HPCC's ns-3 runs it (its run.py).
    pub fn ns3(base_rtt: Span) -> Self {
        Self {
            gain: 1.0 / 16.0,
            alpha_start: 1.0,
            pacing: Pacing::Paced,
            step: Some(Rate::from_bps(615_000_000)),
            min_rate: Rate::from_gbps(1),
            base_rtt: Some(base_rtt),
            initial_window: None,
            max_window: None,
        }
    }

    /// As Linux runs it over kernel TCP.
    pub fn tcp() -> Self {
        Self {
            // RFC 6928: ten segments of 1,460 bytes; tcp_rmem and tcp_wmem allow a few megabytes.
            initial_window: Some(Bytes::new(14_600)),
            max_window: Some(Bytes::from_mib(6)),
            min_rate: Rate::from_bps(1_000_000),
            ..Self::default()
        }
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Dctcp::new(self, about))
    }

    fn needs(&self) -> Needs {
        Needs { marks: true, ..Needs::default() }
    }

    fn ranges(&self, check: &mut Ranges) {
        check.weight("gain", self.gain);
        check.share("alpha_start", self.alpha_start);
        check.at_most("base_rtt", self.base_rtt.unwrap_or_default(), LONGEST);
    }

    fn window(&self) -> Option<(Bytes, Bytes)> {
        Some((self.initial_window?, self.max_window.unwrap_or(Bytes::from_mib(1 << 20))))
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Dctcp {
    config: Config,
    line_bps: u64,
    most_bps: u64,
    step_bps: u64,
    mtu: u64,
    window: u64,
    rate_bps: u64,
    alpha: f64,
    marked: u64,
    batch: u64,
    /// An acknowledgement beyond this ends the window; zero before the first.
    last: u64,
    /// After a cut: an acknowledgement beyond this allows the next (CWR).
    reduced_until: Option<u64>,
    slow_start: bool,
}

impl Dctcp {
    /// A fresh queue pair.
    pub fn new(config: &Config, about: &Circumstances) -> Self {
        let line_bps = about.line.as_bps();
        let base_rtt = config.base_rtt.unwrap_or(about.base_rtt);
        let window = bandwidth_delay(about.line, base_rtt).max(1);
        let as_rate = |bytes: Bytes| {
            (u128::from(bytes.get()) * u128::from(line_bps) / u128::from(window)) as u64
        };
        Self {
            config: config.clone(),
            line_bps,
            most_bps: config.max_window.map_or(line_bps, as_rate),
            step_bps: config.step.map_or_else(|| as_rate(about.mtu), Rate::as_bps),
            mtu: about.mtu.get().max(1),
            window,
            rate_bps: config.initial_window.map_or(line_bps, as_rate),
            alpha: config.alpha_start,
            marked: 0,
            batch: 0,
            last: 0,
            reduced_until: None,
            slow_start: config.initial_window.is_some(),
        }
    }

    fn cut(&mut self, by: f64, sent_through: u64) {
        let cut = (self.rate_bps as f64 * (1.0 - by)) as u64;
        self.rate_bps = cut.max(self.config.min_rate.as_bps());
        self.reduced_until = Some(sent_through);
        self.slow_start = false;
    }

    /// Ends a window if this acknowledgement is beyond it.
    fn end_window(&mut self, ack: &Ack<'_>) -> bool {
        if ack.through <= self.last {
            return false;
        }
        if self.last == 0 {
            self.batch = ack.sent_through / self.mtu + 1;
        } else {
            let share = (self.marked as f64 / self.batch as f64).min(1.0);
            let gain = self.config.gain;
            self.alpha = (1.0 - gain) * self.alpha + gain * share;
            self.marked = 0;
            self.batch = (ack.sent_through - ack.through) / self.mtu + 1;
        }
        self.last = ack.sent_through;
        true
    }
}

impl Sender for Dctcp {
    fn limit(&self) -> Limit {
        let rate = match self.config.pacing {
            Pacing::AckClocked => self.line_bps,
            Pacing::Paced => self.rate_bps.min(self.line_bps),
        };
        Limit {
            rate: Rate::from_bps(rate),
            window: window_at(self.window, self.rate_bps, self.line_bps),
        }
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack<'_>) {
        self.marked += u64::from(ack.marked);
        let new_window = self.end_window(ack);
        if self.reduced_until.is_some_and(|until| until < ack.through) {
            self.reduced_until = None;
        }
        if ack.marked && self.reduced_until.is_none() {
            self.cut(self.alpha / 2.0, ack.sent_through);
        }
        if self.reduced_until.is_some() {
            return;
        }
        if self.slow_start {
            let scaled = u128::from(ack.size.get()) * u128::from(self.line_bps);
            self.rate_bps += (scaled / u128::from(self.window)) as u64;
        } else if new_window {
            self.rate_bps += self.step_bps;
        }
        self.rate_bps = self.rate_bps.min(self.most_bps);
    }

    fn on_loss(&mut self, _now: Time, loss: Loss) {
        // RFC 8257, section 3.5: losses are treated as TCP treats them.
        if loss == Loss::Timeout || self.reduced_until.is_none() {
            self.cut(0.5, self.last);
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

    fn ack(packet: u64, sent: u64, marked: bool) -> Ack<'static> {
        Ack {
            size: Bytes::new(4096),
            through: packet * 4096,
            sent_through: sent * 4096,
            sent_at: Time::ZERO,
            marked,
            hops: &[],
        }
    }

    /// Oracle: by hand. The first window's first mark halves the rate (alpha is one), further
    /// marks of the window do nothing, and the next window moves alpha by a sixteenth.
    #[test]
    fn a_window_is_cut_once() {
        let mut dctcp = Dctcp::new(&Config::ns3(Span::from_us(4)), &about());
        dctcp.on_ack(Time::ZERO, &ack(1, 10, true));
        assert_eq!(dctcp.rate_bps, 200_000_000_000);
        for packet in 2..=10 {
            dctcp.on_ack(Time::ZERO, &ack(packet, 10 + packet, true));
        }
        assert_eq!(dctcp.rate_bps, 200_000_000_000);
        // The eleventh is beyond the window: ten marks and its own, of a batch of eleven.
        dctcp.on_ack(Time::ZERO, &ack(11, 21, true));
        assert_eq!(dctcp.alpha, 1.0);
        assert_eq!(dctcp.rate_bps, 100_000_000_000);
        // Nothing is marked any more: alpha decays, and windows grow by the step.
        dctcp.on_ack(Time::ZERO, &ack(22, 32, false));
        assert_eq!(dctcp.alpha, 15.0 / 16.0);
        assert_eq!(dctcp.rate_bps, 100_615_000_000);
    }

    #[test]
    fn slow_start_doubles_until_the_first_mark() {
        let mut dctcp = Dctcp::new(&Config::tcp(), &about());
        let window = |dctcp: &Dctcp| dctcp.limit().window.get().div_ceil(100);
        assert_eq!(window(&dctcp), 146);
        for packet in 1..=4 {
            dctcp.on_ack(Time::ZERO, &ack(packet, packet + 4, false));
        }
        assert_eq!(window(&dctcp), (14_600 + 4 * 4096_u64).div_ceil(100));
        dctcp.on_ack(Time::ZERO, &ack(5, 9, true));
        assert!(!dctcp.slow_start);
    }
}
