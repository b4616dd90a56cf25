//! The readers: what each is given, with seeds and the words of its format.

use std::path::Path;

use scenario::import::{self, Hints};
use scenario::source::Source;
use scenario::{Colour, Extent, Request, Style, load};

use crate::formats::{self, Seed};
use crate::{kept, wire};

/// A reader under fire.
#[derive(Debug)]
pub struct Target {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Reads the input; what it said, in a few words.
    pub read: fn(&[u8]) -> String,
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of the format.
    pub words: &'static [&'static str],
}

const TOML: &[&str] = &[
    "[cluster]",
    "gpus = ",
    "[job]",
    "model = \"",
    "\"",
    "[[",
    "]]",
    "{",
    "}",
    "'''",
    "\"\"\"",
    "= ",
    "network.routing.qps",
    "from = \"",
    "small-128",
    "\\u001b",
    "1979-05-27",
    "0x",
    "[traffic]",
    "pattern = \"",
    "[fabric]",
    "topology = \"",
    "[catalogue.nic.mine]",
    "[[reported]]",
    "= [",
];
const YAML: &[&str] = &[
    "- ",
    ": ",
    "&a ",
    "*a",
    "{",
    "}",
    "[",
    "]",
    "\n  ",
    "topology:",
    "nodes:",
    "links:",
    "endpoints:",
    "kind: linux",
    "? ",
    "| ",
    "> ",
    "---",
    "...",
    "!!str ",
    "<<: *a",
    "switch: ",
    "children: ",
    "tree:",
    "block:",
    "n[0-9]",
    "\t",
];
const SLURM: &[&str] = &[
    "SwitchName=",
    "Nodes=",
    "Switches=",
    "BlockName=",
    "BlockSizes=",
    "[",
    "]",
    "-",
    ",",
    "\\\n",
    "#",
    "LinkSpeed=",
    "n[0-9]",
    "s[00-11]",
    "000000000000000000000",
];
const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "1e999",
    "-0",
    "\\u0000",
    "\\ud800",
    "\"entries\":",
    "\"size\":",
    "\"results\":",
];
const LOG: &[&str] = &[
    "NCCL INFO ",
    "NCCL WARN ",
    "NCCL version ",
    "comm 0x",
    " rank ",
    " nranks ",
    "[0]",
    ":::MLLOG ",
    "# nThread ",
    "#  size",
    "float",
    "sum",
    "-1",
    "\n",
    "Channel 00/",
    "[send] via NET/IB/0",
    "AllReduce: opCount ",
    "Init COMPLETE",
    " busId ",
    "\x1b[31m",
];
const CSV: &[&str] =
    &[",", "\n", "\"", "\"\"", ";", "\t", "#", "a,b", "rate", "count", "nic", "switch", "400Gbps"];
const XML: &[&str] = &[
    "<system>",
    "</system>",
    "<cpu ",
    "<pci ",
    "<gpu ",
    "<nic>",
    "<net ",
    "<nvlink ",
    "/>",
    ">",
    "busid=\"",
    "class=\"0x068000\"",
    "dev=\"",
    "speed=\"",
    "&lt;",
    "<!--",
    "<![CDATA[",
    "<!DOCTYPE",
];
const FORMULA: &[&str] =
    &["(", ")", "+", "-", "*", "/", "%", "<=", "==", "&&", "||", "!", "min(", "gpus", "1e9", "\""];
const BINARY: &[&str] = &[
    "\x02",
    "\x11",
    "\x45\x00",
    "\x60",
    "PAR1",
    "\x1f\u{8b}",
    "(",
    "ustar",
    "\u{80}\x04",
    "\x00\x00\x00\x00",
    "\u{ff}\u{ff}\u{ff}\u{ff}",
];

