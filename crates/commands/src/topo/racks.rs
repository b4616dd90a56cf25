//! Racks: how many there are, and what each holds.

use fabric::cost::Part;
use fabric::summary::Summary;
use report::number::{grouped, watts};
use scenario::Loaded;
use serde::Serialize;

/// What a rack of servers may draw: four DGX H100 of 10.2 kW (NVIDIA, DGX SuperPOD H100 reference
/// architecture; from memory).
const USUAL_W: f64 = 40_800.0;

/// The same where a rack is one scale-up domain: NVL72's 132 kW (HPE's data sheet of the GB200
/// NVL72; from memory).
const USUAL_OF_A_DOMAIN_W: f64 = 132_000.0;

/// The racks of a cluster's servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Racks {
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
}

impl Racks {
    pub(super) fn of(loaded: &Loaded, summary: &Summary) -> Self {
        let asked = &loaded.scenario.racks;
        let gpus_per_node = summary.gpus / summary.nodes.max(1);
        let is_domain = gpus_per_node < summary.scale_up.domain_gpus;
        let usual = if is_domain { USUAL_OF_A_DOMAIN_W } else { USUAL_W };
        let limit_w = asked.power_w.unwrap_or(usual);
        let (_, all_w) = summary.bill.of(&[Part::Gpu, Part::Host, Part::Nic]);
        let server_w = all_w / summary.nodes.max(1) as f64;
        let fit = (limit_w / server_w.max(1.0)).floor() as u64;
        let most = asked.servers.map_or(u64::MAX, u64::from);
        let servers = fit.min(most).min(summary.nodes);
        if servers == 0 {
            return Self { limit_w, ..Self::default() };
        }
        Self {
            racks: summary.nodes.div_ceil(servers),
            servers,
            gpus: servers * gpus_per_node,
            power_w: servers as f64 * server_w,
            limit_w,
        }
    }

    pub(super) fn words(&self) -> String {
        let limit = watts(self.limit_w);
        match self.racks {
            0 => format!("Racks: one server draws more than the {limit} of a rack."),
            racks => format!(
                "Racks: {} of {} servers, {} GPUs and {} each, of {limit} at most.",
                grouped(racks),
                self.servers,
                self.gpus,
                watts(self.power_w)
            ),
        }
    }
}
