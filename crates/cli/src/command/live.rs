//! `fatflow live`.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use clap::ValueEnum;
use commands::Failure;
use live::agent::{self, AgentOptions, Agents};
use live::probe::ProbeOptions;
use live::{Injected, Options, Places, What};
use scenario::Purpose;
use traffic::collective::Collective;
use units::{Bytes, Rate};

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Run a collective for real, as RoCEv2 packets between processes: measured beside predicted
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  fatflow live all_reduce scenarios/live-8.toml -b 1M -e 4M
  fatflow live all_to_all scenarios/live-8.toml --loss 1% --reorder 5% --duplicate 1%
  fatflow live all_reduce scenarios/live-8.toml --set network.routing.policy=spray \\
    --set network.nic.reorder=selective-repeat
  fatflow live all_reduce scenarios/live-8.toml --on namespaces --json | jq .result.rows[].uplinks
  fatflow live all_gather scenarios/live-8.toml --on loopback --rate 1Gbps --pcap run.pcap
  fatflow live traffic scenarios/live-incast.toml --set network.admission.policy=receiver-driven
  fatflow live phase my.toml --phase data-parallel
  fatflow live all_reduce scenarios/live-8.toml --agents hosts.txt --token-file token
  fatflow live agent --listen 10.0.0.2:4792 --token-file token
  fatflow live probe scenarios/live-8.toml --on namespaces

Ranks are processes of this machine. Packets go through a switch in user space that forwards as the
scenario says, through namespaces that Linux routes, or straight over loopback. Rates are scaled
down to what a small machine can keep, and the prediction beside it has the same rates.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    process: Option<Role>,
    /// The collective, the scenario's traffic, or a phase of its job
    #[arg(required = true)]
    what: Option<Name>,
    #[command(flatten)]
    scenario: Option<ScenarioArgument>,
    /// The smallest message
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "1M")]
    min: Bytes,
    /// The largest message
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "1M")]
    max: Bytes,
    /// From one size to the next
    #[arg(short = 'f', long, value_name = "N", default_value_t = 2)]
    factor: u64,
    /// Ranks, one process each [default: all GPUs]
    #[arg(short = 'g', long, value_name = "N")]
    ranks: Option<usize>,
    /// The rate of each rank's link; others keep their ratio to it
    #[arg(long, value_name = "RATE", default_value = "100Mbps")]
    rate: Rate,
    /// Where packets go
    #[arg(long, value_name = "PLACE", default_value = "switch")]
    on: Place,
    /// Packets have IPv6 headers
    #[arg(long)]
    ipv6: bool,
    /// Let the kernel cut and join packets (segmentation offload); over IPv6, where the ICRC can
    /// still be checked
    #[arg(long)]
    offload: bool,
    /// The phase of the job: its name, or how it begins
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,
    #[command(flatten)]
    agents: AgentArguments,
    /// Share of packets that the switch loses
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    loss: f64,
    /// Share of packets that the switch holds back so that others overtake them
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    reorder: f64,
    /// Share of packets that the switch sends twice
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    duplicate: f64,
    /// Retransmission timeout in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 400,
          value_parser = clap::value_parser!(u64).range(100..=60_000))]
    timeout_ms: u64,
    /// The most seconds that one size may take
    #[arg(long, value_name = "S", default_value_t = 120,
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    most: u64,
    /// Capture every rank's packets: FILE.rank0.pcap and so on
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write down what congestion controls are told and say (FILE.rank0.jsonl and so on), and feed
    /// it to the packet engine's objects
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write every message as a row, as `run --flows-out` does: CSV, or Parquet by its ending
    #[arg(long, value_name = "FILE")]
    flows_out: Option<PathBuf>,
}

