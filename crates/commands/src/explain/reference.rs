//! The book's reference of keys: what `explain` says of one, of all.

use super::{Entry, entries};

/// The page of the book.
pub fn reference() -> String {
    let mut page = "# Every key of the scenario file\n\n\
                    Made by `fatflow explain --markdown`; `fatflow explain KEY` says the same of \
                    one key, and with `--scenario` what it does in a scenario. `*` stands for a \
                    number or a name of your own. A key is obeyed by the commands named; where \
                    another reads it, the answer names it as unused.\n"
        .to_owned();
    let mut table = "";
    for entry in entries() {
        let top = entry.key.split('.').next().unwrap_or_default();
        if top != table {
            table = top;
            page += &format!(
                "\n## `{top}`\n\n| key | meaning | value | default | example | obeyed by |\n"
            );
            page += "| --- | --- | --- | --- | --- | --- |\n";
        }
        page += &line(&entry.whole());
    }
    page += "\n## Longer examples\n";
    for entry in entries().iter().filter(|entry| entry.example.contains('\n')) {
        page += &format!("\n`{}`:\n\n```toml\n{}\n```\n", entry.key, entry.example);
    }
    page
}

fn line(entry: &Entry) -> String {
    let plain = |text: &str| text.replace('\n', " ").replace('|', "\\|");
    let code = |text: &str| match text {
        "" => String::new(),
        text => format!("`{}`", plain(text)),
    };
    let with = entry.only_with.as_ref().map_or_else(String::new, |with| format!(" (with {with})"));
    let mut value = vec![entry.kinds.join(" or "), entry.unit.to_owned(), entry.range.clone()];
    let words: Vec<String> = entry.words.iter().map(|word| code(&word.word)).collect();
    value.push(words.join(", "));
    value.retain(|part| !part.is_empty());
    format!(
        "| `{}`{} | {} | {} | {} | {} | {} |\n",
        entry.key,
        plain(&with),
        plain(&entry.about),
        plain(&value.join("; ")).replace("\\\\|", "\\|"),
        code(&entry.default),
        if entry.example.contains('\n') { "below".to_owned() } else { code(&entry.example) },
        plain(&entry.obeyed_by.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    /// The page of the book is what would be made now.
    #[test]
    fn the_reference_is_not_stale() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keys.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        let is_same = written == super::reference();
        assert!(is_same, "make it anew: fatflow explain --markdown > docs/keys.md");
    }
}
