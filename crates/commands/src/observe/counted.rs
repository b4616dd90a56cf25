//! Counters and bytes by axis, beside what the scenario predicts of them.
//!
//! Counters that came with times say how fast they grew. Beside a job stand those of its steps, one
//! after another; beside synthetic traffic those of a run that repeats; beside tables of
//! benchmarks, how fast NICs send at the largest messages. Names are those of node_exporter; other
//! tools' names of the same counters are known.
//!
//! Where it departs from real counters: the scenario's traffic is all there is on its NICs.

use std::collections::BTreeMap;

use ::observe::Summary;
use ::observe::observed::{InGroup, Kind};
use ::observe::summary::by_axis;
use job::{GroupKind, Layout};
use report::number::{bytes, significant};
use report::{Align, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;
use units::Bytes;

use super::beside::{self, Point};
use super::read_off;
use crate::collective::bench;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::files::Links;
use crate::files::metrics::{self, Growth};
use crate::packets::Patience;
use crate::seeds::Repeat;
use crate::world::JobWorld;
use crate::{Drawing, run_job, run_traffic, traffic};

/// A port that moves less than this share of what the busiest does has no part in the job.
const IDLE: f64 = 0.01;
/// How `rdma statistic`, ethtool, sysfs and perfquery call what node_exporter's names count.
const ALIASES: [(&str, &[&str]); 6] = [
    (
        "node_infiniband_port_data_transmitted_bytes_total",
        &["port_xmit_data in bytes", "PortXmitData in bytes"],
    ),
    (
        "node_infiniband_port_data_received_bytes_total",
        &["port_rcv_data in bytes", "PortRcvData in bytes"],
    ),
    ("node_ethtool_transmitted_prio3_bytes", &["tx_prio3_bytes"]),
    ("node_ethtool_received_prio3_bytes", &["rx_prio3_bytes"]),
    ("node_infiniband_np_cnp_packets_sent_total", &["np_cnp_sent"]),
    ("node_infiniband_np_ecn_marked_roce_packets_received_total", &["np_ecn_marked_roce_packets"]),
];

/// A counter, as it grew and as it should.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedCounter {
    /// Its name, as the files have it.
    pub counter: String,
    /// `a second`, on average over ports; or `in all`, of a capture.
    pub unit: &'static str,
    /// Ports that count and have a part in it, and those of the prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<[u64; 2]>,
    /// By how much it grew.
    pub measured: f64,
    /// By how much it should.
    pub predicted: f64,
    /// Predicted over measured, less one; `None` where nothing was counted.
    pub error: Option<f64>,
}

/// What a rank sends on an axis, in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedAxis {
    /// The axis; `None` for groups that the layout does not have.
    pub axis: Option<&'static str>,
    /// Bytes that a rank sent, on average over the ranks that files show.
    pub measured_bytes: f64,
    /// Bytes that a GPU should send, on average over all.
    pub predicted_bytes: f64,
    /// Predicted over measured, less one; `None` where nothing was seen.
    pub error: Option<f64>,
}

fn error(measured: f64, predicted: f64) -> Option<f64> {
    (0.0 < measured).then(|| predicted / measured - 1.0)
}

/// The axis of a group by the layout of a job: whose groups have these ranks.
fn axis_of(layout: &Layout, group: &InGroup, kind: Kind) -> Option<&'static str> {
    let members: Vec<u64> = group.members.iter().copied().map(u64::from).collect();
    let first = *members.first().filter(|_| 1 < members.len())?;
    if members.iter().any(|rank| layout.gpus() <= *rank) {
        return None;
    }
    let is_one = |group: GroupKind| {
        let Some(own) = layout.group_of(group, first) else { return false };
        let mut own: Vec<u64> = own.members().collect();
        own.sort_unstable();
        match kind {
            // A message joins two of a group.
            Kind::SendRecv => members.iter().all(|rank| own.contains(rank)),
            _ => own == members,
        }
    };
    // Where experts are spread over all copies, groups of both have the same ranks.
    let exchanges = kind == Kind::AllToAll && is_one(GroupKind::Expert);
    let found = GroupKind::ALL.into_iter().find(|group| is_one(*group));
    let found = if exchanges { Some(GroupKind::Expert) } else { found };
    found.map(|found| found.axis().word())
}

