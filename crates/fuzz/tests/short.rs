//! A short run of every target: the same inputs every time.

use fuzz::{Campaign, TARGETS};

/// Executions of each target. Those that write files or lay out a whole scenario are slower.
const EACH: u64 = 400;

#[test]
fn no_reader_panics_or_hangs() {
    let mut finds = Vec::new();
    for target in TARGETS {
        let mut campaign = Campaign::new(target, 20_260);
        for _ in 0..EACH {
            if let Err(find) = campaign.step() {
                let input = String::from_utf8_lossy(&find.input).into_owned();
                finds.push(format!("{}: {}: {input:?}", find.target, find.what));
            }
        }
        // A target whose reader says one thing to everything tests nothing.
        assert!(1 < campaign.answers(), "{} says one thing only", target.name);
    }
    assert!(finds.is_empty(), "{} finds:\n{}", finds.len(), finds.join("\n"));
}

#[test]
fn a_run_is_the_same_run_again() {
    let target = TARGETS.iter().find(|target| target.name == "slurm-conf").unwrap();
    let run = || {
        let mut campaign = Campaign::new(target, 3);
        for _ in 0..300 {
            campaign.step().unwrap();
        }
        campaign.answers()
    };
    assert_eq!(run(), run());
}

/// What once broke a reader (`tests/finds/TARGET-HASH`, as the fuzzer writes it) does no more.
#[test]
fn what_was_found_stays_mended() {
    let finds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/finds");
    let mut tried = 0;
    for entry in std::fs::read_dir(finds).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let (name, _) = name.rsplit_once('-').unwrap();
        let target = TARGETS.iter().find(|target| target.name == name);
        let target = target.unwrap_or_else(|| panic!("no target `{name}`"));
        let began = commands::meter::Meter::start();
        (target.read)(&std::fs::read(&path).unwrap());
        assert!(began.cpu_s() < fuzz::MAX_SECONDS, "{} takes long", path.display());
        tried += 1;
    }
    assert!(0 < tried);
}
