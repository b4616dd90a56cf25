//! `fatflow validate`.

use std::path::{Path, PathBuf};

use commands::Failure;
use commands::files::{refuse_one_for_two, save_bytes};
use commands::validate::left_out::CONSTANTS;
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
  fatflow validate --leave-out validation

A row counts for its cluster: `left out` is the error with every constant that measurements set
set again without that cluster, and an interval comes from the errors of other clusters.

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
    /// Set every constant again without each cluster, which takes minutes, and write what comes out
    /// (left_out.toml) and the errors then (residuals.csv) into a folder, for the next build
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["inputs", "threshold", "ratchet", "write_ratchet"])]
    leave_out: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let (errors, page) = (self.write_ratchet.as_ref(), terminal.global.report.as_ref());
        refuse_one_for_two(&[("--write-ratchet", errors), ("--report", page)])?;
        if let Some(folder) = &self.leave_out {
            return self.leave_out(terminal, folder);
        }
        let options = Options {
            inputs: self.inputs.clone(),
            engine: terminal.engine()?,
            threshold: self.threshold,
            ratchet: self.ratchet.clone(),
            threads: terminal.threads(),
        };
        let constants: Vec<&str> = CONSTANTS.iter().map(|constant| constant.key).collect();
        let request = terminal.catalogue_request(&constants)?;
        let line = terminal.line("scoring");
        let tell = |done, all| line.tell(&format!("{done} of {all} measurements"), done, all);
        let report = validate::run(&options, &request, &tell)?;
        drop(line);
        if let Some(path) = &self.write_ratchet {
            write(path, &Ratchet::of(&report).text())?;
        }
        terminal.answer("validate", None, &report)?;
        Ok(if report.passed { Ending::Done } else { Ending::FellShort })
    }

    fn leave_out(&self, terminal: &Terminal, folder: &Path) -> Result<Ending, Stop> {
        let line = terminal.line("setting constants again");
        let tell = |done, all| line.tell(&format!("{done} predictions"), done, all);
        let request = terminal.catalogue_request(&[])?;
        let (constants, residuals) = validate::leave_out(&request, terminal.threads(), &tell)?;
        drop(line);
        write(&folder.join("left_out.toml"), &constants.text())?;
        write(&folder.join("residuals.csv"), &residuals.text())?;
        terminal.answer("validate", None, &constants)?;
        Ok(Ending::Done)
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    save_bytes(path, text.as_bytes())
}
