//! `init`: a file to start from.

use scenario::preset;
use scenario::{Extent, Loaded, Problem, Request, load};

use crate::Failure;

/// The text of a new scenario file that starts from a preset.
///
/// It names the preset and shows, commented out, what the preset says, so that the file stays
/// short and every line that can be changed is in sight.
pub fn run(name: &str) -> Result<String, Failure> {
    let Some(text) = preset::text(name) else {
        let names: Vec<&str> = preset::names().collect();
        let problem = Problem::error(format!("there is no preset called `{name}`"));
        let help = match scenario::nearest::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the presets are {}", names.join(", ")),
        };
        return Err(problem.with_help(help).into());
    };
    let preset = Some(name.to_owned());
    let request = Request { scenario: preset, extent: Extent::Settings, ..Request::default() };
    let Loaded { scenario, .. } = load(&request)?;
    let mut file = String::from(
        "# A fatflow scenario. Uncomment what you want to change; the rest stays as in the preset.\n\
         # `fatflow check --print FILE` shows every value, `fatflow schema` every key.\n\n",
    );
    let title = toml_text(&scenario.name);
    file.push_str(&format!("name = {title}\nfrom = \"{name}\"\n\n"));
    let skipped = ["name =", "from =", "description ="];
    for line in text.lines().skip_while(|line| line.trim().is_empty()) {
        if skipped.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        let comment = if line.is_empty() || line.starts_with('#') { "" } else { "# " };
        file.push_str(&format!("{comment}{line}\n"));
    }
    Ok(file)
}

/// A text in TOML's quotes.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
