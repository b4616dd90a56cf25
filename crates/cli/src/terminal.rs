//! How answers and complaints are written: answers to standard output, the rest to standard error.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anstream::AutoStream;
use commands::meter::Meter;
use commands::packets::Patience;
use commands::seeds::Repeat;
use commands::{Failure, VERSION, answer, cross_check, files, parallel};
use packetsim::{Progress, Watch};
use report::{Answer, ErrorEnvelope, Mistake};
use scenario::{Colour, Loaded, Purpose, Request, Style, load};
use units::Unused;

use crate::arguments::{self, Global, PatienceArgument, ScenarioArgument, SeedsArgument};
use crate::flags::Flags;
use crate::interrupt::Interrupt;
use crate::progress::Line;

/// How a command that answered ends; the numbers are the exit codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    /// All is well.
    Done = 0,
    /// The answer is there, and it is that nothing worked.
    Failed = 1,
    /// The input is invalid, and the answer says why.
    InvalidInput = 3,
    /// The answer is there, and worse than what was asked for.
    FellShort = 4,
    /// Somebody stopped the run; the answer is what was known by then.
    Interrupted = 130,
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
    /// The command.
    command: &'static str,
    pub(crate) interrupt: Interrupt,
    /// Which flags were asked for.
    flags: Flags,
}

impl Terminal {
    pub(crate) fn new(global: Global, command: &'static str) -> Self {
        let flags = Flags::of(&global);
        Self { global, command, interrupt: Interrupt::listen(), flags }
    }

    /// The request to load a scenario with everything that flags and environment say.
    pub(crate) fn request(&self, scenario: Option<&str>, purpose: Purpose) -> Request {
        let flags = ["--seed", "--set", "--targets", "--catalogue"];
        flags.into_iter().for_each(|flag| self.flags.read(flag));
        self.global.request(scenario, purpose)
    }

    /// The same where hardware alone is looked up, and some other settings: the rest is refused.
    pub(crate) fn catalogue_request(&self, also: &[&str]) -> Result<Request, Failure> {
        ["--set", "--catalogue"].into_iter().for_each(|flag| self.flags.read(flag));
        let request = self.global.request(None, Purpose::Settings);
        let is_read = |set: &&String| {
            let key = set.split('=').next().unwrap_or_default().trim();
            key.starts_with("catalogue.") || also.contains(&key)
        };
        match request.set.iter().find(|set| !is_read(set)) {
            None => Ok(request),
            Some(set) => {
                let also = match also {
                    [] => String::new(),
                    keys => format!("; it also reads {}", keys.join(", ")),
                };
                Err(Failure::Usage(format!(
                    "`--set {set}` does nothing here: `{}` reads no scenario; settings of \
                     hardware begin with `catalogue.`{also}",
                    self.command
                )))
            }
        }
    }

    /// Threads to use, if somebody says.
    pub(crate) fn threads(&self) -> Option<u16> {
        self.flags.read("--threads");
        self.global.threads
    }

    /// Notes that everything is to be shown that a page has.
    pub(crate) fn show_all(&self, all: bool) {
        if all {
            self.flags.give("--all");
        }
    }

    /// Whether runs on these engines may take long; `None` for all engines.
    pub(crate) fn patience(
        &self,
        argument: PatienceArgument,
        engine: Option<commands::Engine>,
    ) -> Patience {
        let patience = argument.patience();
        if patience == Patience::Endless {
            self.flags.give("--force");
        }
        if engine.is_none_or(commands::Engine::can_take_long) {
            self.flags.read("--force");
        }
        patience
    }

    /// Refuses JSON and a page where a command writes neither.
    pub(crate) fn only_text(&self, what: &str) -> Result<(), Failure> {
        self.no_page(what)?;
        match self.global.json {
            true => Err(Failure::Usage(format!("--json does nothing here: this writes {what}"))),
            false => Ok(()),
        }
    }

    /// Refuses a page where a command writes none.
    pub(crate) fn no_page(&self, what: &str) -> Result<(), Failure> {
        match self.global.report {
            Some(_) => {
                Err(Failure::Usage(format!("--report does nothing here: this writes {what}")))
            }
            None => Ok(()),
        }
    }

