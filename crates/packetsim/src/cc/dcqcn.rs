//! DCQCN: marks at the switch, a rate at the sender.
//!
//! The receiver turns marks into notifications. What the sender makes of them, and where that comes
//! from, says [`traffic::dcqcn`], which the flow engine steps too.

pub use traffic::dcqcn::{Config, Dcqcn, Notify, Reaction};
use units::{Bytes, Ranges, Span, Time, UnusedKeys};

use super::{
    Ack, Algorithm, Circumstances, Data, Feedback, Limit, MOST_RATE, Needs, PERIOD, Receiver,
    Sender,
};
use crate::settings::LONGEST;

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Dcqcn::new(self, about.line))
    }

    fn receiver(&self) -> Option<Box<dyn Receiver>> {
        receiver(self)
    }

    fn needs(&self) -> Needs {
        Needs { marks: true, no_acks: true, ..Needs::default() }
    }

    fn unused(&self, idle: &mut UnusedKeys) {
        if self.notify == Notify::Echo {
            let why = "marks come back with acknowledgements";
            idle.key("notify_every", why, "network.congestion.notify=cnp");
        }
        if self.reaction == Reaction::Immediate {
            let why = "every notification cuts at once";
            idle.key("cut_every", why, "network.congestion.reaction=periodic");
        }
    }

    fn ranges(&self, check: &mut Ranges) {
        check.at_most("notify_every", self.notify_every, LONGEST);
        check.within("cut_every", self.cut_every, PERIOD);
        check.weight("gain", self.gain);
        check.within("alpha_every", self.alpha_every, PERIOD);
        check.share("alpha_start", self.alpha_start);
        check.within("increase_every", self.increase_every, PERIOD);
        check.at_most("step", self.step, MOST_RATE);
        check.at_most("big_step", self.big_step, MOST_RATE);
    }
}

impl Sender for Dcqcn {
    fn limit(&self) -> Limit {
        Limit { rate: self.rate(), window: Bytes::MAX }
    }

    fn on_sent(&mut self, _now: Time, size: Bytes) {
        self.sent(size);
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        if ack.marked && self.echoes() {
            self.notified(now);
        }
    }

    fn on_notified(&mut self, now: Time) {
        self.notified(now);
    }

    fn on_timer(&mut self, now: Time) {
        self.advance(now);
    }

    fn is_resting(&self) -> bool {
        !self.has_begun()
    }

    fn coasts_until(&self) -> Option<Time> {
        self.coasts_until()
    }

    fn coast(&mut self, now: Time, span: Span) {
        self.coast(now, span);
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline()
    }
}

/// The receiving half: the notification point, where notifications are packets.
pub fn receiver(config: &Config) -> Option<Box<dyn Receiver>> {
    match config.notify {
        Notify::Echo => None,
        Notify::Cnp => {
            let every = config.notify_every;
            Some(Box::new(NotificationPoint { every, next: Time::ZERO }))
        }
    }
}

/// Sends at most one CNP in each interval.
#[derive(Debug)]
struct NotificationPoint {
    every: Span,
    next: Time,
}

impl Receiver for NotificationPoint {
    fn on_data(&mut self, now: Time, data: &Data) -> Feedback {
        let notify = data.marked && self.next <= now;
        if notify {
            self.next = now + self.every;
        }
        Feedback { echo: false, notify }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ps(ns * 1_000)
    }

    #[test]
    fn notifications_keep_their_distance() {
        let mut point = receiver(&Config::default()).expect("CNPs are packets");
        let marked = Data { size: Bytes::new(4096), marked: true };
        let clean = Data { marked: false, ..marked };
        let sent: Vec<bool> = [(0, clean), (1, marked), (3_999, marked), (4_001, marked)]
            .into_iter()
            .map(|(ns, data)| point.on_data(at(ns), &data).notify)
            .collect();
        assert_eq!(sent, [false, true, false, true]);
    }
}
