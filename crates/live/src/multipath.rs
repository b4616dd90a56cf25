//! Namespaces and Linux's own multipath routing.
//!
//! Every rank and every switch is a process in a network namespace of its own, without a name: it
//! vanishes with the process. Links are veth pairs, shaped at both ends (`tbf`). Switches route
//! with one route for each rank, whose next hops are the fabric's candidates in their order, by
//! `net.ipv4.fib_multipath_hash_policy` and a `fib_multipath_hash_seed` for each switch. Which way
//! a queue pair takes is asked of the kernel (`ip route get`), hop by hop.
//!
//! It needs `ip` and `tc` (iproute2), and root or user namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, Write as _};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use commands::Failure;
use fabric::graph::NodeKind;
use fabric::hash::{FlowKey, HashFields, HashFunction, linux};
use fabric::routes::Routes;
use fabric::routing::Policy;
use fabric::routing::ecmp::{Ecmp, Members};
use fabric::{Fabric, LinkId, NodeId};
use nix::sched::{CloneFlags, unshare};
use packetsim::Settings;
use units::{Id, IdVec};

use crate::frame::switch_address;
use crate::lower::Lowered;
use crate::plan::{RankMessage, RankPlan, RankResult};
use crate::rank::tell;
use crate::run::{Case, Ranks, RunCounts, run_name};
use crate::switch::{Counted, LinkCount};

/// Bytes of Ethernet, IPv4, UDP, and of the headers and the check of a packet in the middle of a
/// message: what a counter of a device shows beside the payload.
const FRAME: u64 = 14 + 20 + 8 + 12 + 4;

/// What Linux's routers do not show.
pub(crate) const UNSEEN: &str = "queues are tbf's and not seen";

/// Room for a packet of 4,096 bytes with all headers.
const MTU: u32 = 9000;

/// Bytes that a shaped link holds back before it drops.
const QUEUE: u32 = 4 << 20;

/// Whether namespaces can be had: as root, or within a user namespace.
pub fn is_allowed(program: &std::path::Path) -> Result<(), String> {
    let tried = Command::new(program)
        .args(["live", "process", "--namespace"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&tried.stdout).into_owned();
    match serde_json::from_str(text.lines().next().unwrap_or_default()) {
        Ok(RankMessage::Ready) => Ok(()),
        Ok(RankMessage::Failed(reason)) => {
            Err(format!("network namespaces are refused here ({reason})"))
        }
        _ => Err(format!("network namespaces are refused here: {}", text.trim())),
    }
}

/// Becomes root of a user namespace, where this user may have one: this program starts again
/// inside. Returns where nothing of that is needed or possible.
pub fn enter_user_namespace() {
    const INSIDE: [&str; 4] = ["--user", "--map-root-user", "--net", "--"];
    if nix::unistd::geteuid().is_root() {
        return;
    }
    let tried = Command::new("unshare").args(INSIDE).arg("true").stderr(Stdio::null()).status();
    if tried.is_ok_and(|status| status.success()) {
        // Returns only if it fails; then namespaces are refused a moment later, and that is said.
        let _ = Command::new("unshare").args(INSIDE).args(std::env::args_os()).exec();
    }
}

/// The address of a rank on a loopback device of its own.
pub(crate) fn loopback_address(rank: u32) -> IpAddr {
    std::net::Ipv6Addr::from((0xfd02_u128 << 112) | (2 + u128::from(rank))).into()
}

/// Takes this process, before it starts others, into a namespace whose loopback device has an IPv6
/// address for each rank: the one that every host has is not enough.
pub(crate) fn own_loopback(ranks: usize) -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
        Failure::Run(format!(
            "loopback has one IPv6 address, every rank needs its own, and a network namespace with \
             more is refused here ({error}): --on switch"
        ))
    })?;
    let mut lines = "link set dev lo up\n".to_owned();
    for rank in 0..ranks as u32 {
        let address = Wiring::alone(loopback_address(rank));
        let _ = writeln!(lines, "addr add {address} dev lo nodad");
    }
    batch("ip", &lines).map(drop).map_err(Failure::Run)
}

