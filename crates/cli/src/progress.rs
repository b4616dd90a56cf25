//! A line of progress on standard error, for whatever takes longer than a second.
//!
//! A thread of its own writes the line, so that work which tells nothing of itself still shows that
//! it goes on. Whoever looks at a terminal sees one line that is written over and taken away at the
//! end; a program that asked for it (`--progress`, as the local server does) gets whole lines.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use commands::meter::Meter;

use crate::arguments::Global;
use crate::terminal::width;

/// Work that is done sooner shows no progress.
const PATIENCE_S: f64 = 1.0;
/// From one drawing to the next.
const FRAME: Duration = Duration::from_millis(120);
/// From one whole line to the next.
const LINE: Duration = Duration::from_millis(500);
/// Columns of the bar.
const BAR: usize = 24;

/// For whom progress is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reader {
    Nobody,
    Person,
    Program,
}

/// What is being done, and how much of it is.
#[derive(Debug, Default)]
struct State {
    what: String,
    done: u64,
    total: u64,
    has_ended: bool,
}

/// The line; it goes away with this.
#[derive(Debug)]
pub(crate) struct Line {
    state: Arc<(Mutex<State>, Condvar)>,
    writer: Option<JoinHandle<()>>,
}

impl Line {
    /// Begins to show that something is being done.
    pub(crate) fn new(global: &Global, what: &str) -> Self {
        let reader = match (global.quiet, global.progress, io::stderr().is_terminal()) {
            (true, ..) => Reader::Nobody,
            (false, true, _) => Reader::Program,
            (false, false, true) => Reader::Person,
            (false, false, false) => Reader::Nobody,
        };
        let state = State { what: what.to_owned(), ..State::default() };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let shared = state.clone();
        let writer =
            (reader != Reader::Nobody).then(|| std::thread::spawn(move || write(&shared, reader)));
        Self { state, writer }
    }

    /// Says what is being done, and how much of how much; nothing of nothing where nobody knows.
    pub(crate) fn tell(&self, what: &str, done: u64, total: u64) {
        let mut state = self.state.0.lock().expect("no holder panics");
        what.clone_into(&mut state.what);
        (state.done, state.total) = (done, total);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.0.lock().expect("no holder panics").has_ended = true;
        self.state.1.notify_all();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has nothing to put in order.
            let _ = writer.join();
        }
    }
}

fn write(shared: &(Mutex<State>, Condvar), reader: Reader) {
    let clock = Meter::start();
    let each = if reader == Reader::Person { FRAME } else { LINE };
    let (mut frame, mut last) = (0, String::new());
    let mut state = shared.0.lock().expect("no holder panics");
    loop {
        (state, _) = shared.1.wait_timeout(state, each).expect("no holder panics");
        if state.has_ended {
            break;
        }
        if clock.wall_s() < PATIENCE_S {
            continue;
        }
        frame += 1;
        // If standard error is closed there is nobody left to tell.
        let _ = match reader {
            Reader::Person => {
                let text = drawn(&state, frame, clock.wall_s(), width(&io::stderr()));
                last.clone_from(&text);
                write!(io::stderr(), "\r\u{1b}[K{text}")
            }
            _ => {
                let text = plain(&state, clock.wall_s());
                writeln!(io::stderr(), "{text}")
            }
        };
    }
    if !last.is_empty() {
        let _ = write!(io::stderr(), "\r\u{1b}[K");
    }
}

/// `⠹ ███████▌                 31 %  4 s  one step on 16,384 GPUs`, cut to the width.
fn drawn(state: &State, frame: usize, seconds: f64, width: usize) -> String {
    const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
    let mut text = format!("{} ", SPINNER[frame % SPINNER.len()]);
    if 0 < state.total {
        let share = state.done as f64 / state.total as f64;
        let bar = report::draw::bar(share, BAR);
        text += &format!("{bar:BAR$} {:>3.0} %  ", 100.0 * share);
    }
    text += &format!("{seconds:.0} s  {}", state.what);
    text.chars().take(width.saturating_sub(1)).collect()
}

fn plain(state: &State, seconds: f64) -> String {
    let share = match state.total {
        0 => String::new(),
        total => format!("{:.0} %, ", 100.0 * state.done as f64 / total as f64),
    };
    format!("{share}{seconds:.0} s: {}", state.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_how_much_is_done_and_fits_the_width() {
        let state =
            State { what: "85 of 170 cases".into(), done: 85, total: 170, has_ended: false };
        assert_eq!(
            drawn(&state, 0, 4.2, 80),
            "⠋ ████████████              50 %  4 s  85 of 170 cases"
        );
        assert_eq!(drawn(&state, 0, 4.2, 12).chars().count(), 11);
        assert_eq!(plain(&state, 4.2), "50 %, 4 s: 85 of 170 cases");
        let unknown = State { what: "loading".into(), ..State::default() };
        assert_eq!(drawn(&unknown, 1, 2.0, 80), "⠙ 2 s  loading");
        assert_eq!(plain(&unknown, 2.0), "2 s: loading");
    }
}
