//! Hostile bytes for every reader, on stable Rust.
//!
//! A [`Target`] is a reader with seeds and words of its format. [`Campaign`] changes seeds with a
//! seeded [`mutate`] and gives them to the reader; what the reader says (its errors, without their
//! numbers) is the only coverage that there is: an input that makes it say something new becomes a
//! seed too. So a run is the same run again with the same seed, on any machine.
//!
//! What must not happen: a panic, an execution longer than [`MAX_SECONDS`], a process larger than
//! its limit. The binary writes the input of either to a file; a find becomes a test beside the
//! reader.
//!
//! To add a reader: a line in [`targets::TARGETS`].

pub mod formats;
mod kept;
pub mod mutate;
pub mod targets;
mod wire;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use commands::meter::Meter;
use units::Random;

pub use targets::{TARGETS, Target};

/// The most seconds of a processor that one execution may take; a busy machine does not count.
pub const MAX_SECONDS: f64 = 5.0;
/// The longest input.
pub const MAX_BYTES: usize = 64 << 10;
/// The most inputs that are kept as seeds.
const MAX_SEEDS: usize = 4096;

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Find {
    /// The target.
    pub target: &'static str,
    /// A panic, or how long it took.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
}

/// One target under fire.
#[derive(Debug)]
pub struct Campaign {
    target: &'static Target,
    seeds: Vec<Vec<u8>>,
    /// How many of them are the target's own.
    own: u64,
    said: BTreeSet<String>,
    random: Random,
    /// How many inputs it was given.
    pub executions: u64,
    /// The input that is being read, for whoever watches from outside.
    pub current: Arc<Mutex<(Option<Meter>, Vec<u8>)>>,
}

impl Campaign {
    /// Begins with the target's own seeds.
    pub fn new(target: &'static Target, seed: u64) -> Self {
        let seeds = (target.seeds)();
        let random = Random::new(seed, target.name, 0);
        let (current, own) = (Arc::default(), seeds.len() as u64);
        Self { target, seeds, own, said: BTreeSet::new(), random, executions: 0, current }
    }

    /// Different things that the reader has said so far.
    pub fn answers(&self) -> usize {
        self.said.len()
    }

    /// The next input: first the seeds as they are, then changed ones.
    fn next(&mut self) -> Vec<u8> {
        if self.executions < self.own {
            return self.seeds[self.executions as usize].clone();
        }
        let at = self.random.below(self.seeds.len() as u64) as usize;
        let mut input = self.seeds[at].clone();
        let other = self.random.below(self.seeds.len() as u64) as usize;
        mutate::mutate(&mut input, &self.seeds[other], self.target.words, &mut self.random);
        input.truncate(MAX_BYTES);
        input
    }

    /// Gives the reader one more input.
    pub fn step(&mut self) -> Result<(), Find> {
        let input = self.next();
        self.executions += 1;
        let began = Meter::start();
        if let Ok(mut current) = self.current.lock() {
            current.0 = Some(began);
            current.1.clone_from(&input);
        }
        let read = self.target.read;
        let said = catch_unwind(AssertUnwindSafe(|| read(&input)));
        let seconds = began.cpu_s();
        if let Ok(mut current) = self.current.lock() {
            current.0 = None;
        }
        let find = |what: String| Find { target: self.target.name, what, input: input.clone() };
        let said = said.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            find(format!("panic: {}", text.unwrap_or_default()))
        })?;
        if MAX_SECONDS < seconds {
            return Err(find(format!("took {seconds:.1} s")));
        }
        let class: String = said.chars().filter(|c| !c.is_ascii_digit()).take(80).collect();
        if self.said.len() < MAX_SEEDS && self.said.insert(class) {
            self.seeds.push(input);
        }
        Ok(())
    }
}
