//! `claims`: every number that the source documents state, the scenarios that test it, what comes
//! out, and whether that agrees.
//!
//! The source documents are the comparative analysis and the articles that this project grew from;
//! the list of what they say is `data/claims.toml`. A measure that several claims share on the same
//! scenarios is taken once. One rule judges all of them ([`RULE`]).

use std::collections::BTreeMap;

use report::Answer;
use scenario::{Extent, Request, load};
use serde::Serialize;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::parallel;

mod list;
mod measures;
mod network;
mod page;
mod pairs;
mod statements;
mod subject;

pub use list::{Case, Claim};
use measures::Question;
use subject::Subject;

/// How far outside of what is said a figure may lie.
const TOLERANCE: f64 = 0.2;

/// The rule that judges all claims, in words.
pub const RULE: &str = "A claim agrees if every simulated figure lies between the least and the \
    most that is said, or at the one figure that is said, with a fifth of it allowed on either \
    side. What is said without a lower or an upper end has none here. Orders of magnitude \
    (\"petabits\", \"milliseconds\") are ranges of a thousand or a hundred. What only says which is \
    more is a ranking, and has no such fifth. What our runs disagree with, or cannot test, and a \
    named better source contradicts, is a class of its own.";

/// Which claims to test, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Parts of ids; all claims if there are none.
    pub ids: Vec<String>,
    /// What computes steps; measures of packets and collectives have an engine of their own.
    pub engine: Engine,
    /// Threads to use.
    pub threads: Option<u16>,
}

/// Every claim with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The claims, in the order of the documents.
    pub claims: Vec<Row>,
    /// How many agree.
    pub agree: usize,
    /// How many do not, and nothing else is known.
    pub disagree: usize,
    /// How many a better source contradicts too.
    pub contradicted: usize,
    /// How many cannot be tested.
    pub untested: usize,
    /// The rule.
    pub rule: &'static str,
    #[serde(skip)]
    engine: Engine,
}

/// One claim with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What is said.
    #[serde(flatten)]
    pub claim: Claim,
    /// What comes out: one figure for each scenario or case, or one for all together.
    pub simulated: Vec<f64>,
    /// How it was found.
    pub how: String,
    /// Whether it agrees.
    pub verdict: Verdict,
    /// Why it cannot be tested.
    pub why: String,
}

/// Whether a claim agrees.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does.
    Agrees,
    /// It does not.
    Disagrees,
    /// It does not, or cannot be tested, and a better source says otherwise too.
    ContradictedToo,
    /// Nothing here can say.
    CannotBeTested,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Disagrees => "disagrees",
            Self::ContradictedToo => "better sources contradict it too",
            Self::CannotBeTested => "cannot be tested",
        }
    }
}

/// What makes two claims need the same measurement: measure, scenarios, tokens, switch, cases.
type Key = (String, Vec<String>, Option<u64>, Option<String>, Vec<String>);

fn key(claim: &Claim) -> Option<Key> {
    let test = claim.test.clone()?;
    let tokens = claim.tokens.map(f64::to_bits);
    let cases = claim.cases.iter().map(|case| format!("{case:?}")).collect();
    Some((test, claim.scenarios.clone(), tokens, claim.switch.clone(), cases))
}

