//! What a fabric does with queue pairs, found by probes: paths, the hash, classes, marks.
//!
//! Every probed queue pair has the UDP ports that a real one would have, and a number that no peer
//! uses. Packets of it whose time to live ends at the first, second, … router are answered from
//! there; the routers in order are its path. Many ports tell how many paths are used; many queue
//! pair numbers with the same ports tell whether the number is hashed. Behind a burst of data,
//! packets of other DSCPs arrive early if they are in another class, and packets that are capable
//! of ECN come marked where a queue marks.
//!
//! Routers limit their answers (Linux: 6 at once, then one a second to a target). A round sends one
//! packet to each hop, so no router gets more than one of it; after six rounds there is one a
//! second. No answer is not "no path": it is counted apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use commands::Failure;
use fabric::address::Addresses;
use fabric::hash::{FlowKey, flow_label, flow_label_port};
use fabric::routes::Routes;
use fabric::routing::{Grain, Walker};
use fabric::{Fabric, NodeId};
use report::{Align, Answer, Sheet, Table};
use serde::Serialize;
use units::{Random, Rate};

use crate::agent::Agents;
use crate::frame::{DATA_DSCP, switch_address};
use crate::multipath;
use crate::plan::{Probe, ProbePlan, RankMessage, Task, Traced, WirePlan};
use crate::run::{Case, Options, Places, Ranks, run_name};
use crate::switch::{Injected, Setup, Switches};

/// Queue pair numbers that no run uses.
const UNUSED: u32 = 0xf0_0000;

/// Rounds that may leave at once, and the pause after them that Linux's routers never limit.
const BURST: u32 = 6;
const POLITE_US: u64 = 1_010_000;

/// DSCPs that are tried.
const DSCPS: [u8; 9] = [0, 8, 16, 24, DATA_DSCP, 34, 40, 46, 48];

/// What to probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The rank that probes, and the one that is probed.
    pub ends: [u32; 2],
    /// Queue pairs with ports of their own.
    pub queue_pairs: u32,
    /// Queue pairs with the same ports.
    pub same_ports: u32,
    /// The most routers on a path.
    pub hops: u8,
    /// Packets of data in front of those that tell classes and marks; 0 leaves them out.
    pub burst: u32,
    /// Milliseconds between rounds; where routers are ours, one that is given leaves them their
    /// limits.
    pub gap_ms: Option<u64>,
    /// The rate of a rank's link.
    pub rate: Rate,
    /// Seeds the numbers of the queue pairs.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Where: through a switch, in namespaces, between agents.
    pub on: String,
    /// From which address to which.
    pub from: String,
    /// The probed address.
    pub to: String,
    /// Routers on a path.
    pub hops: usize,
    /// Paths that queue pairs with ports of their own took.
    pub paths: usize,
    /// Queue pairs whose path is known in full: what the number of paths rests on.
    pub rests_on: usize,
    /// The chance that one more path, as likely as the others, was missed.
    pub missed_chance: f64,
    /// Whether the queue pair number takes part in the hash; none where that cannot be told.
    pub hashes_qpn: Option<bool>,
    /// Queue pairs with the same ports on which that rests.
    pub same_ports: usize,
    /// Whether routers repeat the choice of those before them; none where the scenario has no two
    /// choices in a row, or is not known.
    pub polarised: Option<bool>,
    /// Probes sent that a router had to answer.
    pub probes: usize,
    /// Those that were not answered.
    pub unanswered: usize,
    /// Paths by their routers, and how many queue pairs took each.
    pub taken: Vec<ProbedPath>,
    /// What each router chose from.
    pub routers: Vec<Router>,
    /// What becomes of DSCPs.
    pub classes: Vec<DscpClass>,
    /// Where packets that are capable of ECN come marked: the router after the queue, or the end.
    pub marked_at: Vec<String>,
    /// Packets of the burst that arrived marked, of how many; none without a burst.
    pub marked: Option<[usize; 2]>,
    /// What could not be found out, and what was changed.
    pub findings: Vec<String>,
    /// Queue pairs on the path that the scenario predicts, of those whose path is known; none
    /// where there is no scenario.
    pub as_predicted: Option<[usize; 2]>,
    #[serde(skip)]
    pub(crate) title: String,
    /// Ports and numbers of queue pairs, and their paths.
    #[serde(skip)]
    traced: Vec<(u16, u32, Vec<IpAddr>)>,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbedPath {
    /// Its routers.
    pub routers: Vec<String>,
    /// Queue pairs.
    pub queue_pairs: usize,
}