    /// Names the flags that were given and did nothing.
    pub(crate) fn name_unused(&self) {
        for Unused { key, why, used_by } in self.flags.unused() {
            self.remark(&format!("unused: {key}: {why}; used by {used_by}"));
        }
    }

    /// Loads a scenario with everything that flags and variables say; what is unwise is said.
    pub(crate) fn load(&self, argument: &ScenarioArgument, to: Purpose) -> Result<Loaded, Stop> {
        let line = self.line("building the fabric");
        let loaded = load(&self.request(Some(&argument.scenario), to))?;
        // Said before anything is computed.
        self.global.report.as_deref().map_or(Ok(()), files::refuse_input)?;
        drop(line);
        for warning in &loaded.warnings {
            let help = warning.help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
            self.remark(&format!("warning: {warning}{help}"));
        }
        Ok(loaded)
    }

    /// The same for the engine that was asked for, or for all of them.
    pub(crate) fn load_on(
        &self,
        argument: &ScenarioArgument,
        purpose: impl Fn(commands::Engine) -> Purpose,
    ) -> Result<Loaded, Stop> {
        if let Some(engine) = self.engines() {
            return self.load(argument, purpose(engine));
        }
        let mut loaded = self.load(argument, Purpose::Settings)?;
        loaded.unused = cross_check::unused(&loaded, purpose);
        Ok(loaded)
    }

    /// The engine that was asked for, or the one that most people want; `None` for all of them.
    pub(crate) fn engines(&self) -> Option<commands::Engine> {
        use crate::arguments::Engine;
        self.flags.read("--engine");
        match self.global.engine {
            Some(Engine::Analytic) => Some(commands::Engine::Analytic),
            Some(Engine::Packet) => Some(commands::Engine::Packet),
            Some(Engine::Flow) | None => Some(commands::Engine::Flow),
            Some(Engine::All) => None,
        }
    }

    /// The same for a command that asks one engine.
    pub(crate) fn engine(&self) -> Result<commands::Engine, Stop> {
        self.engines().ok_or_else(|| {
            let reason = "`--engine all` is for `run` and `collective`; this command asks one";
            Failure::Usage(reason.to_owned()).into()
        })
    }

    /// A line of progress that stays until it is dropped.
    pub(crate) fn line(&self, what: &str) -> Line {
        Line::new(&self.global, what)
    }

    /// Does something that may take long, with progress for whoever looks and an ear for Ctrl-C.
    pub(crate) fn watched<R>(&self, work: impl FnOnce(&mut Watch<'_>) -> R) -> R {
        let clock = Meter::start();
        let line = self.line("computing");
        let mut show = |progress: Progress| {
            // Called every 65,536 events; every sixteenth time is some ten times a second.
            if progress.events & 0xf_0000 == 0 {
                let (done, all) = (progress.events, progress.expected_events);
                line.tell(&progress_line(&progress, clock.wall_s()), done.min(all), all);
            }
        };
        // Only packets of one run are spread over threads.
        let moves_packets = self.engines().is_none_or(commands::Engine::moves_packets);
        let cores = if moves_packets { parallel::threads(self.threads()) } else { 1 };
        let mut watch = Watch {
            interrupt: Some(&self.interrupt.happened),
            progress: Some(&mut show),
            cores,
            ..Watch::default()
        };
        let answer = self.interrupt.heeded(|| work(&mut watch));
        let (threads, why) = (watch.threads, watch.why_one_thread);
        drop(line);
        if let Some(why) = why.filter(|_| threads < 2) {
            self.remark(&format!("ran on one thread: {why}"));
        }
        answer
    }

    /// How often to repeat something, with the threads that were asked for.
    pub(crate) fn repeat(&self, seeds: SeedsArgument) -> Repeat<'_> {
        let interrupt = Some(&*self.interrupt.happened);
        // One seed needs one thread.
        let threads = if 1 < seeds.seeds { self.threads() } else { None };
        Repeat { seeds: seeds.seeds, threads, interrupt }
    }

    /// How a command ends that has answered.
    pub(crate) fn ending(&self) -> Ending {
        if self.interrupt.has_happened() { Ending::Interrupted } else { Ending::Done }
    }

