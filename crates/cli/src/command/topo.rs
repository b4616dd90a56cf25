//! `fatflow topo`.

use commands::topo;

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Describe a fabric: tiers, links, bisection, oversubscription, paths, cost and power
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow topo small-128
  fatflow topo my.toml --set 'fabric.oversubscription=[1, 7]'
  fatflow topo my.toml --json
  fatflow topo my.toml --dot | dot -Tsvg > fabric.svg")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Write the fabric as a graph for Graphviz instead
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    dot: bool,
    /// Write the list of its cables as CSV instead
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let loaded = terminal.load(&self.scenario)?;
        if self.dot {
            terminal.write(&topo::dot(loaded.fabric()))?;
        } else if self.csv {
            terminal.write(&topo::csv(loaded.fabric()))?;
        } else {
            terminal.answer("topo", Some(&loaded), &topo::run(&loaded))?;
        }
        Ok(Ending::Done)
    }
}
