//! `fatflow advise`.

use std::path::PathBuf;

use commands::advise::{self, Goal, Options, Progress, write};
use commands::files::save_text;
use scenario::Purpose;
use units::Span;

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Try changes of a scenario by simulation, and rank what they gain
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow advise my.toml
  fatflow advise small-128 --goal goodput --budget 20s
  fatflow advise my.toml --fix job.parallel --fix cluster
  fatflow advise small-1024 --within 2%
  fatflow advise my.toml --future
  fatflow advise my.toml --write files
  fatflow advise my.toml --fix job --check /etc/nccl.conf config_db.json
  fatflow advise scenarios/bench/incast-32.toml --engine packet

Every change is tried by the same functions as `run`: the command beside it gives the same step.
An interrupt ends it with what is known by then.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// What should become better
    #[arg(long, value_enum, default_value = "step")]
    goal: GoalArgument,
    /// Find the cheapest fabric that makes the step at most this much longer, such as 2%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    within: Option<f64>,
    /// Try the four future directions: Ultra Ethernet, reduction in switches, 800G, circuits
    #[arg(long, conflicts_with = "within")]
    future: bool,
    /// A key that may not change, with all that is inside it; may be given several times
    #[arg(long, value_name = "KEY")]
    fix: Vec<String>,
    /// Look at 200 layouts by closed forms for each second of this, and begin nothing new after it
    #[arg(long, value_name = "TIME", default_value = "60s")]
    budget: Span,
    /// Seeds for each of the best changes, the scenario's own included
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    seeds: u32,
    /// Write the files of the best change that needs nothing bought, or of --take
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Read these files and tell how they differ from the best change, or from --take
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "write")]
    check: Vec<PathBuf>,
    /// Which change of the list is written or checked, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    take: Option<u32>,
}

/// What should become better.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum GoalArgument {
    /// The time of a step
    Step,
    /// The time of a step over the share of the time that trains
    Goodput,
    /// What a trained token costs
    Cost,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let engine = terminal.engine()?;
        let loaded = terminal.load(&self.scenario, Purpose::Run(engine))?;
        let request = terminal.request(Some(&self.scenario.scenario), Purpose::Run(engine));
        let options = Options {
            goal: match self.goal {
                GoalArgument::Step => Goal::Step,
                GoalArgument::Goodput => Goal::Goodput,
                GoalArgument::Cost => Goal::Cost,
            },
            within: self.within,
            future: self.future,
            fixed: self.fix.clone(),
            budget_s: self.budget.as_secs_f64(),
            engine,
            seeds: self.seeds,
            threads: terminal.threads(),
            interrupt: Some(&terminal.interrupt.happened),
        };
        let line = terminal.line("trying changes");
        let line_lock = std::sync::Mutex::new(line);
        let tell = |progress: &Progress| {
            let Progress { done, all, best } = progress;
            let best = best.as_ref().map_or_else(String::new, |(name, gain)| {
                format!("; best so far {name} ({:+.1} %)", 100.0 * gain)
            });
            let text = format!("tried {done} of {all} changes{best}");
            let line = line_lock.lock().expect("nobody panics with it");
            line.tell(&text, *done as u64, *all as u64);
        };
        let advice = terminal.interrupt.heeded(|| advise::run(&request, &options, &tell))?;
        drop(line_lock);
        if !self.check.is_empty() {
            let chosen = advice.chosen(self.take)?;
            let files = write::files(&request, chosen)?;
            let checked = advise::check(&chosen.name, &files, &self.check)?;
            terminal.answer("advise", Some(&loaded), &checked)?;
            let agrees = checked.differences.is_empty();
            return Ok(if agrees { terminal.ending() } else { Ending::FellShort });
        }
        if let Some(folder) = &self.write {
            for file in write::files(&request, advice.chosen(self.take)?)? {
                save_text(&folder.join(file.name), &file.text)?;
            }
        }
        terminal.answer("advise", Some(&loaded), &advice)?;
        Ok(terminal.ending())
    }
}

/// `2%` or `0.02`.
fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    let in_range = share.filter(|share| (0.0..=10.0).contains(share));
    in_range.ok_or_else(|| "write it like `2%` or `0.02`".to_owned())
}
