//! The three engines behind one door: transfers in, an outcome out, whatever computes it.
//!
//! All of them take their settings from the same scenario, so that where they differ, the models
//! differ and not the inputs.

use fabric::graph::LinkKind;
use fabric::hardware::Reorder;
use fabric::{Fabric, LinkId};
use packetsim::cc::CcConfig;
use scenario::Loaded;
use serde::Serialize;
use traffic::nccl::{self, Architecture};
use traffic::{Outcome, Transfers, Window};
use units::Bytes;

/// How the network is computed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Latency and bandwidth terms on the real routes, without contention.
    Analytic,
    /// Every flow on its hashed path, at max-min fair rates.
    #[default]
    Flow,
    /// Every packet through NIC, switch and link.
    Packet,
}

impl Engine {
    /// All of them, from the fastest to the most faithful.
    pub const ALL: [Self; 3] = [Self::Analytic, Self::Flow, Self::Packet];

    /// Its name in flags and envelopes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Analytic => "analytic",
            Self::Flow => "flow",
            Self::Packet => "packet",
        }
    }

    /// How finely collectives are written out for it.
    pub fn detail(self) -> traffic::collective::Detail {
        match self {
            Self::Packet => traffic::collective::Detail::Stepwise,
            _ => traffic::collective::Detail::Folded,
        }
    }
}

/// The flow engine's settings.
pub fn flow_settings(loaded: &Loaded) -> flowsim::Settings {
    let settings = loaded.settings();
    let nic = &settings.nic;
    let library = library(loaded);
    let wire = flowsim::Wire {
        packet: settings.packet.mtu,
        efficiency: loaded.scenario.network.transport.efficiency(settings.packet.mtu),
        receiver: match nic.reorder {
            Reorder::None => flowsim::Receiver::GoBackN,
            Reorder::SelectiveRepeat | Reorder::DirectPlacement => flowsim::Receiver::AnyOrder,
        },
        nic_latency: (nic.send_latency + nic.receive_latency) / 2,
        scale_up_efficiency: library
            .scale_up_efficiency
            .unwrap_or(library.architecture.scale_up_efficiency()),
        window: library.window,
        host_rate: library.host_rate,
    };
    flowsim::Settings {
        routing: settings.routing.clone(),
        flow: loaded.scenario.network.flow.clone(),
        wire,
        faults: loaded.faults.clone(),
        background: Vec::new(),
        seed: loaded.scenario.seed,
    }
}

/// The communication library's settings on this scenario's hardware.
pub fn library(loaded: &Loaded) -> nccl::Settings {
    let scenario = &loaded.scenario;
    let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu);
    let architecture = gpu.and_then(|gpu| Architecture::of_scale_up(&gpu.scale_up_name));
    let settings = loaded.settings();
    let library = scenario.library.clone();
    nccl::Settings {
        architecture: architecture.unwrap_or(library.architecture),
        nic_latency: settings.nic.send_latency + settings.nic.receive_latency,
        wire_efficiency: scenario.network.transport.efficiency(settings.packet.mtu),
        window: window(&settings),
        host_rate: settings.nic.host_rate(),
        ..library
    }
}

/// What a queue pair may have under way where its congestion control starts with little; the others
/// start with what a round trip holds, or with no bound.
fn window(settings: &packetsim::Settings) -> Option<Window> {
    let mtu = settings.packet.mtu.get().max(1);
    let packets = |bytes: Bytes| Bytes::new(bytes.get().div_ceil(mtu).saturating_mul(mtu));
    let (first, most) = match &settings.congestion {
        CcConfig::Cubic(config) => (config.initial_window, config.max_window),
        CcConfig::Dctcp(config) => {
            (config.initial_window?, config.max_window.unwrap_or(Bytes::from_mib(1 << 20)))
        }
        _ => return None,
    };
    Some(Window { first: packets(first), most: packets(most) })
}

/// Runs transfers on the scenario's fabric.
pub fn run(
    loaded: &Loaded,
    engine: Engine,
    transfers: &Transfers,
    watch: &mut packetsim::Watch<'_>,
) -> Outcome {
    let fabric = loaded.fabric();
    match engine {
        Engine::Analytic => flowsim::analytic::run(fabric, transfers, &flow_settings(loaded)),
        Engine::Flow => flowsim::run(fabric, transfers, &flow_settings(loaded)),
        Engine::Packet => {
            let (settings, faults) = (loaded.settings(), &loaded.faults);
            packetsim::run_with_faults(fabric, transfers, &settings, faults, watch)
        }
    }
}

/// Cores of the busiest server that its NICs take on average over so many seconds.
pub fn cpu_cores(loaded: &Loaded, outcome: &Outcome, seconds: f64) -> f64 {
    let (fabric, nic) = (loaded.fabric(), loaded.settings().nic);
    let mut servers = vec![0.0; fabric.servers()];
    for number in 0..fabric.nics() {
        let node = fabric.nic(number);
        let rate = |reverse: bool| {
            let ports = fabric.ports(node).iter();
            let links = ports.map(|&port| if reverse { fabric.reverse(port) } else { port });
            let bytes = links.filter_map(|link| outcome.links.get(link)).map(|link| link.bytes);
            bytes.sum::<u64>() as f64 / seconds.max(1e-12)
        };
        if let Some(server) = fabric.server_of(node) {
            servers[server] += nic.cpu_cores(rate(false), rate(true));
        }
    }
    servers.into_iter().fold(0.0, f64::max)
}

/// What a link carried over what it could have carried in so many seconds.
pub fn load(fabric: &Fabric, outcome: &Outcome, seconds: f64, link: LinkId) -> f64 {
    let capacity = fabric.class(link).rate.bytes_per_s() * seconds;
    if capacity > 0.0 { outcome.links[link].bytes as f64 / capacity } else { 0.0 }
}

/// The busiest link between switches, or from a NIC where there is none, over so many seconds.
pub fn busiest(fabric: &Fabric, outcome: &Outcome, seconds: f64) -> (String, f64) {
    let load = |link: LinkId| load(fabric, outcome, seconds, link);
    let scale_out = |link: &LinkId| fabric.class(*link).kind == LinkKind::ScaleOut;
    let busiest = outcome.links.ids().filter(scale_out).map(|link| (link, load(link)));
    match busiest.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((link, load)) if load > 0.0 => (fabric.link_name(link), load),
        _ => (String::new(), 0.0),
    }
}