pub(crate) const COUNTER: &[&str] = &[
    "# TYPE ",
    "{device=\"",
    "\"} ",
    "NaN",
    "rx_prio3_pause: ",
    "\"SAI_PORT_STAT_",
    "--------  -----\n",
    "HTTP/1.1 200 OK\r\n",
    "Content-Length: ",
    "Transfer-Encoding: chunked\r\n",
    "\r\n\r\n",
    "ffffffffffffffff\r\n",
];
const CABLE: &[&str] = &[
    "----------  ",
    "Interface:    ",
    "SysName:",
    "lldp.",
    ".chassis.",
    "\"lldp\"",
    "GPU0\t",
    "NIC0",
    "NV18",
    "Switch ",
    "Ca ",
    "[1] ",
    "SwitchName=",
    "- topology:",
];
const SETTINGS: &[&str] = &[
    "{",
    "}",
    "\"WRED_PROFILE\"",
    "NCCL_",
    "=",
    "nv set ",
    "pbr-map ",
    "match ",
    "mlnx_qos ",
    "--tensor-model-parallel-size ",
    "train_batch_size",
    "parallel_degree = ",
    "SwitchName=",
    "<system",
];

const PRICES: &str = "kind,name,usd,low,high\n# offers\nswitch,tomahawk-5,$38000,30000,\n\
    cable,dr4-400,900\n";
pub(crate) const SCENARIO: &str = "name = \"a\"\nseed = 7\n[cluster]\ngpus = 16\nnic_rate = \"400Gbps\"\n\
    [network.routing]\nqps = 4\npolicy = \"ecmp\"\n[traffic]\npattern = \"permutation\"\n\
    bytes = \"1MiB\"\n[[reported]]\nmetric = \"step\"\nvalue = 1.5\nunit = \"s\"\n\
    source = \"nowhere\"\ntrust = \"M\"\n";
const JOB: &str = "[cluster]\ngpus = 16\n[job]\nmodel = \"llama3-8b\"\ngpus = 16\n\
    parallel = { tp = 4, pp = 2 }\nbatch = { sequences = 4, length = 4096 }\n[prices]\npue = 1.2\n";
const CATALOGUE: &str = "[nic.mine]\ntitle = \"Mine\"\n\
    rate_gbps = { value = 400, source = \"me\", trust = \"M\" }\nports = 1\n\
    send_latency_ns = { value = 400, source = \"me\", trust = \"M\" }\n";
const HF: &str = "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4096,\
    \"intermediate_size\":14336,\"num_attention_heads\":32,\"num_hidden_layers\":32,\
    \"num_key_value_heads\":8,\"vocab_size\":128256,\"model_type\":\"llama\"}";
const MEASURED: &str = "h:1:2 [0] NCCL INFO NCCL version 2.26.6+cuda12.9\n\
    h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 2 cudaDev 0 busId 1000 - \
    Init COMPLETE\n\
    h:1:2 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 \
    root 0 \
    comm 0x5 [nranks=2] stream 0x3\n#  size  count  type redop root  time algbw busbw #wrong\n\
    1048576 262144 float sum -1 100.0 10.4 18.3 0 99.0 10.5 18.4 0\n";
/// A WRITE of 16 bytes over IPv4.
pub(crate) const PACKET: &[u8] = &[
    0x45, 0, 0, 60, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb7, 0,
    40, 0, 0, 4, 0x40, 0xff, 0xff, 0, 0, 0, 7, 0x80, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
    12, 13, 14, 15, 16, 0, 0, 0, 0,
];

/// The tests' data of the topology readers, in the binary.
macro_rules! data {
    ($name:literal) => {
        beginnings(include_bytes!(concat!("../../scenario/tests/data/", $name)))
    };
}

