//! What people see of a job's traffic: one page.

use report::number::{bits_per_second, bytes, grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use units::Span;

use super::{Report, profile};

/// Rows of the table of sizes.
const MOST_SIZES: usize = 12;

/// Rows of the table of calls.
const MOST_CALLS: usize = 16;

pub(super) fn sheet(report: &Report) -> Sheet {
    let Report { title, words, entropy, burst, elephants, .. } = report;
    let FabricFacts { zone, policy } = facts_of(report);
    let mut sheet = Sheet::new()
        .heading(format!("{title}: what one step puts on the wire"))
        .text(format!("{words}. {policy}"))
        .facts([
            ("between NICs", bytes(report.bytes_per_step), "all GPUs, one step"),
            ("per GPU", bytes(report.per_gpu_bytes.mean), "mean"),
            ("mean rate", bits_per_second(8.0 * report.bytes_per_step / report.step_s), "fabric"),
            ("peak over mean", significant(burst.peak_to_mean), "along the step"),
            ("duty cycle", percent(burst.duty_cycle), "of the step something moves"),
            ("elephants", percent(elephants.bytes_share), "of bytes in transfers over 100 MB"),
            ("flows", grouped(entropy.flows), "queue pairs"),
            ("hash values", grouped(entropy.distinct_hashes), "distinct"),
        ]);
    if report.bytes_per_step == 0.0 {
        return sheet.note("Nothing leaves the scale-up domains: the network is not used.");
    }
    if 0 < report.unreachable {
        let lost = grouped(report.unreachable);
        sheet = sheet.note(format!("{lost} connections have no path between their ends."));
    }
    let [axes, primitives] = shares(report);
    sheet = sheet.heading("Who needs it").chart(axis_chart(report)).table(axes).table(primitives);
    let asked = "Calls of the communication library in one step, inside servers too, counted as \
                 nccl-tests counts them; a mean over all GPUs.";
    sheet = sheet.heading("What a GPU asks for").text(asked).table(calls(report));
    sheet = sheet.heading("How large transfers are").chart(size_chart(report)).table(sizes(report));
    sheet = sheet.heading("When").text(when(report)).chart(series(report));
    sheet = sheet.chart(profile::passes_chart(&report.passes));
    sheet = sheet.table(profile::passes_table(&report.passes, report.bytes_per_step));
    if report.within.iter().any(|pass| 0.0 < pass.bytes) {
        sheet = sheet.chart(profile::within_chart(&report.within));
    }
    sheet = sheet.heading("What each primitive does");
    sheet = sheet.table(profile::profile_table(&report.profile));
    sheet = sheet.heading("How well flows are told apart").table(entropy_table(report));
    sheet = sheet.heading("Through which tiers").table(tiers(report)).table(rails(report));
    sheet = sheet.heading(format!("What placement does: bytes that leave their {zone}"));
    sheet.table(placements(report)).heading("Who sends to whom").chart(matrix(report))
}

struct FabricFacts {
    zone: String,
    policy: String,
}

fn facts_of(report: &Report) -> FabricFacts {
    let words = &report.fabric_words;
    let pairs = if words.qps == 1 { "queue pair" } else { "queue pairs" };
    FabricFacts {
        zone: words.zone_word.clone(),
        policy: format!("Routing: {}, {} {pairs} per connection.", words.policy, words.qps),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The axes by key, as people call them.
const AXES: [(&str, &str); 5] = [
    ("tp", "tensor parallel"),
    ("cp", "context parallel"),
    ("ep", "expert parallel"),
    ("pp", "pipeline"),
    ("dp", "data parallel"),
];

/// The bytes of a step by axis, and by primitive.
fn shares(report: &Report) -> [Table; 2] {
    let of = |what: &str, rows: [(&str, f64); 5]| {
        let heads = [(what, Align::Left), ("bytes", Align::Right), ("share", Align::Right)];
        let mut table = Table::new(heads);
        for (name, own) in rows {
            table.row([name.to_owned(), bytes(own), percent(own / report.bytes_per_step)]);
        }
        table
    };
    let primitives = super::Primitive::ALL.map(super::Primitive::word);
    [
        of("axis", AXES.map(|(key, name)| (name, report.by_axis[key]))),
        of("primitive", primitives.map(|primitive| (primitive, report.by_primitive[primitive]))),
    ]
}

fn calls(report: &Report) -> Table {
    let mut table = Table::new([
        ("axis", Align::Left),
        ("what for", Align::Left),
        ("call", Align::Left),
        ("ranks", Align::Right),
        ("one call", Align::Right),
        ("calls", Align::Right),
        ("of a GPU", Align::Right),
        ("", Align::Left),
    ]);
    for row in report.calls.iter().take(MOST_CALLS) {
        table.row([
            row.axis.to_owned(),
            row.name.to_owned(),
            row.collective.to_owned(),
            grouped(row.ranks),
            bytes(row.call_bytes as f64),
            significant(row.calls_per_gpu),
            bytes(row.bytes_per_gpu),
            if row.leaves { "network" } else { "inside" }.to_owned(),
        ]);
    }
    table
}

fn axis_chart(report: &Report) -> Chart {
    let mut frame = Frame::new(&["axis", "bytes"]);
    for (key, name) in AXES {
        frame.push(vec![name.into(), report.by_axis[key].into()]);
    }
    Chart::new(ChartKind::Bars, "Bytes of a step between NICs, by the axis that needs them", frame)
        .axes("bytes", "axis")
        .labels("bytes", "")
        .units(Unit::Bytes, Unit::Number)
}

fn sizes(report: &Report) -> Table {
    let mut table = Table::new([
        ("axis", Align::Left),
        ("what for", Align::Left),
        ("one transfer", Align::Right),
        ("of all bytes", Align::Right),
        ("", Align::Left),
    ]);
    for row in report.sizes.iter().take(MOST_SIZES) {
        let elephant = super::ELEPHANT_BYTES as f64 <= row.transfer_bytes;
        table.row([
            row.axis.to_owned(),
            row.name.to_owned(),
            bytes(row.transfer_bytes),
            percent(row.bytes / report.bytes_per_step),
            if elephant { "elephant" } else { "" }.to_owned(),
        ]);
    }
    table
}

fn size_chart(report: &Report) -> Chart {
    let mut rows: Vec<&super::SizeRow> = report.sizes.iter().collect();
    rows.sort_by(|a, b| a.transfer_bytes.total_cmp(&b.transfer_bytes));
    let mut frame = Frame::new(&["transfer_bytes", "share"]);
    let mut below = 0.0;
    for row in rows {
        below += row.bytes / report.bytes_per_step;
        frame.push(vec![row.transfer_bytes.into(), below.into()]);
    }
    Chart::new(ChartKind::Distribution, "Share of bytes in transfers up to a size", frame)
        .caption("Far to the right: a few fat transfers carry everything.")
        .axes("transfer_bytes", "share")
        .labels("size of a transfer", "share of bytes")
        .units(Unit::Bytes, Unit::Share)
        .log_x()
}

fn when(report: &Report) -> String {
    let burst = &report.burst;
    let span = |seconds: f64| format!("{:.2}", Span::from_secs_f64(seconds));
    let step = format!("{} (closed forms)", span(report.step_s));
    let highest = bits_per_second(burst.peak_bps);
    let bursts = match burst.bursts {
        1 => format!("One burst in a step of {step}"),
        many => {
            format!(
                "{} bursts in a step of {step}, one every {}",
                grouped(many),
                span(burst.period_s)
            )
        }
    };
    let limit = bits_per_second(report.burst.limit_bps);
    format!(
        "{bursts}; at the highest the fabric takes {highest} of the {limit} that the job's NICs \
         send at most."
    )
}

fn series(report: &Report) -> Chart {
    let mut frame = Frame::new(&["s", "bps"]);
    for (at, rate) in report::chart::decimate(&report.burst.series, 1_000) {
        frame.push(vec![at.into(), rate.into()]);
    }
    Chart::new(ChartKind::Area, "Traffic of the whole fabric along the step", frame)
        .caption("All NICs together, by the closed form's timeline.")
        .axes("s", "bps")
        .labels("time", "rate of all NICs")
        .units(Unit::Seconds, Unit::BitsPerSecond)
}

fn entropy_table(report: &Report) -> Table {
    let entropy = &report.entropy;
    let rows = [
        ("queue pairs between NICs", grouped(entropy.flows)),
        ("queue pairs of the NIC with most", grouped(entropy.most_per_nic)),
        ("their contexts and queues, in its host's memory", bytes(entropy.queue_pair_bytes as f64)),
        ("connecting them, one after the other", format!("{:.2} s", entropy.connect_s)),
        ("distinct hash values", grouped(entropy.distinct_hashes)),
        ("entropy over the uplinks, of the most possible", percent(entropy.normalised)),
        ("uplinks that no flow takes", percent(entropy.idle_uplinks)),
        ("by chance, at random", percent(entropy.idle_expected)),
        ("busiest uplink's bytes over the mean", significant(entropy.uplink_imbalance)),
    ];
    plain(&rows)
}

fn plain(rows: &[(&str, String)]) -> Table {
    let mut table = Table::new([("", Align::Left), ("", Align::Right)]);
    for (name, value) in rows {
        table.row([(*name).to_owned(), value.clone()]);
    }
    table
}

fn tiers(report: &Report) -> Table {
    let mut table = Table::new([
        ("tier", Align::Left),
        ("bytes from below", Align::Right),
        ("of all", Align::Right),
    ]);
    for (tier, moved) in &report.tiers {
        let share = percent(moved / report.bytes_per_step);
        table.row([tier.clone(), bytes(*moved), share]);
    }
    table
}

fn rails(report: &Report) -> Table {
    let mut table = Table::new([("", Align::Left), ("mean", Align::Right), ("most", Align::Right)]);
    let rails = &report.per_rail_bytes;
    let mean = rails.iter().sum::<f64>() / rails.len().max(1) as f64;
    let most = rails.iter().copied().fold(0.0, f64::max);
    for (name, mean, most) in [
        ("leaves one GPU", report.per_gpu_bytes.mean, report.per_gpu_bytes.max),
        ("leaves one node", report.per_node_bytes.mean, report.per_node_bytes.max),
        ("leaves one rail", mean, most),
    ] {
        table.row([name.to_owned(), bytes(mean), bytes(most)]);
    }
    table
}

/// Bytes, and what share they are of a placement's own on the network.
fn with_share(part: f64, share: f64) -> String {
    format!("{} ({})", bytes(part), percent(share))
}

fn placements(report: &Report) -> Table {
    let zone = &report.fabric_words.zone_word;
    let leaves = format!("leaves its {zone}");
    let mut table = Table::new([
        ("placement", Align::Left),
        ("on the network", Align::Right),
        ("leaves its leaf", Align::Right),
        (leaves.as_str(), Align::Right),
        ("against random", Align::Right),
        ("", Align::Left),
    ]);
    let random = report.placements.iter().find(|row| row.placement == "random");
    for row in &report.placements {
        let saved = random.filter(|random| 0.0 < random.cross_zone_bytes).map_or_else(
            String::new,
            |random| {
                format!("{:+.1} %", 100.0 * (row.cross_zone_bytes / random.cross_zone_bytes - 1.0))
            },
        );
        table.row([
            row.placement.clone(),
            bytes(row.network_bytes),
            with_share(row.cross_leaf_bytes, row.cross_leaf_share),
            with_share(row.cross_zone_bytes, row.cross_zone_share),
            saved,
            if row.chosen { "this scenario" } else { "" }.to_owned(),
        ]);
    }
    table
}

fn matrix(report: &Report) -> Chart {
    let mut frame = Frame::new(&["to", "from", "bytes"]);
    for (from, row) in report.matrix.blocks.iter().zip(&report.matrix.bytes) {
        for (to, bytes) in report.matrix.blocks.iter().zip(row) {
            frame.push(vec![to.as_str().into(), from.as_str().into(), (*bytes).into()]);
        }
    }
    Chart::new(ChartKind::Heat, "Bytes from blocks of nodes (rows) to blocks (columns)", frame)
        .caption("Rows send, columns receive.")
        .axes("to", "from")
        .coloured_by("bytes")
        .labels("to", "from")
        .legend("bytes of a step", Unit::Bytes)
}
