//! `init`: a file to start from.

use scenario::{Extent, Request, load, preset};

use crate::Failure;
use crate::presets::unknown;

/// The text of a new scenario file that starts from a preset.
///
/// It names the preset and shows, commented out, what the preset says, so that the file stays
/// short and every line that can be changed is in sight. Published figures stay out: they belong
/// to the system that the preset describes, not to what the user makes of it.
pub fn run(name: &str) -> Result<String, Failure> {
    let Some(text) = preset::text(name) else { return Err(unknown(name).into()) };
    let preset = Some(name.to_owned());
    let request = Request { scenario: preset, extent: Extent::Settings, ..Request::default() };
    let title = load(&request)?.scenario.name;
    let mut file = format!(
        "# A fatflow scenario. Uncomment what you want to change; the rest stays as in the preset.\n\
         # `fatflow check --print FILE` shows every value, `fatflow schema` every key.\n\n\
         name = {}\nfrom = \"{name}\"\n",
        toml_text(&title)
    );
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
    Ok(file)
}

/// A text in TOML's quotes, which are JSON's.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