/// Whether routers can be given a seed for their hash (Linux 6.11).
fn has_seed() -> bool {
    std::path::Path::new("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists()
}

/// Makes settings those of Linux's routing; refuses what that cannot do.
pub(crate) fn settle(
    settings: &mut Settings,
    ipv6: bool,
    findings: &mut Vec<String>,
) -> Result<(), Failure> {
    let routing = &mut settings.routing;
    if routing.policy != Policy::Ecmp || routing.hash.sees_queue_pairs() {
        return Err(Failure::Usage(format!(
            "Linux routes by ecmp and does not know queue pair numbers; {} with its hash needs \
             --on switch",
            routing.policy.name()
        )));
    }
    if !routing.function.is_linux() {
        findings.push("routers hash as Linux does (network.routing.function=linux)".to_owned());
    }
    routing.function = match (routing.function.is_custom(), ipv6) {
        (false, false) => HashFunction::Linux,
        (false, true) => HashFunction::LinuxIpv6,
        (true, false) => HashFunction::LinuxCustom,
        (true, true) => HashFunction::LinuxCustomIpv6,
    };
    routing.members = Members::Threshold;
    if ipv6 && routing.function.is_custom() {
        let reason = "`ip route get` does not hash as forwarding does with policy 3 over IPv6, so \
                      paths are not asked for: live probe traces them";
        findings.push(reason.to_owned());
    }
    if !has_seed() {
        let reason = "this kernel has no fib_multipath_hash_seed (Linux 6.11), its seed is not \
                      known: only the distribution over uplinks is predicted, and the paths \
                      beside it are those of other seeds";
        findings.push(reason.to_owned());
    }
    findings.push(format!(
        "{UNSEEN}; bytes of uplinks are the devices' counters less {FRAME} bytes a packet, and \
         their packets have acknowledgements of the other direction among them"
    ));
    Ok(())
}

/// The process of a switch, or of a rank before it has its plan: a namespace, and commands for it.
///
/// Lines of standard input: `ip …` for a batch of `ip`, `tc …`, `set PATH VALUE` for a file below
/// `/proc/sys/net`, `get ARGUMENTS;…` for a line of `ip -o route get` each, `count` for the
/// counters of devices, `mark RULES` for a filter (answered with what is wrong with it), `done`
/// ends it. What is wrong is told. Whether the process goes on: not where its controller is gone.
pub fn hold() -> Result<bool, String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("unshare: {error}"))?;
    tell(&RankMessage::Ready);
    let mut batches: BTreeMap<&str, String> = BTreeMap::new();
    loop {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| error.to_string())? == 0 {
            return Ok(false);
        }
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        match word {
            "ip" => drop(writeln!(batches.entry("ip").or_default(), "{rest}")),
            "tc" => drop(writeln!(batches.entry("tc").or_default(), "{rest}")),
            "set" => {
                let (path, value) = rest.split_once(' ').unwrap_or((rest, ""));
                let file = format!("/proc/sys/net/{path}");
                std::fs::write(&file, value).map_err(|error| format!("{file}: {error}"))?;
            }
            "apply" => {
                for (program, lines) in std::mem::take(&mut batches) {
                    batch(program, &lines)?;
                }
                tell(&RankMessage::Ready);
            }
            "get" => {
                let questions = rest.split(';').map(|one| format!("route get {one}\n"));
                let answers = batch("ip", &questions.collect::<String>())?;
                tell(&RankMessage::Text(answers));
            }
            "count" => {
                let text = std::fs::read_to_string("/proc/self/net/dev");
                tell(&RankMessage::Text(text.map_err(|error| error.to_string())?));
            }
            // None of the queueing disciplines need be there that could mark; a filter may.
            "mark" => tell(&RankMessage::Text(batch("nft", rest).err().unwrap_or_default())),
            "done" => return Ok(true),
            other => return Err(format!("no such word: {other}")),
        }
    }
}

