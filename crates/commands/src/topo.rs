//! `topo`: what is this fabric?
//!
//! Tiers, links, bisection, oversubscription, path diversity, and a bill of materials with cost
//! and power; what one failure stops ([`domains`]); or the fabric itself, for Graphviz,
//! containerlab, Slurm, or as a list of cables.

use std::fmt::Write as _;

use fabric::cost::{Bill, Part};
use fabric::summary::{Summary, TierSummary};
use report::number::{between, bits_per_second, dollars, grouped, significant, watts, with_ends};
use report::{Align, Answer, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::Loaded;
use scenario::export::{self, Detail};
use serde::Serialize;

use crate::about::oversubscription;
use crate::failure::Failure;
use crate::links;
use crate::operations::{self, Operations};
use crate::targets::{self, Latencies, TargetRow};

mod domains;
mod grow;
mod racks;

pub use domains::{DomainRow, Domains};
pub use grow::{Growth, Piece, grow};
pub use racks::{CableRow, Racks};

/// A fabric in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Topo {
    /// The numbers.
    #[serde(flatten)]
    pub summary: Summary,
    /// How long 64 bytes take, NICs included, in microseconds.
    pub latency_us: Latencies,
    /// The racks of its servers.
    pub racks: Racks,
    /// What the fabric should reach, met or missed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetRow>,
    /// What one failure stops, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<Domains>,
    /// What it asks of operators, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    topology: &'static str,
    #[serde(skip)]
    drawing: Chart,
}

/// Describes the fabric of a scenario.
pub fn run(loaded: &Loaded) -> Topo {
    let scenario = &loaded.scenario;
    let summary = loaded.summary();
    Topo {
        latency_us: Latencies::of(loaded),
        racks: Racks::of(loaded, &summary),
        targets: targets::of_fabric(loaded, || summary.clone()),
        summary,
        domains: None,
        operations: None,
        title: loaded.title(),
        topology: scenario.fabric.topology.name(),
        drawing: links::drawing(loaded.fabric()),
    }
}

/// The same with what one failure of each kind of part stops. A rack has so many servers, or as
/// many as the fabric suggests.
pub fn with_domains(loaded: &Loaded, rack_servers: Option<u32>) -> Result<Topo, Failure> {
    let domains = Some(Domains::of(loaded, rack_servers)?);
    Ok(Topo { domains, ..run(loaded) })
}

impl Topo {
    /// The same with what the network asks of those who operate it.
    pub fn with_operations(self, loaded: &Loaded) -> Result<Self, Failure> {
        let operations = Some(Operations::of(loaded, &self.summary)?);
        Ok(Self { operations, ..self })
    }
}

impl Answer for Topo {
    fn sheet(&self) -> Sheet {
        let Summary { gpus, nodes, nics, zones, gpus_per_zone, .. } = &self.summary;
        let Self { summary, latency_us, racks, targets, title, topology, drawing, .. } = self;
        let share = format!("{} of full", percent(summary.bisection_share));
        let zone_note = format!("of up to {} GPUs", grouped(*gpus_per_zone));
        let zone_label = format!("{}s", summary.zone_word);
        let ends = format!(
            "{} to {} as prices differ",
            dollars(summary.cost_low_usd),
            dollars(summary.cost_high_usd)
        );
        let mut facts = vec![
            ("GPUs", grouped(*gpus), ""),
            ("nodes", grouped(*nodes), ""),
            ("NICs", grouped(*nics), "back-end"),
            ("switches", grouped(summary.switches), ""),
            ("cables", grouped(summary.links), ""),
            ("bisection", bits_per_second(summary.bisection_bps), &share),
            ("paths", grouped(summary.paths_max), "shortest, at most, between two NICs"),
            ("cost", dollars(summary.cost_usd), &ends),
            ("power", watts(summary.power_w), "servers included"),
        ];
        if 1 < *zones {
            facts.insert(3, (&zone_label, grouped(*zones), &zone_note));
        }
        let mut sheet = Sheet::new()
            .heading(format!("{title}: {topology}"))
            .facts(facts)
            .heading("Back-end")
            .table(tiers(&summary.tiers));
        if let Some(front) = &summary.front_end {
            sheet = sheet.heading("Front-end").table(tiers(&front.tiers));
        }
        let scale_up = &summary.scale_up;
        if 1 < scale_up.domain_gpus {
            sheet = sheet.text(format!(
                "Scale-up: domains of {} GPUs, {} from each GPU.",
                scale_up.domain_gpus,
                bits_per_second(scale_up.rate_bps)
            ));
        }
        sheet = sheet.text(latency_words(latency_us, &summary.zone_word));
        sheet = sheet.text(racks.words());
        sheet = targets::show(sheet, targets);
        if 0 < summary.failed_links {
            let failed = summary.failed_links.div_ceil(2);
            sheet = sheet.note(format!("{} cables are out of service.", grouped(failed)));
        }
        if let Some(domains) = &self.domains {
            sheet = domains.show(sheet);
        }
        if let Some(operations) = &self.operations {
            let columns = std::slice::from_ref(operations);
            sheet = operations::show(sheet, std::slice::from_ref(title), columns);
            sheet = sheet.table(operations.files());
        }
        sheet = sheet.heading("The fabric drawn").chart(drawing.clone());
        sheet = sheet.heading("Bill of materials").chart(by_part(&summary.bill));
        sheet.table(bill(&summary.bill)).text(bill_note(&summary.bill))
    }
}

