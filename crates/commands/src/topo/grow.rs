//! `topo A B`: what going from one fabric to another keeps, buys, moves and leaves over.
//!
//! Parts are alike if they are of one kind and one model. What both have is kept; a part that
//! stands at another place in the second (a switch or a cable of another tier) is moved. At the
//! second fabric's prices what is kept and what is bought add up to its bill.

use std::collections::BTreeMap;

use fabric::cost::{Bill, BillLine, Part};
use report::number::{dollars, grouped};
use report::{Align, Answer, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;

/// From one fabric to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// One for each kind and model of part.
    pub parts: Vec<Piece>,
    /// What is kept, at the second fabric's prices.
    pub kept_usd: f64,
    /// What is bought.
    pub bought_usd: f64,
    /// The second fabric's bill: both together.
    pub cost_usd: f64,
    /// Cables of the first fabric that are kept and lie elsewhere in the second.
    pub recabled: u64,
    #[serde(skip)]
    titles: [String; 2],
}

/// One kind and model of part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Piece {
    /// The model.
    pub title: String,
    /// What kind of part it is.
    pub part: Part,
    /// How many the first fabric has.
    pub from: u64,
    /// How many the second has.
    pub to: u64,
    /// Those of the first that the second uses.
    pub kept: u64,
    /// Kept ones that stand at another place.
    pub moved: u64,
    /// Those that are bought.
    pub bought: u64,
    /// Those of the first that nobody uses any more.
    pub left_over: u64,
    /// What the kept ones are worth at the second fabric's prices.
    pub kept_usd: f64,
    /// What the bought ones cost.
    pub bought_usd: f64,
}

/// Counts and cost of one kind and model, by place.
#[derive(Default)]
struct Had {
    places: BTreeMap<String, u64>,
    cost_usd: f64,
}

impl Had {
    fn count(&self) -> u64 {
        self.places.values().sum()
    }
}

type ByModel = BTreeMap<(Part, String), Had>;

fn by_model(bill: &Bill) -> ByModel {
    let mut found = ByModel::new();
    for BillLine { part, title, place, count, cost_usd, .. } in &bill.lines {
        let had = found.entry((*part, title.clone())).or_default();
        *had.places.entry(place.clone()).or_default() += count;
        had.cost_usd += cost_usd;
    }
    found
}

/// What going from the first fabric to the second takes.
pub fn grow(from: &Loaded, to: &Loaded) -> Growth {
    let bill = |loaded: &Loaded| loaded.summary().bill;
    let (before, after) = (by_model(&bill(from)), by_model(&bill(to)));
    let nothing = Had::default();
    let models: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut parts = Vec::new();
    for key in models {
        let had = before.get(key).unwrap_or(&nothing);
        let has = after.get(key).unwrap_or(&nothing);
        let kept = had.count().min(has.count());
        let stays = |(place, count): (&String, &u64)| {
            (*count).min(has.places.get(place).copied().unwrap_or(0))
        };
        let in_place: u64 = had.places.iter().map(stays).sum();
        let each = if has.count() == 0 { 0.0 } else { has.cost_usd / has.count() as f64 };
        let kept_usd = each * kept as f64;
        parts.push(Piece {
            part: key.0,
            title: key.1.clone(),
            from: had.count(),
            to: has.count(),
            kept,
            moved: kept - in_place.min(kept),
            bought: has.count() - kept,
            left_over: had.count() - kept,
            kept_usd,
            bought_usd: has.cost_usd - kept_usd,
        });
    }
    let is_cable = |piece: &&Piece| piece.part == Part::Cable;
    Growth {
        kept_usd: parts.iter().map(|piece| piece.kept_usd).sum(),
        bought_usd: parts.iter().map(|piece| piece.bought_usd).sum(),
        cost_usd: bill(to).cost_usd,
        recabled: parts.iter().filter(is_cable).map(|piece| piece.moved).sum(),
        parts,
        titles: [from.title(), to.title()],
    }
}

impl Answer for Growth {
    fn sheet(&self) -> Sheet {
        let [from, to] = &self.titles;
        let mut table = Table::new([
            ("part", Align::Left),
            ("has", Align::Right),
            ("needs", Align::Right),
            ("kept", Align::Right),
            ("of which moved", Align::Right),
            ("bought", Align::Right),
            ("cost", Align::Right),
            ("left over", Align::Right),
        ]);
        for piece in &self.parts {
            table.row([
                piece.title.clone(),
                grouped(piece.from),
                grouped(piece.to),
                grouped(piece.kept),
                grouped(piece.moved),
                grouped(piece.bought),
                dollars(piece.bought_usd),
                grouped(piece.left_over),
            ]);
        }
        Sheet::new()
            .heading(format!("From {from} to {to}"))
            .facts([
                ("bought", dollars(self.bought_usd), "of the second's bill"),
                ("kept", dollars(self.kept_usd), "at its prices"),
                ("in all", dollars(self.cost_usd), "the second's bill"),
                ("recabled", grouped(self.recabled), "cables that are kept and lie elsewhere"),
            ])
            .table(table)
    }
}
