//! The binary as people run it: exit codes, what goes where, and that nothing is a surprise.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A folder to run in.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(name: &str, text: &str) -> Self {
        let desk = Self::new();
        std::fs::write(desk.path(name), text).unwrap();
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command, with an environment in which only what a test sets matters.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
        command.current_dir(self.0.path()).args(arguments).env_clear();
        command
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        Answer::of(self.command(arguments).output().unwrap())
    }
}

struct Answer {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Answer {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

const SMALL: &str = "name = \"small\"\n[cluster]\ngpus = 16\n";

#[test]
fn exit_codes_say_what_happened() {
    let desk = Desk::with("good.toml", SMALL);
    std::fs::write(desk.path("bad.toml"), "nmae = 1\n").unwrap();
    std::fs::write(desk.path("latin1.toml"), b"name = \"\xfc\"").unwrap();
    std::fs::create_dir(desk.path("folder")).unwrap();
    std::fs::File::create(desk.path("big.toml")).unwrap().set_len(100_000_000).unwrap();
    let cases: &[(&[&str], i32)] = &[
        (&["check", "good.toml"], 0),
        (&["topo", "good.toml"], 0),
        (&["schema"], 0),
        (&["presets"], 0),
        (&["presets", "--kind", "gpu"], 0),
        (&["man"], 0),
        (&["man", "topo"], 0),
        (&["completions", "bash"], 0),
        (&["--help"], 0),
        (&["--version"], 0),
        (&[], 2),
        (&["topology"], 2),
        (&["check"], 2),
        (&["check", "good.toml", "--set", "seed"], 2),
        (&["check", "good.toml", "--threads", "0"], 2),
        (&["check", "good.toml", "--engine", "steam"], 2),
        (&["topo", "good.toml", "--dot", "--csv"], 2),
        (&["check", "bad.toml"], 3),
        (&["topo", "bad.toml"], 3),
        (&["check", "missing.toml"], 3),
        (&["check", "missing"], 3),
        (&["check", "folder"], 3),
        (&["check", "latin1.toml"], 3),
        (&["check", "big.toml"], 3),
        (&["check", "good.toml", "--set", "sede=1"], 3),
        (&["init", "no-such-preset"], 3),
        (&["man", "no-such-command"], 3),
    ];
    for (arguments, code) in cases {
        let answer = desk.run(arguments);
        assert_eq!(answer.code, Some(*code), "{arguments:?}: {}", answer.error);
        let silent = if *code == 0 { &answer.error } else { &answer.out };
        assert_eq!(silent, "", "{arguments:?}");
    }
}

/// With `--json` whatever goes wrong is JSON on standard output, and text on standard error.
#[test]
fn mistakes_are_json_where_json_was_asked_for() {
    let desk = Desk::with("good.toml", SMALL);
    std::fs::write(desk.path("bad.toml"), "nmae = 1\n[cluster]\ngpsu = 16\n").unwrap();
    let cases: &[(&[&str], i32, &str, &str)] = &[
        (&["topo", "bad.toml"], 3, "topo", "bad.toml:1:1"),
        (&["topo", "missing.toml"], 3, "topo", ""),
        (&["run", "good.toml"], 1, "run", ""),
        (&["collective", "all_reduce", "good.toml", "--gpus", "17"], 2, "collective", ""),
        (&["topo", "good.toml", "--set", "cluster.gpus=0"], 3, "topo", ""),
        (&["topo"], 2, "", ""),
        (&["topo", "good.toml", "--engine", "steam"], 2, "", ""),
    ];
    for (arguments, code, command, place) in cases {
        let answer = desk.run(&[arguments, &["--json"][..]].concat());
        assert_eq!(answer.code, Some(*code), "{arguments:?}: {}", answer.error);
        assert_ne!(answer.error, "", "{arguments:?}");
        let json = answer.json();
        assert_eq!(json["command"], *command, "{arguments:?}");
        assert_eq!(json["fatflow"], env!("CARGO_PKG_VERSION"));
        let error = &json["error"];
        assert!(!error["message"].as_str().unwrap().is_empty(), "{arguments:?}: {json}");
        if !place.is_empty() {
            assert_eq!(error["place"], *place, "{json}");
            assert!(error["help"].as_str().unwrap().contains("name"), "{json}");
            assert_eq!(error["others"][0]["place"], "bad.toml:3:1", "{json}");
        }
    }
}

#[test]
fn three_mistakes_are_three_errors_and_exit_code_3() {
    let file = "[cluster]\ngpus = 16\ngpus_per_node = 8\nnic_rate = \"400\"\nracks = 2\n\
                [job]\nparallel = { tp = 3 }\n";
    let desk = Desk::with("my.toml", file);
    let answer = desk.run(&["check", "my.toml"]);
    assert_eq!(answer.code, Some(3));
    insta::assert_snapshot!(answer.error);

    let answer = desk.run(&["check", "my.toml", "--json"]);
    assert_eq!(answer.code, Some(3));
    let result = &answer.json()["result"];
    assert_eq!(result["valid"], false);
    let problems = result["problems"].as_array().unwrap();
    let lines: Vec<_> = problems.iter().map(|problem| problem["line"].as_u64()).collect();
    assert_eq!(lines, [Some(4), Some(5), Some(7)]);
}

#[test]
fn json_answers_come_in_the_envelope() {
    let desk = Desk::with("my.toml", SMALL);
    let answer = desk.run(&["topo", "my.toml", "--json", "--seed", "5"]).json();
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    let expected =
        ["fatflow", "command", "engine", "seed", "scenario", "about", "unused", "result"];
    assert_eq!(keys, expected);
    assert_eq!(answer["about"]["command"], "fatflow topo my.toml --seed 5");
    assert_eq!(answer["about"]["oversubscription"], "1:1");
    assert_eq!(answer["command"], "topo");
    assert_eq!(answer["seed"], 5);
    assert_eq!(answer["scenario"].as_str().unwrap().len(), 16);
    let result = answer["result"].as_object().unwrap();
    for key in [
        "gpus",
        "nodes",
        "switches",
        "links",
        "tiers",
        "bisection_bps",
        "paths_max",
        "cost_usd",
        "power_w",
    ] {
        assert!(result.contains_key(key), "{key}");
    }
    for key in ["name", "switches", "links", "oversubscription"] {
        assert!(result["tiers"][0].get(key).is_some(), "{key}");
    }
    assert_eq!((&result["gpus"], &result["nodes"]), (&16.into(), &2.into()));
}

#[test]
fn precedence_shows_in_check_print() {
    let desk = Desk::with("my.toml", SMALL);
    let mut command = desk.command(&["check", "my.toml", "--print", "--json", "--seed", "9"]);
    command.env("FATFLOW_SET_network__routing__qps", "4").env("FATFLOW_SET_SEED", "8");
    let answer = Answer::of(command.output().unwrap()).json();
    let values = answer["result"]["values"].as_array().unwrap();
    let find = |key: &str| {
        let value = values.iter().find(|value| value["key"] == key).unwrap();
        (value["value"].as_str().unwrap().to_owned(), value["origin"].as_str().unwrap().to_owned())
    };
    let expect = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(find("seed"), expect("9", "--seed"));
    let variable = "environment FATFLOW_SET_network__routing__qps";
    assert_eq!(find("network.routing.qps"), expect("4", variable));
    assert_eq!(find("cluster.gpus"), expect("16", "my.toml:3"));
    assert_eq!(find("cluster.gpus_per_node"), expect("8", "default"));
}

#[test]
fn colours_come_only_when_asked_for_where_there_is_no_terminal() {
    let desk = Desk::with("bad.toml", "nmae = 1\n[cluster]\ngpus = 16");
    std::fs::write(desk.path("good.toml"), SMALL).unwrap();
    let escape = '\u{1b}';
    assert!(!desk.run(&["check", "bad.toml"]).error.contains(escape));
    assert!(!desk.run(&["topo", "good.toml"]).out.contains(escape));
    assert!(desk.run(&["check", "bad.toml", "--color", "always"]).error.contains(escape));
    assert!(desk.run(&["topo", "good.toml", "--color", "always"]).out.contains(escape));
    assert!(!desk.run(&["topo", "good.toml", "--color", "never"]).out.contains(escape));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let desk = Desk::with("my.toml", "[cluster]\ngpus = 4096\n");
    let mut child = desk
        .command(&["topo", "my.toml", "--csv"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!((answer.code, &*answer.error), (Some(0), ""));
}

#[test]
fn a_scenario_may_come_from_standard_input() {
    let desk = Desk::new();
    let mut child = desk
        .command(&["topo", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(SMALL.as_bytes()).unwrap();
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!(answer.json()["result"]["gpus"], 16);
}

#[test]
fn every_preset_can_be_the_beginning_of_a_file() {
    let desk = Desk::new();
    let presets = desk.run(&["presets", "--json"]).json();
    for preset in presets["result"]["entries"].as_array().unwrap() {
        let name = preset["name"].as_str().unwrap();
        let init = desk.run(&["init", name]);
        std::fs::write(desk.path("my.toml"), &init.out).unwrap();
        let hash = |scenario: &str| {
            let answer = desk.run(&["check", scenario, "--json"]);
            assert_eq!(answer.code, Some(0), "{name}: {}", answer.out);
            answer.json()["scenario"].clone()
        };
        assert_eq!(hash("my.toml"), hash(name), "{name}");
    }
}

/// Every value is in range, but the product of all is not: a refusal, and no panic.
#[test]
fn what_takes_longer_than_simulated_time_lasts_is_refused() {
    let desk = Desk::new();
    let set = ["--set", "cluster.nic_rate=1Mbps", "--set", "traffic.pattern=ring"];
    let more = ["--set", "traffic.bytes=16PiB", "--engine", "analytic"];
    let answer = desk.run(&[&["run", "small-16"][..], &set, &more].concat());
    assert_eq!(answer.code, Some(1), "{}", answer.error);
    assert!(answer.error.contains("213 days that simulated time lasts"), "{}", answer.error);
    assert!(!answer.error.contains("panicked"), "{}", answer.error);
    let seeds = desk.run(&["run", "small-16", "--seeds", "4294967295"]);
    assert_eq!(seeds.code, Some(2));
    assert!(seeds.error.contains("1..=100000"), "{}", seeds.error);
}

/// What is set with flags stands in the file, and the file means the same as the flags.
#[test]
fn flags_of_init_stand_in_the_file() {
    let desk = Desk::new();
    let set = ["--set", "network.routing.qps=16", "--set", "fabric.uplinks=[4]", "--seed", "7"];
    let init = desk.run(&[&["init", "small-128"][..], &set].concat());
    assert!(init.out.contains("[network.routing]\nqps = 16\n"), "{}", init.out);
    std::fs::write(desk.path("my.toml"), &init.out).unwrap();
    let hash = |arguments: &[&str]| {
        let answer = desk.run(&[&["check", "--json"][..], arguments].concat());
        assert_eq!(answer.code, Some(0), "{}", answer.out);
        answer.json()["scenario"].clone()
    };
    assert_eq!(hash(&["my.toml"]), hash(&[&["small-128"][..], &set].concat()));
    let wrong = desk.run(&["init", "small-128", "--set", "network.routing.qsp=16"]);
    assert_eq!(wrong.code, Some(3));
}

/// Agreement: what `topo` writes, `topo` reads, and it is the same network.
#[test]
fn cable_lists_and_labs_are_read_again() {
    let desk = Desk::with("my.toml", "[cluster]\ngpus = 64\n[fabric]\nradix = 16\n");
    let dot = desk.run(&["topo", "my.toml", "--dot"]).out;
    assert!(dot.starts_with("graph fabric {") && dot.ends_with("}\n"));
    let before = desk.run(&["topo", "my.toml", "--json"]).json()["result"].clone();
    for (flag, file) in [("--csv", "cables.csv"), ("--clab", "my.clab.yml")] {
        let text = desk.run(&["topo", "my.toml", flag]).out;
        std::fs::write(desk.path(file), text).unwrap();
        let again = format!("[fabric]\ntopology = \"file\"\nfile = \"{file}\"\n");
        std::fs::write(desk.path("again.toml"), again).unwrap();
        let after = desk.run(&["topo", "again.toml", "--json"]).json()["result"].clone();
        for key in ["gpus", "nodes", "switches", "links", "paths_max", "bisection_bps"] {
            assert_eq!(before[key], after[key], "{flag}: {key}");
        }
    }
    let slurm = desk.run(&["topo", "my.toml", "--slurm"]).out;
    assert!(slurm.contains("SwitchName=leaf0 Nodes=node0\n"), "{slurm}");
}

#[test]
fn help_has_an_example_for_every_command() {
    let desk = Desk::new();
    let help = desk.run(&["--help"]).out;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options").next().unwrap();
    for line in commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            let text = desk.run(&[name, "--help"]).out;
            assert!(text.contains("Example"), "{name}: {text}");
            assert!(text.contains(&format!("fatflow {name}")), "{name}: {text}");
        }
    }
}

/// Interrupted while it waits for a scenario on standard input.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_with_130() {
    let desk = Desk::new();
    let mut child =
        desk.command(&["check", "-"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Until the handler is in place an interrupt ends the process by the signal, without a code.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn presets_describe_themselves_and_list_the_words_of_settings() {
    let desk = Desk::new();
    let text = desk.run(&["presets", "llama3-meta-roce"]).out;
    assert!(text.contains("24,576 GPUs") && text.contains("[1]"), "{text}");
    for kind in ["model", "topology", "transport", "routing", "congestion", "pattern", "fault"] {
        let answer = desk.run(&["presets", "--kind", kind, "--json"]).json();
        let entries = answer["result"]["entries"].as_array().unwrap();
        assert!(3 < entries.len(), "{kind}");
        assert!(entries.iter().all(|entry| entry["title"] != ""), "{kind}");
    }
    assert_eq!(desk.run(&["presets", "llama3-meta-rcoe"]).code, Some(3));
    assert_eq!(desk.run(&["presets", "--kind", "teapot"]).code, Some(2));
}

/// A flag that does nothing is refused, or named on standard error.
#[test]
fn flags_in_vain_are_refused_or_named() {
    let desk = Desk::with("good.toml", SMALL);
    std::fs::write(desk.path("measured.txt"), "").unwrap();
    let refused: &[&[&str]] = &[
        &["init", "small-16", "--json"],
        &["init", "small-16", "--report", "page.html"],
        &["man", "--report", "page.html"],
        &["completions", "bash", "--json"],
        &["schema", "--report", "page.html"],
        &["topo", "good.toml", "--csv", "--report", "page.html"],
        &["presets", "--set", "network.routing.qps=16"],
        &["validate", "--set", "network.routing.qps=16"],
        &["collective", "all_reduce", "good.toml", "--engine", "all", "--measured", "measured.txt"],
        &["run", "small-16", "--engine", "analytic", "--links-out", "links.csv"],
        &["run", "small-16", "--engine", "analytic", "--series-out", "series.csv"],
        &["run", "small-16", "--engine", "analytic", "--openmetrics", "ports.om"],
    ];
    for arguments in refused {
        let answer = desk.run(arguments);
        assert_eq!(answer.code, Some(2), "{arguments:?}: {}", answer.error);
    }
    assert!(!std::path::Path::new(&desk.path("page.html")).exists());
    let one = ["collective", "all_reduce", "good.toml", "-b", "1M", "-e", "1M"];
    let named: &[(&[&str], &[&str])] = &[
        (&["topo", "good.toml"], &["--engine", "--threads", "--seed"]),
        (&["check", "good.toml"], &["--threads"]),
        (&["presets"], &["--engine", "--threads", "--seed"]),
        (&["man"], &["--engine", "--threads", "--seed"]),
        (&one, &["--threads"]),
    ];
    let value = |flag: &str| if flag == "--engine" { "flow" } else { "2" };
    for (arguments, flags) in named {
        for flag in *flags {
            let answer = desk.run(&[*arguments, &[flag, value(flag)]].concat());
            assert_eq!(answer.code, Some(0), "{arguments:?} {flag}: {}", answer.error);
            // With the answer, or on standard error where there is none.
            let key = flag.strip_prefix("--seed").filter(|_| arguments[0] == "topo");
            let key = key.map_or(*flag, |_| "seed");
            let with_answer = answer.out.contains(&format!("! not used: {key} ("));
            let without = answer.error.contains(&format!("unused: {flag}: "));
            assert!(with_answer != without, "{arguments:?} {flag}: {}", answer.out);
            let quiet = desk.run(&[*arguments, &[flag, value(flag), "--quiet"]].concat());
            assert_eq!(quiet.error, "");
        }
        assert_eq!(desk.run(arguments).error, "", "{arguments:?}");
    }
    let used = ["--threads", "1", "--seeds", "2", "--seed", "3", "--engine", "flow"];
    assert_eq!(desk.run(&[&one[..], &used].concat()).error, "");
    let force = desk.run(&[&one[..], &["--engine", "analytic", "--force"]].concat());
    assert!(force.out.contains("! not used: --force ("), "{}", force.out);
}

/// What was written and does nothing is on the first screen, on the page and in JSON, with what
/// would obey it; what the engine obeys is not named.
#[test]
fn inputs_that_are_not_used_are_named_everywhere() {
    let text = "from = \"small-16\"\n[network]\necn = { min = \"1KiB\", max = \"1MiB\" }\n\
                congestion = { control = \"dcqcn\", gain = 0.5 }\n\
                [job]\nparallel = { tp = 2, dp = 8, overlap = [\"dp\", \"ep\"] }\n";
    let desk = Desk::with("my.toml", text);
    let keys = |arguments: &[&str]| -> Vec<String> {
        let json = desk.run(&[&["run", "my.toml", "--json"], arguments].concat()).json();
        let unused = json["unused"].as_array().unwrap();
        unused.iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect()
    };
    let of_packets = ["congestion.control", "congestion.gain", "ecn.max", "ecn.min"];
    let on_flows: Vec<String> = std::iter::once("job.parallel.overlap".to_owned())
        .chain(of_packets.iter().map(|key| format!("network.{key}")))
        .collect();
    assert_eq!(keys(&[]), on_flows);
    assert_eq!(keys(&["--engine", "packet"]), ["job.parallel.overlap"]);
    assert_eq!(
        keys(&["--seed", "3", "--engine", "analytic"]),
        [&on_flows[..], &["seed".into()]].concat()
    );
    assert_eq!(keys(&["--threads", "2"]), [&on_flows[..], &["--threads".into()]].concat());

    let screen = desk.run(&["run", "my.toml", "--report", "page.html"]).out;
    let first: Vec<&str> = screen.lines().take(12).collect();
    let first = first.join(" ");
    assert!(
        first.contains("! not used: job.parallel.overlap (`ep` in it hides nothing"),
        "{screen}"
    );
    assert!(first.contains("network.ecn.min (only packets meet queues"), "{screen}");
    let page = std::fs::read_to_string(desk.path("page.html")).unwrap();
    assert!(page.contains("not used: job.parallel.overlap"));
    let compared = desk.run(&["compare", "my.toml", "small-16"]).out;
    assert!(compared.contains("! not used: job.parallel.overlap"), "{compared}");
    let checked = desk.run(&["check", "my.toml"]).out;
    assert!(checked.contains("! not used: job.parallel.overlap"), "{checked}");
    let all = desk.run(&["run", "my.toml", "--engine", "all"]).out;
    assert!(all.contains("(flow: only packets meet queues"), "{all}");
}

/// The first screens of a step hold what matters; the rest is named, and there with --all.
#[test]
fn a_step_is_told_in_few_lines_and_the_rest_is_named() {
    let desk = Desk::new();
    for columns in ["80", "100", "160"] {
        let tell = |words: &[&str]| {
            let output = desk.command(words).env("COLUMNS", columns).output().unwrap();
            Answer::of(output).out
        };
        let (short, all) = (tell(&["run", "small-128"]), tell(&["run", "small-128", "--all"]));
        assert!(short.lines().count() < 100, "{columns}: {short}");
        assert!(150 < all.lines().count(), "{all}");
        assert!(short.lines().all(|line| line.chars().count() <= columns.parse().unwrap()));
        for section in ["Causes", "The critical path", "Memory of a GPU", "Power and money"] {
            assert!(all.lines().any(|line| line.trim() == section), "{section}: {all}");
        }
        let end = short.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(end.contains("Left out here: Causes; The critical path;"), "{short}");
        assert!(end.contains("generic-64x400 is no product: its ports"), "{short}");
    }
    let told = desk.run(&["topo", "small-16", "--json"]).json();
    assert!(told["about"]["assumed"].as_str().unwrap().contains("illustrative"));
    let named = desk.run(&["topo", "small-16", "--set", "fabric.leaf.switch=spectrum-4", "--json"]);
    assert!(named.json()["about"].get("assumed").is_none());
    let idle = desk.run(&["run", "small-16", "--all", "--json"]);
    assert!(idle.out.contains("\"--all\""), "what did nothing is named: {}", idle.out);
}

/// The same job on the same GPUs: the error of computation cancels in a difference.
#[test]
fn a_difference_is_surer_than_the_steps() {
    let desk = Desk::new();
    let compare = |vary: &str| {
        let answer = desk.run(&["compare", "small-128", "--vary", vary, "--json"]).json();
        let result = &answer["result"];
        let row = result["rows"].as_array().unwrap().iter().find(|row| row["metric"] == "step_s");
        let steps = |key: &str, at: usize| row.unwrap()[key][at].as_f64().unwrap();
        let own = (steps("high", 1) / steps("low", 1)).ln() / 2.0;
        let other = (steps("high", 0) / steps("low", 0)).ln() / 2.0;
        let share = steps("simulated", 1) / steps("simulated", 0) - 1.0;
        (result["differences"].clone(), own.hypot(other), share)
    };
    let half = |one: &serde_json::Value| {
        let end = |key: &str| one[key].as_f64().unwrap();
        ((1.0 + end("high")) / (1.0 + end("low"))).ln() / 2.0
    };
    let (differences, both, share) = compare("network.routing.qps=1,16");
    let one = &differences[1];
    assert!(differences[0].is_null() && one["cancels"] == true, "{differences}");
    assert!((one["share"].as_f64().unwrap() - share).abs() < 1e-6, "{one} {share}");
    assert!(half(one) < both, "{one}: {both}");
    let (differences, both, _) = compare("cluster.gpu=h100-sxm,h200-sxm");
    assert!(differences[1]["cancels"] == false, "{differences}");
    assert!((half(&differences[1]) - both).abs() < 1e-3, "{differences}: {both}");
}

/// What is tried follows from the budget; what time leaves out is said.
#[test]
fn an_advice_says_what_time_has_left_out() {
    let desk = Desk::new();
    let advise =
        |more: &[&str]| desk.run(&[&["advise", "small-16", "--seeds", "2"], more].concat());
    let layouts = &advise(&["--budget", "1500ms", "--json"]).json()["result"]["layouts"];
    let count = |key: &str| layouts[key].as_u64().unwrap();
    // 300 that are drawn, and those beside the best three.
    let drawn = count("looked_at") + count("unseen");
    assert!((300..=700).contains(&drawn), "{layouts}");
    assert!(300 < count("mixes"));
    let hasty = advise(&["--budget", "5ms"]).out;
    let hasty = hasty.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = "Not everything was tried in ";
    assert!(hasty.contains(start) && hasty.contains("at most 5.000ms are given"), "{hasty}");
    assert!(hasty.contains("Left out:") && hasty.contains(" changes ("), "{hasty}");
}
