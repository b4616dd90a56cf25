//! What Ctrl-C does: most work holds nothing that needs to be put in order, so the process ends at
//! once with exit code 130. A packet run is asked to stop and tells what it knows; a second Ctrl-C
//! does not wait for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether, and how, the process listens to interrupts.
#[derive(Debug)]
pub(crate) struct Interrupt {
    /// An interrupt ends the process at once.
    at_once: Arc<AtomicBool>,
    /// There has been one.
    pub(crate) happened: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Self {
        let at_once = Arc::new(AtomicBool::new(true));
        let happened = Arc::new(AtomicBool::new(false));
        let signal = signal_hook::consts::SIGINT;
        // Where signals cannot be caught the default, which ends the process too, will do. In this
        // order: the second interrupt finds what the first has noted.
        for condition in [&at_once, &happened] {
            let condition = Arc::clone(condition);
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, condition);
        }
        let _ = signal_hook::flag::register(signal, Arc::clone(&happened));
        Self { at_once, happened }
    }

    /// Whether there has been one.
    pub(crate) fn has_happened(&self) -> bool {
        self.happened.load(Ordering::Relaxed)
    }

    /// Somebody looks at `happened` while this works.
    pub(crate) fn heeded<R>(&self, work: impl FnOnce() -> R) -> R {
        self.at_once.store(false, Ordering::Relaxed);
        let answer = work();
        self.at_once.store(true, Ordering::Relaxed);
        answer
    }
}
