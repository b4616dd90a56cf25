//! What becomes of a run that simulated time cannot hold.
//!
//! Arithmetic on time never wraps: it panics (`units::time`). Where a rate, a size and a count are
//! each in range and their product is not, that is no defect of the program, so the user is told.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::failure::Failure;

/// What the panics of `units::time` have in common.
const END_OF_TIME: &str = "213 days";

/// Works, and refuses what takes longer than simulated time lasts.
pub fn within_the_clock<R, E: From<Failure>>(work: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if !is_end_of_time(about.payload()) {
                usual(about);
            }
        }));
    });
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        if !is_end_of_time(&*payload) {
            panic::resume_unwind(payload);
        }
        let reason = "this takes longer than the 213 days that simulated time lasts: a size or a \
                      count is too large for the rates, or a rate too low";
        Err(Failure::Run(reason.to_owned()).into())
    })
}

fn is_end_of_time(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.is_some_and(|text| text.contains(END_OF_TIME))
}