/// Processes on other hosts.
#[derive(clap::Args, Debug)]
struct AgentArguments {
    /// Hosts with agents, one for each rank: on each line a name, and its address for data
    #[arg(long, value_name = "FILE", requires = "token_file")]
    agents: Option<PathBuf>,
    /// The file with the agents' token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Connect by TLS, and trust agents whose certificate is signed by this (PEM)
    #[arg(long, value_name = "FILE", requires = "agents")]
    tls_authority: Option<PathBuf>,
}

impl AgentArguments {
    fn read(&self) -> Result<Option<Agents>, Failure> {
        let (Some(hosts), Some(token)) = (&self.agents, &self.token_file) else { return Ok(None) };
        let (hosts, token) = (agent::read_hosts(hosts)?, agent::read_token(token)?);
        Ok(Some(Agents { hosts, token, authority: self.tls_authority.clone() }))
    }
}

/// What a process is besides the controller.
#[derive(clap::Subcommand, Debug)]
enum Role {
    /// A rank or a switch of a run: started by `live` itself
    #[command(hide = true)]
    Process {
        /// In a network namespace of its own
        #[arg(long)]
        namespace: bool,
    },
    /// Wait on this host for a controller, and send what it plans, within bounds
    Agent(AgentRole),
    /// Find out what a fabric does with queue pairs: paths, hash, classes, marks
    Probe(Box<ProbeRole>),
}

/// `live agent`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  head -c 32 /dev/urandom | base64 > token
  fatflow live agent --token-file token
  fatflow live agent --token-file token --listen 10.0.0.2:4792 --most-rate 10Gbps
  fatflow live agent --token-file token --listen 10.0.0.2:4792 \\
    --tls-certificate agent.pem --tls-key agent.key")]
struct AgentRole {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4792")]
    listen: SocketAddr,
    /// The file with the token that a controller must have
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Speak TLS with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The most that this host sends
    #[arg(long, value_name = "RATE", default_value = "1Gbps")]
    most_rate: Rate,
    /// The most seconds that a run may take
    #[arg(long, value_name = "S", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    most_time: u64,
}

impl AgentRole {
    fn run(&self) -> Result<(), Failure> {
        let options = AgentOptions {
            listen: self.listen,
            token: agent::read_token(&self.token_file)?,
            identity: self.tls_certificate.clone().zip(self.tls_key.clone()),
            most_rate: self.most_rate,
            most_s: self.most_time,
            program: program()?,
        };
        agent::serve(&options, |text| {
            let _ = writeln!(std::io::stderr(), "{text}");
        })
    }
}

/// `live probe`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow live probe scenarios/live-8.toml --on namespaces
  fatflow live probe scenarios/live-8.toml --set network.routing.policy=e-ecmp
  fatflow live probe --agents hosts.txt --token-file token --queue-pairs 64 --write found.toml

