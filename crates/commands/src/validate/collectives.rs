//! Published collectives and messages.
//!
//! The rule that gives rows their cluster is that of the steps; what else differs between rows is
//! in their columns: the algorithm, in-network reduction, what the harness that measured adds to
//! every call, and in notes whether NVLS is off, how many channels were asked for, which NCCL and
//! plug-in ran, and whether a message crosses leaves.

use fabric::Fabric;
use fabric::hardware::Catalogue;
use fabric::topology::{self, TierConfig};
use fabric::transport::Transport;
use step::published::{Publication, RowCluster, words};
use step::validate::{fabric_of, routing_of};
use traffic::collective::{
    ALGORITHMS, Collective, Communicator, Detail, Group, Limit, Lowered, Wanted, lower,
};
use traffic::nccl::estimate::at_ends;
use traffic::nccl::{self, Architecture, Initiator, Plugin, Settings, Usage, Version};
use traffic::{Transfers, collective};
use units::{Bytes, Rate, Span};

use super::Case;
use crate::collective::measured::Measured as Published;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::interval::{Class, Residuals};
use crate::world::leaf_of;

/// What the rule adds for collectives.
pub(super) const RULE: &str = "Collectives: InfiniBand on Quantum-2 boxes, RoCEv2 on Tomahawk-5 \
    boxes (Quantum-3, and Tomahawk-5 with 800G ports, where NICs are faster than 400G); a message \
    goes to the next server, or to the next under another leaf where the row says so. What a row's harness adds to each call is added to its prediction.";

/// Servers of a cluster in which single messages are sent, so that there are several leaves.
const MESSAGE_SERVERS: u64 = 128;

/// One published collective.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: String,
    source: String,
    /// Whose cluster it was; rows of one are not independent.
    pub(super) origin: String,
    collective: Collective,
    algorithm: Option<String>,
    sharp: Usage,
    bytes: u64,
    measured: Measured,
    /// What the harness that measured adds to each call, in seconds.
    harness_s: f64,
    cluster: RowCluster,
    note: String,
}

/// Whose cluster it was: what the row says, or who published it.
fn origin<'a>(text: &dyn Fn(&str) -> &'a str) -> String {
    let words = [text("cluster"), text("source"), text("id")];
    words.into_iter().find(|word| !word.is_empty()).unwrap_or_default().to_owned()
}

/// A collective, as tables and nccl-tests call it: `all_reduce_perf`, `AllToAll`, `sendrecv`.
fn collective_of(text: &str) -> Option<Collective> {
    let letters = |text: &str| text.to_lowercase().replace(['_', '-', ' '], "");
    let word = letters(text);
    let word = word.strip_suffix("perf").unwrap_or(&word);
    let word = if word == "alltoallv" { "alltoall" } else { word };
    Collective::ALL.into_iter().find(|known| letters(known.name()) == word)
}

/// An algorithm, by our name or NCCL's; none where the library chose.
fn algorithm_of(text: &str) -> Result<Option<&'static str>, String> {
    let letters = |text: &str| text.to_lowercase().replace(['_', '-', ' '], "");
    let word = match letters(text).as_str() {
        "" | "auto" | "default" => return Ok(None),
        "collnet" | "collnetdirect" => "sharp".to_owned(),
        "direct" | "msccl" => "allpairs".to_owned(),
        word => word.to_owned(),
    };
    let mut names = ALGORITHMS.iter().map(|algorithm| algorithm.name());
    let known = names.find(|name| letters(name) == word);
    known.map(Some).ok_or_else(|| format!("algorithm: `{text}` is not known"))
}

fn in_order((one, other): (f64, f64)) -> (f64, f64) {
    (one.min(other), one.max(other))
}

/// Whether an algorithm reduces in the switches between servers.
fn is_sharp(algorithm: Option<&str>) -> bool {
    matches!(algorithm, Some("sharp" | "collnet-chain"))
}

