//! `[targets]`: what a cluster or a step should reach, met or missed by name.

use fabric::summary::Summary;
use report::number::significant;
use report::{Align, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;
use units::Span;

use crate::run_job;
use crate::world::{leaf_of, message_latency};

/// One target, and what comes out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetRow {
    /// Which, with its unit.
    pub name: String,
    /// The most or the least that it should be.
    pub want: f64,
    /// What it is; nothing where there is no such thing, which misses it.
    pub got: Option<f64>,
    /// Whether that is good enough.
    pub met: bool,
}

impl TargetRow {
    fn at_most(name: &str, want: f64, got: Option<f64>) -> Self {
        let met = got.is_some_and(|got| got <= want);
        Self { name: name.to_owned(), want, got, met }
    }

    fn at_least(name: &str, want: f64, got: Option<f64>) -> Self {
        let met = got.is_some_and(|got| want <= got);
        Self { name: name.to_owned(), want, got, met }
    }
}

/// How long 64 bytes take, NICs included, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Between two GPUs of a server, by its scale-up network.
    pub server: Option<f64>,
    /// Between two servers of a leaf.
    pub rack: Option<f64>,
    /// Between two leaves of a zone.
    pub zone: Option<f64>,
    /// Between the servers that are farthest from each other.
    pub across: Option<f64>,
}

impl Latencies {
    /// Those of a fabric.
    pub fn of(loaded: &Loaded) -> Self {
        let fabric = loaded.fabric();
        let place = |server: usize| {
            let leaf = leaf_of(fabric, fabric.nic(server * fabric.nics_per_node()))?;
            Some((leaf, fabric.nodes()[leaf].zone))
        };
        let micros = |span: Span| span.as_secs_f64() * 1e6;
        let servers = fabric.servers();
        let first = if servers == 0 { None } else { place(0) };
        let to = |server: usize| message_latency(loaded, 0, server).map(micros);
        let find = |wanted: &dyn Fn((fabric::NodeId, u32), (fabric::NodeId, u32)) -> bool| {
            let is_wanted = |server: &usize| {
                first.zip(place(*server)).is_some_and(|(own, other)| wanted(own, other))
            };
            (1..servers).find(is_wanted).and_then(to)
        };
        let is_scale_up =
            |link: &&fabric::LinkId| fabric.class(**link).kind == fabric::graph::LinkKind::ScaleUp;
        let inside = (0 < fabric.gpus()).then(|| fabric.gpu(0)).and_then(|gpu| {
            let link = *fabric.ports(gpu).iter().find(is_scale_up)?;
            let switched = fabric.nodes()[fabric.links()[link].to].kind == fabric::NodeKind::Switch;
            Some(fabric.class(link).delay * if switched { 2 } else { 1 })
        });
        Self {
            server: inside.map(micros),
            rack: find(&|own, other| own.0 == other.0),
            zone: find(&|own, other| own.0 != other.0 && own.1 == other.1),
            across: (1 < servers).then(|| to(servers - 1)).flatten(),
        }
    }
}

/// The targets that a fabric meets or misses.
pub fn of_fabric(loaded: &Loaded, summary: impl FnOnce() -> Summary) -> Vec<TargetRow> {
    let targets = &loaded.scenario.targets;
    let mut rows = Vec::new();
    if targets.rack.is_some() || targets.inter_rack.is_some() {
        let found = Latencies::of(loaded);
        let asked = [
            ("rack_us", targets.rack, found.rack),
            ("inter_rack_us", targets.inter_rack, found.across),
        ];
        for (name, want, got) in asked {
            let want = want.map(|want| want.as_secs_f64() * 1e6);
            rows.extend(want.map(|want| TargetRow::at_most(name, want, got)));
        }
    }
    let of_summary = [targets.oversubscription, targets.cost_usd, targets.power_w];
    if of_summary.iter().any(Option::is_some) {
        let summary = summary();
        let tiers = summary.tiers.iter().map(|tier| tier.oversubscription_built);
        let got = [tiers.fold(1.0, f64::max), summary.cost_usd, summary.power_w];
        for ((name, want), got) in
            ["oversubscription", "cost_usd", "power_w"].into_iter().zip(of_summary).zip(got)
        {
            rows.extend(want.map(|want| TargetRow::at_most(name, want, Some(got))));
        }
    }
    rows
}

/// The targets that a step and its fabric meet or miss.
pub fn of_step(loaded: &Loaded, step: &run_job::Report) -> Vec<TargetRow> {
    let targets = &loaded.scenario.targets;
    let mut rows = of_fabric(loaded, || loaded.summary());
    let want = targets.step.map(|step| step.as_secs_f64());
    rows.extend(want.map(|want| TargetRow::at_most("step_s", want, Some(step.step_s))));
    for (name, want, got) in
        [("mfu", targets.mfu, step.mfu), ("goodput", targets.goodput, step.goodput)]
    {
        rows.extend(want.map(|want| TargetRow::at_least(name, want, Some(got))));
    }
    rows
}

/// Whether all are met.
pub fn all_met(rows: &[TargetRow]) -> bool {
    rows.iter().all(|row| row.met)
}

/// The targets as people see them; nothing where there are none.
pub(crate) fn show(sheet: Sheet, rows: &[TargetRow]) -> Sheet {
    if rows.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("target", Align::Left),
        ("wanted", Align::Right),
        ("is", Align::Right),
        ("", Align::Left),
    ]);
    for row in rows {
        table.row([
            row.name.clone(),
            significant(row.want),
            row.got.map_or("nothing".to_owned(), significant),
            if row.met { "met" } else { "missed" }.to_owned(),
        ]);
    }
    sheet.heading("Targets").table(table)
}