Between agents there is one probe a second to each router after the first six: Linux's routers
answer no more.")]
struct ProbeRole {
    /// A preset's name or a scenario file; none between agents
    #[arg(value_name = "SCENARIO")]
    scenario: Option<String>,
    /// Where packets go: through a switch in user space, or namespaces that Linux routes
    #[arg(long, value_name = "PLACE", default_value = "switch")]
    on: Place,
    #[command(flatten)]
    agents: AgentArguments,
    /// Packets have IPv6 headers
    #[arg(long)]
    ipv6: bool,
    /// The rank that probes
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    from: u32,
    /// The rank that is probed [default: the last]
    #[arg(long, value_name = "RANK")]
    to: Option<u32>,
    /// Queue pairs with ports of their own [default: 256, between agents 64]
    #[arg(long, value_name = "N")]
    queue_pairs: Option<u32>,
    /// Queue pairs with the same ports
    #[arg(long, value_name = "N", default_value_t = 16)]
    same_ports: u32,
    /// The most routers on a path
    #[arg(long, value_name = "N", default_value_t = 6,
          value_parser = clap::value_parser!(u8).range(1..=32))]
    hops: u8,
    /// Packets of data in front of those that tell classes and marks; 0 leaves them out
    #[arg(long, value_name = "N", default_value_t = 64)]
    burst: u32,
    /// Milliseconds between probes; given for namespaces, it also leaves routers Linux's limits
    #[arg(long, value_name = "MS")]
    gap_ms: Option<u64>,
    /// The rate of each rank's link, and the most that probes send
    #[arg(long, value_name = "RATE", default_value = "100Mbps")]
    rate: Rate,
    /// Seeds the numbers of the queue pairs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed_of_probes: u64,
    /// Write what was found as a scenario
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl ProbeRole {
    fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let agents = self.agents.read()?;
        let options = |ranks: usize, queue_pairs: u32| ProbeOptions {
            ends: [self.from, self.to.unwrap_or((ranks as u32).saturating_sub(1))],
            queue_pairs: self.queue_pairs.unwrap_or(queue_pairs),
            same_ports: self.same_ports,
            hops: self.hops,
            burst: self.burst,
            gap_ms: self.gap_ms,
            rate: self.rate,
            seed: self.seed_of_probes,
        };
        let (report, loaded, ranks) = match (&agents, &self.scenario) {
            (Some(_), Some(_)) => {
                let reason = "agents are probed without a scenario: what is between them is asked";
                return Err(Failure::Usage(reason.to_owned()).into());
            }
            (None, None) => {
                return Err(Failure::Usage("which scenario, or --agents?".to_owned()).into());
            }
            (Some(agents), None) => {
                let ranks = agents.hosts.len();
                (live::probe::probe_agents(&options(ranks, 64), agents)?, None, ranks)
            }
            (None, Some(scenario)) => {
                let purpose =
                    Purpose::Collective(commands::Engine::Packet, Collective::AllReduce);
                let scenario = ScenarioArgument { scenario: scenario.clone() };
                let loaded = terminal.load(&scenario, purpose)?;
                let places = match self.on {
                    Place::Namespaces => Places::Namespaces,
                    Place::Switch => Places::Switch,
                    Place::Loopback => {
                        let reason = "loopback has no routers: --on switch or namespaces";
                        return Err(Failure::Usage(reason.to_owned()).into());
                    }
                };
                let program = program()?;
                if places == Places::Namespaces {
                    live::multipath::enter_user_namespace();
                    live::multipath::is_allowed(&program).map_err(Failure::Run)?;
                }
                let run = Options { ipv6: self.ipv6, ..plain(places, self.rate, program) };
                let ranks = loaded.fabric().gpus();
                let report = live::probe::probe(&loaded, &options(ranks, 256), &run)?;
                (report, Some(loaded), ranks)
            }
        };
        if let Some(path) = &self.write {
            commands::files::save_text(path, &report.scenario(ranks)?)?;
        }
        terminal.answer("live", loaded.as_ref(), &report)?;
        Ok(terminal.ending())
    }
}

/// This program.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::Run(format!("cannot find this program: {error}")))
}

/// Options that say nothing but where and how fast.
fn plain(places: Places, rate: Rate, program: PathBuf) -> Options {
    Options {
        what: What::Traffic,
        min: Bytes::new(1),
        max: Bytes::new(1),
        factor: 2,
        ranks: None,
        rate,
        places,
        ipv6: false,
        offload: false,
        agents: None,
        record: None,
        flows_out: None,
        injected: Injected::default(),
        timeout_ms: 400,
        most_s: 120,
        pcap: None,
        program,
    }
}

/// What live knows the data of.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Name {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    /// The scenario's synthetic traffic
    Traffic,
    /// One phase of the scenario's job
    Phase,
}

/// Where packets go.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Place {
    /// Through a switch in user space, by the scenario's routing policy
    Switch,
    /// Straight from socket to socket
    Loopback,
    /// Through network namespaces, routed by Linux; loopback where they are refused
    Namespaces,
}

