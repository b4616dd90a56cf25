//! `fatflow compare`.

use commands::compare::{self, Options};

use crate::arguments::PatienceArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Compare scenarios side by side; without any, the deployments of the comparative analysis
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow compare
  fatflow compare llama3-meta-roce llama3-meta-ib
  fatflow compare mine.toml other.toml --engine analytic --report compare.html
  fatflow compare --json | jq '.result.rows[] | select(.metric == \"mfu\")'")]
pub(crate) struct Arguments {
    /// Presets or scenario files
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    #[command(flatten)]
    patience: PatienceArgument,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let options = Options {
            scenarios: self.scenarios.clone(),
            engine: terminal.engine()?,
            threads: terminal.global.threads,
            patience: self.patience.patience(),
        };
        let line = terminal.line("comparing");
        let tell = |text: &str| line.tell(text, 0, 0);
        let interrupt = &terminal.interrupt;
        let request = terminal.global.request(None);
        let report =
            interrupt.heeded(|| compare::run(&options, &request, &interrupt.happened, &tell))?;
        drop(line);
        terminal.answer("compare", None, &report)?;
        Ok(terminal.ending())
    }
}
