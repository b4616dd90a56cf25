//! Faults at given times: links and switches that fail, flap, lose packets or run slow.
//!
//! A scenario names what is hit as people name it (see [`naming`](crate::naming)); [`Faults`] is
//! the same on one fabric. Engines ask two things: when does something change next, and what is the
//! state then. Nothing is stored per flap, so that a link that flaps for hours costs as much as one
//! that fails once. Where faults meet on one link, it is down if any of them takes it down, its
//! rate is the lowest, and its losses add up as independent ones do.
//!
//! Whether routes follow a failure at once or only after a while is a matter of the engine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Rate, Span, Time};

use crate::graph::{Fabric, Link, LinkId, NodeId, NodeKind, RATES};
use crate::naming::{self, UnknownName};
use crate::routes::Health;
use crate::topology::ConfigError;

/// A fault at a given time.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FaultConfig {
    /// When it begins, from the start of the run.
    #[serde(default)]
    pub at: Span,
    /// When it ends; without this and `for`, never.
    #[serde(default)]
    pub until: Option<Span>,
    /// How long it lasts, instead of `until`.
    #[serde(default, rename = "for")]
    pub lasting: Option<Span>,
    /// What is hit, by name: `"leaf 3 - spine 5"` is all cables between the two, `"leaf 3 - spine 5
    /// (2)"` one of them, `"spine 5"`, `"NIC 17"`; `*` stands for any.
    pub on: String,
    /// What happens to it.
    pub what: FaultKind,
}

impl FaultConfig {
    /// Whether it begins or ends within a run, comes and goes, or hits computation: a clock is
    /// needed to show it.
    pub fn comes_or_goes(&self) -> bool {
        let ends = self.until.is_some() || self.lasting.is_some();
        let needs = matches!(self.what, FaultKind::Flap { .. }) || self.what.hits_computation();
        self.at != Span::ZERO || ends || needs
    }
}

/// What happens to a link, a switch or a NIC.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultKind {
    /// The link carries nothing, in both directions.
    LinkDown,
    /// All links of the switch carry nothing.
    SwitchDown,
    /// The switch restarts: all its links carry nothing while it does, then all work again.
    SwitchRestart,
    /// The link goes down and comes back again and again.
    Flap {
        /// From one time that it goes down to the next.
        period: Span,
        /// How long it stays down each time; without it, half of the period.
        #[serde(default)]
        down: Option<Span>,
    },
    /// The link loses packets and says nothing.
    Grey {
        /// The share of packets that is lost.
        #[serde(default)]
        loss: f64,
        /// The share of bits that is wrong; a packet with a wrong bit is lost.
        #[serde(default)]
        bit_error_rate: f64,
    },
    /// The link runs below its rate, in both directions.
    Degraded {
        /// The rate that is left.
        rate: Rate,
    },
    /// The NIC takes packets off the wire more slowly than they come, and pauses its leaf.
    SlowReceiver {
        /// What it can take.
        rate: Rate,
    },
    /// The NIC pauses its leaf all the time, though it has nothing to receive.
    PauseStorm,
    /// The NIC moves less than its ports could, each way and all ports together: a PCIe link that
    /// came up with half of its lanes.
    SlowNic {
        /// What it still moves.
        rate: Rate,
    },
    /// The GPU computes more slowly: heat, a power limit, a bad clock.
    SlowGpu {
        /// The share of its speed that is left; 0.5 means that kernels take twice as long.
        speed: f64,
    },
    /// The GPU is lost, with what it holds: its job ends, and goes on from its last checkpoint.
    GpuDown,
    /// The server is lost, with its GPUs and NICs.
    ServerDown,
}

/// What becomes of the queue pairs of a NIC's port that goes down, where it has others.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failover {
    /// The NIC bonds its ports: once the routes follow, the other port carries them, with the
    /// numbers and state that they have (Alibaba HPN's non-stacked dual ToR, SIGCOMM'24).
    #[default]
    Bond,
    /// The communication library moves what was posted to queue pairs of another port, once those
    /// of the dead one have used up their retries (NCCL's `NCCL_IB_RESILIENCY_PORT_FAILOVER`, which
    /// is off by default).
    Library,
    /// They stay where they are and wait for their port, until they have used up their retries.
    None,
}

