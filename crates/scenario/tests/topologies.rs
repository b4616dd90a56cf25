//! Imports read realistic files; what is exported and imported again is the same network; whatever
//! is done to a file, reading ends with a graph or an error.
//!
//! The files under `data` are written in the shape of the tools' own output (infiniband-diags,
//! containerlab's `clos01` example, the examples of Slurm's manual, an NCCL dump of an 8-GPU H100
//! server), with names and numbers made up.

use fabric::hardware::{Catalogue, ScaleUpKind};
use fabric::summary::ways;
use fabric::topology::{
    Aggregation, ClusterConfig, FabricConfig, GraphConfig, TopologyKind, build,
};
use fabric::{Fabric, Routes};
use proptest::prelude::*;
use scenario::export::{self, Detail};
use scenario::import::{self, Format, Hints};
use units::{Rate, Span};

const IBNETDISCOVER: &str = include_str!("data/ibnetdiscover.txt");
const SLURM_CONF: &str = include_str!("data/topology.conf");
const SLURM_YAML: &str = include_str!("data/topology.yaml");
const BLOCKS: &str = include_str!("data/blocks.conf");
const CLAB: &str = include_str!("data/clos01.clab.yml");
const CABLES: &str = include_str!("data/cables.csv");
const NCCL: &str = include_str!("data/h100-topo.xml");

const FILES: [(&str, &str, Format); 6] = [
    ("ibnetdiscover.txt", IBNETDISCOVER, Format::Ibnetdiscover),
    ("topology.conf", SLURM_CONF, Format::SlurmConf),
    ("topology.yaml", SLURM_YAML, Format::SlurmYaml),
    ("blocks.conf", BLOCKS, Format::SlurmConf),
    ("clos01.clab.yml", CLAB, Format::Containerlab),
    ("cables.csv", CABLES, Format::EdgeList),
];

fn read(name: &str, text: &str) -> GraphConfig {
    let read = import::graph(name, text, Hints::default());
    read.unwrap_or_else(|error| panic!("{error}")).graph
}

