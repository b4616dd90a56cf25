//! What people see of observations: one page.

use observe::capture::Wire;
use observe::counter::CounterRow;
use observe::observed::{Benchmark, Severity, Source};
use observe::summary::{AxisLoad, CollectiveSummary, Summary};
use report::chart::decimate;
use report::number::{bits_per_second, bytes, grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};

/// Rows of a table that a terminal shows, the heaviest first where one can be heavy.
const MOST_ROWS: usize = 24;
/// In the names of counters of what was lost, held up or wrong.
const TROUBLE: [&str; 14] = [
    "discard",
    "drop",
    "err",
    "pause",
    "pfc",
    "ecn",
    "cnp",
    "wait",
    "timeout",
    "retrans",
    "nak",
    "sequence",
    "storm",
    "watermark",
];
/// Points of a curve.
const MOST_POINTS: usize = 400;
/// Characters of a quoted line that are shown.
const QUOTE: usize = 160;

pub(super) fn sheet(summary: &Summary) -> Sheet {
    let mut sheet = Sheet::new().heading(title(summary)).text(first_line(summary));
    sheet = cluster(sheet, summary);
    sheet = findings(sheet, summary);
    sheet = collectives(sheet, summary);
    sheet = axes(sheet, "By group of ranks", &summary.by_axis);
    sheet = benchmarks(sheet, &summary.benchmarks);
    sheet = flows(sheet, summary);
    sheet = runs(sheet, summary);
    sheet = traces(sheet, summary);
    sheet = communicators(sheet, summary);
    sheet = packets(sheet, summary);
    sheet = counters(sheet, summary);
    sheet = neighbours(sheet, summary);
    sheet = fabrics(sheet, summary);
    sources(sheet, &summary.sources)
}

fn title(summary: &Summary) -> String {
    match summary.sources.as_slice() {
        [one] => format!("What {} says", one.file),
        many => format!("What {} files say", grouped(many.len() as u64)),
    }
}

/// What dominates the load of the network, if collectives with sizes were seen.
fn first_line(summary: &Summary) -> String {
    match &summary.load {
        Some(load) => load.text.clone(),
        None if !summary.sources.iter().any(Source::is_read) => "Nothing could be read.".to_owned(),
        None if is_of_jobs(summary) => "No collective with a size was seen.".to_owned(),
        None => {
            let wrong = summary.findings.iter().filter(|one| one.severity != Severity::Note);
            let counts = [
                (wrong.count(), "thing that looks wrong", "things that look wrong"),
                (summary.counters.len(), "counter", "counters"),
                (summary.neighbours.len(), "cable by LLDP", "cables by LLDP"),
                (summary.fabrics.len(), "fabric", "fabrics"),
            ];
            let there = counts.into_iter().filter(|(count, ..)| 0 < *count);
            let words: Vec<String> = there
                .map(|(count, one, many)| {
                    format!("{} {}", grouped(count as u64), if count == 1 { one } else { many })
                })
                .collect();
            if words.is_empty() { "Settings.".to_owned() } else { format!("{}.", words.join(", ")) }
        }
    }
}

/// Whether files of jobs were read, in which collectives could have been.
fn is_of_jobs(summary: &Summary) -> bool {
    let has = [
        summary.communicators.is_empty(),
        summary.traces.is_empty(),
        summary.runs.is_empty(),
        summary.benchmarks.is_empty(),
        summary.flows.is_none(),
        summary.capture.is_none(),
    ];
    has.contains(&false)
}

fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{} {noun}s", grouped(count as u64)),
    }
}