impl FaultKind {
    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::LinkDown => "link-down",
            Self::SwitchDown => "switch-down",
            Self::SwitchRestart => "switch-restart",
            Self::Flap { .. } => "flap",
            Self::Grey { .. } => "grey",
            Self::Degraded { .. } => "degraded",
            Self::SlowReceiver { .. } => "slow-receiver",
            Self::PauseStorm => "pause-storm",
            Self::SlowNic { .. } => "slow-nic",
            Self::SlowGpu { .. } => "slow-gpu",
            Self::GpuDown => "gpu-down",
            Self::ServerDown => "server-down",
        }
    }

    /// Whether computation is what it hits: only a job shows it.
    pub fn hits_computation(self) -> bool {
        matches!(self, Self::SlowGpu { .. } | Self::GpuDown | Self::ServerDown)
    }

    /// Whether it takes what a job holds in memory, so that the job ends.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::GpuDown | Self::ServerDown)
    }
}

impl Ranged for FaultConfig {
    fn ranges(&self, check: &mut Ranges) {
        match self.what {
            FaultKind::Degraded { rate }
            | FaultKind::SlowReceiver { rate }
            | FaultKind::SlowNic { rate } => check.within("what.rate", rate, RATES),
            FaultKind::SlowGpu { speed } => check.within("what.speed", speed, [1e-3, 1.0]),
            _ => {}
        }
    }
}

/// A fault on a fabric.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What was named.
    pub name: String,
    /// What happens.
    pub kind: FaultKind,
    /// When it begins.
    pub at: Time,
    /// When it ends; [`Time::MAX`] for never.
    pub until: Time,
    /// The links that are hit, both directions of each, in order of their ids.
    pub links: Vec<LinkId>,
    /// The nodes that are hit, if nodes were named.
    pub nodes: Vec<NodeId>,
}

impl Fault {
    /// Whether it shows at this instant: from its beginning up to, not including, its end.
    pub fn is_on(&self, now: Time) -> bool {
        if now < self.at || self.until <= now {
            return false;
        }
        match self.kind {
            FaultKind::Flap { period, down } => {
                let into = now.since(self.at).as_ps() % period.as_ps();
                into < down.unwrap_or(period / 2).as_ps()
            }
            _ => true,
        }
    }

    /// The next instant after `now` at which it may change.
    pub fn next_change(&self, now: Time) -> Option<Time> {
        if now < self.at {
            return Some(self.at);
        }
        let end = (self.until != Time::MAX && now < self.until).then_some(self.until);
        let FaultKind::Flap { period, down } = self.kind else { return end };
        if self.until <= now {
            return None;
        }
        let whole = now.since(self.at).as_ps() / period.as_ps();
        let begun = self.at + period * whole;
        let back = later(begun, down.unwrap_or(period / 2));
        let next = if now < back { back } else { later(begun, period) };
        Some(end.map_or(next, |end| end.min(next)))
    }

    fn takes_down(&self) -> bool {
        matches!(
            self.kind,
            FaultKind::LinkDown
                | FaultKind::SwitchDown
                | FaultKind::SwitchRestart
                | FaultKind::Flap { .. }
                | FaultKind::GpuDown
                | FaultKind::ServerDown
        )
    }

    /// What is hit as it was named, and how many cables that are where a name means several.
    pub fn title(&self) -> String {
        match self.links.len() / 2 {
            cables if 1 < cables && self.nodes.is_empty() => {
                format!("{} ({cables} cables)", self.name)
            }
            _ => self.name.clone(),
        }
    }

    /// Since when it shows, if it does at this instant.
    pub fn since(&self, now: Time) -> Option<Time> {
        let whole = match self.kind {
            FaultKind::Flap { period, .. } => {
                period * (now.since(self.at.min(now)).as_ps() / period.as_ps())
            }
            _ => Span::ZERO,
        };
        self.is_on(now).then(|| self.at + whole)
    }

    fn hits(&self, link: LinkId) -> bool {
        self.links.binary_search(&link).is_ok()
    }
}

/// All faults of a run, on one fabric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    faults: Vec<Fault>,
    base: Health,
}

impl Faults {
    /// Finds what the scenario names. `path` is where the list stands in it. The fabric's own
    /// [`health`](Fabric::health) holds all the time.
    pub fn new(
        fabric: &Fabric,
        configs: &[FaultConfig],
        path: &str,
    ) -> Result<Self, Vec<ConfigError>> {
        let mut faults = Vec::new();
        let mut errors = Vec::new();
        for (number, config) in configs.iter().enumerate() {
            match resolve(fabric, config) {
                Ok(fault) => faults.push(fault),
                Err((key, wrong)) => errors.push(ConfigError {
                    path: format!("{path}.{number}.{key}"),
                    reason: wrong.reason,
                    suggestion: Some(wrong.suggestion).filter(|text| !text.is_empty()),
                }),
            }
        }
        if errors.is_empty() {
            Ok(Self { faults, base: fabric.health().clone() })
        } else {
            Err(errors)
        }
    }

