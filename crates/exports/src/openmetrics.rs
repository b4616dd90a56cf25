//! OpenMetrics text: samples that Prometheus ingests (`promtool tsdb create-blocks-from
//! openmetrics`), so that boards made for real machines show simulated ones.
//!
//! A counter is written at several instants, a fixed interval apart, as a scraper would have read
//! it: boards ask for rates, and one sample has none. Traffic that repeats (training does) grows
//! each counter by the same amount in each interval.
//!
//! Source: OpenMetrics 1.0: families in one piece, series of a family in one piece, timestamps in
//! seconds, `# EOF` at the end.

use std::io::{self, Write};

/// The instants of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// The first, in seconds since 1970.
    pub start_s: u64,
    /// From one to the next, in seconds.
    pub interval_s: u64,
    /// How many.
    pub samples: u64,
}

impl Default for Clock {
    /// Five minutes from the beginning of 2026 on, a sample each minute: where the dashboards in
    /// `dashboards/` look first. Illustrative.
    fn default() -> Self {
        Self { start_s: 1_767_225_600, interval_s: 60, samples: 6 }
    }
}

impl Clock {
    /// The same from another instant on.
    pub fn from(start_s: u64) -> Self {
        Self { start_s, ..Self::default() }
    }
}

/// What a family's values are, and how exporters declare it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Grows: the value given is what it gains in a second. Its name gets `_total`.
    Counter,
    /// The same, of an exporter that declares no type.
    Growing,
    /// Stays: the value given is the value.
    Gauge,
    /// The same, of an exporter that declares no type.
    Standing,
}

/// A family of series.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Family {
    /// Its name, without the `_total` of counters.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it counts.
    pub help: &'static str,
}

impl Family {
    /// What queries call it.
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            _ => self.name.to_owned(),
        }
    }
}

/// Writes samples, family by family.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    clock: Clock,
    family: Option<Family>,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(out: W, clock: Clock) -> Self {
        Self { out, clock, family: None }
    }

    /// Begins a family. Its series follow.
    pub fn family(&mut self, family: &Family) -> io::Result<()> {
        let Family { name, kind, help } = family;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Growing | Kind::Standing => "unknown",
        };
        self.family = Some(*family);
        writeln!(self.out, "# TYPE {name} {kind}\n# HELP {name} {help}")
    }

    /// A series of the family: its labels and its value.
    pub fn series(&mut self, labels: &[(&str, &str)], value: f64) -> io::Result<()> {
        let family = self.family.expect("a family has begun");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let (name, labels) = (family.sample_name(), labels.join(","));
        for sample in 0..self.clock.samples {
            let passed = sample * self.clock.interval_s;
            let at = self.clock.start_s + passed;
            let value = match family.kind {
                Kind::Counter | Kind::Growing => (value * passed as f64).round(),
                Kind::Gauge | Kind::Standing => value,
            };
            writeln!(self.out, "{name}{{{labels}}} {value} {at}")?;
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        writeln!(self.out, "# EOF")?;
        self.out.flush()
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_and_gauges_stay() {
        let mut text = Vec::new();
        let clock = Clock { samples: 3, ..Clock::default() };
        let mut writer = Writer::new(&mut text, clock);
        let bytes = "node_network_transmit_bytes";
        writer.family(&Family { name: bytes, kind: Kind::Counter, help: "Bytes." }).unwrap();
        writer.series(&[("device", "eth0")], 0.125).unwrap();
        writer.series(&[("device", "a \"b\" \\")], 2.0).unwrap();
        writer.family(&Family { name: "speed", kind: Kind::Gauge, help: "Rate." }).unwrap();
        writer.series(&[("device", "eth0")], 5e10).unwrap();
        writer.finish().unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r#"
        # TYPE node_network_transmit_bytes counter
        # HELP node_network_transmit_bytes Bytes.
        node_network_transmit_bytes_total{device="eth0"} 0 1767225600
        node_network_transmit_bytes_total{device="eth0"} 8 1767225660
        node_network_transmit_bytes_total{device="eth0"} 15 1767225720
        node_network_transmit_bytes_total{device="a \"b\" \\"} 0 1767225600
        node_network_transmit_bytes_total{device="a \"b\" \\"} 120 1767225660
        node_network_transmit_bytes_total{device="a \"b\" \\"} 240 1767225720
        # TYPE speed gauge
        # HELP speed Rate.
        speed{device="eth0"} 50000000000 1767225600
        speed{device="eth0"} 50000000000 1767225660
        speed{device="eth0"} 50000000000 1767225720
        # EOF
        "#);
    }
}