#[derive(Clone, Copy, Debug)]
enum Measured {
    Microseconds(f64),
    BusBandwidth(f64),
}

impl Row {
    /// Reads a row.
    pub(super) fn read(header: &[String], fields: &[String]) -> Result<Self, String> {
        let text = |column: &str| {
            let at = header.iter().position(|name| name == column);
            at.and_then(|at| fields.get(at)).map_or("", |field| field.trim())
        };
        let number = |column: &str| match text(column) {
            "" => Ok(None),
            word => match word.parse::<f64>() {
                Ok(number) if number.is_finite() && 0.0 <= number => Ok(Some(number)),
                _ => Err(format!("{column}: `{word}` is not a number")),
            },
        };
        let needed = |column: &str| {
            number(column)?.ok_or_else(|| format!("{column}: is missing")).map(|n| n as u64)
        };
        let collective = collective_of(text("collective"))
            .ok_or_else(|| format!("collective: `{}` is not known", text("collective")))?;
        let measured = match (number("measured_us")?, number("measured_busbw_GBps")?) {
            (Some(us), _) if 0.0 < us => Measured::Microseconds(us),
            (None, Some(rate)) if 0.0 < rate => Measured::BusBandwidth(rate),
            _ => return Err("measured_us: neither a time nor a bandwidth was measured".to_owned()),
        };
        let named = algorithm_of(text("algorithm"))?;
        let gpus = needed("gpus")?;
        let gpu = words::gpu_name(text("gpu"));
        let gpus_per_node = number("gpus_per_node")?.map_or(gpus.min(8), |n| n as u64).max(1);
        let nics = number("nics_per_node")?.map(|nics| nics as u64).filter(|nics| 0 < *nics);
        let rate = number("nic_gbps")?.filter(|rate| 0.0 < *rate);
        let cluster = RowCluster {
            nic_gbps: rate.unwrap_or_else(|| words::usual_nic_gbps(&gpu)),
            gpu,
            gpus,
            gpus_per_node,
            nics_per_node: nics.unwrap_or(gpus_per_node),
            transport: None,
            queue_pairs: number("qps")?.map(|count| count as u32),
            nics: Publication::Published,
        };
        let cluster = cluster.with_transport(text("transport"));
        Ok(Self {
            id: text("id").to_owned(),
            source: text("source").to_owned(),
            origin: origin(&text),
            collective,
            // NVLS, the other thing that the column tells of, is the library's own choice.
            sharp: match text("in_network").to_lowercase().contains("sharp") || is_sharp(named) {
                true => Usage::Enabled,
                false => Usage::Disabled,
            },
            algorithm: named.map(str::to_owned),
            bytes: needed("bytes")?,
            measured,
            harness_s: 1e-6 * number("harness_us")?.unwrap_or(0.0),
            cluster: cluster.map_err(|reason| format!("transport: {reason}"))?,
            note: text("note").to_owned(),
        })
    }

    /// What was measured, if it was this collective's bandwidth on so many GPUs of a kind.
    pub(super) fn measured_on(&self, gpu: &str, gpus: u64, of: Collective) -> Option<Published> {
        let Measured::BusBandwidth(busbw_gbps) = self.measured else { return None };
        let same = self.collective == of && self.cluster.gpu == gpu && self.cluster.gpus == gpus;
        let source = match self.algorithm.as_deref() {
            Some(algorithm) => format!("{} ({algorithm})", self.source),
            None => self.source.clone(),
        };
        same.then_some(Published { bytes: self.bytes, busbw_gbps, source })
    }

