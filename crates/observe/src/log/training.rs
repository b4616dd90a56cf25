//! What training programs print: MLPerf's `:::MLLOG` lines, Megatron's iterations, simple
//! benchmarks.

use serde_json::Value;

use super::also;
use super::words::{decimal, find, has, number};
use crate::format::Reading;
use crate::observed::{Benchmark, Kind, Run, Step, Times};

/// What the lines of a file have said so far.
#[derive(Debug, Default)]
pub(super) struct Training {
    run: Run,
    start_ms: Option<f64>,
    throughput: Times,
    mllog_lines: u64,
    iterations: u64,
    /// Bus bandwidths in 10⁹ bits per second, as the all-reduce benchmark of BLOOM prints them.
    busbw_gbps: Vec<f64>,
}

impl Training {
    /// Reads a line; whether it says something.
    pub(super) fn line(&mut self, line: &str, number: u64, reading: &mut Reading<'_>) -> bool {
        if let Some(at) = find(line, ":::MLLOG") {
            return self.mllog(&line[at + 8..], number, reading);
        }
        if has(line, "elapsed time per iteration (ms)") {
            return self.iteration(line, reading);
        }
        // Its last line is the mean of all.
        if has(line, "Gbps")
            && let Some(gbps) = decimal(line, "busbw:")
        {
            self.busbw_gbps.push(gbps);
            return true;
        }
        false
    }

    /// ` iteration 1/ 1000 | … | elapsed time per iteration (ms): 150891.7 | global batch size: …`.
    fn iteration(&mut self, line: &str, reading: &mut Reading<'_>) -> bool {
        let Some(ms) = decimal(line, "elapsed time per iteration (ms):") else { return false };
        self.iterations += 1;
        let number = number(line, "iteration ").unwrap_or(self.iterations);
        self.run.global_batch_size =
            super::words::number(line, "global batch size:").or(self.run.global_batch_size);
        let step = Step { number, seconds: ms / 1e3, ..Step::default() };
        reading.observed.steps.push(step);
        true
    }

    fn mllog(&mut self, text: &str, line: u64, reading: &mut Reading<'_>) -> bool {
        // A torn line may have something behind the object.
        let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let Some(Ok(entry)) = stream.next() else {
            reading.problem(line, "an MLLOG line is torn or no JSON");
            return false;
        };
        self.mllog_lines += 1;
        let value = &entry["value"];
        match entry["key"].as_str().unwrap_or_default() {
            "run_start" => self.start_ms = entry["time_ms"].as_f64(),
            "run_stop" => {
                let end = entry["time_ms"].as_f64();
                self.run.seconds = end.zip(self.start_ms).map(|(end, start)| (end - start) / 1e3);
            }
            "global_batch_size" => self.run.global_batch_size = value.as_u64(),
            "submission_benchmark" => self.run.name = value.as_str().map(str::to_owned),
            "throughput" => self.throughput(value),
            "tracked_stats" => self.throughput(&value["throughput"]),
            _ => {}
        }
        true
    }

    fn throughput(&mut self, value: &Value) {
        if let Some(samples) = value.as_f64() {
            self.throughput.add(samples);
            self.run.throughput_lines += 1;
            self.run.last_samples_per_s = Some(samples);
        }
    }

    /// Adds the run to what was observed.
    pub(super) fn finish(mut self, reading: &mut Reading<'_>) {
        if 0 < self.mllog_lines {
            also(reading, "MLPerf lines");
        }
        if 0 < self.iterations {
            also(reading, "Megatron iterations");
        }
        if let Some(mean) = self.busbw_gbps.last() {
            also(reading, "an all-reduce benchmark");
            reading.observed.benchmarks.push(Benchmark {
                name: "all_reduce_bench (its last line is the mean; printed in bits)".to_owned(),
                kind: Some(Kind::AllReduce),
                average_busbw: Some(mean / 8.0),
                is_complete: true,
                file: reading.source.file.clone(),
                ..Benchmark::default()
            });
        }
        if 0 < self.run.throughput_lines {
            self.run.samples_per_s = self.throughput.median_us();
        }
        if self.run != Run::default() {
            self.run.file.clone_from(&reading.source.file);
            reading.observed.runs.push(self.run);
        }
    }
}
