//! What was measured of a collective: a user's nccl-tests output, or published rows that were taken
//! on as many GPUs of the same kind.
//!
//! nccl-tests writes one line for each size: size, count, type, operation, root, and then time,
//! algorithm bandwidth, bus bandwidth and errors, out of place and in place. What is read is the
//! out-of-place bus bandwidth; every other line of the output is a remark. The columns of root are
//! absent in tables of collectives without one in old versions, so numbers are counted from the
//! type's name, which is the first word that is none.

use std::path::Path;

use scenario::{Loaded, Problem, source};
use serde::Serialize;
use traffic::collective::Collective;

use crate::failure::Failure;
use crate::validate;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// As nccl-tests counts them.
    pub bytes: u64,
    /// Bus bandwidth.
    #[serde(rename = "busbw_GBps")]
    pub busbw_gbps: f64,
    /// Who measured it.
    pub source: String,
}

/// The published measurements of this collective on as many of the scenario's GPUs.
pub fn published(loaded: &Loaded, collective: Collective, gpus: usize) -> Vec<Measured> {
    let gpu = &loaded.scenario.cluster.gpu;
    let mut found = validate::published_collectives(gpu, gpus as u64, collective);
    found.sort_by(|a, b| a.source.cmp(&b.source).then(a.bytes.cmp(&b.bytes)));
    found
}

/// Reads what nccl-tests wrote.
pub fn read(path: &Path) -> Result<Vec<Measured>, Failure> {
    let source = source::read(path)?;
    let rows: Vec<Measured> =
        source.text.lines().filter_map(|line| row(line, &source.name)).collect();
    if rows.is_empty() {
        let problem = Problem::error(format!("{}: no line of nccl-tests in it", source.name));
        return Err(problem.with_help("give the output of all_reduce_perf or another test").into());
    }
    Ok(rows)
}

fn row(line: &str, source: &str) -> Option<Measured> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let bytes = words.first()?.parse().ok()?;
    let kind = words.iter().position(|word| word.parse::<f64>().is_err())?;
    // Behind the type: the operation, maybe the root, then time, algorithm and bus bandwidth.
    let rest = words.get(kind + 1..)?;
    let numbers = rest.iter().position(|word| word.contains('.'))?;
    let busbw_gbps: f64 = rest.get(numbers + 2)?.parse().ok()?;
    (0.0 < busbw_gbps).then(|| Measured { bytes, busbw_gbps, source: source.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the shape of nccl-tests' output, with fewer blanks; the numbers are made up.
    const OUTPUT: &str = "\
# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#                                        out-of-place                 in-place
#  size  count  type redop root  time algbw  busbw #wrong  time algbw  busbw #wrong
#   (B)                          (us) (GB/s) (GB/s)        (us) (GB/s) (GB/s)
  1048576  262144  float sum -1  67.55  15.52  27.17  0  67.28  15.59  27.28  0
134217728 33554432 float sum -1 1145.2 117.20 205.10  0 1144.9 117.23 205.15  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 41.7
";

    #[test]
    fn a_table_of_nccl_tests_is_read() {
        let rows: Vec<Measured> = OUTPUT.lines().filter_map(|line| row(line, "mine")).collect();
        let seen: Vec<(u64, f64)> = rows.iter().map(|row| (row.bytes, row.busbw_gbps)).collect();
        assert_eq!(seen, [(1_048_576, 27.17), (134_217_728, 205.1)]);
    }

    #[test]
    fn other_lines_are_remarks() {
        for line in ["", "# comment", "12 13", "1048576 float", "1048576 262144 float sum -1 x y z"]
        {
            assert_eq!(row(line, "mine"), None, "{line}");
        }
    }
}
