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
  fatflow topo my.toml --set 'fabric.oversubscription=1:1, 7:1'
  fatflow topo my.toml --json
  fatflow topo my.toml --targets article
  fatflow topo llama3-meta-roce --domains
  fatflow topo llama3-meta-roce --operations
  fatflow topo small-128 small-1024
  fatflow topo my.toml --dot | dot -Tsvg > fabric.svg
  fatflow topo my.toml --clab > my.clab.yml")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// A second fabric: what going there keeps, buys, moves and leaves over
    #[arg(value_name = "GROWS INTO", conflicts_with_all = ["domains", "operations", "form"])]
    to: Option<String>,
    /// Also say what one failure of each kind of part stops, what it leaves, and its share of the
    /// lost time
    #[arg(long, conflicts_with = "form")]
    domains: bool,
    /// Also count what the network asks of operators: devices, settings and lines, with what is
    /// told of its kind
    #[arg(long, conflicts_with = "form")]
    operations: bool,
    /// Servers of a rack [default: those below one leaf; four where leaves are not of a rack]
    #[arg(long, value_name = "N", requires = "domains", value_parser = clap::value_parser!(u32).range(1..))]
    rack_servers: Option<u32>,
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
        let purpose = if self.domains { Purpose::Domains } else { Purpose::Topology };
        let mut loaded = terminal.load(&self.scenario, purpose)?;
        if self.operations {
            // Operators are told of the network as it is written.
            loaded.unused.retain(|unused| !unused.key.starts_with("network."));
        }
        if let Some(to) = &self.to {
            let to = terminal.load(&ScenarioArgument { scenario: to.clone() }, purpose)?;
            terminal.answer("topo", Some(&loaded), &topo::grow(&loaded, &to))?;
            return Ok(Ending::Done);
        }
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
                let report = match self.domains {
                    true => topo::with_domains(&loaded, self.rack_servers)?,
                    false => topo::run(&loaded),
                };
                let report = match self.operations {
                    true => report.with_operations(&loaded)?,
                    false => report,
                };
                drop(line);
                terminal.answer("topo", Some(&loaded), &report)?;
                return Ok(terminal.ending_with(&report.targets));
            }
        }
        Ok(Ending::Done)
    }
}