    /// Predicts the row.
    pub(super) fn predict(
        &self,
        catalogue: &Catalogue,
        engine: Engine,
        library: &Settings,
    ) -> Result<Case, Failure> {
        let failed = |reason: String| Failure::Run(format!("{}: {reason}", self.id));
        let is_message = self.is_message();
        let fabric = self.fabric(catalogue, is_message).map_err(failed)?;
        let gpus = usize::try_from(self.cluster.gpus).expect("GPUs fit memory");
        let ranks = match is_message {
            true => vec![fabric.gpu(0), fabric.gpu(self.receiver(&fabric))],
            false => (0..gpus).map(|gpu| fabric.gpu(gpu)).collect(),
        };
        let communicator = Communicator::new(&fabric, &ranks);
        let settings = self.settings(catalogue, library);
        let (seconds, plan) = self
            .time(&fabric, &communicator, &settings, engine)
            .ok_or_else(|| failed("no algorithm runs it".to_owned()))?;
        let seconds = seconds + self.harness_s;
        let (measured, predicted, unit) = match self.measured {
            Measured::Microseconds(us) => (us, seconds * 1e6, "us"),
            Measured::BusBandwidth(rate) => {
                let logical = self.logical(&communicator, &settings);
                (rate, logical * self.bytes as f64 / seconds / 1e9, "GB/s")
            }
        };
        let note = format!("{} {} ×{}", plan.algorithm.name(), plan.protocol.name(), plan.channels);
        let class = self.class(&communicator, &settings, catalogue);
        let bytes = Bytes::new(self.bytes);
        let ends = || at_ends(&fabric, &communicator, self.collective, bytes, &settings);
        let ends = if Residuals::published().has_scale_up(&class) { None } else { ends() };
        let over = |share: f64| if unit == "us" { predicted * share } else { predicted / share };
        Ok(Case {
            note,
            source: self.source.clone(),
            cluster: self.origin.clone(),
            class: Some(class),
            spread: ends.map(|(fast, slow)| (over(fast), over(slow))).map(in_order),
            is_extrapolated: ends.is_some(),
            ..Case::new(&self.id, measured, predicted, unit)
        })
    }

