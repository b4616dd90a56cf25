//! Failures from outside: `topo --domains` and `run --days`.

use std::process::Command;

use serde_json::Value;

/// Exit code, standard output and standard error.
fn fatflow(line: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fatflow"))
        .args(line.split(' '))
        .env("COLUMNS", "120")
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("it ends by itself");
    (code, text(&output.stdout), text(&output.stderr))
}

fn result(line: &str) -> Value {
    let (code, text, said) = fatflow(line);
    assert_eq!(code, 0, "{line}: {said}");
    let mut answer: Value = serde_json::from_str(&text).expect("JSON");
    answer["result"].take()
}

#[test]
fn failure_domains_as_people_see_them() {
    let (code, text, said) = fatflow("topo small-128 --domains");
    assert_eq!(code, 0, "{said}");
    let from = text.find("Failure domains").expect("they are shown");
    let to = text.find("The fabric drawn").expect("the drawing follows");
    insta::assert_snapshot!(&text[from..to]);
}

/// The table adds up, obeys the size of a rack, and is refused beside a file for other tools.
#[test]
fn failure_domains_for_programs() {
    let domains = &result("topo small-128 --domains --rack-servers 3 --json")["domains"];
    assert_eq!(domains["rack_servers"], 3);
    let rows = domains["rows"].as_array().unwrap();
    let shares = rows.iter().filter_map(|row| row["lost_share"].as_f64());
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);
    let rack = rows.iter().find(|row| row["part"] == "rack").unwrap();
    assert_eq!(rack["gpus_stopped"], 24);
    assert!(rack["failures_per_year"].is_null());
    assert!(result("topo small-128 --json").get("domains").is_none());
    assert_eq!(fatflow("topo small-128 --domains --dot").0, 2);
    assert_eq!(fatflow("topo small-128 --rack-servers 3").0, 2);
}

/// Llama 3's run, from its published inputs: more than 90 % of the time was effective.
#[test]
fn thirty_days_of_llama3() {
    let run = result("run llama3-meta-roce --days 30 --seeds 200 --engine analytic --json");
    let campaign = &run["campaign"];
    let mean = campaign["goodput"]["mean"].as_f64().unwrap();
    assert!((0.90..0.96).contains(&mean), "{mean}");
    let failures = campaign["failures"]["mean"].as_f64().unwrap();
    assert!((failures / (30.0 * 419.0 / 54.0) - 1.0).abs() < 0.02, "{failures}");
    let closed = campaign["closed_form"].as_f64().unwrap();
    assert_eq!(closed, run["goodput"].as_f64().unwrap());
    assert!((mean / closed - 1.0).abs() < 0.02, "{mean} {closed}");
    assert!(campaign["inputs"].as_array().unwrap().iter().all(|input| input["source"] != ""));
}

/// The same campaigns at any number of threads; other seeds are other campaigns.
#[test]
fn campaigns_do_not_depend_on_threads() {
    let line = "run small-128 --days 365 --engine analytic --json --seeds 40 --threads";
    let [one, four] =
        ["1", "4"].map(|threads| result(&format!("{line} {threads}"))["campaign"].take());
    assert_eq!(one, four);
    let other = result(&format!("{line} 1 --seed 9"))["campaign"].take();
    assert_ne!(one["goodput"], other["goodput"]);
}

/// Copies that go on are predicted with fewer, and lose less.
#[test]
fn elastic_copies_are_predicted() {
    let line = "run small-128 --days 100 --seeds 20 --engine analytic --json --set \
                reliability.scale=300";
    let goodput = |run: &Value| run["campaign"]["goodput"]["mean"].as_f64().unwrap();
    let fixed = result(line);
    let elastic = result(&format!("{line} --set reliability.data_parallel=elastic"));
    assert!(goodput(&fixed) < goodput(&elastic));
    let steps = elastic["campaign"]["steps"].as_array().unwrap();
    assert!(2 <= steps.len(), "{steps:?}");
    assert!(steps[1]["gpus"].as_u64() < steps[0]["gpus"].as_u64());
    assert!(steps[1]["speed"].as_f64().unwrap() < 1.0);
}

#[test]
fn campaigns_are_shown_and_refused() {
    let (_, text, _) = fatflow("run small-16 --days 30 --engine analytic");
    for words in ["30 days by dice: one campaign", "Share that trains", "What the campaign rests"] {
        assert!(text.contains(words), "{text}");
    }
    for (line, why) in [
        ("run small-16 --days 30 --engine all", "one engine"),
        ("run small-16 --days 30 --set traffic.pattern=permutation", "--days is for a job"),
        ("run small-16 --days 0", "--days"),
    ] {
        let (code, _, said) = fatflow(line);
        assert_ne!(code, 0, "{line}");
        assert!(said.contains(why), "{line}: {said}");
    }
    // What only a campaign looks at is named without one.
    let spares = "run small-16 --engine analytic --json --set reliability.spare_nodes=3";
    let (_, text, _) = fatflow(spares);
    assert!(text.contains("`run --days`"), "{text}");
}
