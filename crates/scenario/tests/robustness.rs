//! Whatever a file holds, loading it ends with a scenario or with problems that can be drawn.

use std::path::Path;

use proptest::prelude::*;
use scenario::{Colour, Request, Style, load};

/// Loads the bytes as a file and draws what is wrong with it.
fn survive(bytes: &[u8]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    std::fs::write(&path, bytes).unwrap();
    survive_path(&path)
}

fn survive_path(path: &Path) -> Result<(), String> {
    let request = Request { scenario: Some(path.display().to_string()), ..Request::default() };
    match load(&request) {
        Ok(_) => Ok(()),
        Err(problems) => {
            assert!(!problems.0.is_empty(), "a refusal says why");
            Err(problems.render(Style { colour: Colour::Never, width: 80 }))
        }
    }
}

const VALID: &str = r#"
name = "a scenario"
description = "with what there is"
seed = 7

[cluster]
gpus = 16
nic_rate = "400Gbps"

[job]
model = "llama3-8b"
parallel = { tp = 8, cp = 1 }
placement = "linear"

[[reported]]
metric = "step"
value = 1.5
unit = "s"
source = "nowhere"
trust = "M"

[catalogue.nic.mine]
title = "Mine"
rate_gbps = { value = 400, source = "me", trust = "M" }
ports = 1
send_latency_ns = { value = 400, source = "me", trust = "M" }
receive_latency_ns = { value = 400, source = "me", trust = "M" }
reorder = "none"
power_w = { value = 25, source = "me", trust = "M" }
price_usd = { value = 1000, source = "me", trust = "M" }
"#;

#[test]
fn the_text_that_is_mutated_is_valid() {
    assert_eq!(survive(VALID.as_bytes()), Ok(()));
}

#[test]
fn a_file_cut_off_anywhere_is_read_or_refused() {
    for end in (0..VALID.len()).step_by(3) {
        let _ = survive(&VALID.as_bytes()[..end]);
    }
}

#[test]
fn deep_nesting_is_refused_with_a_sentence() {
    let deep_list = format!("seed = {}", "[".repeat(100_000));
    let deep_table = format!("seed = {}", "{a=".repeat(100_000));
    let deep_key = format!("{} = 1", vec!["a"; 100_000].join("."));
    let wide_and_deep = (0..79).map(|_| format!("{{{} = ", vec!["a"; 79].join(".")));
    let wide_and_deep = format!("x = {}1{}", wide_and_deep.collect::<String>(), "}".repeat(79));
    for text in [deep_list, deep_table, deep_key, wide_and_deep] {
        let refusal = survive(text.as_bytes()).unwrap_err();
        assert!(refusal.len() < 2_000, "{}", refusal.len());
    }
}

#[test]
fn a_thousand_mistakes_fill_a_screen_and_not_more() {
    let strangers: String = (0..5_000).map(|n| format!("unknown{n} = {n}\n")).collect();
    let text = format!("cluster.gpus = 16\n{strangers}");
    let refusal = survive(text.as_bytes()).unwrap_err();
    assert!(refusal.contains("5000 errors, of which the first 50 are shown"), "{refusal}");
    let text: String = (0..100_000).map(|n| format!("unknown{n} = {n}\n")).collect();
    let refusal = survive(text.as_bytes()).unwrap_err();
    assert!(refusal.contains("of which the first 50 are shown"), "{refusal}");
    let one_line = format!("x = [{}]", "1, ".repeat(1_000_000));
    let refusal = survive(one_line.as_bytes()).unwrap_err();
    assert!(refusal.len() < 2_000, "{}", refusal.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = survive(&bytes);
    }

    #[test]
    fn random_lines_never_panic(text in "([a-z\\[\\]{}=\".,0-9 \n]|\\PC){0,200}") {
        let _ = survive(text.as_bytes());
    }

    #[test]
    fn mutated_files_never_panic(
        changes in proptest::collection::vec((0..VALID.len(), any::<u8>()), 1..8),
    ) {
        let mut bytes = VALID.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let _ = survive(&bytes);
    }

    #[test]
    fn any_flag_or_variable_is_read_or_refused(path in "\\PC{0,20}", value in "\\PC{0,20}") {
        let request = Request {
            set: vec![format!("{path}={value}")],
            environment: vec![(format!("FATFLOW_SET_{path}"), value)],
            ..Request::default()
        };
        if let Err(problems) = load(&request) {
            problems.render(Style { colour: Colour::Always, width: 20 });
        }
    }
}
