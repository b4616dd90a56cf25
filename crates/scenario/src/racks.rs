//! What a rack holds, and how long cables are where racks stand in rows: `[racks]`.
//!
//! How it works. Servers fill racks one after the other, racks fill rows. A switch stands in the
//! middle of the racks that it serves, so its longest cable goes half of their length along the
//! row and half across the rows, and up and down at both ends; inside one rack it is short. Where
//! a scenario says anything of racks, cables whose length it leaves out are as long as that.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fabric::cost::Part;
use fabric::graph::NetworkKind;
use fabric::summary::Summary;
use fabric::topology::{FabricConfig, LinkConfig, TopologyKind};
use fabric::{Fabric, NodeId, NodeKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Length, Ranged, Ranges};

/// What a rack of servers may draw: four DGX H100 of 10.2 kW (NVIDIA, "DGX SuperPOD: Data Center
/// Design Featuring DGX H100 Systems").
const USUAL_W: f64 = 40_800.0;

/// The same where a rack is one scale-up domain: the power shelves of an NVL72 give 132 kW
/// (Supermicro, 2025, as Introl tells it; the rack draws about 120).
const USUAL_OF_A_DOMAIN_W: f64 = 132_000.0;

/// A cable inside a rack.
const INSIDE: Length = Length::from_metres(3);

/// What a rack of servers holds, and how racks stand. Both limits count. Where anything is said
/// here, cables whose length is left out are as long as the rows make them.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Racks {
    /// The most that the servers of a rack may draw, in watts; without it, the usual of servers
    /// that stand alone or of racks that are one scale-up domain.
    pub power_w: Option<f64>,
    /// The most servers of a rack; without it, as many as the power allows.
    pub servers: Option<u32>,
    /// Racks of a row; without it, as many as make the hall about square.
    pub per_row: Option<u32>,
    /// From the middle of one rack to that of the next, in metres.
    pub rack_m: f64,
    /// From one row to the next, in metres.
    pub row_m: f64,
    /// What a cable between racks has for going up and down, both ends together, in metres.
    pub ends_m: f64,
}

impl Default for Racks {
    fn default() -> Self {
        Self {
            power_w: None,
            servers: None,
            per_row: None,
            // Cabinets of 600 mm, 1.2 m deep, with aisles of 1.2 and 1.8 m in turn: estimates.
            rack_m: 0.6,
            row_m: 2.7,
            // Two metres from a port to the tray above: an estimate.
            ends_m: 4.0,
        }
    }
}

impl Ranged for Racks {
    fn ranges(&self, check: &mut Ranges) {
        check.within("power_w", self.power_w.unwrap_or(1e3), [1.0, 1e7]);
        check.within("servers", self.servers.unwrap_or(1), [1, 1024]);
        check.within("per_row", self.per_row.unwrap_or(1), [1, 100_000]);
        check.within("rack_m", self.rack_m, [0.1, 100.0]);
        check.within("row_m", self.row_m, [0.1, 1000.0]);
        check.within("ends_m", self.ends_m, [0.0, 1000.0]);
    }
}

/// The racks of a cluster's servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RackPlan {
    /// How many there are; none if a server draws more than a rack may.
    pub racks: u64,
    /// Servers of a full one.
    pub servers: u64,
    /// GPUs of a full one.
    pub gpus: u64,
    /// What a full one draws, without switches.
    pub power_w: f64,
    /// What it may draw.
    pub limit_w: f64,
    /// Racks of a row.
    pub per_row: u64,
    /// Rows.
    pub rows: u64,
}

impl Racks {
    /// How a cluster's servers fill racks, and racks rows.
    pub fn held(&self, summary: &Summary) -> RackPlan {
        let gpus_per_node = summary.gpus / summary.nodes.max(1);
        let is_domain = gpus_per_node < summary.scale_up.domain_gpus;
        let usual = if is_domain { USUAL_OF_A_DOMAIN_W } else { USUAL_W };
        let limit_w = self.power_w.unwrap_or(usual);
        let (_, all_w) = summary.bill.of(&[Part::Gpu, Part::Host, Part::Nic]);
        let server_w = all_w / summary.nodes.max(1) as f64;
        let fit = (limit_w / server_w.max(1.0)).floor() as u64;
        let most = self.servers.map_or(u64::MAX, u64::from);
        let servers = fit.min(most).min(summary.nodes);
        if servers == 0 {
            return RackPlan { limit_w, ..RackPlan::default() };
        }
        let racks = summary.nodes.div_ceil(servers);
        let per_row = self.row_of(racks);
        RackPlan {
            racks,
            servers,
            gpus: servers * gpus_per_node,
            power_w: servers as f64 * server_w,
            limit_w,
            per_row,
            rows: racks.div_ceil(per_row),
        }
    }

    /// Racks of a row of so many in all.
    fn row_of(&self, racks: u64) -> u64 {
        let square = (racks as f64 * self.row_m / self.rack_m).sqrt().ceil() as u64;
        self.per_row.map_or(square, u64::from).clamp(1, racks.max(1))
    }

