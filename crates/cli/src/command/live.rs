//! `fatflow live`.

use std::path::PathBuf;

use clap::ValueEnum;
use commands::Failure;
use live::{Injected, Options, Places};
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

Ranks are processes of this machine. Packets go through a switch in user space that forwards as the
scenario says, through namespaces that Linux routes, or straight over loopback. Rates are scaled
down to what a small machine can keep, and the prediction beside it has the same rates.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    process: Option<Role>,
    /// The collective
    #[arg(required = true)]
    collective: Option<Name>,
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
}

/// The collectives that live knows the data of.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Name {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
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
        if let Some(Role::Process { namespace }) = self.process {
            return process(namespace).map(|()| terminal.ending());
        }
        let collective = match self.collective {
            Some(Name::AllReduce) => Collective::AllReduce,
            Some(Name::AllGather) => Collective::AllGather,
            Some(Name::ReduceScatter) => Collective::ReduceScatter,
            Some(Name::AllToAll) => Collective::AllToAll,
            None => return Err(Failure::Usage("which collective?".to_owned()).into()),
        };
        let purpose = Purpose::Collective(commands::Engine::Packet, collective);
        let Some(scenario) = &self.scenario else {
            return Err(Failure::Usage("which scenario?".to_owned()).into());
        };
        let loaded = terminal.load(scenario, purpose)?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::Run(format!("cannot find this program: {error}")))?;
        let mut places = match self.on {
            Place::Switch => Places::Switch,
            Place::Loopback => Places::Loopback,
            Place::Namespaces => Places::Namespaces,
        };
        let mut said = None;
        if places == Places::Namespaces {
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
            collective,
            min: self.min,
            max: self.max,
            factor: self.factor,
            ranks: self.ranks,
            rate: self.rate,
            places,
            injected: Injected { loss, reorder, duplicate },
            timeout_ms: self.timeout_ms,
            most_s: self.most,
            pcap: self.pcap.clone(),
            program,
        };
        let mut report = terminal.watched(|watch| live::run(&loaded, &options, watch))?;
        report.findings.extend(said);
        terminal.answer("live", Some(&loaded), &report)?;
        Ok(terminal.ending())
    }
}

/// Is a rank, or holds a namespace and then is one.
fn process(namespace: bool) -> Result<(), Stop> {
    let held = if namespace { live::multipath::hold() } else { Ok(true) };
    held.and_then(|goes_on| if goes_on { live::rank::main() } else { Ok(()) }).map_err(|reason| {
        live::rank::tell(&live::plan::Told::Failed(reason.clone()));
        Stop::from(Failure::Run(reason))
    })
}
