//! How keys are written that one line does not show: lists of tables, and files.
//!
//! The same text stands in errors, in `explain` and in the book's reference of keys.

/// Keys, and TOML that has them.
const EXAMPLES: [(&str, &str); 5] = [
    (
        "faults",
        "[[faults]]\non = \"leaf 0 - spine 1\"\nwhat = { kind = \"flap\", period = \"20ms\", down = \
         \"5ms\" }\nat = \"10ms\"\nfor = \"100ms\"\n",
    ),
    (
        "jobs",
        "[[jobs]]\nname = \"mine\"\nmodel = \"llama3-8b\"\nnodes = [0, 1]\nparallel = { tp = 8, dp \
         = 2 }\n\n[[jobs]]\nname = \"theirs\"\nmodel = \"llama3-8b\"\nnodes = \"node[2-3]\"\n\
         parallel = { tp = 8, dp = 2 }\n",
    ),
    (
        "fabric.file",
        "[fabric]\ntopology = \"file\"\nfile = \"cables.csv\" # a,b,rate: node0/nic0,leaf0,400Gbps\n",
    ),
    ("job.model", "[job]\nmodel = \"config.json\" # or a preset's name, such as \"llama3-8b\"\n"),
    ("targets", "[targets]\nmfu = 0.4\nstep = \"5s\"\n"),
];

/// The same on one line, of lists and of tables whose first key is not the one people want, for
/// errors.
const LINES: [(&str, &str); 4] = [
    (
        "faults",
        "faults = [{ on = \"leaf 0 - spine 1\", what = { kind = \"link-down\" }, at = \"10ms\" }]",
    ),
    ("fabric.leaf", "fabric.leaf.switch = \"spectrum-4\""),
    ("fabric.spine", "fabric.spine.switch = \"spectrum-4\""),
    ("jobs", "jobs = [{ model = \"llama3-8b\", nodes = [0, 1], parallel = { tp = 8, dp = 2 } }]"),
];

/// One line of TOML that has a key.
pub fn line(key: &str) -> Option<&'static str> {
    let list = key.split_once('.').filter(|(_, at)| at.bytes().all(|c| c.is_ascii_digit()));
    let list = list.map_or(key, |(list, _)| list);
    LINES.iter().find(|(known, _)| *known == list).map(|(_, text)| *text)
}

/// TOML that has a key, where one line would not show how it is written.
pub fn example(key: &str) -> Option<&'static str> {
    let found = EXAMPLES.iter().find(|(known, _)| {
        // An entry of a list is written as the list is.
        let rest = key.strip_prefix(known);
        rest.is_some_and(|rest| {
            let number = rest.strip_prefix('.').unwrap_or_default();
            rest.is_empty() || (!number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
        })
    });
    found.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, load};

    /// What an error tells people to write is accepted.
    #[test]
    fn every_example_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let cables = "a,b,rate\nnode0/nic0,leaf0,400Gbps\nnode1/nic0,leaf0,400Gbps\n";
        std::fs::write(folder.path().join("cables.csv"), cables).unwrap();
        let all = EXAMPLES.iter().chain(&LINES).filter(|(key, _)| *key != "job.model");
        for (key, text) in all {
            let base = if *key == "fabric.file" { "" } else { "from = \"small-128\"\n" };
            let base = if *key == "jobs" {
                "[cluster]\ngpus = 32\n[fabric]\ntopology = \"clos\"\n"
            } else {
                base
            };
            let path = folder.path().join("one.toml");
            // What stands on one line comes before tables.
            let is_line = !text.starts_with('[');
            let text = if is_line { format!("{text}\n{base}") } else { format!("{base}\n{text}") };
            std::fs::write(&path, text).unwrap();
            let scenario = Some(path.display().to_string());
            let loaded = load(&Request { scenario, ..Request::default() });
            assert!(loaded.is_ok(), "{key}: {:?}", loaded.err());
        }
    }

    #[test]
    fn entries_of_lists_are_written_as_their_list() {
        assert_eq!(example("faults.0"), example("faults"));
        assert_eq!(example("faults.0.at"), None);
        assert_eq!(example("jobsite"), None);
        assert!(line("faults.3").is_some() && line("faults.0.at").is_none());
    }
}
