//! Tables of AMD's rocprofv3: kernels as CSV or JSON; its database is read by `rocpd`.

use memchr::memmem::find;
use serde_json::Value;

use super::spans::{Does, Spans};
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{CollectiveKey, Kind};
use crate::records::whole;

/// `…_kernel_trace.csv`.
pub const CSV: Format = Format {
    name: "rocprofv3 table of kernels",
    unit: "kernels",
    recognises: is_csv,
    read: read_csv,
};
/// `…_results.json`.
pub const JSON: Format =
    Format { name: "rocprofv3 results", unit: "kernels", recognises: is_json, read: read_json };

fn is_csv(input: &Input<'_>) -> bool {
    let head = input.head();
    let line = &head[..find(head, b"\n").unwrap_or(head.len())];
    find(line, b"Kernel_Name").is_some() && find(line, b"Start_Timestamp").is_some()
}

fn is_json(input: &Input<'_>) -> bool {
    find(input.head(), b"\"rocprofiler-sdk-tool\"").is_some()
}

/// What kernels have said.
#[derive(Default)]
pub(super) struct Kernels(Spans);

impl Kernels {
    /// Adds a kernel; `counts` says whether it counts as a collective, or its call does.
    pub(super) fn add(
        &mut self,
        name: &str,
        start_ns: f64,
        end_ns: f64,
        counts: bool,
        reading: &mut Reading<'_>,
    ) {
        let lower = name.to_ascii_lowercase();
        let communicates = lower.contains("nccl") || lower.contains("rccl");
        let (start, end) = (start_ns * 1e-3, end_ns * 1e-3);
        let does = if communicates { Does::Communication } else { Does::computes(name) };
        self.0.kernel(start, end, does);
        reading.source.read += 1;
        let function = lower.split('(').next().unwrap_or(&lower);
        if let Some(kind) = Kind::of(function).filter(|_| communicates && counts) {
            let from = "rocprofv3, without sizes".to_owned();
            let key = CollectiveKey { kind, bytes: 0, ranks: 0, from };
            reading.observed.collectives.add(key, Some(end - start));
        }
    }

    pub(super) fn finish(self, reading: &mut Reading<'_>) {
        let (trace, _) = self.0.finish(&reading.source.file, None);
        reading.observed.traces.push(trace);
    }
}

/// Fields of a line with quotes where there are commas in them.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            letter => fields.last_mut().expect("there is a first").push(letter),
        }
    }
    fields
}

fn read_csv(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let Some((_, head)) = input.next_line()? else { return Ok(()) };
    let head = fields(&String::from_utf8_lossy(head));
    let column = |name: &str| head.iter().position(|field| field == name);
    let places = [column("Kernel_Name"), column("Start_Timestamp"), column("End_Timestamp")];
    let [Some(name), Some(start), Some(end)] = places else {
        return Err(ReadError::at(1, "the header has no Kernel_Name, Start_ or End_Timestamp"));
    };
    let mut kernels = Kernels::default();
    while let Some((number, line)) = input.next_line()? {
        let row = fields(&String::from_utf8_lossy(line));
        let time = |at: usize| row.get(at).and_then(|field| field.parse::<f64>().ok());
        match (row.get(name), time(start), time(end)) {
            (Some(name), Some(start), Some(end)) => kernels.add(name, start, end, true, reading),
            _ => {
                reading.source.skipped += 1;
                reading.problem(number, "is no row of the table");
            }
        }
    }
    kernels.finish(reading);
    Ok(())
}

fn read_json(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = whole(input)?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::at(error.line() as u64, error.to_string()))?;
    let mut kernels = Kernels::default();
    for tool in value["rocprofiler-sdk-tool"].as_array().into_iter().flatten() {
        let symbols = tool["kernel_symbols"].as_array();
        let name = |id: &Value| {
            let found = symbols.into_iter().flatten().find(|symbol| symbol["kernel_id"] == *id)?;
            found["formatted_kernel_name"].as_str().or(found["kernel_name"].as_str())
        };
        let dispatches = tool["buffer_records"]["kernel_dispatch"].as_array();
        for record in dispatches.into_iter().flatten() {
            let times = [&record["start_timestamp"], &record["end_timestamp"]].map(Value::as_f64);
            match (name(&record["dispatch_info"]["kernel_id"]), times) {
                (Some(name), [Some(start), Some(end)]) => {
                    kernels.add(name, start, end, true, reading)
                }
                _ => reading.source.skipped += 1,
            }
        }
    }
    kernels.finish(reading);
    Ok(())
}
