//! What somebody writes is obeyed, refused with the reason, or named: one test for each input that
//! once was neither.

use std::fs;

use fabric::topology::TopologyKind;
use scenario::{Colour, Loaded, Problems, Request, Style, load};

const NCCL: &str = include_str!("data/h100-topo.xml");
const SLURM: &str = include_str!("data/topology.conf");

/// Loads a text beside which these files lie.
fn loaded(text: &str, files: &[(&str, &str)]) -> Result<Loaded, Problems> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files.iter().chain(&[("my.toml", text)]) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let scenario = Some(folder.path().join("my.toml").display().to_string());
    load(&Request { scenario, ..Request::default() })
}

fn set(scenario: &str, set: &[&str]) -> Result<Loaded, Problems> {
    let set = set.iter().map(|text| (*text).to_owned()).collect();
    load(&Request { scenario: Some(scenario.to_owned()), set, ..Request::default() })
}

fn refusal(result: Result<Loaded, Problems>) -> String {
    result.unwrap_err().render(Style { colour: Colour::Never, width: 200 })
}

fn warnings(loaded: &Loaded) -> String {
    let told = |warning: &scenario::Problem| {
        warning.help.iter().fold(warning.to_string(), |told, help| format!("{told}; {help}"))
    };
    loaded.warnings.iter().map(told).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_file_that_is_named_is_the_topology() {
    let text =
        "[fabric]\nfile = \"topology.conf\"\n[cluster]\nnics_per_node = 1\ngpus_per_node = 1";
    let by_file = loaded(text, &[("topology.conf", SLURM)]).unwrap();
    assert_eq!(by_file.scenario.fabric.topology, TopologyKind::File);
    assert_eq!((by_file.fabric().nics(), by_file.fabric().leaves().len()), (14, 3));
    assert!(by_file.origin_of("fabric.topology").ends_with("my.toml:2"));

    // A preset's topology gives way to a file that was named later.
    let missing = refusal(set("small-16", &["fabric.file=nonexistent.txt"]));
    assert!(missing.contains("nonexistent.txt: cannot be read"), "{missing}");
    // Somebody who says both cannot mean both.
    let both = ["fabric.file=nonexistent.txt", "fabric.topology=clos"];
    let both = refusal(set("small-16", &both));
    assert!(both.contains("there is a `file`, but the topology is \"clos\""), "{both}");
    let graph = "[fabric]\nfile = \"topology.conf\"\ngraph = { endpoints = [\"a\"] }";
    let graph = refusal(loaded(graph, &[("topology.conf", SLURM)]));
    assert!(graph.contains("both say what the network is"), "{graph}");
}

#[test]
fn a_slurm_file_says_what_it_does_not_say() {
    let text = "[fabric]\nfile = \"topology.conf\"\n[cluster]\nnics_per_node = 8";
    let slurm = loaded(text, &[("topology.conf", SLURM)]).unwrap();
    let warnings = warnings(&slurm);
    assert!(warnings.contains("no oversubscription"), "{warnings}");
    assert!(warnings.contains("every node is assumed to have 8 NICs"), "{warnings}");
}

/// 2 servers of 2 GPUs and 4 NICs: the NICs of the second GPU are not those of the next server.
#[test]
fn an_affinity_stays_inside_its_server() {
    let cluster = "[cluster]\ngpus = 4\ngpus_per_node = 2\nnics_per_node = 4\n";
    let nics = |affinity: &str| -> Vec<Vec<usize>> {
        let loaded = loaded(&format!("{cluster}nic_affinity = {affinity}"), &[]).unwrap();
        let fabric = loaded.fabric();
        let of = |gpu| fabric.nics_of(fabric.gpu(gpu)).filter_map(|nic| fabric.nic_number(nic));
        (0..4).map(|gpu| of(gpu).collect()).collect()
    };
    assert_eq!(nics("[0, 3]"), [[0], [3], [4], [7]]);
    assert_eq!(nics("[[1, 0], [2, 3]]"), [[1, 0], [2, 3], [5, 4], [6, 7]]);
    assert_eq!(nics("[]"), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    for (affinity, reason) in [
        ("[0]", "it names NICs for 1 of the 2 GPUs"),
        ("[0, 4]", "NIC 4 of the 4 of a server"),
        ("[[0, 1], []]", "a GPU has no NIC"),
    ] {
        let refusal = refusal(loaded(&format!("{cluster}nic_affinity = {affinity}"), &[]));
        assert!(refusal.contains(reason), "{affinity}: {refusal}");
    }
}

/// What a server file fills in is shown with the file as its origin; what it overrules is said.
#[test]
fn a_server_file_is_seen_in_the_settings() {
    let text = "[cluster]\ngpus = 16\nserver_file = \"topo.xml\"\npcie = \"100Gbps\"";
    let server = loaded(text, &[("topo.xml", NCCL)]).unwrap();
    assert_eq!(server.fabric().nics(), 16);
    for (key, value) in [
        ("cluster.gpus_per_node", "8"),
        ("cluster.nic_rate", "\"400Gbps\""),
        ("cluster.nic_affinity", "[[0],[1],[2],[3],[4],[5],[6],[7]]"),
        ("cluster.scale_up.kind", "\"switched\""),
    ] {
        let resolved = server.resolved();
        let found = resolved.iter().find(|resolved| resolved.key == key).expect(key);
        assert_eq!((found.value.as_str(), found.origin.as_str()), (value, "topo.xml:1"), "{key}");
    }
    let told = warnings(&server);
    assert!(told.contains("`cluster.pcie` is \"100Gbps\" here, but `topo.xml` says"), "{told}");

    // Two GPUs and four NICs on PCI bridges of their own: the first has two NICs near, the second
    // one; the last NIC is near neither.
    let net = |dev: u32| format!("<net name=\"n{dev}\" dev=\"{dev}\" speed=\"400000\"/>");
    let pci = |inside: String| format!("<pci>{inside}</pci>");
    let xml = format!(
        "<system><cpu>{}{}{}</cpu></system>",
        pci(format!("<gpu dev=\"0\"/>{}{}", net(0), net(1))),
        pci(format!("<gpu dev=\"1\"/>{}", net(3))),
        pci(net(2)),
    );
    let text = "[cluster]\ngpus = 4\nserver_file = \"topo.xml\"";
    let server = loaded(text, &[("topo.xml", &xml)]).unwrap();
    let fabric = server.fabric();
    let of = |gpu| fabric.nics_of(fabric.gpu(gpu)).filter_map(|nic| fabric.nic_number(nic));
    let nics: Vec<Vec<usize>> = (0..4).map(|gpu| of(gpu).collect()).collect();
    assert_eq!(nics, [vec![0, 1], vec![3], vec![4, 5], vec![7]]);
    let broken = refusal(loaded(text, &[("topo.xml", "<system>")]));
    assert!(broken.contains("`cluster.server_file`: topo.xml:1: it ends too early"), "{broken}");
}

#[test]
fn reduction_needs_switches_that_can() {
    let sharp = "library.sharp=enabled";
    let told = refusal(set("small-128", &[sharp]));
    assert!(told.contains("the leaf switches (`generic-64x400`) cannot reduce"), "{told}");
    assert!(told.contains("the spine switches"), "{told}");
    let boxes = ["fabric.leaf.switch=quantum-2", "fabric.spine.switch=quantum-2"];
    let fit = ["network.transport=infiniband", "fabric.radix=64"];
    let able = set("small-128", &[sharp, boxes[0], boxes[1], fit[0], fit[1]]).unwrap();
    assert_eq!(warnings(&able), "");
    // By hand, and then it is named.
    let hand = ["fabric.leaf.reduces=true", "fabric.spine.reduces=true"];
    let named = warnings(&set("small-128", &[sharp, hand[0], hand[1]]).unwrap());
    assert!(named.contains("`fabric.spine.reduces` says that spine switches"), "{named}");
    let unable = "fabric.spine.reduces=false";
    let told = refusal(set("small-128", &[sharp, boxes[0], boxes[1], unable]));
    assert!(told.contains("the spine switches (`quantum-2`) cannot reduce"), "{told}");
    assert_eq!(warnings(&set("small-128", &[]).unwrap()), "");
}

/// A box costs the same with ports that stay empty, and has no more than it has; whoever names none
/// bought none.
#[test]
fn ports_that_stay_empty_or_are_not_there_are_named() {
    let named = ["fabric.leaf.switch=spectrum-4", "fabric.spine.switch=spectrum-4"];
    let told = warnings(&set("small-128", &named).unwrap());
    let one = "`fabric.radix` is 32, but a `spectrum-4` has 128 ports of 400Gbps";
    assert!(told.contains(one), "{told}");
    let all = [named[0], named[1], "fabric.radix=128"];
    assert_eq!(warnings(&set("small-128", &all).unwrap()), "");
    let more = [named[0], named[1], "fabric.radix=256"];
    let told = warnings(&set("small-128", &more).unwrap());
    assert!(
        told.contains("has 128 ports of 400Gbps: the fabric is built, and priced, as if"),
        "{told}"
    );
}

/// InfiniBand's boxes grant credits, others do not, and not every card speaks everything.
#[test]
fn transports_boxes_and_cards_that_do_not_fit_are_named() {
    let told = |words: &[&str]| {
        let both = |word: &&str| [format!("fabric.leaf.{word}"), format!("fabric.spine.{word}")];
        let (boxes, others): (Vec<&str>, Vec<&str>) =
            words.iter().partition(|word| word.starts_with("switch="));
        let boxes: Vec<String> = boxes.iter().flat_map(both).collect();
        let all = boxes.iter().map(String::as_str).chain(others).chain(["fabric.radix=64"]);
        warnings(&set("small-128", &all.collect::<Vec<_>>()).unwrap())
    };
    let (infiniband, ultra) = ("network.transport=infiniband", "network.transport=uec");
    let wrong = told(&["switch=tomahawk-4", infiniband]);
    assert!(wrong.contains("`tomahawk-4` is an Ethernet switch"), "{wrong}");
    let wrong = told(&["switch=quantum-2"]);
    assert!(
        wrong.contains("`quantum-2` is an InfiniBand switch, the transport is rocev2"),
        "{wrong}"
    );
    assert_eq!(told(&["switch=quantum-2", infiniband]), "");
    let wrong = told(&["switch=tomahawk-4", ultra]);
    assert!(wrong.contains("does not say that `connectx-7` speaks uec"), "{wrong}");
    assert!(wrong.contains("`pollara-400`"), "{wrong}");
    assert_eq!(told(&["switch=tomahawk-4", ultra, "cluster.nic=pollara-400"]), "");
    assert_eq!(told(&["network.transport=tcp"]), "");
}

/// Who sizes a cluster or a job hears what the preset chose for its own.
#[test]
fn what_a_preset_chose_for_its_own_cluster_is_named() {
    let own = "from = \"small-128\"\n[job]\ngpus = 64\nparallel = { dp = 8 }\n";
    let inherited = loaded(own, &[]).unwrap().inherited().unwrap();
    let said = "small-128: radix 32, tiers 2, sharding fsdp, sequence_parallel true, overlap [dp]";
    assert_eq!(inherited, said);
    let chosen = format!("{own}[fabric]\nradix = 64\n");
    let inherited = loaded(&chosen, &[]).unwrap().inherited().unwrap();
    assert!(!inherited.contains("radix") && inherited.contains("tiers 2"), "{inherited}");
    let network = "from = \"small-128\"\n[network]\nrouting = { qps = 4 }\n";
    assert_eq!(loaded(network, &[]).unwrap().inherited(), None);
    assert_eq!(set("small-128", &["job.gpus=64", "job.parallel.dp=8"]).unwrap().inherited(), None);
}

/// Values that once ended in a panic or without memory are refused with what is allowed.
#[test]
fn what_no_engine_can_count_is_refused_with_its_range() {
    let cases = [
        ("small-16", "cluster.nic_rate=400bps", "from 1Mbps to 1000Tbps"),
        ("small-16", "cluster.pcie=1bps", "from 1Mbps to 1000Tbps"),
        ("small-16", "network.nic.pcie=1bps", "from 1Mbps to 1000Tbps"),
        ("small-16", "cluster.scale_up.delay=200d", "from 0ps to 10s"),
        ("small-16", "fabric.leaf.latency=200d", "from 0ps to 10s"),
        ("small-16", "fabric.links=[{length=\"1000000000km\"}]", "to 400000km"),
        ("small-16", "fabric.k=1", "from 2 to 4096"),
        ("small-16", "jitter.mean=1e8", "from 0 to 100"),
        ("small-16", "jitter.mean=-1.0", "from 0 to 100"),
        ("small-16", "software.compute_slowdown=1e9", "from 0 to 100"),
        ("small-16", "reliability.restart=200d", "at most 2592000s"),
        ("small-16", "prices.years=0", "from 0.001 to 100"),
        ("small-16", "stragglers=[{gpu={stage=0,speed=0.0}}]", "from 0.001 to 1"),
        ("small-16", "library.scale_up_efficiency=1e-9", "from 0.001 to 1"),
        ("small-16", "network.flow.points=4294967295", "at most 65536"),
        ("small-16", "catalogue.gpu.h100-sxm.memory_gbytes_s.value=0", "from 0.001 to"),
        ("small-16", "catalogue.switch.generic-64x400.ports=4294967295", "from 1 to 65536"),
        ("small-16", "catalogue.switch.generic-64x400.latency_ns.value=1e300", "from 0 to"),
        ("small-16", "faults=[{on=\"NIC 0\",what={kind=\"degraded\",rate=\"1bps\"}}]", "1Mbps"),
    ];
    for (scenario, value, range) in cases {
        let refusal = refusal(set(scenario, &[value]));
        assert!(refusal.contains(range), "{value}: {refusal}");
    }
    let messages = "traffic.messages=4294967295";
    for (pattern, most) in [("ring", 2_097_152), ("all-to-all", 131_072), ("collective", 2_097_152)]
    {
        let told = refusal(set("small-16", &[&format!("traffic.pattern={pattern}"), messages]));
        assert!(told.contains(&format!("must be from 1 to {most}")), "{pattern}: {told}");
    }
}

#[test]
fn a_torus_that_loses_nothing_is_said_to_deadlock() {
    let torus = "[cluster]\ngpus = 128\n[fabric]\ntopology = \"torus\"\ntorus = { columns = 4 }\n";
    let told = |pfc: bool| {
        let text = format!("{torus}[network]\npfc = {{ enabled = {pfc} }}\n");
        let loaded = loaded(&text, &[]).unwrap();
        assert_eq!((loaded.fabric().leaves().len(), loaded.fabric().networks().len()), (16, 1));
        warnings(&loaded)
    };
    assert!(told(true).contains("can deadlock"), "{}", told(true));
    assert_eq!(told(false), "");
    let circuits = refusal(loaded(&format!("{torus}circuits = {{ per_pod = 2 }}"), &[]));
    assert!(circuits.contains("circuits join spines of pods, and a torus has none"), "{circuits}");
}

/// Flags that speak of a job and of synthetic traffic do not fit together, in either order; one of
/// them takes the place of a preset's.
#[test]
fn flags_of_a_job_and_of_traffic_are_refused_together() {
    let both = ["traffic.pattern=incast", "job.parallel.tp=4"];
    for set_both in [both, [both[1], both[0]]] {
        let told = refusal(set("small-16", &set_both));
        assert!(told.contains("a scenario has a `job` or `traffic`, not both"), "{told}");
    }
    assert!(set("small-16", &both[..1]).unwrap().job.is_none());
}

#[test]
fn a_slow_gpu_is_in_a_stage_that_there_is() {
    let slow = |stage: u32| {
        set("small-16", &[&format!("stragglers=[{{gpu={{stage={stage},speed=0.5}}}}]")])
    };
    assert!(slow(0).is_ok());
    let told = refusal(slow(1));
    assert!(
        told.contains("`stragglers.0.gpu.stage` is 1, but the pipeline has 1 stages"),
        "{told}"
    );
}

/// What the built fabric or the job leaves without effect is named, and nothing else is.
#[test]
fn settings_without_effect_are_named_for_their_purpose() {
    use scenario::{Engine, Purpose};
    let named = |purpose, set: &str| -> Vec<String> {
        let request = Request {
            scenario: Some("small-16".to_owned()),
            set: vec![set.to_owned()],
            purpose,
            ..Request::default()
        };
        load(&request).unwrap().unused.into_iter().map(|unused| unused.key).collect()
    };
    let (flow, packet) = (Purpose::Run(Engine::Flow), Purpose::Run(Engine::Packet));
    let analytic = Purpose::Run(Engine::Analytic);
    let cases = [
        (Purpose::Topology, "fabric.oversubscription=[3]", true),
        (Purpose::Topology, "fabric.links=[{length=\"2m\"}]", false),
        (flow, "network.routing.policy=spray", true),
        (flow, "network.pfc.enabled=false", true),
        (packet, "network.pfc.enabled=false", false),
        (packet, "network.buffer_of_tier.nosuch.size=2MB", true),
        (packet, "network.buffer_of_tier.leaf.size=2MB", false),
        (packet, "network.ecn_of_tier.nosuch.min=64KiB", true),
        (packet, "network.ecn_of_tier.leaf.min=64KiB", false),
        (flow, "network.ecn_of_tier.leaf.min=64KiB", true),
        (packet, "network.credits_of_tier.leaf.spare=64KiB", true),
        (flow, "job.parallel.overlap=[\"dp\",\"cp\"]", true),
        (flow, "job.parallel.overlap=[\"dp\",\"tp\"]", false),
        (flow, "cluster.scale_up.delay=1us", true),
        (analytic, "seed=3", true),
        (flow, "seed=3", false),
    ];
    for (purpose, set, is_named) in cases {
        assert_eq!(!named(purpose, set).is_empty(), is_named, "{set} for {purpose:?}");
    }
}

/// Credit is asked for from leaf to leaf, and cells take all links: no part is scheduled
/// alone, and nothing else chooses their ways.
#[test]
fn a_fabric_is_scheduled_whole_or_not_at_all() {
    let scheduled = "network.transport=scheduled-ethernet";
    let of_spine = |own| format!("network.transport_of_tier.spine={own}");
    let cases = [vec![of_spine("scheduled-ethernet")], vec![scheduled.into(), of_spine("rocev2")]];
    for both in cases {
        let both: Vec<&str> = both.iter().map(String::as_str).collect();
        let mixed = refusal(set("small-16", &both));
        assert!(mixed.contains("scheduled from leaf to leaf"), "{mixed}");
    }
    let hashed = refusal(set("small-16", &[scheduled, "network.routing.policy=ecmp"]));
    assert!(hashed.contains("where cells take all links"), "{hashed}");
}

/// RoCEv1 has neither IP nor UDP: no router carries it, no switch marks it, and its packets of two
/// NICs look alike.
#[test]
fn rocev1_stays_inside_one_layer_2_domain() {
    let routed = refusal(set("small-16", &["network.transport=rocev1", "fabric.tiers=2"]));
    assert!(routed.contains("rocev1 has no IP header and stays inside one layer-2"), "{routed}");
    assert!(routed.contains("network.transport") && routed.contains("are routers"), "{routed}");
    let one_leaf = ["network.transport=rocev1", "fabric.tiers=1"];
    let marked = refusal(set("small-16", &[&one_leaf[..], &["network.ecn.enabled=true"]].concat()));
    assert!(marked.contains("rocev1 has no IP header that a switch could mark"), "{marked}");
    let network = set("small-16", &one_leaf).unwrap().scenario.network;
    assert_eq!(network.settings.routing.udp_source, fabric::hash::UdpSource::None);
    assert!(!network.settings.ecn.enabled);
}
