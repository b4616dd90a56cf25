//! How answers and complaints are written: answers to standard output, the rest to standard error.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anstream::AutoStream;
use commands::{Failure, VERSION};
use report::{Answer, Envelope, Page};
use scenario::{Colour, Loaded, Style, load};

use crate::arguments::{Global, ScenarioArgument};

/// How a command that answered ends; the numbers are the exit codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    /// All is well.
    Done = 0,
    /// The input is invalid, and the answer says why.
    InvalidInput = 3,
    /// The answer is there, and worse than what was asked for.
    FellShort = 4,
}

/// Why a command ended without an answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command failed.
    Failure(Failure),
    /// The answer could not be written.
    Output(io::Error),
}

impl Stop {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Failure(failure) => failure.exit_code(),
            Self::Output(_) => 1,
        }
    }
}

impl<F: Into<Failure>> From<F> for Stop {
    fn from(failure: F) -> Self {
        Self::Failure(failure.into())
    }
}

/// The widest that text is drawn where there is no terminal to ask.
const WIDTH_WITHOUT_TERMINAL: usize = 100;

/// The flags, and where to write.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) global: Global,
}

impl Terminal {
    pub(crate) fn new(global: Global) -> Self {
        Self { global }
    }

    /// Loads a scenario with everything that flags and variables say; what is unwise is said.
    pub(crate) fn load(&self, argument: &ScenarioArgument) -> Result<Loaded, Stop> {
        let loaded = load(&self.global.request(Some(&argument.scenario)))?;
        for warning in &loaded.warnings {
            self.remark(&format!("warning: {warning}"));
        }
        Ok(loaded)
    }

    /// The engine that was asked for, or the one that most people want.
    pub(crate) fn engine(&self) -> commands::Engine {
        match self.global.engine {
            Some(crate::arguments::Engine::Analytic) => commands::Engine::Analytic,
            Some(crate::arguments::Engine::Packet) => commands::Engine::Packet,
            Some(crate::arguments::Engine::Flow) | None => commands::Engine::Flow,
        }
    }

    /// Shows how far a packet run is, on one line that is written over, if somebody is looking.
    pub(crate) fn progress(&self, progress: &packetsim::Progress) {
        // Called every 65,536 events; one line for every sixteenth is some ten a second.
        if self.global.quiet || !io::stderr().is_terminal() || progress.events & 0xf_0000 != 0 {
            return;
        }
        let packetsim::Progress { at, events, operations_left, .. } = progress;
        let millions = events / 1_000_000;
        let line = format!("simulated {at:.2}, {millions} M events, {operations_left} to finish");
        // If standard error is closed there is nobody left to tell.
        let _ = write!(io::stderr(), "\r\u{1b}[K{line}");
    }

    /// Takes the line of progress away.
    pub(crate) fn clear_progress(&self) {
        if !self.global.quiet && io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }

    /// Says something on standard error, unless nobody wants to hear it.
    pub(crate) fn remark(&self, text: &str) {
        if !self.global.quiet {
            let mut stream = AutoStream::new(io::stderr(), self.choice());
            // If standard error is closed there is nobody left to tell.
            let _ = writeln!(stream, "{text}");
        }
    }

    /// Writes an answer: JSON if it was asked for, otherwise the sheet for people.
    pub(crate) fn answer<A: Answer>(
        &self,
        command: &str,
        about: Option<&Loaded>,
        answer: &A,
    ) -> Result<(), Stop> {
        if let Some(path) = &self.global.report {
            self.write_page(command, about, answer, path)?;
        }
        if !self.global.json {
            return self.write(&answer.sheet().render(width(&io::stdout())));
        }
        let envelope = Envelope {
            fatflow: VERSION,
            command,
            engine: answer.engine(),
            seed: about.map(|loaded| loaded.scenario.seed),
            scenario: about.map(|loaded| loaded.hash.to_string()),
            result: answer,
        };
        let json = envelope.to_json();
        self.write(&json.map_err(|error| Failure::Run(format!("cannot write JSON: {error}")))?)
    }

    fn write_page<A: Answer>(
        &self,
        command: &str,
        about: Option<&Loaded>,
        answer: &A,
        path: &Path,
    ) -> Result<(), Stop> {
        let mut page = Page::of(&answer.sheet());
        page.name = format!("fatflow-{command}");
        if let Some(loaded) = about {
            let (hash, seed) = (&loaded.hash, loaded.scenario.seed);
            page.subtitle.push(format!("fatflow {command}, scenario {hash}, seed {seed}"));
        }
        page.footer = format!("Made by fatflow {VERSION}: fatflow {command}");
        let failed = |error| Failure::Run(format!("cannot write {}: {error}", path.display()));
        Ok(std::fs::write(path, page.html()).map_err(failed)?)
    }

    /// Writes text as it is; colours only where they are wanted.
    pub(crate) fn write(&self, text: &str) -> Result<(), Stop> {
        let mut stream = AutoStream::new(io::stdout(), self.choice());
        let written = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
        written.map_err(Stop::Output)
    }

    /// Says on standard error why there is no answer.
    pub(crate) fn complain(&self, stop: &Stop) {
        let mut stream = AutoStream::new(io::stderr(), self.choice());
        let text = match stop {
            Stop::Failure(Failure::Input(problems)) => {
                problems.render(Style { colour: Colour::Always, width: width(&io::stderr()) })
            }
            Stop::Failure(failure) => format!("fatflow: {failure}\n"),
            Stop::Output(error) => format!("fatflow: cannot write the answer: {error}\n"),
        };
        // If standard error is closed there is nobody left to tell.
        let _ = stream.write_all(text.as_bytes());
    }

    fn choice(&self) -> anstream::ColorChoice {
        match self.global.color {
            clap::ColorChoice::Always => anstream::ColorChoice::Always,
            clap::ColorChoice::Never => anstream::ColorChoice::Never,
            clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
        }
    }
}

/// The columns of a terminal, or a fixed number where there is none.
fn width(stream: &impl IsTerminal) -> usize {
    let size = if stream.is_terminal() { terminal_size::terminal_size() } else { None };
    size.map_or(WIDTH_WITHOUT_TERMINAL, |(width, _)| usize::from(width.0))
}