/// Runs a batch of `ip`, `tc` or `nft`; what it says, a line each.
fn batch(program: &str, lines: &str) -> Result<String, String> {
    let arguments: &[&str] = match program {
        "ip" => &["-o", "-batch", "-"],
        "nft" => &["-f", "-"],
        _ => &["-batch", "-"],
    };
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.map_err(|error| format!("{program}: {error}"))?;
    let mut input = child.stdin.take().expect("it was piped");
    let lines = lines.to_owned();
    // Its answers are read meanwhile: neither waits for the other.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().map_err(|error| format!("{program}: {error}"))?;
    let _ = writer.join();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The fabric as namespaces: which process is which node, and the names of devices.
pub(crate) struct Wiring<'a> {
    fabric: &'a Fabric,
    ranks: usize,
    ipv6: bool,
    /// Whether routers answer every probe.
    answers_all: bool,
    /// What is said of marks: how there are some, or why there are none.
    marks: Result<String, String>,
    /// By node: its process.
    process: BTreeMap<NodeId, usize>,
    switches: Vec<NodeId>,
    /// Links between nodes that have processes, one direction of each.
    cables: Vec<LinkId>,
}

impl<'a> Wiring<'a> {
    pub(crate) fn new(fabric: &'a Fabric, ranks: usize, ipv6: bool) -> Self {
        let nics = (0..ranks).map(|rank| fabric.nic_of(fabric.gpu(rank)));
        let is_back_end = |node: &NodeId| {
            fabric.nodes()[*node].kind != NodeKind::Nic
                && fabric
                    .ports(*node)
                    .iter()
                    .any(|link| fabric.class(*link).kind == fabric::graph::LinkKind::ScaleOut)
        };
        let switches: Vec<NodeId> = fabric.switches().filter(is_back_end).collect();
        let nodes = nics.chain(switches.iter().copied());
        let process: BTreeMap<NodeId, usize> =
            nodes.enumerate().map(|(at, node)| (node, at)).collect();
        let cables = fabric.links().enumerate().filter(|(id, link)| {
            *id < fabric.reverse(*id)
                && process.contains_key(&link.from)
                && process.contains_key(&link.to)
        });
        let cables = cables.map(|(id, _)| id).collect();
        let marks = Err("network.ecn is off".to_owned());
        Self { fabric, ranks, ipv6, answers_all: true, marks, process, switches, cables }
    }

    /// The device at the beginning of a link.
    fn device(link: LinkId) -> String {
        format!("p{}", link.index())
    }

    /// The hardware address of that device, locally administered.
    fn mac(link: LinkId) -> String {
        let [high, low] = (link.index() as u16).to_be_bytes();
        format!("02:00:00:00:{high:02x}:{low:02x}")
    }

    /// A switch's own address.
    pub(crate) fn address(&self, node: NodeId) -> IpAddr {
        switch_address(self.fabric.switch_ordinal(node).unwrap_or(0), self.ipv6)
    }

    /// An address with a prefix that has no other.
    fn alone(address: IpAddr) -> String {
        format!("{address}/{}", if address.is_ipv6() { 128 } else { 32 })
    }

    /// Rules of a filter (nftables) that marks what a switch sends faster than a little below its
    /// links' rates, on one line. The kernel has no queue that marks for sure; this is a virtual
    /// one.
    fn marking_rules(&self, node: NodeId, settings: &Settings) -> String {
        let frame = settings.packet.mtu.get() + FRAME;
        let burst = (settings.ecn.min.get() / frame).clamp(5, 1000);
        let family = if self.ipv6 { "ip6" } else { "ip" };
        let mut rules = "add table inet marks; add chain inet marks out { type filter hook \
                         postrouting priority 0 ; }"
            .to_owned();
        let cables = self.cables.iter().flat_map(|link| [*link, self.fabric.reverse(*link)]);
        for link in cables.filter(|link| self.fabric.links()[*link].from == node) {
            let most = self.fabric.class(link).rate.as_bps() / 8 * 24 / 25 / frame;
            let _ = write!(
                rules,
                "; add rule inet marks out oifname \"{}\" {family} ecn ect0 limit rate over \
                 {}/second burst {burst} packets {family} ecn set ce",
                Self::device(link),
                most.max(1),
            );
        }
        rules
    }

    /// Looks whether this kernel can mark, and lets its routers do so.
    fn let_mark(&mut self, nodes: &mut Ranks, settings: &Settings) -> Result<(), Failure> {
        if !settings.ecn.enabled {
            return Ok(());
        }
        for switch in &self.switches {
            let rules = self.marking_rules(*switch, settings);
            let wrong = nodes.ask(self.process[switch], &format!("mark {rules}"))?;
            if !wrong.is_empty() {
                self.marks = Err(wrong.lines().next().unwrap_or_default().to_owned());
                return Ok(());
            }
        }
        self.marks =
            Ok("marks are those of a filter (nftables) above 96 % of a link's rate, after \
                         as many packets as network.ecn.min has bytes for"
                .to_owned());
        Ok(())
    }

