//! How far each flow has come, and which one finishes next.
//!
//! The flows that one link holds back all have that link's level, whatever it does over time. So a
//! link keeps a clock that counts the level times the time that has passed; a flow that joins at
//! reading `v` with so many bytes per unit of weight to go finishes at reading `v + bytes`. When
//! the level moves only the clock is told, not its flows: the idea of virtual time in fair
//! queueing (Parekh and Gallager, 1993), with one clock for each link.
//!
//! A tree of minima over the links gives the earliest finish.

use units::Id;

use crate::max_min::{FlowId, MaxMin, SolverLink};

/// On no clock: described but not running.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The reading at `since`, in bytes per unit of weight.
    reading: f64,
    /// When the reading was taken, in seconds.
    since: f64,
    /// How fast it runs.
    level: f64,
    /// The reading at which the first of its flows finishes; infinite without flows.
    first: f64,
    /// Whether `first` may have left and must be looked for again.
    stale: bool,
    listed: bool,
}

const STOPPED: Clock = Clock {
    reading: 0.0,
    since: 0.0,
    level: 0.0,
    first: f64::INFINITY,
    stale: false,
    listed: false,
};

impl Clock {
    fn at(&self, now: f64) -> f64 {
        self.reading + self.level * (now - self.since)
    }
}

#[derive(Clone, Copy, Debug)]
struct Journey {
    /// The clock it is on, or [`NONE`].
    clock: u32,
    /// The reading at which it finishes; what is left to do while it is on no clock.
    until: f64,
}

/// The progress of all flows of a solver.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    clocks: Vec<Clock>,
    journeys: Vec<Journey>,
    finishes: Minima,
    changed: Vec<SolverLink>,
    moved: Vec<FlowId>,
    /// Clocks whose first finish must be computed again.
    touched: Vec<u32>,
}

impl Progress {
    /// Gives a flow so many bytes to move. To be called when it is started in the solver.
    pub fn begin(&mut self, flow: FlowId, bytes: f64, network: &MaxMin) {
        if self.journeys.len() <= flow.index() {
            self.journeys.resize(flow.index() + 1, Journey { clock: NONE, until: 0.0 });
        }
        let journey = &mut self.journeys[flow.index()];
        assert_eq!(journey.clock, NONE, "{flow:?} has not finished what it began");
        journey.until = bytes / network.weight(flow);
    }

    /// Gives a running flow that has finished another so many bytes, at once and at its rate.
    pub fn renew(&mut self, flow: FlowId, bytes: f64, now: f64, network: &MaxMin) {
        let Journey { clock, until } = self.journeys[flow.index()];
        assert_ne!(clock, NONE, "{flow:?} does not run");
        self.leave(clock, until);
        let until = self.clocks[clock as usize].at(now) + bytes / network.weight(flow);
        self.journeys[flow.index()].until = until;
        self.touch(clock);
    }

    /// Takes a flow out. To be called when it is stopped in the solver.
    pub fn end(&mut self, flow: FlowId) {
        let clock = std::mem::replace(&mut self.journeys[flow.index()].clock, NONE);
        if clock != NONE {
            self.leave(clock, self.journeys[flow.index()].until);
        }
    }

    /// The bytes that a running flow has not moved yet.
    pub fn left(&self, flow: FlowId, now: f64, network: &MaxMin) -> f64 {
        let Journey { clock, until } = self.journeys[flow.index()];
        match clock {
            NONE => until * network.weight(flow),
            _ => (until - self.clocks[clock as usize].at(now)).max(0.0) * network.weight(flow),
        }
    }

