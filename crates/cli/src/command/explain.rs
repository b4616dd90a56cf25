//! `fatflow explain`.

use commands::trial::Bench;
use commands::{explain, parallel};
use scenario::Purpose;

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Explain a key of the scenario file or a finding, and what it does in a scenario
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow explain network.routing.qps
  fatflow explain network.ecn
  fatflow explain network.routing.qps --scenario small-128
  fatflow explain collisions --scenario small-128
  fatflow explain network.ecn.min --scenario scenarios/bench/incast-32.toml --engine packet

With a scenario it is run again with the value doubled and halved, or with every other word. A
finding is a cause that `run` names (collisions, boundary, stalls, …) or what `observe` finds wrong
(few_queue_pairs, pfc_storm, …): it is explained by the keys that have to do with it.")]
pub(crate) struct Arguments {
    /// The dotted path of a key, or the name of a finding
    #[arg(value_name = "KEY", required_unless_present = "markdown", default_value = "")]
    key: String,
    /// Write the book's reference of every key instead
    #[arg(long, conflicts_with_all = ["key", "scenario"])]
    markdown: bool,
    /// Also tell what it does in this scenario: a preset's name or a file
    #[arg(long, value_name = "SCENARIO")]
    scenario: Option<String>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        if self.markdown {
            terminal.only_text("Markdown")?;
            terminal.write(&explain::reference())?;
            return Ok(Ending::Done);
        }
        let mut explained = explain::run(&self.key)?;
        let Some(scenario) = &self.scenario else {
            terminal.answer("explain", None, &explained)?;
            return Ok(Ending::Done);
        };
        let engine = terminal.engine()?;
        let argument = ScenarioArgument { scenario: scenario.clone() };
        let loaded = terminal.load(&argument, Purpose::Run(engine))?;
        let request = terminal.request(Some(scenario), Purpose::Run(engine));
        let bench = Bench::new(&request, Some(&terminal.interrupt.happened))?;
        let threads = parallel::threads(terminal.threads());
        let line = terminal.line("trying other values");
        let of = (engine, threads);
        let effect = |key: &str| {
            terminal.interrupt.heeded(|| explain::effect(key, &loaded, &bench, of))
        };
        match explained.finding {
            None => {
                let only = explained.entries.first().filter(|_| explained.entries.len() == 1);
                let own = only.filter(|entry| !entry.key.contains('*'));
                let key = own.map_or_else(|| self.key.clone(), |entry| entry.key.clone());
                explained.effect = Some(effect(&key)?);
            }
            Some(finding) => {
                // A table is no value that could be doubled.
                let is_value = |key: &&&str| !explain::is_table(key);
                for key in finding.keys.iter().filter(is_value) {
                    explained.effects.push((key, effect(key)?));
                }
            }
        }
        drop(line);
        terminal.answer("explain", Some(&loaded), &explained)?;
        Ok(Ending::Done)
    }
}
