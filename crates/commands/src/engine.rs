//! The three engines behind one door: transfers in, an outcome out, whatever computes it.
//!
//! All of them take their settings from the same scenario, so that where they differ, the models
//! differ and not the inputs. Which engine it is matters here alone: everybody else asks for a
//! property ([`Engine::moves_packets`], [`Engine::has_contention`], …).

use std::borrow::Cow;

use fabric::fault::{Faults, Leave};
use fabric::graph::LinkKind;
use fabric::hardware::Reorder;
use fabric::routing::Spread;
use fabric::transport::Transport;
use fabric::{Fabric, LinkId};
use flowsim::CongestionRates;
use packetsim::buffer::EcnConfig;
use packetsim::cc::CcConfig;
use packetsim::nic::AfterIdle;
use packetsim::tap::{Capture, Tape, Taped};
pub use scenario::Engine;
use scenario::Loaded;
use step::network::{EngineContext, Unserved};
use traffic::collective::{self, Detail, Group, Limit, Lowered, Unlowered, Wanted};
use traffic::nccl::{self, Architecture, Plugin};
use traffic::{NotRun, OpId, Outcome, Transfers, Window};
use units::{Bytes, Rate, Span, Time};

use crate::bounds::{self, Bounds};
use crate::failure::Failure;
use crate::packets::{Budget, Patience};
use crate::series::{self, Series};

/// So many operations are written out for flows at most: what takes them some seconds.
const MOST_FOR_FLOWS: usize = 4_000_000;

/// The most operations that collectives may be written out to for an engine.
pub fn most_operations(engine: Engine, detail: Detail, patience: Patience) -> usize {
    match detail {
        // What is folded is few operations, however many messages it stands for.
        Detail::Folded => usize::MAX,
        Detail::Stepwise if engine.moves_packets() => patience.most_operations(),
        Detail::Stepwise => patience.most_operations().min(MOST_FOR_FLOWS),
    }
}

/// Whether something was too much to be written out, and may be folded instead.
pub fn may_fold(engine: Engine, reason: &Unlowered) -> bool {
    !engine.moves_packets() && matches!(reason, Unlowered::TooManyOperations { .. })
}

/// Writes a collective as finely as `wanted` says, or folded where that is too much for flows.
pub fn lower(
    (fabric, engine): (&Fabric, Engine),
    group: &mut Group,
    wanted: &Wanted<'_>,
    transfers: &mut Transfers,
    after: &[OpId],
) -> Result<Lowered, Unlowered> {
    match collective::lower(fabric, group, wanted, transfers, after) {
        Err(reason) if wanted.detail == Detail::Stepwise && may_fold(engine, &reason) => {
            let folded = Wanted { detail: Detail::Folded, limit: Limit::NONE, ..*wanted };
            collective::lower(fabric, group, &folded, transfers, after)
        }
        lowered => lowered,
    }
}

/// How finely collectives are written out: where queue pairs have rates of their own, message by
/// message, because what they send at once is what fills queues.
pub fn detail(loaded: &Loaded, engine: Engine) -> Detail {
    match engine {
        Engine::Flow if steps_control(loaded) => Detail::Stepwise,
        _ => engine.detail(),
    }
}

/// Runs something with collectives written out as finely as the engine wants, and folded where that
/// is too much for flows.
pub fn finely<T>(
    loaded: &Loaded,
    engine: Engine,
    run: &mut dyn FnMut(Detail) -> Result<T, Unserved>,
) -> Result<T, Unserved> {
    let detail = detail(loaded, engine);
    match run(detail) {
        ran if detail == engine.detail() => ran,
        Err(Unserved::Unlowered(_, reason)) if may_fold(engine, &reason) => run(engine.detail()),
        Err(Unserved::TooLong(_)) => run(engine.detail()),
        ran => ran,
    }
}

