//! Settings that files say outright, so that nothing is fitted: NICs in use, queue pairs, packets,
//! the library's version and its environment.

use std::collections::BTreeMap;

use ::observe::Summary;
use scenario::{Loaded, Request};

use super::calibrate::Refused;
use super::cluster::Setting;
use super::steps::mean_of;

/// How far from a whole number queue pairs for each connection may be: lines of logs tear.
const TORN: f64 = 0.1;

/// Settings that files say, and those that the scenario cannot have.
#[derive(Clone, Debug, Default)]
pub struct ReadOff {
    /// Settings, as a scenario writes them.
    pub settings: Vec<Setting>,
    /// Those that are not taken over.
    pub refused: Vec<Refused>,
}

/// What the files say.
pub fn said(summary: &Summary) -> Vec<Setting> {
    let cluster = &summary.cluster;
    let mut all = Vec::new();
    let mut add = |key, value: String, from: String| all.push(Setting { key, value, from });
    if let Some(nics) = cluster.nics_per_node {
        let from = "NICs that connections of a server go through".to_owned();
        add("cluster.nics_per_node", nics.to_string(), from);
    }
    let one = |name: &str| {
        cluster.environment.get(name).and_then(|values| match &values[..] {
            [value] => Some(value.as_str()),
            _ => None,
        })
    };
    let whole = |name: &str| one(name).and_then(|value| value.parse::<u64>().ok());
    if let Some(pairs) = whole("NCCL_IB_QPS_PER_CONNECTION") {
        let from = "NCCL_IB_QPS_PER_CONNECTION".to_owned();
        add("network.routing.qps", pairs.to_string(), from);
    } else if let Some(pairs) = pairs(summary) {
        let (all, lines) = (summary.queue_pairs, cluster.net_lines.all);
        let from = format!("{all} queue pairs of {lines} ends of connections");
        add("network.routing.qps", pairs.to_string(), from);
    }
    if let Some(mtu) = summary.mtu_bytes {
        add("network.packet.mtu", format!("\"{mtu}B\""), "lines of queue pairs".to_owned());
    }
    let version = cluster.version.as_deref().filter(|_| cluster.versions.is_empty());
    if let Some(version) = version.filter(|_| cluster.library.as_deref() == Some("NCCL")) {
        let minor: Vec<&str> = version.split('.').take(2).collect();
        let from = format!("NCCL version {version}");
        add("library.version", format!("\"{}\"", minor.join(".")), from);
    }
    if let Some(bytes) = whole("NCCL_BUFFSIZE") {
        add("library.buffer", format!("\"{bytes}B\""), "NCCL_BUFFSIZE".to_owned());
    }
    let channels = (whole("NCCL_MIN_NCHANNELS"), whole("NCCL_MAX_NCHANNELS"));
    if let (Some(least), Some(most)) = channels
        && least == most
    {
        let from = "NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS".to_owned();
        add("library.channels", most.to_string(), from);
    }
    if whole("NCCL_PXN_DISABLE") == Some(1) {
        add("library.pxn", "\"disabled\"".to_owned(), "NCCL_PXN_DISABLE".to_owned());
    }
    all
}

/// Queue pairs of a connection: as many as logs list, over the ends of connections that they list.
fn pairs(summary: &Summary) -> Option<u64> {
    let lines = summary.cluster.net_lines.all;
    if lines == 0 || summary.queue_pairs == 0 || summary.capture.is_some() {
        return None;
    }
    let each = summary.queue_pairs as f64 / lines as f64;
    let whole = each.round();
    (1.0 <= whole && (each / whole - 1.0).abs() < TORN).then_some(whole as u64)
}