    /// Takes over what the solver has settled at `now`.
    pub fn update(&mut self, now: f64, network: &mut MaxMin) {
        network.take_news(&mut self.changed, &mut self.moved);
        if self.clocks.len() < network.link_count() {
            self.clocks.resize(network.link_count(), STOPPED);
            self.finishes.resize(network.link_count());
        }
        // Flows first, while all clocks still run at the levels of the time that has passed.
        for at in 0..self.moved.len() {
            self.change_clock(self.moved[at], now, network);
        }
        for at in 0..self.changed.len() {
            let link = self.changed[at];
            let clock = &mut self.clocks[link.index()];
            let reading = clock.at(now);
            (clock.reading, clock.since, clock.level) = (reading, now, network.level(link));
            self.touch(link.index() as u32);
        }
        for at in 0..self.touched.len() {
            self.update_finish(self.touched[at], network);
        }
        self.touched.clear();
    }

    /// The links whose level had changed at the last update.
    pub fn changed(&self) -> &[SolverLink] {
        &self.changed
    }

    /// When the next flow finishes, in seconds; infinite if none does.
    pub fn next(&self) -> f64 {
        self.finishes.least()
    }

    /// When a running flow finishes if rates stay as they are.
    pub fn finish(&self, flow: FlowId) -> f64 {
        let Journey { clock, until } = self.journeys[flow.index()];
        match self.clocks.get(clock as usize) {
            Some(clock) => clock.since + (until - clock.reading) / clock.level,
            None => f64::INFINITY,
        }
    }

    /// Writes into `done` the flows that have finished by `now`, in the order of their links.
    pub fn finished(&self, now: f64, network: &MaxMin, done: &mut Vec<FlowId>) {
        done.clear();
        self.finishes.for_each_up_to(now, |link| {
            let clock = self.clocks[link];
            // A flow that finishes within rounding of the first finishes with it.
            let reading = clock.at(now).max(clock.first);
            let reading = reading + 1e-12 * reading.abs();
            let flows = network.held(SolverLink::from_index(link));
            done.extend(flows.filter(|flow| self.journeys[flow.index()].until <= reading));
        });
    }

    fn change_clock(&mut self, flow: FlowId, now: f64, network: &MaxMin) {
        let Some(holder) = network.held_by(flow) else { return };
        let Journey { clock: before, until } = self.journeys[flow.index()];
        let clock = holder.index() as u32;
        if before == clock {
            return;
        }
        let left = match before {
            NONE => until,
            _ => {
                self.leave(before, until);
                (until - self.clocks[before as usize].at(now)).max(0.0)
            }
        };
        let until = self.clocks[clock as usize].at(now) + left;
        self.journeys[flow.index()] = Journey { clock, until };
        let joined = &mut self.clocks[clock as usize];
        joined.first = joined.first.min(until);
        self.touch(clock);
    }

    fn leave(&mut self, clock: u32, until: f64) {
        let left = &mut self.clocks[clock as usize];
        left.stale |= until <= left.first;
        if left.stale {
            self.touch(clock);
        }
    }

    fn touch(&mut self, clock: u32) {
        let state = &mut self.clocks[clock as usize];
        if !state.listed {
            state.listed = true;
            self.touched.push(clock);
        }
    }

    /// Computes when the first flow of a clock finishes.
    fn update_finish(&mut self, link: u32, network: &MaxMin) {
        let clock = &mut self.clocks[link as usize];
        clock.listed = false;
        if clock.stale {
            clock.stale = false;
            let flows = network.held(SolverLink::from_index(link as usize));
            let ends = flows.map(|flow| self.journeys[flow.index()].until);
            clock.first = ends.fold(f64::INFINITY, f64::min);
        }
        let finish = if clock.first < f64::INFINITY && 0.0 < clock.level {
            clock.since + ((clock.first - clock.reading) / clock.level).max(0.0)
        } else {
            f64::INFINITY
        };
        self.finishes.set(link as usize, finish);
    }
}

/// A binary tree of minima over a row of numbers.
#[derive(Clone, Debug, Default)]
struct Minima {
    /// The root is at 1, the children of `n` at `2n` and `2n + 1`, the row from `width` on.
    tree: Vec<f64>,
    width: usize,
}

