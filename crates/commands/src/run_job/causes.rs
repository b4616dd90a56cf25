//! Why a step takes as long as it does, by cause: what is told of [`step::causes`].

use report::{Chart, ChartKind, Frame, Unit};
use serde::Serialize;
use step::causes::{Cause, Causes};
use step::predict::Prediction;

/// Seconds of a step by cause; they add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CausesSeconds {
    /// Kernels, the optimizer's too.
    pub compute: f64,
    /// Launches, hand-overs, ways through NICs, cables and switches.
    pub latency: f64,
    /// Bytes at the rate of the links that an undisturbed group has.
    pub line_rate: f64,
    /// A tier, zone or site that has less bandwidth than what crosses it.
    pub boundary: f64,
    /// Flows that share a link while others like it are free.
    pub collisions: f64,
    /// Pauses, and waiting for credits.
    pub stalls: f64,
    /// Packets sent again because they came in another order.
    pub reordering: f64,
    /// Ranks and links that are slower than others: jitter, and what the scenario names.
    pub stragglers: f64,
    /// Waiting for another stage's computation.
    pub pipeline: f64,
    /// Links and switches that fail.
    pub faults: f64,
    /// Data loading and the loop around the step.
    pub other: f64,
}

impl CausesSeconds {
    /// Of a predicted step.
    pub(super) fn of(prediction: &Prediction) -> Self {
        let of = |cause| prediction.causes.get(cause);
        Self {
            compute: of(Cause::Compute),
            latency: of(Cause::Latency),
            line_rate: of(Cause::LineRate),
            boundary: of(Cause::Boundary),
            collisions: of(Cause::Collisions),
            stalls: of(Cause::Stalls),
            reordering: of(Cause::Reordering),
            stragglers: of(Cause::Stragglers),
            pipeline: of(Cause::Pipeline),
            faults: of(Cause::Faults),
            other: of(Cause::Other),
        }
    }

    /// The causes with what people call them, in the order of the keys.
    pub fn named(&self) -> [(&'static str, f64); 11] {
        [
            ("computation", self.compute),
            ("launch and latency", self.latency),
            ("line rate", self.line_rate),
            ("tier or zone boundary", self.boundary),
            ("hash collisions", self.collisions),
            ("pauses or credit stalls", self.stalls),
            ("reordering", self.reordering),
            ("stragglers", self.stragglers),
            ("pipeline", self.pipeline),
            ("faults", self.faults),
            ("other", self.other),
        ]
    }

    /// The step.
    pub fn total(&self) -> f64 {
        self.named().iter().map(|(_, seconds)| seconds).sum()
    }

    /// The cause that takes most, computation apart.
    pub fn leads(&self) -> (&'static str, f64) {
        let named = self.named();
        let apart = named[1..].iter().max_by(|a, b| a.1.total_cmp(&b.1));
        *apart.expect("there are causes")
    }

    /// The cause that leads, and where they come to another sum than what the fabric costs, why.
    pub(super) fn words(&self, fabric_s: f64) -> String {
        let (name, seconds) = self.leads();
        let share = 100.0 * seconds / self.total();
        let mut text =
            format!("By cause, computation apart, the most is {name} ({share:.1} % of the step).");
        let contention = self.boundary + self.collisions + self.stalls + self.reordering;
        if 0.005 * self.total() < (contention - fabric_s).abs() && 0.0 < fabric_s {
            let [contention, fabric] =
                [contention, fabric_s].map(|s| format!("{:.3}", units::Span::from_secs_f64(s)));
            text += &format!(
                " Causes of contention come to {contention}, the fabric's cost to {fabric}: \
                 causes share out what is exposed on one clock as it is in phases one by one, and \
                 the cost is the step less one whose exchanges nobody disturbs, with the mean \
                 jitter."
            );
        }
        text
    }

    pub(super) fn chart(&self) -> Chart {
        let mut causes = Frame::new(&["cause", "seconds"]);
        for (name, seconds) in self.named() {
            if 0.0 < seconds {
                causes.push(vec![name.into(), seconds.into()]);
            }
        }
        Chart::new(ChartKind::Waterfall, "The same time by cause", causes)
            .caption(
                "Latency and line rate are what groups take alone; what the step is longer for \
                 contention is told apart by what the links carried.",
            )
            .axes("seconds", "cause")
            .labels("time", "")
            .units(Unit::Seconds, Unit::Number)
    }
}

/// A step with faults by cause: what it is longer than without them is theirs.
pub(super) fn with_faults(quiet: &Prediction, disturbed: &Prediction) -> Causes {
    let (without, with) = (quiet.causes.total(), disturbed.causes.total());
    if with < without {
        return disturbed.causes;
    }
    let mut causes = quiet.causes;
    causes.add(Cause::Faults, with - without);
    causes
}
