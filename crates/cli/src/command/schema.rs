//! `fatflow schema`.

use commands::Failure;

use crate::terminal::{Ending, Stop, Terminal};

/// Print the JSON Schema of the scenario file, from which editors complete and check
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  fatflow schema > fatflow.schema.json
Then begin a scenario with `#:schema ./fatflow.schema.json`.")]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.no_page("a schema")?;
        let json = serde_json::to_string_pretty(scenario::schema().as_json());
        let json = json.map_err(|error| Failure::Run(error.to_string()))?;
        terminal.write(&(json + "\n"))?;
        Ok(Ending::Done)
    }
}
