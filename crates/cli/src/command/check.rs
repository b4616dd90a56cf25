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
  fatflow check my.toml --engine packet          what would `run` not obey there?
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
        let (purpose, engine) = (Purpose::Settings, terminal.engine()?);
        match load(&terminal.request(Some(&self.scenario.scenario), purpose)) {
            Ok(mut loaded) => {
                // What `run` would not obey is better known before.
                if loaded.job.is_some() || loaded.scenario.traffic.is_some() {
                    loaded.unused = loaded.unused_for(Purpose::Run(engine));
                }
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
