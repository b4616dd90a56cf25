//! One file for each command: its flags, what it runs, what it writes.
//!
//! To add a command, write its file here and add one line to the list below. The doc comment of
//! its `Arguments` is its help text.

use clap::Subcommand;

use crate::terminal::{Ending, Stop, Terminal};

/// Declares the modules, the enum of all commands, and the dispatch.
macro_rules! commands {
    ($($variant:ident $module:ident)*) => {
        $(mod $module;)*

        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($variant($module::Arguments),)*
        }

        impl Command {
            /// What it is called on the command line.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($module),)*
                }
            }

            pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
                match self {
                    $(Self::$variant(arguments) => arguments.run(terminal),)*
                }
            }
        }
    };
}

commands! {
    Presets presets
    Init init
    Check check
    Topo topo
    Collective collective
    Run run
    Traffic traffic
    Advise advise
    Place place
    Observe observe
    Compare compare
    Sweep sweep
    Validate validate
    Claims claims
    Serve serve
    Explain explain
    Schema schema
    Completions completions
    Man man
}