fn cluster(mut sheet: Sheet, summary: &Summary) -> Sheet {
    let facts = &summary.cluster;
    let number = |value: Option<u32>| value.map(|value| grouped(value.into()));
    let library = facts.library.as_ref().map(|library| {
        format!("{library} {}", facts.version.as_deref().unwrap_or("of an unknown version"))
    });
    let hosts = format!("{} in the files", grouped(facts.hosts.len() as u64));
    let jobs = match facts.jobs {
        0 => String::new(),
        jobs => plural(jobs as usize, "job"),
    };
    let nics = (!facts.nics_used.is_empty()).then(|| grouped(facts.nics_used.len() as u64));
    let listed = format!("of {} listed", facts.nics.len());
    let only_listed = nics.is_none() && !facts.nics.is_empty();
    let only_listed = only_listed.then(|| grouped(facts.nics.len() as u64));
    let queue_pairs = (0 < summary.queue_pairs).then(|| grouped(summary.queue_pairs));
    let rows = [
        ("servers", number(facts.nodes), hosts.as_str()),
        ("ranks", number(facts.ranks), jobs.as_str()),
        ("GPUs a server", number(facts.gpus_per_node), ""),
        ("library", library, ""),
        ("transport", facts.transport.clone(), "between servers"),
        ("NICs used", nics, listed.as_str()),
        ("NICs", only_listed, "listed"),
        ("queue pairs", queue_pairs, "ends that were seen"),
    ];
    let known = rows.into_iter().filter_map(|(name, value, note)| Some((name, value?, note)));
    let known: Vec<_> = known.collect();
    if !known.is_empty() {
        sheet = sheet.facts(known);
    }
    sheet
}

fn findings(mut sheet: Sheet, summary: &Summary) -> Sheet {
    if summary.findings.is_empty() {
        return sheet;
    }
    sheet = sheet.heading("What looks wrong");
    for finding in &summary.findings {
        let severity = match finding.severity {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let text = format!("{severity}: {}", finding.text);
        sheet = match finding.severity {
            Severity::Note => sheet.text(text),
            Severity::Critical | Severity::Warning => sheet.note(text),
        };
        let cut = |text: &str| text.chars().take(QUOTE).collect::<String>();
        let lines: Vec<String> = finding
            .lines
            .iter()
            .map(|quote| match quote.line {
                0 => format!("{}: {}", quote.file, cut(&quote.text)),
                line => format!("{}:{line}: {}", quote.file, cut(&quote.text)),
            })
            .collect();
        if !lines.is_empty() {
            sheet = sheet.verbatim(lines.join("\n"));
        }
    }
    sheet
}

fn collectives(mut sheet: Sheet, summary: &Summary) -> Sheet {
    // Tables of benchmarks have a chapter of their own.
    let is_table = |row: &CollectiveSummary| row.from.contains("-tests");
    let mut rows: Vec<_> = summary.collectives.iter().filter(|row| !is_table(row)).collect();
    if rows.is_empty() {
        return sheet;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes.saturating_mul(row.count)));
    sheet = sheet.heading("Collectives, the heaviest first");
    let mut table = Table::new([
        ("collective", Align::Left),
        ("size", Align::Right),
        ("ranks", Align::Right),
        ("count", Align::Right),
        ("mean", Align::Right),
        ("bus GB/s", Align::Right),
        ("from", Align::Left),
    ]);
    for row in &rows {
        table.row([
            row.kind.name().to_owned(),
            if row.bytes == 0 { "?".to_owned() } else { bytes(row.bytes as f64) },
            row.ranks.map_or(String::new(), |ranks| grouped(ranks.into())),
            grouped(row.count),
            row.time_us.map_or(String::new(), microseconds),
            row.busbw.map_or(String::new(), significant),
            row.from.clone(),
        ]);
    }
    sheet.table(table.first(MOST_ROWS))
}

/// What a rank sends in which of its groups.
pub(super) fn axes(sheet: Sheet, heading: &str, loads: &[AxisLoad]) -> Sheet {
    if loads.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("group", Align::Left),
        ("axis", Align::Left),
        ("calls a rank", Align::Right),
        ("bytes a rank", Align::Right),
        ("share", Align::Right),
        ("most of it", Align::Left),
        ("called", Align::Left),
    ]);
    for load in loads.iter().take(MOST_ROWS) {
        let most = load.by_primitive.iter().max_by(|a, b| a.1.total_cmp(b.1));
        table.row([
            load.shape(),
            load.axis.unwrap_or("?").to_owned(),
            significant(load.calls_per_rank),
            bytes(load.bytes_per_rank),
            format!("{:.1} %", 100.0 * load.share),
            most.map_or(String::new(), |(primitive, _)| (*primitive).to_owned()),
            load.names.join(", "),
        ]);
    }
    let sheet = sheet.heading(heading).table(table);
    match loads.iter().any(|load| load.axis.is_none()) {
        true => sheet.text(
            "?: the group's name does not tell the axis. Beside the scenario of the job that ran \
             (--scenario), its ranks do.",
        ),
        false => sheet,
    }
}

