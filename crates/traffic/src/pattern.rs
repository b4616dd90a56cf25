//! Synthetic traffic: the `[traffic]` table.
//!
//! A [`Load`] is a pattern of NICs or a collective of GPUs; there may be several at once. [`flows`]
//! writes a pattern out as a list of [`Flow`]s, the same that a flow file holds, and [`write`] puts
//! such a list on a fabric. NICs are numbered from 0, as everywhere. Collectives are not patterns
//! of NICs: they are written by [`collective`](crate::collective), between GPUs. What a served
//! model sends is in [`serving`], what goes to storage and comes from there in [`storage`].

use std::collections::BTreeSet;
use std::ops::Range;

use fabric::Fabric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Random, Span, UnusedKeys};

use crate::collective::Collective;
use crate::serving::{self, ModelSizes};
use crate::storage;
use crate::transfers::{Connection, LabelId, OpId, OpKind, Transfers};

/// Who sends to whom.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Every host sends to one other and receives from one other, drawn by the seed.
    #[default]
    Permutation,
    /// All hosts but the first send to the first.
    Incast,
    /// Every host sends to every other.
    #[schemars(extend("x-aliases" = ["alltoall", "all_to_all"]))]
    AllToAll,
    /// Every host sends to the next, the last to the first.
    Ring,
    /// As many flows as `count` says, each between two random hosts, with random sizes from
    /// `smallest` to `bytes`.
    Random,
    /// The GPUs run a collective.
    Collective,
    /// Keys and values of prompts go from servers that read them to servers that answer: `count`
    /// requests, from the first `senders` hosts to the others.
    KvTransfer,
    /// The GPUs decode tokens: two small all-reduces in each layer of a dense model, a dispatch
    /// and a combine in each layer with experts.
    Decode,
    /// New weights go from trainers, the first `senders` hosts, to every copy of the model that
    /// the others serve.
    WeightPush,
    /// All clients of the storage servers write their part of a checkpoint at once.
    Checkpoint,
    /// They read it back.
    Restore,
    /// Every client reads `bytes` from the storage servers.
    DatasetRead,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Permutation,
        Self::Incast,
        Self::AllToAll,
        Self::Ring,
        Self::Random,
        Self::Collective,
        Self::KvTransfer,
        Self::Decode,
        Self::WeightPush,
        Self::Checkpoint,
        Self::Restore,
        Self::DatasetRead,
    ];

    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Permutation => "permutation",
            Self::Incast => "incast",
            Self::AllToAll => "all-to-all",
            Self::Ring => "ring",
            Self::Random => "random",
            Self::Collective => "collective",
            Self::KvTransfer => "kv-transfer",
            Self::Decode => "decode",
            Self::WeightPush => "weight-push",
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
            Self::DatasetRead => "dataset-read",
        }
    }

    /// Whether GPUs take part, with their library, and not NICs alone.
    pub fn has_gpus(self) -> bool {
        matches!(self, Self::Collective | Self::Decode)
    }

    /// Whether a model's shape decides its sizes.
    pub fn has_model(self) -> bool {
        matches!(self, Self::KvTransfer | Self::Decode | Self::WeightPush) || self.has_checkpoint()
    }

    /// Whether a checkpoint is written or read.
    pub fn has_checkpoint(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Restore)
    }

    /// Whether it is between storage servers and their clients.
    pub fn has_storage(self) -> bool {
        self.has_checkpoint() || self == Self::DatasetRead
    }

    /// The keys of a [`Load`] that it looks at, besides those that all patterns do.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Permutation | Self::Incast | Self::AllToAll | Self::Ring => &["bytes", "hosts"],
            Self::Random => &["bytes", "hosts", "count", "smallest"],
            Self::Collective => &["bytes", "collective", "gpus", "groups", "placement"],
            Self::KvTransfer => {
                &["hosts", "count", "model", "precision", "tokens", "senders", "copy", "interval"]
            }
            Self::Decode => &["gpus", "groups", "placement", "model", "precision", "tokens"],
            Self::WeightPush => &["hosts", "model", "precision", "senders", "copy"],
            Self::Checkpoint | Self::Restore => &["hosts", "model", "stripes"],
            Self::DatasetRead => &["hosts", "bytes", "stripes"],
        }
    }
}

/// In how many bytes a served model keeps a value.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Two bytes.
    #[default]
    Bf16,
    /// One byte.
    Fp8,
}

impl Precision {
    /// Bytes of a value.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 => 2,
            Self::Fp8 => 1,
        }
    }
}

