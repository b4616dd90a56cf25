//! Files of a running cluster beside those of the advice: what differs.
//!
//! A file is told by what stands in it. Of each kind only what the advice says is compared: a
//! switch's configuration has a thousand lines that no advice is about.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use report::{Align, Answer, Sheet, Table};
use scenario::{Problem, import, source};
use serde::Serialize;
use serde_json::Value as Json;

use super::write::File;
use crate::failure::Failure;

/// What files say beside the advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The change that they are held against.
    pub name: String,
    /// Files that were read, and what each was taken for.
    pub files: Vec<(String, &'static str)>,
    /// What differs.
    pub differences: Vec<Difference>,
    /// Values that agree.
    pub agree: usize,
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The file.
    pub file: String,
    /// What it is called there.
    pub key: String,
    /// What the file says; nothing if it does not.
    pub has: Option<String>,
    /// What the advice says.
    pub wants: String,
}

/// Holds files against those of an advice.
pub fn check(name: &str, advised: &[File], paths: &[PathBuf]) -> Result<Checked, Failure> {
    let (mut files, mut differences, mut agree) = (Vec::new(), Vec::new(), 0);
    for path in paths {
        let text = source::read(path)?.text.to_string();
        let shown = path.display().to_string();
        let kind = kind(path, &text)?;
        files.push((shown.clone(), kind));
        let Some(own) = advised.iter().find(|file| file.name == kind) else {
            let message = format!("{shown} is taken for {kind}, of which the advice says nothing");
            return Err(Problem::error(message).into());
        };
        let has = facts(path, kind, &text)?;
        for (key, wants) in facts(Path::new(own.name), kind, &own.text)? {
            match has.get(&key) {
                Some(has) if *has == wants => agree += 1,
                other => differences.push(Difference {
                    file: shown.clone(),
                    key,
                    has: other.cloned(),
                    wants,
                }),
            }
        }
    }
    Ok(Checked { name: name.to_owned(), files, differences, agree })
}

/// What a file is, by what stands in it.
fn kind(path: &Path, text: &str) -> Result<&'static str, Failure> {
    let has = |word: &str| text.contains(word);
    let tables = ["WRED_PROFILE", "SWITCH_HASH", "PORT_QOS_MAP", "BUFFER_P", "PFC_WD"];
    let ranks = || {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.all(|line| line.starts_with('#') || line.trim().parse::<u64>().is_ok())
    };
    Ok(match () {
        () if has("<system") => "nccl-topo.xml",
        () if tables.iter().any(|table| has(table)) => "sonic-config_db.json",
        () if has("train_batch_size") || has("zero_optimization") => "deepspeed.json",
        () if has("--tensor-model-parallel-size") => "megatron.args",
        () if has("parallel_degree") => "torchtitan.toml",
        () if has("SwitchName=") => "topology.conf",
        () if has("switches:") && has("tree:") => "topology.yaml",
        () if has("pbr-map") => "frr-pbr.conf",
        () if has("nv set") => "nvue.txt",
        () if has("mlnx_qos") || has("bnxt_setupcc") => "nic.sh",
        () if has("NCCL_") => "nccl.conf",
        () if ranks() => "ranks.txt",
        () => {
            let message = format!("{}: not a file that advise writes", path.display());
            let help = "it reads SONiC's and NVUE's settings, NCCL's variables and topology, \
                        pbr-maps, Slurm's topology, rank files, and arguments of trainers";
            return Err(Problem::error(message).with_help(help).into());
        }
    })
}

