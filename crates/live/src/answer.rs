//! What a live run answers, and how it is shown: measured beside predicted.

use report::number::significant;
use report::{Align, Answer, Sheet, Table};
use serde::Serialize;

use crate::record::Replayed;

/// A collective that was run for real, over sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Ranks, one process each.
    pub ranks: usize,
    /// Which collective, or what else was run.
    pub collective: String,
    /// Where it ran: through a switch in user space, on loopback, in namespaces.
    pub on: &'static str,
    /// By how much all rates are lower than the scenario's.
    pub scaled_by: f64,
    /// The rate of a rank's link, so scaled.
    pub link_bps: u64,
    /// One for each size.
    pub rows: Vec<Row>,
    /// What was changed for this machine, and what could not be measured.
    pub findings: Vec<String>,
    #[serde(skip)]
    pub(crate) title: String,
}

/// One size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// As nccl-tests counts it.
    pub bytes: u64,
    /// Whether every byte of every rank is what it should be.
    pub sums_right: bool,
    /// Until the last rank had everything.
    pub time_us: f64,
    /// The same in the packet engine, with the scaled rates.
    pub predicted_us: f64,
    /// All payload that crossed the network, over that time.
    pub goodput_bps: f64,
    /// The same in the packet engine.
    pub predicted_goodput_bps: f64,
    /// Links between switches.
    pub uplinks: Vec<Uplink>,
    /// Ports of switches towards ranks, where they are seen.
    pub ports: Vec<Port>,
    /// The queue pairs.
    pub queue_pairs: Vec<QueuePair>,
    /// Queue pairs whose path is known and is the predicted one, and how many are known.
    pub paths_as_predicted: [usize; 2],
    /// Paths, and how many queue pairs took each beside how many should have.
    pub paths: Vec<Path>,
    /// How full the fullest uplinks are with queue pairs, where the kernel routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullest: Option<Fullest>,
    /// What was counted.
    pub packets: Packets,
    /// What the packet engine counted.
    pub predicted_packets: PredictedPackets,
    /// The ranks in the order in which they had everything.
    pub completion_order: Vec<u32>,
    /// The same with their times.
    pub ends: Vec<RankEnd>,
    /// What congestion controls did, fed to the packet engine's objects again, if that was written
    /// down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<Replayed>,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Path {
    /// Its switches.
    pub switches: Vec<String>,
    /// Queue pairs that took it, where that is seen.
    pub queue_pairs: Option<usize>,
    /// Queue pairs that should.
    pub predicted: usize,
}

/// The share of queue pairs that the fullest uplink of a switch has, the mean over switches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fullest {
    /// Measured.
    pub share: f64,
    /// As many balls in as many bins: the mean of the fullest.
    pub expected: f64,
    /// And its standard deviation.
    pub deviation: f64,
}

/// When a rank had everything.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankEnd {
    /// The rank.
    pub rank: u32,
    /// Measured.
    pub time_us: f64,
    /// In the packet engine.
    pub predicted_us: f64,
}

/// The port of a switch that leads to a rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// The rank.
    pub rank: u32,
    /// The link.
    pub link: String,
    /// The deepest its queue has been, whole packets.
    pub peak_queue_bytes: u64,
    /// The same in the packet engine.
    pub predicted_peak_queue_bytes: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// Packets that it marked.
    pub marks: u64,
}

/// A link between switches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Uplink {
    /// From where to where.
    pub link: String,
    /// Payload that crossed it.
    pub bytes: u64,
    /// Payload that should.
    pub predicted_bytes: u64,
    /// Packets with data that crossed it.
    pub packets: u64,
    /// Packets that should.
    pub predicted_packets: u64,
    /// The deepest its queue has been, where that is known.
    pub peak_queue_bytes: Option<u64>,
    /// Packets that it dropped.
    pub drops: u64,
    /// Packets that it marked.
    pub marks: u64,
    /// Pauses against what sends into it.
    pub pauses: u64,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueuePair {
    /// Its number.
    pub id: u32,
    /// The sending rank.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
    /// Its UDP source port.
    pub src_port: u16,
    /// The destination queue pair number.
    pub dst_qpn: u32,
    /// The switches that it crossed; empty where nobody can see that, several paths one after the
    /// other where packets were sprayed.
    pub path: Vec<String>,
    /// The switches that it should cross.
    pub predicted_path: Vec<String>,
    /// Payload.
    pub bytes: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Congestion notifications that its sender got.
    pub cnps: u64,
    /// The rate that its control allowed in the end.
    pub rate_bps: u64,
    /// Packets that had arrived, every 100 ms.
    pub arrived_packets: Vec<u64>,
}