fn latency_words(latency: &Latencies, zone: &str) -> String {
    let zone = format!("inside a {zone}");
    let parts = [
        ("inside a server", latency.server),
        ("inside a rack", latency.rack),
        (zone.as_str(), latency.zone),
        ("across", latency.across),
    ];
    let told = parts.into_iter().filter_map(|(name, micros)| {
        micros.map(|micros| format!("{name} {} us", significant(micros)))
    });
    let told: Vec<String> = told.collect();
    match told.is_empty() {
        true => "Nothing joins two servers.".to_owned(),
        false => format!("64 bytes take, NICs included: {}.", told.join(", ")),
    }
}

/// The kinds of parts, as people call them.
const PARTS: [(Part, &str); 6] = [
    (Part::Gpu, "GPUs"),
    (Part::Host, "servers"),
    (Part::Nic, "NICs"),
    (Part::Switch, "switches"),
    (Part::Cable, "cables"),
    (Part::Gateway, "gateways"),
];

/// Those of a bill: few fabrics have gateways.
fn parts(bill: &Bill) -> impl Iterator<Item = (Part, &'static str)> {
    let is_there = |part: Part| bill.lines.iter().any(|line| line.part == part);
    PARTS.into_iter().filter(move |(part, _)| *part != Part::Gateway || is_there(*part))
}

fn by_part(bill: &Bill) -> Chart {
    let mut frame = Frame::new(&["of", "share", "parts", "amount"]);
    let all = [("cost", bill.cost_usd), ("power", bill.power_w)];
    for (part, name) in parts(bill) {
        let (cost, power) = bill.of(&[part]);
        for ((of, whole), own) in all.iter().zip([cost.value, power]) {
            let share = if *whole > 0.0 { own / whole } else { 0.0 };
            let amount = if *of == "cost" { dollars(own) } else { watts(own) };
            frame.push(vec![(*of).into(), share.into(), name.into(), amount.into()]);
        }
    }
    Chart::new(ChartKind::Bars, "What cost and power consist of", frame)
        .axes("share", "of")
        .by("parts")
        .named_by("amount")
        .labels("share", "")
        .units(Unit::Share, Unit::Number)
}

fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share))
}

fn tiers(tiers: &[TierSummary]) -> Table {
    let mut table = Table::new([
        ("tier", Align::Left),
        ("switches", Align::Right),
        ("links below", Align::Right),
        ("rate", Align::Right),
        ("oversubscription", Align::Right),
        ("box", Align::Left),
    ]);
    for tier in tiers.iter().rev() {
        table.row([
            tier.name.clone(),
            grouped(tier.switches),
            grouped(tier.links),
            bits_per_second(tier.rate_bps),
            oversubscription(tier),
            tier.model.clone(),
        ]);
    }
    table
}

fn bill(bill: &Bill) -> Table {
    let mut table = Table::new([
        ("part", Align::Left),
        ("where", Align::Left),
        ("count", Align::Right),
        ("each", Align::Right),
        ("cost", Align::Right),
        ("range", Align::Right),
        ("power", Align::Right),
        ("", Align::Left),
    ]);
    for line in &bill.lines {
        table.row([
            line.title.clone(),
            line.place.clone(),
            grouped(line.count),
            line.unit_usd.map_or("?".to_owned(), dollars),
            dollars(line.cost_usd),
            between(line.cost_low_usd, line.cost_high_usd, dollars),
            watts(line.power_w),
            if line.is_estimate { "estimate".to_owned() } else { String::new() },
        ]);
    }
    for (part, name) in parts(bill) {
        let (cost, power) = bill.of(&[part]);
        let name = format!("all {name}");
        table.row([
            name,
            String::new(),
            String::new(),
            String::new(),
            dollars(cost.value),
            between(cost.low, cost.high, dollars),
            watts(power),
            String::new(),
        ]);
    }
    table
}

fn bill_note(bill: &Bill) -> String {
    let Bill { cost_usd, cost_low_usd, cost_high_usd, power_w, unpriced, lines } = bill;
    let estimates: f64 =
        lines.iter().filter(|line| line.is_estimate).map(|line| line.cost_usd).sum();
    let cost = with_ends(*cost_usd, *cost_low_usd, *cost_high_usd, dollars);
    let mut note = format!("In all {cost}, and {}", watts(*power_w));
    if 0.0 < estimates {
        let share = percent(estimates / cost_usd);
        write!(note, "; {share} of the cost rests on estimates").expect("a String takes all");
    }
    if 0 < *unpriced {
        let parts = grouped(*unpriced);
        write!(note, "; {parts} parts have no price and count as nothing").expect("as above");
    }
    note + "."
}

/// What the fabric itself can be written as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// A graph for Graphviz; large fabrics are folded.
    Graphviz,
    /// A list of cables.
    EdgeList,
    /// A containerlab topology.
    Containerlab,
    /// Slurm's `topology.conf`.
    Slurm,
}

/// The back-end of a scenario, written for another tool.
pub fn write(loaded: &Loaded, form: Form) -> String {
    let fabric = loaded.fabric();
    match form {
        Form::Graphviz => export::graphviz(fabric, Detail::Auto),
        Form::EdgeList => export::edge_list(fabric),
        Form::Containerlab => export::containerlab(fabric, &loaded.title()),
        Form::Slurm => export::slurm(fabric),
    }
}