fn made(graph: GraphConfig) -> Fabric {
    let config =
        FabricConfig { topology: TopologyKind::File, graph: Some(graph), ..Default::default() };
    build(&ClusterConfig::default(), &config, &Catalogue::default())
        .unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn paths(fabric: &Fabric, from: usize, to: usize) -> u64 {
    let mut routes = Routes::of(fabric);
    ways(fabric, &mut routes, fabric.nic(from), fabric.nic(to)).map_or(0, |(paths, _)| paths)
}

/// Back-end switches and cables.
fn counts(fabric: &Fabric) -> (usize, usize, u64, u64) {
    let summary =
        fabric::summary::summary(fabric, &ClusterConfig::default(), &Catalogue::default());
    (fabric.servers(), fabric.nics(), summary.switches, summary.links)
}

#[test]
fn formats_are_told_apart() {
    for (name, text, format) in FILES {
        assert_eq!(import::detect(name, text), Some(format), "{name}");
    }
    assert_eq!(import::detect("what.bin", "\u{1}\u{2}\u{3}"), None);
    let error = import::graph("what.bin", "x", Hints::default()).unwrap_err().to_string();
    assert!(error.starts_with("what.bin: is in no known format"), "{error}");
}

#[test]
fn ibnetdiscover_gives_servers_rails_and_rates() {
    let graph = read("ibnetdiscover.txt", IBNETDISCOVER);
    assert_eq!(graph.endpoints.len(), 16);
    assert_eq!(graph.endpoints[..3], ["node001 mlx5_0", "node001 mlx5_1", "node002 mlx5_0"]);
    assert_eq!(graph.nics_per_node, Some(2));
    assert_eq!(graph.switches[0].name, "ib-leaf1");
    assert_eq!(graph.switches[0].model.as_deref(), Some("quantum-1"));
    assert!(graph.edges.iter().all(|edge| edge.rate == Some(Rate::from_gbps(200))));
    let fabric = made(graph);
    assert_eq!(counts(&fabric), (8, 16, 6, 16 + 16));
    // Same leaf; and over two spines with two cables up and two down.
    assert_eq!(paths(&fabric, 0, 2), 1);
    assert_eq!(paths(&fabric, 0, 15), 2 * 2 * 2);
}

#[test]
fn slurm_trees_and_blocks_become_fabrics() {
    let graph = read("topology.conf", SLURM_CONF);
    assert_eq!(graph.endpoints.len(), 14);
    let fabric = made(graph);
    assert_eq!(counts(&fabric), (14, 14, 4, 14 + 14));

    let hints = Hints { nics_per_node: 8, ..Hints::default() };
    let fabric = made(import::graph("topology.yaml", SLURM_YAML, hints).unwrap().graph);
    assert_eq!(counts(&fabric), (4, 32, 3, 32 + 32));
    assert_eq!(fabric.gpus(), 32);
    assert_eq!(fabric.name(fabric.nic(8)), "node02/nic0");

    let fabric = made(read("blocks.conf", BLOCKS));
    assert_eq!(counts(&fabric), (36, 36, 3, 36 + 36));
}

#[test]
fn containerlab_and_spreadsheets_are_read() {
    let graph = read("clos01.clab.yml", CLAB);
    assert_eq!(graph.endpoints, ["client1/eth1", "client2/eth1", "client3/eth1", "client4/eth1"]);
    let last = graph.edges.last().unwrap();
    assert_eq!((last.rate, last.delay), (Some(Rate::from_gbps(100)), Some(Span::from_us(1))));
    let fabric = made(graph);
    assert_eq!(counts(&fabric), (4, 4, 4, 8));
    assert_eq!(paths(&fabric, 0, 3), 2);

    let fabric = made(read("cables.csv", CABLES));
    assert_eq!(counts(&fabric), (2, 4, 4, 8));
    assert_eq!(paths(&fabric, 0, 1), 2);
    assert_eq!(paths(&fabric, 0, 2), 1);
}

#[test]
fn an_nccl_dump_describes_a_server() {
    let server = import::server("h100-topo.xml", NCCL).unwrap();
    assert_eq!((server.gpus, server.nics.len(), server.nvlinks), (8, 8, 18));
    assert_eq!(server.affinity, [[0], [1], [2], [3], [4], [5], [6], [7]]);
    assert_eq!(server.nic_rate, Some(Rate::from_gbps(400)));
    assert_eq!(server.scale_up, Some(ScaleUpKind::Switched));
    assert_eq!(server.pcie.unwrap().to_string(), "504.123076923Gbps");

    // Two NICs below the second CPU only: the other GPUs take them in turn.
    let mut fewer = String::new();
    let mut skipped = false;
    for line in NCCL.lines() {
        let dropped = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_5", "mlx5_7"];
        skipped |= dropped.iter().any(|name| line.contains(name));
        if !dropped.iter().any(|name| line.contains(name)) {
            fewer.push_str(line);
            fewer.push('\n');
        }
    }
    assert!(skipped);
    let server = import::server("fewer.xml", &fewer).unwrap();
    assert_eq!(server.nics, ["mlx5_4", "mlx5_6"]);
    assert_eq!(server.affinity, [[0], [1], [0], [1], [0], [1], [1], [0]]);
    let said = |key: &str| server.settings().into_iter().find(|(known, _)| *known == key);
    assert_eq!(said("cluster.nics_per_node").unwrap().1, 2);
}

#[test]
fn mistakes_are_told_with_file_and_line() {
    let told = |name: &str, text: &str| {
        import::graph(name, text, Hints::default()).unwrap_err().to_string()
    };
    assert_eq!(
        told("topology.conf", "SwitchName=s0 Nodes=n[0-3\n"),
        "topology.conf:1: `n[0-3`: `[` without `]`"
    );
    assert_eq!(
        told("topology.conf", "\nSwitchName=s0 Nodes=n1\nSwitchName=s1 Switches=s0,s7\n"),
        "topology.conf:3: there is no switch `s7`"
    );
    assert_eq!(
        told("topology.conf", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n"),
        "topology.conf:1: switch `a` is below itself"
    );
    assert_eq!(
        told("topology.conf", "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n"),
        "topology.conf:2: node `n1` is below two switches"
    );
    assert_eq!(
        told("topology.conf", "SwitchName=a Nodes=n1 Colour=red\n"),
        "topology.conf:1: there is no `colour` in a topology.conf"
    );
    let unknown = CLAB.replace("spine1:e1-2", "spine9:e1-2");
    assert_eq!(told("x.clab.yml", &unknown), "x.clab.yml:31: there is no node `spine9`");
    assert_eq!(
        told("x.clab.yml", "name: x\ntopology:\n  links: []\n"),
        "x.clab.yml:3: `topology.nodes` is missing"
    );
    let cut = &IBNETDISCOVER[..IBNETDISCOVER.len() / 2];
    let error = told("ib.txt", cut);
    assert!(error.starts_with("ib.txt:") && error.contains("truncated?"), "{error}");
    let error = import::server("topo.xml", &NCCL[..NCCL.len() / 2]).unwrap_err();
    assert!(0 < error.line, "{error}");
    assert_eq!(
        import::server("topo.xml", "<system></system>").unwrap_err().to_string(),
        "topo.xml: it has no GPU: is this an NCCL topology file?"
    );
}

/// Fabrics of several families, small enough to compare pair by pair.
fn samples() -> Vec<(&'static str, Fabric)> {
    let hosts = |gpus| ClusterConfig {
        gpus: Some(gpus),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let servers = |gpus| ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() };
    let of = |topology| FabricConfig { topology, radix: Some(8), ..FabricConfig::default() };
    let fat_tree =
        FabricConfig { topology: TopologyKind::FatTree, k: Some(4), ..FabricConfig::default() };
    let bonded =
        ClusterConfig { ports_per_nic: 2, aggregation: Aggregation::DualTor, ..servers(32) };
    let wide = FabricConfig { radix: Some(32), tiers: Some(2), ..FabricConfig::default() };
    let cases = vec![
        ("fat tree", hosts(16), fat_tree),
        ("three tiers", hosts(50), of(TopologyKind::Clos)),
        ("rails", servers(64), of(TopologyKind::RailOptimized)),
        ("rail-only", servers(32), of(TopologyKind::RailOnly)),
        ("planes", servers(64), of(TopologyKind::DualPlane)),
        ("dual ToR", bonded, wide),
        ("dragonfly", hosts(72), FabricConfig { radix: None, ..of(TopologyKind::Dragonfly) }),
    ];
    let build = |(name, cluster, config)| {
        let fabric = build(&cluster, &config, &Catalogue::default());
        (name, fabric.unwrap_or_else(|errors| panic!("{name}: {errors:?}")))
    };
    cases.into_iter().map(build).collect()
}

fn assert_same(name: &str, one: &Fabric, other: &Fabric) {
    assert_eq!(counts(one), counts(other), "{name}");
    let step = (one.nics() / 9).max(1);
    for from in (0..one.nics()).step_by(step) {
        for to in (0..one.nics()).step_by(step) {
            assert_eq!(paths(one, from, to), paths(other, from, to), "{name}: {from} to {to}");
        }
    }
    let ends = |fabric: &Fabric| -> Vec<(Rate, Span)> {
        let links = (0..fabric.nics()).flat_map(|nic| fabric.ports(fabric.nic(nic)));
        links.map(|link| (fabric.class(*link).rate, fabric.class(*link).delay)).collect()
    };
    assert_eq!(ends(one), ends(other), "{name}");
}

/// Agreement: exported and imported again, a fabric has the same nodes, links and paths.
#[test]
fn round_trips_keep_nodes_links_and_paths() {
    for (name, fabric) in samples() {
        let csv = export::edge_list(&fabric);
        let again = made(read("edges.csv", &csv));
        assert_same(&format!("{name} as an edge list"), &fabric, &again);
        // A second time, so that imported names survive too.
        assert_eq!(export::edge_list(&again), csv, "{name}");

        let lab = export::containerlab(&fabric, name);
        let again = made(read("lab.clab.yml", &lab));
        assert_same(&format!("{name} in containerlab"), &fabric, &again);
        assert_eq!(export::containerlab(&again, name), lab, "{name}");
    }
}

/// Golden: what Slurm is told of eight servers on two segments of rails, and of a fat tree.
#[test]
fn slurm_is_told_who_is_near_whom() {
    let samples = samples();
    let slurm = |wanted: &str| {
        let (_, fabric) = samples.iter().find(|(name, _)| *name == wanted).unwrap();
        export::slurm(fabric)
    };
    insta::assert_snapshot!(slurm("rails"), @r"
    # Written by fatflow. Slurm counts levels, not cables.
    SwitchName=leaf0 Nodes=node[0-3]
    SwitchName=leaf1 Nodes=node[4-7]
    SwitchName=top Switches=leaf[0-1]
    ");
    insta::assert_snapshot!(slurm("fat tree"), @r"
    # Written by fatflow. Slurm counts levels, not cables.
    SwitchName=leaf0 Nodes=node[0-1]
    SwitchName=leaf1 Nodes=node[2-3]
    SwitchName=leaf2 Nodes=node[4-5]
    SwitchName=leaf3 Nodes=node[6-7]
    SwitchName=leaf4 Nodes=node[8-9]
    SwitchName=leaf5 Nodes=node[10-11]
    SwitchName=leaf6 Nodes=node[12-13]
    SwitchName=leaf7 Nodes=node[14-15]
    SwitchName=pod0 Switches=leaf[0-1]
    SwitchName=pod1 Switches=leaf[2-3]
    SwitchName=pod2 Switches=leaf[4-5]
    SwitchName=pod3 Switches=leaf[6-7]
    SwitchName=top Switches=pod[0-3]
    ");
    for (name, fabric) in &samples {
        let again = made(read("topology.conf", &export::slurm(fabric)));
        assert_eq!(again.servers(), fabric.servers(), "{name}");
    }
}

/// Golden: a large fabric is drawn folded.
#[test]
fn large_fabrics_are_drawn_folded() {
    let config =
        FabricConfig { topology: TopologyKind::AiZone, pods: Some(2), ..FabricConfig::default() };
    let fabric = build(&ClusterConfig::default(), &config, &Catalogue::default()).unwrap();
    insta::assert_snapshot!(export::graphviz(&fabric, Detail::Auto), @r#"
    graph fabric {
      rankdir=BT;
      node [shape=box];
      n0 [label="384 × zone 0 server", shape=ellipse];
      n1 [label="384 × zone 1 server", shape=ellipse];
      n2 [label="192 × zone 0 RTSW"];
      n3 [label="192 × zone 1 RTSW"];
      n4 [label="16 × zone 0 CTSW"];
      n5 [label="16 × zone 1 CTSW"];
      n6 [label="28 × ATSW"];
      n0 -- n2 [label="3072 × 400Gbps"];
      n1 -- n3 [label="3072 × 400Gbps"];
      n2 -- n4 [label="3072 × 400Gbps"];
      n3 -- n5 [label="3072 × 400Gbps"];
      n4 -- n6 [label="448 × 400Gbps"];
      n5 -- n6 [label="448 × 400Gbps"];
    }
    "#);
    let small = &samples()[0].1;
    let full = export::graphviz(small, Detail::Auto);
    assert_eq!(full.matches(" -- ").count(), 48);
    assert_eq!(full.matches("shape=ellipse").count(), 16);
}

/// A file with a piece cut out, repeated, overwritten, or cut off.
fn mutated() -> impl Strategy<Value = (usize, String)> {
    let place = (0..FILES.len() + 1, any::<prop::sample::Index>(), 0_usize..40, 0_u8..4, ".{0,6}");
    place.prop_map(|(file, at, length, how, filling)| {
        let text = FILES.get(file).map_or(NCCL, |(_, text, _)| text);
        let mut chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let end = (at + length).min(chars.len());
        match how {
            0 => drop(chars.drain(at..end)),
            1 => chars.truncate(at),
            2 => drop(chars.splice(at..end, filling.chars())),
            _ => {
                let piece: Vec<char> = chars[at..end].to_vec();
                drop(chars.splice(at..at, piece));
            }
        }
        (file, chars.into_iter().collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is done to a file, reading it, building from it and describing it never panics.
    #[test]
    fn broken_files_never_panic((file, text) in mutated()) {
        let Some((name, _, _)) = FILES.get(file) else {
            let _ = import::server("topo.xml", &text);
            return Ok(());
        };
        let hints = Hints { nics_per_node: 2, ..Hints::default() };
        if let Ok(read) = import::graph(name, &text, hints) {
            let config = FabricConfig {
                topology: TopologyKind::File,
                graph: Some(read.graph),
                ..FabricConfig::default()
            };
            if let Ok(fabric) = build(&ClusterConfig::default(), &config, &Catalogue::default()) {
                let _ = counts(&fabric);
            }
        }
    }

    #[test]
    fn noise_never_panics(text in "\\PC{0,200}", name in "x\\.(csv|yaml|conf|txt|clab\\.yml)") {
        let _ = import::graph(&name, &text, Hints::default());
        let _ = import::server(&name, &text);
    }
}

/// A scenario names its files relative to itself; what is wrong in them is told with their lines.
#[test]
fn scenarios_read_the_files_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    std::fs::write(folder.path().join("ib.txt"), IBNETDISCOVER).unwrap();
    std::fs::write(folder.path().join("topo.xml"), NCCL).unwrap();
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let what = path.display().to_string();
        scenario::load(&scenario::Request { scenario: Some(what), ..Default::default() })
    };
    let loaded = load("[fabric]\ntopology = \"file\"\nfile = \"ib.txt\"\n").unwrap();
    assert_eq!(loaded.fabric().nics(), 16);
    let text = "[cluster]\ngpus = 16\nnics_per_node = 1\nserver_file = \"topo.xml\"\n";
    assert_eq!(load(text).unwrap().fabric().nics(), 16);

    let refused = |text: &str| load(text).unwrap_err().to_string();
    let missing = refused("[fabric]\ntopology = \"file\"\nfile = \"none.csv\"\n");
    assert!(missing.contains("none.csv: cannot be read"), "{missing}");
    std::fs::write(folder.path().join("bad.csv"), "a,b,rate\nh,s,400\n").unwrap();
    let bad = refused("[fabric]\ntopology = \"file\"\nfile = \"bad.csv\"\n");
    assert!(bad.contains("bad.csv:2: `400` is not a rate"), "{bad}");
}
