//! DCQCN's rates: what notifications and time make of the rate of a queue pair.
//!
//! Both engines step this state machine: packets at every notification, flows where links are full
//! ([`Config`] is a scenario's `network.congestion`).
//!
//! The receiver turns marks into notifications. A notification cuts the rate by a factor that
//! follows how often they come (`alpha`). Afterwards the rate climbs back towards the rate it was
//! cut from (`target`), halving the gap each time a timer or a byte counter fires; once either has
//! fired `recovery_rounds` times the target itself moves up, gently while one of the two lags and
//! in big steps once both have.
//!
//! Source: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015; its
//! symbols stand in brackets after the parameters. NICs differ from the paper in one respect that
//! matters: they look every `cut_every` whether a notification has come since, instead of cutting
//! at each notification ([`Reaction::Periodic`]); that is also how HPCC's ns-3 has it, from which
//! the exact order of steps is taken.
//!
//! # Where this model departs from its sources
//!
//! * `alpha` is brought up to date when it is needed, not at every tick; the result is the same.
//! * ConnectX's byte counter has an undocumented unit; the default leaves it out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Rate, Span, Time};

/// When a notification cuts the rate.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// At once (the paper).
    Immediate,
    /// At the next tick of a timer that the first notification starts (ConnectX, HPCC's ns-3).
    Periodic,
}

/// How the receiver tells the sender of marks.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notify {
    /// By a CNP, at most one in each `notify_every` (the paper, every RoCE NIC).
    Cnp,
    /// By a flag on the acknowledgement of every marked packet (HPCC's ns-3).
    Echo,
}

/// Parameters of DCQCN. The defaults are those of ConnectX firmware.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How the receiver tells the sender of marks.
    pub notify: Notify,
    /// The receiver sends at most one CNP in this time (N).
    pub notify_every: Span,
    /// When a notification cuts the rate.
    pub reaction: Reaction,
    /// With periodic reaction, the time between looks.
    pub cut_every: Span,
    /// Weight of the newest sample in `alpha` (g).
    pub gain: f64,
    /// `alpha` moves this often (K).
    pub alpha_every: Span,
    /// `alpha` at the first notification.
    pub alpha_start: f64,
    /// The timer that drives increases (T).
    pub increase_every: Span,
    /// The byte counter that drives increases (B); zero turns it off.
    pub increase_after: Bytes,
    /// Increases that only recover, before the target moves (F).
    pub recovery_rounds: u32,
    /// Gentle step of the target (R_AI).
    pub step: Rate,
    /// Big step of the target (R_HAI).
    pub big_step: Rate,
    /// No cut goes below this.
    pub min_rate: Rate,
    /// A cut takes the present rate as the new target even if nothing was gained since the last
    /// cut (the paper; ConnectX `CLAMP_TGT_RATE`).
    pub clamp_target: bool,
}

impl Default for Config {
    fn default() -> Self {
        // Dumps of mlxconfig of ConnectX cards: RPG_TIME_RESET 300, RPG_THRESHOLD 1, RPG_AI_RATE 5,
        // RPG_HAI_RATE 50, DCE_TCP_G 1019 (of 1024), DCE_TCP_RTT 1, RATE_REDUCE_MONITOR_PERIOD 4,
        // INITIAL_ALPHA_VALUE 1023 (of 1024), MIN_TIME_BETWEEN_CNPS 4, CLAMP_TGT_RATE 0,
        // RPG_MIN_RATE 1 (Mb/s).
        Self {
            notify: Notify::Cnp,
            notify_every: Span::from_us(4),
            reaction: Reaction::Periodic,
            cut_every: Span::from_us(4),
            gain: 1.0 - 1019.0 / 1024.0,
            alpha_every: Span::from_us(1),
            alpha_start: 1023.0 / 1024.0,
            increase_every: Span::from_us(300),
            increase_after: Bytes::ZERO,
            recovery_rounds: 1,
            step: Rate::from_bps(5_000_000),
            big_step: Rate::from_bps(50_000_000),
            min_rate: Rate::from_bps(1_000_000),
            clamp_target: false,
        }
    }
}

impl Config {
    /// The parameters of the paper, table 14 and section 5, for 40 Gb/s.
    pub fn paper() -> Self {
        Self {
            notify: Notify::Cnp,
            notify_every: Span::from_us(50),
            reaction: Reaction::Immediate,
            cut_every: Span::from_us(50),
            gain: 1.0 / 256.0,
            alpha_every: Span::from_us(55),
            alpha_start: 1.0,
            increase_every: Span::from_us(55),
            increase_after: Bytes::new(10_000_000),
            recovery_rounds: 5,
            step: Rate::from_bps(40_000_000),
            // Not in the paper's table; ten times the gentle step, as in HPCC's run.py.
            big_step: Rate::from_bps(400_000_000),
            min_rate: Rate::from_bps(10_000_000),
            clamp_target: true,
        }
    }