/// Where the ranks of a collective sit.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Seating {
    /// Servers in order: neighbours of a ring share a rack where they can.
    #[default]
    Linear,
    /// Servers in random order, as a busy scheduler deals them out.
    Fragmented,
}

/// Who sends what to whom, from when on.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// What results call it. Left out, its pattern or collective.
    pub name: String,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// What each flow carries; for a collective, its size as nccl-tests counts it.
    pub bytes: Bytes,
    /// The first NIC that takes part, with storage counted on its network; the first GPU of a
    /// collective or of decoding.
    pub first: u32,
    /// How many NICs take part, the receiver of an incast among them. Left out, all from the
    /// first on.
    pub hosts: Option<u32>,
    /// How many flows the random pattern has, or requests the transfer of keys and values.
    pub count: u32,
    /// The least that a flow of the random pattern carries. Left out, all carry `bytes`.
    pub smallest: Option<Bytes>,
    /// How many messages each flow sends, how often the collective runs, or how many tokens are
    /// decoded, one after the other.
    pub messages: u32,
    /// When it begins.
    pub start: Span,
    /// Which collective, if the pattern is one.
    pub collective: Collective,
    /// How many GPUs run the collective, or decode. Left out, all from the first on.
    pub gpus: Option<u64>,
    /// How many groups of these GPUs do so at once, each for itself. They interleave, as
    /// data-parallel groups do: group `g` has the GPUs `g`, `g + groups` and so on.
    pub groups: u32,
    /// In which order the collective's servers come.
    pub placement: Seating,
    /// The service level of its connections, which decides their lane (`network.credits.sl_to_vl`).
    pub service_level: u8,
    /// The model that is served or saved, by the name of its preset: its shape decides the sizes.
    pub model: String,
    /// In which type keys, values, weights and activations are sent. Tokens go to their experts in
    /// fp8 either way, as DeepEP sends them.
    pub precision: Precision,
    /// Tokens of a prompt whose keys and values are sent; sequences that a group decodes at once,
    /// or each of its GPUs where the model has experts. Left out, 7,590 and 128.
    pub tokens: Option<u32>,
    /// How many of the hosts send: those that read prompts, or the trainers. Left out, half.
    pub senders: Option<u32>,
    /// NICs of one copy of the model: each of them sends or gets an equal part of what it holds.
    pub copy: u32,
    /// From the start of one request to that of the next; 0 begins all at once.
    pub interval: Span,
    /// Over how many NICs of storage servers a client's NIC spreads its bytes.
    pub stripes: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            name: String::new(),
            pattern: Pattern::default(),
            // Illustrative: long enough that starting up does not matter.
            bytes: Bytes::from_mib(64),
            first: 0,
            hosts: None,
            // Illustrative.
            count: 1000,
            smallest: None,
            messages: 1,
            start: Span::ZERO,
            collective: Collective::AllReduce,
            gpus: None,
            groups: 1,
            placement: Seating::default(),
            service_level: 0,
            model: "llama3-70b".to_owned(),
            precision: Precision::default(),
            tokens: None,
            senders: None,
            // A server of eight GPUs holds llama3-70b in bf16.
            copy: 8,
            interval: Span::ZERO,
            // Lustre's default stripe count (lfs-setstripe(1)).
            stripes: 1,
        }
    }
}

impl Load {
    /// What results call it.
    pub fn title(&self) -> &str {
        match (self.name.as_str(), self.pattern) {
            ("", Pattern::Collective) => self.collective.name(),
            ("", pattern) => pattern.name(),
            (name, _) => name,
        }
    }

    /// The numbers of each group's GPUs, in the order of their ranks.
    pub fn groups(&self, fabric: &Fabric, mut random: Random) -> Vec<Vec<usize>> {
        let first = self.first as usize;
        let end = self.gpus.map_or(fabric.gpus(), |gpus| first + gpus as usize);
        let gpus: Vec<usize> = (first..end.min(fabric.gpus())).collect();
        let mut servers: Vec<&[usize]> = gpus.chunks(fabric.gpus_per_node().max(1)).collect();
        if self.placement == Seating::Fragmented {
            random.shuffle(&mut servers);
        }
        let seats: Vec<usize> = servers.into_iter().flatten().copied().collect();
        let groups = self.groups.max(1) as usize;
        let members = |group: usize| seats.iter().skip(group).step_by(groups);
        (0..groups).map(|group| members(group).copied().collect()).collect()
    }
}

