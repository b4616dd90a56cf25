//! A scenario that is loaded many times with other values.
//!
//! Files, presets, environment and flags are read and checked once; each load lays its own values
//! over a copy. What is wrong with such a value is shown where it was written: in the file that
//! lists the values of all cases.

use std::ops::Range;

use serde_json::Value as Json;

use crate::fabrics::Fabrics;
use crate::hash::ScenarioHash;
use crate::load::{Extent, Loaded, Loader, Request};
use crate::problem::{Problem, Problems};
use crate::purpose::Purpose;
use crate::source::{Source, SourceId};
use crate::tree::{Entry, Layer, Node, Origin, Table, Value};

/// One value for one key, and where in the list of cases it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// The dotted path.
    pub key: String,
    /// The value.
    pub value: Json,
    /// The bytes of the list that say so.
    pub span: Range<usize>,
}

/// What many scenarios share.
#[derive(Debug)]
pub struct Base {
    input: String,
    loader: Loader,
    list: SourceId,
}

impl Base {
    /// Reads everything that a request names; `list` is where the values of the cases will come
    /// from, and paths in them are relative to its folder.
    pub fn read(request: &Request, list: Source) -> Result<Self, Problems> {
        let mut loader = Loader::begin();
        let list = loader.sources.add(list);
        loader.lay_user_catalogue(&request.catalogue);
        if let Some(input) = &request.scenario {
            loader.lay_scenario(input, request.text.as_ref());
        }
        loader.lay_environment(&request.environment);
        loader.lay_flags(&request.set, request.seed);
        loader.lay_flows(request.flows.as_ref());
        if !loader.problems.is_empty() {
            return Err(Problems(loader.problems));
        }
        loader.know_catalogue();
        let input = request.scenario.clone().unwrap_or_else(|| "defaults".to_owned());
        Ok(Self { input, loader, list })
    }

    /// The value of a key before a case says anything.
    pub fn value(&self, key: &str) -> Option<Json> {
        self.loader.merged.at(key).map(Node::to_json)
    }

    /// What is wrong with values by themselves: unknown keys and words, wrong types.
    pub fn check(&self, assigned: &[Assigned]) -> Vec<Problem> {
        self.with(assigned).problems
    }

    /// The scenario with these values.
    pub fn load(
        &self,
        assigned: &[Assigned],
        (extent, purpose): (Extent, Purpose),
        fabrics: &Fabrics,
    ) -> Result<Loaded, Problems> {
        self.with(assigned).finish(&self.input, (extent, purpose), fabrics)
    }

    /// The identity of the scenario with these settings.
    pub fn hash(&self, assigned: &[Assigned]) -> Result<ScenarioHash, Problems> {
        self.with(assigned).identity()
    }

    fn with(&self, assigned: &[Assigned]) -> Loader {
        let mut loader = self.loader.clone();
        for Assigned { key, value, span } in assigned {
            let place = Some((self.list, span.start, span.end));
            let origin = Origin { layer: Layer::Flag, place };
            let Some(mut node) = Node::from_json(value, origin) else { continue };
            for step in key.rsplit('.') {
                let table = Table::from([(step.to_owned(), Entry { key: origin, node })]);
                node = Node { value: Value::table(table), origin };
            }
            loader.lay(node);
        }
        loader
    }
}
