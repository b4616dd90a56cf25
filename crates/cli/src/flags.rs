//! Flags that were given and did nothing: not by a list of who ignores what, but by what was read.
//!
//! Commands ask [`Terminal`](crate::terminal::Terminal) for the value of a global flag, which notes
//! that somebody did. Whatever was given and nobody asked for is named with the answer.

use std::collections::BTreeSet;
use std::sync::Mutex;

use units::Unused;

use crate::arguments::Global;

/// Flags that can be given in vain, why that is, and who obeys them.
const FLAGS: [[&str; 3]; 8] = [
    ["--engine", "no network is computed", "run, collective, compare, sweep, validate and claims"],
    ["--threads", "this runs on one thread", "--engine packet, --seeds, sweep, compare, validate"],
    ["--seed", "nothing here is drawn at random", "commands that run a scenario"],
    ["--set", "no scenario is read", "commands that read a scenario"],
    ["--targets", "no scenario is read", "topo, run and compare"],
    ["--catalogue", "no hardware is looked up", "commands that read a scenario"],
    ["--all", "nothing is left out here", "run on a job, without --json"],
    ["--force", "this is never refused for its length", "--engine packet"],
];

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
            ("--targets", global.targets.is_some()),
            ("--catalogue", names_catalogue),
        ];
        let given = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
        Self { given: Mutex::new(given.collect()), read: Mutex::default() }
    }

    /// A flag of one command was given.
    pub(crate) fn give(&self, flag: &'static str) {
        self.given.lock().expect(FINE).insert(flag);
    }

    /// Whether it was given.
    pub(crate) fn is_given(&self, flag: &str) -> bool {
        self.given.lock().expect(FINE).contains(flag)
    }

    /// Somebody asks for its value.
    pub(crate) fn read(&self, flag: &'static str) {
        self.read.lock().expect(FINE).insert(flag);
    }

    /// What was given and nobody has asked for; it is told once.
    pub(crate) fn unused(&self) -> Vec<Unused> {
        let (given, mut read) = (self.given.lock().expect(FINE), self.read.lock().expect(FINE));
        let mut unused = Vec::new();
        for [key, why, used_by] in FLAGS {
            if given.contains(key) && read.insert(key) {
                let [key, why, used_by] = [key, why, used_by].map(str::to_owned);
                unused.push(Unused { key, why, used_by });
            }
        }
        unused
    }
}
