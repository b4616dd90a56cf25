//! Makes every `data/FOLDER/NAME.toml` part of the binary, as a table of folder, name and text.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it"));
    let data = root.join("data");
    let mut table = String::from(
        "/// Folder, name and packed text of every embedded file, in alphabetical order.\n\
         static PACKED: &[(&str, &str, &[u8])] = &[\n",
    );
    embedded::watch(&data)?;
    for folder in sorted(&data)?.into_iter().filter(|path| path.is_dir()) {
        embedded::watch(&folder)?;
        for file in sorted(&folder)? {
            if file.extension().is_some_and(|extension| extension == "toml") {
                let (home, name) = (stem(&folder), stem(&file));
                embedded::pack_as(&file, &format!("{home}-{name}"))?;
                let bytes = format!("include_bytes!(\"{home}-{name}\")");
                writeln!(table, "({home:?}, {name:?}, {bytes}),")
                    .expect("writing to a String cannot fail");
            }
        }
    }
    table.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets it"));
    fs::write(out.join("embedded.rs"), table)
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
