//! House rules that a machine can check, so that reviewers need not.
//!
//! Crate arrows, file headers, sizes, banned words, and that ARCHITECTURE.md knows every crate and
//! every file of the folders in which one file is one algorithm.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up: a crate may use only crates before it.
const ORDER: &[&str] = &[
    "units",
    "fabric",
    "traffic",
    "flowsim",
    "packetsim",
    "roce",
    "job",
    "step",
    "embedded",
    "report",
    "exports",
    "scenario",
    "observe",
    "commands",
    "live",
    "sweep",
    "serve",
    "cli",
    "fuzz",
    "python",
];

/// Pairs that may not use each other although the order would let them.
const STRANGERS: &[(&str, &str)] = &[("packetsim", "flowsim")];

/// Crates whose results must depend on nothing but their input.
const CORE: &[&str] = &["units", "fabric", "traffic", "flowsim", "packetsim", "job", "step"];

/// The one file of the core crates that may use threads (decision 20).
const THREADS: &str = "crates/packetsim/src/threads.rs";

/// What core crates may use besides each other.
const CORE_DEPENDENCIES: &[&str] = &["serde", "schemars"];

/// Folders in which one file is one algorithm, all of them named in ARCHITECTURE.md.
const ONE_FILE_EACH: &[&str] = &[
    "crates/fabric/src/topology",
    "crates/fabric/src/routing",
    "crates/traffic/src/collective",
    "crates/packetsim/src/cc",
    "crates/job/src/schedule",
];

const LONGEST_FUNCTION: usize = 70;
/// Functions that are longer for a reason: a struct literal with a line for each field.
const MAY_BE_LONGER: &[&str] = &["crates/packetsim/src/build.rs"];
const WIDEST_LINE: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the root").to_owned()
}

fn crates() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).expect("crates are there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .filter(|name| root().join("crates").join(name).join("Cargo.toml").exists())
        .collect();
    names.sort();
    names
}

fn rust_files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(below) else { return found };
    for path in entries.map(|entry| entry.expect("readable").path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn all_rust_files() -> Vec<(String, String)> {
    let places = ["crates", "tests", "benches"];
    let files = places.iter().flat_map(|place| rust_files(&root().join(place)));
    let named = files.map(|path| {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        (name, fs::read_to_string(&path).expect("UTF-8"))
    });
    named.collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let rank = |name: &str| ORDER.iter().position(|known| *known == name);
    let mut problems = Vec::new();
    for name in crates() {
        let Some(own) = rank(&name) else {
            problems.push(format!("crate `{name}` has no place in the order"));
            continue;
        };
        let text = fs::read_to_string(root().join("crates").join(&name).join("Cargo.toml"));
        let manifest: toml::Table = text.expect("readable").parse().expect("valid TOML");
        let Some(dependencies) = manifest.get("dependencies").and_then(|d| d.as_table()) else {
            continue;
        };
        for dependency in dependencies.keys().map(String::as_str) {
            let ours = rank(dependency);
            let stranger = STRANGERS.contains(&(name.as_str(), dependency));
            if ours.is_some_and(|other| own <= other) || stranger {
                problems.push(format!("`{name}` may not use `{dependency}`"));
            }
            let core = CORE.contains(&name.as_str());
            if core && ours.is_none() && !CORE_DEPENDENCIES.contains(&dependency) {
                problems.push(format!("core crate `{name}` may not use `{dependency}`"));
            }
        }
    }
    assert_none(&problems);
}

/// The names of a table of dependencies, as code spells them.
fn dependencies(manifest: &toml::Table, table: &str) -> Vec<String> {
    let table = manifest.get(table).and_then(|table| table.as_table());
    table.into_iter().flatten().map(|(name, _)| name.replace('-', "_")).collect()
}

fn manifest(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path.join("Cargo.toml"));
    text.expect("readable").parse().expect("valid TOML")
}

/// Whether code names a crate: a path that begins with it, or an import of it.
fn names(code: &str, dependency: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(dependency).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + dependency.len()..]);
        let begins = !before.ends_with(is_word) && !before.ends_with("::");
        let is_import = before.ends_with("use ") && after.starts_with([';', ' ']);
        begins && (after.starts_with("::") || is_import)
    })
}

