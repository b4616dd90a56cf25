//! `fatflow completions`.

use clap::CommandFactory;

use crate::terminal::{Ending, Stop, Terminal};

/// Print completions for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  fatflow completions bash > ~/.local/share/bash-completion/completions/fatflow")]
pub(crate) struct Arguments {
    /// The shell
    shell: clap_complete::Shell,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("a script")?;
        let mut command = crate::arguments::Arguments::command();
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "fatflow", &mut text);
        terminal.write(&String::from_utf8_lossy(&text))?;
        Ok(Ending::Done)
    }
}