/// Every reader.
pub const TARGETS: &[Target] = &[
    Target { name: "scenario", read: scenario_text, seeds: scenarios, words: TOML },
    Target { name: "set", read: set, seeds: assignments, words: TOML },
    Target { name: "environment", read: environment, seeds: assignments, words: TOML },
    Target { name: "catalogue", read: catalogue, seeds: || texts(&[CATALOGUE]), words: TOML },
    Target { name: "hf-config", read: hf_config, seeds: || texts(&[HF]), words: JSON },
    Target { name: "edge-list", read: edge_list, seeds: || data!("cables.csv"), words: CSV },
    Target { name: "containerlab", read: clab, seeds: || data!("clos01.clab.yml"), words: YAML },
    Target { name: "ibnetdiscover", read: ib, seeds: || data!("ibnetdiscover.txt"), words: XML },
    Target { name: "slurm-conf", read: slurm_conf, seeds: slurm_seeds, words: SLURM },
    Target { name: "slurm-yaml", read: slurm_yaml, seeds: || data!("topology.yaml"), words: YAML },
    Target { name: "nccl-xml", read: nccl_xml, seeds: || data!("h100-topo.xml"), words: XML },
    Target { name: "price-list", read: prices, seeds: || texts(&[PRICES]), words: CSV },
    Target { name: "flows", read: flows, seeds: flow_seeds, words: CSV },
    Target { name: "published", read: published, seeds: step_seeds, words: CSV },
    Target { name: "measurements", read: measurements, seeds: table_seeds, words: CSV },
    Target { name: "measured", read: measured, seeds: || texts(&[MEASURED]), words: LOG },
    Target { name: "reference-run", read: reference, seeds: reference_seeds, words: CSV },
    Target { name: "page-set", read: page_set, seeds: scenarios, words: TOML },
    Target { name: "free-hosts", read: free_hosts, seeds: host_seeds, words: SLURM },
    Target { name: "advised-files", read: advised, seeds: advised_seeds, words: SETTINGS },
    Target { name: "grid", read: grid, seeds: grid_seeds, words: TOML },
    Target { name: "expression", read: expression, seeds: expressions, words: FORMULA },
    Target { name: "plan", read: kept::plan, seeds: plans, words: JSON },
    Target { name: "results", read: results, seeds: parquet_seeds, words: BINARY },
    Target { name: "sweep-store", read: kept::sweep, seeds: kept::patches, words: BINARY },
    Target { name: "stored-runs", read: kept::runs, seeds: kept::patches, words: BINARY },
    Target { name: "users", read: kept::users, seeds: kept::user_seeds, words: TOML },
    Target { name: "observe-log", read: observed, seeds: || of(formats::LOGS), words: LOG },
    Target { name: "observe-record", read: observed, seeds: || of(formats::RECORDS), words: JSON },
    Target { name: "observe-trace", read: observed, seeds: || of(formats::TRACES), words: JSON },
    Target { name: "observe-counter", read: observed, seeds: counter_seeds, words: COUNTER },
    Target { name: "observe-cable", read: observed, seeds: || of(formats::CABLES), words: CABLE },
    Target { name: "observe-capture", read: observed, seeds: capture_seeds, words: BINARY },
    Target { name: "observe-packed", read: observed, seeds: formats::packed, words: BINARY },
    Target { name: "rocpd", read: kept::rocpd, seeds: kept::patches, words: BINARY },
    Target { name: "exporter", read: wire::exporter, seeds: wire::pages, words: COUNTER },
    Target { name: "roce-packet", read: packet, seeds: || vec![PACKET.to_vec()], words: BINARY },
    Target { name: "queue-pair", read: wire::queue_pair, seeds: wire::packets, words: BINARY },
    Target { name: "switch-answer", read: wire::answer, seeds: wire::answers, words: BINARY },
    Target { name: "agent-hosts", read: wire::hosts, seeds: wire::host_seeds, words: SLURM },
    Target { name: "agent-plan", read: wire::task, seeds: wire::tasks, words: JSON },
    Target { name: "agent-told", read: wire::told, seeds: wire::telling, words: JSON },
];

