//! Another protocol on the same cables.

use fabric::transport::Transport;
use scenario::Loaded;

use crate::change::{Change, Kind};

/// Ultra Ethernet where RoCE runs: the same cables and switches, other NICs.
pub(super) fn changes(loaded: &Loaded) -> Vec<Change> {
    let is_roce =
        matches!(loaded.scenario.network.transport, Transport::Rocev2 | Transport::Rocev1);
    if !is_roce {
        return Vec::new();
    }
    let set = ["network.transport=uec", "network.routing.policy=spray"];
    let risk = "NICs and switches must speak it; their prices are not known here";
    let change = Change::new(Kind::Fabric, "Ultra Ethernet, packets sprayed", set);
    vec![change.risking(risk)]
}