    /// All of them, in the order of the scenario.
    pub fn all(&self) -> &[Fault] {
        &self.faults
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// The next instant after `now` at which anything may change.
    pub fn next_change(&self, now: Time) -> Option<Time> {
        self.faults.iter().filter_map(|fault| fault.next_change(now)).min()
    }

    /// Those that show at this instant.
    pub fn on(&self, now: Time) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| fault.is_on(now))
    }

    /// What is down or slow at this instant.
    pub fn health(&self, fabric: &Fabric, now: Time) -> Health {
        let mut health = self.base.clone();
        for fault in self.on(now) {
            for &link in &fault.links {
                match fault.kind {
                    FaultKind::Degraded { rate } => {
                        health.degrade(link, rate.min(health.rate(fabric, link)));
                    }
                    FaultKind::SlowNic { rate } => {
                        let Link { from, to, .. } = fabric.links()[link];
                        let nic = if fault.nodes.contains(&from) { from } else { to };
                        let each = rate.scaled(1.0 / fabric.ports(nic).len().max(1) as f64);
                        health.degrade(link, each.min(health.rate(fabric, link)));
                    }
                    _ if fault.takes_down() => health.fail(link),
                    _ => {}
                }
            }
        }
        health
    }

    /// What routes know of that: a port of a NIC that has others is left only after the time that
    /// its queue pairs take to move, or never.
    pub fn known(&self, fabric: &Fabric, now: Time, leave: Leave) -> Health {
        let mut health = self.health(fabric, now);
        if leave == Leave::AtOnce {
            return health;
        }
        let is_down = |fault: &&Fault| fault.takes_down();
        for fault in self.on(now).filter(is_down) {
            let since = fault.since(now).unwrap_or(now);
            let is_left = matches!(leave, Leave::After(span) if later(since, span) <= now);
            for &link in fault.links.iter().filter(|_| !is_left) {
                let Link { from, to, .. } = fabric.links()[link];
                let stays = |node: NodeId| {
                    fabric.nodes()[node].kind == NodeKind::Nic && 1 < fabric.ports(node).len()
                };
                if [from, to].into_iter().any(stays) {
                    health.restore(link);
                }
            }
        }
        health
    }

    /// When GPUs compute at which share of their speed: from, until, share. Those that are lost
    /// have none.
    pub fn paces(&self, gpus: &[NodeId]) -> Vec<(Time, Time, f64)> {
        let hit = self.faults.iter().filter(|fault| fault.nodes.iter().any(|n| gpus.contains(n)));
        let paces = hit.filter_map(|fault| match fault.kind {
            FaultKind::SlowGpu { speed } => Some((fault.at, fault.until, speed)),
            _ => None,
        });
        paces.collect()
    }

    /// The first fault that takes one of these GPUs.
    pub fn loss_of(&self, gpus: &[NodeId]) -> Option<&Fault> {
        let is_hit = |fault: &&Fault| fault.nodes.iter().any(|node| gpus.contains(node));
        let losses = self.faults.iter().filter(|fault| fault.kind.is_loss()).filter(is_hit);
        losses.min_by_key(|fault| fault.at)
    }

    /// The probability that a packet of this size is lost on a link at this instant.
    pub fn loss(&self, link: LinkId, packet: Bytes, now: Time) -> f64 {
        let mut kept = 1.0;
        for fault in self.on(now).filter(|fault| fault.hits(link)) {
            if let FaultKind::Grey { loss, bit_error_rate } = fault.kind {
                let whole = (-bit_error_rate).ln_1p() * packet.as_f64() * 8.0;
                kept *= (1.0 - loss) * whole.exp();
            }
        }
        1.0 - kept
    }

    /// What a NIC can take off the wire at this instant: nothing less than everything if `None`.
    pub fn receive_rate(&self, nic: NodeId, now: Time) -> Option<Rate> {
        let rates = self.on(now).filter(|fault| fault.nodes.contains(&nic));
        let rates = rates.filter_map(|fault| match fault.kind {
            FaultKind::SlowReceiver { rate } => Some(rate),
            _ => None,
        });
        rates.min()
    }

    /// Whether a NIC pauses its leaf all the time at this instant.
    pub fn is_storming(&self, nic: NodeId, now: Time) -> bool {
        let storm = |fault: &Fault| fault.kind == FaultKind::PauseStorm;
        self.on(now).any(|fault| storm(fault) && fault.nodes.contains(&nic))
    }
}

