//! The tables of a run on synthetic traffic: loads, tiers and rails, shared links.

use flowsim::analysis::LinkGroup;
use report::number::{grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Table, Unit};
use units::Span;

use super::{PartReport, Percentiles, WorstLink};

/// What stands where there is nothing to tell.
pub(super) fn absent() -> String {
    "–".to_owned()
}

/// A time, if there is one.
pub(super) fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(absent, |seconds| format!("{:.2}", Span::from_secs_f64(seconds)))
}

/// Every load: how many flows, from when to when, and the bandwidth of collectives.
pub(super) fn parts(parts: &[PartReport]) -> Table {
    let columns = [
        ("load", Align::Left),
        ("flows", Align::Right),
        ("finished", Align::Right),
        ("from", Align::Right),
        ("to", Align::Right),
        ("median", Align::Right),
        ("p99", Align::Right),
        ("bus bandwidth", Align::Right),
    ];
    let decodes = parts.iter().any(|part| part.token_s.is_some());
    let tokens = decodes.then_some(("one token", Align::Right));
    let mut table = Table::new(columns.into_iter().chain(tokens));
    for part in parts {
        let of = |percentile: fn(Percentiles) -> f64| part.fct_s.map(percentile);
        let times = [Some(part.start_s), part.finish_s, of(|all| all.p50), of(|all| all.p99)];
        let [from, to, median, p99] = times.map(time);
        let bandwidth = part.busbw_gbps.map(|busbw| format!("{} GB/s", significant(busbw)));
        let cells = [
            part.name.clone(),
            grouped(part.flows),
            grouped(part.completed),
            from,
            to,
            median,
            p99,
            bandwidth.unwrap_or_else(absent),
        ];
        table.row(cells.into_iter().chain(decodes.then(|| time(part.token_s))));
    }
    table
}

/// Tiers or rails: only switches and NICs that carried anything count.
pub(super) fn groups(groups: &[LinkGroup]) -> Table {
    let mut table = Table::new([
        ("in use", Align::Left),
        ("links", Align::Right),
        ("mean load", Align::Right),
        ("busiest", Align::Right),
        ("busiest/mean", Align::Right),
        ("by queue pairs", Align::Right),
        ("at one switch", Align::Right),
        ("idle", Align::Right),
    ]);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    for group in groups {
        table.row([
            group.name.clone(),
            grouped(group.links as u64),
            percent(group.mean_utilisation),
            percent(group.max_utilisation),
            significant(group.by_bytes.max_over_mean),
            significant(group.by_flows.max_over_mean),
            significant(group.at_switch.max_over_mean),
            percent(group.by_bytes.idle),
        ]);
    }
    table
}

/// What tiers or rails did over time, if the engine knows.
pub(super) fn over_time(title: &str, groups: &[LinkGroup]) -> Option<Chart> {
    let mut frame = Frame::new(&["time_s", "load", "links"]);
    for group in groups {
        let over_time = group.over_time.as_ref()?;
        for (at, load) in over_time.utilisation.iter().enumerate() {
            let time = (at as f64 + 0.5) * over_time.interval_s;
            frame.push(vec![time.into(), (*load).into(), group.name.as_str().into()]);
        }
    }
    let chart = Chart::new(ChartKind::Line, title, frame)
        .caption("The mean load of links in use. What falls before the end waits for stragglers.")
        .axes("time_s", "load")
        .by("links")
        .labels("time", "load")
        .units(Unit::Seconds, Unit::Share);
    Some(chart)
}

/// The worst links: how much more than their neighbours they carry, what that costs, and who.
pub(super) fn shared(worst: &[WorstLink]) -> Table {
    let mut table = Table::new([
        ("link", Align::Left),
        ("load", Align::Right),
        ("over mean", Align::Right),
        ("costs", Align::Right),
        ("why", Align::Left),
    ]);
    for link in worst {
        table.row([
            link.link.clone(),
            format!("{:.1} %", 100.0 * link.utilisation),
            significant(link.excess),
            format!("{:.2}", Span::from_secs_f64(link.lost_s)),
            link.why.clone(),
        ]);
    }
    table
}
