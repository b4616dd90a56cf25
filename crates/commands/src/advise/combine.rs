//! The changes that gain, put together one after the other as long as that gains more.

use super::score::Score;
use super::{LEAST_GAIN, Search, Tried};
use crate::change::{Change, Kind};
use crate::engine::Engine;
use crate::trial::Figures;

/// Changes that are put together, at most.
const MOST: usize = 6;

/// Mixes that are tried for it, at most.
const TRIALS: usize = 12;

/// The best change, and what makes it better still; nothing if one alone is best.
pub(super) fn together(
    search: &Search<'_>,
    tried: &[Tried],
    (engine, seeds, base): (Engine, &[u64], &[Figures]),
) -> Option<Tried> {
    if search.options.future || search.options.within.is_some() {
        return None;
    }
    let clock = search.clock(1.0);
    let goal = search.options.goal;
    let is_free = |tried: &&Tried| {
        // What must be bought, or changes the model, is not put among what costs nothing.
        !matches!(tried.change.kind, Kind::Fabric | Kind::Model) && search.is_worthwhile(tried)
    };
    let mut free: Vec<&Tried> = tried.iter().filter(is_free).collect();
    free.sort_by(|a, b| b.score.mean().total_cmp(&a.score.mean()));
    let (first, others) = free.split_first()?;
    let mut chosen: Vec<&Tried> = vec![first];
    let mut best = Score::new(goal, &base[0], first.score.figures.clone());
    let mut trials = 0;
    for next in others {
        let is_apart = chosen.iter().all(|own| !next.change.keys().any(|k| own.change.touches(k)));
        if clock.is_over() || MOST <= chosen.len() || TRIALS <= trials || !is_apart {
            continue;
        }
        trials += 1;
        let mut set = set(&chosen);
        set.extend(next.change.set.clone());
        let Ok(figures) = search.run(&set, engine, seeds[0]) else { continue };
        let score = Score::new(goal, &base[0], figures);
        if best.own() + LEAST_GAIN / 2.0 < score.own() {
            chosen.push(next);
            best = score;
        }
    }
    if chosen.len() < 2 {
        return None;
    }
    let names: Vec<&str> = chosen.iter().map(|tried| tried.change.name.as_str()).collect();
    let mut risks: Vec<&str> = chosen.iter().map(|tried| tried.change.risk.as_str()).collect();
    risks.retain(|risk| !risk.is_empty());
    let change =
        Change::new(Kind::Combined, format!("together: {}", names.join("; ")), set(&chosen))
            .because("each gains with those before it", 0.0)
            .risking(risks.join("; "));
    let mut tried = Tried { change, engine, score: best, is_finalist: false };
    search.confirm(std::slice::from_mut(&mut tried), (engine, seeds, base), clock);
    Some(tried)
}

fn set(chosen: &[&Tried]) -> Vec<String> {
    chosen.iter().flat_map(|tried| tried.change.set.clone()).collect()
}
