//! Ranks are not equally fast, and everybody waits for the slowest.
//!
//! How it works. A node's computation in a step takes `1 + X` times its nominal time. `X` is
//! exponential: most nodes are close to nominal, few are late, and the tail has no natural end
//! (clocks, heat, a daemon, a page fault). The ranks of a synchronous step wait for the slowest, so
//! a step over `n` nodes is slower by the mean of the maximum of `n` draws, which is
//! `mean · (1 + 1/2 + … + 1/n)`: it grows with the logarithm of the number of nodes. That growth is
//! what published step times show, somewhat less than 1 % of the step for each doubling of the
//! nodes.
//!
//! Short network or host events (tens of microseconds) are a second kind: each delays whatever
//! synchronises next, so their cost depends on how many ranks synchronise how often
//! ([`Events::slowdown`]).
//!
//! Named stragglers (one slow GPU, NIC or link) are scenarios, not chance: [`Straggler`].
//!
//! Where it departs from reality: draws are independent between nodes and steps; a node that is
//! slow for a week is a [`Straggler`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Random, Ranged, Ranges, Span, UnusedKeys};

/// How unequal the ranks are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jitter {
    /// Mean slowdown of one node's computation in one step, as a share of it.
    pub mean: f64,
    /// Short delays of single ranks.
    pub events: Events,
}

impl Default for Jitter {
    fn default() -> Self {
        Self {
            // Set with measurements: published steps (`fatflow validate --leave-out`). It is three
            // quarters of a percent of a step for each doubling of the nodes.
            mean: 0.0108,
            events: Events::default(),
        }
    }
}

impl Ranged for Jitter {
    fn ranges(&self, check: &mut Ranges) {
        check.within("mean", self.mean, [0.0, 100.0]);
        check.table("events", &self.events);
    }
}

impl Jitter {
    /// Names what has no effect.
    pub fn unused(&self, idle: &mut UnusedKeys) {
        if self.events.per_rank_per_s == 0.0 {
            let used_by = "jitter.events.per_rank_per_s above 0";
            idle.key("events.length", "no rank is delayed by events", used_by);
        }
    }

    /// All ranks alike.
    pub fn none() -> Self {
        Self { mean: 0.0, events: Events { per_rank_per_s: 0.0, ..Events::default() } }
    }

    /// The expected slowdown of a synchronous step over `nodes`, as a share of its computation.
    ///
    /// A single node has no other to wait for; its own mean is part of the measured kernels.
    ///
    /// ```
    /// let jitter = step::jitter::Jitter { mean: 0.01, ..Default::default() };
    /// assert_eq!(jitter.slowdown(1), 0.0);
    /// // The mean of the slower of two lies half a mean beyond the mean of one.
    /// assert!((jitter.slowdown(2) - 0.005).abs() < 1e-12);
    /// assert!((jitter.slowdown(2048) - jitter.slowdown(1024) - 0.01 * 2_f64.ln()).abs() < 1e-5);
    /// ```
    pub fn slowdown(&self, nodes: u64) -> f64 {
        self.mean * (harmonic(nodes) - 1.0)
    }

    /// One step's draw of the same slowdown.
    pub fn draw(&self, nodes: u64, random: &mut Random) -> f64 {
        // The maximum of n exponentials by its inverse distribution: one draw, not n.
        let log_share = random.unit().max(f64::MIN_POSITIVE).ln() / nodes.max(1) as f64;
        let maximum = -self.mean * (-log_share.exp_m1()).ln();
        (maximum - self.mean).max(0.0)
    }
}

/// `1 + 1/2 + … + 1/n`.
fn harmonic(n: u64) -> f64 {
    if n <= 64 {
        return (1..=n.max(1)).map(|term| 1.0 / term as f64).sum();
    }
    let n = n as f64;
    n.ln() + 0.577_215_664_901_532_9 + 1.0 / (2.0 * n) - 1.0 / (12.0 * n * n)
}

/// Short delays of single ranks: an interrupt, a retransmission, a congested queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// How often one rank is delayed.
    pub per_rank_per_s: f64,
    /// By how long.
    pub length: Span,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            // Off: the published steps behind `Jitter::mean` contain whatever events they had.
            per_rank_per_s: 0.0,
            // The middle of the 50 to 100 µs that the comparative analysis reports.
            length: Span::from_us(75),
        }
    }
}

impl Ranged for Events {
    fn ranges(&self, check: &mut Ranges) {
        check.within("per_rank_per_s", self.per_rank_per_s, [0.0, 1e6]);
        check.at_most("length", self.length, Span::from_ms(3_600_000));
    }
}

