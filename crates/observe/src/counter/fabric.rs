//! The fabric as other tools tell it: `ibnetdiscover`, Slurm's `topology.conf` and `topology.yaml`.
//!
//! A scenario reads these files itself (`fabric.file`); here is counted what is in them, and they
//! are remembered for a scenario that is made of all files.

use memchr::memmem::find;

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::FabricFile;

/// `ibnetdiscover`.
pub const IBNETDISCOVER: Format = Format {
    name: "ibnetdiscover output",
    unit: "blocks",
    recognises: |input| {
        let head = input.head();
        find(head, b"switchguid=").is_some() || find(head, b"caguid=").is_some()
    },
    read: ibnetdiscover,
};
/// Slurm's `topology.conf`.
pub const SLURM: Format = Format {
    name: "Slurm topology.conf",
    unit: "lines",
    recognises: |input| {
        let text = input.head_text();
        let is_key = |line: &str| line.starts_with("SwitchName=") || line.starts_with("BlockName=");
        text.lines().any(|line| is_key(line.trim_start()))
    },
    read: slurm,
};
/// Slurm's `topology.yaml`.
pub const SLURM_YAML: Format = Format {
    name: "Slurm topology.yaml",
    unit: "lines",
    recognises: |input| {
        let text = input.head_text();
        let has = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
        has("- topology:") && (has("tree:") || has("block:") || has("flat:"))
    },
    read: slurm_yaml,
};

fn ibnetdiscover(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut fabric = new("ibnetdiscover", input);
    let mut ends = 0;
    while let Some((_, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Switch") => fabric.switches += 1,
            Some("Ca") => fabric.hosts += 1,
            Some(port) if port.starts_with('[') => ends += 1,
            _ => continue,
        }
        if !line.starts_with('[') {
            reading.source.read += 1;
        }
    }
    // Both ends name a cable.
    fabric.cables = ends / 2;
    reading.observed.fabrics.push(fabric);
    Ok(())
}

fn slurm(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut fabric = new("Slurm", input);
    while let Some((_, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.starts_with("SwitchName=") && !line.starts_with("BlockName=") {
            reading.source.skipped += 1;
            continue;
        }
        reading.source.read += 1;
        fabric.switches += 1;
        let nodes = line.split("Nodes=").nth(1).and_then(|rest| rest.split_whitespace().next());
        fabric.hosts = fabric.hosts.saturating_add(nodes.map_or(0, names));
    }
    reading.observed.fabrics.push(fabric);
    Ok(())
}

fn slurm_yaml(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut fabric = new("Slurm", input);
    while let Some((_, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let line = line.trim().trim_start_matches("- ");
        match line.split_once(':') {
            Some(("switch" | "block", name)) if !name.trim().is_empty() => fabric.switches += 1,
            Some(("nodes", list)) => {
                let more = names(list.trim().trim_matches('"'));
                fabric.hosts = fabric.hosts.saturating_add(more);
            }
            _ => {
                reading.source.skipped += u64::from(!line.is_empty() && !line.starts_with('#'));
                continue;
            }
        }
        reading.source.read += 1;
    }
    reading.observed.fabrics.push(fabric);
    Ok(())
}

fn new(kind: &'static str, input: &Input<'_>) -> FabricFile {
    let path = input.path.as_ref().map(|path| path.display().to_string());
    FabricFile { file: input.name.clone(), path, kind, ..FabricFile::default() }
}

/// How many names a list like `n[1-3,7],m2` has; each range counts.
fn names(list: &str) -> u64 {
    let (mut count, mut depth, mut inside) = (1_u64, 0, String::new());
    for letter in list.chars() {
        match letter {
            '[' => depth = 1,
            ']' => {
                depth = 0;
                let many = inside.split(',').map(|range| match range.split_once('-') {
                    Some((first, last)) => match (first.parse::<u64>(), last.parse::<u64>()) {
                        (Ok(first), Ok(last)) => last.saturating_sub(first).saturating_add(1),
                        _ => 1,
                    },
                    None => 1,
                });
                let many = many.fold(0, u64::saturating_add).saturating_sub(1);
                count = count.saturating_add(many);
                inside.clear();
            }
            ',' if depth == 0 => count = count.saturating_add(1),
            letter if depth == 1 => inside.push(letter),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lists_are_counted() {
        for (list, count) in [("a", 1), ("a,b", 2), ("n[1-3,7]", 4), ("n[01-16],m", 17)] {
            assert_eq!(names(list), count, "{list}");
        }
    }

    /// Found by `fuzz`: ranges as long as numbers go, and one name more.
    #[test]
    fn names_beyond_counting_are_as_many_as_can_be_counted() {
        let list = "n[01-18446744073709551615],x";
        assert_eq!(names(list), u64::MAX);
        let text = format!("SwitchName=s Nodes={list}\nSwitchName=t Nodes=y\n");
        let observed = crate::read_bytes("topology.conf", text.as_bytes());
        assert_eq!(observed.fabrics[0].hosts, u64::MAX);
    }
}
