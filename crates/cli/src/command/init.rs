//! `fatflow init`.

use scenario::Purpose;

use crate::terminal::{Ending, Stop, Terminal};

/// Write a scenario file that starts from a preset
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  fatflow init small-16 > my.toml
  fatflow init small-128 --set network.routing.qps=16 > my.toml
  fatflow init --published llama3-405b-16k > published.toml
  fatflow check my.toml")]
pub(crate) struct Arguments {
    /// The preset; `fatflow presets` lists them
    #[arg(required_unless_present = "published")]
    preset: Option<String>,
    /// Instead a published step that `fatflow validate` predicts, by its name
    #[arg(long, value_name = "STEP", conflicts_with = "preset")]
    published: Option<String>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("a scenario file")?;
        let request = terminal.request(None, Purpose::Settings);
        let text = match (&self.preset, &self.published) {
            (_, Some(step)) => commands::init::published(step, &request)?,
            (preset, _) => {
                commands::init::run(preset.as_deref().unwrap_or_default(), &request)?
            }
        };
        terminal.write(&text)?;
        Ok(Ending::Done)
    }
}