/// Refuses to measure over time what an engine does not know.
pub fn refuse_series(engine: Engine, options: &series::Options) -> Result<(), Failure> {
    let reason = match engine {
        Engine::Analytic => {
            "nothing happens over time in closed forms; `--engine flow` knows what links carry, \
             `--engine packet` queues, pauses and marks too"
        }
        Engine::Flow if !options.queue_pairs.is_empty() => {
            "flows know what links carry over time; --series-pairs is for packets"
        }
        Engine::Flow | Engine::Packet => return Ok(()),
    };
    Err(Failure::Usage(reason.to_owned()))
}

/// What an engine knows of a fabric besides its links, for telling causes apart.
pub fn beside(loaded: &Loaded, fabric: &Fabric, engine: Engine) -> EngineContext {
    let settings = loaded.settings();
    let spreads = || settings.routing.build(fabric, loaded.scenario.seed).spread(Bytes::MAX);
    let in_order = settings.nic.reorder == Reorder::None && !settings.scheduled.enabled;
    EngineContext {
        faults: (!loaded.faults.is_empty()).then(|| loaded.faults.health(fabric, Time::ZERO)),
        reorders: in_order && spreads() != Spread::One,
        counts_frames: engine.moves_packets(),
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
            // A scheduled fabric keeps the order of a queue pair's packets.
            Reorder::None if !settings.scheduled.enabled => flowsim::Receiver::GoBackN,
            _ => flowsim::Receiver::AnyOrder,
        },
        nic_latency: (nic.send_latency + nic.receive_latency) / 2,
        scale_up_efficiency: library
            .scale_up_efficiency
            .unwrap_or(library.architecture.scale_up_efficiency()),
        window: library.window,
        host_rate: library.host_rate,
        queue_pairs: nic.queue_pair_cost(),
    };
    flowsim::Settings {
        routing: settings.routing.clone(),
        flow: loaded.scenario.network.flow.clone(),
        wire,
        faults: loaded.faults.clone(),
        leave: nic.leave(),
        // Where the library moves queue pairs, those give up that it could not move.
        give_up: loaded.job.is_some().then(|| match nic.leave() {
            Leave::After(span) => span + Span::from_ms(1),
            Leave::AtOnce | Leave::Never => nic.give_up(),
        }),
        resend: Some(flowsim::Resend {
            timeout: nic.timeout,
            retries: nic.retries,
            buffer: library.buffer,
        }),
        control: control(loaded),
        parts: loaded.parts(),
        background: Vec::new(),
        free: None,
        seed: loaded.scenario.seed,
    }
}

/// Whether flows step the state machine of congestion control.
pub fn steps_control(loaded: &Loaded) -> bool {
    control(loaded).is_some()
}

/// Whether flows leave congestion control out: they share links evenly at every instant.
pub fn leaves_control_out(loaded: &Loaded, engine: Engine) -> bool {
    engine == Engine::Flow && !steps_control(loaded)
}

/// What flows step of congestion control, where they are asked to.
fn control(loaded: &Loaded) -> Option<flowsim::Control> {
    if loaded.scenario.network.flow.congestion == CongestionRates::Fair {
        return None;
    }
    let settings = loaded.settings();
    let CcConfig::Dcqcn(dcqcn) = &settings.congestion else { return None };
    let (ecn, nic) = (&settings.ecn, &settings.nic);
    let marks = |ecn: &EcnConfig| flowsim::Marks {
        from: if ecn.enabled { ecn.min } else { Bytes::MAX },
        all: if ecn.enabled { ecn.max } else { Bytes::MAX },
        probability: ecn.probability,
    };
    let tiers = (0..).zip(loaded.fabric().tiers());
    let own = tiers.filter_map(|(at, tier)| Some((at, settings.ecn_of_tier.get(&tier.name)?)));
    Some(flowsim::Control {
        dcqcn: dcqcn.clone(),
        marks_of_tier: own.map(|(at, ecn)| (at, marks(ecn))).collect(),
        marks: marks(ecn),
        restart_after: (nic.after_idle == AfterIdle::Restart).then_some(nic.idle_reset),
    })
}