/// Packets of all ranks, as `observe` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Packets {
    /// With data, sent again ones included.
    pub data: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// Negative ones.
    pub naks: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Pauses that switches sent.
    pub pauses: u64,
    /// Packets that arrived marked; nothing where nobody on the way can mark.
    pub marked: Option<u64>,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Timeouts that led to that.
    pub timeouts: u64,
    /// Receivers that were not ready.
    pub not_ready: u64,
    /// Packets whose ICRC was wrong.
    pub icrc_wrong: u64,
    /// Packets that no room was left for.
    pub drops: u64,
    /// Lost, held back and duplicated on request.
    pub injected: [u64; 3],
    /// Payload, each byte once.
    pub bytes: u64,
    /// Packets of any kind that ranks sent.
    pub sent: u64,
    /// Packets of any kind that ranks received.
    pub received: u64,
}

/// What the packet engine counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PredictedPackets {
    /// With data.
    pub data: u64,
    /// Marked.
    pub marked: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Sent again.
    pub retransmitted: u64,
    /// Dropped.
    pub drops: u64,
    /// Pauses.
    pub pauses: u64,
}

impl Report {
    fn sizes(&self) -> Table {
        let names = [
            "size (B)",
            "sums",
            "time (ms)",
            "predicted",
            "Mbit/s",
            "predicted",
            "queue pairs on the predicted path",
        ];
        let mut table = Table::new(names.map(|name| (name, Align::Right)));
        for row in &self.rows {
            let [right, known] = row.paths_as_predicted;
            table.row([
                row.bytes.to_string(),
                if row.sums_right { "right" } else { "WRONG" }.to_owned(),
                format!("{:.1}", row.time_us / 1e3),
                format!("{:.1}", row.predicted_us / 1e3),
                significant(row.goodput_bps / 1e6),
                significant(row.predicted_goodput_bps / 1e6),
                if known == 0 { "not seen".to_owned() } else { format!("{right} of {known}") },
            ]);
        }
        table
    }

    /// Packets of each size, measured and predicted; what never happened has no column.
    fn packets(&self) -> Table {
        let marked = |row: &Row| row.packets.marked.map_or("no marks here".into(), as_text);
        type Figure = fn(&Row) -> u64;
        let counted: [(&str, Figure, Figure); 5] = [
            ("data", |row| row.packets.data, |row| row.predicted_packets.data),
            (
                "sent again",
                |row| row.packets.retransmitted,
                |row| row.predicted_packets.retransmitted,
            ),
            ("CNPs", |row| row.packets.cnps, |row| row.predicted_packets.cnps),
            ("drops", |row| row.packets.drops, |row| row.predicted_packets.drops),
            ("pauses", |row| row.packets.pauses, |row| row.predicted_packets.pauses),
        ];
        // Drops and pauses are rare: they have a column where there are any.
        let is_shown = |(name, measured, predicted): &(&str, Figure, Figure)| {
            let happened = self.rows.iter().any(|row| 0 < measured(row) + predicted(row));
            happened || !["drops", "pauses"].contains(name)
        };
        let shown: Vec<(&str, Figure, Figure)> = counted.into_iter().filter(is_shown).collect();
        let mut names = vec!["size (B)"];
        for (name, ..) in &shown {
            names.extend([*name, "predicted"]);
        }
        names.extend(["marked", "predicted", "acknowledgements"]);
        let mut table = Table::new(names.into_iter().map(|name| (name, Align::Right)));
        for row in &self.rows {
            let mut cells = vec![row.bytes.to_string()];
            for (_, measured, predicted) in &shown {
                cells.extend([measured(row), predicted(row)].map(as_text));
            }
            cells.extend([marked(row), as_text(row.predicted_packets.marked)]);
            cells.push(as_text(row.packets.acks));
            table.row(cells);
        }
        table
    }

