//! Starts the processes of a run, waits for them, and puts the prediction beside what they tell.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use commands::Failure;
use commands::engine::library;
use commands::packets::Patience;
use exports::Column;
use exports::table::Table;
use fabric::address::Addresses;
use fabric::graph::NodeKind;
use fabric::hardware::Reorder;
use fabric::routes::Routes;
use fabric::routing::{Grain, Walker};
use fabric::{Fabric, LinkId, NodeId};
use packetsim::cc::{CcConfig, Circumstances};
use packetsim::nic::Verb;
use packetsim::{Settings, Watch};
use scenario::Loaded;
use traffic::collective::{Collective, Communicator, Detail, Group, Limit, Wanted};
use traffic::nccl::Protocol;
use traffic::{Outcome, Transfers};
use units::{Bytes, Rate, Span};

use crate::agent::Agents;
use crate::answer::{Fullest, Packets, Port, PredictedPackets, QueuePair, Report, Row, Uplink};
use crate::beside;
use crate::frame::DATA_DSCP;
use crate::lower::{Lowered, Pair, Shape, lower, pairs_of};
use crate::multipath;
use crate::plan::{PairResult, RankMessage, RankPlan, RankResult, Task, WirePlan};
use crate::record::{Replayed, replay};
pub use crate::switch::Injected;
use crate::switch::{Counted, Host, Setup, Switches};

/// Where a run takes place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Places {
    /// Through a switch in user space.
    #[default]
    Switch,
    /// Straight from socket to socket on loopback.
    Loopback,
    /// In namespaces, with Linux's own multipath routing.
    Namespaces,
    /// Between the hosts of agents.
    Agents,
}

impl Places {
    fn name(self) -> &'static str {
        match self {
            Self::Switch => "through a switch in user space",
            Self::Loopback => "straight over loopback",
            Self::Namespaces => "in namespaces, routed by Linux",
            Self::Agents => "between agents",
        }
    }
}

/// What is run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// A collective of all ranks.
    Collective(Collective),
    /// The scenario's synthetic traffic.
    Traffic,
    /// The transfers of one phase of the scenario's job, by its name.
    Phase(String),
}

