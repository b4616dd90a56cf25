//! What an engine's run may take, before it begins and while it goes on.
//!
//! Before: the engine's own estimate, against ten minutes and the memory that there is
//! ([`refusal`]). While it goes on: an hour of a processor, because estimates are a few times off,
//! and what is really left of memory ([`Bounds`]). `--force` lifts what is estimated and the hour;
//! memory that there is not, nobody can have.

use std::cell::Cell;

use report::number::grouped;
use units::room::Asked;
use units::{Bytes, Span};

use crate::engine::Cost;
use crate::meter::{self, Left, ThreadMeter};
use crate::packets::LONGEST_S;

/// Seconds of a processor that a run may take which was expected to take [`LONGEST_S`] at most.
const LASTS_S: f64 = 6.0 * LONGEST_S;

/// Looking at the machine costs some 50 us: no sooner again than after so many seconds.
const LOOK_EVERY_S: f64 = 0.01;

/// What a run would take, in words, if that is too much.
pub fn refusal(cost: Cost) -> Option<String> {
    let left = meter::left();
    let fits = left.as_ref().is_none_or(|left| cost.memory <= left.bytes);
    if cost.seconds <= LONGEST_S && fits {
        return None;
    }
    let (time, size) = (Span::from_secs_f64(cost.seconds), Bytes::new(cost.memory));
    let left = left.filter(|_| !fits).map_or_else(String::new, |left| format!(" ({left})"));
    Some(format!("about {time:.0} and {size:.1} of memory{left}"))
}

/// What one run may take while it goes on.
#[derive(Debug)]
pub struct Bounds {
    clock: ThreadMeter,
    /// Seconds of a processor.
    lasts_s: f64,
    /// When somebody last looked at the machine, and how much was left.
    looked_s: Cell<f64>,
    left: Cell<u64>,
    /// The most that was taken between two looks, after the first two: what is set up in between
    /// takes its memory once. Nothing if what is taken is asked for.
    taken: Option<Cell<u64>>,
    looks: Cell<u32>,
}

impl Bounds {
    /// From now on, for a run that asks before it takes much; for whoever is patient, without a
    /// bound of time.
    pub fn new(is_patient: bool) -> Self {
        let lasts_s = if is_patient { f64::INFINITY } else { LASTS_S };
        let (clock, looked_s) = (ThreadMeter::start(), Cell::new(f64::NEG_INFINITY));
        let (left, looks) = (Cell::new(0), Cell::new(0));
        Self { clock, lasts_s, looked_s, left, taken: None, looks }
    }

    /// The same for a run that does not ask. Lists double, so what it takes between two looks may
    /// be twice of what it took before.
    pub fn of_unasked(is_patient: bool) -> Self {
        Self { taken: Some(Cell::new(0)), ..Self::new(is_patient) }
    }

    /// How many bytes are left, if somebody looked, or why the run must end.
    pub fn left(&self) -> Asked {
        let now_s = self.clock.wall_s();
        if now_s < self.looked_s.get() + LOOK_EVERY_S {
            return Ok(None);
        }
        self.looked_s.set(now_s);
        self.allow_time(self.clock.cpu_s())?;
        meter::left_to_a_run().map_or(Ok(None), |left| self.enough(&left).map(Some))
    }

    /// What of it a run can have, beside what it needs to end in order.
    fn enough(&self, left: &Left) -> Result<u64, String> {
        let mut reserve = left.reserve;
        if let Some(taken) = self.taken.as_ref().filter(|_| left.aborts) {
            if 2 <= self.looks.get() {
                taken.set(taken.get().max(self.left.get().saturating_sub(left.bytes)));
            }
            reserve = reserve.saturating_add(taken.get().saturating_mul(2));
        }
        self.left.set(left.bytes);
        self.looks.set(self.looks.get().saturating_add(1));
        match left.bytes.saturating_sub(reserve) {
            0 => Err(format!(
                "there is too little memory for more of it ({left}); give it more, or make what \
                 is run smaller"
            )),
            bytes => Ok(bytes),
        }
    }

    fn allow_time(&self, cpu_s: f64) -> Result<(), String> {
        if cpu_s <= self.lasts_s {
            return Ok(());
        }
        let lasts = grouped(self.lasts_s as u64);
        Err(format!(
            "it has taken {lasts} seconds of a processor, and was to take {LONGEST_S} at most; \
             --force lets it go on for as long as it takes"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_ends_for_who_is_not_patient() {
        let why = Bounds::new(false).allow_time(LASTS_S + 1.0).unwrap_err();
        assert!(why.starts_with("it has taken 3,600 seconds of a processor"), "{why}");
        assert!(why.contains("--force"), "{why}");
        Bounds::new(false).allow_time(LASTS_S).unwrap();
        Bounds::new(true).allow_time(1e12).unwrap();
    }

    #[test]
    fn memory_is_looked_at_now_and_then() {
        let bounds = Bounds::new(false);
        // Where the system does not tell there is no bound.
        assert_eq!(bounds.left().unwrap().is_some(), meter::left_to_a_run().is_some());
        assert_eq!(bounds.left(), Ok(None));
    }

    #[test]
    fn what_does_not_fit_is_said_with_what_there_is() {
        assert_eq!(refusal(Cost { seconds: 1.0, memory: 1 }), None);
        let slow = refusal(Cost { seconds: 7e3, memory: 1 << 20 }).unwrap();
        assert_eq!(slow, "about 7000s and 1.0MB of memory");
        if meter::left().is_some() {
            let large = refusal(Cost { seconds: 1.0, memory: 1 << 60 }).unwrap();
            assert!(large.contains(" of memory (there are "), "{large}");
        }
    }

    #[test]
    fn something_is_left_for_the_end_and_for_lists_that_double() {
        let (of, mib) = ("for a test", 1 << 20);
        let left = |bytes| Left { bytes: bytes * mib, of, reserve: 10 * mib, aborts: true };
        let asks = Bounds::new(false);
        assert_eq!(asks.enough(&left(50)), Ok(40 * mib));
        assert_eq!(asks.enough(&left(11)), Ok(mib));
        assert!(asks.enough(&left(10)).unwrap_err().contains("(there are 10.5MB for a test)"));
        let grows = Bounds::of_unasked(false);
        assert_eq!(grows.enough(&left(500)), Ok(490 * mib));
        assert_eq!(grows.enough(&left(100)), Ok(90 * mib));
        // It took 20, and may take 40 next.
        assert_eq!(grows.enough(&left(80)), Ok(30 * mib));
        assert_eq!(grows.enough(&left(70)), Ok(20 * mib));
        assert!(grows.enough(&left(50)).is_err());
        // Where nothing is aborted the reserve is enough.
        assert_eq!(grows.enough(&Left { aborts: false, ..left(20) }), Ok(10 * mib));
    }
}
