//! What must hold for a scenario.

use std::collections::BTreeMap;

use commands::packets::Patience;
use commands::run_job::several;
use commands::run_traffic::{self, Options, Report};
use commands::work::Work;
use commands::{Drawing, Engine, run_job};
use fabric::{Fabric, NodeId};
use packetsim::Watch;
use scenario::Loaded;
use traffic::Outcome;
use units::Id;

use crate::draw::{Case, loaded, with};

/// Packets of jobs are run where that takes no longer, by the engine's estimate.
const MOST_PACKETS_S: f64 = 0.05;
const ENGINES: [Engine; 3] = [Engine::Analytic, Engine::Flow, Engine::Packet];

/// What a case came to.
#[derive(Debug, Default)]
pub(crate) struct CaseOutcome {
    /// Whether an engine ran it.
    pub(crate) ran: bool,
}

type Ran = (Report, Work, Outcome);

/// Runs a case; the first property that does not hold.
pub(crate) fn hold(case: &Case) -> Result<CaseOutcome, String> {
    let Some(loaded) = loaded(case) else { return Ok(CaseOutcome::default()) };
    if !loaded.members.is_empty() {
        return jobs_hold(&loaded);
    }
    if loaded.job.is_some() {
        return step_holds(case, &loaded);
    }
    let mut seen: BTreeMap<usize, Ran> = BTreeMap::new();
    for (at, engine) in ENGINES.into_iter().enumerate() {
        // What an engine refuses, it refuses with a sentence.
        let Ok(ran) = run(&loaded, engine, 1) else { continue };
        let wrong = |what: String| format!("{engine:?}: {what}");
        ends_and_carries(&ran).map_err(wrong)?;
        light_is_faster(&loaded, &ran).map_err(wrong)?;
        accounted_for(&ran).map_err(wrong)?;
        // Closed forms let flows pass each other by: only the others share links.
        if engine != Engine::Analytic {
            links_carry(&loaded, &ran).map_err(wrong)?;
            switches_keep_nothing(&loaded, &ran).map_err(wrong)?;
        }
        for cores in if engine.moves_packets() { &[2, 7][..] } else { &[7] } {
            let again = run(&loaded, engine, *cores);
            let again = again.map_err(|error| wrong(format!("{cores} threads: {error}")))?;
            if again.2.digest != ran.2.digest || again.2.ops != ran.2.ops {
                return Err(wrong(format!("{cores} threads give another run")));
            }
        }
        seen.insert(at, ran);
    }
    more_is_not_slower(case)?;
    if let (Some(flow), Some(packet)) = (seen.get(&1), seen.get(&2)) {
        are_in_bands(&loaded, flow, packet)?;
    }
    Ok(CaseOutcome { ran: !seen.is_empty() })
}

fn run(loaded: &Loaded, engine: Engine, cores: usize) -> Result<Ran, String> {
    let options = Options {
        engine,
        patience: Patience::Usual,
        series: None,
        capture: None,
        drawing: Drawing::Omitted,
    };
    let run = run_traffic::run(loaded, &options, &mut Watch { cores, ..Watch::default() });
    run.map_err(|failure| failure.to_string())
}

/// It ends, and what was asked for is told.
fn ends_and_carries((report, work, outcome): &Ran) -> Result<(), String> {
    let seconds = outcome.elapsed().as_secs_f64();
    if !seconds.is_finite() || report.flows < report.completed {
        return Err(format!("{seconds} s, {} of {}", report.completed, report.flows));
    }
    let asked: u64 =
        work.flows.iter().map(|flow| flow.bytes.get() * u64::from(flow.messages)).sum();
    if report.bytes != asked {
        return Err(format!("{asked} bytes were asked for, {} are told", report.bytes));
    }
    if report.completed == report.flows && report.makespan_s.is_none_or(|time| time <= 0.0) {
        return Err("it took no time".to_owned());
    }
    Ok(())
}

/// What did not arrive has a reason that is told.
fn accounted_for((report, _, outcome): &Ran) -> Result<(), String> {
    let is_told = outcome.gave_up.is_some() || !report.findings.is_empty();
    if report.completed < report.flows && !is_told {
        let missing = report.flows - report.completed;
        return Err(format!("{missing} flows did not end, and nothing says why"));
    }
    Ok(())
}