impl What {
    /// What it is called.
    pub fn name(&self) -> String {
        match self {
            Self::Collective(collective) => collective.name().to_owned(),
            Self::Traffic => "traffic".to_owned(),
            Self::Phase(name) => format!("phase {name}"),
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What.
    pub what: What,
    /// The smallest size.
    pub min: Bytes,
    /// The largest.
    pub max: Bytes,
    /// From one to the next.
    pub factor: u64,
    /// Ranks; all GPUs of the scenario unless told.
    pub ranks: Option<usize>,
    /// The rate of a rank's link.
    pub rate: Rate,
    /// Where.
    pub places: Places,
    /// Whether packets have IPv6 headers.
    pub ipv6: bool,
    /// Whether the kernel cuts and joins packets.
    pub offload: bool,
    /// The hosts of agents, if there are.
    pub agents: Option<Agents>,
    /// Where everything is written that congestion controls were told and said.
    pub record: Option<PathBuf>,
    /// Where messages are written as `run --flows-out` writes flows.
    pub flows_out: Option<PathBuf>,
    /// What happens to packets where they enter the switch.
    pub injected: Injected,
    /// Retransmission timeout.
    pub timeout_ms: u64,
    /// Each size may take so long.
    pub most_s: u64,
    /// Where packets are captured: one file for each rank.
    pub pcap: Option<PathBuf>,
    /// This program, which also is the ranks'.
    pub program: PathBuf,
}

/// The most ranks: processes of one machine.
const MOST_RANKS: usize = 64;

/// Runs a collective over sizes.
pub fn run(loaded: &Loaded, options: &Options, watch: &mut Watch<'_>) -> Result<Report, Failure> {
    let ranks = options.ranks.unwrap_or(loaded.fabric().gpus());
    if ranks < 2 || loaded.fabric().gpus() < ranks || MOST_RANKS < ranks {
        return Err(Failure::Usage(format!(
            "live runs 2 to {MOST_RANKS} ranks, a process each: {ranks} were asked for, the \
             scenario has {} GPUs; --ranks takes fewer",
            loaded.fabric().gpus()
        )));
    }
    check_offload(options)?;
    if options.ipv6 && options.places == Places::Loopback {
        multipath::own_loopback(ranks)?;
    }
    if let Some(agents) = &options.agents
        && agents.hosts.len() < ranks
    {
        let hosts = agents.hosts.len();
        let reason = format!("{hosts} agents for {ranks} ranks: add hosts, or take -g {hosts}");
        return Err(Failure::Usage(reason));
    }
    if options.factor < 2 || options.max < options.min || options.min == Bytes::ZERO {
        return Err(Failure::Usage("sizes go from a smallest to a largest by a factor".to_owned()));
    }
    let (fabric, scaled_by) = scaled_fabric(loaded, options.rate);
    let mut findings = Vec::new();
    let settings = scaled(loaded.settings(), options, scaled_by, &mut findings)?;
    let mut rows = Vec::new();
    let mut bytes = options.min;
    while bytes <= options.max {
        let case = Case { loaded, options, fabric: &fabric, settings: &settings, ranks };
        rows.push(case.row(bytes, watch, &mut findings)?);
        if !matches!(options.what, What::Collective(_)) {
            break;
        }
        bytes = Bytes::new(bytes.get().saturating_mul(options.factor));
    }
    let mut known = BTreeSet::new();
    findings.retain(|finding| known.insert(finding.clone()));
    Ok(Report {
        ranks,
        collective: options.what.name(),
        on: options.places.name(),
        scaled_by,
        link_bps: options.rate.as_bps(),
        rows,
        findings,
        title: loaded.title(),
    })
}

/// Refuses segmentation offload where the ICRC could not be checked, or nothing is segmented.
fn check_offload(options: &Options) -> Result<(), Failure> {
    let is_ipv6 = match &options.agents {
        Some(agents) => agents.hosts.iter().all(|host| host.data.is_ipv6()),
        None => options.ipv6,
    };
    let reason = match (options.offload, options.places) {
        (false, _) => return Ok(()),
        (true, Places::Switch) => {
            "the switch in user space takes packet by packet: --on loopback \
                                   or namespaces"
        }
        (true, _) if is_ipv6 => return Ok(()),
        (true, _) => {
            "over IPv4 the kernel numbers what it cuts and receivers cannot check the \
                      ICRC of it: --offload goes with IPv6"
        }
    };
    Err(Failure::Usage(reason.to_owned()))
}

/// The fabric so much slower that a rank's link has this rate, and how much that is.
pub(crate) fn scaled_fabric(loaded: &Loaded, rate: Rate) -> (Fabric, f64) {
    let nic = loaded.fabric().nic_of(loaded.fabric().gpu(0));
    let port = loaded.fabric().ports(nic)[0];
    let by = loaded.fabric().class(port).rate.as_bps() as f64 / rate.as_bps().max(1) as f64;
    (loaded.fabric().slower(by), by)
}

/// The settings as a small machine can keep them; what was changed is said.
fn scaled(
    mut settings: Settings,
    options: &Options,
    by: f64,
    findings: &mut Vec<String>,
) -> Result<Settings, Failure> {
    // Timers below this cannot be kept by processes that share processors.
    const LEAST: Span = Span::from_ms(5);
    match &mut settings.congestion {
        CcConfig::None(_) => {}
        CcConfig::Dcqcn(config) => {
            let line = options.rate.as_bps();
            let slower = by.clamp(1.0, 50.0);
            for timer in [
                &mut config.notify_every,
                &mut config.cut_every,
                &mut config.alpha_every,
                &mut config.increase_every,
            ] {
                *timer = Span::from_secs_f64(timer.as_secs_f64() * slower).max(LEAST);
            }
            let rate = |own: Rate, least: u64| {
                Rate::from_bps(((own.as_bps() as f64 / by) as u64).max(line / least).max(1))
            };
            config.step = rate(config.step, 200);
            config.big_step = rate(config.big_step, 20);
            config.min_rate = rate(config.min_rate, 1000);
            findings.push(format!(
                "DCQCN's timers are scaled to this rate, here and in the prediction: CNPs every \
                 {}, cuts every {}, increases every {} by {}",
                config.notify_every, config.cut_every, config.increase_every, config.step
            ));
        }
        other => {
            return Err(Failure::Usage(format!(
                "live runs the congestion controls none and dcqcn: the time constants of {} are \
                 those of a data centre; --set network.congestion.control=none",
                other.name()
            )));
        }
    }
    if settings.packet.mtu.get() > 4096 {
        return Err(Failure::Usage("live sends at most 4096 bytes a packet".to_owned()));
    }
    if settings.pfc.enabled && !matches!(options.places, Places::Switch | Places::Agents) {
        findings.push("only the switch in user space has pauses; others may drop".to_owned());
    }
    if settings.nic.reorder == Reorder::DirectPlacement {
        let reason = "queue pairs repeat as with network.nic.reorder=selective-repeat; \
                      direct-placement asks later for what is missing";
        findings.push(reason.to_owned());
    }
    if options.places == Places::Namespaces {
        multipath::settle(&mut settings, options.ipv6, findings)?;
    } else if options.places == Places::Agents {
        findings.push("what is between agents is not known: no uplinks, no queues".to_owned());
    } else if options.places == Places::Loopback {
        findings.push(
            "there is no fabric on loopback: no uplinks, and no marks here; rates are paced by the \
             senders"
                .to_owned(),
        );
    }
    if options.injected != Injected::default() && options.places != Places::Switch {
        let reason = "losses, duplicates and reordering are injected by the switch: --on switch";
        return Err(Failure::Usage(reason.to_owned()));
    }
    Ok(settings)
}

/// What one size needs.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) options: &'a Options,
    pub(crate) fabric: &'a Fabric,
    pub(crate) settings: &'a Settings,
    pub(crate) ranks: usize,
}

/// What was seen of a run besides what ranks told.
#[derive(Default)]
pub(crate) struct RunCounts {
    pub(crate) counted: Option<Counted>,
    /// By queue pair: the links of its path, where that is known.
    pub(crate) paths: Option<beside::Paths>,
    pub(crate) marks: bool,
    /// Whether the kernel chose paths by a seed that nobody knows.
    pub(crate) is_random: bool,
    /// What is to be said of it.
    pub(crate) said: Option<String>,
}

impl Case<'_> {
    fn row(
        &self,
        bytes: Bytes,
        watch: &mut Watch<'_>,
        findings: &mut Vec<String>,
    ) -> Result<Row, Failure> {
        let (transfers, shape) = self.transfers(bytes, findings)?;
        let predicted = self.predict(&transfers, watch)?;
        let mut lowered = lower(self.fabric, &transfers, self.settings, shape, self.ranks)
            .map_err(Failure::Run)?;
        let bytes = match self.options.what {
            What::Collective(_) => bytes,
            _ => Bytes::new(lowered.pairs.iter().map(|pair| pair.bytes).sum()),
        };
        let plans = self.plans(&mut lowered);
        let (results, seen) = match (self.options.places, &self.options.agents) {
            (Places::Namespaces, _) => multipath::run(self, &lowered, plans)?,
            (Places::Agents, Some(agents)) => {
                let mut ranks = agents.connect(self.ranks)?;
                let results = ranks.run(&run_name(), plans, self.options.most_s)?;
                // Whatever is between them may mark, and receivers see it.
                (results, RunCounts { marks: true, ..RunCounts::default() })
            }
            _ => self.through_switch(&lowered, plans)?,
        };
        findings.extend(seen.said.clone());
        if let Some(path) = &self.options.flows_out {
            commands::files::save_table(path, &flows(&transfers, &lowered, &results))?;
        }
        // What software waits for after the last message is no part of what is measured.
        let sends = transfers.ops().enumerate();
        let sends = sends.filter(|(_, one)| matches!(one.kind, traffic::OpKind::Send { .. }));
        let over = sends.filter_map(|(op, _)| predicted.over(op)).max();
        let mut row =
            self.show(bytes, &lowered, &results, &seen, (&predicted, over.unwrap_or(Span::ZERO)));
        row.control = self.replayed()?;
        row.ends = beside::ends(&transfers, &lowered, &results, &predicted);
        row.completion_order = row.ends.iter().map(|end| end.rank).collect();
        Ok(row)
    }

