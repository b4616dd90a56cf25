//! `fatflow init`.

use scenario::Purpose;

use crate::terminal::{Ending, Stop, Terminal};

/// Write a scenario file that starts from a preset
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  fatflow init small-16 > my.toml
  fatflow init small-128 --set network.routing.qps=16 > my.toml
  fatflow check my.toml")]
pub(crate) struct Arguments {
    /// The preset; `fatflow presets` lists them
    preset: String,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("a scenario file")?;
        let request = terminal.request(None, Purpose::Settings);
        terminal.write(&commands::init::run(&self.preset, &request)?)?;
        Ok(Ending::Done)
    }
}
