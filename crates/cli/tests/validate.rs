//! `validate` as a gate: the ratchet, the threshold, and rows of other people's files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn validate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
    command.arg("validate").args(arguments).output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn validation() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../validation")
}

/// Ratchet: no family's error has grown since somebody last looked. If it has for a good reason,
/// `fatflow validate --write-ratchet validation/ratchet.toml`.
#[test]
fn predictions_have_not_become_worse() {
    let ratchet = validation().join("ratchet.toml");
    let output = validate(&["--ratchet", &ratchet.to_string_lossy()]);
    let notes: Vec<String> =
        text(&output).lines().filter(|line| line.starts_with('!')).map(str::to_owned).collect();
    assert_eq!(output.status.code(), Some(0), "{notes:#?}");
}

/// Rows as other people write them: other spellings, missing and further columns, hardware and
/// layouts that nothing here knows. What can be predicted is; the rest says why not.
#[test]
fn a_row_that_cannot_be_predicted_stops_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = "id,model,layers,hidden,heads,vocab,seq,gpu,gpus,gpus_per_node,nics_per_node,\
nic_gbps,transport,tp,pp,dp,sharding,schedule,microbatch,global_batch,precision,overlap,\
seq_parallel,measured_step_s,measured_tflops_per_gpu,colour\n\
named,llama3-8b,,,,,8192,NVIDIA H100,\"1,024\",8,8,400,InfiniBand,1,1,1024,ZeRO-1,,,1024,BF16,\
DP,true,,400,blue\n\
shape,mine,32,4096,32,50000,4096,a100,64,8,,,roce,2,2,16,none,1F1B,1,128,,dp+pp,0,,120,\n\
rack,llama3-8b,,,,,8192,gb200,64,4,4,400,infiniband,4,1,16,zero1,,1,64,bf16,dp,1,,900,\n\
tpu,llama3-8b,,,,,8192,tpu-v4,64,4,4,400,ici,4,1,16,zero1,,1,64,bf16,dp,1,,100,\n\
secret,gpt-9,,,,,8192,h100,64,8,8,400,infiniband,8,1,8,zero1,,1,64,bf16,dp,1,,100,\n\
uneven,llama3-8b,,,,,8192,h100,64,8,8,400,infiniband,3,1,8,zero1,,1,64,bf16,dp,1,,100,\n\
nothing,llama3-8b,,,,,8192,h100,64,8,8,400,infiniband,8,1,8,zero1,,1,64,bf16,dp,1,,,\n";
    fs::write(folder.path().join("rows.csv"), rows).expect("writable");
    fs::write(folder.path().join("notes.csv"), "a,b\n1,2\n").expect("writable");
    let output = validate(&[&folder.path().to_string_lossy(), "--json", "--engine", "analytic"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_str(&text(&output)).expect("JSON");
    let families = answer["result"]["families"].as_array().expect("families");
    let family = |name: &str| families.iter().find(|family| family["name"] == name).expect(name);
    let names = |list: &serde_json::Value| -> Vec<String> {
        let rows = list.as_array().expect("a list").iter();
        rows.map(|row| row["id"].as_str().expect("a name").to_owned()).collect()
    };
    let steps = family("rows");
    assert_eq!(names(&steps["cases"]), ["named", "shape", "rack"]);
    assert_eq!(names(&steps["unpredicted"]), ["tpu", "secret", "uneven", "nothing"]);
    for case in steps["cases"].as_array().expect("cases") {
        let error = case["error"].as_f64().expect("a number");
        assert!(error.abs() < 1.0, "{case}");
    }
    assert!(steps["cases"][1]["note"].as_str().expect("words").contains("assumed"));
    assert_eq!(family("notes")["unpredicted"].as_array().expect("a list").len(), 1);
}

/// A transport that nothing here knows is no other transport: the row is refused by its name.
#[test]
fn an_unknown_transport_is_not_predicted_as_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let header = "id,collective,gpu,gpus,gpus_per_node,nics_per_node,nic_gbps,transport,bytes,\
                  measured_busbw_GBps\n";
    let row = |gpus: u32, word: &str| {
        format!("{word}-{gpus},all_reduce,h100-sxm,{gpus},8,8,400,{word},1073741824,300\n")
    };
    let rows = [(16, "rocev2"), (16, "bogus"), (16, "efa"), (16, "nvlink4"), (8, "nvlink4")];
    let rows: String = rows.into_iter().map(|(gpus, word)| row(gpus, word)).collect();
    fs::write(folder.path().join("rows.csv"), format!("{header}{rows}")).expect("writable");
    let output = validate(&[&folder.path().to_string_lossy(), "--json", "--engine", "analytic"]);
    let answer: serde_json::Value = serde_json::from_str(&text(&output)).expect("JSON");
    let family = &answer["result"]["families"][0];
    let names = |list: &serde_json::Value, key: &str| -> Vec<String> {
        let rows = list.as_array().expect("a list").iter();
        rows.map(|row| row[key].as_str().expect("words").to_owned()).collect()
    };
    assert_eq!(names(&family["cases"], "id"), ["rocev2-16", "efa-16", "nvlink4-8"]);
    let reasons = names(&family["unpredicted"], "reason");
    let expected = [
        "transport: `bogus` is not known",
        "transport: `nvlink4` joins 8 GPUs; what joins 16 is missing",
    ];
    assert_eq!(reasons.len(), expected.len());
    for (reason, end) in reasons.iter().zip(expected) {
        assert!(reason.ends_with(end), "{reason}");
    }
}

#[test]
fn a_threshold_that_is_missed_is_exit_code_4() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = fs::read_to_string(validation().join("training_steps.csv")).expect("readable");
    let two: Vec<&str> = table.lines().take(2).collect();
    let file = folder.path().join("one.csv");
    fs::write(&file, two.join("\n")).expect("writable");
    let file = file.to_string_lossy().into_owned();
    let run = |limit: &str| validate(&[&file, "--engine", "analytic", "--threshold", limit]);
    assert_eq!(run("0.000001").status.code(), Some(4));
    assert_eq!(run("0.5").status.code(), Some(0));
}
