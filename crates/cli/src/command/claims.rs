//! `fatflow claims`.

use std::io::{self, IsTerminal};

use commands::claims::{self, Options};

use scenario::Purpose;

use crate::terminal::{Ending, Stop, Terminal};

/// Test what the seeds say, with a number and without: the scenario that tests it, and the verdict
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow claims
  fatflow claims mfu latency
  fatflow claims --report claims.html
  fatflow claims --statements > statements.md
  fatflow claims --json | jq '.result.claims[] | select(.verdict == \"disagrees\")'")]
pub(crate) struct Arguments {
    /// Only claims with one of these words in their name
    #[arg(value_name = "WORD")]
    ids: Vec<String>,
    /// Write the page of the book instead of the sheet
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write the documents paragraph by paragraph instead: command, verdict and figure of every
    /// statement, table and recommendation
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    statements: bool,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        if self.markdown || self.statements {
            terminal.no_page("the page of the book")?;
        }
        let options = Options {
            ids: self.ids.clone(),
            engine: terminal.engine()?,
            threads: terminal.threads(),
        };
        let is_watched = io::stderr().is_terminal();
        let tell = |text: &str| {
            if is_watched {
                terminal.remark(text);
            }
        };
        let report = claims::run(&options, &terminal.request(None, Purpose::Settings), &tell)?;
        if self.markdown {
            terminal.write(&report.markdown())?;
        } else if self.statements {
            terminal.write(&report.statements())?;
        } else {
            terminal.answer("claims", None, &report)?;
        }
        Ok(Ending::Done)
    }
}
