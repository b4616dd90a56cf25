//! The table of flows that `fatflow run --flows-out` and `fatflow live --flows-out` write (CSV).

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::Flows;

/// Its columns.
const COLUMNS: [&str; 7] = ["flow", "src", "dst", "bytes", "start_ns", "received_ns", "finish_ns"];

/// The reader.
pub const FLOWS: Format = Format {
    name: "table of flows",
    unit: "flows",
    recognises: |input| {
        let head = input.head_text();
        let first = head.lines().next().unwrap_or_default();
        COLUMNS[1..6].iter().all(|name| first.split(',').any(|cell| cell.trim() == *name))
    },
    read,
};

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut places: Vec<Option<usize>> = Vec::new();
    while let Some((number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if number == 1 {
            let place = |name: &&str| cells.iter().position(|cell| cell == name);
            places = COLUMNS.iter().map(place).collect();
            continue;
        }
        if line.trim().is_empty() {
            continue;
        }
        let cell = |at: usize| places[at].and_then(|place| cells.get(place)).copied();
        let time = |at: usize| cell(at)?.parse().ok().filter(|ns: &f64| ns.is_finite());
        let bytes = cell(3).and_then(|cell| cell.parse::<u64>().ok());
        let (Some(bytes), Some(start)) = (bytes, time(4)) else {
            reading.source.skipped += 1;
            reading.problem(number, "a flow without its bytes or its start");
            continue;
        };
        reading.source.read += 1;
        let ended = [time(5), time(6)].map(|end| end.filter(|end| start <= *end));
        add(&mut reading.observed.flows, bytes, start, ended);
    }
    Ok(())
}

fn add(flows: &mut Flows, bytes: u64, start_ns: f64, [received, finish]: [Option<f64>; 2]) {
    flows.count += 1;
    flows.bytes += bytes;
    let Some(end) = finish.or(received) else {
        flows.unfinished += 1;
        return;
    };
    let (first, last) = flows.span_ns.unwrap_or((start_ns, end));
    flows.span_ns = Some((first.min(start_ns), last.max(end)));
    flows.times.add((end - start_ns) / 1e3);
}
