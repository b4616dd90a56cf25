//! TIMELY: the gradient of the round trip, a rate at the sender.
//!
//! Once per round trip the sender compares the time that a packet and its acknowledgement took with
//! the time before. Below `low` it increases, above `high` it cuts by how far it is above; between
//! the two it follows the smoothed gradient: a falling round trip increases, a rising one cuts in
//! proportion. After `big_after` increases in a row the steps are big ones.
//!
//! Source: Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015,
//! Algorithm 1; its symbols stand in brackets after the parameters. One update per round trip and
//! the order of steps are those of HPCC's ns-3 (`rdma-hw.cc`).
//!
//! # Where this model departs from its sources
//!
//! * The paper paces bursts of 16 to 64 KB; here every packet is paced.
//! * The paper's steps are for 10 Gb/s; the defaults grow with the line rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Span, Time};

use super::{Ack, Algorithm, Circumstances, Limit, MOST_RATE, MOST_ROOM, Needs, PERIOD, Sender};

/// Parameters of TIMELY. The defaults are those of the paper.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Weight of the newest difference of round trips (alpha).
    pub gain: f64,
    /// How strongly a cut follows the gradient or the excess (beta).
    pub cut: f64,
    /// Below this round trip the rate increases (T_low).
    pub low: Span,
    /// Above this round trip the rate is cut (T_high).
    pub high: Span,
    /// The gradient is measured in this (minRTT).
    pub min_rtt: Span,
    /// Step of an increase (delta); without it, a thousandth of the line rate.
    pub step: Option<Rate>,
    /// Step of the increases after `big_after` in a row; without it, five times the other.
    pub big_step: Option<Rate>,
    /// Increases in a row before the big ones (N).
    pub big_after: u32,
    /// No rate goes below this.
    pub min_rate: Rate,
    /// Room for the timestamp on a data packet.
    pub data_bytes: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Section 5 and HPCC's ns-3 (rdma-hw.cc), which agree.
            gain: 0.875,
            cut: 0.8,
            low: Span::from_us(50),
            high: Span::from_us(500),
            min_rtt: Span::from_us(20),
            // Section 5: 10 Mb/s at 10 Gb/s, N = 5 (hyperactive increase).
            step: None,
            big_step: None,
            big_after: 5,
            // HPCC's ns-3 (RdmaHw, MinRate).
            min_rate: Rate::from_bps(100_000_000),
            data_bytes: Bytes::new(8),
        }
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Timely::new(self, about.line))
    }

    fn needs(&self) -> Needs {
        Needs { data_bytes: self.data_bytes, ..Needs::default() }
    }

    fn ranges(&self, check: &mut Ranges) {
        check.weight("gain", self.gain);
        check.share("cut", self.cut);
        check.ordered(("low", self.low), ("high", self.high));
        check.within("min_rtt", self.min_rtt, PERIOD);
        for (key, step) in [("step", self.step), ("big_step", self.big_step)] {
            step.into_iter().for_each(|step| check.at_most(key, step, MOST_RATE));
        }
        check.at_most("data_bytes", self.data_bytes, MOST_ROOM);
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Timely {
    config: Config,
    line_bps: u64,
    steps: [u64; 2],
    rate_bps: u64,
    /// Increases in a row.
    increases: u32,
    rtt_ns: u64,
    difference: f64,
    /// An acknowledgement beyond this ends the round trip; zero before the first.
    last: u64,
}

impl Timely {
    /// A queue pair that starts at line rate.
    pub fn new(config: &Config, line: Rate) -> Self {
        let line_bps = line.as_bps();
        let step = config.step.map_or(line_bps / 1_000, Rate::as_bps);
        let big = config.big_step.map_or(step * 5, Rate::as_bps);
        Self {
            config: config.clone(),
            line_bps,
            steps: [step, big],
            rate_bps: line_bps,
            increases: 0,
            rtt_ns: 0,
            difference: 0.0,
            last: 0,
        }
    }

    fn update(&mut self, rtt_ns: u64) {
        let config = &self.config;
        let newest = rtt_ns as f64 - self.rtt_ns as f64;
        self.difference = (1.0 - config.gain) * self.difference + config.gain * newest;
        let gradient = self.difference / (config.min_rtt.as_ps() as f64 / 1e3);
        let (low, high) = (config.low.as_ps() / 1_000, config.high.as_ps() / 1_000);
        let factor = if rtt_ns < low {
            None
        } else if high < rtt_ns {
            Some(1.0 - config.cut * (1.0 - high as f64 / rtt_ns as f64))
        } else if gradient <= 0.0 {
            None
        } else {
            Some((1.0 - config.cut * gradient).max(0.0))
        };
        match factor {
            None => {
                let step = self.steps[usize::from(config.big_after <= self.increases)];
                self.rate_bps = (self.rate_bps + step).min(self.line_bps);
                self.increases += 1;
            }
            Some(factor) => {
                let cut = (self.rate_bps as f64 * factor) as u64;
                self.rate_bps = cut.max(config.min_rate.as_bps()).min(self.line_bps);
                self.increases = 0;
            }
        }
    }
}

impl Sender for Timely {
    fn limit(&self) -> Limit {
        Limit { rate: Rate::from_bps(self.rate_bps), window: Bytes::MAX }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        if ack.through <= self.last {
            return;
        }
        let rtt_ns = now.since(ack.sent_at).as_ps() / 1_000;
        if self.last != 0 {
            self.update(rtt_ns);
        }
        self.rtt_ns = rtt_ns;
        self.last = ack.sent_through;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_gbps(10);

    fn after(rtts_us: &[u64]) -> Timely {
        let mut timely = Timely::new(&Config::default(), LINE);
        timely.rate_bps = 5_000_000_000;
        for (round, rtt) in rtts_us.iter().enumerate() {
            let through = (round as u64 + 1) * 4096;
            let ack = Ack {
                size: Bytes::new(4096),
                through,
                sent_through: through,
                sent_at: Time::ZERO,
                marked: false,
                hops: &[],
            };
            timely.on_ack(Time::from_ps(rtt * 1_000_000), &ack);
        }
        timely
    }

    /// Oracle: by hand from Algorithm 1.
    #[test]
    fn short_round_trips_increase_and_the_sixth_increase_is_big() {
        assert_eq!(after(&[20]).rate_bps, 5_000_000_000, "the first only records");
        assert_eq!(after(&[20; 6]).rate_bps, 5_050_000_000);
        assert_eq!(after(&[20; 7]).rate_bps, 5_100_000_000);
    }

    #[test]
    fn a_rising_round_trip_cuts_by_its_gradient_and_a_long_one_by_its_excess() {
        // The difference is 0.875 · 4 us, the gradient 0.175, the cut 0.14.
        assert_eq!(after(&[100, 104]).rate_bps, 4_300_000_000);
        // 1 - 0.8 · (1 - 500 / 1000).
        assert_eq!(after(&[100, 1_000]).rate_bps, 3_000_000_000);
    }
}
