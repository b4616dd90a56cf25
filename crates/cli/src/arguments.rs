//! What every command understands: the global flags, and how a scenario is named.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, ValueEnum};
use commands::Failure;
use commands::packets::Patience;
use scenario::{Extent, Purpose, Request};

use crate::command::Command;

/// What traffic a training job puts on a scale-out fabric, what the fabric does with it, and what
/// that costs the job.
#[derive(Debug, Parser)]
#[command(name = "fatflow", version = VERSION, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The version, with the commit that it was built from where that is known.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("FATFLOW_COMMIT"));

/// Help shows examples before the many options.
const HELP: &str = "\
{before-help}{about-with-newline}
{usage-heading} {usage}{after-help}

{all-args}";

/// The command line as it is understood, with its help laid out.
pub(crate) fn command_line() -> clap::Command {
    fn laid_out(command: clap::Command) -> clap::Command {
        command.help_template(HELP).mut_subcommands(laid_out)
    }
    laid_out(Arguments::command())
}

const EXAMPLES: &str = "\
Examples:
  fatflow presets                      what can I start from?
  fatflow init own > my.toml           a file for a cluster of your own, with its job
  fatflow check my.toml --print        every value, and where it came from
  fatflow topo my.toml                 what is this fabric?

Settings: default < catalogue < preset < file < environment < flag. The environment variable
FATFLOW_SET_network__routing__qps=16 and the flag --set network.routing.qps=16 set one value.
Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 invalid input, 4 a target, comparison or
validation fell short, 130 interrupted. An interrupted packet run tells what it knows by then; a
second interrupt ends it at once.";

/// The flags that every command has.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Answer with JSON on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Also write the answer as a self-contained page with charts
    #[arg(long, global = true, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// The seed of everything random
    #[arg(long, global = true, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Threads to use at most; results do not depend on it [default: all cores]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// How the network is computed
    #[arg(long, global = true, value_enum)]
    pub(crate) engine: Option<Engine>,
    /// Override one setting, such as `network.routing.qps=16`; may be given several times
    #[arg(long = "set", global = true, value_name = "PATH=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<String>,
    /// Targets by name: `article` wants 5 us in a rack and 20 us between racks; one that is
    /// missed makes the exit code 4
    #[arg(long, global = true, value_name = "NAME", value_parser = targets)]
    pub(crate) targets: Option<&'static [&'static str]>,
    /// Hardware of your own: a TOML file or a folder of them, or a price list as CSV
    /// (kind,name,usd,low,high); may be given several times
    #[arg(long, global = true, value_name = "PATH", env = "FATFLOW_CATALOGUE")]
    pub(crate) catalogue: Vec<PathBuf>,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", alias = "colour")]
    pub(crate) color: clap::ColorChoice,
    /// Read no file outside this folder
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) confine: Option<PathBuf>,
    /// What this process may use, as the local server says to its children
    #[arg(long, global = true, hide = true)]
    pub(crate) bounds: Option<serve::child::Bounds>,
    /// Tell progress in whole lines on standard error, for programs
    #[arg(long, global = true, hide = true)]
    pub(crate) progress: bool,
    /// Say nothing but the answer
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// How the network is computed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Engine {
    /// Latency and bandwidth terms on the real routes
    Analytic,
    /// Every flow on its hashed path, at max-min fair rates
    Flow,
    /// Every packet through NIC, switch and link
    Packet,
    /// All of them, side by side with their differences (run, collective)
    All,
}

/// Over how many seeds something is run.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SeedsArgument {
    /// Run this many seeds, from the scenario's own on: mean, percentiles, 95 % confidence
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) seeds: u32,
}

impl SeedsArgument {
    /// Refuses several seeds where one is all that there is.
    pub(crate) fn refuse(self, why: &str) -> Result<(), Failure> {
        match self.seeds {
            1 => Ok(()),
            _ => Err(Failure::Usage(format!("--seeds: {why}"))),
        }
    }
}

/// How patient somebody is with the packet engine.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PatienceArgument {
    /// Run packets even if it will take more than ten minutes or the memory that there is
    #[arg(long)]
    force: bool,
}

impl PatienceArgument {
    pub(crate) fn patience(self) -> Patience {
        if self.force { Patience::Endless } else { Patience::Usual }
    }
}

impl Global {
    /// What `--targets` and `--set` set; what is written out comes last.
    fn assignments(&self) -> Vec<String> {
        let targets = self.targets.unwrap_or_default().iter().map(|set| (*set).to_owned());
        targets.chain(self.set.iter().cloned()).collect()
    }

    /// The request to load a scenario with everything that flags and environment say.
    pub(crate) fn request(&self, scenario: Option<&str>, purpose: Purpose) -> Request {
        // Variables that are not text cannot name or set anything.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Request {
            scenario: scenario.map(str::to_owned),
            catalogue: self.catalogue.clone(),
            environment,
            set: self.assignments(),
            seed: self.seed,
            extent: Extent::Whole,
            purpose,
            ..Request::default()
        }
    }
}

fn targets(text: &str) -> Result<&'static [&'static str], String> {
    let known = scenario::Targets::SETS.into_iter().find(|(name, _)| *name == text);
    let names = scenario::Targets::SETS.map(|(name, _)| name).join(", ");
    known.map(|(_, set)| set).ok_or(format!("there are: {names}; others are `--set targets.…`"))
}

fn assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((path, _)) if !path.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write it like `network.routing.qps=16`".to_owned()),
    }
}

/// The scenario that a command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScenarioArgument {
    /// A preset's name, a scenario file, or `-` for standard input
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: String,
}