/// What a file says, by name.
fn facts(path: &Path, kind: &str, text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let wrong = |reason: String| -> Failure {
        Problem::error(format!("{}: {reason}", path.display())).into()
    };
    let mut facts = BTreeMap::new();
    match kind {
        "sonic-config_db.json" | "deepspeed.json" => {
            let json: Json =
                serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
            leaves(&json, "", &mut facts);
        }
        "torchtitan.toml" => {
            let table: toml::Table =
                text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
            let json = serde_json::to_value(table).map_err(|error| wrong(error.to_string()))?;
            leaves(&json, "", &mut facts);
        }
        "nccl-topo.xml" => {
            let name = path.display().to_string();
            let server = import::server(&name, text).map_err(|error| wrong(error.to_string()))?;
            let settings = server.settings().into_iter();
            facts.extend(settings.map(|(key, value)| (key.to_owned(), value.to_string())));
        }
        "nccl.conf" => {
            for line in lines(text, "#") {
                let line = line.trim_start_matches("export ");
                let Some((name, value)) = line.split_once('=') else { continue };
                let value = value.trim().trim_matches(['"', '\'']);
                facts.insert(name.trim().to_owned(), value.to_owned());
            }
        }
        "megatron.args" => arguments(text, &mut facts),
        "ranks.txt" => {
            let ranks = lines(text, "#").enumerate();
            facts.extend(ranks.map(|(rank, gpu)| (format!("rank {rank}"), gpu.to_owned())));
        }
        "frr-pbr.conf" => rules(text, &mut facts),
        // What is set is what stands there, in whatever order.
        _ => facts.extend(lines(text, "#").map(|line| (line.to_owned(), "set".to_owned()))),
    }
    Ok(facts)
}

/// The lines of a text without remarks.
fn lines<'a>(text: &'a str, remark: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().map(str::trim).filter(move |line| !line.is_empty() && !line.starts_with(remark))
}

/// `--flag value`, in whatever lines.
fn arguments(text: &str, facts: &mut BTreeMap<String, String>) {
    let words: Vec<&str> = lines(text, "#").flat_map(str::split_whitespace).collect();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with("--")) {
        let (flag, own) = word.split_once('=').unwrap_or((word, ""));
        let next = words.get(at + 1).filter(|next| !next.starts_with("--") && **next != "\\");
        let value = if own.is_empty() { next.copied().unwrap_or("given") } else { own };
        facts.insert(flag.to_owned(), value.to_owned());
    }
}

/// The rules of pbr-maps: which destination goes where.
fn rules(text: &str, facts: &mut BTreeMap<String, String>) {
    let (mut map, mut to) = (String::new(), String::new());
    for line in lines(text, "!") {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["pbr-map", name, ..] => map = (*name).to_owned(),
            ["match", "dst-ip", address] => to = (*address).to_owned(),
            ["set", "nexthop", next, ..] => {
                facts.insert(format!("{map} to {to}"), (*next).to_owned());
            }
            _ => {}
        }
    }
}

/// The leaves of a value with their paths.
fn leaves(json: &Json, path: &str, facts: &mut BTreeMap<String, String>) {
    match json {
        Json::Object(fields) => {
            // What begins so is a remark.
            for (key, value) in fields.iter().filter(|(key, _)| !key.starts_with('_')) {
                let inside = if path.is_empty() { key.clone() } else { format!("{path}|{key}") };
                leaves(value, &inside, facts);
            }
        }
        Json::String(text) => {
            facts.insert(path.to_owned(), text.clone());
        }
        other => {
            facts.insert(path.to_owned(), other.to_string());
        }
    }
}

impl Answer for Checked {
    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new().heading(format!("Files beside the advice: {}", self.name));
        let count = self.differences.len();
        sheet = sheet.text(match count {
            0 => format!("All {} values are as advised.", self.agree),
            _ => format!("{count} values differ from the advice, {} agree.", self.agree),
        });
        let mut files = Table::new([("file", Align::Left), ("taken for", Align::Left)]);
        for (file, kind) in &self.files {
            files.row([file.as_str(), kind]);
        }
        sheet = sheet.table(files);
        if 0 < count {
            let columns = ["file", "key", "has", "advised"].map(|name| (name, Align::Left));
            let mut table = Table::new(columns);
            for Difference { file, key, has, wants } in &self.differences {
                let has = has.clone().unwrap_or_else(|| "nothing".to_owned());
                table.row([file.clone(), key.clone(), has, wants.clone()]);
            }
            sheet = sheet.table(table);
        }
        sheet
    }
}