#[test]
fn every_dependency_is_used() {
    let mut problems = Vec::new();
    let mut wanted = Vec::new();
    let folders = crates().into_iter().map(|name| root().join("crates").join(name));
    for folder in folders.chain([root().join("tests")]) {
        let manifest = manifest(&folder);
        let code = |below: &[&str]| -> String {
            let files = below.iter().flat_map(|part| rust_files(&folder.join(part)));
            files.map(|file| fs::read_to_string(file).expect("UTF-8")).collect()
        };
        let source = code(&["src"]);
        let all = code(&["."]);
        for (table, code) in [("dependencies", &source), ("dev-dependencies", &all)] {
            for dependency in dependencies(&manifest, table) {
                if !names(code, &dependency) {
                    problems.push(format!("{}: no use of `{dependency}`", folder.display()));
                }
                wanted.push(dependency);
            }
        }
    }
    let workspace = &manifest(&root())["workspace"];
    let offered = workspace.as_table().expect("a table");
    for name in dependencies(offered, "dependencies") {
        if !wanted.contains(&name) {
            problems.push(format!("Cargo.toml: no crate wants `{name}`"));
        }
    }
    assert_none(&problems);
}

/// The review of dependencies names every crate that one of ours names, and no other.
#[test]
fn every_dependency_is_reviewed() {
    let text = fs::read_to_string(root().join("docs/dependencies.md")).expect("UTF-8");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    let reviewed: Vec<String> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|n| n.replace('-', "_"))
        .collect();
    let folders = crates().into_iter().map(|name| root().join("crates").join(name));
    let manifests: Vec<toml::Table> =
        folders.chain([root().join("tests")]).map(|folder| manifest(&folder)).collect();
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let named = manifests.iter().flat_map(|one| tables.map(|table| dependencies(one, table)));
    let mut named: Vec<String> = named.flatten().collect();
    named.retain(|name| !ORDER.contains(&name.as_str()));
    named.sort();
    named.dedup();
    let mut problems = Vec::new();
    for name in named.iter().filter(|name| !reviewed.contains(*name)) {
        problems.push(format!("docs/dependencies.md says nothing of `{name}`"));
    }
    for name in reviewed.iter().filter(|name| !named.contains(*name)) {
        problems.push(format!("docs/dependencies.md: no crate names `{name}`"));
    }
    assert_none(&problems);
}

/// Whatever is installed for tests and pages is known by its digest.
#[test]
fn everything_installed_is_known_by_its_digest() {
    let mut problems = Vec::new();
    for tests in ["formats", "python", "ray"] {
        let read = |ending: &str| {
            let path = root().join(format!("tests/{tests}/requirements.{ending}"));
            fs::read_to_string(path).expect("UTF-8")
        };
        let plain = |name: &str| name.to_lowercase().replace('_', "-");
        let locked = read("txt").replace("\\\n", "");
        let locked: Vec<&str> = locked.lines().filter(|line| !line.starts_with('#')).collect();
        for line in locked.iter().filter(|line| !line.contains("--hash=sha256:")) {
            problems.push(format!("tests/{tests}: no digest: {line}"));
        }
        for wanted in read("in").lines().filter(|line| !line.starts_with('#')) {
            if !locked.iter().any(|line| plain(line).starts_with(&plain(wanted))) {
                problems.push(format!("tests/{tests}: {wanted} is not locked"));
            }
        }
    }
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("UTF-8");
    for package in lock.split("[[package]]").filter(|package| package.contains("\nsource = ")) {
        // Neither from a branch of somebody's repository, nor from a registry of one's own.
        if !package.contains("\nsource = \"registry+") || !package.contains("\nchecksum = ") {
            problems.push(format!("Cargo.lock: no registry or no digest: {}", package.trim()));
        }
    }
    for lock in ["crates/serve/ui", "tests/browser"] {
        let text = fs::read_to_string(root().join(lock).join("package-lock.json")).expect("UTF-8");
        let count = |word: &str| text.matches(word).count();
        if count("\"node_modules/") == 0 || count("\"node_modules/") != count("\"integrity\":") {
            problems.push(format!("{lock}/package-lock.json: packages without a digest"));
        }
    }
    assert_none(&problems);
}

/// A release build checks sums as tests do.
#[test]
fn release_builds_check_overflow() {
    let checked = manifest(&root())["profile"]["release"]["overflow-checks"].as_bool();
    assert_eq!(checked, Some(true));
}

