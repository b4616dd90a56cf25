//! Random scenarios of everything (topology, failures, traffic or a job, transport, routing,
//! congestion control, engine, way), and what must hold for each of them.
//!
//! 150 cases by default. `FATFLOW_CASES`, `FATFLOW_FIRST` and `FATFLOW_SEED` say otherwise, and
//! `FATFLOW_EVERY` how often the program is asked too, `FATFLOW_OTHER` with another build of it
//! (`tools/campaign.sh`). What fails is shrunk to as few settings as still fail, and printed with
//! its seed.

mod draw;
mod process;
mod properties;

use std::panic::{AssertUnwindSafe, catch_unwind};

use commands::meter::{Meter, peak_rss_bytes};
use draw::{Case, draw, text};
use properties::CaseOutcome;
use units::Random;

/// The most seconds of a processor that a case may take: what takes longer hangs.
const MOST_SECONDS: f64 = 120.0;
/// The most bytes of memory that all cases together may take.
const MOST_BYTES: u64 = 2 << 30;

fn verdict(case: &Case) -> Result<CaseOutcome, String> {
    let tried = catch_unwind(AssertUnwindSafe(|| properties::hold(case)));
    tried.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// As few settings as still fail, of the cluster's size; what is found within a minute.
fn shrunk(case: &Case, fails: impl Fn(&Case) -> bool) -> Case {
    let mut case = case.clone();
    let (mut at, began) = (1, Meter::start());
    while at < case.len() && began.cpu_s() < 60.0 {
        let mut fewer = case.clone();
        fewer.remove(at);
        if fails(&fewer) {
            case = fewer;
        } else {
            at += 1;
        }
    }
    case
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn everything_holds_for_random_scenarios() {
    let (cases, seed) = (number("FATFLOW_CASES", 150), number("FATFLOW_SEED", 20_261_118));
    let (first, every) = (number("FATFLOW_FIRST", 0), number("FATFLOW_EVERY", 10));
    let (mut ran, mut seen_cases, mut asked) = (0, 0, 0);
    let (mut failures, mut slowest) = (Vec::new(), (0.0, 0));
    let all = Meter::start();
    for number in first..first + cases {
        let case = draw(&mut Random::new(seed, "campaign", number));
        let began = Meter::start();
        seen_cases += 1;
        properties::tell(|| format!("CASE {number}\n{}", text(&case)));
        let mut failed = |reason: &str, small: &Case| {
            failures.push(format!("seed {seed} case {number}: {reason}\n{}", text(small)));
        };
        match verdict(&case) {
            Ok(seen) => ran += u64::from(seen.ran),
            Err(reason) => {
                properties::tell(|| format!("FAILS {number}: {reason}"));
                let small = shrunk(&case, |case| verdict(case).is_err());
                failed(&verdict(&small).err().unwrap_or(reason), &small);
            }
        }
        if number % every == 0 {
            asked += 1;
            if let Err(reason) = process::agrees(&case) {
                let small = shrunk(&case, |case| process::agrees(case).is_err());
                failed(&process::agrees(&small).err().unwrap_or(reason), &small);
            }
        }
        let seconds = began.cpu_s();
        properties::tell(|| format!("CASE {number} {seconds:.2} s"));
        if MOST_SECONDS < seconds {
            failed(&format!("took {seconds:.0} s of a processor"), &case);
        }
        if slowest.0 < seconds {
            slowest = (seconds, number);
        }
        if 10 <= failures.len() {
            break;
        }
    }
    #[expect(clippy::print_stderr, reason = "how many ran is what a long run wants to know")]
    {
        let (cpu, memory) = (all.cpu_s(), peak_rss_bytes() >> 20);
        eprintln!(
            "campaign: {seen_cases} cases, {ran} ran, {asked} by the program, {} failures, \
             {cpu:.0} s of a processor, {memory} MiB, the slowest {:.1} s (case {})",
            failures.len(),
            slowest.0,
            slowest.1
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(peak_rss_bytes() < MOST_BYTES, "{} bytes of memory", peak_rss_bytes());
    assert!(seen_cases / 3 < ran, "{ran} of {seen_cases} ran: the others were refused");
}
