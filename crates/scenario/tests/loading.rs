//! Layers, chains and origins: who wins, and what is said when something does not fit.

use std::fs;
use std::path::PathBuf;

use scenario::{Colour, Extent, Loaded, Problems, Request, Style, load};

/// A folder of files that lasts as long as the test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn request(&self, name: &str) -> Request {
        let scenario = Some(self.path(name).display().to_string());
        Request { scenario, ..settings() }
    }

    /// What is wrong with a file, drawn, with the folder's changing name taken out.
    fn refusal(&self, name: &str) -> String {
        self.draw(&load(&self.request(name)).unwrap_err())
    }

    fn draw(&self, problems: &Problems) -> String {
        let text = problems.render(Style { colour: Colour::Never, width: 400 });
        let folder = self.0.path().canonicalize().unwrap();
        let text = text.replace(&format!("{}/", folder.display()), "");
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// Nothing but the settings: most of these files describe no cluster.
fn settings() -> Request {
    Request { extent: Extent::Settings, ..Request::default() }
}

fn origin(loaded: &Loaded, key: &str, folder: &Folder) -> String {
    loaded.origin_of(key).replace(&format!("{}/", folder.0.path().display()), "")
}

#[test]
fn flag_beats_environment_beats_file_beats_base_beats_default() {
    let folder = Folder::with(&[
        ("base.toml", "seed = 1\nname = \"base\"\n[network.routing]\nqps = 2\ngap = \"1us\""),
        ("my.toml", "from = \"base.toml\"\nseed = 3\n[network.routing]\nqps = 4"),
    ]);
    let mut request = folder.request("my.toml");
    let expect = |request: &Request, seed: u64, qps: u16, from: [&str; 2]| {
        let loaded = load(request).unwrap();
        assert_eq!(
            (loaded.scenario.seed, loaded.scenario.network.settings.routing.qps),
            (seed, qps)
        );
        assert_eq!(["seed", "network.routing.qps"].map(|key| origin(&loaded, key, &folder)), from);
        assert_eq!(loaded.scenario.name, "base");
        assert_eq!(origin(&loaded, "network.routing.gap", &folder), "base.toml:5");
        assert_eq!(origin(&loaded, "network.routing.chunk", &folder), "default");
    };
    expect(&request, 3, 4, ["my.toml:2", "my.toml:4"]);

    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    request.environment = vec![
        variable("FATFLOW_SET_SEED", "5"),
        variable("FATFLOW_SET_network__routing__qps", "6"),
        variable("HOME", "ignored"),
        variable("FATFLOW_CATALOGUE", "ignored too"),
    ];
    let environment =
        ["environment FATFLOW_SET_SEED", "environment FATFLOW_SET_network__routing__qps"];
    expect(&request, 5, 6, environment);

    request.set = vec!["network.routing.qps = 8".to_owned()];
    expect(&request, 5, 8, [environment[0], "--set"]);

    request.seed = Some(7);
    expect(&request, 7, 8, ["--seed", "--set"]);
}

#[test]
fn values_of_flags_are_toml_or_plain_words() {
    let request = |set: &str| Request { set: vec![set.to_owned()], ..settings() };
    let routing = |set: &str| load(&request(set)).unwrap().scenario.network.settings.routing;
    assert_eq!(routing("network.routing.policy=spray").policy.name(), "spray");
    assert_eq!(routing("network.routing.policy = \"spray\"").policy.name(), "spray");
    assert_eq!(routing("network.routing={ qps = 3 }").qps, 3);
    assert_eq!(routing("network.routing.gap=3us").gap, units::Span::from_us(3));
    assert_eq!(load(&request("name=a=b c")).unwrap().scenario.name, "a=b c");
    assert_eq!(load(&request("name=")).unwrap().scenario.name, "");
}

#[test]
fn a_chain_may_be_long_but_not_round() {
    let folder = Folder::with(&[
        ("a.toml", "from = \"deeper/b.toml\"\nname = \"a\""),
        ("deeper/b.toml", "from = \"../c.toml\"\nseed = 2"),
        ("c.toml", "seed = 3\ndescription = \"c\""),
        ("one.toml", "from = \"two.toml\""),
        ("two.toml", "from = \"./one.toml\""),
        ("self.toml", "from = \"self.toml\"\nsede = 1"),
        ("lost.toml", "from = \"nowhere.toml\"\nsede = 1"),
        ("preset.toml", "from = \"no-such-preset\""),
    ]);
    let loaded = load(&folder.request("a.toml")).unwrap();
    let scenario = &loaded.scenario;
    assert_eq!((scenario.seed, &*scenario.name, &*scenario.description), (2, "a", "c"));
    assert_eq!(origin(&loaded, "seed", &folder), "deeper/b.toml:2");

    let refusals = ["one.toml", "self.toml", "lost.toml", "preset.toml"];
    let text: String =
        refusals.map(|name| format!("=== {name}\n{}\n", folder.refusal(name))).concat();
    insta::assert_snapshot!(text);
}

#[test]
fn files_that_are_no_scenarios_get_one_clear_error_each() {
    let folder = Folder::with(&[
        ("truncated.toml", "name = \"x\"\n[network.routing]\nqps = "),
        ("truncated-string.toml", "name = \"x\nseed = 1\n"),
        ("truncated-table.toml", "seed = 1\n[network.rou"),
        ("empty.toml", ""),
        ("blank.toml", " \n\n"),
        ("directory/x", ""),
        ("picture.toml", "\u{0}PNG\r\n"),
    ]);
    fs::write(folder.path("latin1.toml"), b"name = \"Z\xfcrich\"\n").unwrap();
    let big = fs::File::create(folder.path("big.toml")).unwrap();
    big.set_len(100_000_000).unwrap();
    let names = [
        "truncated.toml",
        "truncated-string.toml",
        "truncated-table.toml",
        "empty.toml",
        "blank.toml",
        "directory",
        "missing.toml",
        "picture.toml",
        "latin1.toml",
        "big.toml",
    ];
    let mut text = String::new();
    for name in names {
        let problems = load(&folder.request(name)).unwrap_err();
        assert_eq!(problems.0.len(), 1, "{name}");
        text.push_str(&format!("=== {name}\n{}\n", folder.draw(&problems)));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_fine() {
    let folder = Folder::with(&[("my.toml", "\u{feff}name = \"x\"\r\nseed = 4\r\n")]);
    assert_eq!(load(&folder.request("my.toml")).unwrap().scenario.seed, 4);
}

#[test]
fn the_hash_knows_the_content_of_named_files() {
    let scenario = "from = \"llama3-meta-roce\"\n[traffic]\nflows = \"flows.csv\"\n";
    let hash = |flows: &str| {
        let folder = Folder::with(&[("own.toml", scenario), ("flows.csv", flows)]);
        load(&folder.request("own.toml")).unwrap().hash
    };
    let one = hash("src,dst,bytes\n0,1,100\n");
    assert_eq!(one, hash("src,dst,bytes\n0,1,100\n"));
    assert_ne!(one, hash("src,dst,bytes\n0,1,200\n"));
}

#[test]
fn the_hash_knows_the_model_files_of_several_jobs() {
    let hash = |layers: u64| {
        let text = "[cluster]\ngpus = 16\n[[jobs]]\nmodel = \"./config.json\"\nnodes = 1\n\
                    parallel.tp = 8\n";
        let config = config_with("num_hidden_layers", layers);
        let folder = Folder::with(&[("own.toml", text), ("config.json", &config)]);
        load(&folder.request("own.toml")).unwrap().hash
    };
    assert_eq!(hash(2), hash(2));
    assert_ne!(hash(2), hash(4));
}

#[test]
fn the_hash_knows_what_matters() {
    let hash = |set: &[&str]| {
        let set = set.iter().map(|text| (*text).to_owned()).collect();
        load(&Request { set, ..settings() }).unwrap().hash
    };
    let plain = hash(&[]);
    assert_eq!(plain, hash(&["name=another", "description=different"]));
    assert_eq!(plain, hash(&["network.routing.qps=1"]), "saying the default changes nothing");
    assert_ne!(plain, hash(&["network.routing.qps=2"]));
    assert_ne!(plain, hash(&["seed=1"]));
    let price = "catalogue.switch.tomahawk-5.price_usd.value=1";
    assert_ne!(plain, hash(&[price]), "other hardware is another scenario");
}

#[test]
fn hardware_of_ones_own_joins_the_catalogue_or_corrects_it() {
    let price = "price_usd = { value = 1, source = \"quote\", trust = \"P\" }";
    let folder = Folder::with(&[
        ("parts/switches.toml", &format!("[switch.tomahawk-5]\n{price}")),
        ("parts/notes.txt", "not a part"),
        ("wrong/x.toml", "[switch.tomahawk-5]\nprice = 3"),
    ]);
    let request = |name: &str| Request { catalogue: vec![folder.path(name)], ..settings() };
    let catalogue = load(&request("parts")).unwrap().scenario.catalogue;
    let switch = &catalogue.switch["tomahawk-5"];
    assert_eq!((switch.price_usd.value, &*switch.price_usd.source), (1.0, "quote"));
    assert!(switch.ports > 0, "the rest stays");

    let problems = load(&request("wrong")).unwrap_err();
    assert!(folder.draw(&problems).contains("did you mean `price_usd`?"), "{problems}");
    assert!(load(&request("nowhere")).is_err());
}

/// The scenario of the three mistakes: an unknown key, a rate without a unit, and a tensor group
/// that fits no node.
const THREE_MISTAKES: &str = r#"name = "three mistakes"

[cluster]
gpu = "h100-sxm"
gpus = 16
gpus_per_nod = 8
nic_rate = "400"

[job]
model = "llama3-8b"
gpus = 16
parallel = { tp = 3 }
"#;

#[test]
fn three_mistakes_are_three_errors() {
    let folder = Folder::with(&[("my.toml", THREE_MISTAKES)]);
    let request = Request { extent: Extent::Whole, ..folder.request("my.toml") };
    let problems = load(&request).unwrap_err();
    assert_eq!(problems.0.len(), 3);
    for problem in &problems.0 {
        assert!(problem.place.is_some() && problem.help.is_some(), "{problem:?}");
    }
    insta::assert_snapshot!(folder.draw(&problems));
}

#[test]
fn what_does_not_fit_together_is_said_at_the_value_that_somebody_wrote() {
    let cases = [
        ("no cluster", "name = \"x\""),
        ("no whole server", "[cluster]\ngpus = 63"),
        ("unknown hardware", "[cluster]\ngpus = 64\ngpu = \"h100\"\nnic = \"conectx-7\""),
        ("unknown model", "[cluster]\ngpus = 64\n[job]\nmodel = \"llama3-71b\""),
        ("no model file", "[cluster]\ngpus = 64\n[job]\nmodel = \"models/config.json\""),
        ("too few GPUs", "[cluster]\ngpus = 64\n[job]\ngpus = 128\nparallel.tp = 8"),
        ("zero", "[cluster]\ngpus = 64\n[job.parallel]\ntp = 0"),
        ("overflow", "[cluster]\ngpus = 64\n[job.parallel]\ntp = 1000000000\npp = 4000000000"),
        ("memory", "[cluster]\ngpus = 64\n[job]\nmodel = \"llama3-405b\"\nparallel = { tp = 8 }"),
        ("product", "[cluster]\ngpus = 64\n[job]\ngpus = 64\nparallel = { tp = 8, dp = 4 }"),
    ];
    let mut text = String::new();
    for (name, file) in cases {
        let folder = Folder::with(&[("my.toml", file)]);
        let request = Request { extent: Extent::Whole, ..folder.request("my.toml") };
        let refusal = folder.draw(&load(&request).unwrap_err());
        text.push_str(&format!("=== {name}\n{refusal}\n"));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_model_may_be_a_file_beside_the_scenario() {
    let config = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256}"#;
    let folder = Folder::with(&[
        (
            "my.toml",
            "[cluster]\ngpus = 16\n[job]\nmodel = \"my-model/config.json\"\nparallel.tp = 8",
        ),
        ("my-model/config.json", config),
    ]);
    let request = Request { extent: Extent::Whole, ..folder.request("my.toml") };
    let loaded = load(&request).unwrap();
    let job = loaded.job.as_ref().unwrap();
    assert_eq!((&*job.model.name, job.layout.dp), ("my-model", 2));
    assert_eq!(loaded.fabric().gpus(), 16);
}

/// Oracle: what nobody has set is what the transport says; what somebody has set stays.
/// What people write for an oversubscription is one, and one value is a list of one.
#[test]
fn ratios_and_single_values_are_read_as_people_write_them() {
    let loaded = |set: &str| {
        let set = vec![set.to_owned()];
        load(&Request { scenario: Some("small-128".into()), set, ..settings() })
    };
    let written = ["2", "2.0", "2:1", "4:2", "[2]", "[\"2:1\"]", "\"2:1\""];
    for text in written {
        let loaded = loaded(&format!("fabric.oversubscription={text}")).unwrap();
        assert_eq!(loaded.scenario.fabric.oversubscription, [2.0], "{text}");
    }
    let two = loaded("fabric.oversubscription=2:1, 7:2").unwrap();
    assert_eq!(two.scenario.fabric.oversubscription, [2.0, 3.5]);
    let front = loaded("cluster.front_end.oversubscription=4:1").unwrap();
    assert_eq!(front.scenario.cluster.front_end.oversubscription, 4.0);
    let failed = loaded("fabric.failed=spine 7").unwrap();
    assert_eq!(failed.scenario.fabric.failed, ["spine 7"]);
    for wrong in ["2:0", "two", "2:1:1", "true"] {
        let refused = loaded(&format!("fabric.oversubscription={wrong}")).unwrap_err();
        let text = format!("{refused:?}");
        assert!(text.contains("write it like `oversubscription = \\\"2:1\\\"`"), "{text}");
    }
    let zero = Request { scenario: Some("small-128".into()), ..Request::default() };
    let zero = load(&Request { set: vec!["fabric.oversubscription=0:1".to_owned()], ..zero });
    assert!(format!("{:?}", zero.unwrap_err()).contains("from 0.001 to 1000"), "out of range");
}

#[test]
fn a_transport_decides_what_nobody_has_set() {
    use fabric::transport::Transport;
    for (name, transport) in Transport::ALL {
        let text = format!("[network]\ntransport = \"{name}\"\n");
        let kept = "pfc = { enabled = true }\ncongestion = { control = \"none\" }\n";
        let folder = Folder::with(&[("a.toml", &text), ("b.toml", &format!("{text}{kept}"))]);
        let read = |file| load(&folder.request(file)).unwrap().scenario.network.settings;
        let found = read("a.toml");
        let mut expected = packetsim::Settings::of_transport(transport);
        let cards = [Transport::Rocev2, Transport::Rocev1, Transport::ScheduledEthernet];
        if cards.contains(&transport) {
            // The card decides what the transport leaves open.
            expected.nic.reorder = found.nic.reorder;
        }
        if !matches!(transport, Transport::Tcp) {
            expected.nic.send_latency = found.nic.send_latency;
            expected.nic.receive_latency = found.nic.receive_latency;
        }
        assert_eq!(found, expected, "{name}");
        let settings = read("b.toml");
        assert!(settings.pfc.enabled, "{name}");
        assert_eq!(settings.congestion.name(), "none", "{name}");
    }
}

/// A parameter is never thrown away in silence: with its algorithm it is taken, and the others are
/// the algorithm's own; one of another algorithm is a mistake.
#[test]
fn one_parameter_of_an_algorithm_leaves_the_others_alone() {
    use packetsim::cc::{CcConfig, nscc};
    let uec = "[network]\ntransport = \"uec\"\n";
    let named = format!("{uec}congestion = {{ control = \"nscc\", target = 0.5 }}\n");
    let foreign = format!("{uec}congestion = {{ step = \"1Gbps\" }}\n");
    let folder = Folder::with(&[("a.toml", &named), ("b.toml", &foreign)]);
    let read = |file| load(&folder.request(file));
    let nscc = nscc::Config { target: 0.5, ..nscc::Config::default() };
    let found = read("a.toml").unwrap().scenario.network.settings.congestion;
    assert_eq!(found, CcConfig::Nscc(nscc));
    let problems = read("b.toml").unwrap_err();
    assert!(problems.0[0].message.contains("step"), "{problems:?}");
}

/// Every scenario that comes with the project can be read.
#[test]
fn scenarios_of_the_project_are_read() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/transports");
    let mut files: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let scenario = Some(file.display().to_string());
        let request = Request { scenario, ..Request::default() };
        if let Err(problems) = load(&request) {
            let style = Style { colour: Colour::Never, width: 100 };
            panic!("{}", problems.render(style));
        }
    }
}

#[test]
fn every_preset_is_valid_and_says_what_it_is() {
    assert!(scenario::preset::names().count() >= 9);
    for name in scenario::preset::names() {
        let request = Request { scenario: Some(name.to_owned()), ..Request::default() };
        let loaded = load(&request).unwrap_or_else(|problems| panic!("{name}: {problems}"));
        let scenario = &loaded.scenario;
        assert!(!scenario.name.is_empty() && !scenario.description.is_empty(), "{name}");
        assert!(loaded.job.is_some(), "{name}");
    }
}

/// The keys of a small model's config.json, with one of them changed.
fn config_with(key: &str, value: u64) -> String {
    let mut config = serde_json::json!({
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
    });
    config[key] = value.into();
    config.to_string()
}

#[test]
fn a_model_that_cannot_be_is_refused_by_the_key_of_its_file() {
    let cases = [
        ("num_key_value_heads", 5, "`num_key_value_heads`: 1, 2, 4, 8, 16, 32 would fit"),
        ("num_key_value_heads", 0, "`num_key_value_heads`: 1 or more would fit"),
        ("num_attention_heads", 0, "`num_attention_heads`: 1 or more would fit"),
        ("num_attention_heads", 33, "`num_key_value_heads`: 1, 3, 11, 33 would fit"),
        ("num_hidden_layers", 0, "`num_hidden_layers`: 1 or more would fit"),
        ("num_hidden_layers", u64::from(u32::MAX), "`num_hidden_layers`: up to 100000 would fit"),
        ("num_experts_per_tok", 9, "`num_experts_per_tok`: 1 to 8 would fit"),
        ("num_experts_per_tok", 0, "`num_experts_per_tok`: 1 or more would fit"),
        ("num_local_experts", 0, "`num_local_experts`: 1 or more would fit"),
        ("vocab_size", 0, "`vocab_size`: 1 or more would fit"),
        ("hidden_size", 1 << 62, "`hidden_size`: smaller ones would fit"),
    ];
    let text = "from = \"small-128\"\njob.model = \"./config.json\"\n";
    for (key, value, expected) in cases {
        let config = config_with(key, value);
        let folder = Folder::with(&[("my.toml", text), ("config.json", &config)]);
        let request = Request { extent: Extent::Whole, ..folder.request("my.toml") };
        let refusal = folder.draw(&load(&request).unwrap_err());
        assert!(refusal.contains("`job.model`"), "{key} = {value}: {refusal}");
        assert!(refusal.contains(expected), "{key} = {value}: {refusal}");
    }
}

#[test]
fn a_shape_that_cannot_be_is_refused_too() {
    let shape =
        "layers = 2\nhidden = 64\nffn = 64\nheads = 8\nkv_heads = 5\nhead_dim = 8\nvocab = 9";
    let text = format!("from = \"small-128\"\n[job.model]\n{shape}\n");
    let folder = Folder::with(&[("my.toml", &text)]);
    let request = Request { extent: Extent::Whole, ..folder.request("my.toml") };
    let refusal = folder.draw(&load(&request).unwrap_err());
    assert!(refusal.contains("kv_heads: 8 heads cannot share 5"), "{refusal}");
    assert!(refusal.contains("1, 2, 4, 8 would fit"), "{refusal}");
}

/// What is said about a preset with other settings.
fn refusal_of(preset: &str, set: &[&str]) -> String {
    let scenario = Some(preset.to_owned());
    let set = set.iter().map(|text| (*text).to_owned()).collect();
    let request = Request { scenario, set, extent: Extent::Whole, ..Request::default() };
    match load(&request) {
        Ok(_) => String::new(),
        Err(problems) => problems.render(Style { colour: Colour::Never, width: 400 }),
    }
}

#[test]
fn settings_out_of_range_are_refused_with_their_range() {
    let cases = [
        ("network.packet.mtu=0B", "from 64B to 48KiB"),
        ("network.packet.mtu=1GiB", "from 64B to 48KiB"),
        ("network.packet.headers.data=70000B", "at most 4KiB"),
        ("network.congestion.alpha_every=1ps", "from 100ns to"),
        ("network.congestion.increase_every=0us", "from 100ns to"),
        ("network.congestion.cut_every=0us", "from 100ns to"),
        ("network.congestion.gain=-1.0", "above 0 and at most 1"),
        ("network.congestion.gain=5.0", "above 0 and at most 1"),
        ("network.ecn.probability=7.0", "from 0 to 1"),
        ("network.ecn.probability=-1.0", "from 0 to 1"),
        ("network.ecn.min=3MiB", "at most `network.ecn.max`, which is 2MiB"),
        ("network.loss=2.0", "from 0 to 1"),
        ("network.loss=-1.0", "from 0 to 1"),
        ("network.buffer.alpha=-1.0", "from 0 to 128"),
        ("network.buffer_of_tier={leaf={alpha=-1.0}}", "from 0 to 128"),
        ("network.switch.control_share=2.0", "above 0 and at most 1"),
        ("network.routing.qps=0", "from 1 to 4096"),
        ("network.nic.timeout=0s", "network.nic.timeout` is 0ps"),
        ("library.channels=0", "from 1 to 1024"),
        ("network.credits.high_priority=[1]", "a lane below 1"),
        ("network.credits.sl_to_vl=[0, 1]", "a lane below 1"),
        ("network.credits_of_tier={leaf={high_priority=[1]}}", "a lane below 1"),
        ("network.credits_of_tier={leaf={weights=[1, 2]}}", "a list of at most 1"),
        ("network.ecn_of_tier={leaf={probability=7.0}}", "from 0 to 1"),
        ("network.credits.weights=[4, 2]", "a list of at most 1"),
        ("network.admission.receiver_window=4KiB", "at least 512KiB"),
    ];
    for (set, range) in cases {
        let refusal = refusal_of("small-16", &["network.congestion.control=dcqcn", set]);
        let key = set.split(['=', '{']).next().unwrap();
        assert!(refusal.contains(&format!("`{key}")), "{set}: {refusal}");
        assert!(refusal.contains(range), "{set}: {refusal}");
    }
    let timer = ["network.congestion.control=infiniband", "network.congestion.timer=0us"];
    let refusal = refusal_of("small-16", &timer);
    assert!(refusal.contains("`network.congestion.timer` is 0"), "{refusal}");
    let without_credits = [
        "network.packet.clock=nanosecond",
        "network.pfc.lossy_lanes=[0]",
        "network.switch.control_share=0.5",
    ];
    for set in without_credits {
        let refusal = refusal_of("small-16", &["network.transport=infiniband", set]);
        assert!(refusal.contains("where credits are counted"), "{set}: {refusal}");
    }
    let timely = ["network.congestion.control=timely", "network.congestion.low=1ms"];
    assert!(refusal_of("small-16", &timely).contains("at most `network.congestion.high`"));
    for loss in ["2.0", "-1.0"] {
        let fault = format!("faults=[{{on=\"NIC 0\",what={{kind=\"grey\",loss={loss}}}}}]");
        let refusal = refusal_of("small-16", &[&fault]);
        assert!(refusal.contains("is not a share from 0 to 1"), "{refusal}");
    }
    assert_eq!(refusal_of("small-16", &["network.ecn.probability=1.0"]), "");
}

#[test]
fn hints_name_what_would_fit() {
    let cases = [
        ("job.parallel.ep=3", "only 1 would fit"),
        ("job.parallel.bucket=1B", "1MiB or more would fit"),
        ("job.placement=topology-awar", "did you mean \"topology-aware\"? it is one of"),
        ("job.placement={policy=\"best\"}", "it is one of \"linear\", \"random\""),
    ];
    for (set, expected) in cases {
        let refusal = refusal_of("small-128", &[set]);
        assert!(refusal.contains(expected), "{set}: {refusal}");
    }
    assert_eq!(refusal_of("small-128", &["job.placement=random"]), "");
}
