//! What a cluster or a step should reach: `[targets]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Ranged, Ranges, Span};

/// What a cluster or a step should reach. Each that is given is met or missed by name; one that is
/// missed makes the exit code 4.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Targets {
    /// The most that 64 bytes may take between two servers of a leaf, NICs included.
    pub rack: Option<Span>,
    /// The same between the servers that are farthest from each other.
    pub inter_rack: Option<Span>,
    /// The most capacity below over capacity above that a tier may have.
    #[schemars(extend("x-ratio" = true))]
    pub oversubscription: Option<f64>,
    /// The most that servers and network may cost, in dollars.
    pub cost_usd: Option<f64>,
    /// The most that they may draw, in watts.
    pub power_w: Option<f64>,
    /// The longest step.
    pub step: Option<Span>,
    /// The least share of the GPUs' bf16 peak.
    pub mfu: Option<f64>,
    /// The least share of a long run that trains.
    pub goodput: Option<f64>,
}

impl Targets {
    /// Those of a step of a job; the others are a fabric's.
    pub const OF_A_STEP: [&str; 3] = ["step", "mfu", "goodput"];

    /// Named sets, as assignments.
    pub const SETS: [(&str, &[&str]); 1] =
        // Comparative analysis, "Latency and Jitter": below 5 us in a rack, 20 us between racks.
        [("article", &["targets.rack=5us", "targets.inter_rack=20us"])];
}

impl Ranged for Targets {
    fn ranges(&self, check: &mut Ranges) {
        let mut most = |key, value: Option<f64>, most: f64| {
            check.within(key, value.unwrap_or(0.0), [0.0, most]);
        };
        most("oversubscription", self.oversubscription, 1e6);
        most("cost_usd", self.cost_usd, 1e15);
        most("power_w", self.power_w, 1e15);
        most("mfu", self.mfu, 1.0);
        most("goodput", self.goodput, 1.0);
    }
}