/// A router.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Router {
    /// Its address or name.
    pub router: String,
    /// At which place of paths.
    pub hop: usize,
    /// Queue pairs that came there.
    pub queue_pairs: usize,
    /// Next routers that they took.
    pub used: usize,
    /// Next routers that there are, where the scenario says.
    pub of: Option<usize>,
}

/// What becomes of a DSCP.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DscpClass {
    /// The DSCP.
    pub dscp: u8,
    /// As it arrived, if it did.
    pub arrived: Option<u8>,
    /// Whether it passed waiting data: then it is in another class than data.
    pub passes_data: Option<bool>,
}

/// The rounds of a probe: which queue pair each traces, and what for.
struct Rounds {
    all: Vec<Vec<Probe>>,
    /// Rounds with ports of their own, with the same ports, with DSCPs, with a mark.
    spread: std::ops::Range<usize>,
    same: std::ops::Range<usize>,
    classes: std::ops::Range<usize>,
    marks: std::ops::Range<usize>,
}

impl ProbeOptions {
    /// A queue pair as a real one would be numbered: its port.
    fn port(random: &mut Random) -> u16 {
        let [local, remote] = [0, 0].map(|_: u32| 0x11 + random.below(0xef_0000) as u32);
        flow_label_port(flow_label(local, remote))
    }

    fn rounds(&self, hops: u8) -> Rounds {
        let mut random = Random::new(self.seed, "live probe", 0);
        let mut all = Vec::new();
        let trace = |src_port: u16, dst_qpn: u32| -> Vec<Probe> {
            let class = DATA_DSCP << 2;
            let to = |ttl: u8| Probe { src_port, dst_qpn, ttl, class, payload: 0 };
            (1..=hops).map(to).collect()
        };
        for number in 0..self.queue_pairs {
            let port = Self::port(&mut random);
            all.push(trace(port, UNUSED + number));
        }
        let spread = 0..all.len();
        let port = Self::port(&mut random);
        for number in 0..self.same_ports {
            all.push(trace(port, UNUSED + 0x8_0000 + 7919 * number));
        }
        let same = spread.end..all.len();
        let capable = DATA_DSCP << 2 | 2;
        let data =
            Probe { src_port: port, dst_qpn: UNUSED, ttl: 64, class: capable, payload: 4096 };
        let burst = vec![data; self.burst as usize];
        if 0 < self.burst {
            for dscp in DSCPS {
                let mut round = burst.clone();
                round.push(Probe { class: dscp << 2, payload: 0, ..data });
                all.push(round);
            }
        }
        let classes = same.end..all.len();
        if 0 < self.burst {
            let mut round = burst;
            round.extend((1..=hops).map(|ttl| Probe { ttl, payload: 0, ..data }));
            all.push(round);
        }
        let marks = classes.end..all.len();
        Rounds { all, spread, same, classes, marks }
    }
}

/// What came back: by probe who answered, and what arrived, in order.
#[derive(Default)]
struct ProbeReplies {
    routers: BTreeMap<[u32; 2], Traced>,
    arrived: Vec<Traced>,
}

/// Where probes leave and who hears of them.
enum Field<'a> {
    Switch(&'a Case<'a>),
    Namespaces(&'a Case<'a>),
    Agents(&'a Agents),
}

