//! Packs what was measured and said, as it stands in the tree.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    for name in ["claims.toml", "statements.toml"] {
        embedded::pack(format!("data/{name}"))?;
    }
    embedded::pack("../../docs/glossary.md")?;
    for folder in ["../../validation", "../packetsim/tests/reference"] {
        embedded::watch(Path::new(folder))?;
        for entry in fs::read_dir(folder)? {
            let file = entry?.path();
            let is_wanted = |end| file.extension().is_some_and(|extension| extension == end);
            if is_wanted("csv") || is_wanted("toml") {
                embedded::pack(&file)?;
            }
        }
    }
    Ok(())
}