pub(super) fn microseconds(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} µs", significant(us)),
        us if us < 1e6 => format!("{} ms", significant(us / 1e3)),
        us => format!("{} s", significant(us / 1e6)),
    }
}

fn flows(sheet: Sheet, summary: &Summary) -> Sheet {
    let Some(flows) = &summary.flows else { return sheet };
    let seconds = |time: Option<f64>| time.map_or("–".to_owned(), |s| microseconds(1e6 * s));
    let mut table = Table::new([
        ("flows", Align::Right),
        ("completed", Align::Right),
        ("bytes", Align::Right),
        ("makespan", Align::Right),
        ("goodput", Align::Right),
        ("mean time", Align::Right),
        ("longest", Align::Right),
    ]);
    table.row([
        grouped(flows.flows),
        grouped(flows.completed),
        bytes(flows.bytes as f64),
        seconds(flows.makespan_s),
        flows.goodput_bps.map_or("–".to_owned(), bits_per_second),
        seconds(flows.mean_s),
        seconds(flows.max_s),
    ]);
    sheet.heading("Flows").table(table)
}

fn benchmarks(mut sheet: Sheet, tables: &[Benchmark]) -> Sheet {
    if tables.is_empty() {
        return sheet;
    }
    sheet = sheet.heading("Benchmarks");
    let mut frame = Frame::new(&["bytes", "busbw", "table"]);
    let mut table = Table::new([
        ("table", Align::Left),
        ("ranks", Align::Right),
        ("sizes", Align::Right),
        ("largest", Align::Right),
        ("best bus GB/s", Align::Right),
        ("mean bus GB/s", Align::Right),
        ("file", Align::Left),
    ]);
    for (number, benchmark) in tables.iter().enumerate() {
        let name = format!("{} {}", number + 1, benchmark.name);
        // The printed mean is of both, and the best is not below it.
        let both = benchmark.rows.iter().flat_map(|row| [Some(row.busbw), row.in_place_busbw]);
        let best = both.flatten().fold(0.0, f64::max);
        let largest = benchmark.rows.iter().map(|row| row.bytes).max().unwrap_or(0);
        table.row([
            name.clone(),
            benchmark.ranks.map_or("?".to_owned(), |ranks| grouped(ranks.into())),
            grouped(benchmark.rows.len() as u64),
            bytes(largest as f64),
            significant(best),
            benchmark.average_busbw.map_or("no end".to_owned(), significant),
            benchmark.file.clone(),
        ]);
        for row in benchmark.rows.iter().filter(|row| 0 < row.bytes) {
            let (size, busbw) = (row.bytes as f64, row.busbw);
            frame.push(vec![size.into(), busbw.into(), name.clone().into()]);
        }
    }
    let chart = Chart::new(ChartKind::Line, "Bus bandwidth by size", frame)
        .axes("bytes", "busbw")
        .by("table")
        .labels("bytes", "GB/s")
        .units(Unit::Bytes, Unit::Number)
        .log_x();
    sheet.table(table).chart(chart)
}

fn runs(mut sheet: Sheet, summary: &Summary) -> Sheet {
    if summary.runs.is_empty() && summary.steps.is_none() {
        return sheet;
    }
    sheet = sheet.heading("Training");
    for run in &summary.runs {
        let name = run.name.as_deref().unwrap_or("a run");
        let seconds = run.seconds.map(|s| format!("{} s", significant(s)));
        let batch = run.global_batch_size.map(|size| format!("batch {}", grouped(size)));
        let rate = run.samples_per_s.map(|rate| format!("{} samples/s", significant(rate)));
        let parts: Vec<String> = [seconds, batch, rate].into_iter().flatten().collect();
        sheet = sheet.text(format!("{name}: {} ({}).", parts.join(", "), run.file));
    }
    if let Some(steps) = &summary.steps {
        let exposed = steps.exposed_share.map_or(String::new(), |share| {
            format!("; exposed communication {} %", significant(100.0 * share))
        });
        sheet = sheet.text(format!(
            "{}: median {} s, from {} to {} s{exposed}.",
            plural(usize::try_from(steps.count).unwrap_or(usize::MAX), "step"),
            significant(steps.median_s),
            significant(steps.min_s),
            significant(steps.max_s)
        ));
    }
    sheet
}

