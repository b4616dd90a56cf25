//! `fatflow man`.

use clap::CommandFactory;
use commands::Failure;
use scenario::Problem;

use crate::terminal::{Ending, Stop, Terminal};

/// Print the manual page, of fatflow or of one command
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow man | man -l -
  fatflow man topo > fatflow-topo.1")]
pub(crate) struct Arguments {
    /// The command
    command: Option<String>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("a manual page")?;
        let mut whole = crate::arguments::Arguments::command();
        whole.build();
        let command = match &self.command {
            None => whole,
            Some(name) => match whole.find_subcommand(name) {
                Some(command) => command.clone().name(format!("fatflow-{name}")),
                None => return Err(unknown(name, &whole).into()),
            },
        };
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.map_err(|error| Failure::Run(error.to_string()))?;
        terminal.write(&String::from_utf8_lossy(&page))?;
        Ok(Ending::Done)
    }
}

fn unknown(name: &str, whole: &clap::Command) -> Problem {
    let names: Vec<&str> = whole.get_subcommands().map(clap::Command::get_name).collect();
    let problem = Problem::error(format!("there is no command `{name}`"));
    problem.with_help(format!("the commands are {}", names.join(", ")))
}
