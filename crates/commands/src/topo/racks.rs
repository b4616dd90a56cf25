//! Racks: how many there are, what each holds, and how long the cables between them are.

use fabric::graph::LinkKind;
use fabric::summary::Summary;
use report::number::{grouped, significant, watts};
use scenario::Loaded;
use scenario::racks::{RackPlan, served};
use serde::Serialize;

/// The racks of a cluster's servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Racks {
    /// How they are filled.
    #[serde(flatten)]
    pub held: RackPlan,
    /// The back-end's cables, bottom up.
    pub cables: Vec<CableRow>,
}

/// Cables of one tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CableRow {
    /// Between what.
    pub name: String,
    /// As long as they are counted, in metres.
    pub length_m: f64,
    /// Why: `given`, `rows` of racks, or the topology's `usual`.
    pub from: &'static str,
    /// As long as rows of racks would make them.
    pub rows_m: f64,
}

impl Racks {
    pub(super) fn of(loaded: &Loaded, summary: &Summary) -> Self {
        let scenario = &loaded.scenario;
        let held = scenario.racks.held(summary);
        let fabric = loaded.fabric();
        let is_cable = |kind: LinkKind| kind == LinkKind::ScaleOut;
        let classes = fabric.classes().iter().filter(|class| is_cable(class.kind));
        let rows = scenario.racks.lay_cables(&scenario.fabric) && 0 < held.racks;
        let row = |(tier, (class, servers)): (usize, (&fabric::graph::LinkClass, u64))| {
            let given = scenario.fabric.links.get(tier).is_some_and(|link| link.length.is_some());
            CableRow {
                name: class.name.clone(),
                length_m: class.length.as_metres_f64(),
                from: match (given, rows) {
                    (true, _) => "given",
                    (false, true) => "rows",
                    (false, false) => "usual",
                },
                rows_m: scenario.racks.cable(&held, servers).as_metres_f64(),
            }
        };
        let imported = fabric.has_imported_names() || !scenario.fabric.parts.is_empty();
        let cables = match held.racks == 0 || imported {
            true => Vec::new(),
            false => classes.zip(served(fabric)).enumerate().map(row).collect(),
        };
        Self { held, cables }
    }

    pub(super) fn words(&self) -> String {
        let RackPlan { racks, servers, gpus, power_w, limit_w, per_row, rows } = self.held;
        let limit = watts(limit_w);
        if racks == 0 {
            return format!("Racks: one server draws more than the {limit} of a rack.");
        }
        let cables: Vec<String> = self.cables.iter().map(CableRow::words).collect();
        let cables = match cables.is_empty() {
            true => String::new(),
            false => format!(" Cables: {}.", cables.join("; ")),
        };
        format!(
            "Racks: {} of {servers} servers, {gpus} GPUs and {} each, of {limit} at most, in {} {} \
             of {}.{cables}",
            grouped(racks),
            watts(power_w),
            grouped(rows),
            if rows == 1 { "row" } else { "rows" },
            grouped(per_row),
        )
    }
}

impl CableRow {
    fn words(&self) -> String {
        let Self { name, length_m, from, rows_m } = self;
        let length = significant(*length_m);
        match *from {
            "rows" => format!("{name} {length} m, as the rows make them"),
            from => format!("{name} {length} m ({from}; rows make {} m)", significant(*rows_m)),
        }
    }
}