pub(crate) fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A file that the tests of the topology readers have; its beginnings too: mutations of a small
/// input reach further.
fn beginnings(bytes: &[u8]) -> Vec<Vec<u8>> {
    vec![bytes[..bytes.len().min(600)].to_vec(), bytes[..bytes.len().min(4000)].to_vec()]
}

/// Files of formats that `observe` knows.
fn of(all: &[Seed]) -> Vec<Vec<u8>> {
    all.iter().map(|(_, bytes)| bytes.to_vec()).collect()
}

pub(crate) fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

pub(crate) fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "read".to_owned())
}

fn loaded(request: &Request) -> String {
    match load(request) {
        Ok(_) => "loaded".to_owned(),
        Err(problems) => {
            problems.render(Style { colour: Colour::Never, width: 80 });
            problems.0.first().map(|problem| problem.message.clone()).unwrap_or_default()
        }
    }
}

fn settings(source: &str) -> Request {
    Request {
        scenario: Some("fuzz.toml".to_owned()),
        text: Some(Source::new("fuzz.toml", source)),
        extent: Extent::Settings,
        ..Request::default()
    }
}

fn scenarios() -> Vec<Vec<u8>> {
    texts(&[SCENARIO, JOB])
}

fn scenario_text(input: &[u8]) -> String {
    loaded(&settings(&text(input)))
}

fn assignments() -> Vec<Vec<u8>> {
    texts(&["network.routing.qps=16", "job.parallel={tp=8}", "traffic.bytes=1MiB", "a.b.c=\"x\""])
}

fn set(input: &[u8]) -> String {
    loaded(&Request { set: vec![text(input)], ..settings(SCENARIO) })
}

fn environment(input: &[u8]) -> String {
    let input = text(input);
    let (name, value) = input.split_once('=').unwrap_or((&input, ""));
    let name = format!("FATFLOW_SET_{}", name.replace('.', "__"));
    loaded(&Request { environment: vec![(name, value.to_owned())], ..settings(SCENARIO) })
}

/// Calls a reader of files.
pub(crate) fn as_file(name: &str, input: &[u8], read: impl FnOnce(&Path) -> String) -> String {
    let folder = tempfile::tempdir().expect("there is a place for files");
    let path = folder.path().join(name);
    std::fs::write(&path, input).expect("there is room");
    read(&path)
}

fn catalogue(input: &[u8]) -> String {
    as_file("mine.toml", input, |path| {
        loaded(&Request { catalogue: vec![path.to_owned()], ..settings(SCENARIO) })
    })
}

fn prices(input: &[u8]) -> String {
    as_file("mine.csv", input, |path| {
        loaded(&Request { catalogue: vec![path.to_owned()], ..settings(SCENARIO) })
    })
}

fn hf_config(input: &[u8]) -> String {
    as_file("config.json", input, |path| {
        let choice = job::config::ModelChoice::Named(path.display().to_string());
        match scenario::model::find(&choice, Path::new("")) {
            Ok(model) => {
                // What is counted from it must count too.
                format!("{:?}", model.problems().first().map(|problem| problem.0))
            }
            Err(problem) => problem.message.replace(&path.display().to_string(), ""),
        }
    })
}

fn graph(name: &str, input: &[u8]) -> String {
    let hints = Hints { nics_per_node: 2, ..Hints::default() };
    said(import::graph(name, &text(input), hints))
}

fn edge_list(input: &[u8]) -> String {
    graph("a.csv", input)
}

fn clab(input: &[u8]) -> String {
    graph("a.clab.yml", input)
}

fn ib(input: &[u8]) -> String {
    graph("subnet.txt", &[b"vendid=0x2c9\n", input].concat())
}

fn slurm_seeds() -> Vec<Vec<u8>> {
    let lists = "SwitchName=s[0-1] Nodes=r[1-2]n[01-04],x\nSwitchName=top Switches=s[0-1]\n";
    [data!("topology.conf"), data!("blocks.conf"), texts(&[lists])].concat()
}