/// Bytes by axis beside those of the scenario's job, and in how many steps they were sent.
pub(super) fn axes(
    summary: &Summary,
    loaded: &Loaded,
) -> Result<Option<(u64, Vec<ComparedAxis>)>, Failure> {
    if summary.in_groups.is_empty() || loaded.job.is_none() {
        return Ok(None);
    }
    let world = JobWorld::of(loaded)?;
    let layout = &world.job.layout;
    let mut steps: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for step in &summary.step_list {
        *steps.entry(step.rank).or_default() += 1;
    }
    let steps = steps.into_values().max().unwrap_or(1);
    let mut seen: BTreeMap<Option<&'static str>, f64> = BTreeMap::new();
    for load in by_axis(&summary.in_groups, |group, kind| axis_of(layout, group, kind)) {
        *seen.entry(load.axis).or_default() += load.bytes_per_rank / steps as f64;
    }
    let predicted = traffic::sent_by_axis(loaded)?;
    let axes = predicted.keys().copied().map(Some).chain([None]);
    let rows = axes.map(|axis| {
        let measured_bytes = seen.get(&axis).copied().unwrap_or(0.0);
        let predicted_bytes = axis.map_or(0.0, |axis| predicted[axis]);
        let error = error(measured_bytes, predicted_bytes);
        ComparedAxis { axis, measured_bytes, predicted_bytes, error }
    });
    let rows = rows.filter(|row| 0.0 < row.measured_bytes + row.predicted_bytes).collect();
    Ok(Some((steps, rows)))
}

/// Counters beside those that the scenario would make, and why others are not.
pub(super) fn counters(
    summary: &Summary,
    loaded: &Loaded,
    (engine, points): (Engine, &[Point]),
    watch: &mut packetsim::Watch<'_>,
) -> Result<(Vec<ComparedCounter>, Vec<String>), Failure> {
    let mut left_out = Vec::new();
    let is_packets = engine == Engine::Packet && loaded.scenario.traffic.is_some();
    if summary.capture.is_some() && is_packets {
        let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
        let (report, ..) = run_traffic::run(loaded, &options, watch)?;
        return Ok((of_capture(summary, &report), left_out));
    }
    if summary.capture.is_some() && 0 < summary.packets.data {
        let reason = "packets of the capture: only [traffic] on --engine packet predicts them";
        left_out.push(reason.to_owned());
    }
    if summary.counters.is_empty() {
        return Ok((Vec::new(), left_out));
    }
    if summary.counters.iter().all(|row| row.per_second().is_none()) {
        left_out.push("counters: no file says when they were read, at least twice".to_owned());
        return Ok((Vec::new(), left_out));
    }
    if !summary.benchmarks.is_empty() {
        let found = of_benchmarks(summary, loaded, engine, points, watch)?;
        if found.is_none() {
            left_out.push("counters: no NIC was busy for long beside the tables".to_owned());
        }
        return Ok((found.into_iter().collect(), left_out));
    }
    let growth = if !loaded.members.is_empty() {
        left_out.push("counters: the scenario has several jobs".to_owned());
        Vec::new()
    } else if loaded.job.is_some() {
        let (patience, drawing) = (Patience::Usual, Drawing::Omitted);
        let options =
            run_job::Options { engine, patience, drawing, ask_what_if: false, whole: false };
        let mut growth = Vec::new();
        run_job::run_and(loaded, &options, Repeat::ONCE, watch, |world, prediction| {
            growth = metrics::growth(&Links::of_step(world, prediction));
            Ok(())
        })?;
        growth
    } else if loaded.scenario.traffic.is_some() {
        let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
        let (_, _, outcome) = run_traffic::run(loaded, &options, watch)?;
        metrics::growth(&Links::of_run(loaded.fabric(), &outcome))
    } else {
        left_out.push("counters: the scenario has neither a job nor traffic".to_owned());
        Vec::new()
    };
    let growth: Vec<_> =
        growth.into_iter().filter(|(_, own)| own.per_s.iter().any(|rate| 0.0 < *rate)).collect();
    let compared: Vec<_> = growth.iter().filter_map(|own| counter(summary, own)).collect();
    if compared.is_empty() && !growth.is_empty() {
        left_out.push("counters: none of them is one that the prediction has".to_owned());
    }
    Ok((compared, left_out))
}

/// Those of ports that have a part in it.
fn busy(rates: &[f64]) -> Vec<f64> {
    let most = rates.iter().copied().fold(0.0, f64::max);
    rates.iter().copied().filter(|rate| IDLE * most <= *rate).collect()
}

fn counter(summary: &Summary, (name, growth): &(String, Growth)) -> Option<ComparedCounter> {
    let aliases = ALIASES.iter().find(|(known, _)| known == name);
    let is_it = |own: &str| own == name || aliases.is_some_and(|(_, also)| also.contains(&own));
    let rows: Vec<_> = summary.counters.iter().filter(|row| is_it(&row.name)).collect();
    let rates: Vec<f64> = rows.iter().filter_map(|row| row.per_second()).collect();
    let (measured, predicted, ports) = match growth.of_all {
        // What the prediction has of all ports together may be counted on some of them.
        true => {
            let is_all = rows.iter().all(|row| row.device == "all");
            let ports = if is_all { growth.ports } else { rates.len() };
            let each =
                |rates: &[f64], ports: usize| rates.iter().sum::<f64>() / ports.max(1) as f64;
            let predicted = each(&growth.per_s, growth.ports);
            (each(&rates, ports), predicted, [ports, growth.ports])
        }
        false => {
            let own = [busy(&rates), busy(&growth.per_s)];
            (beside::mean(&own[0])?, beside::mean(&own[1])?, own.map(|own| own.len()))
        }
    };
    Some(ComparedCounter {
        counter: rows.iter().find(|row| row.per_second().is_some())?.name.clone(),
        unit: "a second",
        ports: Some(ports.map(|ports| ports as u64)),
        measured,
        predicted,
        error: error(measured, predicted),
    })
}

