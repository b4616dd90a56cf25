//! `fatflow topo`.

use commands::topo::{self, Form};
use scenario::Purpose;

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Describe a fabric: tiers, links, bisection, oversubscription, paths, cost and power
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow topo small-128
  fatflow topo my.toml --set 'fabric.oversubscription=[1, 7]'
  fatflow topo my.toml --json
  fatflow topo my.toml --dot | dot -Tsvg > fabric.svg
  fatflow topo my.toml --clab > my.clab.yml")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Write the back-end as a graph for Graphviz instead
    #[arg(long, group = "form", conflicts_with = "json")]
    dot: bool,
    /// Write the list of its cables as CSV instead
    #[arg(long, group = "form", conflicts_with = "json")]
    csv: bool,
    /// Write it as a containerlab topology instead
    #[arg(long, group = "form", conflicts_with = "json")]
    clab: bool,
    /// Write it as Slurm's topology.conf instead
    #[arg(long, group = "form", conflicts_with = "json")]
    slurm: bool,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let loaded = terminal.load(&self.scenario, Purpose::Topology)?;
        let forms = [
            (self.dot, Form::Graphviz),
            (self.csv, Form::EdgeList),
            (self.clab, Form::Containerlab),
            (self.slurm, Form::Slurm),
        ];
        match forms.into_iter().find(|(wanted, _)| *wanted) {
            Some((_, form)) => {
                terminal.no_page("a file for other tools")?;
                terminal.write(&topo::write(&loaded, form))?;
            }
            None => {
                let line = terminal.line("describing the fabric");
                let report = topo::run(&loaded);
                drop(line);
                terminal.answer("topo", Some(&loaded), &report)?;
            }
        }
        Ok(Ending::Done)
    }
}