fn communicators(sheet: Sheet, summary: &Summary) -> Sheet {
    if summary.communicators.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("communicator", Align::Left),
        ("ranks", Align::Right),
        ("seen", Align::Right),
        ("servers", Align::Right),
        ("channels", Align::Right),
        ("first ring", Align::Left),
    ]);
    for group in &summary.communicators {
        let ring = group.rings.first().map_or(String::new(), |ring| {
            let words: Vec<String> = ring.iter().take(16).map(u32::to_string).collect();
            words.join(" ") + if 16 < ring.len() { " …" } else { "" }
        });
        table.row([
            group.id.clone(),
            grouped(group.ranks.into()),
            grouped(group.seen.into()),
            group.nodes.map_or(String::new(), |nodes| grouped(nodes.into())),
            grouped(group.channels.into()),
            ring,
        ]);
    }
    sheet.heading("Communicators").table(table.first(MOST_ROWS))
}

fn packets(sheet: Sheet, summary: &Summary) -> Sheet {
    let counts = &summary.packets;
    if *counts == observe::observed::Packets::default() {
        return sheet;
    }
    let facts = [
        ("data packets", grouped(counts.data), "with payload or a request"),
        ("payload", bytes(counts.bytes as f64), ""),
        ("acknowledgements", grouped(counts.acks), ""),
        ("NAKs", grouped(counts.naks), ""),
        ("CNPs", grouped(counts.cnps), ""),
        ("marked", grouped(counts.marked), "ECN, of data packets"),
        ("sent again", grouped(counts.retransmitted), ""),
        ("pause frames", grouped(counts.pauses), ""),
    ];
    let sheet = sheet.heading("Packets").facts(facts);
    match &summary.capture {
        Some(wire) => capture(sheet, wire),
        None => sheet,
    }
}

/// What a capture says beyond counts: verbs, rates, bursts, entropy, order.
fn capture(mut sheet: Sheet, wire: &Wire) -> Sheet {
    let mut table = Table::new([
        ("verb", Align::Left),
        ("packets", Align::Right),
        ("messages", Align::Right),
        ("payload", Align::Right),
    ]);
    for (name, verb) in &wire.verbs {
        let cells = [grouped(verb.packets), grouped(verb.messages), bytes(verb.bytes as f64)];
        table.row([name.clone()].into_iter().chain(cells));
    }
    if !wire.verbs.is_empty() {
        sheet = sheet.table(table);
    }
    let percent = |share: f64| format!("{} %", significant(100.0 * share));
    let rows = [
        ("mean rate", wire.mean_bps.map(bits_per_second)),
        ("peak to mean", wire.peak_to_mean.map(significant)),
        ("duty cycle", wire.duty_cycle.map(percent)),
        ("5-tuples", (0 < wire.flows).then(|| grouped(wire.flows))),
        ("entropy", wire.entropy.map(significant)),
        ("elephants", wire.elephant_share.map(percent)),
        ("out of order", (!wire.is_sampled).then(|| grouped(wire.out_of_order))),
        ("missing", (!wire.is_sampled).then(|| grouped(wire.missing))),
    ];
    let known = rows.into_iter().filter_map(|(name, value)| Some((name, value?, "")));
    sheet = sheet.facts(known.collect::<Vec<_>>());
    if 2 < wire.rate.len() {
        let mut frame = Frame::new(&["seconds", "rate"]);
        for (start, rate) in decimate(&wire.rate, MOST_POINTS) {
            frame.push(vec![start.into(), rate.into()]);
        }
        let chart = Chart::new(ChartKind::Area, "Payload over time", frame)
            .axes("seconds", "rate")
            .labels("seconds", "bits per second")
            .units(Unit::Number, Unit::Number);
        sheet = sheet.chart(chart);
    }
    sheet
}