    /// What the ranks' controls were told and said, again by the packet engine's objects.
    fn replayed(&self) -> Result<Option<Replayed>, Failure> {
        let Some(path) = &self.options.record else { return Ok(None) };
        if self.options.agents.is_some() {
            return Ok(None);
        }
        let mut all = Replayed::default();
        for rank in 0..self.ranks as u32 {
            let path = of_rank(path, rank);
            replay(&path, &self.settings.congestion, &self.circumstances(), &mut all)
                .map_err(Failure::Run)?;
        }
        Ok(Some(all))
    }

    /// What controls are told of where they run.
    fn circumstances(&self) -> Circumstances {
        Circumstances {
            line: self.options.rate,
            base_rtt: Span::from_us(BASE_RTT_US),
            hops: HOPS,
            mtu: self.settings.packet.mtu,
        }
    }

    /// What is sent, and what of it is known.
    fn transfers(
        &self,
        bytes: Bytes,
        findings: &mut Vec<String>,
    ) -> Result<(Transfers, Shape), Failure> {
        match &self.options.what {
            What::Collective(collective) => self.of_collective(*collective, bytes, findings),
            What::Traffic => {
                let engine = commands::Engine::Packet;
                let work = commands::work::work(self.loaded, engine, Patience::Usual)?;
                if work.flows.iter().any(|flow| flow.start != Span::ZERO) {
                    findings.push("all flows begin at once: live knows no start times".to_owned());
                }
                Ok((work.transfers, Shape::Plain))
            }
            What::Phase(name) => {
                let (transfers, said) =
                    crate::phase::transfers(self.loaded, name, self.options.min)?;
                findings.push(said);
                Ok((transfers, Shape::Plain))
            }
        }
    }

