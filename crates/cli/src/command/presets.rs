//! `fatflow presets`.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use commands::presets::{self, Kind};

use crate::terminal::{Ending, Stop, Terminal};

/// List what a scenario can start from: presets, and the hardware of the catalogue
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow presets
  fatflow presets --kind switch
  fatflow presets --kind gpu --json")]
pub(crate) struct Arguments {
    /// What to list
    #[arg(long, value_enum, default_value = "preset")]
    kind: Listed,
}

/// [`Kind`], as the command line spells it.
#[derive(Clone, Copy, Debug)]
struct Listed(Kind);

impl ValueEnum for Listed {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Listed; Kind::ALL.len()] = {
            let mut all = [Listed(Kind::Preset); Kind::ALL.len()];
            let mut index = 0;
            while index < all.len() {
                all[index] = Listed(Kind::ALL[index]);
                index += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()))
    }
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let presets = presets::run(self.kind.0, &terminal.global.request(None))?;
        terminal.answer("presets", None, &presets)?;
        Ok(Ending::Done)
    }
}
