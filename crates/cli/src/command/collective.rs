//! `fatflow collective`.

use std::path::PathBuf;

use clap::ValueEnum;
use commands::collective::bench::{self, START_S};
use commands::collective::{self, Report, Sizes, measured, table};
use commands::files::capture::{self, USUAL_LIMIT, Wanted};
use commands::files::{refuse_one_for_two, save_text};
use commands::{Failure, cross_check};
use packetsim::tap::Tape;
use traffic::collective::Collective;
use units::{Bytes, Span};
use scenario::{Loaded, Purpose};

use crate::arguments::{PatienceArgument, ScenarioArgument, SeedsArgument};
use crate::terminal::{Ending, Stop, Terminal};

/// Run one collective over message sizes: a table in the shape of nccl-tests
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow collective all_reduce small-128
  fatflow collective alltoall -b 8 -e 1G -f 4 small-1024
  fatflow collective all_reduce -e 256M --gpus 64 small-128 --engine packet
  fatflow collective all_reduce -e 16M --gpus 64 small-128 --engine all
  fatflow collective all_reduce -b 1M -e 4M small-128 -g 16 --engine packet --pcap ring.pcapng
  fatflow collective all_reduce my.toml --measured all_reduce_perf.txt --report busbw.html
  fatflow collective all_reduce -b 1G -e 1G --gpus 1024 llama3-meta-roce --seeds 20
  fatflow collective all_to_all -b 4M -e 4M small-128 --engine packet --iterations 100
  fatflow collective all_reduce my.toml --nccl-tests all_reduce.txt --noise 0.02
  fatflow collective all_reduce my.toml --nccl-tests t.txt --nccl-log nccl.log --counters nics.om
  fatflow collective all_reduce my.toml --json | jq '.result.rows[].busbw_GBps'

Sizes are binary, as in nccl-tests: 1M is 1,048,576 bytes. Bandwidths are in 10^9 bytes per second.")]
pub(crate) struct Arguments {
    /// The collective
    collective: Name,
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// The smallest message; a bare number counts bytes
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "1M", value_parser = size)]
    min: Bytes,
    /// The largest message
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    max: Bytes,
    /// From one size to the next
    #[arg(short = 'f', long, value_name = "N", default_value_t = 2)]
    factor: u64,
    /// GPUs that take part, in all servers together (nccl-tests' -g counts those of one thread)
    /// [default: all]
    #[arg(short = 'g', long, value_name = "N")]
    gpus: Option<usize>,
    /// Run each size so often in a row, with queue pairs, rates and queues kept: how even are they?
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,
    /// What nccl-tests printed on the real machine, to be shown beside the prediction
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    /// Also write the table as nccl-tests prints it
    #[arg(long, value_name = "FILE.txt")]
    nccl_tests: Option<PathBuf>,
    /// Also write what NCCL logs meanwhile (NCCL_DEBUG=INFO, with GRAPH, NET, ENV and TUNING)
    #[arg(long, value_name = "FILE.log", requires = "nccl_tests")]
    nccl_log: Option<PathBuf>,
    /// Also write what the NICs count meanwhile, under the names of node_exporter
    #[arg(long, value_name = "FILE.om", requires = "nccl_tests")]
    counters: Option<PathBuf>,
    /// How often they are read
    #[arg(long, value_name = "SPAN", requires = "counters", default_value = "1s")]
    counters_every: Span,
    /// When they are read first, in seconds since 1970 [default: the start of 2026]
    #[arg(long, value_name = "SECONDS", requires = "counters", default_value_t = START_S,
          hide_default_value = true)]
    counters_start: u64,
    /// Write the packets of all sizes as RoCEv2, one behind the other, each where its way ended
    #[arg(long, value_name = "FILE.pcapng")]
    pcap: Option<PathBuf>,
    /// The longest that file may be: what comes later is left out, and the answer says so
    #[arg(long, value_name = "BYTES", requires = "pcap", default_value_t = USUAL_LIMIT)]
    pcap_limit: Bytes,
    /// Let the times in that file vary by so much, as a benchmark's do: the standard deviation of
    /// their logarithm
    #[arg(long, value_name = "SHARE", requires = "nccl_tests", default_value_t = 0.0,
          value_parser = table::noise)]
    noise: f64,
    #[command(flatten)]
    seeds: SeedsArgument,
    #[command(flatten)]
    patience: PatienceArgument,
}

/// The collectives by the names that people know.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Name {
    #[value(alias = "allreduce", alias = "all-reduce", alias = "all_reduce_perf")]
    AllReduce,
    #[value(alias = "allgather", alias = "all-gather", alias = "all_gather_perf")]
    AllGather,
    #[value(alias = "reducescatter", alias = "reduce-scatter", alias = "reduce_scatter_perf")]
    ReduceScatter,
    #[value(alias = "alltoall", alias = "all-to-all", alias = "alltoall_perf")]
    AllToAll,
    #[value(alias = "bcast", alias = "broadcast_perf")]
    Broadcast,
    #[value(alias = "reduce_perf")]
    Reduce,
    #[value(alias = "gather_perf")]
    Gather,
    #[value(alias = "scatter_perf")]
    Scatter,
    #[value(alias = "sendrecv", alias = "send-recv", alias = "sendrecv_perf")]
    SendRecv,
}

