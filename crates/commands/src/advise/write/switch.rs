//! Switches: SONiC, NVUE, the vendor's hash fields, and paths by policy-based routing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fabric::address::Addresses;
use fabric::hash::HashFields;
use fabric::routing::{Policy, Seeds};
use fabric::{Fabric, LinkId, NodeId};
use flowsim::paths::{Lay, Paths};
use packetsim::buffer::WatchdogAction;
use scenario::Loaded;
use serde_json::{Map, Value as Json, json};
use traffic::Transfers;
use units::{Bytes, Id, Span};

use crate::failure::Failure;
use crate::traffic as wire;
use crate::world::leaf_of;

/// The traffic class, queue and priority group of RoCE in SONiC's own configurations.
const LOSSLESS: &str = "3";

/// The code point of RoCE's packets; NCCL_IB_TC=104 makes NICs write it.
pub(super) const DSCP: &str = "26";

/// Lanes of a port of 400G or 800G: SONiC numbers ports by their first lane.
const LANES: usize = 8;

/// Rules of one pbr-map, at most (FRR's range of `seq`).
const MOST_RULES: usize = 700;

/// A patch of config_db.json. All values are texts there.
pub(super) fn sonic(loaded: &Loaded) -> String {
    let settings = &loaded.scenario.network.settings;
    let (ecn, pfc, buffer) = (&settings.ecn, &settings.pfc, &settings.buffer);
    let mut patch = Map::new();
    let mut fields = vec!["IP_PROTOCOL", "SRC_IP", "DST_IP"];
    if settings.routing.hash != HashFields::Addresses {
        fields.extend(["L4_SRC_PORT", "L4_DST_PORT"]);
    }
    patch.insert("SWITCH_HASH".into(), json!({ "GLOBAL": { "ecmp_hash": fields } }));
    if ecn.enabled {
        let percent = (100.0 * ecn.probability).round().to_string();
        let mut profile = Map::new();
        profile.insert("ecn".into(), "ecn_all".into());
        for colour in ["green", "yellow", "red"] {
            profile.insert(format!("wred_{colour}_enable"), "true".into());
            let min = ecn.min.get().to_string();
            profile.insert(format!("{colour}_min_threshold"), min.into());
            let max = ecn.max.get().to_string();
            profile.insert(format!("{colour}_max_threshold"), max.into());
            profile.insert(format!("{colour}_drop_probability"), percent.clone().into());
        }
        patch.insert("WRED_PROFILE".into(), json!({ "AZURE_LOSSLESS": profile }));
    }
    let threshold = buffer.alpha.max(1.0 / 256.0).log2().round().clamp(-8.0, 7.0);
    let mut profile = Map::new();
    profile.insert("pool".into(), "ingress_lossless_pool".into());
    profile.insert("size".into(), buffer.reserved.get().to_string().into());
    profile.insert("dynamic_th".into(), threshold.to_string().into());
    if let Some(headroom) = buffer.headroom.filter(|_| pfc.enabled) {
        profile.insert("xoff".into(), headroom.get().to_string().into());
        profile.insert("xon_offset".into(), pfc.xon_below.get().to_string().into());
    }
    patch.insert("BUFFER_PROFILE".into(), json!({ "ingress_lossless_profile": profile }));
    let same = |value: &str| json!({ "AZURE": { LOSSLESS: value } });
    patch.insert("DSCP_TO_TC_MAP".into(), json!({ "AZURE": { DSCP: LOSSLESS } }));
    patch.insert("TC_TO_QUEUE_MAP".into(), same(LOSSLESS));
    patch.insert("TC_TO_PRIORITY_GROUP_MAP".into(), same(LOSSLESS));
    patch.insert("MAP_PFC_PRIORITY_TO_QUEUE".into(), same(LOSSLESS));
    ports(loaded, &mut patch);
    let text = serde_json::to_string_pretty(&Json::Object(patch)).unwrap_or_default();
    text + "\n"
}

