//! `fatflow validate`.

use std::path::PathBuf;

use commands::Failure;
use commands::files::refuse_one_for_two;
use commands::validate::ratchet::Ratchet;
use commands::validate::{self, Options};


use crate::terminal::{Ending, Stop, Terminal};

/// Score predictions: every published measurement beside what is predicted, with the error
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow validate
  fatflow validate --threshold 0.1
  fatflow validate --ratchet validation/ratchet.toml
  fatflow validate my-cluster.csv --engine analytic
  fatflow validate measurements/ --report validate.html

Without files the published measurements in the binary are scored. Tables are recognised by their
columns; packet runs are a `*.toml` with the `.csv` of flows beside it.")]
pub(crate) struct Arguments {
    /// Tables, packet runs, or folders of them
    #[arg(value_name = "PATH")]
    inputs: Vec<PathBuf>,
    /// The most that a family's mean error may be, as a fraction; above it the exit code is 4
    #[arg(long, value_name = "SHARE")]
    threshold: Option<f64>,
    /// A file of errors that must not have grown; if they have, the exit code is 4
    #[arg(long, value_name = "FILE.toml")]
    ratchet: Option<PathBuf>,
    /// Write the errors to such a file
    #[arg(long, value_name = "FILE.toml", conflicts_with = "ratchet")]
    write_ratchet: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let (errors, page) = (self.write_ratchet.as_ref(), terminal.global.report.as_ref());
        refuse_one_for_two(&[("--write-ratchet", errors), ("--report", page)])?;
        let options = Options {
            inputs: self.inputs.clone(),
            engine: terminal.engine()?,
            threshold: self.threshold,
            ratchet: self.ratchet.clone(),
            threads: terminal.threads(),
        };
        let line = terminal.line("scoring");
        let tell = |done, all| line.tell(&format!("{done} of {all} measurements"), done, all);
        let report = validate::run(&options, &terminal.catalogue_request()?, &tell)?;
        drop(line);
        if let Some(path) = &self.write_ratchet {
            let failed = |error| Failure::Run(format!("cannot write {}: {error}", path.display()));
            std::fs::write(path, Ratchet::of(&report).text()).map_err(failed)?;
        }
        terminal.answer("validate", None, &report)?;
        Ok(if report.passed { Ending::Done } else { Ending::FellShort })
    }
}
