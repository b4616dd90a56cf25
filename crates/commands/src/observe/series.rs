//! Counters as they come in: which of them suddenly do what they did not before.
//!
//! A counter of something bad (losses, errors, pauses, marks) is a finding when it grows in one
//! interval far beyond what it did: by more than eight standard deviations above its mean, and by
//! half of that mean, where the deviation is at least that of rare events that come by chance. A
//! counter of bytes is one when it falls below half of its mean while those of the same name do
//! not: one slow link. Three intervals must be known before anything is found. What is found does
//! not count as usual; it is over after three quiet intervals.

use std::collections::BTreeMap;

use ::observe::counter::parse_sample;
use serde::Serialize;

/// Intervals before anything is found.
const LEARNED: usize = 3;
/// Intervals that are remembered as usual.
const REMEMBERED: usize = 60;
/// Standard deviations above the mean.
const DEVIATIONS: f64 = 8.0;
/// Quiet intervals that end a finding.
const QUIET: u32 = 3;
/// Series that are followed at most, so that memory has a bound.
const MOST_SERIES: usize = 200_000;

/// What a counter counts, told by its name.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Counts {
    /// Packets that were lost or sent again.
    Losses,
    /// Damaged packets and links.
    Errors,
    /// Pauses, and waiting for credits.
    Pauses,
    /// Marks and notifications of congestion.
    Marks,
    /// Bytes.
    Bytes,
}

impl Counts {
    /// Those of a counter; none if nobody needs to look at it.
    fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let is_network = has(&[
            "infiniband",
            "network",
            "ethtool",
            "rdma",
            "roce",
            "mlx5",
            "port",
            "sonic",
            "priority",
            "pfc",
            "queue",
            "nic",
            "ib_",
        ]);
        if !is_network {
            return None;
        }
        Some(match () {
            () if has(&["pause", "pfc", "xoff", "xmit_wait"]) => Self::Pauses,
            () if has(&["ecn", "cnp"]) => Self::Marks,
            () if has(&[
                "drop",
                "discard",
                "out_of_sequence",
                "seq_err",
                "retrans",
                "ack_timeout",
                "rnr",
                "out_of_buffer",
            ]) =>
            {
                Self::Losses
            }
            () if has(&["err", "crc", "fcs", "link_downed"]) => Self::Errors,
            () if has(&[
                "transmit_bytes",
                "receive_bytes",
                "xmit_data",
                "rcv_data",
                "data_transmitted",
                "data_received",
            ]) =>
            {
                Self::Bytes
            }
            () => return None,
        })
    }

    fn words(self) -> &'static str {
        match self {
            Self::Losses => "packets are lost or sent again",
            Self::Errors => "a link damages packets",
            Self::Pauses => "a port is paused",
            Self::Marks => "packets meet congestion",
            Self::Bytes => "a link is slow while others are not",
        }
    }

    /// A short name that stays.
    pub fn code(self) -> &'static str {
        match self {
            Self::Losses => "losses_rise",
            Self::Errors => "errors_rise",
            Self::Pauses => "pauses_rise",
            Self::Marks => "marks_rise",
            Self::Bytes => "link_slow",
        }
    }
}

/// The values of a page in Prometheus' text format, by name and labels. What is no sample is
/// skipped, as Prometheus does with comments.
pub fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value)) = parse_sample(line) else { continue };
        if !value.is_finite() {
            continue;
        }
        let labels = labels.iter().map(|(label, value)| format!("{label}=\"{value}\""));
        let labels = labels.collect::<Vec<_>>().join(",");
        let key = if labels.is_empty() { name.to_owned() } else { format!("{name}{{{labels}}}") };
        values.insert(key, value);
    }
    values
}

/// Whether any of these is a counter that is followed.
pub fn has_counters(values: &BTreeMap<String, f64>) -> bool {
    let plain = |name: &String| name.split('{').next().and_then(Counts::of).is_some();
    values.keys().any(plain)
}

/// One counter over time.
#[derive(Debug)]
struct Series {
    counts: Counts,
    /// Its name without labels.
    name: String,
    value: f64,
    at_s: f64,
    /// What it grew by in a second, in intervals that were usual.
    usual: Vec<f64>,
    /// The last interval: its rate and its length.
    last: Option<(f64, f64)>,
    quiet: u32,
    is_found: bool,
}

impl Series {
    fn mean(&self) -> f64 {
        self.usual.iter().sum::<f64>() / self.usual.len().max(1) as f64
    }

