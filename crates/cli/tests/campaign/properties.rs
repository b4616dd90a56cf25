//! What must hold for a scenario.

use std::collections::BTreeMap;

use commands::packets::Patience;
use commands::run_traffic::{self, Options, Report};
use commands::work::Work;
use commands::{Drawing, Engine, run_job};
use fabric::{Fabric, NodeId};
use packetsim::Watch;
use scenario::Loaded;
use traffic::Outcome;
use units::Id;

use crate::draw::{Case, loaded, with};

const ENGINES: [Engine; 3] = [Engine::Analytic, Engine::Flow, Engine::Packet];

/// What a case came to.
#[derive(Debug, Default)]
pub struct CaseOutcome {
    /// Whether an engine ran it.
    pub ran: bool,
}

type Ran = (Report, Work, Outcome);

/// Runs a case; the first property that does not hold.
pub fn hold(case: &Case) -> Result<CaseOutcome, String> {
    let Some(loaded) = loaded(case) else { return Ok(CaseOutcome::default()) };
    if loaded.job.is_some() {
        return step_holds(&loaded);
    }
    let mut seen: BTreeMap<usize, Ran> = BTreeMap::new();
    for (at, engine) in ENGINES.into_iter().enumerate() {
        // What an engine refuses, it refuses with a sentence.
        let Ok(ran) = run(&loaded, engine, 1) else { continue };
        let wrong = |what: String| format!("{engine:?}: {what}");
        ends_and_carries(&ran).map_err(wrong)?;
        light_is_faster(&loaded, &ran).map_err(wrong)?;
        // Closed forms let flows pass each other by: only the others share links.
        if engine != Engine::Analytic {
            links_carry(&loaded, &ran).map_err(wrong)?;
        }
        for cores in [2, 7] {
            let again = run(&loaded, engine, cores);
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

/// Engines tell the same story: packets take what flows take, or have a reason.
fn are_in_bands(loaded: &Loaded, flow: &Ran, packet: &Ran) -> Result<(), String> {
    let (Some(flows), Some(packets)) = (flow.0.makespan_s, packet.0.makespan_s) else {
        return Ok(());
    };
    let whole = |ran: &Ran| ran.0.completed == ran.0.flows;
    if !whole(flow) || !whole(packet) {
        return Ok(());
    }
    if std::env::var("FATFLOW_TELL").is_ok() {
        let c = packet.2.counters;
        println!(
            "BAND {:.3} flow {flows:.3e} packet {packets:.3e} drops {} retx {} marks {} pauses {} cnps {} trims {} faults {} findings {}",
            packets / flows,
            c.drops,
            c.retransmits,
            c.ecn_marks,
            c.pauses,
            c.cnps,
            c.trims,
            loaded.scenario.faults.len(),
            packet.2.findings.len()
        );
    }
    if packets < 0.5 * flows {
        return Err(format!("packets take {packets} s, flows {flows} s"));
    }
    Ok(())
}

/// A step ends on both ways and both engines that take seconds, twice the same.
fn step_holds(loaded: &Loaded) -> Result<CaseOutcome, String> {
    let mut seen = CaseOutcome::default();
    for (engine, whole) in [(Engine::Analytic, false), (Engine::Flow, false), (Engine::Flow, true)]
    {
        let run = |cores| {
            let watch = &mut Watch { cores, ..Watch::default() };
            run_job::run_once(loaded, engine, Patience::Usual, whole, watch)
        };
        let Ok(report) = run(1) else { continue };
        seen.ran = true;
        if !(report.step_s.is_finite() && 0.0 < report.step_s) {
            return Err(format!("{engine:?}: a step of {} s", report.step_s));
        }
        for cores in [2, 7] {
            match run(cores) {
                Ok(again) if again.step_s == report.step_s => {}
                _ => return Err(format!("{engine:?}: {cores} threads give another step")),
            }
        }
    }
    Ok(seen)
}
