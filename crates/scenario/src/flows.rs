//! Flow files: CSV with the columns `src,dst,bytes,start_ns`, in any order; others are ignored.
//!
//! `src` and `dst` number the NICs from 0. Lines that begin with `#` and empty lines are skipped.

use std::path::Path;

use traffic::pattern::{Flow, MAX_FLOWS};
use units::{Bytes, Span};

use crate::problem::{Problem, Problems};
use crate::source::{Source, read_within};

/// A flow file may be larger than a scenario: a line has some thirty bytes.
const MAX_BYTES: u64 = 40 * MAX_FLOWS;

/// More wrong lines than this are not looked for.
const MOST_PROBLEMS: usize = 20;

/// Where the columns stand.
struct Columns {
    src: usize,
    dst: usize,
    bytes: usize,
    start: Option<usize>,
    count: usize,
}

/// Reads a flow file for a fabric with this many NICs.
pub fn read(path: &Path, nics: u32) -> Result<Vec<Flow>, Problems> {
    let help = "a flow file is CSV with the columns src,dst,bytes,start_ns";
    let source = read_within(path, MAX_BYTES).map_err(|problem| problem.with_help(help))?;
    parse(&source, nics)
}

/// Reads flows from a text.
pub fn parse(source: &Source, nics: u32) -> Result<Vec<Flow>, Problems> {
    let mut flows = Vec::new();
    let mut problems = Vec::new();
    let mut columns = None;
    let mut offset = 0;
    for line in source.text.split_inclusive('\n') {
        let place = offset..offset + line.trim_end().len();
        offset += line.len();
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refuse = |reason: String| Problem::error(reason).at(source, place.clone(), "this line");
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        match &columns {
            None => columns = Some(header(&fields).map_err(refuse)?),
            Some(columns) => match flow(&fields, columns, nics) {
                Ok(flow) => flows.push(flow),
                Err(reason) => problems.push(refuse(reason)),
            },
        }
        if MOST_PROBLEMS <= problems.len() {
            break;
        }
        if MAX_FLOWS < flows.len() as u64 {
            return Err(refuse(format!("there are more than {MAX_FLOWS} flows")).into());
        }
    }
    if problems.is_empty() { Ok(flows) } else { Err(Problems(problems)) }
}

fn header(fields: &[&str]) -> Result<Columns, String> {
    let find = |name: &str| fields.iter().position(|field| field.trim_matches('"') == name);
    let need = |name: &str| find(name).ok_or_else(|| format!("the column `{name}` is missing"));
    Ok(Columns {
        src: need("src")?,
        dst: need("dst")?,
        bytes: need("bytes")?,
        start: find("start_ns"),
        count: fields.len(),
    })
}

fn flow(fields: &[&str], columns: &Columns, nics: u32) -> Result<Flow, String> {
    let number = |column: usize, name: &str| {
        let field = fields.get(column).ok_or_else(|| format!("`{name}` is missing"))?;
        let bad = |_| format!("`{name}` is `{field}`, not a whole number");
        field.parse::<u64>().map_err(bad)
    };
    let nic = |column: usize, name: &str| {
        let nic = number(column, name)?;
        match u32::try_from(nic) {
            Ok(nic) if nic < nics => Ok(nic),
            _ => Err(format!("there is no NIC {nic}; the last is {}", nics.saturating_sub(1))),
        }
    };
    if columns.count < fields.len() {
        return Err(format!("{} fields, but {} columns", fields.len(), columns.count));
    }
    let (src, dst) = (nic(columns.src, "src")?, nic(columns.dst, "dst")?);
    if src == dst {
        return Err(format!("NIC {src} cannot send to itself"));
    }
    let bytes = Bytes::new(number(columns.bytes, "bytes")?);
    if bytes == Bytes::ZERO {
        return Err("`bytes` is 0; the least is 1".to_owned());
    }
    let start_ns = columns.start.map_or(Ok(0), |column| number(column, "start_ns"))?;
    let start = start_ns.checked_mul(1_000).ok_or("`start_ns` is too large")?;
    Ok(Flow { src, dst, bytes, start: Span::from_ps(start), messages: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Colour, Style};

    #[test]
    fn columns_may_stand_in_any_order() {
        let text = "# comment\nflow,dst,src,bytes,start_ns\n0,1,0,4096,5\n\n1,0,3,1,0\n";
        let flows = parse(&Source::new("flows.csv", text), 4).unwrap();
        let first =
            Flow { src: 0, dst: 1, bytes: Bytes::new(4096), start: Span::from_ns(5), messages: 1 };
        assert_eq!((flows.len(), flows[0], flows[1].src), (2, first, 3));
        let flows = parse(&Source::new("flows.csv", "src,dst,bytes\n0,1,9\n"), 2).unwrap();
        assert_eq!(flows[0].start, Span::ZERO);
    }

    #[test]
    fn every_wrong_line_is_named() {
        let text = "src,dst,bytes\n0,1,x\n0,9,1\n1,1,1\n1\n0,1,1\n-1,0,1\n0,1,0\n";
        let problems = parse(&Source::new("flows.csv", text), 4).unwrap_err();
        insta::assert_snapshot!(problems.to_string().replace("; ", "\n"), @r"
        `bytes` is `x`, not a whole number (flows.csv:2:1)
        there is no NIC 9
        the last is 3 (flows.csv:3:1)
        NIC 1 cannot send to itself (flows.csv:4:1)
        `dst` is missing (flows.csv:5:1)
        `src` is `-1`, not a whole number (flows.csv:7:1)
        `bytes` is 0
        the least is 1 (flows.csv:8:1)
        ");
        let style = Style { colour: Colour::Never, width: 80 };
        let header = parse(&Source::new("flows.csv", "from,to\n"), 4).unwrap_err().render(style);
        assert!(header.contains("the column `src` is missing"), "{header}");
    }
}
