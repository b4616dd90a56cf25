//! Random scenarios of everything (topology, traffic or a job, transport, routing, congestion
//! control, engine), and what must hold for each of them.
//!
//! 150 cases by default; `FATFLOW_CASES`, `FATFLOW_FIRST` and `FATFLOW_SEED` say otherwise
//! (`tools/campaign.sh`).
//! What fails is shrunk to as few settings as still fail, and printed with its seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use commands::meter::{Meter, peak_rss_bytes};
use commands::packets::Patience;
use commands::run_traffic::{self, Options};
use commands::{Drawing, Engine, run_job};
use packetsim::Watch;
use scenario::source::Source;
use scenario::{Loaded, Request, load};
use units::{Id, Random};

/// Settings, each on a line of its own.
type Case = Vec<(&'static str, String)>;

const TOPOLOGIES: &[&str] = &[
    "clos",
    "fat-tree",
    "rail-optimized",
    "rail-only",
    "dual-plane",
    "ai-zone",
    "dragonfly",
    "torus",
];
const POLICIES: &[&str] = &[
    "ecmp",
    "e-ecmp",
    "path-pinning",
    "traffic-engineering",
    "flowlet",
    "spray",
    "reps",
    "adaptive",
    "infiniband-adaptive",
    "static-up-down",
];
const TRANSPORTS: &[&str] = &["rocev2", "rocev1", "infiniband", "uec", "iwarp"];
const CONTROLS: &[&str] = &[
    "none",
    "dcqcn",
    "hpcc",
    "timely",
    "swift",
    "dctcp",
    "infiniband",
    "nscc",
    "rccc",
    "cubic",
    "powertcp",
];
const PATTERNS: &[&str] = &["permutation", "incast", "all-to-all", "ring", "random"];
const ENGINES: [Engine; 3] = [Engine::Analytic, Engine::Flow, Engine::Packet];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

/// Half of the settings are left alone.
fn maybe(case: &mut Case, random: &mut Random, key: &'static str, value: String) {
    if random.below(2) == 0 {
        case.push((key, value));
    }
}

/// One case.
fn draw(random: &mut Random) -> Case {
    let mut case: Case = Vec::new();
    let quoted = |word: &str| format!("\"{word}\"");
    let gpus = [8, 16, 24, 32][random.below(4) as usize];
    case.push(("cluster.gpus", gpus.to_string()));
    let rate = [25, 100, 200, 400, 800][random.below(5) as usize];
    maybe(&mut case, random, "cluster.nic_rate", quoted(&format!("{rate}Gbps")));
    let topology = quoted(pick(random, TOPOLOGIES));
    maybe(&mut case, random, "fabric.topology", topology);
    let policy = quoted(pick(random, POLICIES));
    maybe(&mut case, random, "network.routing.policy", policy);
    let qps = [1, 2, 4, 16][random.below(4) as usize];
    maybe(&mut case, random, "network.routing.qps", qps.to_string());
    let transport = quoted(pick(random, TRANSPORTS));
    maybe(&mut case, random, "network.transport", transport);
    let control = quoted(pick(random, CONTROLS));
    maybe(&mut case, random, "network.congestion.control", control);
    let mtu = ["1KiB", "2KiB", "4KiB", "9000B"][random.below(4) as usize];
    maybe(&mut case, random, "network.packet.mtu", quoted(mtu));
    if random.below(10) == 0 {
        let model = quoted(["llama3-8b", "mixtral-8x7b"][random.below(2) as usize]);
        let tp = [1, 2, 4, 8][random.below(4) as usize];
        case.push(("job.model", model));
        case.push(("job.gpus", gpus.to_string()));
        case.push(("job.parallel", format!("{{ tp = {tp} }}")));
        case.push(("job.batch", format!("{{ sequences = {gpus}, length = 2048 }}")));
    } else {
        case.push(("traffic.pattern", quoted(pick(random, PATTERNS))));
        let digits = 4 + random.below(13);
        let bytes = 1 + random.below(1 << digits);
        case.push(("traffic.bytes", format!("\"{bytes}B\"")));
        let messages = 1 + random.below(3);
        case.push(("traffic.messages", messages.to_string()));
    }
    case.push(("seed", random.below(1000).to_string()));
    case
}

fn text(case: &Case) -> String {
    case.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

fn loaded(case: &Case) -> Option<Loaded> {
    let request = Request {
        scenario: Some("case.toml".to_owned()),
        text: Some(Source::new("case.toml", text(case))),
        ..Request::default()
    };
    load(&request).ok()
}

/// What a case came to.
#[derive(Debug, Default, PartialEq)]
struct CaseOutcome {
    /// Seconds on each engine that ran it.
    makespans: Vec<(Engine, f64)>,
    digests: Vec<u64>,
}

/// Runs a case; the first property that does not hold.
fn holds(case: &Case) -> Result<CaseOutcome, String> {
    let Some(loaded) = loaded(case) else { return Ok(CaseOutcome::default()) };
    let mut seen = CaseOutcome::default();
    for engine in ENGINES {
        if loaded.job.is_some() {
            // Packets of a whole step take too long for thousands of cases.
            if engine != Engine::Packet {
                step_holds(&loaded, engine)?;
            }
            continue;
        }
        let run = |cores: usize| {
            let options = Options {
                engine,
                patience: Patience::Usual,
                series: None,
                capture: None,
                drawing: Drawing::Omitted,
            };
            run_traffic::run(&loaded, &options, &mut Watch { cores, ..Watch::default() })
        };
        // What an engine refuses, it refuses with a sentence.
        let Ok((report, work, outcome)) = run(1) else { continue };
        let seconds = outcome.elapsed().as_secs_f64();
        let wrong = |what: String| Err(format!("{engine:?}: {what}"));
        if !seconds.is_finite() || report.flows < report.completed {
            return wrong(format!("{seconds} s, {} of {}", report.completed, report.flows));
        }
        let payload: u64 =
            work.flows.iter().map(|flow| flow.bytes.get() * u64::from(flow.messages)).sum();
        if report.bytes != payload {
            return wrong(format!("{} bytes were asked for, {} are told", payload, report.bytes));
        }
        // Closed forms let flows pass each other by: only the others share links.
        if engine == Engine::Analytic {
            continue;
        }
        for (link, used) in outcome.links.enumerate() {
            let most =
                loaded.fabric().class(link).rate.bytes_per_s() * seconds * 1.000_001 + 20_000.0;
            if most < used.bytes as f64 {
                return wrong(format!(
                    "link {} carried {} in {seconds} s",
                    link.index(),
                    used.bytes
                ));
            }
        }
        faster_than_the_nic(&loaded, &work.flows, &report, seconds)
            .map_or(Ok(()), wrong_of(engine))?;
        if engine == Engine::Packet {
            for cores in [2, 7] {
                let again = run(cores).map_err(|error| format!("{cores} threads: {error}"))?;
                if again.2.digest != outcome.digest || again.2.ops != outcome.ops {
                    return wrong(format!("{cores} threads give another run"));
                }
            }
        }
        seen.digests.push(outcome.digest);
        if let Some(makespan) = report.makespan_s.filter(|_| report.completed == report.flows) {
            seen.makespans.push((engine, makespan));
        }
    }
    Ok(seen)
}

fn wrong_of(engine: Engine) -> impl Fn(String) -> Result<(), String> {
    move |what| Err(format!("{engine:?}: {what}"))
}

/// A NIC neither sends nor receives faster than all its ports together; nothing is faster than the
/// light in its cables, which every engine counts in whole picoseconds above zero.
fn faster_than_the_nic(
    loaded: &Loaded,
    flows: &[traffic::pattern::Flow],
    report: &run_traffic::Report,
    seconds: f64,
) -> Option<String> {
    if report.completed < report.flows || flows.is_empty() {
        return None;
    }
    let fabric = loaded.fabric();
    let mut rates = vec![0.0; fabric.nics()];
    for link in fabric.links().ids() {
        let from = fabric.links()[link].from;
        let nic = (0..fabric.nics()).find(|nic| fabric.nic(*nic) == from);
        if let Some(nic) = nic {
            rates[nic] += fabric.class(link).rate.bytes_per_s();
        }
    }
    let mut sent = vec![0.0; fabric.nics()];
    for flow in flows {
        sent[flow.src as usize] += flow.bytes.get() as f64 * f64::from(flow.messages);
    }
    let least =
        sent.iter().zip(&rates).map(|(sent, rate)| sent / rate.max(1.0)).fold(0.0, f64::max);
    if seconds < least * 0.999_999 {
        return Some(format!("{seconds} s, but its NICs need {least} s"));
    }
    (seconds <= 0.0).then(|| "it took no time".to_owned())
}

fn step_holds(loaded: &Loaded, engine: Engine) -> Result<(), String> {
    let run = |watch: &mut Watch<'_>| run_job::run(loaded, engine, Patience::Usual, watch);
    let Ok(report) = run(&mut Watch::default()) else { return Ok(()) };
    if !(report.step_s.is_finite() && 0.0 < report.step_s) {
        return Err(format!("{engine:?}: a step of {} s", report.step_s));
    }
    match run(&mut Watch { cores: 7, ..Watch::default() }) {
        Ok(again) if again.step_s == report.step_s => Ok(()),
        _ => Err(format!("{engine:?}: the same step twice is not the same")),
    }
}

/// On closed forms twice the bandwidth never slows.
fn is_monotone(case: &Case) -> Result<(), String> {
    let with = |rate: &str| {
        let mut case: Case =
            case.iter().filter(|(key, _)| *key != "cluster.nic_rate").cloned().collect();
        case.push(("cluster.nic_rate", format!("\"{rate}\"")));
        let loaded = loaded(&case).filter(|loaded| loaded.job.is_none())?;
        let options = Options {
            engine: Engine::Analytic,
            patience: Patience::Usual,
            series: None,
            capture: None,
            drawing: Drawing::Omitted,
        };
        run_traffic::run(&loaded, &options, &mut Watch::default()).ok()?.0.makespan_s
    };
    match (with("200Gbps"), with("400Gbps")) {
        (Some(slow), Some(fast)) if slow * 1.000_001 < fast => {
            Err(format!("{slow} s at 200 Gb/s, {fast} s at 400 Gb/s"))
        }
        _ => Ok(()),
    }
}

/// Engines tell the same story: packets take at least what flows take, but for rounding, and not
/// more than what go-back-N, pauses and slow starts can cost.
fn are_in_bands(seen: &CaseOutcome) -> Result<(), String> {
    let of = |wanted| seen.makespans.iter().find(|(engine, _)| *engine == wanted).map(|m| m.1);
    match (of(Engine::Flow), of(Engine::Packet)) {
        (Some(flow), Some(packet)) if packet < 0.5 * flow => {
            Err(format!("packets take {packet} s, flows {flow} s"))
        }
        _ => Ok(()),
    }
}

fn verdict(case: &Case) -> Result<CaseOutcome, String> {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let seen = holds(case)?;
        is_monotone(case)?;
        are_in_bands(&seen)?;
        Ok(seen)
    }));
    tried.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// As few settings as still fail.
