//! Which combinations of levels become cases: all of them, or some that are drawn.

use std::collections::BTreeSet;

use commands::Failure;
use units::Random;

use crate::axis::{Axis, Level, Levels};

/// How cases are drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Every combination equally likely, none twice.
    Random,
    /// Every axis is cut into as many parts as there are cases, and each part is met once.
    LatinHypercube,
}

/// Some of all combinations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sample {
    /// How they are drawn.
    pub method: Method,
    /// How many.
    pub count: usize,
    /// The seed of the draw.
    pub seed: u64,
}

/// More cases than this are not listed.
pub const MOST_CASES: u64 = 1_000_000;

/// So many combinations are drawn for each case that is wanted before the draw gives up.
const TRIES: usize = 200;

/// One combination: a level for each axis.
pub(crate) type Combination = Vec<Level>;

/// Combinations, and how many of those that were looked at a condition has refused.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    pub(crate) combinations: Vec<Combination>,
    pub(crate) refused: u64,
    /// Draws of a combination that had been drawn.
    pub(crate) twice: u64,
}

/// How many combinations a grid has; none where an axis is continuous.
pub(crate) fn combinations(axes: &[Axis]) -> Option<u64> {
    axes.iter().try_fold(1_u64, |product, axis| match &axis.levels {
        Levels::List(levels) => product.checked_mul(levels.len() as u64),
        Levels::Between { .. } => None,
    })
}

/// The combination of a number, the last axis the fastest.
fn combination(axes: &[Axis], mut number: u64) -> Combination {
    let mut levels: Combination = Vec::with_capacity(axes.len());
    for axis in axes.iter().rev() {
        let Levels::List(list) = &axis.levels else { unreachable!("the caller counted them") };
        levels.push(list[(number % list.len() as u64) as usize].clone());
        number /= list.len() as u64;
    }
    levels.reverse();
    levels
}

type Admits<'a> = &'a dyn Fn(&Combination) -> Result<bool, Failure>;

/// All combinations that the conditions admit.
pub(crate) fn all(axes: &[Axis], count: u64, admits: Admits<'_>) -> Result<Drawn, Failure> {
    let mut drawn = Drawn::default();
    for number in 0..count {
        drawn.take(combination(axes, number), admits)?;
    }
    Ok(drawn)
}

impl Drawn {
    fn take(&mut self, combination: Combination, admits: Admits<'_>) -> Result<(), Failure> {
        match admits(&combination)? {
            true => self.combinations.push(combination),
            false => self.refused += 1,
        }
        Ok(())
    }
}

impl Sample {
    /// Draws combinations that the conditions admit.
    pub(crate) fn draw(&self, axes: &[Axis], admits: Admits<'_>) -> Result<Drawn, Failure> {
        match self.method {
            Method::LatinHypercube => self.latin_hypercube(axes, admits),
            Method::Random => match combinations(axes).filter(|count| *count <= MOST_CASES) {
                Some(count) => self.some_of(axes, count, admits),
                None => self.random(axes, admits),
            },
        }
    }

    /// So many of a number that can be listed, in their order.
    fn some_of(&self, axes: &[Axis], count: u64, admits: Admits<'_>) -> Result<Drawn, Failure> {
        let Drawn { combinations, refused, twice } = all(axes, count, admits)?;
        let mut numbers: Vec<usize> = (0..combinations.len()).collect();
        Random::new(self.seed, "sample", 0).shuffle(&mut numbers);
        let chosen: BTreeSet<usize> = numbers.into_iter().take(self.count).collect();
        let combinations = combinations.into_iter().enumerate();
        let combinations = combinations.filter(|(at, _)| chosen.contains(at)).map(|(_, c)| c);
        Ok(Drawn { combinations: combinations.collect(), refused, twice })
    }

    /// One after the other, each new.
    fn random(&self, axes: &[Axis], admits: Admits<'_>) -> Result<Drawn, Failure> {
        let mut random = Random::new(self.seed, "sample", 0);
        let (mut drawn, mut seen) = (Drawn::default(), BTreeSet::new());
        for _ in 0..self.count.saturating_mul(TRIES) {
            if drawn.combinations.len() == self.count {
                break;
            }
            let one: Combination = axes.iter().map(|axis| axis.at(random.unit())).collect();
            if seen.insert(labels(&one)) {
                drawn.take(one, admits)?;
            } else {
                drawn.twice += 1;
            }
        }
        Ok(drawn)
    }

    /// McKay, Beckman and Conover (1979): a permutation of the parts for each axis. Lists get
    /// their parts in equal shares.
    fn latin_hypercube(&self, axes: &[Axis], admits: Admits<'_>) -> Result<Drawn, Failure> {
        let mut columns: Vec<Vec<f64>> = Vec::new();
        for (number, axis) in (0..).zip(axes) {
            let mut random = Random::new(self.seed, "latin hypercube", number);
            let mut parts: Vec<usize> = (0..self.count).collect();
            random.shuffle(&mut parts);
            let within = |random: &mut Random| match axis.levels {
                Levels::List(_) => 0.5,
                Levels::Between { .. } => random.unit(),
            };
            let shares =
                parts.iter().map(|p| (*p as f64 + within(&mut random)) / self.count as f64);
            columns.push(shares.collect());
        }
        let (mut drawn, mut seen) = (Drawn::default(), BTreeSet::new());
        for at in 0..self.count {
            let one: Combination =
                axes.iter().zip(&columns).map(|(axis, shares)| axis.at(shares[at])).collect();
            if seen.insert(labels(&one)) {
                drawn.take(one, admits)?;
            } else {
                drawn.twice += 1;
            }
        }
        Ok(drawn)
    }
}

/// What tells one combination from another.
fn labels(combination: &Combination) -> Vec<String> {
    combination.iter().map(|level| level.label.to_string()).collect()
}