impl Field<'_> {
    fn is_ours(&self) -> bool {
        !matches!(self, Self::Agents(_))
    }

    /// Sends rounds from one end to the other.
    fn send(&self, plans: [ProbePlan; 2], keeps_limits: bool) -> Result<ProbeReplies, Failure> {
        let run = run_name();
        match self {
            Self::Agents(agents) => {
                let [from, to] = plans.each_ref().map(|plan| plan.rank as usize);
                let two = Agents {
                    hosts: vec![agents.hosts[from].clone(), agents.hosts[to].clone()],
                    ..(*agents).clone()
                };
                let mut ranks = two.connect(2)?;
                exchange(&mut ranks, &run, [0, 1], plans)
            }
            Self::Namespaces(case) => {
                let addresses = Addresses::of(case.fabric);
                let all: Vec<IpAddr> =
                    (0..case.ranks as u32).map(|rank| case.address(&addresses, rank)).collect();
                let (_, mut nodes) = multipath::wire(case, &all, !keeps_limits)?;
                let ends = plans.each_ref().map(|plan| plan.rank as usize);
                for end in ends {
                    nodes.say(end, "done")?;
                }
                exchange(&mut nodes, &run, ends, plans)
            }
            Self::Switch(case) => through_switch(case, &run, plans),
        }
    }
}

/// Probes through a switch in a thread of this process.
fn through_switch(
    case: &Case<'_>,
    run: &str,
    mut plans: [ProbePlan; 2],
) -> Result<ProbeReplies, Failure> {
    let name = format!("{run}/switch");
    plans.iter_mut().for_each(|plan| plan.wire = WirePlan::Switch(name.clone()));
    let (fabric, settings, hosts) = (case.fabric, case.settings, case.hosts());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (told, heard) = channel();
        let stop = &stop;
        let switch = scope.spawn(move || {
            let setup = Setup {
                fabric,
                settings,
                hosts,
                run: run.to_owned(),
                injected: Injected::default(),
            };
            let opened = Switches::open(setup, &name);
            let _ = told.send(());
            opened?.forward(stop)
        });
        let _ = heard.recv();
        let found = Ranks::start(&case.options.program, 2, &[])
            .and_then(|mut ranks| exchange(&mut ranks, run, [0, 1], plans));
        stop.store(true, Ordering::Relaxed);
        let counted = switch.join().map_err(|_| Failure::Run("the switch panicked".into()))?;
        counted.map_err(|error| Failure::Run(format!("the switch failed: {error}")))?;
        found
    })
}

/// One process probes, the other listens.
fn exchange(
    ranks: &mut Ranks,
    run: &str,
    ends: [usize; 2],
    plans: [ProbePlan; 2],
) -> Result<ProbeReplies, Failure> {
    let [probing, listening] = &plans;
    let takes = probing.takes_ms() + probing.wait_ms + listening.wait_ms + 30_000;
    let takes = Duration::from_millis(takes);
    for (end, plan) in ends.into_iter().zip(plans.clone()) {
        let line = serde_json::to_string(&(run, Task::Probe(plan))).expect("plain data");
        ranks.say(end, &line)?;
    }
    let soon = Instant::now() + Duration::from_secs(30);
    ranks.hear(2, soon, |_, told| matches!(told, RankMessage::Ready))?;
    ranks.say(ends[1], "go")?;
    ranks.say(ends[0], "go")?;
    let mut heard = ProbeReplies::default();
    ranks.hear(2, Instant::now() + takes, |number, told| {
        let RankMessage::Traced(traced) = told else { return false };
        for one in traced {
            if number == ends[1] {
                heard.arrived.push(one);
            } else {
                heard.routers.entry(one.probe).or_insert(one);
            }
        }
        true
    })?;
    Ok(heard)
}

/// Probes a fabric of this machine.
pub fn probe(
    loaded: &scenario::Loaded,
    options: &ProbeOptions,
    run: &Options,
) -> Result<ProbeReport, Failure> {
    let (fabric, _) = crate::run::scaled_fabric(loaded, run.rate);
    let (fabric, mut settings) = (&fabric, loaded.settings());
    let ranks = fabric.gpus();
    check_ends(options, ranks)?;
    let mut findings = Vec::new();
    if run.places == Places::Namespaces {
        multipath::settle(&mut settings, run.ipv6, &mut findings)?;
        // That is about runs.
        findings.retain(|text| !text.contains(multipath::UNSEEN));
    }
    let case = Case { loaded, options: run, fabric, settings: &settings, ranks };
    let addresses = Addresses::of(fabric);
    let ends = options.ends.map(|rank| case.address(&addresses, rank));
    let field = match run.places {
        Places::Namespaces => Field::Namespaces(&case),
        _ => Field::Switch(&case),
    };
    let names: BTreeMap<IpAddr, NodeId> = fabric
        .switches()
        .map(|node| (switch_address(fabric.switch_ordinal(node).unwrap_or(0), run.ipv6), node))
        .collect();
    let mut report = find(&field, options, ends)?;
    report.title = loaded.title();
    let nics = options.ends.map(|rank| fabric.nic_of(fabric.gpu(rank as usize)));
    compare(&mut report, &case, &names, nics);
    name_routers(&mut report, fabric, &names, nics[1]);
    report.findings.splice(0..0, findings);
    Ok(report)
}

