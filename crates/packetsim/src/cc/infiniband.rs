//! InfiniBand's congestion control: a mark forward, a mark back, a table of delays at the sender.
//!
//! A switch whose queue is long sets FECN on packets; the receiver returns BECN with the
//! acknowledgement. Each BECN moves the queue pair's index into the congestion control table up by
//! `increase`; each tick of a timer moves it down by one. The table says how long to wait between
//! packets: entry `i` stands for `i · slope` packet times, so the rate is `line / (1 + i · slope)`.
//!
//! Source: InfiniBand Architecture Specification, Volume 1, Annex A10; parameters by Gran et al.,
//! "First Experiences with Congestion Control in InfiniBand Hardware", IPDPS 2010.
//!
//! # Where this model departs from its sources
//!
//! * A switch marks by the length of its queue alone; whether the port is the root of the
//!   congestion or its victim is not distinguished.
//! * BECN comes with acknowledgements, not as packets of its own.
//! * The table is linear; the specification leaves its content to the subnet manager.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate, Span, Time};

use super::{Ack, Algorithm, Circumstances, Limit, MOST_FACTOR, Needs, PERIOD, Sender};

/// Parameters of InfiniBand's congestion control.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Entries of the table by which a BECN moves up (CCTI_Increase).
    pub increase: u32,
    /// The last entry (CCTI_Limit).
    pub last_entry: u32,
    /// The index moves down by one this often (CCTI_Timer).
    pub timer: Span,
    /// Packet times of waiting by which an entry differs from the one before it.
    pub slope: f64,
}

impl Default for Config {
    fn default() -> Self {
        // Gran et al., from memory: CCTI_Increase 1, CCTI_Limit 127, CCTI_Timer 150 of 1.024 us.
        // The slope is illustrative: the last entry is a tenth of the line rate.
        Self { increase: 1, last_entry: 127, timer: Span::from_ns(153_600), slope: 9.0 / 127.0 }
    }
}

/// An index into the table has 16 bits.
const MOST_ENTRY: u32 = 65_535;

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Table::new(self, about.line))
    }

    fn needs(&self) -> Needs {
        Needs { marks: true, no_acks: true, ..Needs::default() }
    }

    fn ranges(&self, check: &mut Ranges) {
        check.at_most("last_entry", self.last_entry, MOST_ENTRY);
        check.at_most("increase", self.increase, MOST_ENTRY);
        check.within("timer", self.timer, PERIOD);
        check.within("slope", self.slope, [0.0, MOST_FACTOR]);
    }
}

/// The sending half: where a queue pair stands in the table.
#[derive(Debug)]
pub struct Table {
    config: Config,
    line: Rate,
    index: u32,
    next_tick: Option<Time>,
}

impl Table {
    /// At the top of the table: line rate.
    pub fn new(config: &Config, line: Rate) -> Self {
        assert!(Span::ZERO < config.timer, "timer must not be zero");
        Self { config: config.clone(), line, index: 0, next_tick: None }
    }
}

impl Sender for Table {
    fn limit(&self) -> Limit {
        let wait = f64::from(self.index) * self.config.slope;
        let rate = (self.line.as_bps_f64() / (1.0 + wait)) as u64;
        Limit { rate: Rate::from_bps(rate.max(1_000_000)), window: Bytes::MAX }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        if ack.marked {
            self.on_notified(now);
        }
    }

    fn on_notified(&mut self, now: Time) {
        self.index = (self.index + self.config.increase).min(self.config.last_entry);
        if self.next_tick.is_none() {
            self.next_tick = Some(now + self.config.timer);
        }
    }

    fn on_timer(&mut self, now: Time) {
        self.index = self.index.saturating_sub(1);
        self.next_tick = (0 < self.index).then(|| now + self.config.timer);
    }

    fn deadline(&self) -> Option<Time> {
        self.next_tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: by hand from the table.
    #[test]
    fn marks_climb_the_table_and_time_descends_it() {
        let mut table = Table::new(&Config::default(), Rate::from_gbps(400));
        let ack = Ack {
            size: Bytes::new(4096),
            through: 4096,
            sent_through: 4096,
            sent_at: Time::ZERO,
            marked: true,
            hops: &[],
        };
        for _ in 0..200 {
            table.on_ack(Time::ZERO, &ack);
        }
        assert_eq!(table.limit().rate.as_bps().div_ceil(1_000_000_000), 40);
        let mut ticks = 0;
        while let Some(due) = table.deadline() {
            table.on_timer(due);
            ticks += 1;
        }
        assert_eq!((ticks, table.limit().rate), (127, Rate::from_gbps(400)));
    }
}
