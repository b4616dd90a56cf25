//! `fatflow compare`.

use std::io::{self, IsTerminal};

use commands::compare::{self, Options};

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
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let options = Options {
            scenarios: self.scenarios.clone(),
            engine: terminal.engine(),
            threads: terminal.global.threads,
        };
        let is_watched = io::stderr().is_terminal();
        let tell = |text: &str| {
            if is_watched {
                terminal.remark(text);
            }
        };
        let report = compare::run(&options, &terminal.global.request(None), &tell)?;
        terminal.answer("compare", None, &report)?;
        Ok(Ending::Done)
    }
}
