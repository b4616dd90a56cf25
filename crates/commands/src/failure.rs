//! How a command can fail, and the exit code that each way has.

use std::fmt;

use scenario::{Problem, Problems};

/// Why a command gave no answer.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The input is invalid: exit code 3.
    Input(Problems),
    /// The input is fine, but the run failed: exit code 1.
    Run(String),
    /// What was asked for does not exist: exit code 2.
    Usage(String),
    /// Somebody stopped it before there was anything to tell: exit code 130.
    Interrupted,
}

impl Failure {
    /// The exit code of a command that failed this way.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
            Self::Input(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(problems) => problems.fmt(f),
            Self::Run(reason) | Self::Usage(reason) => f.write_str(reason),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Input(problems)
    }
}

impl From<packetsim::Refusal> for Failure {
    fn from(refusal: packetsim::Refusal) -> Self {
        Self::Run(refusal.to_string())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Input(problem.into())
    }
}
