//! Makes every `data/FOLDER/NAME.toml` part of the binary, as a table of folder, name and text.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it"));
    let data = root.join("data");
    let mut table = String::from(
        "/// Folder, name and text of every embedded file, in alphabetical order.\n\
         static EMBEDDED: &[(&str, &str, &str)] = &[\n",
    );
    rerun_if_changed(&data)?;
    for folder in sorted(&data)?.into_iter().filter(|path| path.is_dir()) {
        rerun_if_changed(&folder)?;
        for file in sorted(&folder)? {
            if file.extension().is_some_and(|extension| extension == "toml") {
                rerun_if_changed(&file)?;
                let (home, name) = (stem(&folder), stem(&file));
                writeln!(table, "({home:?}, {name:?}, include_str!({file:?})),")
                    .expect("writing to a String cannot fail");
            }
        }
    }
    table.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets it"));
    fs::write(out.join("embedded.rs"), table)
}

/// Tells Cargo, which listens on standard output.
fn rerun_if_changed(path: &Path) -> io::Result<()> {
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", path.display())
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a file in a folder has a name").to_string_lossy().into_owned()
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
