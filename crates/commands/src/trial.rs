//! One scenario tried with other settings, by the same functions as `run`.
//!
//! What files, environment and flags say is read once; each trial lays its own `PATH=VALUE` over
//! it, as if they stood behind the others on the command line. Trials of one network share its
//! fabric. So the command with the same flags gives the figures of the trial.

use std::sync::atomic::AtomicBool;

use scenario::source::Source;
use scenario::{Base, Extent, Fabrics, Loaded, Problems, Purpose, Request};
use units::Unused;

use crate::Drawing;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::packets::Patience;
use crate::{run_job, run_traffic};

/// What one trial showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The step; of synthetic traffic the time until its last flow is done.
    pub step_s: f64,
    /// The model's 80 % interval of it.
    pub model_s: (f64, f64),
    /// The share of a long run that trains; 1 for synthetic traffic.
    pub goodput: f64,
    /// What everything costs to buy.
    pub cost_usd: f64,
    /// What a million trained tokens cost; 0 for synthetic traffic.
    pub usd_per_million_tokens: f64,
    /// The share of the step that is communication which nothing hides.
    pub exposed: f64,
    /// The share of a GPU's memory that the job leaves free.
    pub memory_free: f64,
    /// Pauses and drops that packets saw.
    pub pauses: u64,
    /// Packets that were dropped.
    pub drops: u64,
    /// What was set and had no effect.
    pub unused: Vec<Unused>,
}

/// A scenario that is tried with other settings.
#[derive(Debug)]
pub struct Bench<'a> {
    base: Base,
    fabrics: Fabrics,
    interrupt: Option<&'a AtomicBool>,
}

impl<'a> Bench<'a> {
    /// Of the scenario of a request. Whoever sets `interrupt` ends trials that are under way.
    pub fn new(request: &Request, interrupt: Option<&'a AtomicBool>) -> Result<Self, Problems> {
        let base = Base::read(request, Source::new("advice", ""))?;
        Ok(Self { base, fabrics: Fabrics::default(), interrupt })
    }

    /// The value of a key before anything is changed.
    pub fn value(&self, key: &str) -> Option<serde_json::Value> {
        self.base.value(key)
    }

    /// The scenario with these settings.
    pub fn load(&self, set: &[String], purpose: Purpose) -> Result<Loaded, Failure> {
        Ok(self.base.load_set(set, (Extent::Whole, purpose), &self.fabrics)?)
    }

    /// Runs the scenario with these settings.
    pub fn run(&self, set: &[String], engine: Engine, seed: u64) -> Result<Figures, Failure> {
        let loaded = self.load(set, Purpose::Run(engine))?.with_seed(seed);
        self.run_loaded(&loaded, engine)
    }

    /// Runs a scenario that is loaded.
    pub fn run_loaded(&self, loaded: &Loaded, engine: Engine) -> Result<Figures, Failure> {
        let mut watch = packetsim::Watch { interrupt: self.interrupt, ..Default::default() };
        let bill = loaded.bill();
        let unused = loaded.unused.clone();
        let figures = Figures { cost_usd: bill.cost_usd, unused, ..Figures::default() };
        if loaded.job.is_some() {
            let report = run_job::run(loaded, engine, Patience::Usual, &mut watch)?;
            return Ok(Figures::of_job(&report, figures));
        }
        let options = run_traffic::Options {
            engine,
            patience: Patience::Usual,
            series: None,
            drawing: Drawing::Omitted,
            capture: None,
        };
        let (report, ..) = run_traffic::run(loaded, &options, &mut watch)?;
        if watch.is_interrupted() {
            return Err(Failure::interrupted());
        }
        Figures::of_traffic(&report, figures)
    }
}

impl Figures {
    fn of_job(report: &run_job::Report, figures: Self) -> Self {
        let run_job::Memory { capacity_bytes, total_bytes, .. } = report.memory;
        Self {
            step_s: report.step_s,
            model_s: (report.step_low_s, report.step_high_s),
            goodput: report.goodput,
            usd_per_million_tokens: report.cost.usd_per_million_tokens,
            exposed: report.exposed_communication,
            memory_free: 1.0 - total_bytes as f64 / capacity_bytes.max(1) as f64,
            ..figures
        }
    }

    fn of_traffic(report: &run_traffic::Report, figures: Self) -> Result<Self, Failure> {
        let left = report.flows - report.completed;
        let step_s = report.makespan_s.filter(|_| left == 0);
        let Some(step_s) = step_s else {
            return Err(Failure::Run(format!("{left} flows do not end")));
        };
        let (pauses, drops) = (report.pfc.pauses, report.drops);
        let goodput = 1.0;
        Ok(Self { step_s, model_s: (step_s, step_s), goodput, pauses, drops, ..figures })
    }
}