    /// The "mlx" variant of HPCC's ns-3 at `line`, with the steps that its run.py derives.
    pub fn ns3(line: Rate) -> Self {
        Self {
            notify: Notify::Echo,
            notify_every: Span::ZERO,
            reaction: Reaction::Periodic,
            cut_every: Span::from_us(4),
            gain: 1.0 / 256.0,
            alpha_every: Span::from_us(1),
            alpha_start: 1.0,
            increase_every: Span::from_us(300),
            increase_after: Bytes::ZERO,
            recovery_rounds: 1,
            step: Rate::from_bps(line.as_bps() / 25_000 * 5),
            big_step: Rate::from_bps(line.as_bps() / 25_000 * 50),
            min_rate: Rate::from_bps(1_000_000_000),
            clamp_target: false,
        }
    }
}

/// The sending half: the reaction point.
#[derive(Debug)]
pub struct Dcqcn {
    config: Config,
    line_bps: u64,
    rate_bps: u64,
    target_bps: u64,
    alpha: f64,
    /// Whether a notification has ever come; before, no timer runs.
    begun: bool,
    /// Notifications since the last tick of each timer.
    notified_for_alpha: bool,
    notified_for_cut: bool,
    next_alpha: u64,
    next_cut: u64,
    /// Runs from the last cut on.
    next_increase: u64,
    timer_rounds: u32,
    byte_rounds: u32,
    bytes_left: u64,
}

const NEVER: u64 = u64::MAX;

impl Dcqcn {
    /// A queue pair that starts at line rate, as the paper's does.
    pub fn new(config: &Config, line: Rate) -> Self {
        assert!(Span::ZERO < config.alpha_every, "alpha_every must not be zero");
        assert!(Span::ZERO < config.cut_every, "cut_every must not be zero");
        assert!(Span::ZERO < config.increase_every, "increase_every must not be zero");
        let line_bps = line.as_bps();
        Self {
            config: config.clone(),
            line_bps,
            rate_bps: line_bps,
            target_bps: line_bps,
            alpha: config.alpha_start,
            begun: false,
            notified_for_alpha: false,
            notified_for_cut: false,
            next_alpha: NEVER,
            next_cut: NEVER,
            next_increase: NEVER,
            timer_rounds: 0,
            byte_rounds: 0,
            bytes_left: config.increase_after.get(),
        }
    }

    /// A notification has come.
    pub fn notified(&mut self, now: Time) {
        let now = now.as_ps();
        // A notification counts for the tick of alpha at its own instant.
        self.pass(now.saturating_sub(1));
        if !self.begun {
            self.begun = true;
            self.alpha = self.config.alpha_start;
            self.target_bps = self.rate_bps;
            self.next_alpha = now + self.config.alpha_every.as_ps();
            if self.config.reaction == Reaction::Immediate {
                self.cut(now);
            } else {
                // A nanosecond later than the alpha tick of the same age, which so comes first.
                self.next_cut = now + self.config.cut_every.as_ps() + 1_000;
                self.notified_for_cut = true;
            }
            return;
        }
        match self.config.reaction {
            Reaction::Immediate => {
                self.cut(now);
                self.alpha = (1.0 - self.config.gain) * self.alpha + self.config.gain;
                self.next_alpha = now + self.config.alpha_every.as_ps();
            }
            Reaction::Periodic => {
                self.notified_for_alpha = true;
                self.notified_for_cut = true;
            }
        }
    }

    /// Lets everything happen that was due until `now`, in order.
    pub fn advance(&mut self, now: Time) {
        self.pass(now.as_ps());
    }

    fn pass(&mut self, now: u64) {
        loop {
            self.skip_idle_looks(now);
            let cut = if self.notified_for_cut { self.next_cut } else { NEVER };
            let due = cut.min(self.next_increase);
            if due == NEVER || now < due {
                break;
            }
            self.advance_alpha(due);
            if due == cut {
                self.next_cut += self.config.cut_every.as_ps();
                self.notified_for_cut = false;
                self.cut(due);
            } else {
                self.next_increase = due + self.config.increase_every.as_ps();
                self.timer_rounds += 1;
                self.increase(self.timer_rounds, self.byte_rounds);
            }
        }
        self.advance_alpha(now);
    }

