//! `fatflow place`.

use std::path::{Path, PathBuf};

use commands::files::{refuse_one_for_two, save_text};
use commands::place::{self, Options};
use scenario::Purpose;

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Choose the servers of a job and the order of its ranks: few bytes over few cables
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow place my.toml
  sinfo -N | fatflow place my.toml --nodes - --hostfile hosts
  fatflow place my.toml --busy taken.txt --rankfile ranks.txt
  fatflow place gpt4-azure --json | jq .result.bytes_per_tier

Without a list of nodes the servers are free that job.placement.busy leaves.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// What `sinfo` or `scontrol show node` prints (- for standard input): idle nodes are free
    #[arg(long, value_name = "FILE", group = "known")]
    nodes: Option<PathBuf>,
    /// A list of the free nodes: names or host lists
    #[arg(long, value_name = "FILE", group = "known")]
    free: Option<PathBuf>,
    /// A list of nodes that cannot be had: names or host lists
    #[arg(long, value_name = "FILE", group = "known")]
    busy: Option<PathBuf>,
    /// Also show what a rank file does; may be given several times
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    /// Write the server of every rank, a line for each, as SLURM_HOSTFILE names it
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// Write the GPU of every rank, a line for each, as job.placement reads it
    #[arg(long, value_name = "FILE")]
    rankfile: Option<PathBuf>,
    /// Write the graph and the target for Scotch's scotch_gmap
    #[arg(long, value_name = "DIR")]
    scotch: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let page = terminal.global.report.as_ref();
        let files = [
            ("--hostfile", self.hostfile.as_ref()),
            ("--rankfile", self.rankfile.as_ref()),
            ("--report", page),
        ];
        refuse_one_for_two(&files)?;
        let loaded = terminal.load(&self.scenario, Purpose::Place)?;
        let options = Options {
            nodes: self.nodes.clone(),
            free: self.free.clone(),
            busy: self.busy.clone(),
            beside: self.beside.clone(),
        };
        let line = terminal.line("searching servers and an order of ranks");
        let report = place::run(&loaded, &options)?;
        drop(line);
        let save = |path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
            Some(path) => save_text(path, &text()),
            None => Ok(()),
        };
        save(&self.hostfile, &|| report.host_file())?;
        save(&self.rankfile, &|| report.rank_file())?;
        if let Some(folder) = &self.scotch {
            for (name, text) in report.scotch() {
                save_text(&Path::new(folder).join(name), &text)?;
            }
        }
        terminal.answer("place", Some(&loaded), &report)?;
        Ok(Ending::Done)
    }
}
