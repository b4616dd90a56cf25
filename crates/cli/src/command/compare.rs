//! `fatflow compare`.

use commands::compare::{self, Options};
use commands::{Failure, history, told};
use scenario::Purpose;

use crate::arguments::{PatienceArgument, SeedsArgument};
use crate::terminal::{Ending, Stop, Terminal};

/// Compare scenarios side by side; without any, the deployments of the comparative analysis
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow compare
  fatflow compare llama3-meta-roce llama3-meta-ib
  fatflow compare mine.toml other.toml --engine analytic --report compare.html
  fatflow compare --told --engine analytic
  fatflow compare --history --engine analytic
  fatflow compare llama3-meta-roce --vary network.routing.qps=1,4,16
  fatflow compare mine.toml --vary fabric.oversubscription=1:1,2:1,4:1
  fatflow compare mine.toml --networks
  fatflow compare scenarios/remedies/*.toml --vary traffic.placement=linear,fragmented --seeds 4
  fatflow compare --json | jq '.result.rows[] | select(.metric == \"mfu\")'")]
pub(crate) struct Arguments {
    /// Presets or scenario files
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Run every scenario with each of these values; several such flags combine
    #[arg(long, value_name = "KEY=VALUE,...")]
    vary: Vec<String>,
    /// The job on RoCE, tuned RoCE, Spectrum-X, InfiniBand, Ultra Ethernet, each with its own boxes
    /// (all of their ports, whatever `fabric.radix` says) and cards
    #[arg(long, requires = "scenarios", conflicts_with_all = ["told", "history"])]
    networks: bool,
    /// The article's two tables instead, from its own inputs and from better sources
    #[arg(long, conflicts_with_all = ["scenarios", "vary"])]
    told: bool,
    /// The article's line through the years instead: bytes, demand, MFU, the network's share
    #[arg(long, conflicts_with_all = ["scenarios", "vary", "told"])]
    history: bool,
    /// Show every row, also those that do not differ, with what was published and its sources
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    seeds: SeedsArgument,
    #[command(flatten)]
    patience: PatienceArgument,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let engine = terminal.engine()?;
        if self.told {
            self.seeds.refuse("both readings are run once")?;
            let line = terminal.line("reading twice");
            let request = terminal.request(None, Purpose::Run(engine));
            let tell = |text: &str| line.tell(text, 0, 0);
            let report = told::run(&request, engine, terminal.threads(), &tell);
            drop(line);
            terminal.answer("compare", None, &report)?;
            return Ok(terminal.ending());
        }
        if self.history {
            self.seeds.refuse("every year is run once")?;
            let line = terminal.line("through the years");
            let request = terminal.request(None, Purpose::Run(engine));
            let tell = |text: &str| line.tell(text, 0, 0);
            let report = history::run(&request, engine, terminal.threads(), &tell)?;
            drop(line);
            terminal.answer("compare", None, &report)?;
            return Ok(terminal.ending());
        }
        let (scenarios, (given, notes)) = match (self.networks, &self.scenarios[..]) {
            (true, [one]) => {
                let request = terminal.request(None, Purpose::Settings);
                (Vec::new(), compare::on_networks(one, &request)?)
            }
            (true, _) => {
                let reason = "--networks takes one scenario".to_owned();
                return Err(Failure::Usage(reason).into());
            },
            (false, several) => (several.to_vec(), Default::default()),
        };
        let options = Options {
            scenarios,
            engine,
            threads: terminal.threads(),
            patience: terminal.patience(self.patience, Some(engine)),
            vary: self.vary.clone(),
            seeds: self.seeds.seeds,
            given,
            notes,
        };
        let line = terminal.line("comparing");
        let tell = |text: &str| line.tell(text, 0, 0);
        let interrupt = &terminal.interrupt;
        let request = terminal.request(None, Purpose::Run(options.engine));
        let mut report =
            interrupt.heeded(|| compare::run(&options, &request, &interrupt.happened, &tell))?;
        drop(line);
        report.all = self.all;
        terminal.answer("compare", None, &report)?;
        Ok(terminal.ending_with(&report.targets))
    }
}