/// Counters: those that grew, or that are not zero; what something lost or held up comes first.
fn counters(sheet: Sheet, summary: &Summary) -> Sheet {
    let grown = |row: &&CounterRow| row.difference.unwrap_or(row.value) != 0.0;
    let mut rows: Vec<&CounterRow> = summary.counters.iter().filter(grown).collect();
    let is_trouble = |row: &&CounterRow| {
        let name = row.name.to_lowercase();
        TROUBLE.iter().any(|word| name.contains(word))
    };
    rows.sort_by_key(|row| !is_trouble(row));
    if summary.counters.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("device", Align::Left),
        ("counter", Align::Left),
        ("value", Align::Right),
        ("difference", Align::Right),
    ]);
    for row in &rows {
        let device = match row.host.as_str() {
            "" => row.device.clone(),
            host => format!("{host} {}", row.device),
        };
        let difference = row.difference.map_or(String::new(), |number| format!("{number:+}"));
        table.row([device, row.name.clone(), format!("{}", row.value), difference]);
    }
    let all = plural(summary.counters.len(), "counter");
    let count = grouped(rows.len() as u64);
    let text = format!("{all}, {count} of them not zero or changed; --json has all.");
    sheet.heading("Counters").table(table.first(MOST_ROWS)).text(text)
}

fn neighbours(sheet: Sheet, summary: &Summary) -> Sheet {
    if summary.neighbours.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("port", Align::Left),
        ("neighbour", Align::Left),
        ("its port", Align::Left),
        ("pauses classes", Align::Left),
    ]);
    for other in &summary.neighbours {
        let name = if other.system.is_empty() { &other.chassis } else { &other.system };
        let classes = other.pfc.as_ref().map_or(String::new(), |classes| {
            classes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
        });
        table.row([other.local.clone(), name.clone(), other.port.clone(), classes]);
    }
    sheet.heading("Cables, by LLDP").table(table.first(MOST_ROWS))
}

/// Files that say how the fabric is cabled.
fn fabrics(sheet: Sheet, summary: &Summary) -> Sheet {
    if summary.fabrics.is_empty() {
        return sheet;
    }
    let numbers = ["switches", "adapters or hosts", "cables"].map(|name| (name, Align::Right));
    let head = [("file", Align::Left), ("of", Align::Left)];
    let mut table = Table::new(head.into_iter().chain(numbers));
    for one in &summary.fabrics {
        let counts = [one.switches, one.hosts, one.cables].map(grouped);
        table.row([one.file.clone(), one.kind.to_owned()].into_iter().chain(counts));
    }
    sheet.heading("The fabric").table(table)
}

/// Traces, and who comes last.
fn traces(mut sheet: Sheet, summary: &Summary) -> Sheet {
    if summary.traces.is_empty() {
        return sheet;
    }
    let mut table = Table::new([
        ("rank", Align::Right),
        ("span", Align::Right),
        ("kernels", Align::Right),
        ("computes", Align::Right),
        ("communicates", Align::Right),
        ("exposed", Align::Right),
        ("file", Align::Left),
    ]);
    for trace in &summary.traces {
        let time = |seconds: f64| microseconds(1e6 * seconds);
        table.row([
            trace.rank.map_or("?".to_owned(), |rank| rank.to_string()),
            time(trace.span_s),
            grouped(trace.kernels),
            time(trace.compute_s),
            time(trace.communication_s),
            time(trace.exposed_s),
            trace.file.clone(),
        ]);
    }
    sheet = sheet.heading("Traces").table(table.first(MOST_ROWS));
    for late in summary.stragglers.iter().take(3) {
        sheet = sheet.text(format!(
            "Rank {} comes last to {} of {} collectives, {} after the first on average.",
            late.rank,
            grouped(late.last),
            grouped(late.of),
            microseconds(late.late_us)
        ));
    }
    sheet
}

fn sources(sheet: Sheet, sources: &[Source]) -> Sheet {
    let mut table = Table::new([
        ("file", Align::Left),
        ("kind", Align::Left),
        ("read", Align::Right),
        ("skipped", Align::Right),
        ("of", Align::Left),
    ]);
    for source in sources {
        table.row([
            source.file.clone(),
            source.kind.clone(),
            grouped(source.read),
            grouped(source.skipped),
            source.unit.to_owned(),
        ]);
    }
    let mut sheet = sheet.heading("Files").table(table);
    for problem in sources.iter().flat_map(|source| &source.problems) {
        sheet = sheet.note(problem);
    }
    sheet
}