/// A topology family is its file and its entry in the list, a sentence and a line: nothing else
/// knows the torus.
#[test]
fn a_topology_family_is_its_file_and_two_lines() {
    let list = "crates/fabric/src/topology/mod.rs";
    let mut lines = Vec::new();
    for (name, text) in all_rust_files() {
        let is_own = name.ends_with("/torus.rs") || name.contains("tests") || name == list;
        let found = text.lines().filter(|line| line.to_lowercase().contains("torus"));
        let found = found.map(|line| format!("{name}: {}", line.trim()));
        lines.extend(found.filter(|_| !is_own));
    }
    assert_none(&lines);
    let list = fs::read_to_string(root().join(list)).expect("the list is there");
    let entries: Vec<&str> = list.lines().filter(|line| line.contains("torus")).collect();
    assert_eq!(entries, ["    torus::Torus = \"torus\", TorusConfig;"]);
}

#[test]
fn every_file_says_what_it_is() {
    let missing = all_rust_files().into_iter().filter(|(_, text)| !text.starts_with("//!"));
    assert_none(
        &missing.map(|(name, _)| format!("{name} does not begin with //!")).collect::<Vec<_>>(),
    );
}

#[test]
fn lines_fit_a_screen() {
    let mut problems = Vec::new();
    for (name, text) in all_rust_files() {
        for (number, line) in text.lines().enumerate() {
            // A snapshot or a string of data may be wider than what one would write.
            if line.chars().count() > WIDEST_LINE && !line.contains('"') && !line.contains('│') {
                problems.push(format!("{name}:{} is wider than {WIDEST_LINE}", number + 1));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn functions_fit_a_screen() {
    let mut problems = Vec::new();
    for (name, text) in all_rust_files() {
        if name.contains("/tests/") || name.starts_with("tests/") {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().expect("a first part");
        let lines: Vec<&str> = code.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let word = line.trim_start();
            let indent = line.len() - word.len();
            let is_function = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn "]
                .iter()
                .any(|begin| word.starts_with(begin));
            if !is_function || word.ends_with(';') {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            let length = lines[start..].iter().position(|end| *end == close).unwrap_or(0);
            if length > LONGEST_FUNCTION && !MAY_BE_LONGER.contains(&name.as_str()) {
                problems.push(format!("{name}:{} is a function of {length} lines", start + 1));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn nothing_uses_what_is_banned() {
    let core = ["HashMap", "HashSet", "Instant::now", "SystemTime", "std::env", "std::thread"];
    let outside_the_edge = ["println!", "eprintln!"];
    let everywhere = ["dbg!(", "todo!(", "unimplemented!(", "thread_rng"];
    let mut problems = Vec::new();
    for (name, text) in all_rust_files() {
        if name.starts_with("tests/") || name.contains("/tests/") || name.contains("/benches/") {
            continue;
        }
        let crate_name = name.split('/').nth(1).unwrap_or("");
        let mut banned: Vec<&str> = everywhere.to_vec();
        if CORE.contains(&crate_name) {
            banned.extend(core);
        }
        if !["cli", "serve"].contains(&crate_name) {
            banned.extend(outside_the_edge);
        }
        // A clock that jumps changes no queue and no limit: only the day of a token and what people
        // are told ask for it.
        if crate_name == "serve" && name != "crates/serve/src/jobs.rs" {
            banned.push("SystemTime::now");
        }
        if name == THREADS {
            banned.retain(|word| *word != "std::thread");
        }
        let code = text.split("#[cfg(test)]").next().expect("a first part");
        for (number, line) in code.lines().enumerate() {
            let line = line.trim_start();
            for word in banned.iter().filter(|word| line.contains(**word)) {
                if !line.starts_with("//") {
                    problems.push(format!("{name}:{} uses `{word}`", number + 1));
                }
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn the_map_knows_every_place() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md exists");
    let mut problems = Vec::new();
    for name in crates() {
        if !map.contains(&format!("`{name}`")) {
            problems.push(format!("ARCHITECTURE.md does not mention the crate `{name}`"));
        }
    }
    for folder in ONE_FILE_EACH {
        for path in rust_files(&root().join(folder)) {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("UTF-8");
            if stem != "mod" && stem != "tests" && !map.contains(&format!("`{stem}`")) {
                problems.push(format!("ARCHITECTURE.md does not mention `{stem}` of {folder}"));
            }
        }
    }
    assert_none(&problems);
}