/// The tables that name ports: those of the fullest leaf.
fn ports(loaded: &Loaded, patch: &mut Map<String, Json>) {
    let settings = &loaded.scenario.network.settings;
    let (ecn, pfc) = (&settings.ecn, &settings.pfc);
    let fabric = loaded.fabric();
    let count = fabric.leaves().iter().map(|leaf| fabric.ports(*leaf).len()).max().unwrap_or(0);
    let (mut maps, mut queues, mut groups, mut watched) =
        (Map::new(), Map::new(), Map::new(), Map::new());
    watched.insert("GLOBAL".into(), json!({ "POLL_INTERVAL": "200" }));
    for port in (0..count).map(|port| format!("Ethernet{}", LANES * port)) {
        let enabled = if pfc.enabled { LOSSLESS } else { "" };
        maps.insert(
            port.clone(),
            json!({
                "dscp_to_tc_map": "AZURE",
                "tc_to_queue_map": "AZURE",
                "tc_to_pg_map": "AZURE",
                "pfc_to_queue_map": "AZURE",
                "pfc_enable": enabled,
                "pfcwd_sw_enable": enabled,
            }),
        );
        if ecn.enabled {
            let queue = json!({ "wred_profile": "AZURE_LOSSLESS" });
            queues.insert(format!("{port}|{LOSSLESS}"), queue);
        }
        let group = json!({ "profile": "ingress_lossless_profile" });
        groups.insert(format!("{port}|{LOSSLESS}"), group);
        if let Some(time) = pfc.watchdog.filter(|time| pfc.enabled && Span::ZERO < *time) {
            let action = match pfc.action {
                WatchdogAction::Alert => "alert",
                WatchdogAction::Drop => "drop",
                WatchdogAction::Forward => "forward",
            };
            let detection = (1e3 * time.as_secs_f64()).round().clamp(100.0, 5000.0).to_string();
            let entry = json!({
                "action": action,
                "detection_time": detection,
                "restoration_time": "2000",
            });
            watched.insert(port, entry);
        }
    }
    patch.insert("PORT_QOS_MAP".into(), maps.into());
    patch.insert("BUFFER_PG".into(), groups.into());
    if !queues.is_empty() {
        patch.insert("QUEUE".into(), queues.into());
    }
    if 1 < watched.len() {
        patch.insert("PFC_WD".into(), watched.into());
    }
}

/// Commands of NVUE, as its reference of set commands has them.
pub(super) fn nvue(loaded: &Loaded) -> String {
    let settings = &loaded.scenario.network.settings;
    let mut text = String::from(
        "# Words of Cumulus Linux 5.15 (NVUE reference). Up to 5.14 a hash field is `on` in place\n\
         # of `enabled`, and adaptive routing and RoCE are `enable on` in place of `state enabled`.\n",
    );
    let mut line = |words: String| text += &format!("nv set {words}\n");
    let mode = if settings.pfc.enabled { "lossless" } else { "lossy" };
    line("qos roce state enabled".to_owned());
    line(format!("qos roce mode {mode}"));
    if settings.ecn.enabled {
        let class = format!("qos congestion-control default-global traffic-class {LOSSLESS}");
        line(format!("{class} min-threshold {}", settings.ecn.min.get()));
        line(format!("{class} max-threshold {}", settings.ecn.max.get()));
        let percent = (100.0 * settings.ecn.probability).round();
        line(format!("{class} probability {percent}"));
    }
    for field in ["source-ip", "destination-ip", "source-port", "destination-port", "ip-protocol"] {
        line(format!("system forwarding ecmp-hash {field} enabled"));
    }
    if settings.routing.policy == Policy::Adaptive {
        line("router adaptive-routing state enabled".to_owned());
    }
    text + "nv config apply\n"
}

/// What must be in the hash beside the 5-tuple, as vendors take it.
pub(super) fn udf(loaded: &Loaded) -> String {
    let routing = &loaded.scenario.network.settings.routing;
    let mut text = String::new();
    if routing.hash == HashFields::FiveTupleQpn || routing.policy == Policy::EEcmp {
        text += "# The destination queue pair number in ECMP's hash, as a user-defined field:\n\
                 match    udp destination-port 4791\n\
                 base     end of the UDP header\n\
                 offset   5\n\
                 length   3\n\
                 use      ecmp hash\n\
                 # These are bytes 5 to 7 of the base transport header. Each vendor has\n\
                 # commands of its own for such a field; none was tried on a switch:\n\
                 # Enterprise SONiC by Dell: hash_roce_qpn of the Ansible module\n\
                 #   dellemc.enterprise_sonic.sonic_ecmp_load_share;\n\
                 # Junos Evolved: it is in the hash by default, and\n\
                 #   `show forwarding-options enhanced-hash-key` says \"RDMA Queue Pair :yes\".\n";
    }
    if routing.hash == HashFields::FiveTupleQkey {
        text += "# The Q_Key of datagrams in ECMP's hash, as a user-defined field: bytes 0 to 3 of the\n\
                 # DETH, behind the base transport header:\n\
                 match    udp destination-port 4791\n\
                 base     end of the UDP header\n\
                 offset   12\n\
                 length   4\n\
                 use      ecmp hash\n";
    }
    if routing.seeds == Seeds::PerSwitch {
        text += "# Every switch has a hash seed of its own: in SONiC ecmp_hash_seed of the\n\
                 # switch's profile, in EOS `ip load-sharing ... seed N`; N differs by switch.\n";
    }
    text
}