    fn uplinks(row: &Row) -> Table {
        let names = ["link", "payload (B)", "predicted", "packets", "predicted", "peak queue (B)"];
        let mut table = Table::new(names.map(|name| (name, Align::Right)));
        for uplink in &row.uplinks {
            table.row([
                uplink.link.clone(),
                uplink.bytes.to_string(),
                uplink.predicted_bytes.to_string(),
                uplink.packets.to_string(),
                uplink.predicted_packets.to_string(),
                uplink.peak_queue_bytes.map_or("–".to_owned(), |bytes| bytes.to_string()),
            ]);
        }
        table
    }
}

impl Answer for Report {
    fn sheet(&self) -> Sheet {
        let Self { title, collective, ranks, on, .. } = self;
        let rate = significant(self.link_bps as f64 / 1e6);
        let mut sheet = Sheet::new()
            .heading(format!("{title}: {collective} for real on {ranks} ranks, {on}"))
            .text(format!(
                "Links have {rate} Mbit/s, {} times less than the scenario's; the prediction is \
                 the packet engine's with the same rates.",
                significant(self.scaled_by)
            ))
            .table(self.sizes())
            .heading("Packets")
            .table(self.packets());
        if let Some(last) = self.rows.last().filter(|row| 1 < row.paths.len()) {
            sheet = sheet.heading("Queue pairs by path, at the largest size").table(paths(last));
        }
        if let Some(full) = self.rows.last().and_then(|row| row.fullest) {
            sheet = sheet.text(format!(
                "The fullest uplink of a switch has {} % of the queue pairs that leave it upwards; \
                 chance gives {} ± {} %.",
                significant(100.0 * full.share),
                significant(100.0 * full.expected),
                significant(100.0 * full.deviation),
            ));
        }
        if let Some(last) = self.rows.last().filter(|row| !row.uplinks.is_empty()) {
            sheet = sheet
                .heading("Links between switches, at the largest size")
                .table(Self::uplinks(last));
        }
        if let Some(last) = self.rows.last().filter(|row| !row.ports.is_empty()) {
            sheet = sheet.heading("Ports towards ranks, at the largest size").table(ports(last));
        }
        if let Some(last) = self.rows.last() {
            sheet = sheet
                .heading("Ranks in the order in which they had everything, at the largest size")
                .table(ends(last));
        }
        for control in self.rows.iter().filter_map(|row| row.control) {
            let Replayed { steps, same, cnps, rate_changes } = control;
            sheet = sheet.text(format!(
                "Controls: {same} of {steps} recorded steps are those of the packet engine's \
                 objects ({cnps} CNPs, {rate_changes} changes of rate)."
            ));
        }
        for finding in &self.findings {
            sheet = sheet.note(finding.clone());
        }
        sheet
    }
}

fn as_text(count: u64) -> String {
    count.to_string()
}

fn paths(row: &Row) -> Table {
    let names = [("path", Align::Left), ("queue pairs", Align::Right), ("predicted", Align::Right)];
    let mut table = Table::new(names);
    for path in &row.paths {
        table.row([
            path.switches.join(" → "),
            path.queue_pairs.map_or("not seen".to_owned(), |count| count.to_string()),
            path.predicted.to_string(),
        ]);
    }
    table
}

fn ends(row: &Row) -> Table {
    let names = ["rank", "time (ms)", "predicted"];
    let mut table = Table::new(names.map(|name| (name, Align::Right)));
    for end in &row.ends {
        table.row([
            end.rank.to_string(),
            format!("{:.1}", end.time_us / 1e3),
            format!("{:.1}", end.predicted_us / 1e3),
        ]);
    }
    table
}

fn ports(row: &Row) -> Table {
    let names = ["link", "peak queue (B)", "predicted", "drops", "marks"];
    let mut table = Table::new(names.map(|name| (name, Align::Right)));
    for port in &row.ports {
        table.row([
            port.link.clone(),
            port.peak_queue_bytes.to_string(),
            port.predicted_peak_queue_bytes.to_string(),
            port.drops.to_string(),
            port.marks.to_string(),
        ]);
    }
    table
}
