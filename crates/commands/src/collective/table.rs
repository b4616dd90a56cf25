//! A predicted collective as the table that nccl-tests would print, for tools that read those.
//!
//! Times can be made to vary, as a benchmark's do: each by a factor whose logarithm is normal
//! with mean 0, from the scenario's seed.

use scenario::Loaded;
use units::Random;

use super::{Report, bench};

/// A standard deviation of logarithms, from a flag.
pub fn noise(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "write it like `0.02`".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("it is between 0 and 1".to_owned()) }
}

/// The table of a report, with times that vary by so much.
pub fn nccl_tests(loaded: &Loaded, report: &Report, noise: f64) -> String {
    let mut text = head(loaded, report);
    let mut sum = 0.0;
    for (row, factors) in report.rows.iter().zip(factors(loaded, report, noise)) {
        let elements = row.bytes / 4;
        text +=
            &format!("{:>12} {elements:>13} {:>9} {:>7} {:>7}", row.bytes, "float", "sum", "-1");
        for factor in factors {
            let (algorithm, bus) = (row.algbw_gbps / factor, row.busbw_gbps / factor);
            let time = row.time_us * factor;
            text += &format!(" {time:>8.2} {algorithm:>7.2} {bus:>7.2} {:>7}", 0);
            sum += bus;
        }
        text.push('\n');
    }
    let mean = sum / (2 * report.rows.len()).max(1) as f64;
    text + &format!("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {mean:.4}\n#\n")
}

/// By what each size takes longer, out of place and in place.
pub(super) fn factors(loaded: &Loaded, report: &Report, noise: f64) -> Vec<[f64; 2]> {
    let mut random = Random::new(loaded.scenario.seed, "nccl-tests", 0);
    let mut one = || (noise * random.normal()).exp();
    report.rows.iter().map(|_| [one(), one()]).collect()
}

fn head(loaded: &Loaded, report: &Report) -> String {
    let name = report.collective.replace('_', "");
    let name = match report.collective {
        "send_recv" | "all_to_all" => name,
        other => other.to_owned(),
    };
    let sizes = |pick: fn(u64, u64) -> u64| report.rows.iter().map(|row| row.bytes).reduce(pick);
    let (min, max) = (sizes(u64::min).unwrap_or(0), sizes(u64::max).unwrap_or(0));
    let mut text = format!(
        "# Collective test starting: {name}_perf\n\
         # nThread 1 nGpus 1 minBytes {min} maxBytes {max} step: 2(factor) \
         warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n\
         # Using devices\n"
    );
    let per_node = loaded.fabric().gpus_per_node().max(1);
    let gpu = &loaded.scenario.cluster.gpu;
    for rank in 0..report.gpus {
        let (host, device) = (rank / per_node, rank % per_node);
        text += &format!(
            "#  Rank {rank:>2} Group  0 Pid {} on {} device {device:>2} [{device:02x}:00.0] \
             {gpu}\n",
            1000 + rank,
            bench::host(host),
        );
    }
    text + "#\n#                                                              out-of-place\
            \n#       size         count      type   redop    root     \
            time   algbw   busbw #wrong     time   algbw   busbw #wrong\
            \n#        (B)    (elements)                               \
            (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
}
