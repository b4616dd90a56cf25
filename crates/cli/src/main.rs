//! The `fatflow` binary: arguments in, text out, nothing else.
//!
//! Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 invalid input, 4 a comparison or
//! validation fell short, 130 interrupted.
//!
//! # Map of the modules, in reading order
//!
//! * [`arguments`]: what every command understands.
//! * [`command`]: one file for each command.
//! * [`flags`]: what was given and did nothing.
//! * [`interrupt`]: what Ctrl-C does.
//! * [`progress`]: a line for whatever takes longer than a second.
//! * [`terminal`]: how answers and complaints are written.

mod arguments;
mod command;
mod files;
mod flags;
mod interrupt;
mod progress;
mod terminal;

use std::io;
use std::process::ExitCode;

use clap::FromArgMatches;
use commands::Failure;

use crate::arguments::Arguments;
use crate::terminal::{Stop, Terminal};

fn main() -> ExitCode {
    let parsed = arguments::command_line().try_get_matches();
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return terminal::misunderstood(&error),
    };
    if let Some(bounds) = arguments.global.bounds
        && bounds.obey().is_err()
    {
        // The server has ended: there is nobody to answer.
        return ExitCode::FAILURE;
    }
    let terminal = Terminal::new(arguments.global, arguments.command.name());
    if let Some(folder) = &terminal.global.confine
        && let Err(error) = scenario::confine(folder)
    {
        let reason = format!("cannot stay in {}: {error}", folder.display());
        terminal.complain(&Stop::Failure(Failure::Run(reason)));
        return ExitCode::FAILURE;
    }
    match commands::clock::within_the_clock(|| arguments.command.run(&terminal)) {
        Ok(ending) => {
            terminal.name_unused();
            ExitCode::from(ending as u8)
        }
        // Whoever read our output has seen enough (`fatflow presets | head -1`).
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(stop) => {
            terminal.complain(&stop);
            ExitCode::from(stop.exit_code())
        }
    }
}
