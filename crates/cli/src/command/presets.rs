//! `fatflow presets`.

use clap::builder::PossibleValuesParser;
use commands::presets::{self, Kind};


use crate::terminal::{Ending, Stop, Terminal};

/// List what a scenario can start from: presets, hardware, models, and the words of settings
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow presets
  fatflow presets llama3-meta-roce
  fatflow presets switches
  fatflow presets --kind congestion --json")]
pub(crate) struct Arguments {
    /// Describe this preset, with what has been published about it; or list a kind: models, gpus
    #[arg(conflicts_with = "kind")]
    preset: Option<String>,
    /// What to list
    #[arg(long, default_value = "preset", value_parser = kinds())]
    kind: String,
}

fn kinds() -> PossibleValuesParser {
    Kind::ALL.iter().map(|kind| kind.name).collect::<Vec<_>>().into()
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let asked = self.preset.as_deref().and_then(Kind::named);
        if let Some(preset) = self.preset.as_ref().filter(|_| asked.is_none()) {
            terminal.answer("presets", None, &presets::details(preset)?)?;
            return Ok(Ending::Done);
        }
        let kind = Kind::ALL.iter().find(|kind| kind.name == self.kind);
        let kind = asked.or(kind.copied()).expect("the parser lets only known kinds through");
        let presets = presets::run(kind, &terminal.catalogue_request(&[])?)?;
        terminal.answer("presets", None, &presets)?;
        Ok(Ending::Done)
    }
}
