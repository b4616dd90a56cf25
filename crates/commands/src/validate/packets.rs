//! Reference runs of a packet simulator: parameters in a `.toml`, flows in the `.csv` beside it.
//!
//! A run is repeated with the same parameters on the packet engine, in the reference's own mode:
//! its clock of whole nanoseconds, its headers, its switch. Scored are the mean and the last
//! completion, and the number of pauses where there were any; where marks are drawn at random,
//! their average over seeds. What the files mean is told rule by rule in the README beside the
//! copies that the packet engine's tests lie beside. Nobody else reads such runs.

use fabric::graph::LinkKind;
use fabric::hash::{HashFunction, UdpSource};
use fabric::routing::{RoutingConfig, Seeds};
use fabric::{Fabric, FabricBuilder, LinkClass};
use packetsim::Settings;
use packetsim::buffer::{BufferConfig, EcnConfig, PfcConfig};
use packetsim::cc::{CcConfig, dcqcn, dctcp, hpcc, none, timely};
use packetsim::nic::{AcksWhilePaused, NicConfig, Pacing};
use packetsim::packet::{Clock, Headers, PacketConfig};
use packetsim::settings::{ControlClass, SwitchConfig};
use scenario::Problem;
use toml::{Table, Value};
use traffic::{Connection, OpId, OpKind, Outcome, Transfers};
use units::{Bytes, Length, Rate, Span};

use crate::failure::Failure;

/// A run: its parameters and its flows.
#[derive(Clone, Debug)]
pub struct ReferenceRun {
    file: String,
    values: Table,
    flows: Vec<Flow>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    src: usize,
    dst: usize,
    bytes: u64,
    start_ns: u64,
    finish_ns: u64,
}

/// How often a run is repeated whose marks are drawn at random: as often as the reference's.
const SEEDS: u64 = 20;

/// The columns of a flow file.
const COLUMNS: [&str; 6] = ["flow", "src", "dst", "bytes", "start_ns", "finish_ns"];

