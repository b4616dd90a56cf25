//! How a command can fail, and the exit code that each way has.

use std::fmt;

use report::Mistake;
use scenario::{Problem, Problems};
use step::network::Unserved;
use traffic::NotRun;
use traffic::collective::Unlowered;

/// Why a command gave no answer.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The input is invalid: exit code 3.
    Input(Problems),
    /// The input is fine, but the run failed: exit code 1.
    Run(String),
    /// What was asked for does not exist: exit code 2.
    Usage(String),
    /// Somebody stopped it before there was an answer, and how far it had come: exit code 130.
    Interrupted(String),
}

impl Failure {
    /// The exit code of a command that failed this way.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted(_) => 130,
            Self::Input(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(problems) => problems.fmt(f),
            Self::Run(reason) | Self::Usage(reason) | Self::Interrupted(reason) => {
                f.write_str(reason)
            }
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Somebody stopped it, and there is nothing more to say.
    pub fn interrupted() -> Self {
        Self::Interrupted("interrupted".to_owned())
    }

    /// The same as JSON has it.
    pub fn mistake(&self) -> Mistake {
        let Self::Input(problems) = self else {
            return Mistake { message: self.to_string(), ..Mistake::default() };
        };
        let mut all = problems.0.iter().map(mistake);
        let first = all.next().unwrap_or_default();
        Mistake { others: all.collect(), ..first }
    }
}

fn mistake(problem: &Problem) -> Mistake {
    let place = problem.place.as_ref().map(|place| {
        let (line, column) = place.line_and_column();
        format!("{}:{line}:{column}", place.source.name)
    });
    Mistake {
        message: problem.message.clone(),
        place: place.or_else(|| Some(problem.key.clone()).filter(|key| !key.is_empty())),
        help: problem.help.clone(),
        others: Vec::new(),
    }
}

impl From<NotRun> for Failure {
    fn from(reason: NotRun) -> Self {
        match reason {
            NotRun::Interrupted => Self::interrupted(),
            NotRun::Refused(_) | NotRun::OnlySeen => Self::Run(reason.to_string()),
        }
    }
}

impl From<Unlowered> for Failure {
    fn from(reason: Unlowered) -> Self {
        let help = match reason {
            Unlowered::NoAlgorithm { .. } => "",
            Unlowered::TooManyOperations { .. } => {
                "; --force tries it all the same, --engine flow answers at once"
            }
        };
        Self::Run(format!("{reason}{help}"))
    }
}

impl From<Unserved> for Failure {
    fn from(reason: Unserved) -> Self {
        match reason {
            Unserved::NotRun(reason) => reason.into(),
            Unserved::Unlowered(..) | Unserved::TooLong(_) | Unserved::Unfinished(..) => {
                Self::Run(reason.to_string())
            }
        }
    }
}

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
