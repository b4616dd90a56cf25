//! Execution traces run as a job: what they come to is what their parts come to.

use commands::Engine;
use commands::collective::{self, Options, Sizes};
use commands::files::chakra::{self, Ranks};
use commands::observe::beside;
use commands::observe::replay::{Replayed, replay};
use commands::observe::{cluster, run};
use commands::packets::Patience;
use exports::chakra::{CollectiveType, End, Node, PeerMessage, Writer};
use packetsim::Watch;
use scenario::{Loaded, Purpose, Request};
use traffic::collective::Collective;
use units::Bytes;

fn load(scenario: &str, purpose: Purpose) -> Loaded {
    let scenario = Some(scenario.to_owned());
    let request = Request { scenario, purpose, ..Request::default() };
    scenario::load(&request).expect("it is well-formed")
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("fatflow-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs traces, one list of nodes for each rank, on `small-128`.
fn played(name: &str, ranks: &[Vec<Node>]) -> Result<Replayed, String> {
    let folder = folder(name);
    for (rank, nodes) in ranks.iter().enumerate() {
        let file = std::fs::File::create(folder.join(format!("job.{rank}.et"))).expect("a file");
        let mut writer = Writer::new(file).expect("it can be written");
        nodes.iter().for_each(|node| writer.node(node).expect("it can be written"));
        writer.finish().expect("it can be written");
    }
    let report = run(std::slice::from_ref(&folder), &observe::Watch::default());
    let loaded = load("small-128", Purpose::Settings);
    let replayed = replay(&report.observed, &loaded, Engine::Flow, &mut Watch::default());
    std::fs::remove_dir_all(folder).expect("it is there");
    replayed.map(|replayed| replayed.expect("there are traces")).map_err(|why| why.to_string())
}

fn after(mut node: Node, ids: &[u64]) -> Node {
    node.data_deps = ids.to_vec();
    node
}

/// Oracle: `collective` on the same ranks; computation before it adds up.
#[test]
fn a_collective_takes_as_long_as_by_itself() {
    let size = 64 << 20;
    let nodes = |rank: u64| {
        let reduce = Node::collective(2, "sum", CollectiveType::AllReduce, size, 7);
        vec![Node::computation(1, "product", 100 * (rank + 1), 0, 0), after(reduce, &[1])]
    };
    let ranks: Vec<Vec<Node>> = (0..16).map(nodes).collect();
    let replayed = played("reduce", &ranks).expect("it runs");
    let loaded = load("small-128", Purpose::Collective(Engine::Flow, Collective::AllReduce));
    let bytes = Bytes::new(size);
    let options = Options {
        engine: Engine::Flow,
        patience: Patience::Usual,
        collective: Collective::AllReduce,
        sizes: Sizes { min: bytes, max: bytes, factor: 2 },
        gpus: Some(16),
        iterations: 1,
    };
    let alone = collective::run(&loaded, &options, &mut Watch::default()).expect("it runs");
    let (alone_us, call) = (alone.rows[0].time_us, &replayed.calls[0]);
    assert_eq!((call.kind, call.bytes, call.ranks, call.count), ("all_reduce", size, 16, 1));
    assert!((call.time_us / alone_us - 1.0).abs() < 0.02, "{} for {alone_us}", call.time_us);
    // The last rank computes for 1.6 ms.
    let whole_us = 1e6 * replayed.makespan_s;
    assert!((whole_us - 1600.0 - call.time_us).abs() < 0.5, "{replayed:?}");
    assert!((replayed.compute_s - 1.6e-3).abs() < 1e-9);
}

#[test]
fn messages_wait_for_their_senders_and_circles_are_named() {
    let message = |id, end| {
        let between = PeerMessage { from: 0, to: 8, bytes: 1 << 20, tag: 3, end };
        Node::message(id, "activations", &between)
    };
    let mut ranks = vec![Vec::new(); 9];
    ranks[0] = vec![Node::computation(1, "x", 500, 0, 0), after(message(2, End::Sender), &[1])];
    let receive = message(1, End::Receiver);
    ranks[8] = vec![receive, after(Node::computation(2, "y", 250, 0, 0), &[1])];
    let replayed = played("send", &ranks).expect("it runs");
    assert_eq!(replayed.calls[0].kind, "send_recv");
    let us = 1e6 * replayed.makespan_s - 750.0 - replayed.calls[0].time_us;
    assert!(us.abs() < 0.5, "{replayed:?}");
    let circle = vec![
        after(Node::computation(1, "x", 5, 0, 0), &[2]),
        after(Node::computation(2, "y", 5, 0, 0), &[1]),
    ];
    let why = played("circle", &[circle]).expect_err("it never begins");
    assert!(why.contains("2 nodes wait for each other"), "{why}");
}

/// A matrix, a Slurm file and LLDP tables become scenarios that load.
#[test]
fn files_of_a_cluster_become_a_scenario() {
    let folder = folder("cluster");
    let matrix = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tNV18\tPIX\tSYS\t0-7\n\
                  GPU1\tNV18\t X \tSYS\tPIX\t0-7\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";
    let slurm = "SwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n[5-8]\n\
                 SwitchName=top Switches=s[0-1]\n";
    let lldp = |rows: &[&str]| {
        let head = "LocalPort    RemoteDevice    RemotePortID    Capability    RemotePortDescr\n";
        let rule = "-----------  --------------  --------------  ------------  ---------------\n";
        format!("{head}{rule}{}", rows.join("\n"))
    };
    let row = |local: &str, device: &str, port: &str| {
        format!("{local:<13}{device:<16}{port:<16}{:<14}x", "BR")
    };
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("it can be written");
        folder.join(name)
    };
    let topo = write("topo.txt", matrix);
    let tree = write("topology.conf", slurm);
    let mut rows = [Vec::new(), Vec::new()];
    for (leaf, rows) in rows.iter_mut().enumerate() {
        rows.push(row("Ethernet0", "spine-0", "Ethernet4"));
        for host in 0..4 {
            rows.push(row("Ethernet8", &format!("host{}", 4 * leaf + host), "ens1f0"));
        }
    }
    let [a, b] = rows.map(|rows| lldp(&rows.iter().map(String::as_str).collect::<Vec<_>>()));
    let tables = [write("leaf-0.txt", &a), write("leaf-1.txt", &b)];
    for (files, gpus) in
        [(vec![topo.clone(), tree], 16), ([vec![topo], tables.to_vec()].concat(), 8)]
    {
        let out = folder.join(format!("out-{gpus}.toml"));
        let report = run(&files, &observe::Watch::default());
        let made = cluster::write(&report, &out).expect("the files say enough");
        let mut set = Vec::new();
        // A host of the tables has one NIC.
        if gpus == 8 {
            set = ["cluster.gpus_per_node=1", "cluster.nics_per_node=1", "cluster.nic_affinity=[]"]
                .map(str::to_owned)
                .to_vec();
        }
        let scenario = Some(out.to_str().expect("letters").to_owned());
        let request = Request { scenario, set, ..Request::default() };
        let loaded = scenario::load(&request).unwrap_or_else(|why| panic!("{why:?}\n{made:?}"));
        assert_eq!(loaded.fabric().gpus(), gpus, "{made:?}");
    }
    std::fs::remove_dir_all(folder).expect("it is there");
}

/// Oracle: the bytes that the job's program counts, rank by rank. Groups are told by their ranks
/// alone, with tensor, pipeline, data and expert parallelism.
#[test]
fn bytes_by_axis_are_those_of_the_job() {
    for (preset, axes) in
        [("mixtral-h100", ["dp", "ep", "tp"]), ("deepseek-v2", ["dp", "ep", "pp"])]
    {
        let folder = folder(&format!("axes-{preset}"));
        let loaded = load(preset, Purpose::Run(Engine::Analytic));
        chakra::write(&loaded, &folder, Ranks::Representatives).expect("it can be written");
        let report = run(std::slice::from_ref(&folder), &observe::Watch::default());
        std::fs::remove_dir_all(folder).expect("it is there");
        let beside =
            beside::compare(&report.summary, &loaded, Engine::Analytic, &mut Watch::default());
        let rows = beside.expect("it can be predicted").by_axis;
        let seen: Vec<&str> = rows.iter().filter_map(|row| row.axis).collect();
        assert_eq!((seen, rows.len()), (axes.to_vec(), 3), "{preset}: {rows:?}");
        for row in &rows {
            let error = row.error.expect("it was seen");
            assert!(error.abs() < 1e-6, "{preset}: {row:?}");
        }
        let total: f64 = report.summary.by_axis.iter().map(|load| load.bytes_per_rank).sum();
        let by_kind: f64 =
            report.summary.load.expect("sizes are known").bytes_per_rank.values().sum();
        assert!((total / by_kind - 1.0).abs() < 1e-9, "{preset}: {total} of {by_kind}");
    }
}