impl Load {
    /// Names what the pattern does not look at.
    fn unused(&self, idle: &mut UnusedKeys) {
        let why = format!("the pattern is {}", self.pattern.name());
        let all: BTreeSet<&str> = Pattern::ALL.iter().flat_map(|one| one.keys()).copied().collect();
        for key in all.into_iter().filter(|key| !self.pattern.keys().contains(key)) {
            if (key, self.pattern.has_gpus()) == ("hosts", true) {
                idle.key("hosts", "a collective has GPUs, not hosts", "`gpus`");
                continue;
            }
            let of = Pattern::ALL.into_iter().filter(|one| one.keys().contains(&key));
            let of: Vec<String> = of.map(|one| format!("\"{}\"", one.name())).collect();
            idle.key(key, &why, &format!("pattern = {}", of.join(" or ")));
        }
    }
}

impl TrafficConfig {
    /// Names what neither the patterns nor the file of flows look at.
    pub fn unused(&self, idle: &mut UnusedKeys) {
        if self.flows.is_some() {
            let but = ["name", "flows", "service_level", "background"];
            idle.all_but("", &but, "the file says who sends what", "leave out `flows`");
        } else {
            self.load.unused(idle);
        }
        for (at, load) in self.background.iter().enumerate() {
            idle.table(&format!("background.{at}"), |idle| load.unused(idle));
        }
    }
}

/// Traffic without a job.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
// Unknown keys are the checker's to find: `serde` cannot deny them beside a flattened struct.
#[serde(default)]
pub struct TrafficConfig {
    /// What is looked at.
    #[serde(flatten)]
    pub load: Load,
    /// A file of flows instead of a pattern, with the columns `src,dst,bytes,start_ns`.
    pub flows: Option<String>,
    /// More traffic on the same links: other jobs, each with its own start.
    pub background: Vec<Load>,
}

/// Some bytes from one NIC to another. NICs of the front-end are numbered after the others.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Flow {
    /// The sending NIC.
    pub src: u32,
    /// The receiving NIC.
    pub dst: u32,
    /// What each message carries.
    pub bytes: Bytes,
    /// When the first message may start.
    pub start: Span,
    /// How many messages, one after the other.
    pub messages: u32,
}

/// More flows, or messages in all, than this are refused: each takes memory in the engine.
pub const MAX_FLOWS: u64 = 1 << 25;

/// The field of an IP packet that tells service levels apart has six bits (RFC 2474), InfiniBand's
/// four.
pub const MAX_LEVEL: u8 = 63;

/// What is wrong with synthetic traffic: the key below `[traffic]`, and a sentence.
pub type PatternError = (String, String);

/// What a load needs to know of where it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// NICs of the back-end that servers with GPUs have.
    pub nics: u32,
    /// GPUs of the fabric.
    pub gpus: u64,
    /// The sizes of the load's model, if its pattern has one.
    pub model: ModelSizes,
    /// The NICs that reach storage, by their numbers.
    pub clients: Range<u32>,
    /// Those of the storage servers.
    pub storage: Range<u32>,
    /// A checkpoint of the model.
    pub checkpoint: Bytes,
}

/// What is wrong with the traffic, given what each load has around it.
pub fn check(config: &TrafficConfig, around: impl Fn(&Load) -> Surroundings) -> Vec<PatternError> {
    let checked = |(path, load): (String, &Load)| {
        let fits = match load.pattern {
            _ if MAX_LEVEL < load.service_level => {
                let reason = format!("is {}; the most is {MAX_LEVEL}", load.service_level);
                Err(("service_level", reason))
            }
            pattern if pattern.has_gpus() => ranks(load, &around(load)),
            pattern if pattern.has_storage() => storage::check(load, &around(load)),
            _ => members(load, &around(load)),
        };
        fits.err().map(|(key, reason)| (format!("{path}{key}"), reason))
    };
    let main = (String::new(), &config.load);
    let background = config.background.iter().enumerate();
    let background = background.map(|(at, load)| (format!("background.{at}."), load));
    let main = config.flows.is_none().then_some(main);
    main.into_iter().chain(background).filter_map(checked).collect()
}