/// Probes between the hosts of two agents.
pub fn probe_agents(options: &ProbeOptions, agents: &Agents) -> Result<ProbeReport, Failure> {
    check_ends(options, agents.hosts.len())?;
    let ends = options.ends.map(|rank| agents.hosts[rank as usize].data);
    let mut report = find(&Field::Agents(agents), options, ends)?;
    report.title = "What is between two hosts".to_owned();
    Ok(report)
}

fn check_ends(options: &ProbeOptions, ranks: usize) -> Result<(), Failure> {
    let [from, to] = options.ends;
    if from == to || ranks as u32 <= from.max(to) {
        let reason = format!("probes go from one of {ranks} ranks to another, not {from} to {to}");
        return Err(Failure::Usage(reason));
    }
    if options.hops == 0 || 4096 <= options.queue_pairs + options.same_ports + 32 {
        return Err(Failure::Usage("at most 4,000 queue pairs are probed".to_owned()));
    }
    if 4000 < options.burst {
        return Err(Failure::Usage("a burst has at most 4,000 packets".to_owned()));
    }
    Ok(())
}

fn find(
    field: &Field<'_>,
    options: &ProbeOptions,
    ends: [IpAddr; 2],
) -> Result<ProbeReport, Failure> {
    let keeps_limits = !field.is_ours() || options.gap_ms.is_some();
    let gap_us = match options.gap_ms {
        Some(ms) => 1000 * ms,
        None if field.is_ours() => 4_000,
        None => POLITE_US,
    };
    let rounds = options.rounds(options.hops);
    let wait_ms = 1_000;
    let plan = |at: usize, rounds: Vec<Vec<Probe>>, wait_ms: u64| ProbePlan {
        rank: options.ends[at],
        address: ends[at],
        to: ends[1 - at],
        wire: WirePlan::Udp,
        rounds,
        burst: BURST,
        gap_us,
        line_bps: options.rate.as_bps(),
        wait_ms,
    };
    let probing = plan(0, rounds.all.clone(), wait_ms);
    let listens_ms = probing.takes_ms() + 2 * wait_ms;
    let plans = [probing, plan(1, Vec::new(), listens_ms)];
    let heard = field.send(plans, keeps_limits)?;
    let mut report = ProbeReport {
        on: match field {
            Field::Switch(_) => "through a switch in user space",
            Field::Namespaces(_) => "in namespaces, routed by Linux",
            Field::Agents(_) => "between agents",
        }
        .to_owned(),
        from: ends[0].to_string(),
        to: ends[1].to_string(),
        ..ProbeReport::default()
    };
    understand(&mut report, &rounds, &heard);
    Ok(report)
}

/// The routers of a round in order, as far as they answered.
fn path(round: usize, hops: usize, heard: &ProbeReplies) -> Vec<Option<IpAddr>> {
    let at = |probe: usize| {
        let traced = heard.routers.get(&[round as u32, probe as u32])?;
        (!traced.is_end).then_some(traced.from)
    };
    (0..hops).map(at).collect()
}