    fn of_collective(
        &self,
        collective: Collective,
        bytes: Bytes,
        findings: &mut Vec<String>,
    ) -> Result<(Transfers, Shape), Failure> {
        let mut settings = library(self.loaded);
        let asked = settings.algorithm.clone();
        let is_tree = asked.as_deref() == Some("tree") && collective == Collective::AllReduce;
        if collective != Collective::AllToAll && !is_tree {
            settings.algorithm = Some("ring".to_owned());
        }
        settings.protocol = Some(Protocol::Simple);
        // What software does between messages is real here, and not scaled.
        settings.launch = Span::ZERO;
        let gpus: Vec<NodeId> = (0..self.ranks).map(|gpu| self.fabric.gpu(gpu)).collect();
        let mut group = Group::new(Communicator::new(self.fabric, &gpus));
        let mut transfers = Transfers::new();
        let label = transfers.label(collective.name());
        let wanted = Wanted {
            collective,
            bytes,
            settings: &settings,
            detail: Detail::Stepwise,
            weights: &[],
            limit: Limit { operations: 1_000_000, copies: 1 },
            label,
        };
        let lowered =
            traffic::collective::lower(self.fabric, &mut group, &wanted, &mut transfers, &[])?;
        let algorithm = lowered.plan.algorithm.name();
        if asked.is_some_and(|asked| asked != algorithm) {
            findings.push(format!("live runs {algorithm}, whatever library.algorithm says"));
        }
        Ok((transfers, if is_tree { Shape::Tree } else { Shape::Chains(collective) }))
    }

    fn predict(&self, transfers: &Transfers, watch: &mut Watch<'_>) -> Result<Outcome, Failure> {
        let faults = &self.loaded.faults;
        packetsim::run_with_faults(self.fabric, transfers, self.settings, faults, watch)
            .map_err(|refusal| Failure::Run(refusal.to_string()))
    }

    /// The address of each rank: its NIC's in the fabric, or one of loopback's.
    pub(crate) fn address(&self, addresses: &Addresses, rank: u32) -> IpAddr {
        let ip = addresses.ip(self.fabric.nic_of(self.fabric.gpu(rank as usize)));
        match (self.options.places, &self.options.agents) {
            (Places::Agents, Some(agents)) => agents.hosts[rank as usize].data,
            (Places::Loopback, _) if self.options.ipv6 => multipath::loopback_address(rank),
            (Places::Loopback, _) => {
                Ipv4Addr::new(127, 0, (rank >> 8) as u8, (rank + 2) as u8).into()
            }
            _ if self.options.ipv6 => fabric::address::ipv6(ip.into()).into(),
            _ => ip.into(),
        }
    }

    fn plans(&self, lowered: &mut Lowered) -> Vec<RankPlan> {
        let addresses = Addresses::of(self.fabric);
        let Self { options, settings, .. } = self;
        let mtu = settings.packet.mtu.get() as u32;
        let mut plans = Vec::new();
        for rank in 0..self.ranks as u32 {
            let reads = settings.nic.verb == Verb::Read;
            let pairs = pairs_of(lowered, rank, reads, |rank| self.address(&addresses, rank));
            let window = window(options, &pairs, mtu);
            plans.push(RankPlan {
                rank,
                ranks: self.ranks as u32,
                address: self.address(&addresses, rank),
                wire: WirePlan::Udp,
                offload: options.offload,
                mtu,
                window,
                timeout_ms: options.timeout_ms,
                selective: settings.nic.reorder != Reorder::None,
                control: settings.congestion.clone(),
                line_bps: options.rate.as_bps(),
                base_rtt_us: BASE_RTT_US,
                hops: HOPS,
                dscp: DATA_DSCP,
                admission: settings.admission.clone(),
                reads,
                bytes: lowered.bytes,
                staging: lowered.staging,
                all_pairs: lowered.pairs.len() as u32,
                pairs,
                sends: std::mem::take(&mut lowered.sends[rank as usize]),
                receives: std::mem::take(&mut lowered.receives[rank as usize]),
                read_parts: std::mem::take(&mut lowered.reads[rank as usize]),
                checks: std::mem::take(&mut lowered.checks[rank as usize]),
                record: options.record.as_deref().map(|path| of_rank(path, rank)),
                pcap: options.pcap.as_deref().map(|path| of_rank(path, rank)),
                most_ms: 1000 * options.most_s,
            });
        }
        // A window is the receiver's: the smallest of all holds everywhere.
        let least = plans.iter().map(|plan| plan.window).min().unwrap_or(64);
        plans.iter_mut().for_each(|plan| plan.window = least);
        plans
    }

    /// The ranks as a switch knows them.
    pub(crate) fn hosts(&self) -> BTreeMap<IpAddr, Host> {
        let addresses = Addresses::of(self.fabric);
        let host = |rank: u32| {
            let nic = self.fabric.nic_of(self.fabric.gpu(rank as usize));
            let ip = addresses.ip(nic).into();
            (self.address(&addresses, rank), Host { nic, rank, ip })
        };
        (0..self.ranks as u32).map(host).collect()
    }