/// When queue pairs leave a dead port for another of their NIC.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Leave {
    /// When the routes do.
    #[default]
    AtOnce,
    /// So long after it died.
    After(Span),
    /// Not at all.
    Never,
}

impl Failover {
    /// When queue pairs leave a dead port, if they take so long to use up their retries.
    pub fn leave(self, retries: Span) -> Leave {
        match self {
            Self::Bond => Leave::AtOnce,
            // The probe that asks the receiver what it has goes out 10 ms after the error
            // (`NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY`; nccl, net_ib/p2p_resiliency.cc).
            Self::Library => Leave::After(retries + Span::from_ms(10)),
            Self::None => Leave::Never,
        }
    }
}

/// The instant so much later, or the last one there is.
fn later(at: Time, span: Span) -> Time {
    Time::from_ps(at.as_ps().saturating_add(span.as_ps()))
}

/// What is wrong with a key of a fault.
type FaultKeyError = (&'static str, UnknownName);

fn wrong(key: &'static str, reason: String, suggestion: &str) -> FaultKeyError {
    (key, UnknownName { reason, suggestion: suggestion.to_owned() })
}

fn resolve(fabric: &Fabric, config: &FaultConfig) -> Result<Fault, FaultKeyError> {
    let at = Time::ZERO + config.at;
    let until = match (config.until, config.lasting) {
        (Some(_), Some(_)) => {
            return Err(wrong("for", "`until` and `for` both say when it ends".to_owned(), ""));
        }
        (Some(until), None) => Time::ZERO + until,
        // Longer than any run is never.
        (None, Some(lasting)) => later(at, lasting),
        (None, None) => Time::MAX,
    };
    if until <= at {
        return Err(wrong("until", "it ends before it begins".to_owned(), ""));
    }
    check_kind(config.what, until)?;
    let nodes = naming::nodes(fabric, &config.on).unwrap_or_default();
    let are = |kinds: &[NodeKind]| {
        !nodes.is_empty() && nodes.iter().all(|node| kinds.contains(&fabric.nodes()[*node].kind))
    };
    let wants = match config.what {
        FaultKind::SwitchDown | FaultKind::SwitchRestart => {
            Some(("a switch", &[NodeKind::Switch, NodeKind::ScaleUpSwitch][..]))
        }
        FaultKind::SlowReceiver { .. } | FaultKind::PauseStorm | FaultKind::SlowNic { .. } => {
            Some(("a NIC", &[NodeKind::Nic, NodeKind::FrontEndNic][..]))
        }
        FaultKind::SlowGpu { .. } | FaultKind::GpuDown => Some(("a GPU", &[NodeKind::Gpu][..])),
        FaultKind::ServerDown => {
            Some(("a server", &[NodeKind::Gpu, NodeKind::Nic, NodeKind::FrontEndNic][..]))
        }
        _ => None,
    };
    let links = naming::links(fabric, &config.on).map_err(|unknown| ("on", unknown))?;
    let no_server = config.what == FaultKind::ServerDown && !naming::is_server(&config.on);
    if let Some((what, kinds)) = wants.filter(|(_, kinds)| !are(kinds) || no_server) {
        let reason = format!("`{}` hits {what}, which `{}` is not", config.what.name(), config.on);
        let example = match kinds[0] {
            NodeKind::Nic => "NIC 0".to_owned(),
            NodeKind::Gpu if what == "a server" => "server 0".to_owned(),
            NodeKind::Gpu => "GPU 0".to_owned(),
            _ => fabric.leaves().first().map(|leaf| fabric.name(*leaf)).unwrap_or_default(),
        };
        return Err(wrong("on", reason, &example));
    }
    Ok(Fault { name: config.on.clone(), kind: config.what, at, until, links, nodes })
}

fn check_kind(kind: FaultKind, until: Time) -> Result<(), FaultKeyError> {
    match kind {
        FaultKind::Flap { period, down } => {
            let down = down.unwrap_or(period / 2);
            if down == Span::ZERO || period <= down {
                let reason = format!("down for {down} of every {period}");
                return Err(wrong("what", reason, "a `down` above 0 and below `period`"));
            }
        }
        FaultKind::Grey { loss, bit_error_rate } => {
            for share in [loss, bit_error_rate] {
                if !(0.0..=1.0).contains(&share) {
                    let reason = format!("{share} is not a share from 0 to 1");
                    return Err(wrong("what", reason, "loss = 1e-3"));
                }
            }
            if loss == 0.0 && bit_error_rate == 0.0 {
                let reason = "a grey link that loses nothing".to_owned();
                return Err(wrong("what", reason, "loss = 1e-3"));
            }
        }
        FaultKind::SwitchRestart if until == Time::MAX => {
            let reason = "a restart that never ends is `switch-down`".to_owned();
            return Err(wrong("for", reason, "for = \"90s\""));
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Catalogue;
    use crate::topology::{ClusterConfig, FabricConfig, TopologyKind, build};

    fn fabric() -> Fabric {
        let config =
            FabricConfig { topology: TopologyKind::FatTree, k: Some(4), ..Default::default() };
        build(&ClusterConfig::default(), &config, &Catalogue::default()).unwrap()
    }

    fn fault(on: &str, what: FaultKind, at: Span, lasting: Option<Span>) -> FaultConfig {
        FaultConfig { at, until: None, lasting, on: on.to_owned(), what }
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn a_switch_takes_its_links_down_and_gives_them_back() {
        let fabric = fabric();
        let restart = FaultKind::SwitchRestart;
        let config = fault("core 1", restart, Span::from_ms(5), Some(Span::from_ms(10)));
        let faults = Faults::new(&fabric, &[config], "faults").unwrap();
        assert_eq!(faults.all()[0].links.len(), 8);
        assert!(!faults.health(&fabric, ms(4)).has_failures());
        assert!(faults.health(&fabric, ms(5)).is_down(faults.all()[0].links[0]));
        assert!(!faults.health(&fabric, ms(15)).has_failures());
        assert_eq!(faults.next_change(ms(0)), Some(ms(5)));
        assert_eq!(faults.next_change(ms(5)), Some(ms(15)));
        assert_eq!(faults.next_change(ms(15)), None);
    }

    /// One cable of a bundle has a number, which names of links print and names of faults take.
    #[test]
    fn one_cable_of_several_is_named_by_its_number() {
        let config = FabricConfig {
            topology: TopologyKind::Clos,
            tiers: Some(2),
            uplinks: vec![4],
            spines: Some(2),
            ..Default::default()
        };
        let cluster = ClusterConfig { gpus: Some(32), ..Default::default() };
        let fabric = build(&cluster, &config, &Catalogue::default()).unwrap();
        let named = |on: &str| {
            let config = fault(on, FaultKind::LinkDown, Span::ZERO, None);
            Faults::new(&fabric, &[config], "faults").map(|faults| faults.all()[0].clone())
        };
        let bundle = named("leaf 0 - spine 0").unwrap();
        assert_eq!(bundle.links.len(), 4);
        assert_eq!(bundle.title(), "leaf 0 - spine 0 (2 cables)");
        let names = [1, 2].map(|number| format!("leaf 0 - spine 0 ({number})"));
        let [first, second] = names.map(|name| named(&name).unwrap());
        assert_eq!(second.title(), second.name);
        let both = [first.links.clone(), second.links.clone()].concat();
        assert_eq!(both, bundle.links);
        let [up, down] = second.links[..] else { panic!("a cable has two links") };
        assert_eq!(fabric.link_name(up), "leaf 0 → spine 0 (2)");
        assert_eq!(fabric.link_name(down), "spine 0 → leaf 0 (2)");
        assert_eq!(named(&fabric.link_name(down)).unwrap().links, second.links);
        let told = named("leaf 0 - spine 0 (3)").unwrap_err()[0].to_string();
        let there = "no cable is `leaf 0 - spine 0 (3)`: there are 2 (try leaf 0 → spine 0 (2))";
        assert_eq!(told, format!("faults.0.on: {there}"));
    }

    /// Property: between two changes nothing changes.
    #[test]
    fn changes_of_a_flap_are_all_announced() {
        let fabric = fabric();
        let flap = FaultKind::Flap { period: Span::from_ms(10), down: Some(Span::from_ms(3)) };
        let on = "pod 0 edge 0 - pod 0 aggregation 1";
        let config = fault(on, flap, Span::from_ms(2), Some(Span::from_ms(25)));
        let faults = Faults::new(&fabric, &[config], "faults").unwrap();
        let mut changes = vec![Time::ZERO];
        while let Some(next) = faults.next_change(changes[changes.len() - 1]) {
            changes.push(next);
        }
        assert_eq!(changes, [0, 2, 5, 12, 15, 22, 25, 27].map(ms));
        let down: Vec<bool> =
            (0..30).map(|at| faults.health(&fabric, ms(at)).has_failures()).collect();
        for at in 1..30 {
            let changed = down[at] != down[at - 1];
            assert!(!changed || changes.contains(&ms(at as u64)), "at {at} ms");
        }
        assert_eq!(down.iter().filter(|down| **down).count(), 9);
    }

    /// Oracle: 4,096 bytes at a bit error rate of 10⁻⁶ survive with (1 − 10⁻⁶)^32768.
    #[test]
    fn losses_of_grey_links_add_up_as_independent_ones() {
        let fabric = fabric();
        let bits = FaultKind::Grey { loss: 0.0, bit_error_rate: 1e-6 };
        let packets = FaultKind::Grey { loss: 0.1, bit_error_rate: 0.0 };
        let configs = [
            fault("NIC 3", bits, Span::ZERO, None),
            fault("NIC 3", packets, Span::from_ms(1), None),
        ];
        let faults = Faults::new(&fabric, &configs, "faults").unwrap();
        let link = fabric.ports(fabric.nic(3))[0];
        let survives = (1.0_f64 - 1e-6).powi(32_768);
        let loss = |now| faults.loss(link, Bytes::new(4_096), now);
        assert!((loss(ms(0)) - (1.0 - survives)).abs() < 1e-12);
        assert!((loss(ms(1)) - (1.0 - 0.9 * survives)).abs() < 1e-12);
        assert_eq!(faults.loss(fabric.ports(fabric.nic(4))[0], Bytes::new(4_096), ms(1)), 0.0);
    }

    #[test]
    fn slow_and_storming_nics_are_told_apart() {
        let fabric = fabric();
        let slow = FaultKind::SlowReceiver { rate: Rate::from_gbps(100) };
        let configs = [
            fault("NIC 0", slow, Span::ZERO, None),
            fault("NIC 1", FaultKind::PauseStorm, Span::ZERO, None),
            fault("NIC 2", FaultKind::Degraded { rate: Rate::from_gbps(25) }, Span::ZERO, None),
        ];
        let faults = Faults::new(&fabric, &configs, "faults").unwrap();
        let nics = [0, 1, 2].map(|number| fabric.nic(number));
        let rates = nics.map(|nic| faults.receive_rate(nic, ms(0)));
        assert_eq!(rates, [Some(Rate::from_gbps(100)), None, None]);
        assert_eq!(nics.map(|nic| faults.is_storming(nic, ms(0))), [false, true, false]);
        let health = faults.health(&fabric, ms(0));
        assert_eq!(health.rate(&fabric, fabric.ports(nics[2])[0]), Rate::from_gbps(25));
        assert!(!health.has_failures());
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let fabric = fabric();
        let told = |config: FaultConfig| {
            Faults::new(&fabric, &[config], "faults").unwrap_err()[0].to_string()
        };
        assert_eq!(
            told(fault("core 9", FaultKind::SwitchDown, Span::ZERO, None)),
            "faults.0.on: nothing is called `core 9` (try core 0)"
        );
        assert_eq!(
            told(fault("pod 0 edge 0 - core 1", FaultKind::LinkDown, Span::ZERO, None)),
            "faults.0.on: no cable is `pod 0 edge 0 - core 1` (try pod 0 edge 0 → NIC 0)"
        );
        assert_eq!(
            told(fault("core 0", FaultKind::PauseStorm, Span::ZERO, None)),
            "faults.0.on: `pause-storm` hits a NIC, which `core 0` is not (try NIC 0)"
        );
        assert_eq!(
            told(fault("core 0", FaultKind::SwitchRestart, Span::ZERO, None)),
            "faults.0.for: a restart that never ends is `switch-down` (try for = \"90s\")"
        );
        let flap = FaultKind::Flap { period: Span::from_ms(1), down: Some(Span::from_ms(2)) };
        assert!(
            told(fault("core 0", flap, Span::ZERO, None)).contains("down for 2ms of every 1ms")
        );
    }
}
