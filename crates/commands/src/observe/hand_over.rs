//! Measured loads of links, handed to `advise`: what to change on the cluster as it is now.
//!
//! NICs of the scenario and counters of the cluster are put together in their order: sources in the
//! order of their names, and in each the devices. A NIC that sends less than half of what it did
//! while the others do not can send no more than that: the scenario gets it as `slow-nic` with the
//! measured rate. With these `advise` looks for changes, as on the command line.

use std::sync::atomic::AtomicBool;

use report::number::significant;
use report::{Align, Sheet, Table};
use scenario::Request;
use serde::Serialize;

use super::follow::Followed;
use super::series::Sent;
use crate::advise::{self, Advised, Goal, Options};
use crate::engine::Engine;
use crate::failure::Failure;

/// Changes that are kept of each advice.
const MOST_CHANGES: usize = 5;
/// A NIC that sends less than this share of what it did is slow.
const SLOW: f64 = 0.5;
/// Seeds for each of the best changes.
const SEEDS: u32 = 3;

/// What was asked of `advise`, and what it said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HandedOver {
    /// When the finding came, in seconds since the first look.
    pub found_s: f64,
    /// What it said.
    pub finding: String,
    /// What every NIC of the scenario sends, by its counter.
    pub loads: Vec<Sent>,
    /// Counters that the scenario has no NIC for.
    pub without_nic: usize,
    /// What the measurements set in the scenario, as `--set` takes it.
    pub set: Vec<String>,
    /// The step, or the time of the traffic, that the scenario has with that.
    pub predicted_s: Option<f64>,
    /// What somebody would tell a colleague; or why there is no advice.
    pub verdict: String,
    /// The best changes.
    pub changes: Vec<Advised>,
}

/// Who asks: the scenario, the engine, how long it may take.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The scenario, with what the command line sets.
    pub request: Request,
    /// The engine.
    pub engine: Engine,
    /// NICs of the scenario.
    pub nics: usize,
    /// Seconds after which nothing more is begun.
    pub budget_s: f64,
}

/// What measured loads set in a scenario with so many NICs.
pub fn settings(loads: &[Sent], nics: usize) -> Vec<String> {
    let usual: Vec<&Sent> = loads.iter().filter(|load| 0.0 < load.usual_gbps).collect();
    let share = |load: &Sent| load.gbps / load.usual_gbps;
    let mut shares: Vec<f64> = usual.iter().map(|load| share(load)).collect();
    shares.sort_by(f64::total_cmp);
    // If all fall, the job rests and no NIC is slow.
    if shares.get(shares.len() / 2).is_none_or(|middle| *middle < SLOW) {
        return Vec::new();
    }
    let is_slow = |load: &Sent| 0.0 < load.usual_gbps && share(load) < SLOW;
    let slow = loads.iter().take(nics).enumerate().filter(|(_, load)| is_slow(load));
    let fault = |(nic, load): (usize, &Sent)| {
        let mbps = (1e3 * load.gbps).round().max(1.0);
        format!("{{ on = \"NIC {nic}\", what = {{ kind = \"slow-nic\", rate = \"{mbps}Mbps\" }} }}")
    };
    let faults: Vec<String> = slow.map(fault).collect();
    if faults.is_empty() { Vec::new() } else { vec![format!("faults=[{}]", faults.join(", "))] }
}

/// Asks `advise` about a finding.
pub fn ask(asked: &Asked, found: &Followed, loads: Vec<Sent>, stop: &AtomicBool) -> HandedOver {
    let set = settings(&loads, asked.nics);
    let without_nic = loads.len().saturating_sub(asked.nics);
    let loads: Vec<Sent> = loads.into_iter().take(asked.nics).collect();
    let mut request = asked.request.clone();
    request.set.extend(set.iter().cloned());
    let options = Options {
        goal: Goal::Step,
        within: None,
        future: false,
        fixed: Vec::new(),
        budget_s: asked.budget_s,
        engine: asked.engine,
        seeds: SEEDS,
        threads: None,
        interrupt: Some(stop),
    };
    let (found_s, finding) = (found.found_s, found.text.clone());
    let told = advise::run(&request, &options, &|_| {});
    let (predicted_s, verdict, changes) = match told {
        Ok(mut advice) => {
            advice.changes.truncate(MOST_CHANGES);
            (Some(advice.base.step_s), advice.verdict, advice.changes)
        }
        Err(Failure::Interrupted(_)) => (None, "interrupted".to_owned(), Vec::new()),
        Err(reason) => (None, format!("no advice: {reason}"), Vec::new()),
    };
    HandedOver { found_s, finding, loads, without_nic, set, predicted_s, verdict, changes }
}

impl HandedOver {
    /// What is told when it comes.
    pub fn words(&self) -> String {
        let set = if self.set.is_empty() { "no NIC is slow" } else { self.set[0].as_str() };
        format!("advice for what was found at {:.1} s ({set}): {}", self.found_s, self.verdict)
    }

    /// Adds it to a sheet.
    pub(super) fn show(&self, sheet: Sheet) -> Sheet {
        let heading = format!("Advice for what was found at {} s", significant(self.found_s));
        let mut sheet = sheet.heading(heading).text(self.finding.clone());
        let measured = match self.set.first() {
            Some(set) => format!("Measured loads of {} NICs set {set}.", self.loads.len()),
            None => format!("Measured loads of {} NICs: none is slow.", self.loads.len()),
        };
        sheet = sheet.text(measured);
        if let Some(seconds) = self.predicted_s {
            sheet = sheet.text(format!("The scenario takes {} s so.", significant(seconds)));
        }
        sheet = sheet.text(self.verdict.clone());
        if !self.changes.is_empty() {
            let mut table = Table::new([("change", Align::Left), ("gains", Align::Right)]);
            for change in &self.changes {
                table.row([change.name.clone(), format!("{:+.1} %", 100.0 * change.gain)]);
            }
            sheet = sheet.table(table);
        }
        match self.without_nic {
            0 => sheet,
            more => sheet.note(format!("{more} counters have no NIC in the scenario")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(gbps: f64) -> Sent {
        Sent { series: "x".to_owned(), gbps, usual_gbps: 100.0 }
    }

    #[test]
    fn a_slow_nic_is_set_and_a_resting_job_is_not() {
        let loads = [sent(98.0), sent(30.0), sent(101.0), sent(99.0)];
        let [set] = &settings(&loads, 4)[..] else { panic!("one") };
        assert!(set.contains("NIC 1") && set.contains("30000Mbps"), "{set}");
        assert_eq!(settings(&loads, 1), [""; 0], "the scenario has no NIC 1");
        assert_eq!(settings(&[sent(1.0), sent(2.0), sent(0.0)], 3), [""; 0]);
        assert_eq!(settings(&[sent(90.0), sent(95.0), sent(100.0)], 3), [""; 0]);
    }
}