    /// Runs ranks on loopback, with the switch in a thread of this process if there is one.
    fn through_switch(
        &self,
        lowered: &Lowered,
        mut plans: Vec<RankPlan>,
    ) -> Result<(Vec<RankResult>, RunCounts), Failure> {
        let run = run_name();
        let failed = |error: std::io::Error| Failure::Run(format!("the switch failed: {error}"));
        if self.options.places == Places::Loopback {
            let mut ranks = Ranks::start(&self.options.program, self.ranks, &[])?;
            let results = ranks.run(&run, plans, self.options.most_s)?;
            return Ok((results, RunCounts::default()));
        }
        let name = format!("{run}/switch");
        let hosts = self.hosts();
        plans.iter_mut().for_each(|plan| plan.wire = WirePlan::Switch(name.clone()));
        let (fabric, settings) = (self.fabric, self.settings);
        let injected = self.options.injected;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (told, heard) = channel();
            let (run_of_switch, stop) = (run.clone(), &stop);
            let switch = scope.spawn(move || {
                let setup = Setup { fabric, settings, hosts, run: run_of_switch, injected };
                let switches = match Switches::open(setup, &name) {
                    Ok(switches) => switches,
                    Err(error) => {
                        let _ = told.send(());
                        return Err(error);
                    }
                };
                let _ = told.send(());
                switches.forward(stop)
            });
            let _ = heard.recv();
            let results = Ranks::start(&self.options.program, self.ranks, &[])
                .and_then(|mut ranks| ranks.run(&run, plans, self.options.most_s));
            stop.store(true, Ordering::Relaxed);
            let counted = switch.join().map_err(|_| Failure::Run("the switch panicked".into()))?;
            let counted = counted.map_err(failed)?;
            let paths = measured_paths(lowered, &counted);
            let (counted, paths) = (Some(counted), Some(paths));
            let seen = RunCounts { counted, paths, marks: true, ..RunCounts::default() };
            Ok((results?, seen))
        })
    }

    /// The paths that the routing policy gives to a queue pair, and how many of its packets each.
    fn predicted_paths(&self, pairs: &[Pair]) -> Vec<BTreeMap<Vec<LinkId>, u64>> {
        let mut routing = self.settings.routing.build(self.fabric, self.settings.seed);
        let mut routes = Routes::of(self.fabric);
        let mut walker = Walker::default();
        let packets = routing.grain() == Grain::Packet;
        let of_pair = |pair: &Pair| {
            let mut paths: BTreeMap<Vec<LinkId>, u64> = BTreeMap::new();
            let Some(key) = pair.key.filter(|_| 0 < pair.messages) else { return paths };
            let walks = if packets { pair.packets } else { 1 };
            for packet in 0..walks {
                let path = walker.path(self.fabric, &mut routes, &mut *routing, &key, packet);
                if let Ok(path) = path {
                    *paths.entry(path.to_vec()).or_default() += pair.packets / walks;
                }
            }
            paths
        };
        pairs.iter().map(of_pair).collect()
    }

    fn show(
        &self,
        bytes: Bytes,
        lowered: &Lowered,
        results: &[RankResult],
        seen: &RunCounts,
        (outcome, over): (&Outcome, Span),
    ) -> Row {
        let predicted = self.predicted_paths(&lowered.pairs);
        let mut of_pair: BTreeMap<u32, PairResult> = BTreeMap::new();
        let mut arrived: BTreeMap<u32, &Vec<u64>> = BTreeMap::new();
        for pair in results.iter().flat_map(|result| &result.pairs) {
            if pair.sends {
                of_pair.insert(pair.id, pair.clone());
            } else {
                arrived.insert(pair.id, &pair.arrived);
            }
        }
        let mut queue_pairs = Vec::new();
        let mut as_predicted = [0, 0];
        let mut all_expected = beside::Paths::new();
        for (id, pair) in lowered.pairs.iter().enumerate() {
            let Some(key) = pair.key.filter(|_| 0 < pair.messages) else { continue };
            let expected: Vec<Vec<LinkId>> = predicted[id].keys().cloned().collect();
            all_expected.insert(id, expected.clone());
            let taken =
                seen.paths.as_ref().map(|paths| paths.get(&id).cloned().unwrap_or_default());
            if let Some(taken) = taken.as_ref().filter(|_| !seen.is_random) {
                as_predicted[0] += usize::from(*taken == expected);
                as_predicted[1] += 1;
            }
            let counted = of_pair.get(&(id as u32)).cloned().unwrap_or_default();
            queue_pairs.push(QueuePair {
                id: id as u32,
                from: pair.ranks[0],
                to: pair.ranks[1],
                src_port: pair.src_port,
                dst_qpn: key.dst_qpn,
                path: self.names(&taken.unwrap_or_default()),
                predicted_path: self.names(&expected),
                bytes: counted.bytes,
                retransmitted: counted.retransmitted,
                cnps: counted.notified,
                rate_bps: counted.rate_bps,
                arrived_packets: arrived.get(&(id as u32)).map_or(Vec::new(), |one| one.to_vec()),
            });
        }
        let last = results.iter().map(|result| result.time_us).max().unwrap_or(0);
        let payload: u64 = of_pair.values().map(|pair| pair.bytes).sum();
        let seconds = (last as f64 / 1e6).max(1e-9);
        Row {
            bytes: bytes.get(),
            sums_right: results.len() == self.ranks && results.iter().all(|one| one.wrong == 0),
            time_us: last as f64,
            predicted_us: over.as_secs_f64() * 1e6,
            goodput_bps: 8.0 * payload as f64 / seconds,
            predicted_goodput_bps: 8.0 * payload as f64 / over.as_secs_f64().max(1e-9),
            uplinks: self.uplinks(&lowered.pairs, &predicted, seen),
            ports: self.ports(seen, outcome),
            queue_pairs,
            paths_as_predicted: as_predicted,
            paths: beside::paths(self.fabric, seen.paths.as_ref(), &all_expected),
            fullest: self.fullest(seen),
            packets: packets(results, seen),
            predicted_packets: predicted_packets(outcome),
            completion_order: Vec::new(),
            ends: Vec::new(),
            control: None,
        }
    }

    /// How full the fullest uplinks are, where the kernel chose.
    fn fullest(&self, seen: &RunCounts) -> Option<Fullest> {
        let is_kernel = self.options.places == Places::Namespaces;
        beside::fullest(self.fabric, seen.paths.as_ref().filter(|_| is_kernel)?)
    }

    /// The ports of switches that lead to ranks.
    fn ports(&self, seen: &RunCounts, outcome: &Outcome) -> Vec<Port> {
        let counted = seen.counted.as_ref().filter(|_| self.options.places == Places::Switch);
        let Some(counted) = counted else { return Vec::new() };
        let to_rank = |rank: usize| {
            let nic = self.fabric.nic_of(self.fabric.gpu(rank));
            let link = self.fabric.reverse(self.fabric.ports(nic)[0]);
            let count = counted.links[link];
            Port {
                rank: rank as u32,
                link: self.fabric.link_name(link),
                peak_queue_bytes: count.peak,
                predicted_peak_queue_bytes: outcome.links[link].peak_queue.get(),
                drops: count.drops,
                marks: count.marks,
            }
        };
        (0..self.ranks).map(to_rank).collect()
    }

    /// The switches of paths, one path after the other.
    fn names(&self, paths: &[Vec<LinkId>]) -> Vec<String> {
        let is_switch = |node: &NodeId| self.fabric.nodes()[*node].kind != NodeKind::Nic;
        let nodes = paths.iter().flatten().map(|link| self.fabric.links()[*link].to);
        nodes.filter(is_switch).map(|node| self.fabric.name(node)).collect()
    }

    fn uplinks(
        &self,
        pairs: &[Pair],
        predicted: &[BTreeMap<Vec<LinkId>, u64>],
        seen: &RunCounts,
    ) -> Vec<Uplink> {
        let Some(counted) = &seen.counted else { return Vec::new() };
        let mut expected: BTreeMap<LinkId, [u64; 2]> = BTreeMap::new();
        for (pair, paths) in pairs.iter().zip(predicted) {
            for (path, packets) in paths {
                let bytes = (pair.bytes as u128 * u128::from(*packets)
                    / u128::from(pair.packets.max(1))) as u64;
                for link in path {
                    let sums = expected.entry(*link).or_default();
                    (sums[0], sums[1]) = (sums[0] + bytes, sums[1] + packets);
                }
            }
        }
        let mut uplinks = Vec::new();
        for (id, link) in self.fabric.links().enumerate() {
            let ends = [link.from, link.to].map(|node| self.fabric.switch_ordinal(node));
            let count = counted.links[id];
            let [predicted_bytes, predicted_packets] = expected.get(&id).copied().unwrap_or([0; 2]);
            if ends.contains(&None) || count.packets + predicted_packets == 0 {
                continue;
            }
            uplinks.push(Uplink {
                link: self.fabric.link_name(id),
                bytes: count.payload,
                predicted_bytes,
                packets: count.packets,
                predicted_packets,
                peak_queue_bytes: (self.options.places == Places::Switch).then_some(count.peak),
                drops: count.drops,
                marks: count.marks,
                pauses: count.pauses,
            });
        }
        uplinks
    }
}