/// Reads `1%` or `0.01`.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    let share: f64 = number.trim().parse().map_err(|_| "a share is like 1% or 0.01".to_owned())?;
    let share = share / unit;
    if (0.0..=0.5).contains(&share) { Ok(share) } else { Err("a share is 0% to 50%".to_owned()) }
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        match &self.process {
            Some(Role::Process { namespace }) => {
                return process(*namespace).map(|()| terminal.ending());
            }
            Some(Role::Agent(role)) => return Ok(role.run().map(|()| terminal.ending())?),
            Some(Role::Probe(role)) => return role.run(terminal),
            None => {}
        }
        let what = self.what()?;
        let purpose = match what {
            What::Collective(collective) => {
                Purpose::Collective(commands::Engine::Packet, collective)
            }
            _ => Purpose::Run(commands::Engine::Packet),
        };
        let Some(scenario) = &self.scenario else {
            return Err(Failure::Usage("which scenario?".to_owned()).into());
        };
        let loaded = terminal.load(scenario, purpose)?;
        let agents = self.agents.read()?;
        let program = program()?;
        let mut places = match self.on {
            _ if agents.is_some() => Places::Agents,
            Place::Switch => Places::Switch,
            Place::Loopback => Places::Loopback,
            Place::Namespaces => Places::Namespaces,
        };
        if agents.is_some() && (self.pcap.is_some() || self.record.is_some()) {
            let reason = "agents write no files: --pcap and --record are for this machine";
            return Err(Failure::Usage(reason.to_owned()).into());
        }
        let mut said = None;
        let own = places == Places::Loopback && self.ipv6;
        if places == Places::Namespaces || own {
            live::multipath::enter_user_namespace();
        }
        if places == Places::Namespaces
            && let Err(reason) = live::multipath::is_allowed(&program)
        {
            said = Some(format!("{reason}: this ran on loopback instead"));
            places = Places::Loopback;
        }
        let (loss, reorder, duplicate) = (self.loss, self.reorder, self.duplicate);
        let options = Options {
            what,
            min: self.min,
            max: self.max,
            factor: self.factor,
            ranks: self.ranks,
            ipv6: self.ipv6,
            offload: self.offload,
            agents,
            record: self.record.clone(),
            flows_out: self.flows_out.clone(),
            injected: Injected { loss, reorder, duplicate },
            timeout_ms: self.timeout_ms,
            most_s: self.most,
            pcap: self.pcap.clone(),
            ..plain(places, self.rate, program)
        };
        let mut report = terminal.watched(|watch| live::run(&loaded, &options, watch))?;
        report.findings.extend(said);
        terminal.answer("live", Some(&loaded), &report)?;
        Ok(terminal.ending())
    }

    fn what(&self) -> Result<What, Failure> {
        let what = match (self.what, &self.phase) {
            (Some(Name::Phase), Some(name)) => return Ok(What::Phase(name.clone())),
            (Some(Name::Phase), None) => {
                return Err(Failure::Usage("which phase? --phase NAME".to_owned()));
            }
            (_, Some(_)) => {
                return Err(Failure::Usage("--phase goes with `live phase`".to_owned()));
            }
            (Some(Name::AllReduce), None) => Collective::AllReduce,
            (Some(Name::AllGather), None) => Collective::AllGather,
            (Some(Name::ReduceScatter), None) => Collective::ReduceScatter,
            (Some(Name::AllToAll), None) => Collective::AllToAll,
            (Some(Name::Traffic), None) => return Ok(What::Traffic),
            (None, None) => return Err(Failure::Usage("which collective?".to_owned())),
        };
        Ok(What::Collective(what))
    }
}

/// Is a rank, or holds a namespace and then is one.
fn process(namespace: bool) -> Result<(), Stop> {
    let local = UnixDatagram::unbound().map_err(|error| error.to_string());
    let done = local.and_then(|local| match namespace && !live::multipath::hold()? {
        true => Ok(()),
        false => live::rank::main(local),
    });
    done.map_err(|reason| {
        live::rank::tell(&live::plan::RankMessage::Failed(reason.clone()));
        Stop::from(Failure::Run(reason))
    })
}