fn understand(report: &mut ProbeReport, rounds: &Rounds, heard: &ProbeReplies) {
    let tracing = rounds.spread.start..rounds.same.end;
    // Who answers from the last hop that anybody answered from: after that there is the end.
    let answered = heard
        .routers
        .iter()
        .filter(|(probe, traced)| !traced.is_end && tracing.contains(&(probe[0] as usize)));
    let hops = answered.map(|(probe, _)| probe[1] as usize + 1).max().unwrap_or(0);
    report.hops = hops;
    let paths = |rounds: std::ops::Range<usize>| -> Vec<Vec<IpAddr>> {
        let all = rounds.map(|round| path(round, hops, heard));
        all.filter_map(|path| path.into_iter().collect()).collect()
    };
    let (spread, same) = (paths(rounds.spread.clone()), paths(rounds.same.clone()));
    for round in rounds.spread.start..rounds.same.end {
        let known: Option<Vec<IpAddr>> = path(round, hops, heard).into_iter().collect();
        if let (Some(known), Some(probe)) = (known, rounds.all[round].first()) {
            report.traced.push((probe.src_port, probe.dst_qpn, known));
        }
    }
    let mut taken: BTreeMap<Vec<IpAddr>, usize> = BTreeMap::new();
    for path in &spread {
        *taken.entry(path.clone()).or_default() += 1;
    }
    report.probes = tracing.len() * hops;
    let known = tracing.map(|round| path(round, hops, heard).iter().flatten().count());
    report.unanswered = report.probes - known.sum::<usize>();
    (report.paths, report.rests_on) = (taken.len(), spread.len());
    let found = taken.len() as f64;
    report.missed_chance =
        ((found + 1.0) * (found / (found + 1.0)).powi(spread.len() as i32)).min(1.0);
    report.same_ports = same.len();
    let of_same: BTreeSet<&Vec<IpAddr>> = same.iter().collect();
    report.hashes_qpn = (1 < report.paths && 4 <= same.len()).then_some(1 < of_same.len());
    let next = |hop: usize, router: IpAddr| -> BTreeSet<IpAddr> {
        let all = spread.iter().filter(|path| path[hop] == router);
        all.filter_map(|path| path.get(hop + 1).copied()).collect()
    };
    for hop in 0..hops {
        let here: BTreeSet<IpAddr> = spread.iter().map(|path| path[hop]).collect();
        for router in here {
            let queue_pairs = spread.iter().filter(|path| path[hop] == router).count();
            let (used, router) = (next(hop, router).len(), router.to_string());
            report.routers.push(Router { router, hop: hop + 1, queue_pairs, used, of: None });
        }
    }
    let as_text = |(routers, queue_pairs): (Vec<IpAddr>, usize)| ProbedPath {
        routers: routers.iter().map(IpAddr::to_string).collect(),
        queue_pairs,
    };
    report.taken = taken.into_iter().map(as_text).collect();
    classes(report, rounds, heard);
    if 0 < report.unanswered {
        let (probes, unanswered) = (report.probes, report.unanswered);
        report.findings.push(format!(
            "{unanswered} of {probes} probes were not answered: routers limit their answers or \
             give none; that says nothing about paths"
        ));
    }
    if report.hops == 0 {
        let reason = "no router answers: paths and hash cannot be told";
        report.findings.push(reason.to_owned());
    }
}

/// What arrived of bursts: DSCPs, who passed whom, and marks.
fn classes(report: &mut ProbeReport, rounds: &Rounds, heard: &ProbeReplies) {
    for (round, dscp) in rounds.classes.clone().zip(DSCPS) {
        let burst = rounds.all[round].len() as u32 - 1;
        let mine: Vec<&Traced> =
            heard.arrived.iter().filter(|one| one.probe[0] == round as u32).collect();
        let place = mine.iter().position(|one| one.probe[1] == burst);
        let arrived = place.map(|at| mine[at].class >> 2);
        let passes_data = place.map(|at| at + 1 + mine.len() / 8 < mine.len());
        report.classes.push(DscpClass { dscp, arrived, passes_data });
    }
    for round in rounds.marks.clone() {
        let burst = rounds.all[round].len() - rounds.all[0].len();
        let mine = heard.arrived.iter().filter(|one| one.probe[0] == round as u32);
        let data: Vec<&Traced> = mine.filter(|one| (one.probe[1] as usize) < burst).collect();
        let marked = data.iter().filter(|one| one.class & 3 == 3).count();
        report.marked = Some([marked, data.len()]);
        let routers = heard.routers.iter().filter(|(probe, traced)| {
            probe[0] as usize == round && traced.is_seen && traced.class & 3 == 3
        });
        let routers: BTreeSet<IpAddr> = routers.map(|(_, traced)| traced.from).collect();
        report.marked_at = routers.iter().map(IpAddr::to_string).collect();
        if 0 < marked {
            report.marked_at.push("the end".to_owned());
        }
        let is_seen = heard.routers.values().any(|traced| traced.is_seen);
        if !is_seen && 0 < report.hops {
            let reason = "sockets are not told what routers saw: marks and DSCPs are those of the \
                          end";
            report.findings.push(reason.to_owned());
        }
    }
}