    /// The longest cable of a switch that serves so many servers and stands in their middle.
    pub fn cable(&self, held: &RackPlan, servers: u64) -> Length {
        let racks = servers.div_ceil(held.servers.max(1));
        if racks <= 1 {
            return INSIDE;
        }
        // A group that is shorter than a row stands in one; a longer one in whole rows.
        let along = racks.min(held.per_row) as f64 * self.rack_m;
        let across = racks.div_ceil(held.per_row) as f64 * self.row_m;
        let metres = f64::midpoint(along, across) + self.ends_m;
        Length::from_metres(metres.ceil() as u64)
    }

    /// Whether cables of this fabric follow from rows: something is said of racks, and the length
    /// of some cable is not.
    pub fn lay_cables(&self, fabric: &FabricConfig) -> bool {
        *self != Self::default() && leaves_lengths_out(fabric)
    }

    /// The fabric's settings with the lengths that rows make of what `built` has, where they are
    /// left out.
    pub(crate) fn laid<'a>(
        &self,
        fabric: Cow<'a, FabricConfig>,
        built: &Fabric,
        summary: &Summary,
    ) -> Cow<'a, FabricConfig> {
        let mut held = self.held(summary);
        if held.racks == 0 {
            // A server that draws more than a rack may has one to itself; `topo` says so.
            let own = Self { power_w: Some(f64::INFINITY), servers: Some(1), ..self.clone() };
            held = own.held(summary);
        }
        let mut laid = fabric.into_owned();
        laid.links.resize(laid.links.len().max(3), LinkConfig::default());
        for (link, servers) in laid.links.iter_mut().zip(served(built)) {
            link.length = link.length.or(Some(self.cable(&held, servers)));
        }
        // What the fabric has no tier for must not look as if somebody had written it.
        laid.links.truncate(built.tiers().len().max(1));
        Cow::Owned(laid)
    }
}

/// Whether the length of some cable is left out, so that rows of racks may make it.
pub(crate) fn leaves_lengths_out(fabric: &FabricConfig) -> bool {
    let given = |tier: usize| fabric.links.get(tier).is_some_and(|link| link.length.is_some());
    fabric.topology != TopologyKind::File && fabric.parts.is_empty() && !(0..3).all(given)
}

/// By tier of the back-end, bottom up: the most servers below one switch; all where that is not
/// told.
pub fn served(fabric: &Fabric) -> [u64; 3] {
    let below: Vec<BTreeSet<usize>> =
        fabric.leaves().iter().map(|leaf| servers_of(fabric, *leaf)).collect();
    let all = fabric.servers() as u64;
    let mut most = [0, all, all];
    most[0] = below.iter().map(|servers| servers.len() as u64).max().unwrap_or(all);
    let back_end = fabric.networks().iter().find(|one| one.kind == NetworkKind::BackEnd);
    let Some(tiers) = back_end.map(|network| network.tiers.clone()) else { return most };
    for level in 1..3_u8 {
        let is_own = |switch: &NodeId| fabric.nodes()[*switch].tier == tiers.start + level;
        let covers = fabric.switches().filter(is_own).filter_map(|switch| fabric.cover(switch));
        let ranges: BTreeSet<(u32, u32)> = covers.map(|one| (one.first, one.end)).collect();
        let sizes = ranges.into_iter().filter_map(|(first, end)| {
            let leaves = below.get(first as usize..end as usize)?;
            Some(leaves.iter().flatten().collect::<BTreeSet<_>>().len() as u64)
        });
        if tiers.start + level < tiers.end {
            most[usize::from(level)] = sizes.max().filter(|size| 0 < *size).unwrap_or(all);
        }
    }
    most
}

/// The servers with a NIC on a leaf.
fn servers_of(fabric: &Fabric, leaf: NodeId) -> BTreeSet<usize> {
    let ends = fabric.ports(leaf).iter().map(|link| fabric.links()[*link].to);
    let nics = ends.filter(|node| fabric.nodes()[*node].kind == NodeKind::Nic);
    nics.filter_map(|nic| fabric.server_of(nic)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: 64 racks of four servers; 0.6 m and 2.7 m make a square of 17 racks by 4 rows.
    #[test]
    fn a_switch_stands_in_the_middle_of_what_it_serves() {
        let racks = Racks::default();
        let per_row = racks.row_of(64);
        assert_eq!(per_row, 17);
        let held = RackPlan { racks: 64, servers: 4, per_row, rows: 4, ..RackPlan::default() };
        assert_eq!(racks.cable(&held, 4), INSIDE);
        // Eight racks of one row: 4.8 m along, 2.7 m across, half of each, and 4 m of ends.
        assert_eq!(racks.cable(&held, 32), Length::from_metres(8));
        // All: 10.2 m along, four rows of 2.7 m.
        assert_eq!(racks.cable(&held, 256), Length::from_metres(15));
        let long = Racks { per_row: Some(64), ..Racks::default() };
        let held = RackPlan { per_row: 64, rows: 1, ..held };
        assert_eq!(long.cable(&held, 256), Length::from_metres(25));
    }
}
