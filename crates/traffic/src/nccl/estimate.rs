//! How long a collective takes on links without other traffic, in closed form.
//!
//! The time is a launch, hand-overs, the filling and draining of the pipeline, and the bytes on
//! the busiest link over its rate, phase by phase. It costs the same for eight ranks and for a
//! million.

use fabric::{Fabric, NodeId, Routes};
use units::{Bytes, Rate, Span};

use super::route::Ways;
pub use super::route::path_latency;
use super::{Plan, Settings, constants, plan};
use crate::collective::{Ask, Collective, Communicator, Phase};

/// What keeps a collective from being faster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// The scale-up links of a GPU.
    ScaleUp,
    /// A NIC.
    Nic,
    /// The thread that posts messages to the NIC.
    Posting,
    /// What the library's channels move.
    Channels,
    /// Launch, hand-overs and pipeline filling.
    Latency,
}

/// A prediction and how it came about.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// From the launch to the end on the last rank.
    pub time: Span,
    /// What was chosen.
    pub plan: Plan,
    /// What limits it.
    pub limit: Limit,
}

impl Estimate {
    /// Algorithm bandwidth in bytes per second.
    pub fn algorithm_bandwidth(&self, bytes: Bytes) -> f64 {
        bytes.as_f64() / self.time.as_secs_f64()
    }
}

/// How long this collective takes on these ranks; `None` if nothing can run it.
pub fn estimate(
    fabric: &Fabric,
    communicator: &Communicator,
    collective: Collective,
    bytes: Bytes,
    settings: &Settings,
) -> Option<Estimate> {
    estimate_of(&Ask { fabric, communicator, collective, bytes, settings, weights: &[] })
}

/// The same where ranks may get or send more than others.
pub fn estimate_of(ask: &Ask<'_>) -> Option<Estimate> {
    let plan = plan(ask)?;
    if ask.communicator.ranks() == 1 {
        return Some(Estimate { time: plan.launch, plan, limit: Limit::Latency });
    }
    let phases = plan.algorithm.phases(ask, &plan);
    let mut times = times(ask, &phases);
    // Where links behind the NICs are slower than these, the network's part takes longer.
    if let (Some(nic), Some(path)) = (ask.shape().nic_rate, path_rate(ask)) {
        let share = path.bytes_per_s() / nic.bytes_per_s();
        if share < 1.0 {
            let slower = phases.iter().map(|phase| Phase { nic: phase.nic / share, ..*phase });
            times = self::times(ask, &slower.collect::<Vec<_>>());
        }
    }
    let still = plan.launch.as_secs_f64() + times.latency_s + times.drain_s + times.answers_s;
    let moving = times.links_s + times.slowdown_s;
    let time = Span::from_secs_f64(still + moving);
    let limit = if moving < still { Limit::Latency } else { times.limit };
    Some(Estimate { time, plan, limit })
}

/// What the time would be, over what it is, if the library reached all of the scale-up links' raw
/// rate, and half of it, as where cards reach each other through their hosts' memory.
pub fn at_ends(
    fabric: &Fabric,
    communicator: &Communicator,
    collective: Collective,
    bytes: Bytes,
    settings: &Settings,
) -> Option<(f64, f64)> {
    let with = |share: f64| {
        let settings = Settings { scale_up_efficiency: Some(share), ..settings.clone() };
        let estimate = estimate(fabric, communicator, collective, bytes, &settings)?;
        Some(estimate.time.as_secs_f64())
    };
    let middle = with(settings.scale_up_share())?;
    Some((with(1.0)? / middle, with(0.5)? / middle))
}

/// The times of a collective's phases, added up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) latency_s: f64,
    pub(super) drain_s: f64,
    /// What the links need at their usable rate.
    pub(super) links_s: f64,
    /// What the software adds to that.
    pub(super) slowdown_s: f64,
    /// What waiting for answers adds to that.
    pub(super) answers_s: f64,
    limit: Limit,
}

