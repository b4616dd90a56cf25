//! How work is done for Python: off the interpreter's lock, with an ear for Ctrl-C, and so that
//! whatever goes wrong becomes an exception.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Builder;
use std::time::Duration;

use commands::{Failure, clock};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use report::Mistake;
use scenario::{Colour, Style};

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// As much stack as the binary's main thread has.
const STACK_BYTES: usize = 8 << 20;

/// Columns of the text of an exception.
const WIDTH: usize = 100;

/// Why a lock can be taken.
const FINE: &str = "nobody panics with it";

/// Works on a thread of its own, without the interpreter's lock. Somebody who presses Ctrl-C sets
/// the flag that `work` is given, and gets a `KeyboardInterrupt` when it has ended.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Arc<AtomicBool>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (done, ended) = (Mutex::new(false), Condvar::new());
    let mut interrupted = None;
    let answer = std::thread::scope(|scope| {
        let (done, ended, stop) = (&done, &ended, &stop);
        let worker = Builder::new().name("fatflow".to_owned()).stack_size(STACK_BYTES);
        let worker = worker.spawn_scoped(scope, move || {
            let answer = catch_unwind(AssertUnwindSafe(|| clock::within_the_clock(|| work(stop))));
            *done.lock().expect(FINE) = true;
            ended.notify_all();
            answer
        })?;
        loop {
            let is_done = py.detach(|| {
                let waiting = ended.wait_timeout_while(done.lock().expect(FINE), LOOK, |d| !*d);
                *waiting.expect(FINE).0
            });
            if is_done {
                break;
            }
            if let Err(signal) = py.check_signals() {
                stop.store(true, Ordering::Relaxed);
                interrupted = Some(signal);
            }
        }
        Ok::<_, PyErr>(worker.join())
    })?;
    // What came in just as the work ended counts too.
    match interrupted.map_or_else(|| py.check_signals(), Err) {
        Ok(()) => {}
        Err(signal) => return Err(signal),
    }
    match answer.and_then(|answer| answer) {
        Ok(answer) => answer.map_err(|failure| failed(py, &failure)),
        Err(panic) => Err(failed(py, &defect(&*panic))),
    }
}

/// What a panic says.
fn defect(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no reason given");
    Failure::Run(format!("fatflow has a defect, please report it: {text}"))
}

/// The exception for a failure: the class by its exit code, the text as the command writes it.
pub(crate) fn failed(py: Python<'_>, failure: &Failure) -> PyErr {
    if let Failure::Interrupted(reason) = failure {
        return PyKeyboardInterrupt::new_err(reason.clone());
    }
    let text = match failure {
        Failure::Input(problems) => {
            problems.render(Style { colour: Colour::Never, width: WIDTH }).trim_end().to_owned()
        }
        other => other.to_string(),
    };
    let Mistake { message, place, help, others } = failure.mistake();
    let others: Vec<_> =
        others.into_iter().map(|other| (other.message, other.place, other.help)).collect();
    let build = || -> PyResult<PyErr> {
        let errors = py.import("fatflow._errors")?;
        let arguments = (failure.exit_code(), text, message, place, help, others);
        Ok(PyErr::from_value(errors.getattr("of_failure")?.call1(arguments)?))
    };
    build().unwrap_or_else(|error| error)
}