impl Name {
    fn meaning(self) -> Collective {
        match self {
            Self::AllReduce => Collective::AllReduce,
            Self::AllGather => Collective::AllGather,
            Self::ReduceScatter => Collective::ReduceScatter,
            Self::AllToAll => Collective::AllToAll,
            Self::Broadcast => Collective::Broadcast,
            Self::Reduce => Collective::Reduce,
            Self::Gather => Collective::Gather,
            Self::Scatter => Collective::Scatter,
            Self::SendRecv => Collective::SendRecv,
        }
    }
}

/// A size as nccl-tests takes it: bytes where it has no unit.
fn size(text: &str) -> Result<Bytes, String> {
    let is_bare = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let text = if is_bare { format!("{text}B") } else { text.to_owned() };
    text.parse().map_err(|error| format!("{error}; write it like 8, 64K, 1M or 4GiB"))
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let collective = self.collective.meaning();
        refuse_one_for_two(&[
            ("--nccl-tests", self.nccl_tests.as_ref()),
            ("--nccl-log", self.nccl_log.as_ref()),
            ("--counters", self.counters.as_ref()),
            ("--pcap", self.pcap.as_ref()),
            ("--report", terminal.global.report.as_ref()),
        ])?;
        let purpose = |engine| Purpose::Collective(engine, collective);
        let mut loaded = terminal.load_on(&self.scenario, purpose)?;
        let sizes = Sizes { min: self.min, max: self.max, factor: self.factor };
        let options = collective::Options {
            engine: terminal.engines().unwrap_or_default(),
            patience: terminal.patience(self.patience, terminal.engines()),
            collective,
            sizes,
            gpus: self.gpus,
            iterations: self.iterations,
        };
        if terminal.engines().is_none() {
            self.seeds.refuse("`--engine all` asks every engine once")?;
            self.refuse_all_engines()?;
            let report = terminal
                .watched(|watch| cross_check::collective(&mut loaded, &options, watch))?;
            terminal.answer("collective", Some(&loaded), &report)?;
            return Ok(terminal.ending());
        }
        if !options.engine.has_contention() {
            self.seeds.refuse("closed forms have nothing random")?;
        }
        let measured = self.measured.as_deref().map(measured::read).transpose()?;
        let repeat = terminal.repeat(self.seeds);
        let limit = self.pcap_limit;
        let wanted = self.pcap.clone().map(|path| Wanted { path, limit });
        if let Some(wanted) = &wanted {
            capture::refuse(&loaded, options.engine, wanted)?;
            if 1 < repeat.seeds {
                let reason = "--pcap writes the packets of one seed: leave out --seeds";
                return Err(Failure::Usage(reason.to_owned()).into());
            }
        }
        let report = terminal.watched(|watch| {
            watch.tape = wanted.as_ref().map(|wanted| Tape::new(wanted.limit));
            let mut report = collective::run_seeds(&loaded, &options, repeat, measured, watch)?;
            if let (Some(tape), Some(wanted)) = (watch.tape.take(), &wanted) {
                report.capture = Some(capture::write(&loaded, &tape.runs, wanted)?);
            }
            Ok::<_, Failure>(report)
        })?;
        self.write(terminal, &loaded, &report)?;
        terminal.answer("collective", Some(&loaded), &report)?;
        Ok(terminal.ending())
    }

    /// What stands beside one engine.
    fn refuse_all_engines(&self) -> Result<(), Failure> {
        let reason = if self.nccl_tests.is_some() {
            "--nccl-tests writes one table: choose one engine instead of `all`"
        } else if self.pcap.is_some() {
            "--pcap writes packets, which only `--engine packet` moves"
        } else if self.measured.is_some() {
            "--measured stands beside one engine: choose one instead of `all`"
        } else {
            return Ok(());
        };
        Err(Failure::Usage(reason.to_owned()))
    }

    /// The files that were asked for.
    fn write(&self, terminal: &Terminal, loaded: &Loaded, report: &Report) -> Result<(), Stop> {
        if let Some(path) = &self.nccl_tests {
            save_text(path, &table::nccl_tests(loaded, report, self.noise))?;
        }
        if let Some(path) = &self.nccl_log {
            // A log also shows what no engine looks at, such as queue pairs under closed forms.
            let all = terminal.load(&self.scenario, Purpose::Settings)?;
            save_text(path, &bench::log(&all, report)?)?;
        }
        if let Some(path) = &self.counters {
            let clock = (self.counters_start, self.counters_every);
            save_text(path, &bench::counters(loaded, report, self.noise, clock)?)?;
        }
        Ok(())
    }
}