/// How many packets a queue pair may have under way. All of a rank together are no more than its
/// link sends in a fraction of the retransmission timeout, so that queues alone never cause one;
/// and no more than the receiving socket has room for, of which the kernel doubles what it is told
/// and charges about twice a packet's size.
fn window(options: &Options, pairs: &[crate::plan::PairPlan], mtu: u32) -> u64 {
    let count = pairs.iter().filter(|pair| !pair.inside).count().max(1) as u64;
    // Shaped links of namespaces have short queues, which many ranks may share.
    let share = if options.places == Places::Namespaces { 20 } else { 4 };
    let queued = options.rate.as_bps() / 8 * options.timeout_ms / 1000 / share / u64::from(mtu);
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max");
    let allowed = most.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(212_992_u64);
    let room = match options.places {
        Places::Switch => u64::MAX / 2,
        _ if nix::unistd::geteuid().is_root() => 8 << 20,
        _ => allowed,
    };
    let packet = u64::from(mtu) * 9 / 4 + 768;
    (2 * room / packet).min(queued).div_euclid(count).clamp(2, 128)
}

fn measured_paths(lowered: &Lowered, counted: &Counted) -> BTreeMap<usize, Vec<Vec<LinkId>>> {
    let pairs = lowered.pairs.iter().enumerate();
    let known = pairs.filter_map(|(id, pair)| {
        let paths = counted.paths.get(&pair.key?)?;
        Some((id, paths.keys().cloned().collect()))
    });
    known.collect()
}

