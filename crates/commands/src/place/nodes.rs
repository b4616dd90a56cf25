//! Which servers are free: lists of names, and what `sinfo` and `scontrol` print.
//!
//! Read are host lists (one or several in a line; what follows `#` is a remark), tables with a line
//! of headings as `sinfo` and `sinfo -N` print them, two columns of node and state in either order
//! (`sinfo -h -N -o '%N %t'`), and `scontrol show node`, with `-o` or without. A node is free if
//! its state is idle and nothing else: not drained, not reserved, not silent (`idle*`).

use std::collections::BTreeMap;

use scenario::Problem;
use scenario::import::{HOSTS, expand};
use scenario::source::Source;

/// What a file says of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Names in order, each once, and whether it is idle; none where only names are given.
    pub nodes: Vec<(String, Option<bool>)>,
}

/// Reads a list of nodes.
pub fn read(source: &Source) -> Result<Listed, Problem> {
    let mut found = Listed::default();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut columns: Option<(usize, usize)> = None;
    let mut pending: Option<Vec<String>> = None;
    let mut budget = HOSTS;
    for (number, line) in (1..).zip(source.text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        let refuse = |why: String| Problem::error(format!("{}:{number}: {why}", source.name));
        let mut hosts = |list: &str| expand(list, &mut budget).map_err(refuse);
        let mut add = |names: Vec<String>, idle: Option<bool>| {
            for name in names {
                match known.get(&name) {
                    // A node of two partitions stands there twice.
                    Some(at) => {
                        let before = &mut found.nodes[*at].1;
                        *before = before.zip(idle).map(|(a, b)| a && b).or(idle);
                    }
                    None => {
                        known.insert(name.clone(), found.nodes.len());
                        found.nodes.push((name, idle));
                    }
                }
            }
        };
        let value = |key: &str| {
            let mut of = words.iter().filter_map(|word| word.strip_prefix(key));
            of.next().map(str::to_owned)
        };
        if let Some(name) = value("NodeName=") {
            pending = Some(hosts(&name)?);
        }
        if let (Some(state), Some(names)) = (value("State="), pending.as_ref()) {
            add(names.clone(), Some(is_idle(&state)));
            pending = None;
            continue;
        }
        if pending.is_some() || words.is_empty() || line.contains('=') {
            continue;
        }
        if let Some(found) = headings(&words) {
            columns = Some(found);
            continue;
        }
        match (columns, words.as_slice()) {
            (Some((node, state)), words) => {
                let (Some(node), Some(state)) = (words.get(node), words.get(state)) else {
                    return Err(refuse("the line has fewer columns than the headings".to_owned()));
                };
                add(hosts(node)?, Some(is_idle(state)));
            }
            (None, [first, second]) if is_state(second) => {
                add(hosts(first)?, Some(is_idle(second)));
            }
            (None, [first, second]) if is_state(first) => {
                add(hosts(second)?, Some(is_idle(first)));
            }
            (None, words) => {
                for word in words {
                    add(hosts(word)?, None);
                }
            }
        }
    }
    if found.nodes.is_empty() {
        let problem = Problem::error(format!("`{}` names no node", source.name));
        return Err(problem.with_help("it is a list of names, or what `sinfo -N` prints"));
    }
    Ok(found)
}

/// Where nodes and their states stand below these headings.
fn headings(words: &[&str]) -> Option<(usize, usize)> {
    let at = |names: &[&str]| words.iter().position(|word| names.contains(word));
    Some((at(&["NODELIST", "HOSTNAMES", "NODES(A/I/O/T)"])?, at(&["STATE", "STATE_COMPLETE"])?))
}

/// The states of nodes, without what is appended to them. Source: Slurm's man page of `sinfo`.
const STATES: [&str; 26] = [
    "alloc",
    "allocated",
    "allocated+",
    "blocked",
    "cloud",
    "comp",
    "completing",
    "down",
    "drain",
    "drained",
    "draining",
    "drng",
    "fail",
    "failing",
    "failg",
    "future",
    "idle",
    "inval",
    "maint",
    "mix",
    "mixed",
    "perfctrs",
    "planned",
    "plnd",
    "resv",
    "unk",
];

fn is_state(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let plain = word.trim_end_matches(['*', '~', '#', '!', '%', '$', '@', '^', '-', '+']);
    STATES.contains(&plain.split('+').next().unwrap_or_default())
}

/// Whether a node can be had. `IDLE+CLOUD` can: that is where it stands, not what it does.
fn is_idle(state: &str) -> bool {
    let state = state.to_ascii_lowercase();
    let mut words = state.split('+');
    let harmless = ["cloud", "dynamic_norm", "dynamic_future"];
    words.next() == Some("idle") && words.all(|flag| harmless.contains(&flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(text: &str) -> Vec<(String, Option<bool>)> {
        let source = Source::new("x", text);
        read(&source).unwrap().nodes
    }

    fn free(text: &str) -> Vec<String> {
        nodes(text).into_iter().filter(|node| node.1 == Some(true)).map(|node| node.0).collect()
    }

    #[test]
    fn names_and_host_lists() {
        let read = nodes("# mine\nn[1-3],n7 m1\n\nn2 # again\n");
        let names: Vec<&str> = read.iter().map(|node| node.0.as_str()).collect();
        assert_eq!(names, ["n1", "n2", "n3", "n7", "m1"]);
        assert!(read.iter().all(|node| node.1.is_none()));
    }

    #[test]
    fn sinfo_as_it_is_printed() {
        let text = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n\
                    low*         up   infinite      1    mix n1\n\
                    low*         up   infinite      3   idle n[2-4]\n\
                    low*         up   infinite      1  idle* n5\n\
                    high         up   infinite      1   resv n4\n";
        assert_eq!(free(text), ["n2", "n3"]);
        let long = "NODELIST   NODES PARTITION       STATE CPUS\nn1  1  low*  idle 4\nn2 1 low* drained 4\n";
        assert_eq!(free(long), ["n1"]);
        assert_eq!(free("n1 idle\nn[2-3] alloc\nn4 idle~\n"), ["n1"]);
        assert_eq!(free("idle n[1-2]\nmix n3\n"), ["n1", "n2"]);
    }

    #[test]
    fn scontrol_as_it_is_printed() {
        let text = "NodeName=n1 Arch=x86_64 CoresPerSocket=1\n   CPUAlloc=0 CPUEfctv=4\n   \
                    State=IDLE ThreadsPerCore=1\n   Partitions=low,high\n\n\
                    NodeName=n2 Arch=x86_64\n   State=IDLE+DRAIN ThreadsPerCore=1\n\n\
                    NodeName=n3\n   State=IDLE+CLOUD ThreadsPerCore=1\n";
        assert_eq!(free(text), ["n1", "n3"]);
        let one_line =
            "NodeName=n1 Arch=x State=MIXED Cores=1\nNodeName=n2 Arch=x State=IDLE Cores=1\n";
        assert_eq!(free(one_line), ["n2"]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let source = |text: &str| Source::new("x", text);
        assert!(read(&source("n[1-")).unwrap_err().to_string().contains("x:1"));
        assert!(read(&source("# nothing\n")).unwrap_err().to_string().contains("no node"));
        let short = "NODELIST STATE\nn1\n";
        assert!(read(&source(short)).unwrap_err().to_string().contains("x:2"));
    }
}
