//! Flags that were given and did nothing: not by a list of who ignores what, but by what was read.
//!
//! Commands ask [`Terminal`](crate::terminal::Terminal) for the value of a global flag, which notes
//! that somebody did. Whatever was given and nobody asked for is named with the answer.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::arguments::Global;

/// A flag that was given and did nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct UnusedFlag {
    /// The flag.
    pub(crate) key: &'static str,
    /// Why it did nothing.
    pub(crate) why: &'static str,
    /// What would have obeyed it.
    pub(crate) used_by: &'static str,
}

/// Flags that can be given in vain, why that is, and who obeys them.
const FLAGS: [UnusedFlag; 6] = [
    flag("--engine", "no network is computed", "run, collective, compare, validate and claims"),
    flag("--threads", "this runs on one thread", "--seeds, compare, validate and claims"),
    flag("--seed", "nothing here is drawn at random", "commands that run a scenario"),
    flag("--set", "no scenario is read", "commands that read a scenario"),
    flag("--catalogue", "no hardware is looked up", "commands that read a scenario"),
    flag("--force", "this is never refused for its length", "--engine packet"),
];

const fn flag(key: &'static str, why: &'static str, used_by: &'static str) -> UnusedFlag {
    UnusedFlag { key, why, used_by }
}

/// Why a lock can be taken.
const FINE: &str = "nobody panics with it";

/// Which flags were given, and which of them somebody has asked for.
#[derive(Debug)]
pub(crate) struct Flags {
    given: Mutex<BTreeSet<&'static str>>,
    read: Mutex<BTreeSet<&'static str>>,
}

impl Flags {
    /// The global ones that were given.
    pub(crate) fn of(global: &Global) -> Self {
        // A catalogue may stand in the environment for good.
        let names_catalogue = std::env::args().any(|word| word.starts_with("--catalogue"));
        let given = [
            ("--engine", global.engine.is_some()),
            ("--threads", global.threads.is_some()),
            ("--seed", global.seed.is_some()),
            ("--set", !global.set.is_empty()),
            ("--catalogue", names_catalogue),
        ];
        let given = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
        Self { given: Mutex::new(given.collect()), read: Mutex::default() }
    }

    /// A flag of one command was given.
    pub(crate) fn give(&self, flag: &'static str) {
        self.given.lock().expect(FINE).insert(flag);
    }

    /// Somebody asks for its value.
    pub(crate) fn read(&self, flag: &'static str) {
        self.read.lock().expect(FINE).insert(flag);
    }

    /// What was given and nobody has asked for.
    pub(crate) fn unused(&self) -> Vec<UnusedFlag> {
        let (given, read) = (self.given.lock().expect(FINE), self.read.lock().expect(FINE));
        let is_unused = |flag: &&UnusedFlag| given.contains(flag.key) && !read.contains(flag.key);
        FLAGS.iter().filter(is_unused).cloned().collect()
    }
}