    /// Passes over the looks that find nothing: all until `now` when no notification has come.
    fn skip_idle_looks(&mut self, now: u64) {
        if !self.notified_for_cut && self.next_cut <= now {
            let every = self.config.cut_every.as_ps();
            self.next_cut += ((now - self.next_cut) / every + 1) * every;
        }
    }

    fn advance_alpha(&mut self, now: u64) {
        if now < self.next_alpha {
            return;
        }
        let (every, gain) = (self.config.alpha_every.as_ps(), self.config.gain);
        while self.next_alpha <= now {
            self.next_alpha += every;
            let sample = if self.notified_for_alpha { gain } else { 0.0 };
            self.alpha = (1.0 - gain) * self.alpha + sample;
            self.notified_for_alpha = false;
            if self.alpha < 1e-9 {
                // Further decay changes no rate by a bit per second.
                self.next_alpha += now.saturating_sub(self.next_alpha) / every * every;
            }
        }
    }

    fn cut(&mut self, now: u64) {
        let gained = 0 < self.timer_rounds || 0 < self.byte_rounds;
        if self.config.clamp_target || gained {
            self.target_bps = self.rate_bps;
        }
        let cut = (self.rate_bps as f64 * (1.0 - self.alpha / 2.0)) as u64;
        self.rate_bps = cut.max(self.config.min_rate.as_bps()).min(self.rate_bps);
        self.timer_rounds = 0;
        self.byte_rounds = 0;
        self.bytes_left = self.config.increase_after.get();
        self.next_increase = now + self.config.increase_every.as_ps();
    }

    /// One increase. The rounds are counted from 1: the first of them is fast recovery.
    fn increase(&mut self, timer_rounds: u32, byte_rounds: u32) {
        let free = self.config.recovery_rounds;
        let counts_bytes = Bytes::ZERO < self.config.increase_after;
        let (most, least) = if counts_bytes {
            (timer_rounds.max(byte_rounds), timer_rounds.min(byte_rounds))
        } else {
            // Without a byte counter the second step of the timer is already the big one.
            (timer_rounds, timer_rounds.saturating_sub(1))
        };
        if free < least {
            self.target_bps += self.config.big_step.as_bps();
        } else if free < most {
            self.target_bps += self.config.step.as_bps();
        }
        self.target_bps = self.target_bps.min(self.line_bps);
        self.rate_bps = self.rate_bps / 2 + self.target_bps / 2;
    }

