//! Leaves out of the measured tables what the program does not read: the last three columns, and
//! rows that no family of kernels wants.

use std::io::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// `kind` to `us`.
const COLUMNS: usize = 8;

fn main() -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    for name in ["h200_kernels.csv", "h200_stream.csv"] {
        writeln!(io::stdout(), "cargo::rerun-if-changed=data/{name}")?;
        let text = fs::read_to_string(format!("data/{name}"))?;
        let kept = |line: &&str| !line.starts_with("launch,") && !line.starts_with("range,");
        let rows = text.lines().filter(kept).map(|line| {
            let columns: Vec<&str> = line.split(',').take(COLUMNS).collect();
            columns.join(",") + "\n"
        });
        fs::write(Path::new(&out).join(name), rows.collect::<String>())?;
    }
    Ok(())
}