/// Holds every traced path against the one that the routing policy gives.
fn compare(
    report: &mut ProbeReport,
    case: &Case<'_>,
    names: &BTreeMap<IpAddr, NodeId>,
    [from, to]: [NodeId; 2],
) {
    let (fabric, settings) = (case.fabric, case.settings);
    let mut routing = settings.routing.build(fabric, settings.seed);
    if routing.grain() == Grain::Packet {
        return;
    }
    let addresses = Addresses::of(fabric);
    let mut routes = Routes::of(fabric);
    let mut walker = Walker::default();
    let [src_ip, dst_ip] = [from, to].map(|nic| addresses.ip(nic).into());
    let (protocol, dst_port) = (fabric::hash::UDP, fabric::hash::ROCE_V2_PORT);
    let mut right = 0;
    for (src_port, dst_qpn, taken) in &report.traced {
        let (src_port, dst_qpn) = (*src_port, *dst_qpn);
        let key = FlowKey { from, to, src_ip, dst_ip, protocol, src_port, dst_port, dst_qpn };
        let Ok(path) = walker.path(fabric, &mut routes, &mut *routing, &key, 0) else { continue };
        let expected = path.iter().map(|link| fabric.links()[*link].to).filter(|node| *node != to);
        let taken: Option<Vec<NodeId>> = taken.iter().map(|one| names.get(one).copied()).collect();
        right += usize::from(taken.is_some_and(|taken| taken == expected.collect::<Vec<_>>()));
    }
    report.as_predicted = Some([right, report.traced.len()]);
}

/// Gives routers the names of the scenario's switches, and says what they could have chosen from.
fn name_routers(
    report: &mut ProbeReport,
    fabric: &Fabric,
    names: &BTreeMap<IpAddr, NodeId>,
    to: NodeId,
) {
    let node = |text: &str| text.parse().ok().and_then(|address: IpAddr| names.get(&address));
    let mut routes = Routes::of(fabric);
    let mut hops = Vec::new();
    let mut choices = 0;
    let mut polarised = false;
    for router in &mut report.routers {
        let Some(switch) = node(&router.router) else { continue };
        routes.next_hops(fabric, *switch, to, &mut hops);
        let next: BTreeSet<NodeId> = hops.iter().map(|link| fabric.links()[*link].to).collect();
        let of = if next.contains(&to) { 0 } else { next.len() };
        router.of = Some(of);
        // Of routers after the first that have a choice, and see enough queue pairs to use it all.
        if 1 < of && 1 < router.hop && 6 * of <= router.queue_pairs {
            choices += 1;
            polarised |= router.used < of;
        }
    }
    report.polarised = (0 < choices).then_some(polarised);
    let name = |text: &mut String| {
        if let Some(switch) = node(text) {
            *text = fabric.name(*switch);
        }
    };
    report.routers.iter_mut().for_each(|router| name(&mut router.router));
    report.taken.iter_mut().flat_map(|taken| &mut taken.routers).for_each(name);
    report.marked_at.iter_mut().for_each(name);
}

