//! Every `fatflow` command in README and book is run, in a folder of its own, and must succeed.
//!
//! Blocks marked `sh` are run line by line; a redirection writes the output to a file beside them,
//! as a shell would. Lines that build or serve are left out. Blocks marked with a language and a
//! name (`toml grid.toml`) are files that lie there before. Pages that need a cluster are run by
//! `tests/slurm` and `tests/ray`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn commands(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside && line.starts_with("fatflow ") && !line.starts_with("fatflow serve") {
            found.push(line.to_owned());
        }
    }
    found
}

/// Files that a page shows: their names and contents.
fn shown_files(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(marks) = line.strip_prefix("```") {
            let name = marks.split_once(' ').map(|(_, name)| name.trim().to_owned());
            inside = name.is_some();
            found.extend(name.map(|name| (name, String::new())));
        } else if inside {
            let (_, content) = found.last_mut().expect("a block has begun");
            content.push_str(line);
            content.push('\n');
        }
    }
    found
}

/// Words as a shell would split them: blanks, single and double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') if !word.is_empty() => words.push(std::mem::take(&mut word)),
            (None, ' ') => {}
            (_, c) => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Pages whose commands need a cluster.
const ELSEWHERE: [&str; 2] = ["slurm.md", "ray.md"];

#[test]
fn every_command_of_the_book_works() {
    let pages = fs::read_dir(root().join("docs")).expect("the book is there");
    let mut paths: Vec<PathBuf> = pages.map(|page| page.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    paths.retain(|path| !ELSEWHERE.iter().any(|page| path.ends_with(page)));
    paths.push(root().join("README.md"));
    paths.sort();
    let mut count = 0;
    for file in paths {
        let folder = tempfile::tempdir().expect("a folder");
        let text = fs::read_to_string(&file).expect("UTF-8");
        for (name, content) in shown_files(&text) {
            fs::write(folder.path().join(name), content).expect("writable");
        }
        for line in commands(&text) {
            let (command, target) = line.split_once(" > ").unwrap_or((&line, ""));
            let output = Command::new(env!("CARGO_BIN_EXE_fatflow"))
                .args(&words(command)[1..])
                .current_dir(folder.path())
                .output()
                .expect("the binary runs");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {line}\n{complaint}", file.display());
            if !target.is_empty() {
                fs::write(folder.path().join(target), &output.stdout).expect("writable");
            }
            count += 1;
        }
    }
    assert!(15 <= count, "only {count} commands were found");
}
