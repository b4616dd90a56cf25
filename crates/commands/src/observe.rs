//! `observe`: what a real cluster wrote down, as the figures that other commands predict.
//!
//! Files are read by the crate `observe`; here stands how its answer is shown ([`page`]), what a
//! scenario predicts beside it ([`beside`]), execution traces run on it ([`replay`]), constants
//! that are fitted to it ([`calibrate`]), settings that it says outright ([`read_off`]), a scenario
//! made of it ([`cluster`]), and how a running cluster is followed ([`follow`]).

use std::path::PathBuf;

pub use observe::Watch;
use observe::observed::Source;
use observe::{Observed, Summary};
use report::{Answer, Sheet};
use serde::Serialize;

pub mod beside;
pub mod calibrate;
pub mod cluster;
pub mod counted;
mod fit;
pub mod follow;
pub mod hand_over;
pub mod http;
mod page;
pub mod read_off;
pub mod replay;
pub mod series;
mod steps;
pub mod uplinks;

use beside::SideBySide;
use calibrate::Calibration;
use cluster::Made;
use replay::Replayed;

/// What was observed.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What programs see of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// What a scenario predicts beside it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<SideBySide>,
    /// What execution traces come to on its fabric, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
    /// Constants that were fitted to it, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The scenario that was made of the files, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// All that the files say.
    #[serde(skip)]
    pub observed: Observed,
}

impl Report {
    /// Whether any of the files said something.
    pub fn has_read_something(&self) -> bool {
        self.summary.sources.iter().any(Source::is_read)
    }

    /// Whether a file that was named could not be opened or unpacked.
    pub fn misses_a_file(&self) -> bool {
        self.summary.sources.iter().any(|source| source.kind == "unreadable")
    }
}

/// Reads all files and sums up what they say.
pub fn run(files: &[PathBuf], watch: &Watch) -> Report {
    let observed = observe::read(files, watch);
    let summary = Summary::of(&observed);
    let (predicted, replayed, calibration, made) = (None, None, None, None);
    Report { summary, predicted, replayed, calibration, made, observed }
}

/// Bytes of the files together, as far as the system tells.
pub fn total_bytes(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|about| about.len()).sum()
}

impl Answer for Report {
    fn sheet(&self) -> Sheet {
        let mut sheet = page::sheet(&self.summary);
        if let Some(beside) = &self.predicted {
            sheet = beside.show(sheet);
        }
        if let Some(replayed) = &self.replayed {
            sheet = replayed.show(sheet);
        }
        if let Some(calibration) = &self.calibration {
            sheet = calibration.show(sheet);
        }
        if let Some(made) = &self.made {
            sheet = made.show(sheet);
        }
        sheet
    }
}