/// What a capture counts of a run on packets: it has the run if it was taken on all of its ports.
fn of_capture(summary: &Summary, report: &run_traffic::Report) -> Vec<ComparedCounter> {
    let seen = &summary.packets;
    [
        ("data packets", seen.data, report.packets),
        ("retransmitted packets", seen.retransmitted, report.retransmits),
        ("congestion notifications", seen.cnps, report.cnps),
        ("payload bytes", seen.bytes, report.bytes),
    ]
    .into_iter()
    .filter(|(_, seen, predicted)| 0 < seen + predicted)
    .map(|(counter, seen, predicted)| {
        let (measured, predicted) = (seen as f64, predicted as f64);
        let (counter, unit) = (counter.to_owned(), "in all");
        let error = error(measured, predicted);
        ComparedCounter { counter, unit, ports: None, measured, predicted, error }
    })
    .collect()
}

/// How fast NICs send at the largest messages of the tables.
fn of_benchmarks(
    summary: &Summary,
    loaded: &Loaded,
    engine: Engine,
    points: &[Point],
    watch: &mut packetsim::Watch<'_>,
) -> Result<Option<ComparedCounter>, Failure> {
    let Some(busy) = read_off::busy(summary) else { return Ok(None) };
    let mut largest: BTreeMap<(&str, u32), &Point> = BTreeMap::new();
    for point in points {
        let known = largest.entry((point.collective.name(), point.ranks)).or_insert(point);
        if known.bytes < point.bytes {
            *known = point;
        }
    }
    let (mut rates, mut nics) = (Vec::new(), 0);
    for point in largest.into_values() {
        let bytes = Bytes::new(point.bytes);
        let sent = bench::sent(loaded, point.collective, point.ranks as usize, bytes)?;
        let sent: Vec<f64> = sent.into_values().map(|[out, _]| out).collect();
        let Some(each) = beside::mean(&sent).filter(|each| 0.0 < *each) else { continue };
        nics = nics.max(sent.len());
        rates.push(each / (1e-6 * beside::predict(loaded, engine, point, watch)?));
    }
    let predicted = beside::mean(&rates);
    Ok(predicted.map(|predicted| ComparedCounter {
        counter: "bytes that NICs send while busy with the largest messages".to_owned(),
        unit: "a second",
        ports: Some([busy.nics as u64, nics as u64]),
        measured: busy.mean,
        predicted,
        error: error(busy.mean, predicted),
    }))
}

/// Adds counters to a sheet.
pub(super) fn show_counters(sheet: Sheet, counters: &[ComparedCounter]) -> Sheet {
    if counters.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("counter", Align::Left),
        ("grows", Align::Left),
        ("ports", Align::Right),
        ("measured", Align::Right),
        ("predicted", Align::Right),
        ("error", Align::Right),
    ]);
    for row in counters {
        table.row([
            row.counter.clone(),
            row.unit.to_owned(),
            row.ports.map_or(String::new(), |[seen, predicted]| match seen == predicted {
                true => seen.to_string(),
                false => format!("{seen} of {predicted}"),
            }),
            significant(row.measured),
            significant(row.predicted),
            per_cent(row.error),
        ]);
    }
    sheet.heading("Counters").table(table)
}

/// Adds bytes by axis to a sheet.
pub(super) fn show_axes(sheet: Sheet, steps: u64, axes: &[ComparedAxis]) -> Sheet {
    if axes.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("axis", Align::Left),
        ("measured", Align::Right),
        ("predicted", Align::Right),
        ("error", Align::Right),
    ]);
    for row in axes {
        table.row([
            row.axis.unwrap_or("groups that the layout has not").to_owned(),
            bytes(row.measured_bytes),
            bytes(row.predicted_bytes),
            per_cent(row.error),
        ]);
    }
    let steps = match steps {
        1 => "what the files hold counts as one step".to_owned(),
        steps => format!("the files hold {steps} steps of a rank"),
    };
    sheet.heading("Bytes that a rank sends in a step, by axis").table(table).text(format!(
        "Axes are told by the ranks of groups, as the scenario's layout numbers them; {steps}."
    ))
}

fn per_cent(error: Option<f64>) -> String {
    error.map_or("–".to_owned(), |error| format!("{:+.1} %", 100.0 * error + 0.0))
}
