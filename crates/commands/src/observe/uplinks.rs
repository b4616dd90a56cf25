//! Which uplinks the 5-tuples of a capture hash to, on the fabric of a scenario.
//!
//! Addresses are those of the scenario's own plan, or stand for its NICs in their order. Ports,
//! queue pairs and the policy's hash are what switches would see; the seed of a real switch's hash
//! is not in a capture, so that how evenly flows lie is told better than on which cable.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::observe::Summary;
use ::observe::summary::Tuple;
use fabric::NodeId;
use fabric::address::{Addresses, ipv6};
use fabric::hash::{FlowKey, ROCE_V2_PORT, UDP};
use report::number::{bytes, grouped, significant};
use report::{Align, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;

use crate::traffic::hashed;

/// Uplinks that are shown.
const MOST_ROWS: usize = 8;

/// What the flows of a capture do to the uplinks of leaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Uplinks {
    /// Flows: sender, receiver, source port and queue pair.
    pub flows: u64,
    /// Shannon entropy of the flows over the uplinks of their leaf, over the most there could be.
    pub normalised: f64,
    /// The share of uplinks, of leaves whose flows go up, that carry no flow.
    pub idle: f64,
    /// The share that would be idle by chance.
    pub idle_expected: f64,
    /// The busiest uplink's bytes over the mean of all.
    pub imbalance: f64,
    /// The busiest.
    pub busiest: Vec<Uplink>,
    /// Whether addresses are the scenario's own; otherwise they stand for its NICs in order.
    pub own_addresses: bool,
    /// Flows without a path.
    pub unreachable: u64,
}

/// An uplink of a leaf.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Uplink {
    /// Its name.
    pub link: String,
    /// Flows that hash to it.
    pub flows: u64,
    /// Payload of these.
    pub bytes: u64,
}

/// Hashes what was captured; why not, where that cannot be.
pub(super) fn of(summary: &Summary, loaded: &Loaded) -> Result<Option<Uplinks>, String> {
    let Some(first) = summary.tuples.first() else { return Ok(None) };
    let fabric = loaded.fabric();
    let plan = Addresses::of(fabric);
    let nics: Vec<NodeId> = (0..fabric.nics()).map(|nic| fabric.nic(nic)).collect();
    let mut known: BTreeMap<IpAddr, NodeId> = BTreeMap::new();
    for nic in &nics {
        let bits = plan.bits(*nic);
        known.insert(IpAddr::V4(bits.into()), *nic);
        known.insert(IpAddr::V6(ipv6(bits)), *nic);
    }
    let seen: BTreeSet<IpAddr> =
        summary.tuples.iter().flat_map(|tuple| [tuple.from, tuple.to]).collect();
    let own_addresses = seen.iter().all(|address| known.contains_key(address));
    if !own_addresses {
        if nics.len() < seen.len() {
            return Err(format!(
                "uplinks of the capture: it has {} addresses (such as {}), the scenario {} NICs",
                seen.len(),
                first.from,
                nics.len()
            ));
        }
        known = seen.into_iter().zip(nics).collect();
    }
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => address.to_bits() as u32,
    };
    let key = |tuple: &Tuple| FlowKey {
        from: known[&tuple.from],
        to: known[&tuple.to],
        src_ip: bits(tuple.from),
        dst_ip: bits(tuple.to),
        protocol: UDP,
        src_port: tuple.source_port,
        dst_port: ROCE_V2_PORT,
        dst_qpn: tuple.queue_pair,
    };
    let flows: Vec<_> =
        summary.tuples.iter().map(|tuple| (key(tuple), tuple.bytes as f64)).collect();
    let routing = &loaded.settings().routing;
    let Some(found) = hashed(fabric, &flows, routing, loaded.scenario.seed) else {
        return Err("uplinks of the capture: the routing spreads packets over all".to_owned());
    };
    let busiest = found.uplinks.iter().take(MOST_ROWS).map(|(link, flows, bytes)| Uplink {
        link: fabric.link_name(*link),
        flows: *flows,
        bytes: *bytes as u64,
    });
    Ok(Some(Uplinks {
        flows: found.entropy.flows,
        normalised: found.entropy.normalised,
        idle: found.entropy.idle_uplinks,
        idle_expected: found.entropy.idle_expected,
        imbalance: found.entropy.uplink_imbalance,
        busiest: busiest.collect(),
        own_addresses,
        unreachable: found.unreachable,
    }))
}

impl Uplinks {
    /// Adds it to a sheet.
    pub(super) fn show(&self, mut sheet: Sheet) -> Sheet {
        sheet = sheet.heading("Uplinks that the captured flows hash to");
        if self.busiest.is_empty() {
            sheet = sheet.text(format!("{} flows: none leaves its leaf.", grouped(self.flows)));
        } else {
            sheet = sheet.text(format!(
                "{} flows: entropy {} of 1, {:.0} % of uplinks carry none ({:.0} % would by \
                 chance), the busiest carries {} times the mean.",
                grouped(self.flows),
                significant(self.normalised),
                100.0 * self.idle,
                100.0 * self.idle_expected,
                significant(self.imbalance)
            ));
            let mut table = Table::new([
                ("uplink", Align::Left),
                ("flows", Align::Right),
                ("bytes", Align::Right),
            ]);
            for uplink in &self.busiest {
                let Uplink { link, flows, bytes: sent } = uplink;
                table.row([link.clone(), grouped(*flows), bytes(*sent as f64)]);
            }
            sheet = sheet.table(table);
        }
        if !self.own_addresses {
            sheet = sheet.text(
                "Addresses stand for the scenario's NICs in their order, and the seed of a \
                 switch's hash is not in a capture.",
            );
        }
        match self.unreachable {
            0 => sheet,
            flows => sheet.note(format!("{flows} flows have no path on this fabric")),
        }
    }
}