/// Tests the claims. `tell` hears how far it has come.
pub fn run(
    options: &Options,
    base: &Request,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Report, Failure> {
    let wanted = |claim: &Claim| {
        options.ids.is_empty() || options.ids.iter().any(|part| claim.id.contains(part.as_str()))
    };
    let claims: Vec<Claim> = list::all().into_iter().filter(wanted).collect();
    if claims.is_empty() {
        return Err(Failure::Run(format!("no claim has {} in its name", options.ids.join(" or "))));
    }
    let settings = Request { scenario: None, extent: Extent::Settings, ..base.clone() };
    let catalogue = load(&settings)?.scenario.catalogue;
    let mut subjects: BTreeMap<String, Subject> = BTreeMap::new();
    for name in claims.iter().flat_map(|claim| &claim.scenarios) {
        let subject = || Subject::new(name, base, options.engine);
        subjects.entry(name.clone()).or_insert_with(subject);
    }
    let questions = in_good_order(&claims);
    let (all, done) = (questions.len(), std::sync::atomic::AtomicUsize::new(0));
    let answers = parallel::map(parallel::threads(options.threads), &questions, |claim| {
        let question = Question {
            subjects: claim.scenarios.iter().map(|name| &subjects[name]).collect(),
            tokens: claim.tokens,
            switch: claim.switch.as_deref(),
            cases: &claim.cases,
            catalogue: &catalogue,
        };
        let measure = claim.test.as_deref().and_then(measures::find);
        let found = measure.ok_or("no such measure".to_owned()).and_then(|m| (m.of)(&question));
        let count = 1 + done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tell(&format!("{count} of {all}: {}", claim.id));
        found
    });
    let found: BTreeMap<Key, Result<Vec<f64>, String>> =
        questions.iter().filter_map(|claim| key(claim)).zip(answers).collect();
    let rows: Vec<Row> = claims.into_iter().map(|claim| judged(claim, &found)).collect();
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    Ok(Report {
        agree: count(Verdict::Agrees),
        disagree: count(Verdict::Disagrees),
        contradicted: count(Verdict::ContradictedToo),
        untested: count(Verdict::CannotBeTested),
        claims: rows,
        rule: RULE,
        engine: options.engine,
    })
}

/// One claim for each distinct measurement. The first of every scenario come first, so that threads
/// begin with different scenarios instead of waiting for the same one.
fn in_good_order(claims: &[Claim]) -> Vec<&Claim> {
    let mut distinct: BTreeMap<Key, &Claim> = BTreeMap::new();
    for claim in claims {
        if let Some(key) = key(claim) {
            distinct.entry(key).or_insert(claim);
        }
    }
    let mut seen: BTreeMap<&[String], usize> = BTreeMap::new();
    let mut ordered: Vec<(usize, &Claim)> = Vec::new();
    for claim in distinct.into_values() {
        let times = seen.entry(claim.scenarios.as_slice()).or_default();
        ordered.push((*times, claim));
        *times += 1;
    }
    ordered.sort_by_key(|(times, _)| *times);
    ordered.into_iter().map(|(_, claim)| claim).collect()
}

fn judged(claim: Claim, found: &BTreeMap<Key, Result<Vec<f64>, String>>) -> Row {
    let how = claim.test.as_deref().and_then(measures::find).map_or("", |measure| measure.how);
    let answer = key(&claim).map(|key| found[&key].clone());
    let times = claim.times.unwrap_or(1.0);
    let (simulated, verdict, why) = match answer {
        Some(Ok(figures)) => {
            let figures: Vec<f64> = figures.into_iter().map(|figure| times * figure).collect();
            let tolerance = if claim.ranking { 0.0 } else { TOLERANCE };
            let within = |figure: &f64| lies_within(*figure, claim.ends(), tolerance);
            let agrees = figures.iter().all(within);
            let verdict = if agrees { Verdict::Agrees } else { Verdict::Disagrees };
            (figures, verdict, String::new())
        }
        Some(Err(reason)) => (Vec::new(), Verdict::CannotBeTested, reason),
        None => {
            let why = claim.untestable.clone().unwrap_or_default();
            (Vec::new(), Verdict::CannotBeTested, why)
        }
    };
    let verdict = match verdict {
        Verdict::Agrees => verdict,
        _ if claim.contradicted.is_some() => Verdict::ContradictedToo,
        _ => verdict,
    };
    Row { claim, simulated, how: how.to_owned(), verdict, why }
}

/// [`RULE`].
fn lies_within(figure: f64, (low, high): (Option<f64>, Option<f64>), tolerance: f64) -> bool {
    // Measured figures carry rounding; it must not decide at the edge.
    let slack = 1.0 + 1e-9;
    low.is_none_or(|low| low * (1.0 - tolerance) <= figure * slack)
        && high.is_none_or(|high| figure <= high * (1.0 + tolerance) * slack)
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }

    fn sheet(&self) -> report::Sheet {
        page::sheet(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_allowed_on_either_side_and_nothing_where_nothing_is_said() {
        let about = (Some(10.0), Some(10.0));
        let lies_within = |figure, ends| lies_within(figure, ends, TOLERANCE);
        assert!(lies_within(8.0, about) && lies_within(12.0, about));
        assert!(!lies_within(7.9, about) && !lies_within(12.1, about));
        assert!(lies_within(1e9, (Some(5.0), None)) && !lies_within(3.0, (Some(5.0), None)));
        assert!(lies_within(0.0, (Some(0.0), Some(0.0))));
        assert!(!lies_within(1.0, (Some(0.0), Some(0.0))), "a fifth of nothing is nothing");
        assert!(!lies_within(f64::NAN, about));
    }

    /// Fast claims, whole: figures from the catalogue and from small packet runs.
    #[test]
    fn claims_are_measured_and_judged() {
        let ids = ["quantum", "sb7800", "tcp-50us", "roce-5us", "tp-quadratic", "rocev2-2014"];
        let options = Options { ids: ids.map(str::to_owned).to_vec(), ..Options::default() };
        let report = run(&options, &Request::default(), &|_| {}).unwrap();
        let row = |id: &str| report.claims.iter().find(|row| row.claim.id == id).unwrap();
        assert_eq!(row("sb7800").simulated, [36.0]);
        assert_eq!(row("quantum-2").verdict, Verdict::Agrees);
        assert_eq!(row("rocev2-2014").verdict, Verdict::ContradictedToo);
        // A ring of t ranks moves t - 1 shares of each of t parts: 7 over 3, not 4.
        assert!((row("tp-quadratic").simulated[0] - 7.0 / 3.0).abs() < 1e-6);
        assert_eq!(row("tp-quadratic").verdict, Verdict::Disagrees);
        assert!(row("tcp-50us").simulated[0] > row("roce-5us").simulated[0]);
        let Report { agree, disagree, contradicted, untested, .. } = report;
        assert_eq!(agree + disagree + contradicted + untested, report.claims.len());
    }
    /// The page of the book has every claim, and says of the fast ones what comes out today;
    /// `test.sh` compares the whole of it. `fatflow claims --markdown > docs/claims.md` renews it.
    #[test]
    fn the_page_of_the_book_is_what_the_command_prints() {
        let page = include_str!("../../../docs/claims.md");
        for claim in list::all() {
            assert!(page.contains(&format!("\n| `{}` | ", claim.id)), "{} is missing", claim.id);
        }
        let is_fast = |claim: &Claim| {
            let fast = |name: &String| {
                name.starts_with("claims/message")
                    || name == "claims/circuits"
                    || name == "small-16"
            };
            claim.scenarios.iter().all(fast)
        };
        let fast: Vec<String> =
            list::all().into_iter().filter(is_fast).map(|claim| claim.id).collect();
        let options = Options { ids: fast, ..Options::default() };
        let rows = run(&options, &Request::default(), &|_| {}).unwrap().markdown();
        let rows: Vec<&str> = rows.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(20 < rows.len(), "only {} are fast", rows.len());
        for row in rows {
            assert!(page.lines().any(|line| line == row), "the page does not say {row}");
        }
    }
}
