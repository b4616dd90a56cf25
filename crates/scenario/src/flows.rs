//! Flow files: CSV with the columns `src,dst,bytes,start_ns`, in any order; others are ignored.
//!
//! `src` and `dst` number the NICs from 0. Lines that begin with `#` and empty lines are skipped.
//! A [`FlowTable`] is the same in memory, by the same rules.

use std::path::Path;

use traffic::pattern::{Flow, MAX_FLOWS};
use units::{Bytes, Span};

use crate::hash::{ScenarioHash, hash_bytes};
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
    if columns.count < fields.len() {
        return Err(format!("{} fields, but {} columns", fields.len(), columns.count));
    }
    let ends = [number(columns.src, "src")?, number(columns.dst, "dst")?];
    let bytes = number(columns.bytes, "bytes")?;
    let start_ns = columns.start.map_or(Ok(0), |column| number(column, "start_ns"))?;
    checked(ends, bytes, start_ns, nics)
}

/// One flow from its numbers, or why there is no such flow.
fn checked(ends: [u64; 2], bytes: u64, start_ns: u64, nics: u32) -> Result<Flow, String> {
    let nic = |nic: u64| match u32::try_from(nic) {
        Ok(nic) if nic < nics => Ok(nic),
        _ => Err(format!("there is no NIC {nic}; the last is {}", nics.saturating_sub(1))),
    };
    let (src, dst) = (nic(ends[0])?, nic(ends[1])?);
    if src == dst {
        return Err(format!("NIC {src} cannot send to itself"));
    }
    let bytes = Bytes::new(bytes);
    if bytes == Bytes::ZERO {
        return Err("`bytes` is 0; the least is 1".to_owned());
    }
    let start = start_ns.checked_mul(1_000).ok_or("`start_ns` is too large")?;
    Ok(Flow { src, dst, bytes, start: Span::from_ps(start), messages: 1 })
}

/// Flows in memory, column by column, for programs that have them in no file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowTable {
    /// What it is called where `traffic.flows` would name a file.
    pub name: String,
    /// The sending NICs.
    pub src: Vec<u64>,
    /// The receiving NICs.
    pub dst: Vec<u64>,
    /// What each flow carries.
    pub bytes: Vec<u64>,
    /// When each may start; empty for all at once.
    pub start_ns: Vec<u64>,
    /// The earlier rows that each row waits for; empty if none waits.
    pub after: Vec<Vec<u32>>,
}

impl FlowTable {
    /// The flows on a fabric with this many NICs. What is wrong names its row, counted from 0.
    pub fn flows(&self, nics: u32) -> Result<Vec<Flow>, Problems> {
        let rows = self.src.len();
        let at = |row: usize, reason: String| {
            let place = format!("{}[{row}]", self.name);
            Problem::error(format!("row {row}: {reason}")).with_key(place)
        };
        if MAX_FLOWS < rows as u64 {
            return Err(at(rows, format!("there are more than {MAX_FLOWS} flows")).into());
        }
        let mut problems = Vec::new();
        let mut flows = Vec::with_capacity(rows);
        for row in 0..rows {
            let start_ns = self.start_ns.get(row).copied().unwrap_or(0);
            let ends = [self.src[row], self.dst[row]];
            let flow = checked(ends, self.bytes[row], start_ns, nics);
            let later = self.after(row).iter().find(|other| row <= **other as usize);
            let flow = flow.and_then(|flow| match later {
                None => Ok(flow),
                Some(other) => Err(format!(
                    "it waits for row {other}, which is not before it; sort the rows so that each \
                     comes after those it waits for"
                )),
            });
            match flow {
                Ok(flow) => flows.push(flow),
                Err(reason) => problems.push(at(row, reason)),
            }
            if MOST_PROBLEMS <= problems.len() {
                break;
            }
        }
        if problems.is_empty() { Ok(flows) } else { Err(Problems(problems)) }
    }

    /// The rows that a row waits for.
    pub fn after(&self, row: usize) -> &[u32] {
        self.after.get(row).map_or(&[], Vec::as_slice)
    }

    /// The hash of all its numbers.
    pub(crate) fn hash(&self) -> ScenarioHash {
        let columns = [&self.src, &self.dst, &self.bytes, &self.start_ns];
        let numbers = columns
            .into_iter()
            .flat_map(|column| std::iter::once(column.len() as u64).chain(column.iter().copied()));
        let after = self.after.iter().flat_map(|rows| {
            std::iter::once(rows.len() as u64).chain(rows.iter().map(|row| u64::from(*row)))
        });
        let bytes: Vec<u8> = numbers.chain(after).flat_map(u64::to_le_bytes).collect();
        hash_bytes(&bytes)
    }
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
    fn a_table_in_memory_obeys_the_rules_of_a_file() {
        let table = FlowTable {
            name: "transfers".to_owned(),
            src: vec![0, 1, 1],
            dst: vec![1, 0, 2],
            bytes: vec![4096, 1, 9],
            start_ns: vec![5, 0, 0],
            after: vec![vec![], vec![0], vec![0, 1]],
        };
        let flows = table.flows(3).unwrap();
        let text = "src,dst,bytes,start_ns\n0,1,4096,5\n1,0,1,0\n1,2,9,0\n";
        assert_eq!(flows, parse(&Source::new("flows.csv", text), 3).unwrap());
        assert_eq!(table.after(2), [0, 1]);
        let wrong = FlowTable { bytes: vec![0, 1, 9], after: vec![vec![2]], ..table.clone() };
        let problems = wrong.flows(2).unwrap_err();
        insta::assert_snapshot!(problems.to_string(), @"row 0: `bytes` is 0; the least is 1; row 2: there is no NIC 2; the last is 1");
        let later = FlowTable { after: vec![vec![], vec![2]], ..table.clone() };
        let problems = later.flows(3).unwrap_err();
        assert!(problems.to_string().contains("row 1: it waits for row 2"), "{problems}");
        assert_eq!(problems.0[0].key, "transfers[1]");
        assert_ne!(later.hash(), table.hash());
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