fn slurm_conf(input: &[u8]) -> String {
    graph("topology.conf", input)
}

fn slurm_yaml(input: &[u8]) -> String {
    graph("topology.yaml", input)
}

fn nccl_xml(input: &[u8]) -> String {
    said(import::server("topo.xml", &text(input)))
}

fn flow_seeds() -> Vec<Vec<u8>> {
    texts(&["src,dst,bytes,start_ns\n0,1,1000,0\n# a\n1,2,5,7\n", "dst,bytes,src\n1,2,0\n"])
}

fn flows(input: &[u8]) -> String {
    match scenario::flows::parse(&Source::new("flows.csv", text(input)), 16) {
        Ok(_) => "read".to_owned(),
        Err(problems) => problems.0.first().map(|p| p.message.clone()).unwrap_or_default(),
    }
}

fn step_seeds() -> Vec<Vec<u8>> {
    table_seeds().split_off(1)
}

fn published(input: &[u8]) -> String {
    match step::published::Row::read_all(&text(input)) {
        Ok(_) => "read".to_owned(),
        Err(problem) => format!("{problem:?}"),
    }
}

/// The columns of the tables in the binary, and their first rows.
fn table_seeds() -> Vec<Vec<u8>> {
    let first = |text: &str| text.split_inclusive('\n').take(4).collect::<String>().into_bytes();
    vec![
        first(include_str!("../../../validation/collectives.csv")),
        first(include_str!("../../../validation/training_steps.csv")),
    ]
}

fn measurements(input: &[u8]) -> String {
    match commands::validate::files::rows("a.csv", &text(input)) {
        Ok(rows) => rows.join("; "),
        Err(failure) => failure.to_string(),
    }
}

fn measured(input: &[u8]) -> String {
    as_file("out.txt", input, |path| match commands::collective::measured::read(path) {
        Ok(_) => "read".to_owned(),
        Err(error) => error.to_string().replace(&path.display().to_string(), ""),
    })
}

fn reference_seeds() -> Vec<Vec<u8>> {
    let parameters = "[topology]\nhosts = 4\nrate_gbps = 100\n";
    let flows = "flow,src,dst,bytes,start_ns,finish_ns\n0,0,1,1000,0,900\n";
    texts(&[&format!("{parameters}\x00{flows}")])
}

fn reference(input: &[u8]) -> String {
    let input = text(input);
    let (parameters, flows) = input.split_once('\0').unwrap_or((&input, ""));
    let run = commands::validate::packets::ReferenceRun::read(("a.toml", parameters), ("b", flows));
    said(run)
}

fn page_set(input: &[u8]) -> String {
    let input = text(input);
    let (key, rest) = input.split_once('\n').unwrap_or(("network.routing.qps", &input));
    let (value, rest) = rest.split_once('\n').unwrap_or(("16", rest));
    said(serve::http::leave_out(rest, key).and_then(|_| serve::http::set_value(rest, key, value)))
}

fn host_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "# mine\nn[1-3],n7 m1\n\nn2 # again\n",
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nlow*  up  infinite  3  idle n[2-4]\n",
        "NodeName=n1 Arch=x86_64\n   State=IDLE+CLOUD ThreadsPerCore=1\n",
    ])
}

fn free_hosts(input: &[u8]) -> String {
    said(commands::place::nodes::read(&Source::new("hosts", text(input))))
}

fn advised_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "{\"WRED_PROFILE\": {\"a\": {\"ecn\": \"ecn_all\", \"green_min_threshold\": \"1000\"}}}",
        "nv set qos roce mode lossless\nnv set router adaptive-routing enable on\n",
        "pbr-map fatflow seq 10\n match src-ip 10.0.0.1/32\n set nexthop 10.0.1.1\n",
        "NCCL_IB_QPS_PER_CONNECTION=4\nNCCL_ALGO=Ring\n",
        "--tensor-model-parallel-size 8\n--pipeline-model-parallel-size 2\n",
        "mlnx_qos -i eth0 --pfc 0,0,0,1,0,0,0,0\n",
        "[parallelism]\ntensor_parallel_degree = 8\n",
        "0\n1\n2\n",
    ])
}