    /// Veth pairs, both ends in the namespaces of processes.
    fn links(&self, ids: &[u32]) -> String {
        let mut lines = String::new();
        for link in &self.cables {
            let ends = self.fabric.links()[*link];
            let [from, to] = [ends.from, ends.to].map(|node| ids[self.process[&node]]);
            let [here, there] = [*link, self.fabric.reverse(*link)].map(Self::device);
            let _ = writeln!(
                lines,
                "link add name {here} address {} mtu {MTU} netns {from} type veth peer name \
                 {there} address {} mtu {MTU} netns {to}",
                Self::mac(*link),
                Self::mac(self.fabric.reverse(*link)),
            );
        }
        lines
    }

    /// The commands that make a namespace a node of the fabric.
    fn commands(&self, node: NodeId, addresses: &[IpAddr], settings: &Settings) -> Vec<String> {
        let mut lines = vec!["set ipv4/conf/all/rp_filter 0".to_owned()];
        lines.push("set ipv4/conf/default/rp_filter 0".to_owned());
        lines.push("ip link set dev lo up".to_owned());
        if self.ipv6 {
            // Addresses are ours alone: nobody waits until duplicates have been looked for.
            lines.push("set ipv6/conf/all/accept_dad 0".to_owned());
            lines.push("set ipv6/conf/default/accept_dad 0".to_owned());
            lines.push("set ipv6/conf/all/disable_ipv6 0".to_owned());
        }
        let mut neighbours = Vec::new();
        let cables = self.cables.iter().flat_map(|link| [*link, self.fabric.reverse(*link)]);
        for link in cables.filter(|link| self.fabric.links()[*link].from == node) {
            let device = Self::device(link);
            let rate = self.fabric.class(link).rate.as_bps();
            lines.push(format!("ip link set dev {device} up"));
            lines.push(format!(
                "tc qdisc add dev {device} root tbf rate {rate}bit burst 16kb limit {QUEUE}"
            ));
            // Nobody need ask who is at the other end.
            let far = self.fabric.links()[link].to;
            let rank = self.process[&far];
            let far = if rank < self.ranks { addresses[rank] } else { self.address(far) };
            let mac = Self::mac(self.fabric.reverse(link));
            neighbours.push(format!("ip neigh add {far} lladdr {mac} dev {device} nud permanent"));
        }
        lines.extend(neighbours);
        let at = self.process[&node];
        if at < self.ranks {
            let (link, own) = (self.fabric.ports(node)[0], addresses[at]);
            let (device, leaf) = (Self::device(link), self.fabric.links()[link].to);
            lines.push(format!("ip addr add {} dev {device} {}", Self::alone(own), self.nodad()));
            lines.push(format!(
                "ip route add default via {} dev {device} src {own} onlink",
                self.address(leaf)
            ));
            return lines;
        }
        let own = Self::alone(self.address(node));
        lines.push(format!("ip addr add {own} dev lo {}", self.nodad()));
        lines.extend(self.limits());
        let ecmp = Ecmp::new(&settings.routing, self.fabric, settings.seed);
        let routing = &settings.routing;
        let policy = match (routing.function.is_custom(), routing.hash) {
            (true, _) => 3,
            (_, HashFields::Addresses) => 0,
            _ => 1,
        };
        let family = if self.ipv6 { "ipv6" } else { "ipv4" };
        lines.push(match self.ipv6 {
            true => "set ipv6/conf/all/forwarding 1".to_owned(),
            false => "set ipv4/ip_forward 1".to_owned(),
        });
        lines.push(format!("set {family}/fib_multipath_hash_policy {policy}"));
        if policy == 3 {
            let fields = if routing.hash == HashFields::Addresses { 0x3 } else { 0x37 };
            lines.push(format!("set {family}/fib_multipath_hash_fields {fields}"));
        }
        if has_seed() {
            let seed = linux::seed(ecmp.seed_of(node));
            lines.push(format!("set ipv4/fib_multipath_hash_seed {seed}"));
        }
        lines.extend(self.routes(node, addresses));
        lines
    }

