//! Why a step takes as long as it does, by cause: another sum of the same time.
//!
//! How it works. Computation, the bubble and the loop around the step are what they are in the
//! breakdown. What named slow GPUs add is what the step is longer than without them; jitter is
//! added to it: both are stragglers. The step is put together once more with every group alone: of
//! that the exposed time of each axis is shared out as the axis's exchanges are, launches,
//! hand-overs and ways as latency, bytes as line rate. What the step is longer for contention is
//! told apart by what the links carried ([`Excess`]). On one clock computation, bubble and
//! stragglers are what was seen there; exposed communication has the causes that it has by phases,
//! one by one, and what is longer than those is line rate: phases that met on their links.
//!
//! Contention, step by step, each at most what the engine found: NICs that several groups share
//! are line rate still; what the uplinks of a switch need if all carry alike is the tier's
//! boundary; links that are slow or down add stragglers or faults; a link that carries more than
//! its like adds collisions. What is left no link's bytes explain: pauses and missing credits,
//! packets sent again because of their order, and else collisions.
//!
//! Where it departs from reality: causes meet, and a sum has to choose. What a remedy gains is
//! found by running it.

use std::collections::BTreeMap;

use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId, NodeId, NodeKind};
use traffic::{Counters, LinkUse};
use units::{IdVec, Span};

use crate::breakdown::Breakdown;
use crate::timeline::Share;

/// Why time passes. The order is that of the results.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Cause {
    /// Kernels, the optimizer's too.
    Compute,
    /// Launches, hand-overs, ways through NICs, cables and switches.
    Latency,
    /// Bytes at the rate of the links that an undisturbed group has.
    LineRate,
    /// A tier, zone or site that has less bandwidth than what crosses it.
    Boundary,
    /// Flows that share a link while others like it are free.
    Collisions,
    /// Pauses, and waiting for credits.
    Stalls,
    /// Packets sent again because they came in another order.
    Reordering,
    /// Ranks and links that are slower than others.
    Stragglers,
    /// Waiting for another stage's computation.
    Pipeline,
    /// Links and switches that are down.
    Faults,
    /// Data loading and the loop around the step.
    Other,
}

impl Cause {
    /// All of them, in the order of the results.
    pub const ALL: [Self; 11] = [
        Self::Compute,
        Self::Latency,
        Self::LineRate,
        Self::Boundary,
        Self::Collisions,
        Self::Stalls,
        Self::Reordering,
        Self::Stragglers,
        Self::Pipeline,
        Self::Faults,
        Self::Other,
    ];
}

/// Seconds by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Causes {
    seconds: [f64; 11],
}

impl Causes {
    /// Of one cause.
    pub fn get(&self, cause: Cause) -> f64 {
        self.seconds[cause as usize]
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Adds to one cause.
    pub fn add(&mut self, cause: Cause, seconds: f64) {
        self.seconds[cause as usize] += seconds;
    }

    /// Adds so many times of others.
    pub fn add_all(&mut self, others: &Self, times: f64) {
        for (own, other) in self.seconds.iter_mut().zip(&others.seconds) {
            *own += times * other;
        }
    }

    /// Leaves what groups do to each other, and nothing of what one takes alone.
    pub(crate) fn keep_contention(&mut self) {
        for cause in [Cause::Compute, Cause::Latency, Cause::LineRate, Cause::Pipeline] {
            self.seconds[cause as usize] = 0.0;
        }
    }

    /// The causes of a step on one clock, where these are those of its phases one by one. What is
    /// computed or waited for longer than the order of the step says, somebody is slow.
    pub(crate) fn on_one_clock(&self, breakdown: &Breakdown, overhead: Span) -> Self {
        let of = |share: Share| breakdown.get(share).as_secs_f64();
        let looped = breakdown.get(Share::Other).min(overhead).as_secs_f64();
        let mut causes = Self::default();
        causes.add(Cause::Compute, of(Share::Compute) + of(Share::Optimizer));
        causes.add(Cause::Pipeline, of(Share::Bubble));
        causes.add(Cause::Other, looped);
        causes.add(Cause::Stragglers, of(Share::Other) - looped);
        let exposed = breakdown.total().as_secs_f64() - causes.total();
        let mut network = *self;
        let apart = [Cause::Compute, Cause::Pipeline, Cause::Stragglers, Cause::Other];
        apart.iter().for_each(|cause| network.seconds[*cause as usize] = 0.0);
        let known = network.total();
        if 0.0 < known {
            causes.add_all(&network, exposed.min(known) / known);
        }
        causes.add(Cause::LineRate, (exposed - known).max(0.0));
        causes
    }

    /// A breakdown by cause, with each axis's exchanges by cause.
    pub fn of(breakdown: &Breakdown, axes: &ByAxis) -> Self {
        let mut causes = Self::default();
        for share in Share::ALL {
            let seconds = breakdown.get(share).as_secs_f64();
            match share {
                Share::Compute | Share::Optimizer => causes.add(Cause::Compute, seconds),
                Share::Bubble => causes.add(Cause::Pipeline, seconds),
                Share::Other => causes.add(Cause::Other, seconds),
                axis => match axes.get(&axis).filter(|mix| 0.0 < mix.total()) {
                    Some(mix) => causes.add_all(mix, seconds / mix.total()),
                    None => causes.add(Cause::Other, seconds),
                },
            }
        }
        causes
    }
}

/// What the exchanges of each axis come to, by cause.
pub type ByAxis = BTreeMap<Share, Causes>;

/// What contention makes of an undisturbed group's bytes, as multiples of their time; 1 and the
/// sum of these is the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Excess {
    /// NICs that several groups share.
    pub line_rate: f64,
    /// What crosses a tier, zone or site.
    pub boundary: f64,
    /// Links that are slow.
    pub stragglers: f64,
    /// Links that are down or worse for a fault.
    pub faults: f64,
    /// Links that carry more than others like them.
    pub collisions: f64,
    /// Pauses and missing credits.
    pub stalls: f64,
    /// Packets sent again because of their order.
    pub reordering: f64,
    /// None of these: losses.
    pub other: f64,
}