fn packets(results: &[RankResult], seen: &RunCounts) -> Packets {
    let mut all = Packets::default();
    let mut marked = 0;
    for result in results {
        all.icrc_wrong += result.icrc_wrong;
        all.sent += result.packets[0];
        all.received += result.packets[1];
        for pair in &result.pairs {
            all.data += pair.sent;
            all.acks += pair.acks;
            all.naks += pair.naks;
            all.cnps += pair.cnps;
            all.retransmitted += pair.retransmitted;
            all.timeouts += pair.timeouts;
            all.not_ready += pair.not_ready;
            all.bytes += pair.bytes;
            marked += pair.marked;
        }
    }
    all.marked = seen.marks.then_some(marked);
    if let Some(counted) = &seen.counted {
        all.drops = counted.links.iter().map(|link| link.drops).sum();
        all.injected = counted.injected;
        all.pauses = counted.links.iter().map(|link| link.pauses).sum();
    }
    all
}

/// What controls are told of the way: a round trip through processes, and links.
const BASE_RTT_US: u64 = 2_000;
const HOPS: u32 = 4;

/// Every message as a row, as `run --flows-out` writes flows.
fn flows(transfers: &Transfers, lowered: &Lowered, results: &[RankResult]) -> Table {
    let times = |of: &dyn Fn(&RankResult) -> &Vec<(u32, u64)>| -> BTreeMap<u32, f64> {
        let all = results.iter().flat_map(of);
        all.map(|(op, ns)| (*op, *ns as f64)).collect()
    };
    let (posted, arrived) = (times(&|one| &one.posted_ns), times(&|one| &one.arrived_ns));
    let known = times(&|one| &one.known_ns);
    /// Operation, sender, receiver, bytes.
    type Line = (u32, u64, u64, u64);
    let mut rows: Vec<Line> = Vec::new();
    for (op, one) in transfers.ops().enumerate() {
        if let traffic::OpKind::Send { connection, bytes } = one.kind {
            let pair = lowered.of_connection[units::Id::index(connection)];
            let [from, to] = lowered.pairs[pair].ranks;
            rows.push((units::Id::index(op) as u32, from.into(), to.into(), bytes.get()));
        }
    }
    let integers = |of: &dyn Fn(&Line) -> u64| Column::Integers(rows.iter().map(of).collect());
    let numbers = |of: &BTreeMap<u32, f64>| {
        Column::SomeNumbers(rows.iter().map(|row| of.get(&row.0).copied()).collect())
    };
    let starts = rows.iter().map(|row| posted.get(&row.0).copied().unwrap_or(0.0));
    Table::new()
        .with("flow", Column::Integers((0..rows.len() as u64).collect()))
        .with("src", integers(&|row| row.1))
        .with("dst", integers(&|row| row.2))
        .with("bytes", integers(&|row| row.3))
        .with("start_ns", Column::Numbers(starts.collect()))
        .with("received_ns", numbers(&arrived))
        .with("finish_ns", numbers(&known))
}

fn predicted_packets(outcome: &Outcome) -> PredictedPackets {
    PredictedPackets {
        data: outcome.counters.packets,
        marked: outcome.counters.ecn_marks,
        cnps: outcome.counters.cnps,
        retransmitted: outcome.counters.retransmits,
        drops: outcome.counters.drops,
        pauses: outcome.counters.pauses,
    }
}

/// The capture file of a rank.
fn of_rank(path: &Path, rank: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().map_or("pcap".into(), |ending| ending.to_string_lossy());
    path.with_file_name(format!("{stem}.rank{rank}.{ending}"))
}

