//! `fatflow claims`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use commands::Failure;
use commands::claims::{self, Options};

use scenario::Purpose;

use crate::terminal::{Ending, Stop, Terminal};

/// Test what the source documents say, with numbers and without: the scenario, and the verdict
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow claims
  fatflow claims mfu latency
  fatflow claims --report claims.html
  fatflow claims --statements statements.md
  fatflow claims --json | jq '.result.claims[] | select(.verdict == \"disagrees\")'")]
pub(crate) struct Arguments {
    /// Only claims with one of these words in their name
    #[arg(value_name = "WORD")]
    ids: Vec<String>,
    /// Write the page of the book instead of the sheet
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Also write the documents paragraph by paragraph: command, verdict and figure of every
    /// statement, table and recommendation
    #[arg(long, value_name = "FILE.md")]
    statements: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        if self.markdown {
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
        if let Some(path) = &self.statements {
            let page = report.statements();
            std::fs::write(path, page).map_err(|error| {
                Failure::Run(format!("cannot write {}: {error}", path.display()))
            })?;
        }
        if self.markdown {
            terminal.write(&report.markdown())?;
        } else {
            terminal.answer("claims", None, &report)?;
        }
        Ok(Ending::Done)
    }
}