impl Excess {
    fn causes(&self) -> [(Cause, f64); 8] {
        [
            (Cause::LineRate, self.line_rate),
            (Cause::Boundary, self.boundary),
            (Cause::Stragglers, self.stragglers),
            (Cause::Faults, self.faults),
            (Cause::Collisions, self.collisions),
            (Cause::Stalls, self.stalls),
            (Cause::Reordering, self.reordering),
            (Cause::Other, self.other),
        ]
    }

    /// What is longer than undisturbed, by cause: so many seconds in these proportions.
    pub(crate) fn share_out(&self, seconds: f64, causes: &mut Causes) {
        let all: f64 = self.causes().iter().map(|(_, part)| part).sum();
        if seconds <= 0.0 {
            return;
        }
        if all <= 0.0 {
            causes.add(Cause::LineRate, seconds);
            return;
        }
        for (cause, part) in self.causes() {
            causes.add(cause, seconds * part / all);
        }
    }
}

/// What is known of a phase's run besides its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseFacts<'a> {
    /// The fabric.
    pub(crate) fabric: &'a Fabric,
    /// What its links would carry were no fault on.
    pub(crate) faults: Option<&'a fabric::Health>,
    /// What its links did.
    pub(crate) links: &'a IdVec<LinkId, LinkUse>,
    /// What happened to packets.
    pub(crate) counters: &'a Counters,
    /// Whether receivers punish packets that routing lets overtake each other.
    pub(crate) reorders: bool,
    /// What of a link's rate is payload, where payload is what was counted.
    pub(crate) efficiency: f64,
    /// An undisturbed group's bytes on the links.
    pub(crate) moving: Span,
    /// The run's length without hand-overs.
    pub(crate) took: Span,
}

/// The least times in which links can carry what they carried, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    /// Links of NICs.
    nics: f64,
    /// Links between switches, if those of a switch carry alike.
    tiers: f64,
    /// Links that are slow.
    slow: f64,
    /// Links as faults leave them.
    faulty: f64,
    /// Any link at its own rate.
    links: f64,
}