impl ProbeReport {
    /// What was found as a scenario: a folded Clos network of as many tiers and paths, and the
    /// fields of the hash. `ranks` hosts; an odd number of routers, or nothing is written.
    pub fn scenario(&self, ranks: usize) -> Result<String, Failure> {
        if self.paths == 0 || self.hops.is_multiple_of(2) {
            let hops = self.hops;
            return Err(Failure::Run(format!(
                "no scenario is written: {} paths over {hops} routers are no folded Clos network",
                self.paths
            )));
        }
        let tiers = self.hops.div_ceil(2);
        let hash = match self.hashes_qpn {
            Some(true) => "5-tuple+qpn",
            _ => "5-tuple",
        };
        let sure = match self.hashes_qpn {
            None => " # Not known: there is one path.",
            _ => "",
        };
        let (paths, rests_on) = (self.paths, self.rests_on);
        // Enough ports for half of the hosts, or for the paths, below and above.
        let radix = (2 * ranks.div_ceil(2).max(paths)).next_power_of_two().max(4);
        let spines = if tiers == 2 { format!("spines = {paths}\n") } else { String::new() };
        Ok(format!(
            "name = \"As probed from {} to {}\"\ndescription = \"{paths} usable paths, by \
             {rests_on} queue pairs\"\n\n[cluster]\ngpus = {ranks}\ngpus_per_node = 1\n\
             nics_per_node = 1\n\n[fabric]\ntopology = \"clos\"\ntiers = {tiers}\nradix = \
             {radix}\n{spines}\n[network]\ntransport = \"rocev2\"\nrouting = {{ policy = \
             \"ecmp\", hash = \"{hash}\" }}{sure}\n",
            self.from, self.to
        ))
    }

    fn summary(&self) -> Table {
        let mut table = Table::new([("found", Align::Left), ("", Align::Left)]);
        let yes = |found: Option<bool>| match found {
            Some(true) => "yes",
            Some(false) => "no",
            None => "cannot be told",
        };
        let chance = match 100.0 * self.missed_chance {
            small if small < 0.01 => "less than 0.01".to_owned(),
            percent => report::number::significant(percent),
        };
        table.row(["routers on a path".to_owned(), self.hops.to_string()]);
        table.row([
            "paths used".to_owned(),
            format!(
                "{}, by {} queue pairs ({chance} % that one more was missed)",
                self.paths, self.rests_on
            ),
        ]);
        table.row([
            "queue pair number is hashed".to_owned(),
            format!("{}, by {} with the same ports", yes(self.hashes_qpn), self.same_ports),
        ]);
        if let Some([right, known]) = self.as_predicted {
            let text = format!("{right} of {known} queue pairs");
            table.row(["on the predicted path".to_owned(), text]);
        }
        table.row(["polarised".to_owned(), yes(self.polarised).to_owned()]);
        table.row([
            "probes unanswered".to_owned(),
            format!("{} of {}", self.unanswered, self.probes),
        ]);
        if let Some([marked, all]) = self.marked {
            let at = match self.marked_at.is_empty() {
                true => String::new(),
                false => format!(", seen at {}", self.marked_at.join(", ")),
            };
            table.row(["marked".to_owned(), format!("{marked} of {all} packets of a burst{at}")]);
        }
        table
    }
}

impl Answer for ProbeReport {
    fn sheet(&self) -> Sheet {
        let Self { title, from, to, on, .. } = self;
        let mut sheet =
            Sheet::new().heading(format!("{title}: {from} to {to}, {on}")).table(self.summary());
        let columns = [("path", Align::Left), ("queue pairs", Align::Right)];
        let mut paths = Table::new(columns);
        for taken in &self.taken {
            paths.row([taken.routers.join(" → "), taken.queue_pairs.to_string()]);
        }
        sheet = sheet.heading("Paths").table(paths);
        if !self.classes.is_empty() {
            let columns = ["DSCP", "arrives as", "class"];
            let mut classes = Table::new(columns.map(|name| (name, Align::Right)));
            for class in &self.classes {
                classes.row([
                    class.dscp.to_string(),
                    class.arrived.map_or("lost".to_owned(), |dscp| dscp.to_string()),
                    match class.passes_data {
                        Some(true) => "another: it passes data",
                        Some(false) => "data's",
                        None => "–",
                    }
                    .to_owned(),
                ]);
            }
            sheet = sheet.heading("Classes").table(classes);
        }
        for finding in &self.findings {
            sheet = sheet.note(finding.clone());
        }
        sheet
    }
}