/// What comes into a switch goes out of it, but for what is dropped or cut there; packets that were
/// sent twice may still be under way when the last message is over. Flows count shares of bytes,
/// which are rounded link by link.
fn switches_keep_nothing(loaded: &Loaded, (report, _, outcome): &Ran) -> Result<(), String> {
    let fabric = loaded.fabric();
    let is_lost = 0 < report.drops + report.trims + report.retransmits;
    let is_whole = loaded.scenario.faults.is_empty() && !is_lost;
    for switch in fabric.switches() {
        let (mut into, mut out_of, mut links) = (0, 0, 0);
        for link in fabric.ports(switch) {
            out_of += outcome.links[*link].bytes;
            into += outcome.links[fabric.reverse(*link)].bytes;
            links += 1;
        }
        let keeps = is_whole && report.completed == report.flows && out_of + links < into;
        if keeps || into + links < out_of {
            let name = fabric.name(switch);
            return Err(format!("{name} took {into} bytes and gave {out_of}"));
        }
    }
    Ok(())
}

/// No link carries more than its rate times the time; what was received has come over links.
fn links_carry(loaded: &Loaded, (report, work, outcome): &Ran) -> Result<(), String> {
    let fabric = loaded.fabric();
    let seconds = outcome.elapsed().as_secs_f64();
    let mut into = vec![0.0; fabric.nics()];
    for (link, used) in outcome.links.enumerate() {
        // A packet is counted when it begins to leave.
        let most = fabric.class(link).rate.bytes_per_s() * seconds * 1.000_001 + 20_000.0;
        if most < used.bytes as f64 {
            let (link, bytes) = (fabric.link_name(link), used.bytes);
            return Err(format!("{link} carried {bytes} bytes in {seconds} s"));
        }
        if let Some(nic) = fabric.nic_number(fabric.links()[link].to) {
            into[nic] += used.bytes as f64;
        }
    }
    let is_collective = work.parts.iter().any(|part| part.collective.is_some());
    if report.completed < report.flows || is_collective {
        return Ok(());
    }
    let mut sent = vec![0.0; fabric.nics()];
    for flow in &work.flows {
        sent[flow.dst as usize] += flow.bytes.get() as f64 * f64::from(flow.messages);
    }
    match (0..sent.len()).find(|nic| into[*nic] < sent[*nic] * 0.999_999 - 1.0) {
        Some(nic) => {
            Err(format!("NIC {nic} got {} bytes over its links, not {}", into[nic], sent[nic]))
        }
        None => Ok(()),
    }
}

/// The last message of a flow takes as long as light takes in the cables of the shortest way, and
/// as long as its bytes take through all ports of its NIC.
fn light_is_faster(loaded: &Loaded, (_, work, outcome): &Ran) -> Result<(), String> {
    if work.parts.iter().any(|part| part.collective.is_some()) {
        return Ok(());
    }
    let fabric = loaded.fabric();
    let mut light: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (flow, end) in work.flows.iter().zip(&work.ends) {
        let Some(times) = outcome.ops.get(*end).copied().flatten() else { continue };
        let [src, dst] = [flow.src, flow.dst].map(|nic| fabric.nic(nic as usize));
        let rate = |nic: NodeId| {
            fabric.ports(nic).iter().map(|link| fabric.class(*link).rate.bytes_per_s()).sum::<f64>()
        };
        let cables = light.entry(flow.src).or_insert_with(|| delays(fabric, src))[dst.index()];
        let least = cables + flow.bytes.get() as f64 / rate(src).min(rate(dst));
        let took = times.received.since(times.start).as_secs_f64();
        if took < least * 0.999_999 - 2e-12 {
            let (from, to) = (flow.src, flow.dst);
            return Err(format!(
                "NIC {from} to NIC {to} in {took} s, where {least} s is the least"
            ));
        }
    }
    Ok(())
}