fn shrunk(case: &Case) -> Case {
    let mut case = case.clone();
    let mut at = 0;
    while at < case.len() {
        let mut fewer = case.clone();
        fewer.remove(at);
        if verdict(&fewer).is_err() {
            case = fewer;
        } else {
            at += 1;
        }
    }
    case
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn everything_holds_for_random_scenarios() {
    let (cases, seed) = (number("FATFLOW_CASES", 150), number("FATFLOW_SEED", 20_261_118));
    let first = number("FATFLOW_FIRST", 0);
    let (mut ran, mut seen_cases, mut failures) = (0, 0, Vec::new());
    let (all, mut slowest) = (Meter::start(), (0.0, 0));
    for number in first..first + cases {
        let began = Meter::start();
        let case = draw(&mut Random::new(seed, "campaign", number));
        seen_cases += 1;
        match verdict(&case) {
            Ok(seen) => ran += u64::from(!seen.digests.is_empty()),
            Err(reason) => {
                let small = shrunk(&case);
                let told = verdict(&small).err().unwrap_or(reason);
                failures.push(format!("seed {seed} case {number}: {told}\n{}", text(&small)));
            }
        }
        let seconds = began.cpu_s();
        if slowest.0 < seconds {
            slowest = (seconds, number);
        }
        if 10 <= failures.len() {
            break;
        }
    }
    #[expect(clippy::print_stderr, reason = "how many ran is what a long run wants to know")]
    {
        let (count, cpu, memory) = (failures.len(), all.cpu_s(), peak_rss_bytes() >> 20);
        eprintln!(
            "campaign: {seen_cases} cases, {ran} ran traffic, {count} failures, {cpu:.0} s of a \
             processor, {memory} MiB, slowest {:.1} s (case {})",
            slowest.0, slowest.1
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases / 3 < ran, "{ran} of {cases} ran: the others were refused");
}
