//! `fatflow traffic` on the four deployments of the comparative analysis: what its page must show,
//! and that its numbers fit each other.

use std::process::Command;

use serde_json::Value;

fn fatflow(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
    let output = command.arg("--quiet").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn result(arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["traffic", "--json"].iter().chain(arguments).copied().collect();
    let answer: Value = serde_json::from_str(&fatflow(&all)).unwrap();
    answer["result"].clone()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Property: axes, primitives, rails and the lowest tier each add up to the step's bytes; nothing
/// is sent faster than NICs send; shares are shares.
fn check(preset: &str) {
    let result = result(&[preset]);
    let all = number(&result["bytes_per_step"]);
    let sum = |of: &Value| -> f64 {
        match of {
            Value::Object(parts) => parts.values().map(number).sum(),
            Value::Array(parts) => parts.iter().map(number).sum(),
            other => panic!("{other} is not a sum"),
        }
    };
    assert!(all > 1e12, "{preset}: {all}");
    for key in ["by_axis", "by_primitive", "per_rail_bytes"] {
        let off = sum(&result[key]) / all - 1.0;
        assert!(off.abs() < 1e-9, "{preset}: {key} adds up to {off:+} more");
    }
    let tiers: Vec<f64> =
        result["per_tier_bytes"].as_object().unwrap().values().map(number).collect();
    let most = tiers.iter().copied().fold(0.0, f64::max);
    assert!((most / all - 1.0).abs() < 1e-9, "{preset}: all bytes reach a leaf");
    let burst = &result["burst"];
    assert!(number(&burst["peak_bps"]) <= number(&burst["limit_bps"]) * (1.0 + 1e-9), "{burst}");
    assert!(1.0 <= number(&burst["peak_to_mean"]));
    let shares = [&burst["duty_cycle"], &result["elephants"]["bytes_share"]];
    let entropy = &result["entropy"];
    for share in shares.into_iter().chain([&entropy["normalised"], &entropy["idle_uplinks"]]) {
        assert!((0.0..=1.0).contains(&number(share)), "{preset}: {share}");
    }
    let page = fatflow(&["traffic", preset]);
    for heading in [
        "Who needs it",
        "What a GPU asks for",
        "How large transfers are",
        "When",
        "How well flows are told apart",
        "Through which tiers",
        "What placement does",
        "Who sends to whom",
    ] {
        assert!(page.contains(&format!("\n{heading}")), "{preset}: no {heading}\n{page}");
    }
    let widest = page.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= 100, "{preset}: {widest} columns");
}

#[test]
fn gpt4() {
    check("gpt4-azure");
}

#[test]
fn llama3() {
    check("llama3-meta-roce");
    check("llama3-meta-ib");
}

#[test]
fn deepseek() {
    check("deepseek-v2");
}

/// 200,000 GPUs at a fraction of their copies, so that the test is quick; the whole takes seconds
/// in a release build (docs/performance.md).
#[test]
fn grok4() {
    let fewer = ["job.gpus=24576", "job.parallel.dp=192", "job.batch.sequences=3072"];
    let mut arguments = vec!["grok4-colossus"];
    arguments.extend(fewer.iter().flat_map(|set| ["--set", set]));
    let result = result(&arguments);
    assert!(number(&result["by_axis"]["ep"]) > 0.0 && number(&result["by_axis"]["dp"]) > 0.0);
    assert!(!result["calls"].as_array().unwrap().is_empty());
}

/// What the comparative analysis says of placement and of routing limits holds in direction.
#[test]
fn placement_and_limits_cut_traffic() {
    let placements = result(&["llama3-meta-roce"])["placements"].clone();
    let zone = |name: &str| {
        let rows = placements.as_array().unwrap();
        let row = rows.iter().find(|row| row["placement"] == name).unwrap();
        number(&row["cross_zone_bytes"])
    };
    assert!(zone("topology-aware") < 0.7 * zone("random"), "{placements}");
    let experts = |scenario: &str| number(&result(&[scenario])["by_axis"]["ep"]);
    let (limited, free) =
        (experts("claims/deepseek-limited"), experts("claims/deepseek-unlimited"));
    assert!(0.0 < limited && limited < free, "{limited} of {free}");
}

/// Oracle: HPN's table 3 for GPT-3 175B with TP 8, PP 8, DP 512 (docs/traffic.md says what holds).
#[test]
fn gpt3_beside_the_published_volumes() {
    let sets = [
        "cluster.gpus=32768",
        "job.gpus=32768",
        "job.model=gpt3-175b",
        "job.parallel.tp=8",
        "job.parallel.pp=8",
        "job.parallel.dp=512",
        "job.parallel.sharding=none",
        "job.parallel.gradients=bf16",
        "job.batch.sequences=32768",
        "job.batch.length=2048",
    ];
    let mut arguments = vec!["small-1024"];
    arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
    let calls = result(&arguments)["calls"].clone();
    let row = |axis: &str, name: &str| {
        let rows = calls.as_array().unwrap();
        let found = rows.iter().find(|row| row["axis"] == axis && row["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {calls}")).clone()
    };
    let off = |bytes: f64, published: f64| (bytes / published - 1.0).abs();
    assert!(off(number(&row("dp", "gradients")["bytes_per_gpu"]), 5.5e9) < 0.02);
    assert!(off(number(&row("pp", "activations")["call_bytes"]), 6e6) < 0.05);
    let tensor = row("tp", "block input");
    assert_eq!(tensor["leaves"], false);
    assert!(off(12.0 * number(&tensor["call_bytes"]), 560e6) < 0.09);
}