/// Seconds that light takes from a node to every other.
fn delays(fabric: &Fabric, from: NodeId) -> Vec<f64> {
    let mut delays = vec![f64::INFINITY; fabric.nodes().len()];
    delays[from.index()] = 0.0;
    loop {
        let mut changed = false;
        for link in fabric.links().ids() {
            let ends = fabric.links()[link];
            let through = delays[ends.from.index()] + fabric.class(link).delay.as_secs_f64();
            if through < delays[ends.to.index()] {
                delays[ends.to.index()] = through;
                changed = true;
            }
        }
        if !changed {
            return delays;
        }
    }
}

/// Twice the bandwidth, or less latency, never slows closed forms; nor one flow or one ring alone
/// on the others.
fn more_is_not_slower(case: &Case) -> Result<(), String> {
    let is = |key: &str, value: &str| case.iter().any(|(k, v)| *k == key && v == value);
    let is_whole = !case.iter().any(|(key, _)| *key == "faults");
    let is_one = is("traffic.pattern", "\"incast\"") && is("traffic.hosts", "2");
    let is_alone = is_whole && (is_one || is("traffic.pattern", "\"ring\""));
    let time = |key, value: &str, engine| {
        let loaded = loaded(&with(case, key, value)).filter(|loaded| loaded.job.is_none())?;
        run(&loaded, engine, 1).ok()?.0.makespan_s
    };
    for (key, less, more) in [
        ("cluster.nic_rate", "\"200Gbps\"", "\"400Gbps\""),
        ("fabric.leaf.latency", "\"2us\"", "\"300ns\""),
    ] {
        for engine in ENGINES.into_iter().filter(|engine| *engine == Engine::Analytic || is_alone) {
            let (slow, fast) = (time(key, less, engine), time(key, more, engine));
            if let (Some(slow), Some(fast)) = (slow, fast)
                && slow * 1.000_001 < fast
            {
                return Err(format!(
                    "{engine:?}: {slow} s with {key} = {less}, {fast} s with {more}"
                ));
            }
        }
    }
    Ok(())
}

/// Congestion control that goes by delays, stamps or grants: it acts though nothing is marked,
/// dropped or paused, on messages of a few bytes too (HPCC paces the second of them by what the
/// first met).
const UNMARKED: &[&str] = &["hpcc", "timely", "swift", "powertcp", "nscc", "rccc"];

/// Engines tell the same story. Where nothing was dropped, sent again, cut, marked or paused and
/// nothing fails, packets take what flows take, but for what either does not model: flows add up
/// the latencies of a message's parts that packets overlap (down to three quarters), and packets
/// wait for each other in queues that flows do not have (up to twice). Anything else has a reason
/// that packets count.
fn are_in_bands(loaded: &Loaded, flow: &Ran, packet: &Ran) -> Result<(), String> {
    let (Some(flows), Some(packets)) = (flow.0.makespan_s, packet.0.makespan_s) else {
        return Ok(());
    };
    let whole = |ran: &Ran| ran.0.completed == ran.0.flows;
    if !whole(flow) || !whole(packet) {
        return Ok(());
    }
    let counted = packet.2.counters;
    let signals = counted.drops
        + counted.retransmits
        + counted.ecn_marks
        + counted.pauses
        + counted.cnps
        + counted.trims;
    let is_hit = !loaded.scenario.faults.is_empty();
    tell(|| {
        let share = packets / flows;
        format!("BAND {share:.3} flow {flows:.3e} packet {packets:.3e} {counted:?} {is_hit}")
    });
    let control = loaded.settings().congestion.name();
    let (least, most) = match () {
        () if is_hit => (0.0, f64::INFINITY),
        () if 0 < signals => (0.5, f64::INFINITY),
        () if UNMARKED.contains(&control) => (0.75, 10.0),
        () => (0.75, 2.0),
    };
    if (least..=most).contains(&(packets / flows)) {
        return Ok(());
    }
    Err(format!("packets take {packets} s, flows {flows} s: not {least} to {most} times"))
}

/// What a run of jobs came to, as it is told.
type Step = (Engine, bool, f64);