    fn fabric(&self, catalogue: &Catalogue, is_message: bool) -> Result<Fabric, String> {
        let (mut cluster, mut config) = fabric_of(&self.cluster);
        if is_message {
            cluster.gpus = Some(MESSAGE_SERVERS * self.cluster.gpus_per_node);
        } else {
            let per_node = self.cluster.gpus_per_node;
            cluster.gpus = Some(self.cluster.gpus.div_ceil(per_node) * per_node);
        }
        // Boxes with ports of the generation that the NICs are of.
        let switch = match (self.is_infiniband(), self.cluster.nic_gbps <= 400.0) {
            (true, true) => "quantum-2",
            (true, false) => "quantum-3",
            (false, true) => "tomahawk-5",
            (false, false) => "tomahawk-5-800",
        };
        for tier in [&mut config.leaf, &mut config.spine, &mut config.core] {
            *tier = TierConfig { switch: Some(switch.to_owned()), ..TierConfig::default() };
        }
        let built = topology::build(&cluster, &config, catalogue);
        built
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    /// What the row is like.
    fn class(
        &self,
        communicator: &Communicator,
        settings: &Settings,
        catalogue: &Catalogue,
    ) -> Class {
        let gpu = catalogue.gpu.get(&self.cluster.gpu);
        let inside = communicator.domains() < 2;
        let over = match self.cluster.transport.filter(|_| !inside) {
            Some(transport) => transport.name(),
            None => gpu.map_or("", |gpu| gpu.scale_up_name.as_str()),
        };
        Class::of_collective(self.collective, settings.architecture, (inside, over), self.bytes)
    }

    /// Whether it is the latency of one message, as hosts measure it. A bandwidth is nccl-tests'
    /// `sendrecv`: kernels, and every rank to the next.
    fn is_message(&self) -> bool {
        let is_time = matches!(self.measured, Measured::Microseconds(_));
        self.collective == Collective::SendRecv && is_time
    }

    fn is_infiniband(&self) -> bool {
        self.cluster.transport == Some(Transport::Infiniband)
    }

    /// The GPU that gets a message: of the next server, or of the next under another leaf.
    fn receiver(&self, fabric: &Fabric) -> usize {
        let leaf = |server: usize| leaf_of(fabric, fabric.nic(server * fabric.nics_per_node()));
        let crosses = self.note.contains("cross leaf");
        let fits = |server: &usize| !crosses || leaf(*server) != leaf(0);
        let server = (1..fabric.servers()).find(fits).unwrap_or(1);
        server * fabric.gpus_per_node()
    }

    fn settings(&self, catalogue: &Catalogue, library: &Settings) -> Settings {
        let gpu = catalogue.gpu.get(&self.cluster.gpu);
        let architecture = gpu.and_then(|gpu| Architecture::of_scale_up(&gpu.scale_up_name));
        let defaults = library.clone();
        let is_message = self.is_message();
        let is_off = self.note.contains("NVLS off");
        let sharp = (self.sharp == Usage::Enabled).then(|| "sharp".to_owned());
        let version = Version::in_text(&self.note).or_else(|| Version::in_text(&self.source));
        let least = ["MIN_CTAS", "MIN_NCHANNELS"].into_iter().find_map(|key| self.noted(key));
        let settings = Settings {
            architecture: architecture.unwrap_or(defaults.architecture),
            version: version.unwrap_or(defaults.version),
            wire_efficiency: if self.is_infiniband() {
                Transport::Infiniband.efficiency(Bytes::from_kib(4))
            } else {
                defaults.wire_efficiency
            },
            initiator: if is_message { Initiator::Host } else { Initiator::Kernel },
            nvls: if is_off { Usage::Disabled } else { Usage::Enabled },
            sharp: self.sharp,
            symmetric: match self.algorithm.as_deref() {
                Some("symmetric") => Usage::Enabled,
                _ => defaults.symmetric,
            },
            algorithm: self.algorithm.clone().or(sharp),
            least_channels: least.unwrap_or(defaults.least_channels),
            ..defaults
        };
        if self.cluster.transport != Some(Transport::Efa) {
            return settings;
        }
        let rate = Rate::from_bps_f64(self.cluster.nic_gbps * 1e9);
        let plugin = Plugin::of_efa(settings.architecture, Some(rate));
        let card = packetsim::Settings::of_transport(Transport::Efa).nic;
        Settings {
            nic_latency: card.send_latency + card.receive_latency,
            // Releases of those years took as long as they declare.
            crossing: match self.note.contains("aws-ofi-nccl 1.7") {
                true => plugin.declared(),
                false => Span::ZERO,
            },
            ..settings.with_plugin(plugin)
        }
    }

    /// The number that follows a word in the note: "NCCL_MIN_CTAS=24", "MIN_NCHANNELS 32".
    fn noted(&self, key: &str) -> Option<u32> {
        let (_, after) = self.note.split_once(key)?;
        let digits = after.trim_start_matches(['=', ' ']);
        digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    }

    /// How long it takes.
    fn time(
        &self,
        fabric: &Fabric,
        communicator: &Communicator,
        settings: &Settings,
        engine: Engine,
    ) -> Option<(f64, nccl::Plan)> {
        let (collective, bytes) = (self.collective, Bytes::new(self.bytes));
        let estimate = nccl::estimate(fabric, communicator, collective, bytes, settings)?;
        let inside = communicator.domains() < 2;
        // A message of one packet is latency; inside a scale-up domain nobody else is met.
        if !engine.has_contention() || inside || collective == Collective::SendRecv {
            return Some((estimate.time.as_secs_f64(), estimate.plan));
        }
        let mut transfers = Transfers::new();
        let label = transfers.label(collective.name());
        let (detail, weights, limit) = (Detail::Folded, &[][..], Limit::NONE);
        let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
        let mut group = Group::new(communicator.clone());
        let lowered = lower(fabric, &mut group, &wanted, &mut transfers, &[]);
        let Lowered { end, plan } = lowered.ok()?;
        let mut flow = flowsim::Settings {
            routing: routing_of(&self.cluster),
            ..flowsim::Settings::default()
        };
        flow.wire.efficiency = settings.wire_efficiency;
        flow.wire.scale_up_efficiency = settings.architecture.scale_up_efficiency();
        flow.wire.nic_latency = settings.nic_latency / 2;
        let outcome = flowsim::run(fabric, &transfers, &flow);
        let time: Span = outcome.over(end)?;
        Some((time.as_secs_f64(), plan))
    }

    /// What bytes over time are multiplied with to give the published bandwidth.
    fn logical(&self, communicator: &Communicator, settings: &Settings) -> f64 {
        match self.collective {
            // Servers that a token goes to, its own among them; inside one domain, GPUs.
            Collective::MoeDispatch | Collective::MoeCombine => {
                let nodes = communicator.domains() as u32;
                let per_node = communicator.shape().per_domain;
                let copies = settings.routing.copies(nodes, per_node);
                match nodes {
                    1 => f64::from(per_node) * copies.to_gpu,
                    _ => f64::from(nodes) * copies.to_node,
                }
            }
            other => collective::Collective::bus_factor(other, self.cluster.gpus as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str) -> Row {
        let header = "id,collective,algorithm,gpu,gpus,gpus_per_node,transport,in_network,bytes,\
            measured_busbw_GBps";
        let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        Row::read(&fields(header), &fields(line)).unwrap()
    }

    fn predicted(row: &Row, engine: Engine) -> f64 {
        let set = vec!["cluster.gpus=8".to_owned()];
        let request = scenario::Request { set, ..scenario::Request::default() };
        let catalogue = scenario::load(&request).expect("it is valid").scenario.catalogue;
        row.predict(&catalogue, engine, &Settings::default()).unwrap().predicted
    }

    #[test]
    fn collectives_and_algorithms_are_known_by_other_names() {
        assert_eq!(collective_of("alltoall_perf"), Some(Collective::AllToAll));
        assert_eq!(collective_of("SendRecv"), Some(Collective::SendRecv));
        assert_eq!(collective_of("scan"), None);
        assert_eq!(algorithm_of("NVLSTree"), Ok(Some("nvls_tree")));
        assert_eq!(algorithm_of("CollnetChain"), Ok(Some("collnet-chain")));
        assert_eq!(algorithm_of("Auto"), Ok(None));
        assert!(algorithm_of("star").is_err());
        let chain = row("a,all_reduce,collnet_chain,H100,64,8,infiniband,,1073741824,300");
        assert_eq!((chain.sharp, chain.cluster.gpu.as_str()), (Usage::Enabled, "h100-sxm"));
    }

    /// Oracle: two domains of 72 send half of everything over 72 NICs of 50 GB/s each. The flows of
    /// a rail leave by all NICs of it, as the closed form counts.
    #[test]
    fn an_all_to_all_of_large_domains_uses_every_nic() {
        let row = row("a,all_to_all,,gb200,144,4,infiniband,,1073741824,100");
        let [closed, flow] = [Engine::Analytic, Engine::Flow].map(|engine| predicted(&row, engine));
        let bound = 143.0 / 72.0 * 50.0;
        assert!(0.9 * bound < closed && closed < bound, "{closed} of {bound}");
        assert!((flow / closed - 1.0).abs() < 0.03, "{flow} beside {closed}");
    }

    /// NICs of 800 Gb/s have switches and a PCIe that carry them; nccl-tests' sendrecv fills one.
    #[test]
    fn nics_of_the_newest_generation_are_predicted() {
        let row = row("a,sendrecv,,gb300,144,4,infiniband,,8589934592,90");
        assert!((row.cluster.nic_gbps - 800.0).abs() < 1e-9);
        let rate = predicted(&row, Engine::Analytic);
        assert!(90.0 < rate && rate < 100.0, "{rate}");
    }
}