    /// The same where targets were missed.
    pub(crate) fn ending_with(&self, targets: &[commands::targets::TargetRow]) -> Ending {
        match self.ending() {
            Ending::Done if !commands::targets::all_met(targets) => Ending::FellShort,
            ending => ending,
        }
    }

    /// Says something on standard error, unless nobody wants to hear it.
    pub(crate) fn remark(&self, text: &str) {
        if !self.global.quiet {
            let mut stream = AutoStream::new(io::stderr(), self.choice());
            // If standard error is closed there is nobody left to tell.
            let _ = writeln!(stream, "{}", report::harmless(text));
        }
    }

    /// The columns that there are for an answer.
    pub(crate) fn width(&self) -> usize {
        width(&io::stdout())
    }

    /// Writes an answer: JSON if it was asked for, otherwise the sheet for people.
    pub(crate) fn answer<A: Answer>(
        &self,
        command: &str,
        loaded: Option<&Loaded>,
        answer: &A,
    ) -> Result<(), Stop> {
        let is_full = !self.global.json && self.flags.is_given("--all");
        if is_full && !answer.sheet().folded().is_empty() {
            self.flags.read("--all");
        }
        let mut unused = answer::unused(loaded, answer);
        unused.extend(self.flags.unused());
        let again = again(std::env::args());
        let about = || answer::about(loaded, answer, &again);
        let sheet = || answer.sheet().with_unused(&unused);
        if let Some(path) = &self.global.report {
            let mut page = answer::page(command, loaded, &sheet(), about().as_ref(), &again);
            match page.subtitle.last_mut() {
                Some(line) => *line += &format!(", {}", today()),
                None => page.subtitle.push(today()),
            }
            page.footer = page.footer.replacen(VERSION, arguments::VERSION, 1);
            let html = page.html();
            files::save_bytes(path, html.as_bytes())?;
            let (path, size) = (path.display(), html.len().div_ceil(1000));
            self.remark(&format!("wrote {path} ({size} kB): open it in a browser"));
        }
        if !self.global.json {
            let mut sheet = sheet();
            if let Some(about) = about() {
                let words = about.words(&sheet);
                sheet = sheet.with_about(&words);
            }
            sheet = if is_full { sheet.unfolded() } else { sheet };
            let folded = sheet.folded();
            if command == "run" && !folded.is_empty() {
                let text = format!(
                    "Left out here: {}. --all shows them, --report FILE.html with their pictures.",
                    folded.join("; ")
                );
                sheet = sheet.text(text);
            }
            return self.write(&sheet.render(width(&io::stdout())));
        }
        self.write(&answer::json(command, loaded, &unused, answer, &again)?)
    }

    /// Writes text as it is; colours only where they are wanted.
    pub(crate) fn write(&self, text: &str) -> Result<(), Stop> {
        let mut stream = AutoStream::new(io::stdout(), self.choice());
        let written = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
        written.map_err(Stop::Output)
    }