/// What does not fit: the key of a load, and why.
pub(crate) type Unfit = (&'static str, String);

/// Whether a collective fits the fabric.
fn ranks(load: &Load, around: &Surroundings) -> Result<(), Unfit> {
    let left = around.gpus.saturating_sub(u64::from(load.first));
    let asked = load.gpus.unwrap_or(left);
    if left < asked {
        return Err(("gpus", format!("{asked} GPUs, but there are {left}; {left} would fit")));
    }
    let groups = u64::from(load.groups);
    if groups == 0 || asked < 2 * groups {
        let most = (asked / 2).max(1);
        return Err(("groups", format!("{groups} groups of {asked} GPUs; 1 to {most} would")));
    }
    if load.tokens == Some(0) {
        return Err(("tokens", "is 0; the least is 1".to_owned()));
    }
    messages(load, asked.saturating_mul(serving::calls(load, &around.model).times))
}

/// Whether so many senders can send so many messages each.
pub(crate) fn messages(load: &Load, senders: u64) -> Result<(), Unfit> {
    let most = (MAX_FLOWS / senders.max(1)).max(1);
    if load.messages == 0 || most < u64::from(load.messages) {
        return Err(("messages", format!("is {}, but must be from 1 to {most}", load.messages)));
    }
    Ok(())
}

/// Whether a pattern fits the fabric.
fn members(load: &Load, around: &Surroundings) -> Result<(), Unfit> {
    let Load { pattern, first, hosts, bytes, .. } = *load;
    let left = around.nics.saturating_sub(first);
    let hosts = hosts.unwrap_or(left);
    if left < hosts {
        return Err(("hosts", format!("{hosts} hosts, but there are {left}; {left} would fit")));
    }
    if hosts < 2 {
        return Err(("hosts", format!("{hosts} hosts have nobody to send to; 2 would")));
    }
    if pattern.has_model() {
        return serving::check(load, hosts);
    }
    if load.smallest.is_some_and(|smallest| bytes < smallest) {
        return Err(("smallest", format!("is above `bytes`, which is {bytes}")));
    }
    if bytes == Bytes::ZERO {
        return Err(("bytes", "is 0; the least is 1B".to_owned()));
    }
    let hosts = u64::from(hosts);
    if pattern == Pattern::AllToAll && MAX_FLOWS < hosts * hosts {
        return Err(("hosts", format!("{hosts} hosts make more than {MAX_FLOWS} flows")));
    }
    if pattern == Pattern::Random && MAX_FLOWS < u64::from(load.count) {
        return Err(("count", format!("is {}; the most is {MAX_FLOWS}", load.count)));
    }
    messages(
        load,
        match pattern {
            Pattern::AllToAll => hosts * hosts,
            Pattern::Random => u64::from(load.count),
            _ => hosts,
        },
    )
}

/// The flows of a load that fits its surroundings; none for a collective.
///
/// ```
/// use traffic::pattern::{Load, Pattern, Surroundings, flows};
/// let load = Load { pattern: Pattern::Incast, hosts: Some(9), ..Load::default() };
/// let around = Surroundings { nics: 16, ..Surroundings::default() };
/// let flows = flows(&load, &around, units::Random::new(1, "pattern", 0));
/// assert_eq!(flows.len(), 8);
/// assert!(flows.iter().all(|flow| flow.dst == 0));
/// ```
pub fn flows(load: &Load, around: &Surroundings, mut random: Random) -> Vec<Flow> {
    let Load { pattern, first, hosts, messages, bytes, start, .. } = *load;
    let hosts = hosts.unwrap_or(around.nics.saturating_sub(first));
    let mut flows = Vec::new();
    let mut add = |src: u32, dst: u32, bytes: Bytes| {
        flows.push(Flow { src: first + src, dst: first + dst, bytes, start, messages });
    };
    match pattern {
        Pattern::Permutation => {
            for (src, dst) in derangement(hosts, &mut random).into_iter().enumerate() {
                add(src as u32, dst, bytes);
            }
        }
        Pattern::Incast => (1..hosts).for_each(|src| add(src, 0, bytes)),
        Pattern::AllToAll => {
            // Everybody begins with the next one, so that nobody is everybody's first.
            for distance in 1..hosts {
                (0..hosts).for_each(|src| add(src, (src + distance) % hosts, bytes));
            }
        }
        Pattern::Ring => (0..hosts).for_each(|src| add(src, (src + 1) % hosts, bytes)),
        Pattern::Random => {
            let least = load.smallest.unwrap_or(bytes).get();
            for _ in 0..load.count {
                let src = random.below(hosts.into()) as u32;
                let dst = (src + 1 + random.below(u64::from(hosts) - 1) as u32) % hosts;
                add(src, dst, Bytes::new(least + random.below(bytes.get() - least + 1)));
            }
        }
        Pattern::KvTransfer => return serving::kv_transfer(load, hosts, &around.model),
        Pattern::WeightPush => return serving::weight_push(load, hosts, &around.model),
        Pattern::Checkpoint | Pattern::Restore | Pattern::DatasetRead => {
            return storage::flows(load, around);
        }
        Pattern::Collective | Pattern::Decode => {}
    }
    flows
}

/// A random order in which nobody keeps its place: a single random cycle (Sattolo, 1986).
fn derangement(count: u32, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64) as usize);
    }
    order
}