/// The fabric as packets need it: with the gateways between its parts, where not all speak alike.
fn with_gateways<'f>(loaded: &Loaded, fabric: &'f Fabric) -> Cow<'f, Fabric> {
    let (nics, payload) = (loaded.scenario.network.transport, loaded.settings().packet.mtu);
    match loaded.parts() {
        None => Cow::Borrowed(fabric),
        Some(parts) => Cow::Owned(parts.laid_out(fabric, nics, payload)),
    }
}

/// The communication library's settings on this scenario's hardware.
pub fn library(loaded: &Loaded) -> nccl::Settings {
    let scenario = &loaded.scenario;
    let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu);
    let architecture = gpu.and_then(|gpu| Architecture::of_scale_up(&gpu.scale_up_name));
    let settings = loaded.settings();
    let library = scenario.library.clone();
    let architecture = architecture.unwrap_or(library.architecture);
    let card = scenario
        .catalogue
        .nic
        .get(&scenario.cluster.nic)
        .map(|card| Rate::from_bps_f64(1e9 * card.rate_gbps.value));
    let efa = (scenario.network.transport == Transport::Efa)
        .then(|| Plugin::of_efa(architecture, scenario.cluster.nic_rate.or(card)));
    let library = match library.plugin.or(efa) {
        Some(plugin) => library.with_plugin(plugin),
        None => library,
    };
    nccl::Settings {
        architecture,
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
    let (first, most) = settings.congestion.window()?;
    Some(Window { first: packets(first), most: packets(most) })
}

/// Refuses a run that would take too long or too much memory. How many events to expect; none
/// where nobody knows.
pub fn estimate(
    loaded: &Loaded,
    engine: Engine,
    transfers: &Transfers,
    budget: &mut Budget,
) -> Result<u64, Failure> {
    match engine {
        Engine::Packet => {
            let estimate = budget.check(loaded.fabric(), transfers, &loaded.settings())?;
            Ok(estimate.events)
        }
        Engine::Analytic | Engine::Flow => match budget.patience() {
            Patience::Usual => refuse_slow(loaded, engine, transfers).map(|()| 0),
            Patience::Endless => Ok(0),
        },
    }
}

/// How many events a run will take; none where nobody knows.
pub fn events(loaded: &Loaded, fabric: &Fabric, engine: Engine, transfers: &Transfers) -> u64 {
    match engine {
        Engine::Analytic | Engine::Flow => 0,
        Engine::Packet => packetsim::estimate(fabric, transfers, &loaded.settings()).events,
    }
}

/// What a run will cost, by its engine's own estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Seconds of one core.
    pub seconds: f64,
    /// Bytes of memory.
    pub memory: u64,
}

impl Cost {
    /// What two runs cost, one after the other.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        Self { seconds: self.seconds + next.seconds, memory: self.memory.max(next.memory) }
    }
}

/// What a run will cost.
pub fn cost(loaded: &Loaded, fabric: &Fabric, engine: Engine, transfers: &Transfers) -> Cost {
    match engine {
        Engine::Analytic => {
            let estimate = flowsim::estimate::of_closed_forms;
            let estimate = estimate(fabric, transfers, &flow_settings(loaded));
            Cost { seconds: estimate.seconds, memory: estimate.memory }
        }
        Engine::Flow => {
            let estimate = flowsim::estimate::estimate(fabric, transfers, &flow_settings(loaded));
            Cost { seconds: estimate.seconds, memory: estimate.memory }
        }
        Engine::Packet => {
            let estimate = packetsim::estimate(fabric, transfers, &loaded.settings());
            Cost { seconds: estimate.seconds, memory: estimate.memory }
        }
    }
}

fn refuse_slow(loaded: &Loaded, engine: Engine, transfers: &Transfers) -> Result<(), Failure> {
    let cost = cost(loaded, loaded.fabric(), engine, transfers);
    let Some(why) = bounds::refusal(cost) else { return Ok(()) };
    Err(Failure::Run(format!("this would take {why}; --force runs it all the same")))
}