/// The scenario with what the files say. What the request itself sets stays; what the scenario
/// cannot have is refused with its reason.
pub fn apply(summary: &Summary, mut request: Request, loaded: Loaded) -> (Loaded, ReadOff) {
    let mut loaded = loaded;
    let mut told = ReadOff::default();
    for setting in said(summary) {
        let Setting { key, value, from } = &setting;
        let own = |set: &&String| set.split('=').next().is_some_and(|name| name.trim() == *key);
        if let Some(set) = request.set.iter().find(own) {
            let why = format!("`{set}` was set; the files say {value} ({from})");
            told.refused.push(Refused { key, why });
            continue;
        }
        request.set.push(format!("{key}={value}"));
        match scenario::load(&request) {
            Ok(with) => {
                loaded = with;
                told.settings.push(setting);
            }
            Err(reason) => {
                request.set.pop();
                let reason = reason.to_string();
                let reason = reason.lines().next().unwrap_or_default();
                let why =
                    format!("the files say {value} ({from}), and the scenario cannot: {reason}");
                told.refused.push(Refused { key, why });
            }
        }
    }
    (loaded, told)
}

/// How fast NICs sent while they were busy, by their counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Busy {
    /// Bytes per second on the wire.
    pub(super) mean: f64,
    /// Half of the 95 % interval of that.
    pub(super) half: f64,
    /// Intervals at the end of busy times.
    pub(super) intervals: usize,
    /// NICs.
    pub(super) nics: usize,
}

/// Fewer intervals than this say nothing.
const FEWEST: usize = 2 * BATCHES;
/// Batches of intervals: one run of a collective may be longer than an interval, so that those
/// beside each other are alike, and only the means of batches vary by themselves.
const BATCHES: usize = 10;
/// Below this share of the fastest tenth an interval was not busy throughout.
const BUSY: f64 = 0.7;
/// Intervals that differ by more than this, as a share, are not of one rate.
const ONE_RATE: f64 = 0.2;

/// The rate of NICs at the end of busy times, over all that send at least half as much as the
/// fastest. Its interval is that of the means of batches.
pub(super) fn busy(summary: &Summary) -> Option<Busy> {
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for port in &summary.port_rates {
        for [begin, _, rate] in &port.intervals {
            at.entry((1e3 * begin).round() as u64).or_default().push(*rate);
        }
    }
    let most = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let together = |rates: &Vec<f64>| {
        let half = 0.5 * most(rates);
        let own: Vec<f64> = rates.iter().copied().filter(|rate| half <= *rate).collect();
        own.iter().sum::<f64>() / own.len().max(1) as f64
    };
    let rates: Vec<f64> = at.values().map(together).collect();
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    let fast = *sorted.get((0.9 * sorted.len() as f64) as usize)?;
    let is_busy = |rate: &f64| 0.0 < *rate && BUSY * fast <= *rate;
    // Benchmarks go from small messages to large ones: the last third of a busy time is of the
    // largest. The interval at its end may be busy in part.
    let runs = rates.chunk_by(|a, b| is_busy(a) == is_busy(b));
    let runs = runs.filter(|run| run.first().is_some_and(is_busy));
    let inner: Vec<f64> = runs
        .flat_map(|run| run[run.len() * 2 / 3..].split_last().map_or(&[][..], |(_, run)| run))
        .copied()
        .collect();
    if inner.len() < FEWEST {
        return None;
    }
    let batch = |batch: usize| {
        let [from, to] = [batch, batch + 1].map(|at| at * inner.len() / BATCHES);
        inner[from..to].iter().sum::<f64>() / (to - from) as f64
    };
    let [mean, half] = mean_of(&(0..BATCHES).map(batch).collect::<Vec<_>>());
    let spread: f64 = inner.iter().map(|rate| (rate / mean - 1.0).powi(2)).sum();
    let is_one = (spread / inner.len() as f64).sqrt() < ONE_RATE;
    let nics = summary
        .port_rates
        .iter()
        .filter(|port| port.intervals.iter().any(|[_, _, rate]| 0.5 * mean < *rate));
    is_one.then(|| Busy { mean, half, intervals: inner.len(), nics: nics.count() })
}