/// A name that no other run has.
pub(crate) fn run_name() -> String {
    let random = std::fs::read("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let random = String::from_utf8_lossy(&random);
    format!("fatflow-live-{}-{}", std::process::id(), random.trim())
}

/// The processes of a run; they end when this is dropped.
pub(crate) struct Ranks {
    children: Vec<Child>,
    names: Vec<String>,
    inputs: Vec<Box<dyn Write + Send>>,
    heard: Receiver<(usize, Result<RankMessage, String>)>,
}

/// A process elsewhere: its name, what it tells, and what is written to it.
pub(crate) type Remote = (String, Box<dyn Read + Send>, Box<dyn Write + Send>);

impl Drop for Ranks {
    fn drop(&mut self) {
        self.inputs.clear();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ranks {
    /// Starts so many processes.
    pub(crate) fn start(program: &Path, count: usize, arguments: &[&str]) -> Result<Self, Failure> {
        let (told, heard) = channel();
        let names = (0..count).map(|number| format!("process {number}")).collect();
        let mut ranks = Self { children: Vec::new(), names, inputs: Vec::new(), heard };
        for number in 0..count {
            let started = Command::new(program)
                .args(["live", "process"])
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut child = started
                .map_err(|error| Failure::Run(format!("cannot start a process: {error}")))?;
            let output = child.stdout.take().expect("it was piped");
            ranks.inputs.push(Box::new(child.stdin.take().expect("it was piped")));
            ranks.children.push(child);
            listen(number, ranks.names[number].clone(), Box::new(output), told.clone());
        }
        Ok(ranks)
    }

    /// Processes elsewhere: their names, what they tell, and what is written to them.
    pub(crate) fn remote(streams: Vec<Remote>) -> Self {
        let (told, heard) = channel();
        let (children, names, inputs) = Default::default();
        let mut ranks = Self { children, names, inputs, heard };
        for (number, (name, output, input)) in streams.into_iter().enumerate() {
            ranks.inputs.push(input);
            ranks.names.push(name.clone());
            listen(number, name, output, told.clone());
        }
        ranks
    }

    /// The process ids.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Says a line to a process.
    pub(crate) fn say(&mut self, number: usize, line: &str) -> Result<(), Failure> {
        let input = &mut self.inputs[number];
        let Err(error) = writeln!(input, "{line}").and_then(|()| input.flush()) else {
            return Ok(());
        };
        // Whoever does not listen any more may have told why.
        match self.heard.recv_timeout(Duration::from_secs(1)) {
            Ok((_, Ok(RankMessage::Failed(reason)))) => Err(Failure::Run(reason)),
            _ => {
                let name = &self.names[number];
                Err(Failure::Run(format!("{name} does not listen: {error}")))
            }
        }
    }

    /// Waits until so many processes have told what `take` takes.
    pub(crate) fn hear(
        &self,
        count: usize,
        until: Instant,
        mut take: impl FnMut(usize, RankMessage) -> bool,
    ) -> Result<(), Failure> {
        let mut left = count;
        while 0 < left {
            let wait = until.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(wait) {
                Ok((_, Ok(RankMessage::Failed(reason)))) | Ok((_, Err(reason))) => {
                    return Err(Failure::Run(reason));
                }
                Ok((number, Ok(told))) => left -= usize::from(take(number, told)),
                Err(_) => {
                    let reason = format!("{left} of {count} processes did not answer in time");
                    return Err(Failure::Run(reason));
                }
            }
        }
        Ok(())
    }

    /// Asks a process something.
    pub(crate) fn ask(&mut self, number: usize, question: &str) -> Result<String, Failure> {
        self.say(number, question)?;
        let mut answer = String::new();
        self.hear(1, Instant::now() + Duration::from_secs(30), |_, told| match told {
            RankMessage::Text(text) => {
                answer = text;
                true
            }
            _ => false,
        })?;
        Ok(answer)
    }

    /// Gives every rank its plan and the word to begin, and waits for what they tell.
    pub(crate) fn run(
        &mut self,
        run: &str,
        plans: Vec<RankPlan>,
        most_s: u64,
    ) -> Result<Vec<RankResult>, Failure> {
        let count = plans.len();
        for (number, plan) in plans.into_iter().enumerate() {
            let task = Task::Run(Box::new(plan));
            let line = serde_json::to_string(&(run, task)).expect("plain data");
            self.say(number, &line)?;
        }
        let soon = Instant::now() + Duration::from_secs(60);
        self.hear(count, soon, |_, told| matches!(told, RankMessage::Ready))?;
        for number in 0..count {
            self.say(number, "go")?;
        }
        let end = Instant::now() + Duration::from_secs(most_s + 5);
        let mut results = Vec::new();
        self.hear(count, end, |_, told| match told {
            RankMessage::Done(result) => {
                results.push(*result);
                true
            }
            _ => false,
        })?;
        results.sort_by_key(|result| result.rank);
        Ok(results)
    }
}

/// Reads what a process tells, in a thread that ends with it.
fn listen(
    number: usize,
    name: String,
    output: Box<dyn Read + Send>,
    told: Sender<(usize, Result<RankMessage, String>)>,
) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            let read = serde_json::from_str(&line);
            let read = read.map_err(|error| format!("{name} told {line:?}: {error}"));
            if told.send((number, read)).is_err() {
                return;
            }
        }
        let _ = told.send((number, Err(format!("{name} ended before its time"))));
    });
}