pub(super) fn times(ask: &Ask<'_>, phases: &[Phase]) -> Times {
    let (shape, settings) = (ask.shape(), ask.settings);
    let mut times = Times {
        latency_s: 0.0,
        drain_s: 0.0,
        links_s: 0.0,
        slowdown_s: 0.0,
        answers_s: 0.0,
        limit: Limit::Latency,
    };
    let mut longest = 0.0;
    let efficiency =
        settings.scale_up_efficiency.unwrap_or(settings.architecture.scale_up_efficiency());
    let host_rate = settings.host_rate.map(|host| host.scaled(1.0 / settings.wire_efficiency));
    let nic_rate = match (shape.nic_rate, host_rate) {
        (Some(nic), Some(host)) => Some(nic.min(host)),
        (nic, _) => nic,
    };
    let round_trip_s = if 1 < shape.domains { Ways::of(ask).round_trip_s() } else { 0.0 };
    let over = |bytes: f64, rate: Option<Rate>, share: f64| match rate {
        Some(rate) if 0.0 < bytes => bytes / (rate.bytes_per_s() * share),
        _ => 0.0,
    };
    for phase in phases {
        let inside = over(phase.scale_up, shape.scale_up_rate, efficiency);
        let mesh = over(phase.mesh_link, shape.mesh_link_rate, efficiency);
        let nic = over(phase.nic, nic_rate, settings.wire_efficiency);
        // What fits the slots is sent without an answer.
        let rounds = ((phase.messages / phase.slots).ceil() - 1.0).max(0.0);
        let answers = rounds * phase.answer * round_trip_s;
        let posting = 1e-6 * phase.posts * constants::proxy_us(settings, shape, phase.protocol);
        let links = inside.max(mesh).max(nic);
        // What the software reaches is a share of the NIC, not of what its host keeps up with.
        let free = over(phase.nic, shape.nic_rate, settings.wire_efficiency);
        let slowed_nic = (free / phase.net_efficiency).max(nic);
        let slowed = (inside.max(mesh) / phase.efficiency).max(slowed_nic);
        let moving = slowed.max(posting).max(phase.channels_s);
        times.latency_s += phase.latency_s;
        times.answers_s += (answers - phase.overlap_s - moving).max(0.0);
        if let (Some(window), Some(line)) = (settings.window, nic_rate) {
            let line = line.bytes_per_s() * settings.wire_efficiency;
            let least = window.least_s(phase.first_message, 0.0, round_trip_s, line);
            // Who moves more slowly than the line waits less for its window.
            let anyway = phase.first_message * moving / phase.nic.max(phase.first_message).max(1.0);
            times.answers_s += phase.new_connections * (least - anyway).max(0.0);
        }
        times.drain_s += phase.drain_s;
        times.links_s += links;
        times.slowdown_s += moving - links;
        if longest < moving {
            longest = moving;
            times.limit = match () {
                () if slowed.max(phase.channels_s) < posting => Limit::Posting,
                () if slowed < phase.channels_s => Limit::Channels,
                () if inside.max(mesh) / phase.efficiency <= slowed_nic => Limit::Nic,
                () => Limit::ScaleUp,
            };
        }
    }
    times
}

/// The slowest link on the way from the first domain to the next, the one half-way and the last.
fn path_rate(ask: &Ask<'_>) -> Option<Rate> {
    let Ask { fabric, communicator, .. } = *ask;
    let domains = communicator.domains();
    let from = *communicator.rails(0).first()?;
    let ports = |nic: NodeId| fabric.ports(nic).len().max(1) as u64;
    let mut routes = Routes::of(fabric);
    let mut slowest: Option<Rate> = None;
    for other in [1, domains / 2, domains - 1] {
        if other == 0 || domains <= other {
            continue;
        }
        let to = *communicator.rails(other).first()?;
        let mut hops = Vec::new();
        let mut at = from;
        while at != to {
            routes.next_hops(fabric, at, to, &mut hops);
            let link = *hops.first()?;
            // A NIC spreads over its ports, and so over as many ways.
            let rate = fabric.health().rate(fabric, link).as_bps() * ports(from);
            let rate = Rate::from_bps(rate);
            slowest = Some(slowest.map_or(rate, |known| known.min(rate)));
            at = fabric.links()[link].to;
        }
    }
    slowest
}
