//! The JSON that every command answers with: what was asked, of whom, and the result.

use serde::Serialize;
use units::Unused;

/// A result and how it was made. The keys are part of the interface: they stay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope<'a, R, A> {
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
    /// Cluster, fabric, transport, job, and the command that makes it again; absent where there was
    /// no scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<&'a A>,
    /// What somebody wrote and this run does not obey, with the reason.
    pub unused: &'a [Unused],
    /// The answer.
    pub result: R,
}

impl<R: Serialize, A: Serialize> Envelope<'_, R, A> {
    /// The envelope as indented JSON with a line break at the end.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// What a command answers that has no result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorEnvelope<'a> {
    /// The version of fatflow that says so.
    pub fatflow: &'a str,
    /// The command; empty where none was understood.
    pub command: &'a str,
    /// Why there is no result.
    pub error: Mistake,
}

/// What is wrong, where, and what would be right.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Mistake {
    /// What is wrong.
    pub message: String,
    /// Where: `FILE:LINE:COLUMN`, or the key concerned; `null` where it stands nowhere.
    pub place: Option<String>,
    /// What would be right; `null` if there is nothing to say.
    pub help: Option<String>,
    /// What else is wrong with the input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Mistake>,
}

impl ErrorEnvelope<'_> {
    /// The envelope as indented JSON with a line break at the end.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}
