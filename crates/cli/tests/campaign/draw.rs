//! Random scenarios.

use scenario::source::Source;
use scenario::{Loaded, Request, load};
use units::Random;

/// Settings, each on a line of its own.
pub(crate) type Case = Vec<(&'static str, String)>;

const TOPOLOGIES: &[&str] = &[
    "clos",
    "fat-tree",
    "rail-optimized",
    "rail-only",
    "dual-plane",
    "ai-zone",
    "dragonfly",
    "torus",
];
const POLICIES: &[&str] = &[
    "ecmp",
    "e-ecmp",
    "path-pinning",
    "traffic-engineering",
    "flowlet",
    "spray",
    "reps",
    "adaptive",
    "infiniband-adaptive",
    "static-up-down",
];
const TRANSPORTS: &[&str] = &["rocev2", "rocev1", "infiniband", "uec", "iwarp", "tcp", "efa"];
const CONTROLS: &[&str] = &[
    "none",
    "dcqcn",
    "hpcc",
    "timely",
    "swift",
    "dctcp",
    "infiniband",
    "nscc",
    "rccc",
    "cubic",
    "powertcp",
];
/// Tiers that speak another transport than the NICs, for those topologies that have them.
const HYBRIDS: &[(&str, &str)] =
    &[("clos", "spine"), ("rail-optimized", "spine"), ("fat-tree", "core"), ("ai-zone", "ATSW")];
/// What may be out of service from the start.
const FAILED: &[&str] = &["leaf 0 - spine 0", "leaf 1 - spine 0 (1)", "spine 1", "NIC 2"];
const PATTERNS: &[&str] = &["permutation", "incast", "all-to-all", "ring", "random", "collective"];
const COLLECTIVES: &[&str] =
    &["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"];
/// What may fail, and how.
const FAULTS: &[(&str, &str)] = &[
    ("NIC 0", "kind = \"link-down\""),
    ("NIC 1", "kind = \"flap\", period = \"200us\""),
    ("NIC 3", "kind = \"degraded\", rate = \"10Gbps\""),
    ("NIC 3", "kind = \"grey\", loss = 0.01"),
    ("NIC 2", "kind = \"slow-nic\", rate = \"10Gbps\""),
    ("NIC 2", "kind = \"slow-receiver\", rate = \"20Gbps\""),
    ("NIC 1", "kind = \"pause-storm\""),
    ("leaf 0 - spine 0", "kind = \"link-down\""),
    ("leaf 0 - spine 1", "kind = \"flap\", period = \"100us\", down = \"20us\""),
    ("leaf 1 - spine 0", "kind = \"degraded\", rate = \"10Gbps\""),
    ("spine 0", "kind = \"switch-down\""),
    ("spine 1", "kind = \"switch-restart\""),
    ("server 1", "kind = \"server-down\""),
    ("GPU 1", "kind = \"slow-gpu\", speed = 0.5"),
];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// Half of the settings are left alone.
fn maybe(case: &mut Case, random: &mut Random, key: &'static str, value: String) {
    if random.below(2) == 0 {
        case.push((key, value));
    }
}

/// One case.
pub(crate) fn draw(random: &mut Random) -> Case {
    let mut case: Case = Vec::new();
    let gpus = [8, 16, 24, 32][random.below(4) as usize];
    case.push(("cluster.gpus", gpus.to_string()));
    let rate = [25, 100, 200, 400, 800][random.below(5) as usize];
    maybe(&mut case, random, "cluster.nic_rate", quoted(&format!("{rate}Gbps")));
    hybrid_or_topology(&mut case, random);
    let policy = quoted(pick(random, POLICIES));
    maybe(&mut case, random, "network.routing.policy", policy);
    let qps = [1, 2, 4, 16][random.below(4) as usize];
    maybe(&mut case, random, "network.routing.qps", qps.to_string());
    let transport = quoted(pick(random, TRANSPORTS));
    maybe(&mut case, random, "network.transport", transport);
    let control = quoted(pick(random, CONTROLS));
    maybe(&mut case, random, "network.congestion.control", control);
    let mtu = ["1KiB", "2KiB", "4KiB", "9000B"][random.below(4) as usize];
    maybe(&mut case, random, "network.packet.mtu", quoted(mtu));
    match random.below(20) {
        0 | 1 => job(&mut case, random, gpus),
        2 => jobs(&mut case, random, gpus),
        _ => traffic(&mut case, random),
    }
    match random.below(10) {
        0 | 1 => fault(&mut case, random),
        2 => case.push(("fabric.failed", format!("[{}]", quoted(pick(random, FAILED))))),
        _ => {}
    }
    case.push(("seed", random.below(1000).to_string()));
    case
}

/// A topology; now and then one in which a tier speaks another transport than the NICs.
fn hybrid_or_topology(case: &mut Case, random: &mut Random) {
    if random.below(8) != 0 {
        let topology = quoted(pick(random, TOPOLOGIES));
        return maybe(case, random, "fabric.topology", topology);
    }
    let (topology, tier) = HYBRIDS[random.below(HYBRIDS.len() as u64) as usize];
    case.push(("fabric.topology", quoted(topology)));
    let transport = pick(random, &["rocev2", "infiniband", "uec"]);
    case.push(("network.transport_of_tier", format!("{{ {tier} = \"{transport}\" }}")));
    let rate = pick(random, &["50Gbps", "200Gbps"]);
    let gateway = format!("{{ latency = \"1us\", rate = \"{rate}\" }}");
    maybe(case, random, "network.gateway", gateway);
}

fn model(random: &mut Random) -> String {
    let small = "{ layers = 4, hidden = 256, ffn = 512, head_dim = 64, heads = 8, kv_heads = 4, \
                 vocab = 1024 }";
    match random.below(6) {
        0 => quoted("llama3-8b"),
        1 => quoted("mixtral-8x7b"),
        _ => small.to_owned(),
    }
}

fn job(case: &mut Case, random: &mut Random, gpus: u64) {
    case.push(("job.model", model(random)));
    case.push(("job.gpus", gpus.to_string()));
    let tp = [1, 2, 4, 8][random.below(4) as usize];
    let pp = [1, 1, 2, 4][random.below(4) as usize];
    let sharding = pick(random, &["none", "zero1", "fsdp"]);
    case.push(("job.parallel", format!("{{ tp = {tp}, pp = {pp}, sharding = \"{sharding}\" }}")));
    let length = [128, 2048][random.below(2) as usize];
    case.push(("job.batch", format!("{{ sequences = {gpus}, length = {length} }}")));
}

/// Two jobs on one fabric, each on half of the servers.
fn jobs(case: &mut Case, random: &mut Random, gpus: u64) {
    let (half, nodes) = (gpus / 2, gpus / 16);
    let one = |random: &mut Random, name: &str| {
        let (model, tp) = (model(random), [1, 2, 8][random.below(3) as usize]);
        format!(
            "{{ name = \"{name}\", model = {model}, nodes = {nodes}, parallel = {{ tp = {tp} }}, \
             batch = {{ sequences = {half}, length = 128 }} }}"
        )
    };
    case.push(("jobs", format!("[{}, {}]", one(random, "a"), one(random, "b"))));
}

fn traffic(case: &mut Case, random: &mut Random) {
    let pattern = pick(random, PATTERNS);
    case.push(("traffic.pattern", quoted(pattern)));
    let digits = 4 + random.below(13);
    let bytes = 1 + random.below(1 << digits);
    case.push(("traffic.bytes", format!("\"{bytes}B\"")));
    let messages = 1 + random.below(3);
    match pattern {
        "collective" => {
            case.push(("traffic.collective", quoted(pick(random, COLLECTIVES))));
        }
        // One flow alone.
        "incast" if random.below(3) == 0 => case.push(("traffic.hosts", "2".to_owned())),
        _ => {}
    }
    case.push(("traffic.messages", messages.to_string()));
}

fn fault(case: &mut Case, random: &mut Random) {
    let (on, what) = FAULTS[random.below(FAULTS.len() as u64) as usize];
    let (at, long) = (random.below(40), 1 + random.below(400));
    let times = format!("at = \"{at}us\", for = \"{long}us\"");
    case.push(("faults", format!("[{{ on = \"{on}\", {times}, what = {{ {what} }} }}]")));
}

/// The case as a file.
pub(crate) fn text(case: &Case) -> String {
    case.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// The case with a setting changed.
pub(crate) fn with(case: &Case, key: &'static str, value: &str) -> Case {
    let others = case.iter().filter(|(known, _)| *known != key);
    others.cloned().chain([(key, value.to_owned())]).collect()
}

/// The case as it is run; none if it is refused.
pub(crate) fn loaded(case: &Case) -> Option<Loaded> {
    let request = Request {
        scenario: Some("case.toml".to_owned()),
        text: Some(Source::new("case.toml", text(case))),
        ..Request::default()
    };
    load(&request).ok()
}
