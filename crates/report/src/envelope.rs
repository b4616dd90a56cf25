//! The JSON that every command answers with: what was asked, of whom, and the result.

use serde::Serialize;
use units::Unused;

/// A result and how it was made. The keys are part of the interface: they stay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope<'a, R> {
    /// The version of fatflow that made it.
    pub fatflow: &'a str,
    /// The command.
    pub command: &'a str,
    /// The engine; `null` where none was needed.
    pub engine: Option<&'a str>,
    /// The seed; `null` where there was no scenario.
    pub seed: Option<u64>,
    /// The scenario's hash; `null` where there was no scenario.
    pub scenario: Option<String>,
    /// What somebody wrote and this run does not obey, with the reason.
    pub unused: &'a [Unused],
    /// The answer.
    pub result: R,
}

impl<R: Serialize> Envelope<'_, R> {
    /// The envelope as indented JSON with a line break at the end.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}