/// Puts flows on a fabric: a connection each, their messages one after the other.
///
/// The operation of flow `n`'s last message is the `n`-th that is returned.
pub fn write(
    fabric: &Fabric,
    flows: &[Flow],
    label: LabelId,
    transfers: &mut Transfers,
) -> Vec<OpId> {
    write_after(fabric, flows, |_| &[], label, transfers)
}

/// The same where flows wait for earlier ones: `after` says which, by their numbers.
pub fn write_after<'a>(
    fabric: &Fabric,
    flows: &[Flow],
    after: impl Fn(usize) -> &'a [u32],
    label: LabelId,
    transfers: &mut Transfers,
) -> Vec<OpId> {
    let mut last: Vec<OpId> = Vec::with_capacity(flows.len());
    for (number, flow) in flows.iter().enumerate() {
        let connection = transfers.connect(Connection {
            from: fabric.endpoint(flow.src as usize),
            to: fabric.endpoint(flow.dst as usize),
            channel: number as u32,
            queue_pairs: 0,
        });
        let wait = |transfers: &mut Transfers| {
            transfers.add(OpKind::Wait { span: flow.start }, label, &[])
        };
        let mut before: Vec<OpId> =
            (flow.start != Span::ZERO).then(|| wait(transfers)).into_iter().collect();
        before.extend(after(number).iter().map(|earlier| last[*earlier as usize]));
        for _ in 0..flow.messages.max(1) {
            before = vec![transfers.send(connection, flow.bytes, label, &before)];
        }
        last.extend(before);
    }
    last
}