impl Minima {
    /// Makes room for so many numbers; new ones are infinite.
    fn resize(&mut self, length: usize) {
        if length <= self.width {
            return;
        }
        let row: Vec<f64> = self.tree.get(self.width..).unwrap_or(&[]).to_vec();
        self.width = length.next_power_of_two();
        self.tree = vec![f64::INFINITY; 2 * self.width];
        self.tree[self.width..][..row.len()].copy_from_slice(&row);
        for at in (1..self.width).rev() {
            self.tree[at] = self.tree[2 * at].min(self.tree[2 * at + 1]);
        }
    }

    fn set(&mut self, at: usize, value: f64) {
        let mut at = self.width + at;
        self.tree[at] = value;
        while 1 < at {
            at /= 2;
            let least = self.tree[2 * at].min(self.tree[2 * at + 1]);
            if self.tree[at] == least {
                return;
            }
            self.tree[at] = least;
        }
    }

    fn least(&self) -> f64 {
        self.tree.get(1).copied().unwrap_or(f64::INFINITY)
    }

    /// Visits the places of all numbers up to `limit`, in order.
    fn for_each_up_to(&self, limit: f64, mut visit: impl FnMut(usize)) {
        let mut open = vec![1];
        while let Some(at) = open.pop() {
            if self.tree.get(at).is_none_or(|least| limit < *least) {
                continue;
            }
            if self.width <= at {
                visit(at - self.width);
            } else {
                open.extend([2 * at + 1, 2 * at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Random;

    use super::*;

    /// Oracle, by hand: the short flow takes 2 s at rate 5, then the long one has all for itself.
    #[test]
    fn the_rest_speeds_up_when_one_finishes() {
        let mut network = MaxMin::new(&[10.0]);
        let mut progress = Progress::default();
        let flows = [10.0, 30.0].map(|bytes| {
            let flow = network.define(&[(0, 1.0)], 1.0, None);
            network.start(flow);
            progress.begin(flow, bytes, &network);
            flow
        });
        network.settle();
        progress.update(0.0, &mut network);
        assert_eq!(progress.next(), 2.0);
        let mut done = Vec::new();
        progress.finished(2.0, &network, &mut done);
        assert_eq!(done, [flows[0]]);
        assert_eq!(progress.left(flows[1], 2.0, &network), 20.0);
        network.stop(flows[0]);
        progress.end(flows[0]);
        network.settle();
        progress.update(2.0, &mut network);
        assert_eq!(progress.next(), 4.0);
    }

    /// Property: the clocks agree with adding up every flow's rate over every interval.
    #[test]
    fn clocks_agree_with_adding_up() {
        for seed in 0..50 {
            let mut random = Random::new(seed, "clocks", 0);
            let capacities: Vec<f64> = (0..8).map(|_| 1.0 + 9.0 * random.unit()).collect();
            let mut network = MaxMin::new(&capacities);
            let mut progress = Progress::default();
            let mut left: Vec<(FlowId, f64)> = (0..40)
                .map(|_| {
                    let path = [0, 1, 2].map(|_| (random.below(8) as u32, 1.0));
                    let flow = network.define(&path, 1.0 + random.unit(), None);
                    let bytes = 100.0 * random.unit();
                    network.start(flow);
                    progress.begin(flow, bytes, &network);
                    (flow, bytes)
                })
                .collect();
            let (mut now, mut done) = (0.0, Vec::new());
            network.settle();
            progress.update(now, &mut network);
            while !left.is_empty() {
                let next = progress.next();
                for (flow, bytes) in &mut left {
                    *bytes -= network.rate(*flow) * (next - now);
                }
                now = next;
                progress.finished(now, &network, &mut done);
                assert!(!done.is_empty(), "seed {seed}: nothing finished at {now}");
                left.retain(|(flow, bytes)| {
                    let is_done = done.contains(flow);
                    assert_eq!(is_done, bytes.abs() < 1e-9, "seed {seed}: {bytes} left");
                    !is_done
                });
                for flow in &done {
                    network.stop(*flow);
                    progress.end(*flow);
                }
                network.settle();
                progress.update(now, &mut network);
            }
            assert_eq!(progress.next(), f64::INFINITY);
        }
    }
}