    /// Whether its last interval is far above what is usual.
    fn leaps(&self) -> bool {
        let Some((rate, seconds)) = self.last else { return false };
        let mean = self.mean();
        let square = |rate: &f64| (rate - mean).powi(2);
        let spread = self.usual.iter().map(square).sum::<f64>() / self.usual.len().max(1) as f64;
        // Events that come by chance: their number in an interval varies by its root.
        let chance = (mean * seconds + 1.0) / seconds.powi(2);
        rate > mean + DEVIATIONS * spread.max(chance).sqrt() && rate > 1.5 * mean
    }

    /// Its last interval over what is usual.
    fn share(&self) -> Option<f64> {
        let mean = self.mean();
        self.last.filter(|_| 0.0 < mean).map(|(rate, _)| rate / mean)
    }
}

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which counter, with its source and labels.
    pub series: String,
    /// What it counts.
    pub counts: Counts,
    /// Whether it began; otherwise it is over.
    pub begins: bool,
    /// What is told.
    pub text: String,
    /// The most seconds that may have passed since its onset.
    pub delay_s: f64,
}

/// What a NIC sends, as its counter tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sent {
    /// Which counter, with its source and labels.
    pub series: String,
    /// In the last interval.
    pub gbps: f64,
    /// What it usually does.
    pub usual_gbps: f64,
}

/// All counters of all sources.
#[derive(Debug, Default)]
pub struct Detector {
    series: BTreeMap<String, Series>,
    /// Series that were left out because there are too many.
    pub left_out: u64,
}

impl Detector {
    /// Takes in what a source shows at an instant, and says what changed.
    pub fn look(&mut self, source: &str, at_s: f64, values: &BTreeMap<String, f64>) -> Vec<Change> {
        let mut seen = Vec::new();
        let has_room = self.series.len() < MOST_SERIES;
        for (name, value) in values {
            let plain = name.split('{').next().unwrap_or_default();
            let Some(counts) = Counts::of(plain) else { continue };
            let key = format!("{source} {name}");
            match self.series.get_mut(&key) {
                Some(series) => {
                    let seconds = at_s - series.at_s;
                    // A counter that falls has begun anew, and so does its interval.
                    let grown = (series.value <= *value && 0.0 < seconds)
                        .then(|| ((value - series.value) / seconds, seconds));
                    (series.last, series.value, series.at_s) = (grown, *value, at_s);
                    seen.push(key);
                }
                None if has_room => {
                    let (name, usual) = (plain.to_owned(), Vec::new());
                    let (value, last, quiet, is_found) = (*value, None, 0, false);
                    let new = Series { counts, name, value, at_s, usual, last, quiet, is_found };
                    self.series.insert(key, new);
                }
                None => self.left_out += 1,
            }
        }
        let peers = self.peers();
        seen.iter().filter_map(|key| self.judge(key, &peers)).collect()
    }

    /// What every NIC sends, in the order of sources and labels: counters of InfiniBand ports, or,
    /// where there are none, of interfaces.
    pub fn sent(&self) -> Vec<Sent> {
        let of = |part: &str| -> Vec<Sent> {
            let is_sent = |(_, series): &(&String, &Series)| {
                series.counts == Counts::Bytes && series.name.contains(part)
            };
            let sent = |(key, series): (&String, &Series)| {
                let gbps = |bytes: f64| 8e-9 * bytes;
                let usual_gbps = gbps(series.mean());
                Some(Sent { series: key.clone(), gbps: gbps(series.last?.0), usual_gbps })
            };
            self.series.iter().filter(is_sent).filter_map(sent).collect()
        };
        let ports = of("data_transmitted");
        if ports.is_empty() { of("transmit_bytes") } else { ports }
    }

    /// By name of bytes counters, the middle of what they do over what they did.
    fn peers(&self) -> BTreeMap<String, f64> {
        let mut shares: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for series in self.series.values().filter(|series| series.counts == Counts::Bytes) {
            if let Some(share) = series.share().filter(|_| LEARNED <= series.usual.len()) {
                shares.entry(series.name.clone()).or_default().push(share);
            }
        }
        let middle = |(name, mut shares): (String, Vec<f64>)| {
            shares.sort_by(f64::total_cmp);
            (2 < shares.len()).then(|| (name, shares[shares.len() / 2]))
        };
        shares.into_iter().filter_map(middle).collect()
    }

