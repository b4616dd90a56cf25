//! What people see of a placement: one page.

use report::number::{bytes, grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::import::compress;

use super::{PlaceRow, Report};

/// Characters of a node list beyond which it is cut.
const MOST_LISTED: usize = 400;

pub(super) fn sheet(report: &Report) -> Sheet {
    let [chosen, linear, slurm, ..] = report.placements.as_slice() else { return Sheet::new() };
    let of = |row: &PlaceRow| match linear.upper_bytes {
        all if 0.0 < all => format!("{} of linear", percent(row.upper_bytes / all)),
        _ => String::new(),
    };
    let bound = match chosen.upper_bytes {
        own if 0.0 < own => format!("of it {}", percent(report.lower_bound_bytes / own)),
        _ => "nothing goes up".to_owned(),
    };
    let mut sheet = Sheet::new()
        .heading(format!("{}: servers and ranks by min-cut", report.title))
        .text(format!("{}. {}", report.words, verdict(report)))
        .facts([
            ("servers", grouped(chosen.nodes), ""),
            ("free", grouped(report.free_nodes), "servers that can be used"),
            ("upper tiers", bytes(chosen.upper_bytes), &of(chosen)),
            ("linear", bytes(linear.upper_bytes), "upper tiers, one step"),
            ("Slurm's tree", bytes(slurm.upper_bytes), &of(slurm)),
            ("lower bound", bytes(report.lower_bound_bytes), &bound),
        ]);
    for remark in &report.remarks {
        sheet = sheet.note(remark);
    }
    if let Some(first) = report.left_out.first() {
        let others = match report.left_out.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let text = format!("Free but not used: {}{others} ({}).", first.node, first.why);
        sheet = sheet.note(text);
    }
    sheet = sheet
        .heading("Bytes of a step that reach each tier from below")
        .chart(by_tier(report))
        .table(tiers(report));
    let list = compress(&report.nodes);
    let cut = match list.char_indices().nth(MOST_LISTED) {
        Some((at, _)) => format!("{} …", &list[..at]),
        None => list,
    };
    let how = "In the order of their ranks. `--hostfile FILE` writes one line for each rank: \
               `SLURM_HOSTFILE=FILE srun --distribution=arbitrary …` starts ranks in this order. \
               `--rankfile FILE` writes the GPU of every rank, which `job.placement` reads.";
    sheet.heading("Node list").verbatim(cut).text(how)
}

/// What was gained, in a sentence.
fn verdict(report: &Report) -> String {
    let [chosen, linear, slurm, ..] = report.placements.as_slice() else { return String::new() };
    if chosen.upper_bytes <= 0.0 && linear.upper_bytes <= 0.0 {
        return "Nothing goes over the upper tiers, in whatever order.".to_owned();
    }
    let less = |than: &PlaceRow| {
        let share = 1.0 - chosen.upper_bytes / than.upper_bytes;
        match than.upper_bytes <= 0.0 || share < 5e-4 {
            true => "no fewer".to_owned(),
            false => format!("{} fewer", percent(share)),
        }
    };
    let text = format!(
        "{} bytes over the upper tiers than linear order, {} than ranks in order on what Slurm's \
         tree plug-in takes.",
        less(linear),
        less(slurm)
    );
    text.replacen("no fewer", "No fewer", usize::from(text.starts_with("no")))
}

fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share))
}

fn tiers(report: &Report) -> Table {
    let used = used(report);
    let mut head = vec![("placement", Align::Left), ("servers", Align::Right)];
    head.extend(used.iter().map(|tier| (tier.as_str(), Align::Right)));
    head.extend([("upper tiers", Align::Right), ("bytes × cables", Align::Right)]);
    let mut table = Table::new(head);
    for row in &report.placements {
        let mut cells = vec![row.placement.clone(), grouped(row.nodes)];
        let own = |tier: &String| row.bytes_per_tier.get(tier).copied().unwrap_or(0.0);
        cells.extend(used.iter().map(|tier| bytes(own(tier))));
        cells.extend([bytes(row.upper_bytes), bytes(row.hop_bytes)]);
        table.row(cells);
    }
    table
}

/// Tiers that any of the placements uses, bottom up.
fn used(report: &Report) -> Vec<String> {
    let is_used =
        |tier: &&String| report.placements.iter().any(|row| row.bytes_per_tier.contains_key(*tier));
    report.tiers.iter().filter(is_used).cloned().collect()
}

fn by_tier(report: &Report) -> Chart {
    let mut frame = Frame::new(&["placement", "bytes", "tier"]);
    for row in &report.placements {
        for tier in used(report) {
            let own = row.bytes_per_tier.get(&tier).copied().unwrap_or(0.0);
            frame.push(vec![row.placement.clone().into(), own.into(), tier.into()]);
        }
    }
    Chart::new(ChartKind::Bars, "Bytes of a step by tier", frame)
        .axes("bytes", "placement")
        .by("tier")
        .labels("bytes", "")
        .units(Unit::Bytes, Unit::Number)
}