    fn nodad(&self) -> &'static str {
        if self.ipv6 { "nodad" } else { "" }
    }

    /// Routers that are ours answer every probe, unless told to keep Linux's limits.
    fn limits(&self) -> Vec<String> {
        if !self.answers_all {
            return Vec::new();
        }
        let lines = match self.ipv6 {
            true => vec!["set ipv6/icmp/ratelimit 0"],
            false => vec!["set ipv4/icmp_ratelimit 0"],
        };
        lines.into_iter().map(str::to_owned).collect()
    }

    /// A route for each rank; next hops in the fabric's order.
    fn routes(&self, node: NodeId, addresses: &[IpAddr]) -> Vec<String> {
        let mut routes = Routes::of(self.fabric);
        let (mut lines, mut hops) = (Vec::new(), Vec::new());
        for (rank, address) in addresses.iter().enumerate() {
            let nic = self.fabric.nic_of(self.fabric.gpu(rank));
            routes.next_hops(self.fabric, node, nic, &mut hops);
            let mut line = format!("ip route add {}", Self::alone(*address));
            for link in &hops {
                let (device, to) = (Self::device(*link), self.fabric.links()[*link].to);
                let _ = match (to == nic, hops.len()) {
                    (true, _) if self.ipv6 => write!(line, " dev {device}"),
                    (true, _) => write!(line, " dev {device} scope link"),
                    (_, 1) => write!(line, " via {} dev {device} onlink", self.address(to)),
                    _ => write!(line, " nexthop via {} dev {device} onlink", self.address(to)),
                };
            }
            if !hops.is_empty() {
                lines.push(line);
            }
        }
        lines
    }
}

