//! Tells the binary from which commit it was built, where that is known: there may be no git.

use std::process::Command;

fn main() {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    // A package's source may say it, for it is no checkout.
    let said = std::env::var("FATFLOW_BUILT_FROM").ok().filter(|said| !said.is_empty());
    let commit = said.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=FATFLOW_COMMIT={commit}");
    println!("cargo::rerun-if-env-changed=FATFLOW_BUILT_FROM");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}