    /// The rate that it allows, as the wire counts.
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.rate_bps)
    }

    /// Whether marks come back with acknowledgements.
    pub fn echoes(&self) -> bool {
        self.config.notify == Notify::Echo
    }

    /// Whether a notification has ever come. Before, nothing changes its rate.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// So many bytes were sent, which the byte counter counts.
    pub fn sent(&mut self, size: Bytes) {
        if self.next_increase == NEVER || self.config.increase_after == Bytes::ZERO {
            return;
        }
        self.bytes_left = self.bytes_left.saturating_sub(size.get());
        if self.bytes_left == 0 {
            self.bytes_left = self.config.increase_after.get();
            self.byte_rounds += 1;
            self.increase(self.timer_rounds, self.byte_rounds);
        }
    }

    /// Until when nothing but a notification changes its rate, if that is known.
    pub fn coasts_until(&self) -> Option<Time> {
        if !self.begun {
            return Some(Time::MAX);
        }
        let is_notified = self.notified_for_cut || self.notified_for_alpha;
        let counts_bytes = Bytes::ZERO < self.config.increase_after;
        (!is_notified && !counts_bytes).then_some(Time::from_ps(self.next_increase))
    }

    /// So much time passes from now on, no more than it coasts; then the clock is set back to now.
    pub fn coast(&mut self, now: Time, span: Span) {
        let (until, span) = ((now + span).as_ps(), span.as_ps());
        self.skip_idle_looks(until);
        self.advance_alpha(until);
        for next in [&mut self.next_alpha, &mut self.next_cut, &mut self.next_increase] {
            *next = if *next == NEVER { NEVER } else { *next - span };
        }
    }

    /// When [`Self::advance`] is next wanted.
    pub fn deadline(&self) -> Option<Time> {
        let cut = if self.notified_for_cut { self.next_cut } else { NEVER };
        let due = cut.min(self.next_increase);
        (due != NEVER).then(|| Time::from_ps(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_gbps(400);

    fn at(ns: u64) -> Time {
        Time::from_ps(ns * 1_000)
    }

    fn gbps(cc: &Dcqcn) -> f64 {
        (cc.rate().as_bps_f64() / 1e7).round() / 100.0
    }

    fn run_until(cc: &mut Dcqcn, until: Time) {
        while let Some(due) = cc.deadline()
            && due <= until
        {
            cc.advance(due);
        }
    }

    #[test]
    fn without_notifications_it_stays_at_line_rate_and_sets_no_timer() {
        for config in [Config::default(), Config::paper(), Config::ns3(LINE)] {
            let cc = Dcqcn::new(&config, LINE);
            assert_eq!(cc.rate(), LINE);
            assert_eq!(cc.deadline(), None);
        }
    }

    /// Oracle: the steps of the reference README, by hand. The first cut comes 4.001 us after the
    /// first notification, with alpha decayed four times; without more notifications there is no
    /// second one, and 300 us later half of the gap is made up.
    #[test]
    fn the_ns3_variant_cuts_at_ticks_and_recovers_after_300_us() {
        let mut cc = Dcqcn::new(&Config::ns3(LINE), LINE);
        cc.notified(at(10_000));
        assert_eq!(gbps(&cc), 400.0);
        assert_eq!(cc.deadline(), Some(at(14_001)));
        cc.advance(at(14_001));
        let alpha: f64 = (255.0_f64 / 256.0).powi(4);
        let cut = (400e9 * (1.0 - alpha / 2.0)) as u64;
        assert_eq!(cc.rate().as_bps(), cut);
        assert_eq!(cc.deadline(), Some(at(314_001)));
        cc.advance(at(314_001));
        assert_eq!(cc.rate().as_bps(), cut / 2 + 200_000_000_000);
    }

    /// Agreement: time that passes at once changes what time that passes in steps does, and the
    /// clock is where it was.
    #[test]
    fn coasting_is_the_same_as_waiting() {
        for config in [Config::default(), Config::ns3(LINE)] {
            let [mut waits, mut coasts] = [(); 2].map(|()| Dcqcn::new(&config, LINE));
            for cc in [&mut waits, &mut coasts] {
                (0..20).for_each(|us| cc.notified(at(us * 1_000)));
                run_until(cc, at(30_000));
            }
            let (now, until) = (at(30_000), coasts.coasts_until().expect("it has been cut"));
            let span = Span::from_ps(until.as_ps() - now.as_ps() - 1_000);
            coasts.coast(now, span);
            run_until(&mut waits, now + span);
            for round in 1..2_000 {
                let later = now + Span::from_us(round);
                run_until(&mut waits, later + span);
                run_until(&mut coasts, later);
                assert_eq!(waits.rate(), coasts.rate(), "{round}");
                if round % 700 == 0 {
                    waits.notified(later + span);
                    coasts.notified(later);
                    assert_eq!(waits.rate(), coasts.rate(), "{round}");
                }
            }
        }
    }

    /// With a notification in every slot, alpha stays near one and the rate halves every 4 us.
    #[test]
    fn constant_marks_halve_the_rate_every_tick_down_to_the_floor() {
        let mut cc = Dcqcn::new(&Config::ns3(LINE), LINE);
        let mut seen = Vec::new();
        for us in 0..44 {
            // A little after the ticks of alpha, the first of which it starts.
            run_until(&mut cc, at(us * 1_001 + 500));
            cc.notified(at(us * 1_001 + 500));
            if us % 4 == 3 {
                seen.push(gbps(&cc).round());
            }
        }
        assert_eq!(seen, [400.0, 201.0, 101.0, 51.0, 25.0, 13.0, 6.0, 3.0, 2.0, 1.0, 1.0]);
    }

    /// The gap to the old rate halves each round, and from the sixth on the target moves.
    #[test]
    fn the_paper_recovers_five_times_before_it_increases() {
        let mut cc = Dcqcn::new(&Config::paper(), Rate::from_gbps(100));
        cc.target_bps = 0;
        cc.notified(at(0));
        let mut seen = vec![gbps(&cc)];
        for round in 1..=6 {
            run_until(&mut cc, at(55_000 * round));
            seen.push(gbps(&cc));
        }
        assert_eq!(seen, [50.0, 75.0, 87.5, 93.75, 96.88, 98.44, 99.22]);
        assert_eq!(cc.target_bps, 100_000_000_000, "the target never passes the line rate");
    }

    #[test]
    fn a_byte_counter_increases_too() {
        let mut cc = Dcqcn::new(&Config::paper(), Rate::from_gbps(100));
        cc.notified(at(0));
        for _ in 0..2_442 {
            cc.sent(Bytes::new(4096));
        }
        assert_eq!(gbps(&cc), 75.0);
    }
}