/// Starts a process for each rank and switch, in namespaces that are wired as the fabric.
pub(crate) fn wire<'a>(
    case: &Case<'a>,
    addresses: &[IpAddr],
    answers_all: bool,
) -> Result<(Wiring<'a>, Ranks), Failure> {
    let nics = (0..case.ranks).map(|rank| case.fabric.nic_of(case.fabric.gpu(rank)));
    if nics.collect::<BTreeSet<NodeId>>().len() < case.ranks {
        let reason = "in namespaces every GPU needs a NIC of its own: set cluster.nics_per_node";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let mut wiring = Wiring::new(case.fabric, case.ranks, case.options.ipv6);
    wiring.answers_all = answers_all;
    let count = wiring.process.len();
    let soon = || Instant::now() + Duration::from_secs(30);
    let mut nodes = Ranks::start(&case.options.program, count, &["--namespace"])?;
    nodes.hear(count, soon(), |_, told| matches!(told, RankMessage::Ready))?;
    batch("ip", &wiring.links(&nodes.ids())).map_err(Failure::Run)?;
    for (node, process) in &wiring.process {
        for line in wiring.commands(*node, addresses, case.settings) {
            nodes.say(*process, &line)?;
        }
        nodes.say(*process, "apply")?;
    }
    nodes.hear(count, soon(), |_, told| matches!(told, RankMessage::Ready))?;
    wiring.let_mark(&mut nodes, case.settings)?;
    if wiring.ipv6 {
        // Devices take a moment until they carry IPv6.
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok((wiring, nodes))
}

/// Runs ranks in namespaces that are wired as the fabric.
pub(crate) fn run(
    case: &Case<'_>,
    lowered: &Lowered,
    plans: Vec<RankPlan>,
) -> Result<(Vec<RankResult>, RunCounts), Failure> {
    let addresses: Vec<IpAddr> = plans.iter().map(|plan| plan.address).collect();
    let (wiring, mut nodes) = wire(case, &addresses, true)?;
    // Without a packet at hand the kernel leaves out a step of policy 3 over IPv6.
    let tells = !(case.options.ipv6 && case.settings.routing.function.is_custom());
    let paths = match tells {
        true => Some(ask_paths(&wiring, &mut nodes, lowered, &addresses)?),
        false => None,
    };
    for rank in 0..case.ranks {
        nodes.say(rank, "done")?;
    }
    let before = count_devices(&wiring, &mut nodes)?;
    let results = nodes.run(&run_name(), plans, case.options.most_s)?;
    let after = count_devices(&wiring, &mut nodes)?;
    let mut links: IdVec<LinkId, LinkCount> =
        case.fabric.links().ids().map(|_| LinkCount::default()).collect();
    for (link, [bytes, packets]) in after {
        let [bytes_before, packets_before] = before.get(&link).copied().unwrap_or_default();
        let bytes = bytes - bytes_before;
        links[link].bytes = bytes;
        links[link].packets = packets - packets_before;
        let frame = FRAME + if case.options.ipv6 { 20 } else { 0 };
        links[link].payload = bytes.saturating_sub(frame * links[link].packets);
    }
    let counted = Counted { links, ..Counted::default() };
    let (marks, said) = match &wiring.marks {
        Ok(how) => (true, how.clone()),
        Err(why) => (false, format!("no marks here: {why}")),
    };
    let (counted, is_random) = (Some(counted), !has_seed());
    Ok((results, RunCounts { counted, paths, marks, is_random, said: Some(said) }))
}

/// Bytes and packets that every device of a switch has sent.
fn count_devices(
    wiring: &Wiring<'_>,
    nodes: &mut Ranks,
) -> Result<BTreeMap<LinkId, [u64; 2]>, Failure> {
    let mut counts = BTreeMap::new();
    for switch in &wiring.switches {
        let text = nodes.ask(wiring.process[switch], "count")?;
        for line in text.lines() {
            let Some((device, numbers)) = line.split_once(':') else { continue };
            let number = device.trim().strip_prefix('p').and_then(|rest| rest.parse().ok());
            let numbers: Vec<u64> =
                numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            if let (Some(link), Some(bytes), Some(packets)) =
                (number, numbers.get(8), numbers.get(9))
            {
                counts.insert(LinkId::from_index(link), [*bytes, *packets]);
            }
        }
    }
    Ok(counts)
}

/// The way of each queue pair, hop by hop, as the kernels of the switches say.
fn ask_paths(
    wiring: &Wiring<'_>,
    nodes: &mut Ranks,
    lowered: &Lowered,
    addresses: &[IpAddr],
) -> Result<BTreeMap<usize, Vec<Vec<LinkId>>>, Failure> {
    let fabric = wiring.fabric;
    let used = lowered.pairs.iter().enumerate().filter(|(_, pair)| 0 < pair.messages);
    let keys: BTreeMap<usize, FlowKey> =
        used.filter_map(|(id, pair)| Some((id, pair.key?))).collect();
    let mut paths: BTreeMap<usize, Vec<LinkId>> =
        keys.iter().map(|(id, key)| (*id, vec![fabric.ports(key.from)[0]])).collect();
    for _ in 0..MOST_HOPS {
        // By switch: the queue pairs that are there.
        let mut there: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (id, path) in &paths {
            let at = fabric.links()[path[path.len() - 1]].to;
            if at != keys[id].to {
                there.entry(at).or_default().push(*id);
            }
        }
        for (at, pairs) in there {
            let question = |id: &usize| {
                let key = keys[id];
                let [from, to] = lowered.pairs[*id].ranks.map(|rank| addresses[rank as usize]);
                let path = &paths[id];
                let inward = Wiring::device(fabric.reverse(path[path.len() - 1]));
                let (sport, dport) = (key.src_port, key.dst_port);
                format!("{to} from {from} iif {inward} ipproto udp sport {sport} dport {dport}")
            };
            let questions: Vec<String> = pairs.iter().map(question).collect();
            let answers =
                nodes.ask(wiring.process[&at], &format!("get {}", questions.join(";")))?;
            let mut answers = answers.lines();
            for id in pairs {
                let answer = answers.next().unwrap_or_default();
                let device = answer.split_once(" dev p").map(|(_, rest)| rest);
                let number = device.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
                let Some(number) = number else {
                    let name = fabric.name(at);
                    return Err(Failure::Run(format!("{name} knows no way: `{answer}`")));
                };
                paths.get_mut(&id).expect("it is one of them").push(LinkId::from_index(number));
            }
        }
    }
    Ok(paths.into_iter().map(|(id, path)| (id, vec![path])).collect())
}

/// Links of a path after which nobody looks any further.
const MOST_HOPS: usize = 16;
