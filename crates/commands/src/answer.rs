//! What every command's answer becomes: JSON in its envelope, a page under its title.

use report::{Answer, Envelope, Page, Sheet};
use scenario::Loaded;
use units::Unused;

use crate::VERSION;
use crate::failure::Failure;

/// What somebody wrote and the answer does not obey.
pub fn unused<A: Answer>(about: Option<&Loaded>, answer: &A) -> Vec<Unused> {
    let mut unused = about.map_or(Vec::new(), |loaded| loaded.unused.clone());
    unused.extend(answer.unused());
    unused
}

/// The answer in its envelope.
pub fn json<A: Answer>(
    command: &str,
    about: Option<&Loaded>,
    unused: &[Unused],
    answer: &A,
) -> Result<String, Failure> {
    let envelope = Envelope {
        fatflow: VERSION,
        command,
        engine: answer.engine(),
        seed: about.map(|loaded| loaded.scenario.seed),
        scenario: about.map(|loaded| loaded.hash.to_string()),
        unused,
        result: answer,
    };
    envelope.to_json().map_err(|error| Failure::Run(format!("cannot write JSON: {error}")))
}

/// The page that shows a sheet.
pub fn page(command: &str, about: Option<&Loaded>, sheet: &Sheet) -> Page {
    let mut page = Page::of(sheet);
    page.name = format!("fatflow-{command}");
    if let Some(loaded) = about {
        let (hash, seed) = (&loaded.hash, loaded.scenario.seed);
        page.subtitle.push(format!("fatflow {command}, scenario {hash}, seed {seed}"));
    }
    page.footer = format!("Made by fatflow {VERSION}: fatflow {command}");
    page
}
