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
use traffic::nccl::{self, Architecture, Initiator, Plugin, Protocol, Settings, Usage, Version};
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
    protocol: Option<Protocol>,
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

/// A collective, as tables, nccl-tests and frameworks call it: `all_reduce_perf`, `AllToAll`,
/// `sendrecv`, `ncclAllGather`, `reduce_scatter_tensor`, `bcast`; kernels for experts by what they
/// do, and messages by what measures them.
fn collective_of(text: &str) -> Option<Collective> {
    const OTHERS: [(&str, Collective); 10] = [
        ("dispatch", Collective::MoeDispatch),
        ("combine", Collective::MoeCombine),
        ("alltoall", Collective::AllToAll),
        ("allreduce", Collective::AllReduce),
        ("allgather", Collective::AllGather),
        ("reducescatter", Collective::ReduceScatter),
        ("bcast", Collective::Broadcast),
        ("pingpong", Collective::SendRecv),
        ("lat", Collective::SendRecv),
        ("p2p", Collective::SendRecv),
    ];
    let letters = letters(text);
    let word = letters.strip_suffix("perf").unwrap_or(&letters);
    let whole = Collective::ALL.into_iter().find(|known| self::letters(known.name()) == word);
    let has = |&&(name, _): &&(&str, Collective)| match name {
        // `ib_write_lat`, but not whatever has these letters.
        "lat" => word.starts_with("ib") && word.ends_with(name),
        "p2p" => word == name,
        _ => word.contains(name),
    };
    whole.or_else(|| OTHERS.iter().find(has).map(|(_, collective)| *collective))
}

/// Letters and digits alone, lower case.
fn letters(text: &str) -> String {
    text.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect()
}

/// An algorithm by our name or NCCL's and a protocol, each where one is named: `Ring`, `NVLSTree`,
/// `ring-ll128`, "Tree (LL)", `Simple`.
fn choice_of(text: &str) -> Result<(Option<&'static str>, Option<Protocol>), String> {
    let whole = letters(text);
    const CHOSEN: [&str; 7] = ["", "auto", "default", "nccl", "rccl", "nccldefault", "none"];
    if CHOSEN.contains(&whole.as_str()) {
        return Ok((None, None));
    }
    let parts = text.split([' ', '-', '_', '/', '+', '(', ')', ',', ':']).map(letters);
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    let protocol = Protocol::ALL.into_iter().find(|known| parts.contains(&letters(known.name())));
    let is_protocol = |part: &&String| protocol.is_some_and(|it| **part == letters(it.name()));
    let rest: String = parts.iter().filter(|part| !is_protocol(part)).cloned().collect();
    let word = match rest.as_str() {
        "" => return Ok((None, protocol)),
        "collnet" | "collnetdirect" | "nvlssharp" => "sharp".to_owned(),
        // What a message of all GPUs to all is called where no ring or tree is.
        "direct" | "msccl" | "mscclpp" | "oneshot" | "twoshot" => letters("allpairs"),
        "doublebinarytree" | "doubletree" | "dbtree" => "tree".to_owned(),
        "ce" => letters("copy-engine"),
        word if word.starts_with("symmetric") => "symmetric".to_owned(),
        word => word.to_owned(),
    };
    let mut names = ALGORITHMS.iter().map(|algorithm| algorithm.name());
    let known = names.find(|name| letters(name) == word);
    match known {
        Some(name) => Ok((Some(name), protocol)),
        None => Err(format!("algorithm: `{text}` is not known")),
    }
}

/// A number as tables have it: digits in groups, sizes as nccl-tests takes them (`512M`, `1GiB`).
fn number_of(text: &str) -> Option<f64> {
    let digits = text.replace([',', '_'], "");
    let plain = digits.parse::<f64>().ok();
    let size = || digits.parse::<Bytes>().ok().map(|bytes| bytes.get() as f64);
    let of_nccl_tests = || {
        let (number, unit) = digits.split_at(digits.len().checked_sub(1)?);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "k" => 10,
            "m" => 20,
            "g" => 30,
            _ => return None,
        };
        let number: f64 = number.trim().parse().ok()?;
        Some(number * f64::from(1_u32 << shift))
    };
    let number = plain.or_else(of_nccl_tests).or_else(size)?;
    (number.is_finite() && 0.0 <= number).then_some(number)
}

fn in_order((one, other): (f64, f64)) -> (f64, f64) {
    (one.min(other), one.max(other))
}

/// The word that follows a setting's name in a note: "NCCL_ALGO=Ring", "MIN_NCHANNELS 32".
fn setting<'a>(note: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = note.split_once(name)?;
    let after = after.trim_start_matches(['=', ' ', ':']);
    after.split(|letter: char| !letter.is_alphanumeric()).next().filter(|word| !word.is_empty())
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
            at.and_then(|at| fields.get(at)).map_or("", |field| words::said(field))
        };
        let number = |column: &str| match text(column) {
            "" => Ok(None),
            word => match number_of(word) {
                None => Err(format!("{column}: `{word}` is not a number")),
                number => Ok(number),
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
        let note = text("note");
        let (named, protocol) = choice_of(text("algorithm"))?;
        // What NCCL was told, where the column does not say.
        let named = named.or_else(|| choice_of(setting(note, "NCCL_ALGO")?).ok()?.0);
        let protocol = protocol.or_else(|| choice_of(setting(note, "NCCL_PROTO")?).ok()?.1);
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
            protocol,
            bytes: needed("bytes")?,
            measured,
            harness_s: 1e-6 * number("harness_us")?.unwrap_or(0.0),
            cluster: cluster.map_err(|reason| format!("transport: {reason}"))?,
            note: note.to_owned(),
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
        let is_off =
            self.note.contains("NVLS off") || setting(&self.note, "NVLS_ENABLE") == Some("0");
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
            protocol: self.protocol.or(defaults.protocol),
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
        setting(&self.note, key)?.parse().ok()
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
        for (text, meant) in [
            ("ncclAllGather", Collective::AllGather),
            ("reduce_scatter_tensor", Collective::ReduceScatter),
            ("bcast", Collective::Broadcast),
            ("deepep_dispatch", Collective::MoeDispatch),
            ("ib_write_lat", Collective::SendRecv),
        ] {
            assert_eq!(collective_of(text), Some(meant), "{text}");
        }
        assert_eq!(choice_of("NVLSTree"), Ok((Some("nvls_tree"), None)));
        assert_eq!(choice_of("CollnetChain"), Ok((Some("collnet-chain"), None)));
        assert_eq!(choice_of("NCCL default"), Ok((None, None)));
        assert_eq!(choice_of("Ring/LL128"), Ok((Some("ring"), Some(Protocol::Ll128))));
        assert_eq!(choice_of("Tree (LL)"), Ok((Some("tree"), Some(Protocol::Ll))));
        assert_eq!(choice_of("Simple"), Ok((None, Some(Protocol::Simple))));
        assert!(choice_of("star").is_err());
        assert_eq!(setting("NCCL_ALGO=Ring NCCL_PROTO=LL", "NCCL_PROTO"), Some("LL"));
        for (text, bytes) in [
            ("1,073,741,824", Some(1 << 30)),
            ("1G", Some(1 << 30)),
            ("1GiB", Some(1 << 30)),
            ("512M", Some(512 << 20)),
            ("64 KiB", Some(64 << 10)),
            ("1e9", Some(1_000_000_000)),
            ("many", None),
            ("-1", None),
        ] {
            assert_eq!(number_of(text).map(|number| number as u64), bytes, "{text}");
        }
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
