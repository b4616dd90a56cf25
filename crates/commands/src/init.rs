//! `init`: a file to start from.

use scenario::{Extent, Loaded, Request, load, preset};
use serde_json::Map;

use crate::Failure;
use crate::presets::unknown;

/// The text of a new scenario file that starts from the preset of a request.
///
/// What flags have set is written out: single keys at the top, tables at the end.
///
/// It names the preset and shows, commented out, what the preset says, so that the file stays
/// short and every line that can be changed is in sight. Published figures stay out: they belong
/// to the system that the preset describes, not to what the user makes of it.
pub fn run(name: &str, request: &Request) -> Result<String, Failure> {
    let Some(text) = preset::text(name) else { return Err(unknown(name).into()) };
    let scenario = Some(name.to_owned());
    let environment = Vec::new();
    let request = Request { scenario, environment, extent: Extent::Settings, ..request.clone() };
    let loaded = load(&request)?;
    let title = &loaded.scenario.name;
    let mut file = format!(
        "# A fatflow scenario. Uncomment what you want to change; the rest stays as in the preset.\n\
         # `fatflow check --print FILE` shows every value, `fatflow schema` every key.\n\n\
         name = {}\nfrom = \"{name}\"\n",
        toml_text(title)
    );
    let (keys, tables) = flags(&loaded);
    file.push_str(&keys);
    let mut in_published = false;
    let mut is_blank = false;
    for line in text.lines() {
        if line.starts_with('[') {
            in_published = line.starts_with("[[reported]]");
        }
        let replaced = ["name =", "from =", "description ="];
        if in_published || replaced.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        match line.trim() {
            "" => is_blank = true,
            line => {
                let gap = if std::mem::take(&mut is_blank) { "\n" } else { "" };
                let comment = if line.starts_with('#') { "" } else { "# " };
                file.push_str(&format!("{gap}{comment}{line}\n"));
            }
        }
    }
    if !tables.is_empty() {
        file.push_str(&format!("\n# Set with --set:\n{tables}"));
    }
    Ok(file)
}

/// What flags have set as TOML: keys at the top of the file, and tables. The name has its line.
fn flags(loaded: &Loaded) -> (String, String) {
    let serde_json::Value::Object(set) = loaded.set_by_flags() else { return Default::default() };
    let set = set.into_iter().filter(|(key, _)| key != "name");
    let (tables, keys): (Map<_, _>, Map<_, _>) = set.partition(|(_, value)| value.is_object());
    let text = |map: &Map<_, _>| toml::to_string(map).expect("what TOML gave, TOML can hold");
    (text(&keys), text(&tables))
}

/// A text in TOML's quotes, which are JSON's.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
