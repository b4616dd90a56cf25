//! What a rack holds: `[racks]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Ranged, Ranges};

/// What a rack of servers holds. Both limits count.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Racks {
    /// The most that the servers of a rack may draw, in watts; without it, the usual of servers
    /// that stand alone or of racks that are one scale-up domain.
    pub power_w: Option<f64>,
    /// The most servers of a rack; without it, as many as the power allows.
    pub servers: Option<u32>,
}

impl Ranged for Racks {
    fn ranges(&self, check: &mut Ranges) {
        check.within("power_w", self.power_w.unwrap_or(1e3), [1.0, 1e7]);
        check.within("servers", self.servers.unwrap_or(1), [1, 1024]);
    }
}
