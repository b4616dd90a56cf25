//! A scenario that claims are tested on: loaded and run when somebody first asks, and once.

use std::sync::OnceLock;

use fabric::summary::Summary;
use scenario::{Loaded, Request, load};

use crate::engine::Engine;
use crate::packets::Patience;
use crate::{run_job, traffic as wire};

/// A figure, or why there is none.
pub(super) type Figure = Result<f64, String>;

/// A scenario with everything that was computed of it.
pub(super) struct Subject {
    request: Request,
    engine: Engine,
    loaded: OnceLock<Result<Loaded, String>>,
    summary: OnceLock<Result<Summary, String>>,
    step: OnceLock<Result<run_job::Report, String>>,
    wire: OnceLock<Result<wire::Report, String>>,
}

impl Subject {
    pub(super) fn new(name: &str, base: &Request, engine: Engine) -> Self {
        Self::of(Request { scenario: Some(name.to_owned()), ..base.clone() }, engine)
    }

    fn of(request: Request, engine: Engine) -> Self {
        Self {
            request,
            engine,
            loaded: OnceLock::new(),
            summary: OnceLock::new(),
            step: OnceLock::new(),
            wire: OnceLock::new(),
        }
    }

    /// The same scenario with some settings changed, by the closed form.
    pub(super) fn with(&self, set: &[String]) -> Self {
        let mut request = self.request.clone();
        request.set.extend_from_slice(set);
        Self::of(request, Engine::Analytic)
    }

    pub(super) fn loaded(&self) -> Result<&Loaded, String> {
        let first = || load(&self.request).map_err(|problems| problems.to_string());
        self.loaded.get_or_init(first).as_ref().map_err(Clone::clone)
    }

    pub(super) fn summary(&self) -> Result<&Summary, String> {
        let first = || {
            let loaded = self.loaded()?;
            Ok(loaded.summary())
        };
        self.summary.get_or_init(first).as_ref().map_err(Clone::clone)
    }

    /// One step of the job.
    pub(super) fn step(&self) -> Result<&run_job::Report, String> {
        let first = || {
            let mut watch = packetsim::Watch::default();
            let ran = run_job::run(self.loaded()?, self.engine, Patience::Usual, &mut watch);
            ran.map_err(|failure| failure.to_string())
        };
        self.step.get_or_init(first).as_ref().map_err(Clone::clone)
    }

    /// What the job puts on the wire.
    pub(super) fn wire(&self) -> Result<&wire::Report, String> {
        let first = || wire::run(self.loaded()?).map_err(|failure| failure.to_string());
        self.wire.get_or_init(first).as_ref().map_err(Clone::clone)
    }
}