impl PhaseFacts<'_> {
    /// Tells contention apart.
    pub(crate) fn excess(&self, contention: f64) -> Excess {
        let moving = (self.moving.as_secs_f64() * self.efficiency).max(1e-15);
        let bounds = self.bounds();
        let mut known = 1.0_f64;
        let mut next = |seconds: f64| {
            let reached = (seconds / moving).min(contention).max(known);
            let more = reached - known;
            known = reached;
            more
        };
        // Packets that are sent again are bytes of the NIC too.
        let line_rate = if self.reorders { 0.0 } else { next(bounds.nics) };
        let excess = Excess {
            line_rate,
            boundary: next(bounds.tiers),
            stragglers: next(bounds.slow),
            faults: next(bounds.faulty),
            collisions: next(bounds.links),
            ..Excess::default()
        };
        self.left_over(excess, (contention - known).max(0.0))
    }

    /// What no link's bytes explain.
    fn left_over(&self, mut excess: Excess, left: f64) -> Excess {
        let took = self.took.as_secs_f64().max(1e-15);
        let paused = self.links.iter().map(|link| link.paused).max().unwrap_or_default();
        let paused = (paused.as_secs_f64() / took).min(1.0);
        let again = self.counters.retransmits as f64 / (self.counters.packets as f64).max(1.0);
        if 0.0 < paused || 0.0 < again {
            excess.stalls += left * paused / (paused + again);
            let again = left * again / (paused + again);
            match self.counters.drops {
                0 => excess.reordering += again,
                _ => excess.other += again,
            }
        } else if self.reorders {
            excess.reordering += left;
        } else {
            excess.collisions += left;
        }
        excess
    }

    fn bounds(&self) -> Bounds {
        let fabric = self.fabric;
        let mut bounds = Bounds::default();
        // By switch and direction: bytes, and the rate of all its links there as it should be and
        // as faults leave it.
        let mut groups: BTreeMap<(NodeId, bool), (f64, f64, f64)> = BTreeMap::new();
        for (id, used) in self.links.enumerate() {
            let class = fabric.class(id);
            if !matches!(class.kind, LinkKind::ScaleOut | LinkKind::Circuit) {
                continue;
            }
            let fabric::Link { from, to, .. } = fabric.links()[id];
            let [from_node, to_node] = [from, to].map(|node| fabric.nodes()[node]);
            let (bytes, rate) = (used.bytes as f64, class.rate.bytes_per_s());
            let slow = fabric.health().rate(fabric, id).bytes_per_s();
            let faulty = self.faults.map_or(slow, |health| match !health.is_down(id) {
                true => health.rate(fabric, id).bytes_per_s().min(slow),
                false => 0.0,
            });
            let alone = |rate: f64| if bytes <= 0.0 { 0.0 } else { bytes / rate.max(1.0) };
            bounds.links = bounds.links.max(alone(rate));
            if slow < rate {
                bounds.slow = bounds.slow.max(alone(slow));
            }
            if 0.0 < faulty && faulty < slow {
                bounds.faulty = bounds.faulty.max(alone(faulty));
            }
            if [from_node, to_node].iter().any(|node| node.kind != NodeKind::Switch) {
                bounds.nics = bounds.nics.max(alone(rate));
                continue;
            }
            let up = from_node.tier <= to_node.tier;
            let group = groups.entry((if up { from } else { to }, up)).or_default();
            *group = (group.0 + bytes, group.1 + rate, group.2 + faulty);
        }
        for (bytes, rate, faulty) in groups.into_values() {
            bounds.tiers = bounds.tiers.max(bytes / rate.max(1.0));
            bounds.faulty = bounds.faulty.max(bytes / faulty.max(1.0));
        }
        bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: an axis of 3 s whose exchanges are two parts latency to one of collisions.
    #[test]
    fn an_axis_is_shared_out_as_its_exchanges_are() {
        let breakdown = Breakdown::default()
            .with(Share::Compute, Span::from_ms(7_000))
            .with(Share::Dp, Span::from_ms(3_000))
            .with(Share::Tp, Span::from_ms(500))
            .with(Share::Bubble, Span::from_ms(1_000));
        let mut mix = Causes::default();
        mix.add(Cause::Latency, 0.4);
        mix.add(Cause::Collisions, 0.2);
        let causes = Causes::of(&breakdown, &ByAxis::from([(Share::Dp, mix)]));
        let close = |cause, seconds: f64| (causes.get(cause) - seconds).abs() < 1e-12;
        assert!(close(Cause::Compute, 7.0) && close(Cause::Pipeline, 1.0), "{causes:?}");
        assert!(close(Cause::Latency, 2.0) && close(Cause::Collisions, 1.0), "{causes:?}");
        assert!(close(Cause::Other, 0.5), "an axis of which nothing is known");
        assert!((causes.total() - breakdown.total().as_secs_f64()).abs() < 1e-12);
    }

    /// Oracle: by phases two seconds of collisions and one of line rate; on one clock four.
    #[test]
    fn on_one_clock_what_is_more_than_by_phases_is_line_rate() {
        let mut phases = Causes::default();
        phases.add(Cause::Compute, 9.0);
        phases.add(Cause::Collisions, 2.0);
        phases.add(Cause::LineRate, 1.0);
        let seen = |dp_ms: u64| {
            Breakdown::default()
                .with(Share::Compute, Span::from_ms(8_000))
                .with(Share::Dp, Span::from_ms(dp_ms))
                .with(Share::Other, Span::from_ms(500))
        };
        let causes = phases.on_one_clock(&seen(4_000), Span::from_ms(100));
        let close = |cause, seconds: f64| (causes.get(cause) - seconds).abs() < 1e-12;
        assert!(close(Cause::Compute, 8.0) && close(Cause::Collisions, 2.0), "{causes:?}");
        assert!(close(Cause::LineRate, 2.0), "{causes:?}");
        assert!(close(Cause::Other, 0.1) && close(Cause::Stragglers, 0.4), "{causes:?}");
        let shorter = seen(1_500);
        let causes = phases.on_one_clock(&shorter, Span::from_ms(100));
        assert!((causes.get(Cause::Collisions) - 1.0).abs() < 1e-12, "{causes:?}");
        assert!((causes.total() - shorter.total().as_secs_f64()).abs() < 1e-12);
    }

    #[test]
    fn what_is_longer_is_shared_out_whole() {
        let excess = Excess { boundary: 3.0, stalls: 1.0, ..Excess::default() };
        let mut causes = Causes::default();
        excess.share_out(8.0, &mut causes);
        assert_eq!(causes.get(Cause::Boundary), 6.0);
        assert_eq!(causes.get(Cause::Stalls), 2.0);
        let mut plain = Causes::default();
        Excess::default().share_out(1.5, &mut plain);
        assert_eq!(plain.get(Cause::LineRate), 1.5);
    }
}