    /// Says on standard error why there is no answer, and where JSON was asked for, as JSON on
    /// standard output too.
    pub(crate) fn complain(&self, stop: &Stop) {
        if let (true, Stop::Failure(failure)) = (self.global.json, stop) {
            // What cannot be written there is said on standard error all the same.
            let _ = self.write(&error_json(self.command, failure.mistake()));
        }
        let mut stream = AutoStream::new(io::stderr(), self.choice());
        let text = match stop {
            Stop::Failure(Failure::Input(problems)) => {
                problems.render(Style { colour: Colour::Always, width: width(&io::stderr()) })
            }
            Stop::Failure(failure) => {
                format!("fatflow: {}\n", report::harmless(&failure.to_string()))
            }
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

/// The command that gives the same answer again: as it was typed, without where the answer goes.
fn again(arguments: impl Iterator<Item = String>) -> String {
    const OUTPUT: [&str; 5] = ["--report", "--color", "--confine", "--bounds", "--fabric-out"];
    const ALONE: [&str; 4] = ["--json", "--quiet", "-q", "--progress"];
    let mut words = vec!["fatflow".to_owned()];
    let mut is_value = false;
    for word in arguments.skip(1) {
        let name = word.split('=').next().unwrap_or_default();
        if std::mem::take(&mut is_value) || ALONE.contains(&name) {
            continue;
        }
        if OUTPUT.contains(&name) {
            is_value = !word.contains('=');
            continue;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => words.push(word),
            false => words.push(format!("'{}'", word.replace('\'', "'\\\\''"))),
        }
    }
    words.join(" ")
}

/// Says why arguments were not understood, or what help was asked for; the exit code.
pub(crate) fn misunderstood(error: &clap::Error) -> ExitCode {
    let is_mistake = error.use_stderr();
    if is_mistake && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        let (message, help) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message = message.trim().trim_start_matches("error: ").to_owned();
        let help = Some(help.trim().to_owned()).filter(|help| !help.is_empty());
        let json = error_json("", Mistake { message, help, ..Mistake::default() });
        let _ = io::stdout().write_all(json.as_bytes());
    }
    // If nobody listens there is nobody left to tell.
    let _ = error.print();
    ExitCode::from(if is_mistake { 2 } else { 0 })
}

fn error_json(command: &str, error: Mistake) -> String {
    let envelope = ErrorEnvelope { fatflow: VERSION, command, error };
    envelope.to_json().expect("text can be written as JSON")
}

/// How far a run is that has taken so many seconds, and how long it will still take.
fn progress_line(progress: &Progress, seconds: f64) -> String {
    let Progress { at, events, operations_left, expected_events, .. } = progress;
    let rate = *events as f64 / seconds.max(1e-3);
    let mut line = format!(
        "simulated {at:.2}, {} M events, {:.1} M/s, {operations_left} operations to finish",
        events / 1_000_000,
        rate / 1e6
    );
    if let Some(left) = expected_events.checked_sub(*events).filter(|_| 0 < *expected_events) {
        let left = units::Span::from_secs_f64(left as f64 / rate);
        line += &format!("; about {left:.0} left");
    }
    line
}

/// The columns to write in: what `COLUMNS` says, else the terminal's, else a fixed number.
pub(crate) fn width(stream: &impl IsTerminal) -> usize {
    let size = if stream.is_terminal() { terminal_size::terminal_size() } else { None };
    let said =
        || std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| (20..10_000).contains(width));
    let size = || size.map_or(WIDTH_WITHOUT_TERMINAL, |(width, _)| usize::from(width.0));
    said().unwrap_or_else(size)
}

/// The day, in UTC, on which a page is made: `SOURCE_DATE_EPOCH` where equal bytes are wanted.
#[expect(clippy::disallowed_methods, reason = "it dates a page, and changes no result")]
fn today() -> String {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.trim().parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    day(said.unwrap_or_else(now))
}

/// The day of a second since 1970 (Howard Hinnant's civil_from_days).
fn day(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}-{month:02}-{date:02}", year + 400 * era)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_told_without_where_its_answer_goes() {
        let words = [
            "/bin/fatflow",
            "--bounds",
            "1,2",
            "run",
            "a b.toml",
            "--json",
            "--report",
            "x.html",
            "-q",
        ];
        let more = ["--report=y.html", "--set", "fabric.oversubscription=[2.0]", "--seed=3"];
        let typed = words.into_iter().chain(more).map(str::to_owned);
        let expected = "fatflow run 'a b.toml' --set 'fabric.oversubscription=[2.0]' --seed=3";
        assert_eq!(again(typed), expected);
    }

    #[test]
    fn seconds_have_days() {
        let noon = 43_200;
        assert_eq!(day(noon), "1970-01-01");
        assert_eq!(day(951_782_400 + noon), "2000-02-29");
        assert_eq!(day(1_767_225_599), "2025-12-31");
        assert_eq!(day(4_107_542_400), "2100-03-01");
    }

    #[test]
    fn progress_says_how_long_it_will_still_take() {
        let mut progress = Progress {
            at: units::Time::from_ps(1_500_000_000),
            events: 20_000_000,
            operations_left: 7,
            packets: 0,
            expected_events: 80_000_000,
        };
        let line = progress_line(&progress, 2.0);
        assert_eq!(
            line,
            "simulated 1.50ms, 20 M events, 10.0 M/s, 7 operations to finish; about 6s left"
        );
        progress.expected_events = 0;
        assert!(progress_line(&progress, 2.0).ends_with("7 operations to finish"));
    }
}