/// Flows alone on a fabric, and the operation of each one's last message.
pub fn transfers(fabric: &Fabric, flows: &[Flow]) -> (Transfers, Vec<OpId>) {
    let mut transfers = Transfers::new();
    let label = transfers.label("flows");
    let ends = write(fabric, flows, label, &mut transfers);
    (transfers, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(pattern: Pattern, hosts: u32) -> Load {
        Load { pattern, hosts: Some(hosts), ..Load::default() }
    }

    fn draw(load: &Load, nics: u32, seed: u64) -> Vec<Flow> {
        let around = Surroundings { nics, ..Surroundings::default() };
        flows(load, &around, Random::new(seed, "pattern", 0))
    }

    /// Oracle: how many flows each pattern has, and how many everybody sends and receives.
    #[test]
    fn patterns_have_the_flows_that_their_names_promise() {
        for (pattern, hosts, count) in [
            (Pattern::Permutation, 8, 8),
            (Pattern::Incast, 8, 7),
            (Pattern::AllToAll, 8, 56),
            (Pattern::Ring, 8, 8),
            (Pattern::Permutation, 2, 2),
        ] {
            let flows = draw(&load(pattern, hosts), 16, 7);
            assert_eq!(flows.len(), count, "{pattern:?}");
            assert!(flows.iter().all(|flow| flow.src != flow.dst && flow.src < hosts));
            let mut sent = vec![0; hosts as usize];
            let mut received = vec![0; hosts as usize];
            for flow in &flows {
                sent[flow.src as usize] += 1;
                received[flow.dst as usize] += 1;
            }
            if pattern == Pattern::Incast {
                assert_eq!((sent[0], received[0]), (0, 7));
            } else {
                assert_eq!(sent, received, "{pattern:?}");
                assert!(sent.iter().all(|flows| *flows == count / hosts as usize));
            }
        }
    }

    /// Property: a permutation never sends to itself, is a permutation, and hangs on the seed.
    #[test]
    fn permutations_are_derangements_of_their_seed() {
        for seed in 0..50 {
            let hosts = 2 + (seed as u32 * 7) % 40;
            let draw = |seed| draw(&load(Pattern::Permutation, hosts), 64, seed);
            let mut targets: Vec<u32> = draw(seed).iter().map(|flow| flow.dst).collect();
            assert!(draw(seed).iter().all(|flow| flow.src != flow.dst), "seed {seed}");
            targets.sort_unstable();
            assert_eq!(targets, (0..hosts).collect::<Vec<u32>>(), "seed {seed}");
            assert_eq!(draw(seed), draw(seed));
        }
        let draw = |seed| draw(&load(Pattern::Permutation, 64), 64, seed);
        assert_ne!(draw(1), draw(2));
    }

    /// Property: random flows keep to their hosts and sizes, and hang on the seed.
    #[test]
    fn random_flows_keep_their_bounds() {
        let smallest = Some(Bytes::new(100));
        let (bytes, count) = (Bytes::new(1_000), 500);
        let random = Load { bytes, count, smallest, ..load(Pattern::Random, 8) };
        let drawn = draw(&random, 16, 1);
        assert_eq!(drawn.len(), 500);
        assert!(drawn.iter().all(|flow| flow.src != flow.dst && flow.src < 8 && flow.dst < 8));
        assert!(drawn.iter().all(|flow| (100..=1_000).contains(&flow.bytes.get())));
        let mean = drawn.iter().map(|flow| flow.bytes.as_f64()).sum::<f64>() / 500.0;
        assert!((500.0..600.0).contains(&mean), "{mean}");
        assert_ne!(drawn, draw(&random, 16, 2));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_key() {
        let keys = |load: Load, background: Vec<Load>| {
            let config = TrafficConfig { load, flows: None, background };
            let around = Surroundings { nics: 16, gpus: 16, ..Surroundings::default() };
            let wrong = check(&config, |_| around.clone());
            wrong.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        let alone = |load| keys(load, Vec::new());
        assert_eq!(alone(load(Pattern::Ring, 17)), ["hosts"]);
        assert_eq!(alone(load(Pattern::Ring, 1)), ["hosts"]);
        assert_eq!(alone(Load { messages: 0, ..load(Pattern::Ring, 4) }), ["messages"]);
        let part = Load { first: 15, hosts: None, ..load(Pattern::Ring, 4) };
        assert_eq!(keys(load(Pattern::Ring, 4), vec![part]), ["background.0.hosts"]);
        let ranks = |gpus, groups| Load {
            pattern: Pattern::Collective,
            gpus: Some(gpus),
            groups,
            ..Load::default()
        };
        assert_eq!(alone(ranks(16, 8)), [""; 0]);
        assert_eq!(alone(ranks(17, 1)), ["gpus"]);
        assert_eq!(alone(ranks(16, 9)), ["groups"]);
    }

    /// Oracle: groups interleave, and fragmentation moves whole servers.
    #[test]
    fn groups_are_seated_as_they_say() {
        use fabric::topology::{ClusterConfig, FabricConfig, build};
        let cluster = ClusterConfig { gpus: Some(64), ..ClusterConfig::default() };
        let fabric = build(&cluster, &FabricConfig::default(), &Default::default()).unwrap();
        let seats = |placement, groups| {
            let load = Load { first: 8, gpus: Some(48), groups, placement, ..Load::default() };
            load.groups(&fabric, Random::new(3, "placement", 0))
        };
        let linear = seats(Seating::Linear, 16);
        assert_eq!(linear.len(), 16);
        assert_eq!(linear[5], [13, 29, 45]);
        let [ranks] = seats(Seating::Fragmented, 1).try_into().unwrap();
        let mut servers: Vec<usize> = ranks.chunks(8).map(|server| server[0] / 8).collect();
        assert_ne!(servers, [1, 2, 3, 4, 5, 6]);
        servers.sort_unstable();
        assert_eq!(servers, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn messages_of_a_flow_follow_each_other() {
        use fabric::topology::{ClusterConfig, FabricConfig, build};
        let cluster = ClusterConfig { gpus: Some(16), ..ClusterConfig::default() };
        let fabric = build(&cluster, &FabricConfig::default(), &Default::default()).unwrap();
        let flow = |start| Flow { src: 0, dst: 9, bytes: Bytes::new(5), start, messages: 3 };
        let (transfers, last) = transfers(&fabric, &[flow(Span::ZERO), flow(Span::from_ns(9))]);
        // Three messages; a wait and three messages.
        assert_eq!(transfers.ops().len(), 7);
        assert_eq!(transfers.after(last[0]).len(), 1);
        assert_eq!(transfers.total_bytes(), 30);
        assert_eq!(transfers.connections().len(), 2);
    }
}
