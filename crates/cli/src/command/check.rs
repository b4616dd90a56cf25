//! `fatflow check`.

use commands::check::{self, Detail};
use scenario::{Purpose, load};

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Say whether a scenario is valid: every mistake at once, each with its line and what would be
/// right
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow check my.toml
  fatflow check my.toml --print
  fatflow check my.toml --set network.routing.qps=16 --print --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Show every resolved value and where it came from
    #[arg(long)]
    print: bool,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let detail = if self.print { Detail::Values } else { Detail::Verdict };
        let purpose = Purpose::Settings;
        match load(&terminal.request(Some(&self.scenario.scenario), purpose)) {
            Ok(loaded) => {
                let check = check::run(&loaded, detail);
                terminal.answer("check", Some(&loaded), &check)?;
                Ok(Ending::Done)
            }
            Err(problems) if terminal.global.json => {
                terminal.answer("check", None, &check::refusal(&problems))?;
                Ok(Ending::InvalidInput)
            }
            Err(problems) => Err(problems.into()),
        }
    }
}