/// By leaf and sending NIC: the receiving NICs, and the uplink to each.
type Rules = BTreeMap<(NodeId, NodeId), Vec<(NodeId, LinkId)>>;

/// The paths between the job's NICs.
fn table(loaded: &Loaded) -> Result<Rules, Failure> {
    let fabric = loaded.fabric();
    let connections = match loaded.job {
        Some(_) => wire::connections(loaded)?,
        None => Vec::new(),
    };
    let mut transfers = Transfers::new();
    let ids: Vec<_> = connections.iter().map(|(one, _)| transfers.connect(*one)).collect();
    let settings = loaded.settings();
    let (routing, seed) = (&settings.routing, loaded.scenario.seed);
    let mut paths = Paths::new(fabric, &transfers, routing, fabric.health().clone(), seed);
    let bytes: Vec<u64> = connections.iter().map(|(_, bytes)| *bytes as u64).collect();
    paths.plan_for(&bytes);
    let mut lay = Lay::default();
    for (id, (connection, _)) in ids.iter().zip(&connections) {
        // A connection without a path has none to be told.
        let _ = paths.lay_all(*id, connection, Bytes::from_mib(1), &mut lay);
    }
    let mut table = Rules::new();
    for (_, _, links) in paths.known() {
        let [first, second, .., last] = links else { continue };
        let (from, to) = (fabric.links()[*first].from, fabric.links()[*last].to);
        let rules = table.entry((fabric.links()[*first].to, from)).or_default();
        // The network layer does not see queue pairs: the first path is that of all.
        if links.len() > 2 && rules.iter().all(|(known, _)| *known != to) {
            rules.push((to, *second));
        }
    }
    table.retain(|_, rules| !rules.is_empty());
    Ok(table)
}

/// Every path as a table.
pub(super) fn paths(loaded: &Loaded) -> Result<String, Failure> {
    let fabric = loaded.fabric();
    let addresses = Addresses::of(fabric);
    let mut text = String::from("switch,source,destination,next_hop,next_hop_address\n");
    for ((leaf, from), rules) in table(loaded)? {
        for (to, link) in rules {
            let next = fabric.links()[link].to;
            let row = [
                fabric.name(leaf),
                addresses.ip(from).to_string(),
                addresses.ip(to).to_string(),
                fabric.name(next),
                addresses.ip(next).to_string(),
            ];
            text += &(row.join(",") + "\n");
        }
    }
    Ok(text)
}

/// The same as FRR's pbr-maps: one for each NIC's port of a leaf.
pub(super) fn pbr(loaded: &Loaded) -> Result<String, Failure> {
    let fabric = loaded.fabric();
    let addresses = Addresses::of(fabric);
    let mut text = String::new();
    let mut last = None;
    for ((leaf, from), rules) in table(loaded)? {
        let name = |node: NodeId| fabric.name(node).replace(' ', "-");
        if last.replace(leaf) != Some(leaf) {
            writeln!(text, "! {}", fabric.name(leaf)).expect("a string takes it all");
        }
        if MOST_RULES < rules.len() {
            return Err(Failure::Run(format!(
                "{} sends to {} others: a pbr-map holds {MOST_RULES} rules",
                fabric.name(from),
                rules.len()
            )));
        }
        let map = format!("{}-from-{}", name(leaf), addresses.ip(from));
        for (number, (to, link)) in (1..).zip(&rules) {
            let next = addresses.ip(fabric.links()[*link].to);
            let to = addresses.ip(*to);
            text += &format!("pbr-map {map} seq {number}\n match dst-ip {to}/32\n");
            text += &format!(" set nexthop {next}\n");
        }
        let port = port(fabric, from).map_or(0, |port| port + 1);
        text += &format!("interface swp{port}\n pbr-policy {map}\n");
    }
    Ok(text)
}

/// The port of a leaf that a NIC hangs on.
fn port(fabric: &Fabric, nic: NodeId) -> Option<usize> {
    let leaf = leaf_of(fabric, nic)?;
    let is_own = |link: &LinkId| fabric.links()[*link].to == nic;
    fabric.ports(leaf).iter().position(is_own).or(Some(nic.index()))
}