/// Against itself: its facts are what they are.
fn advised(input: &[u8]) -> String {
    use commands::advise::write::File;
    let names = [
        "nccl-topo.xml",
        "sonic-config_db.json",
        "deepspeed.json",
        "megatron.args",
        "torchtitan.toml",
        "topology.conf",
        "topology.yaml",
        "frr-pbr.conf",
        "nvue.txt",
        "nic.sh",
        "nccl.conf",
        "ranks.txt",
    ];
    let file = |name: &'static str| File { name, text: text(input) };
    let files: Vec<File> = names.into_iter().map(file).collect();
    as_file("running", input, |path| {
        match commands::advise::check("it", &files, &[path.to_owned()]) {
            Ok(checked) => {
                assert!(checked.differences.is_empty(), "a file differs from itself");
                format!("{} agree", checked.files[0].1)
            }
            Err(failure) => failure.to_string().replace(&path.display().to_string(), ""),
        }
    })
}

fn grid_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "scenario = \"small-16\"\n[axes]\n\"network.routing.qps\" = [1, 2, 4]\nseed = [1, 2]\n",
        "scenario = \"small-16\"\n[[axis]]\nkey = \"cluster.gpus\"\nvalues = [8, 16]\n",
    ])
}

fn grid(input: &[u8]) -> String {
    said(sweep::grid::Grid::parse(&text(input), Path::new("."), &Request::default()))
}

fn expressions() -> Vec<Vec<u8>> {
    texts(&["cluster.gpus <= 16 && seed != 3", "(1 + 2) * 3 / qps < 4e3", "!(a == \"b\") || c"])
}

fn expression(input: &[u8]) -> String {
    match sweep::expression::Expression::parse(&text(input)) {
        Ok(_) => "read".to_owned(),
        Err(mistake) => format!("{mistake:?}"),
    }
}

fn plans() -> Vec<Vec<u8>> {
    texts(&["{\"cases\":1}\n{\"case\":0,\"hash\":\"0\",\"engine\":\"flow\",\"seed\":1,\
             \"values\":[],\"set\":[]}\n"])
}

fn parquet_seeds() -> Vec<Vec<u8>> {
    use exports::table::{Column, Form, Table};
    let table = Table::new()
        .with("case", Column::Integers(vec![1, 2]))
        .with("value", Column::SomeNumbers(vec![Some(0.5), None]))
        .with("hash", Column::Words(vec!["a".into(), "b".into()]));
    let mut bytes = Vec::new();
    table.write(Form::Parquet, &mut bytes).expect("memory can be written");
    vec![bytes]
}

fn results(input: &[u8]) -> String {
    said(exports::parquet::read(input.to_vec()))
}

fn counter_seeds() -> Vec<Vec<u8>> {
    of(formats::COUNTERS)
}

fn capture_seeds() -> Vec<Vec<u8>> {
    formats::captures().into_iter().map(|(_, bytes)| bytes).collect()
}

pub(crate) fn observed(input: &[u8]) -> String {
    let observed = observe::read_bytes("input", input);
    let summary = observe::Summary::of(&observed);
    let kind = observed
        .sources
        .first()
        .map(|source| (source.kind.clone(), source.problems.first().cloned()));
    format!("{kind:?} {}", std::mem::size_of_val(&summary))
}

fn packet(input: &[u8]) -> String {
    match roce::packet::decode_ip(input) {
        Ok(decoded) => format!("{:?}", decoded.headers.length()),
        Err(malformed) => format!("{malformed:?}"),
    }
}
