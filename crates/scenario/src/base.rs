//! A scenario that is loaded many times with other values.
//!
//! Files, presets, environment and flags are read and checked once; each load lays its own values
//! over a copy. What is wrong with such a value is shown where it was written: in the file that
//! lists the values of all cases.

use std::ops::Range;

use serde_json::Value as Json;

use crate::fabrics::Fabrics;
use crate::hash::{ScenarioHash, hash};
use crate::load::{Extent, Loaded, Loader, Request, collect_words};
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
    /// The bytes of the list that name the key.
    pub key_span: Range<usize>,
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
            loader.lay_scenario(input, request.text.as_ref(), &request.set);
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

    /// The scenario with what these `path=value` set, as if flags had.
    pub fn load_set(
        &self,
        set: &[String],
        (extent, purpose): (Extent, Purpose),
        fabrics: &Fabrics,
    ) -> Result<Loaded, Problems> {
        let mut loader = self.loader.clone();
        loader.lay_flags(set, None);
        loader.finish(&self.input, (extent, purpose), fabrics)
    }

    /// The identity of the scenario with these settings.
    pub fn hash(&self, assigned: &[Assigned]) -> Result<ScenarioHash, Problems> {
        self.identity(assigned).map(|json| hash(&json))
    }

    /// What the identity is the hash of.
    pub(crate) fn identity(&self, assigned: &[Assigned]) -> Result<Json, Problems> {
        self.with(assigned).identity()
    }

    /// Whether a text in a value names hardware of the catalogue.
    pub(crate) fn names_hardware(&self, value: &Json) -> bool {
        let mut words = Vec::new();
        collect_words(value, &mut words);
        let kinds = self.loader.merged.at("catalogue").and_then(Node::as_table);
        let is_entry = |word: &String| {
            let mut kinds = kinds.into_iter().flat_map(|kinds| kinds.values());
            kinds.any(|kind| kind.node.as_table().is_some_and(|names| names.contains_key(word)))
        };
        words.iter().any(is_entry)
    }

    fn with(&self, assigned: &[Assigned]) -> Loader {
        let mut loader = self.loader.clone();
        for Assigned { key, value, span, key_span } in assigned {
            let place = |span: &Range<usize>| Some((self.list, span.start, span.end));
            let origin = Origin { layer: Layer::Flag, place: place(span) };
            let named = Origin { layer: Layer::Flag, place: place(key_span) };
            let Some(mut node) = Node::from_json(value, origin) else { continue };
            for step in key.rsplit('.') {
                let table = Table::from([(step.to_owned(), Entry { key: named, node })]);
                node = Node { value: Value::table(table), origin };
            }
            loader.lay(node);
        }
        loader
    }
}
