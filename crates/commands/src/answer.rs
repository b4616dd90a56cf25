//! What every command's answer becomes: JSON in its envelope, a page under its title.

use report::{Answer, Envelope, Page, Sheet};
use scenario::Loaded;
use units::Unused;

use crate::VERSION;
use crate::about::{About, scenario_file};
use crate::failure::Failure;

/// What somebody wrote and the answer does not obey.
pub fn unused<A: Answer>(about: Option<&Loaded>, answer: &A) -> Vec<Unused> {
    let mut unused = about.map_or(Vec::new(), |loaded| loaded.unused.clone());
    unused.extend(answer.unused());
    unused
}

/// What the answer is about, if that is one scenario; `again` is the command that makes it.
pub fn about<A: Answer>(loaded: Option<&Loaded>, answer: &A, again: &str) -> Option<About> {
    let loaded = loaded.filter(|loaded| loaded.is_whole());
    loaded.map(|loaded| About::of(loaded, answer.engine(), again))
}

/// The answer in its envelope.
pub fn json<A: Answer>(
    command: &str,
    loaded: Option<&Loaded>,
    unused: &[Unused],
    answer: &A,
    again: &str,
) -> Result<String, Failure> {
    let about = about(loaded, answer, again);
    let envelope = Envelope {
        fatflow: VERSION,
        command,
        engine: answer.engine(),
        seed: loaded.map(|loaded| loaded.scenario.seed),
        scenario: loaded.map(|loaded| loaded.hash.to_string()),
        about: about.as_ref(),
        unused,
        result: answer,
    };
    envelope.to_json().map_err(|error| Failure::Run(format!("cannot write JSON: {error}")))
}

/// The page that shows a sheet: what it is about stands below it, with the scenario to copy.
/// `again` is the command that makes it.
pub fn page(
    command: &str,
    loaded: Option<&Loaded>,
    sheet: &Sheet,
    about: Option<&About>,
    again: &str,
) -> Page {
    let mut sheet = sheet.clone();
    if let Some(about) = about {
        sheet = sheet.heading("What this is about").table(about.table());
    }
    if let Some(loaded) = loaded {
        sheet = sheet.heading("The scenario").verbatim(scenario_file(loaded));
    }
    let mut page = Page::of(&sheet);
    page.name = format!("fatflow-{command}");
    if let Some(about) = about {
        page.subtitle.push(about.words(&sheet));
    }
    if let Some(loaded) = loaded {
        let (hash, seed) = (&loaded.hash, loaded.scenario.seed);
        page.subtitle.push(format!("fatflow {command}, scenario {hash}, seed {seed}"));
    }
    let again = if again.is_empty() { format!("fatflow {command}") } else { again.to_owned() };
    page.footer = format!("Made by fatflow {VERSION}: {again}");
    page
}