/// Runs transfers on the scenario's fabric: what ran, or why nothing did. A run that somebody
/// stopped is an outcome too, in which not every operation has ended.
pub fn run(
    loaded: &Loaded,
    engine: Engine,
    transfers: &Transfers,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Outcome, NotRun> {
    run_on(loaded, loaded.fabric(), engine, transfers, watch)
}

/// The same on another fabric, for example one whose circuits are set differently.
pub fn run_on(
    loaded: &Loaded,
    fabric: &Fabric,
    engine: Engine,
    transfers: &Transfers,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Outcome, NotRun> {
    let bounds = Bounds::of_unasked(watch.is_patient);
    let bound = || bounds.left();
    let outcome = match engine {
        Engine::Analytic => {
            let settings = flow_settings(loaded);
            let ran = flowsim::analytic::run_within(fabric, transfers, &settings, Some(&bound));
            ran.map_err(NotRun::Refused)?
        }
        Engine::Flow => {
            let (settings, stop) = (flow_settings(loaded), watch.interrupt);
            let ran = flowsim::simulate_until(fabric, transfers, &settings, stop, Some(&bound));
            ran.map_err(NotRun::Refused)?.outcome
        }
        Engine::Packet => bounded(watch, |watch| {
            let (settings, faults) = (loaded.settings(), &loaded.faults);
            let fabric = &*with_gateways(loaded, fabric);
            let ran = match watch.tape.take() {
                None => packetsim::run_with_faults(fabric, transfers, &settings, faults, watch),
                Some(mut tape) => {
                    let ran = taped(fabric, transfers, (&settings, faults), &mut tape, watch);
                    watch.tape = Some(tape);
                    ran
                }
            };
            ran.map_err(|refusal| NotRun::Refused(refusal.to_string()))
        })?,
    };
    within_the_clock(outcome)
}

/// Holds a run of packets to what it may take.
fn bounded<R>(
    watch: &mut packetsim::Watch<'_>,
    run: impl FnOnce(&mut packetsim::Watch<'_>) -> R,
) -> R {
    let bounds = Bounds::new(watch.is_patient);
    watch.bound = Some(Box::new(move || bounds.left()));
    let ran = run(watch);
    watch.bound = None;
    ran
}

/// Runs packets, and puts what a tap saw of them on a tape.
fn taped(
    fabric: &Fabric,
    transfers: &Transfers,
    (settings, faults): (&packetsim::Settings, &Faults),
    tape: &mut Tape,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Outcome, packetsim::Refusal> {
    let wanted = (&Default::default(), Some(tape.left()));
    let ran = packetsim::run_recorded(fabric, transfers, settings, faults, wanted, watch);
    let (outcome, recording) = ran?;
    let first = transfers.ops().iter().next();
    let what = first.map_or("", |op| transfers.label_text(op.label)).to_owned();
    let (lasted, sent) = (outcome.elapsed(), outcome.counters.packets);
    tape.add(Taped { what, capture: recording.capture.unwrap_or_default(), lasted, sent });
    Ok(outcome)
}

/// Refuses what took so long that the clock could not count it.
fn within_the_clock(outcome: Outcome) -> Result<Outcome, NotRun> {
    if outcome.makespan() < Span::MAX {
        return Ok(outcome);
    }
    let days = (Span::MAX.as_secs_f64() / 86_400.0).floor();
    let reason = format!("it takes longer than the {days} days that the clock counts");
    Err(NotRun::Refused(reason))
}

/// The same, or nothing if somebody stops it: half a phase says nothing of the whole.
pub fn run_whole(
    loaded: &Loaded,
    fabric: &Fabric,
    engine: Engine,
    transfers: &Transfers,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Outcome, NotRun> {
    let outcome = run_on(loaded, fabric, engine, transfers, watch)?;
    if watch.is_interrupted() { Err(NotRun::Interrupted) } else { Ok(outcome) }
}

/// The same where one link is free, on engines that repeat steps.
pub fn run_freed(
    loaded: &Loaded,
    fabric: &Fabric,
    engine: Engine,
    transfers: &Transfers,
    link: LinkId,
) -> Result<Outcome, NotRun> {
    if !engine.repeats_steps() {
        return Err(NotRun::Refused(format!("the {} engine frees no links", engine.name())));
    }
    let settings = flowsim::Settings { free: Some(link), ..flow_settings(loaded) };
    Ok(flowsim::run(fabric, transfers, &settings))
}

/// A run, and what its engine knows besides the outcome.
#[derive(Debug)]
pub struct Observed<'a> {
    /// What happened.
    pub outcome: Outcome,
    /// What was measured over time, if that was asked for.
    pub series: Option<Series>,
    /// The fluid's run without its outcome: paths, rates over time, and how exact it was.
    pub flows: Option<flowsim::Run<'a>>,
    /// The packets themselves, if they were asked for.
    pub capture: Option<Capture>,
}

/// Runs transfers on the scenario's fabric, and measures over time what was asked for; on packets
/// with so many bytes of the packets themselves.
pub fn observe<'a>(
    loaded: &'a Loaded,
    engine: Engine,
    transfers: &Transfers,
    (options, capture): (Option<&series::Options>, Option<Bytes>),
    watch: &mut packetsim::Watch<'_>,
) -> Result<Observed<'a>, Failure> {
    let (fabric, settings) = (loaded.fabric(), loaded.settings());
    let lanes = settings.credits.lanes;
    let measure = options.map(|options| options.config(fabric, lanes)).transpose()?;
    match (engine, measure) {
        (Engine::Flow, _) => {
            let mut settings = flow_settings(loaded);
            settings.flow.points =
                options.map_or(settings.flow.points, |options| options.points(fabric));
            let (stop, bounds) = (watch.interrupt, Bounds::of_unasked(watch.is_patient));
            let bound = || bounds.left();
            let ran = flowsim::simulate_until(fabric, transfers, &settings, stop, Some(&bound));
            let mut run = ran.map_err(NotRun::Refused)?;
            let of_flows = |options| Series::of_flows(fabric, &run.series, &run.outcome, options);
            let series = options.map(of_flows).transpose()?;
            let outcome = within_the_clock(std::mem::take(&mut run.outcome))?;
            Ok(Observed { outcome, series, flows: Some(run), capture: None })
        }
        (Engine::Packet, measure) if measure.is_some() || capture.is_some() => {
            let pairs = packetsim::queue_pairs(fabric, transfers, &settings);
            options.map(|options| options.check_pairs(pairs)).transpose()?;
            let wanted = (&measure.unwrap_or_default(), capture);
            let fabric = &*with_gateways(loaded, fabric);
            let (faults, run) = (&loaded.faults, packetsim::run_recorded);
            let (outcome, mut recording) =
                bounded(watch, |watch| run(fabric, transfers, &settings, faults, wanted, watch))?;
            let series = options.map(|options| Series::of(fabric, &recording, options));
            Ok(Observed { outcome, series, flows: None, capture: recording.capture.take() })
        }
        (Engine::Analytic | Engine::Packet, _) => {
            let outcome = run(loaded, engine, transfers, watch)?;
            Ok(Observed { outcome, series: None, flows: None, capture: None })
        }
    }
}

/// Cores of the busiest server that its NICs take on average over so many seconds, in which links
/// carry so many bytes.
pub fn cpu_cores(loaded: &Loaded, bytes: &dyn Fn(LinkId) -> f64, seconds: f64) -> f64 {
    let (fabric, nic) = (loaded.fabric(), loaded.settings().nic);
    let mut servers = vec![0.0; fabric.machines()];
    for number in 0..fabric.nics() {
        let node = fabric.nic(number);
        let rate = |reverse: bool| {
            let ports = fabric.ports(node).iter();
            let links = ports.map(|&port| if reverse { fabric.reverse(port) } else { port });
            links.map(bytes).sum::<f64>() / seconds.max(1e-12)
        };
        if let Some(server) = fabric.server_of(node) {
            servers[server] += nic.cpu_cores(rate(false), rate(true));
        }
    }
    servers.into_iter().fold(0.0, f64::max)
}

/// What an outcome's link carried.
pub fn carried(outcome: &Outcome, link: LinkId) -> f64 {
    outcome.links.get(link).map_or(0.0, |link| link.bytes as f64)
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