/// A step ends on both ways, on the engines that take seconds for it, three times the same; its
/// parts make the whole; more bandwidth does not slow closed forms.
fn step_holds(case: &Case, loaded: &Loaded) -> Result<CaseOutcome, String> {
    let mut steps: Vec<Step> = Vec::new();
    for (engine, whole) in [
        (Engine::Analytic, false),
        (Engine::Flow, false),
        (Engine::Flow, true),
        (Engine::Packet, false),
        (Engine::Packet, true),
    ] {
        if engine == Engine::Packet
            && run_job::cost(loaded, engine).map_or(true, |cost| MOST_PACKETS_S < cost.seconds)
        {
            continue;
        }
        let run = |cores| {
            let watch = &mut Watch { cores, ..Watch::default() };
            run_job::run_once(loaded, engine, Patience::Usual, whole, watch)
        };
        let Ok(report) = run(1) else { continue };
        let way = if whole { "whole" } else { "by phases" };
        let wrong = |what: String| Err(format!("{engine:?}, {way}: {what}"));
        let parts = report.breakdown_s.total();
        if !(report.step_s.is_finite() && 0.0 < report.step_s) {
            return wrong(format!("a step of {} s", report.step_s));
        }
        if (parts - report.step_s).abs() > 1e-6 * report.step_s {
            return wrong(format!("a step of {} s has parts of {parts} s", report.step_s));
        }
        // In closed forms flows pass each other by.
        let overloaded = engine.has_contention() && 1.0 + 1e-6 < report.links.max_utilisation;
        if !(0.0..=1.0).contains(&report.mfu) || overloaded {
            let links = report.links.max_utilisation;
            return wrong(format!("MFU {}, links {links}", report.mfu));
        }
        for cores in [2, 7] {
            match run(cores) {
                Ok(again) if again.step_s == report.step_s => {}
                _ => return wrong(format!("{cores} threads give another step")),
            }
        }
        steps.push((engine, whole, report.step_s));
    }
    // With faster NICs the library opens more channels, and small messages pay for each of them
    // (seed 26, case 44: an all-gather of 3.7 MB takes 90 us on 8 channels, and 112 on 16).
    let held = with(case, "library.channels", "8");
    let fast = |rate| {
        let loaded = self::loaded(&with(&held, "cluster.nic_rate", rate))?;
        let watch = &mut Watch::default();
        let report = run_job::run(&loaded, Engine::Analytic, Patience::Usual, watch);
        Some(report.ok()?.step_s)
    };
    if let (Some(slow), Some(fast)) = (fast("\"200Gbps\""), fast("\"400Gbps\""))
        && slow * 1.000_001 < fast
    {
        return Err(format!("closed forms: {slow} s at 200 Gb/s, {fast} s at 400 Gb/s"));
    }
    tell(|| format!("STEP {steps:?}"));
    Ok(CaseOutcome { ran: !steps.is_empty() })
}

/// Jobs side by side: every one of them ends, no sooner than alone, three times the same.
fn jobs_hold(loaded: &Loaded) -> Result<CaseOutcome, String> {
    let mut ran = false;
    for engine in ENGINES {
        let options = several::Options { engine, patience: Patience::Usual, steps: 2 };
        if engine == Engine::Packet
            && several::cost(loaded, engine).map_or(true, |cost| MOST_PACKETS_S < cost.seconds)
        {
            continue;
        }
        let run = |cores| {
            let watch = &mut Watch { cores, ..Watch::default() };
            several::run(loaded, options, watch)
        };
        let Ok(report) = run(1) else { continue };
        ran = true;
        for job in &report.jobs {
            let good = job.step_s.is_finite() && 0.0 < job.step_s;
            if !good || report.all_s + 1e-9 < job.end_s {
                let (name, step) = (&job.name, job.step_s);
                return Err(format!("{engine:?}: {name} takes {step} s a step"));
            }
            tell(|| format!("JOBS {engine:?} {} alone {}", job.step_s, job.alone_s));
        }
        for cores in [2, 7] {
            match run(cores) {
                Ok(again) if again.jobs == report.jobs => {}
                _ => return Err(format!("{engine:?}: {cores} threads give other steps")),
            }
        }
    }
    Ok(CaseOutcome { ran })
}

/// Says what was seen, where somebody who sets bounds wants to see it (`FATFLOW_TELL`).
#[expect(clippy::print_stderr, reason = "only where it was asked for")]
pub(crate) fn tell(what: impl FnOnce() -> String) {
    if std::env::var_os("FATFLOW_TELL").is_some() {
        eprintln!("{}", what());
    }
}
