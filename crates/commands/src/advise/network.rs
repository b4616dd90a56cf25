//! Settings of switches and NICs beyond the choice of paths: marks, pauses, rates and admission.
//!
//! Queues exist only on packets, so these are tried there. What flows obey too stands in
//! [`levers`](crate::levers).

use fabric::graph::LinkKind;
use fabric::routing::Seeds;
use fabric::transport::Transport;
use packetsim::admission::AdmissionPolicy;
use packetsim::buffer::PfcConfig;
use packetsim::settings::ControlClass;
use scenario::Loaded;
use units::Bytes;

use crate::change::{Change, Kind};

/// Pairs of marking thresholds that real switches are shipped with.
const MARKS: [(&str, &str, &str); 4] = [
    // Arista 7060X6 in SONiC (qos.json, WRED_LOSSLESS_Q3).
    ("128KiB", "256KiB", "as SONiC ships Arista's 7060X6"),
    // DCQCN's paper (SIGCOMM 2015) scaled from 40G to 400G.
    ("400KiB", "1600KiB", "DCQCN's paper, scaled to 400G"),
    // SONiC's AZURE_LOSSLESS profile (qos_config.j2).
    ("1MiB", "2MiB", "SONiC's AZURE_LOSSLESS"),
    // Mellanox SN4600C in SONiC (qos.json).
    ("2MB", "10MB", "as SONiC ships Mellanox's SN4600C"),
];

/// Hash seeds, the one setting here that flows obey too.
pub(super) fn seeds(loaded: &Loaded) -> Vec<Change> {
    let routing = &loaded.scenario.network.settings.routing;
    if routing.seeds != Seeds::Equal {
        return Vec::new();
    }
    let set = ["network.routing.seeds=per-switch"];
    let why = "all switches hash with one seed: choices of one tier repeat at the next";
    vec![Change::new(Kind::Network, "a hash seed for each switch", set).because(why, 0.0)]
}

/// What only packets obey.
pub(super) fn on_packets(loaded: &Loaded) -> Vec<Change> {
    let network = &loaded.scenario.network;
    let settings = &network.settings;
    let is_roce = matches!(network.transport, Transport::Rocev2 | Transport::Rocev1);
    if !is_roce {
        return Vec::new();
    }
    let change = |name: String, set: Vec<String>| Change::new(Kind::Network, name, set);
    let mut changes = Vec::new();
    let controlled = serde_json::to_value(&settings.congestion).unwrap_or_default();
    let control = controlled["control"].as_str().unwrap_or("none").to_owned();
    if control == "dcqcn" {
        changes.extend(marks(settings.ecn.min));
        let set = ["network.congestion.control=none", "network.admission.policy=receiver-driven"];
        let risk = "pauses alone hold back what receivers did not grant";
        changes.push(
            change("no DCQCN, receivers grant".to_owned(), set.map(str::to_owned).to_vec())
                .because("Meta runs its clusters so (SIGCOMM 2024)", 0.0)
                .risking(risk),
        );
        let set = vec!["network.congestion.control=none".to_owned()];
        changes.push(change("no DCQCN".to_owned(), set).risking("pauses spread under incast"));
    } else {
        let set = vec!["network.congestion.control=dcqcn".to_owned()];
        changes.push(change("DCQCN".to_owned(), set).risking("rates fall where paths collide"));
    }
    if settings.admission.policy == AdmissionPolicy::None {
        let set = vec!["network.admission.policy=receiver-driven".to_owned()];
        changes.push(change("receivers grant".to_owned(), set));
    }
    let alphas = [0.125, 0.5, 4.0].into_iter().filter(|alpha| *alpha != settings.buffer.alpha);
    for alpha in alphas {
        let set = vec![format!("network.buffer.alpha={alpha:?}")];
        let risk = match alpha < settings.buffer.alpha {
            true => "pauses come sooner",
            false => "one port can fill the buffer",
        };
        changes.push(change(format!("alpha {alpha}"), set).risking(risk));
    }
    if settings.pfc.enabled {
        let set = vec!["network.pfc.enabled=false".to_owned()];
        changes.push(change("no PFC".to_owned(), set).risking("full buffers drop"));
    } else {
        let set = vec!["network.pfc.enabled=true".to_owned()];
        changes.push(change("PFC".to_owned(), set).risking("pauses spread upstream"));
    }
    changes.extend(headroom(loaded));
    if settings.switch.acks == ControlClass::WithData {
        let set = vec!["network.switch.acks=own".to_owned()];
        changes.push(change("acknowledgements in a lane of their own".to_owned(), set));
    }
    changes
}

fn marks(now: Bytes) -> Vec<Change> {
    let is_other = |min: &str| min.parse::<Bytes>().is_ok_and(|min| min != now);
    let others = MARKS.into_iter().filter(|(min, ..)| is_other(min));
    let change = |(min, max, whose): (&str, &str, &str)| {
        let set = [format!("network.ecn.min={min}"), format!("network.ecn.max={max}")];
        Change::new(Kind::Network, format!("marks from {min} to {max}"), set).because(whose, 0.0)
    };
    others.map(change).collect()
}

/// Headroom by SONiC's formula for the longest of the NICs' cables, where less is set.
fn headroom(loaded: &Loaded) -> Option<Change> {
    let settings = &loaded.scenario.network.settings;
    let now = settings.buffer.headroom.filter(|_| settings.pfc.enabled)?;
    let fabric = loaded.fabric();
    let links = fabric.links().ids().map(|link| fabric.class(link));
    let links = links.filter(|class| class.kind == LinkKind::ScaleOut);
    let needs = links.map(|link| PfcConfig::headroom(link.rate, link.delay, settings.packet.mtu));
    let need = needs.max().filter(|need| now < *need)?;
    let set = [format!("network.buffer.headroom={}B", need.get())];
    let name = format!("PFC headroom of {need} for each port");
    let why = format!("{now} is less than what arrives between a pause and its effect");
    let change = Change::new(Kind::Network, name, set).because(why, 0.0);
    Some(change.risking("headroom is taken from the shared buffer"))
}
