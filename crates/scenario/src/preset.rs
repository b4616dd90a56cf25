//! The scenarios and the hardware that come with fatflow, and where users keep their own.
//!
//! Every `data/FOLDER/NAME.toml` of this crate is part of the binary: adding a preset is adding a
//! file. The folders are `presets` (whole scenarios), `hardware` (parts of the catalogue),
//! `networks` (to be put under a job), `own` (a file to fill in) and `claims` (scenarios that test
//! what the documents say, which are called `claims/NAME`).

use std::path::Path;
use std::sync::LazyLock;

use crate::nearest::nearest;
use crate::prices;
use crate::problem::Problem;
use crate::source::{Source, read};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The names of all presets, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    in_folder("presets").map(|(name, _)| name)
}

/// The text of a preset, of a scenario that tests a claim (`claims/NAME`), of a deployment as the
/// comparative analysis tells it (`NAME/told`), of a year of its history (`history/NAME`), or of a
/// network to put under a job (`networks/NAME`).
pub fn text(name: &str) -> Option<&'static str> {
    let (folder, name) = match name.split_once('/') {
        Some(("claims", name)) => ("claims", name),
        Some(("history", name)) => ("history", name),
        Some(("networks", name)) => ("networks", name),
        Some((name, "told")) => ("told", name),
        _ => ("presets", name),
    };
    in_folder(folder).find(|(known, _)| *known == name).map(|(_, text)| text)
}

/// The deployments that there are as told, in alphabetical order.
pub fn told() -> impl Iterator<Item = &'static str> + Clone {
    in_folder("told").map(|(name, _)| name)
}

/// Whole networks to compare under one job, in the order in which they are compared.
pub fn networks() -> impl Iterator<Item = &'static str> + Clone {
    in_folder("networks").map(|(name, _)| name)
}

/// A scenario of a cluster of one's own: no preset, but a file to fill in.
pub fn own() -> &'static str {
    in_folder("own").next().map_or("", |(_, text)| text)
}

/// The embedded hardware files.
pub(crate) fn hardware() -> impl Iterator<Item = Source> {
    in_folder("hardware").map(|(name, text)| Source::new(format!("catalogue {name}"), text))
}

/// Every catalogue file of a folder of the user's, in alphabetical order, or the one file named.
pub(crate) fn user_hardware(path: &Path) -> Result<Vec<Source>, Problem> {
    if !path.is_dir() {
        let file = read(path)?;
        let is_list = path.extension().is_some_and(|extension| extension == "csv");
        return Ok(vec![if is_list { prices::read(&file)? } else { file }]);
    }
    let refuse = |error: std::io::Error| {
        Problem::error(format!("cannot read the catalogue `{}`: {error}", path.display()))
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(path).map_err(refuse)? {
        let path = entry.map_err(refuse)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// The problem of a preset that does not exist.
pub fn unknown(name: &str) -> Problem {
    let problem = Problem::error(format!("there is no preset and no file called `{name}`"));
    if job::model::Model::preset(name).is_some() {
        let help = format!("`{name}` is a model: `fatflow init own --set job.model={name}`");
        return problem.with_help(help);
    }
    match nearest(name, names()) {
        Some(near) => problem.with_help(format!("did you mean `{near}`?")),
        None => problem.with_help("`fatflow presets` lists the presets"),
    }
}

fn in_folder(folder: &str) -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    static EMBEDDED: LazyLock<Vec<(&str, &str, String)>> = LazyLock::new(|| {
        let unpacked =
            PACKED.iter().map(|(home, name, text)| (*home, *name, embedded::unpacked(text)));
        unpacked.collect()
    });
    EMBEDDED
        .iter()
        .filter(move |(home, _, _)| *home == folder)
        .map(|(_, name, text)| (*name, text.as_str()))
}