    fn judge(&mut self, key: &str, peers: &BTreeMap<String, f64>) -> Option<Change> {
        let series = self.series.get_mut(key)?;
        let (rate, seconds) = series.last?;
        let is_odd = LEARNED <= series.usual.len()
            && match series.counts {
                Counts::Bytes => {
                    let others = peers.get(&series.name).copied().unwrap_or(0.0);
                    series.share().is_some_and(|share| share < 0.5) && 0.8 < others
                }
                _ => series.leaps(),
            };
        if !is_odd && !series.is_found {
            series.usual.push(rate);
            let more = series.usual.len().saturating_sub(REMEMBERED);
            series.usual.drain(..more);
        }
        series.quiet = if is_odd { 0 } else { series.quiet + 1 };
        let change = |series: &Series, begins: bool| {
            let (was, words) = (series.mean(), series.counts.words());
            let text = format!("{words}: {key} was {was:.3} a second and is {rate:.3}");
            let (counts, series) = (series.counts, key.to_owned());
            Some(Change { series, counts, begins, text, delay_s: seconds })
        };
        match (is_odd, series.is_found) {
            (true, false) => {
                series.is_found = true;
                change(series, true)
            }
            (false, true) if QUIET <= series.quiet => {
                series.is_found = false;
                change(series, false)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Random;

    /// Eight ports that lose a packet now and then, pause by chance and carry steady traffic.
    fn page(random: &mut Random, totals: &mut [f64; 24], fault: Option<(usize, Counts)>) -> String {
        let mut text = String::from("# HELP x y\n# TYPE x counter\ngarbage\nhalf{a=\"b\" 3\n");
        for port in 0..8 {
            let is_hit = |counts| fault == Some((port, counts));
            let chance = |random: &mut Random, mean: f64| {
                (0..100).filter(|_| random.unit() < mean / 100.0).count() as f64
            };
            totals[port] += chance(random, 0.3) + if is_hit(Counts::Losses) { 400.0 } else { 0.0 };
            totals[8 + port] += chance(random, 20.0) + f64::from(is_hit(Counts::Pauses)) * 900.0;
            let slow = if is_hit(Counts::Bytes) { 0.3 } else { 1.0 };
            totals[16 + port] += 5e10 * slow * (1.0 + 0.05 * random.normal());
            for (name, at) in [
                ("node_network_receive_drop_total", port),
                ("node_ethtool_rx_prio3_pause", 8 + port),
                ("node_infiniband_port_data_transmitted_bytes_total", 16 + port),
            ] {
                text += &format!("{name}{{device=\"eth{port}\"}} {}\n", totals[at]);
            }
        }
        text
    }

    /// A fault is found in the interval in which it begins; without one nothing ever is.
    #[test]
    fn faults_are_found_at_once_and_calm_is_left_alone() {
        for case in 0..60 {
            let mut random = Random::new(case, "follow", 0);
            let (mut detector, mut totals) = (Detector::default(), [0.0; 24]);
            let kind = [None, Some(Counts::Losses), Some(Counts::Pauses), Some(Counts::Bytes)];
            let fault = kind[case as usize % 4].map(|counts| (case as usize % 8, counts));
            let begin = 5 + random.below(20);
            for tick in 0..40 {
                let fault = fault.filter(|_| (begin..begin + 5).contains(&tick));
                let text = page(&mut random, &mut totals, fault);
                let changes = detector.look("node", 5.0 * tick as f64, &parse(&text));
                let began = changes.iter().filter(|change| change.begins).count();
                match fault {
                    Some((port, counts)) if tick == begin => {
                        assert_eq!(began, 1, "case {case}: {changes:?}");
                        assert_eq!(changes[0].counts, counts);
                        assert!(changes[0].series.contains(&format!("eth{port}")), "{changes:?}");
                        assert_eq!(changes[0].delay_s, 5.0);
                    }
                    _ => assert_eq!(began, 0, "case {case}, tick {tick}: {changes:?}"),
                }
            }
        }
    }

    /// A counter that begins anew is no leap and no fall.
    #[test]
    fn a_restart_is_no_fault() {
        let mut detector = Detector::default();
        for tick in 0..20_u32 {
            let total = if tick < 10 { 1_000 * tick } else { 1_000 * (tick - 10) };
            let text = format!("node_network_transmit_drop_total{{device=\"e\"}} {total}\n");
            let changes = detector.look("node", f64::from(tick), &parse(&text));
            assert_eq!(changes, [], "{tick}");
        }
    }
}