impl Events {
    /// The expected slowdown of work in which `ranks` synchronise every `interval`, as a share.
    ///
    /// An interval is lengthened once however many ranks are hit in it.
    pub fn slowdown(&self, ranks: u64, interval: Span) -> f64 {
        let interval = interval.as_secs_f64();
        if interval == 0.0 {
            return 0.0;
        }
        let hit = -(-self.per_rank_per_s * ranks as f64 * interval).exp_m1();
        hit * self.length.as_secs_f64() / interval
    }
}

/// One part of the cluster that is slower than it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Straggler {
    /// A GPU of this pipeline stage computes at this share of its speed.
    Gpu {
        /// Which pipeline stage it is in.
        stage: u32,
        /// 0.8 means that everything takes 1/0.8 times as long.
        speed: f64,
    },
    /// A NIC of this node runs at this share of its rate. The fabric obeys it, not the timeline.
    Nic {
        /// Which node of the job, counted from 0.
        node: u32,
        /// The share of the rate that is left.
        speed: f64,
    },
    /// A named link runs at this share of its rate. The fabric obeys it, not the timeline.
    Link {
        /// Its name as `topo` prints it.
        name: String,
        /// The share of the rate that is left.
        speed: f64,
    },
}

impl Ranged for Straggler {
    fn ranges(&self, check: &mut Ranges) {
        let (kind, speed) = match self {
            Self::Gpu { speed, .. } => ("gpu", *speed),
            Self::Nic { speed, .. } => ("nic", *speed),
            Self::Link { speed, .. } => ("link", *speed),
        };
        check.within(&format!("{kind}.speed"), speed, [1e-3, 1.0]);
    }
}

impl Straggler {
    /// How much longer computation takes in a pipeline stage.
    pub fn compute_factor(&self, in_stage: u32) -> f64 {
        match self {
            Self::Gpu { stage, speed } if *stage == in_stage => 1.0 / speed.max(1e-6),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: the closed form against the maximum of draws, and one-draw sampling against both.
    #[test]
    fn the_slowest_of_many_is_late_by_the_harmonic_number() {
        let jitter = Jitter { mean: 0.0144, ..Jitter::default() };
        let mut random = Random::new(1, "test", 0);
        for nodes in [2_u64, 10, 100, 1000] {
            let runs = 3000;
            let slowest = |random: &mut Random| {
                (0..nodes).map(|_| random.exponential(jitter.mean)).fold(0.0, f64::max)
            };
            let by_hand: f64 = (0..runs).map(|_| slowest(&mut random)).sum::<f64>() / runs as f64;
            assert!((by_hand - jitter.mean - jitter.slowdown(nodes)).abs() < 0.0012, "{nodes}");
            let mean = (0..runs).map(|_| jitter.draw(nodes, &mut random)).sum::<f64>();
            let drawn = mean / runs as f64;
            // Draws below the mean of one node are cut at 0, which only two nodes notice.
            let allowed = if nodes == 2 { 0.005 } else { 0.0012 };
            assert!((drawn - jitter.slowdown(nodes)).abs() < allowed, "{nodes}: {drawn}");
        }
    }

    #[test]
    fn the_harmonic_number_is_the_sum_on_both_sides_of_its_shortcut() {
        for n in [1_u64, 2, 64, 65, 1000] {
            let sum: f64 = (1..=n).map(|term| 1.0 / term as f64).sum();
            assert!((harmonic(n) - sum).abs() < 1e-8, "{n}");
        }
    }

    /// Property: more ranks never cost less, and an interval is lengthened by one event at most.
    #[test]
    fn events_cost_more_on_more_ranks_up_to_one_per_interval() {
        let events = Events { per_rank_per_s: 0.1, length: Span::from_us(75) };
        let interval = Span::from_ms(2);
        let costs: Vec<f64> =
            [8, 128, 1024, 16_384, 1 << 20].map(|n| events.slowdown(n, interval)).to_vec();
        assert!(costs.is_sorted(), "{costs:?}");
        assert!(costs[4] <= 75e-6 / 2e-3 + 1e-12);
        assert!((costs[0] - 0.1 * 8.0 * 75e-6).abs() < 1e-6, "few ranks: rate times length");
    }

    #[test]
    fn a_slow_gpu_slows_its_own_stage() {
        let slow = Straggler::Gpu { stage: 3, speed: 0.8 };
        assert_eq!(slow.compute_factor(3), 1.25);
        assert_eq!(slow.compute_factor(2), 1.0);
    }
}
