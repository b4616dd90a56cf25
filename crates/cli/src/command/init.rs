//! `fatflow init`.

use commands::init;
use scenario::Purpose;

use crate::terminal::{Ending, Stop, Terminal};

/// Write a scenario file: of a cluster of your own, or starting from a preset
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow init own > my.toml
  fatflow init own --set cluster.gpu=h200-sxm --set cluster.gpus=512 > my.toml
  fatflow init small-16 > my.toml
  fatflow init small-128 --set network.routing.qps=16 > my.toml
  fatflow init --published llama3-405b-16k > published.toml
  fatflow check my.toml")]
pub(crate) struct Arguments {
    /// The preset; `fatflow presets` lists them. `own` starts from none
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
        let (text, said) = match (&self.preset, &self.published) {
            (_, Some(step)) => (init::published(step, &request)?, Vec::new()),
            (Some(preset), _) if preset == init::OWN => init::own(&request)?,
            (preset, _) => {
                (init::run(preset.as_deref().unwrap_or_default(), &request)?, Vec::new())
            }
        };
        terminal.write(&text)?;
        said.iter().for_each(|said| terminal.remark(said));
        Ok(Ending::Done)
    }
}