impl ReferenceRun {
    /// Reads a run from its two files, each with its name.
    pub fn read(
        (file, parameters): (&str, &str),
        (flow_file, flows): (&str, &str),
    ) -> Result<Self, Failure> {
        let wrong = |message: String| Failure::from(Problem::error(message));
        let values: Table = parameters.parse().map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = parameters[..at.min(parameters.len())].lines().count().max(1);
            wrong(format!("{file}:{line}: {}", error.message()))
        })?;
        let case = Self { file: file.to_owned(), values, flows: Vec::new() };
        let hosts = case.number("topology.hosts")? as usize;
        let mut lines = (1..).zip(flows.lines()).filter(|(_, line)| !line.trim().is_empty());
        let header = lines.next().map_or("", |(_, line)| line.trim());
        if header.split(',').ne(COLUMNS) {
            return Err(wrong(format!("{flow_file}:1: the columns are not {}", COLUMNS.join(","))));
        }
        let mut read = Vec::new();
        for (number, line) in lines {
            let wrong = |reason: &str| wrong(format!("{flow_file}:{number}: {reason}"));
            let cells: Result<Vec<u64>, _> = line.trim().split(',').map(str::parse).collect();
            let cells = cells.map_err(|_| wrong("a cell is not a whole number"))?;
            let [_, src, dst, bytes, start_ns, finish_ns] = cells[..] else {
                return Err(wrong("a flow has six cells"));
            };
            let (src, dst) = (src as usize, dst as usize);
            if hosts <= src || hosts <= dst || src == dst {
                return Err(wrong("a flow goes from one host to another"));
            }
            if finish_ns <= start_ns {
                return Err(wrong("a flow finishes after its start"));
            }
            read.push(Flow { src, dst, bytes, start_ns, finish_ns });
        }
        if read.is_empty() {
            return Err(wrong(format!("{flow_file}: there are no flows")));
        }
        Ok(Self { flows: read, ..case })
    }

    fn value(&self, key: &str) -> Result<&Value, Failure> {
        let (section, name) = key.split_once('.').expect("keys have a section");
        let value = self.values.get(section).and_then(|section| section.get(name));
        value.ok_or_else(|| Problem::error(format!("{}: `{key}` is missing", self.file)).into())
    }

    fn float(&self, key: &str) -> Result<f64, Failure> {
        let value = self.value(key)?;
        let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        let number = number.filter(|number| number.is_finite() && 0.0 <= *number);
        number.ok_or_else(|| Problem::error(format!("{}: `{key}` is no number", self.file)).into())
    }

    fn number(&self, key: &str) -> Result<u64, Failure> {
        Ok(self.float(key)? as u64)
    }

    fn rate(&self, key: &str) -> Result<Rate, Failure> {
        Ok(Rate::from_bps(self.number(key)?.max(1)))
    }

    fn bytes(&self, key: &str) -> Result<Bytes, Failure> {
        Ok(Bytes::new(self.number(key)?))
    }

    /// Its name.
    pub fn name(&self) -> String {
        let stem = self.file.rsplit('/').next().unwrap_or(&self.file);
        stem.trim_end_matches(".toml").to_owned()
    }

    fn fabric(&self) -> Result<Fabric, Failure> {
        let hosts = self.number("topology.hosts")? as usize;
        let count = self.number("topology.switches")? as usize;
        let mut builder = FabricBuilder::new(hosts, 1, 1);
        let class = builder.class(LinkClass {
            name: "link".into(),
            kind: LinkKind::ScaleOut,
            rate: self.rate("topology.link_rate_bps")?,
            delay: Span::from_ns(self.number("topology.link_delay_ns")?),
            length: Length::ZERO,
        });
        let switches: Vec<_> = (0..count).map(|at| builder.plain_switch(0, 0, at)).collect();
        let links = self.value("topology.links")?.as_array().cloned().unwrap_or_default();
        let mut ends = Vec::new();
        for link in &links {
            let end = |at: usize| {
                let number = link.get(at).and_then(Value::as_integer);
                number
                    .and_then(|number| usize::try_from(number).ok())
                    .filter(|n| *n < hosts + count)
            };
            let (Some(a), Some(b)) = (end(0), end(1)) else {
                let message = format!("{}: `topology.links` joins no such nodes", self.file);
                return Err(Problem::error(message).into());
            };
            ends.push((a.max(b), a.min(b)));
        }
        // The reference counts equal next hops from the switch with the highest number down.
        ends.sort_unstable_by(|one, other| other.cmp(one));
        for (a, b) in ends {
            let node = |at: usize| match at.checked_sub(hosts) {
                None => builder.nic(at),
                Some(switch) => switches[switch],
            };
            let (a, b) = (node(a), node(b));
            builder.cable(b, a, class);
        }
        Ok(builder.build())
    }

    fn congestion(&self) -> Result<CcConfig, Failure> {
        let base_rtt = || Ok::<_, Failure>(Span::from_ns(self.number("cc.base_rtt_ns")?));
        Ok(match self.value("case.cc")?.as_str().unwrap_or_default() {
            "none" => CcConfig::None(none::Config {}),
            "dcqcn" | "dcqcnstep" => CcConfig::Dcqcn(dcqcn::Config {
                step: self.rate("cc.rate_ai_bps")?,
                big_step: self.rate("cc.rate_hai_bps")?,
                min_rate: self.rate("cc.min_rate_bps")?,
                ..dcqcn::Config::ns3(self.rate("cc.initial_rate_bps")?)
            }),
            "hpcc" => CcConfig::Hpcc(hpcc::Config {
                utilisation: self.float("cc.eta")?,
                additive_rounds: self.number("cc.mi_thresh")? as u32,
                step: Some(self.rate("cc.rate_ai_bps")?),
                min_rate: self.rate("cc.min_rate_bps")?,
                sent_unit: Bytes::new(128 * self.number("cc.int_multi")?),
                queue_unit: Bytes::new(80 * self.number("cc.int_multi")?),
                ..hpcc::Config::ns3(self.rate("cc.initial_rate_bps")?, base_rtt()?)
            }),
            "timely" => CcConfig::Timely(timely::Config {
                gain: self.float("cc.ewma_alpha")?,
                cut: self.float("cc.beta")?,
                low: Span::from_ns(self.number("cc.t_low_ns")?),
                high: Span::from_ns(self.number("cc.t_high_ns")?),
                min_rtt: Span::from_ns(self.number("cc.min_rtt_ns")?),
                step: Some(self.rate("cc.rate_ai_bps")?),
                big_step: Some(self.rate("cc.rate_hai_bps")?),
                min_rate: self.rate("cc.min_rate_bps")?,
                data_bytes: Bytes::ZERO,
                ..timely::Config::default()
            }),
            "dctcp" => CcConfig::Dctcp(dctcp::Config {
                gain: self.float("cc.g")?,
                alpha_start: self.float("cc.alpha_init")?,
                step: Some(self.rate("cc.dctcp_rate_ai_bps")?),
                min_rate: self.rate("cc.min_rate_bps")?,
                ..dctcp::Config::ns3(base_rtt()?)
            }),
            other => {
                let message = format!("{}: no congestion control is called `{other}`", self.file);
                return Err(Problem::error(message).into());
            }
        })
    }

    fn settings(&self, clock: Clock, seed: u64) -> Result<Settings, Failure> {
        let headers = Headers {
            data: self.bytes("packet.data_header_bytes")?,
            first: Bytes::ZERO,
            last: Bytes::ZERO,
            ack: self.bytes("packet.ack_bytes")?,
            pause: self.bytes("packet.pfc_frame_bytes")?,
            gap: Bytes::ZERO,
            ..Headers::default()
        };
        let acks_while_paused = match self.number("host.ack_high_prio")? {
            0 => AcksWhilePaused::Hold,
            _ => AcksWhilePaused::Send,
        };
        let mtu = self.bytes("packet.payload_bytes")?;
        Ok(Settings {
            packet: PacketConfig { mtu, headers, clock, ..Default::default() },
            switch: SwitchConfig { acks: ControlClass::WithData, ..SwitchConfig::default() },
            buffer: BufferConfig {
                size: self.bytes("switch.buffer_bytes")?,
                reserved: self.bytes("switch.reserve_bytes_per_port")?,
                headroom: Some(self.bytes("switch.headroom_bytes_per_port")?),
                alpha: self.float("pfc.alpha")?,
                ..BufferConfig::default()
            },
            ecn: EcnConfig {
                enabled: self.value("ecn.enabled")?.as_bool().unwrap_or(false),
                min: self.bytes("ecn.kmin_bytes")?,
                max: self.bytes("ecn.kmax_bytes")?,
                probability: self.float("ecn.pmax")?,
                ..EcnConfig::default()
            },
            pfc: PfcConfig {
                enabled: self.value("pfc.enabled")?.as_bool().unwrap_or(true),
                xon_below: self.bytes("pfc.resume_offset_bytes")?,
                quanta: 0,
                watchdog: None,
                ..PfcConfig::default()
            },
            nic: NicConfig { acks_while_paused, pacing: Pacing::Fixed, ..NicConfig::default() },
            routing: RoutingConfig {
                function: HashFunction::Ns3,
                seeds: Seeds::Number,
                udp_source: UdpSource::Ns3,
                ..RoutingConfig::default()
            },
            congestion: self.congestion()?,
            seed,
            ..Settings::default()
        })
    }

    /// Runs it under a seed. How long each flow took, in nanoseconds, and everything else.
    pub fn run(&self, clock: Clock, seed: u64) -> Result<(Vec<f64>, Outcome), Failure> {
        let fabric = self.fabric()?;
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        let mut ops = Vec::new();
        for flow in &self.flows {
            let (from, to) = (fabric.nic(flow.src), fabric.nic(flow.dst));
            let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
            let mut after = Vec::new();
            if 0 < flow.start_ns {
                let span = Span::from_ns(flow.start_ns);
                after.push(transfers.add(OpKind::Wait { span }, label, &[]));
            }
            ops.push(transfers.send(connection, Bytes::new(flow.bytes), label, &after));
        }
        let outcome = packetsim::run(&fabric, &transfers, &self.settings(clock, seed)?)?;
        let time = |op: &OpId| outcome.ops[*op].map(|op| op.finish.since(op.start));
        let times: Option<Vec<Span>> = ops.iter().map(time).collect();
        let times =
            times.ok_or_else(|| Failure::Run(format!("{}: a flow never finished", self.file)))?;
        Ok((times.iter().map(|span| span.as_ps() as f64 / 1e3).collect(), outcome))
    }

    /// How long each flow took in the reference, in nanoseconds.
    pub fn expected(&self) -> Vec<f64> {
        self.flows.iter().map(|flow| (flow.finish_ns - flow.start_ns) as f64).collect()
    }

    /// How many pauses the reference counted.
    pub fn pauses(&self) -> u64 {
        self.number("result.pfc_pauses").unwrap_or(0)
    }

    /// Runs it, and sets mean and last completion and the pauses beside the reference's.
    pub(super) fn predict(&self) -> Result<Vec<super::Case>, Failure> {
        // Marks that are drawn differ from seed to seed: what is compared is the average.
        let seeds = if self.is_random() { SEEDS } else { 1 };
        let in_us = |times: Vec<f64>| times.iter().map(|ns| ns / 1e3).collect::<Vec<f64>>();
        let mut runs = Vec::new();
        for seed in 1..=seeds {
            let (times, outcome) = self.run(Clock::Nanosecond, seed)?;
            runs.push((in_us(times), outcome.counters.pauses as f64));
        }
        let expected = in_us(self.expected());
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let last = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let average = |of: &dyn Fn(&[f64]) -> f64| {
            mean(&runs.iter().map(|run| of(&run.0)).collect::<Vec<_>>())
        };
        let off = runs[0].0.iter().zip(&expected).map(|(a, b)| (a / b - 1.0).abs());
        let note = match seeds {
            1 => format!(
                "{} flows, farthest {:.2} %",
                expected.len(),
                100.0 * off.fold(0.0, f64::max)
            ),
            _ => format!("{} flows, average of {seeds} seeds", expected.len()),
        };
        let name = self.name();
        let source = self.value("case.description").ok().and_then(Value::as_str).unwrap_or("");
        let mut cases = vec![
            super::Case {
                note,
                spread: self.spread("fct_mean_us"),
                ..super::Case::new(format!("{name}, mean"), mean(&expected), average(&mean), "us")
            },
            super::Case {
                spread: self.spread("fct_max_us"),
                ..super::Case::new(format!("{name}, last"), last(&expected), average(&last), "us")
            },
        ];
        let pauses = self.pauses();
        if 0 < pauses {
            let found = mean(&runs.iter().map(|run| run.1).collect::<Vec<_>>());
            cases.push(super::Case::new(format!("{name}, pauses"), pauses as f64, found, ""));
        }
        cases.iter_mut().for_each(|case| case.source = source.to_owned());
        Ok(cases)
    }

    /// Whether its marks are drawn at random.
    pub fn is_random(&self) -> bool {
        self.value("run.deterministic").ok().and_then(Value::as_bool) == Some(false)
    }

    /// The least and the most over the reference's seeds.
    fn spread(&self, key: &str) -> Option<(f64, f64)> {
        let bounds = self.values.get("seeds")?.get(key)?.as_array()?;
        Some((bounds.first()?.as_float()?, bounds.last()?.as_float()?))
    }
}
