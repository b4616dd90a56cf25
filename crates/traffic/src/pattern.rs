//! Synthetic traffic: the `[traffic]` table.
//!
//! A pattern says which NIC sends to which; [`flows`] writes it out as a list of [`Flow`]s, the
//! same that a flow file holds, and [`transfers`] puts such a list on a fabric. NICs are numbered
//! from 0, as everywhere. Collectives are not patterns of NICs: they are written by
//! [`collective`](crate::collective), between GPUs.

use fabric::Fabric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Random, Span};

use crate::collective::Collective;
use crate::transfers::{Connection, OpKind, Transfers};

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
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Permutation,
        Self::Incast,
        Self::AllToAll,
        Self::Ring,
        Self::Random,
        Self::Collective,
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
        }
    }
}

/// Traffic without a job.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrafficConfig {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// What each flow carries; for a collective, its size as nccl-tests counts it.
    pub bytes: Bytes,
    /// How many NICs take part, the receiver of an incast among them: the first so many. Left
    /// out, all.
    pub hosts: Option<u32>,
    /// How many flows the random pattern has.
    pub count: u32,
    /// The least that a flow of the random pattern carries. Left out, all carry `bytes`.
    pub smallest: Option<Bytes>,
    /// How many messages each flow sends, one after the other.
    pub messages: u32,
    /// When it begins.
    pub start: Span,
    /// Which collective, if the pattern is one.
    pub collective: Collective,
    /// How many GPUs run the collective: the first so many. Left out, all.
    pub gpus: Option<u64>,
    /// A file of flows instead of a pattern, with the columns `src,dst,bytes,start_ns`.
    pub flows: Option<String>,
    /// More traffic at the same time.
    pub background: Vec<BackgroundConfig>,
}

impl Default for TrafficConfig {
    fn default() -> Self {
        Self {
            pattern: Pattern::default(),
            // Illustrative: long enough that starting up does not matter.
            bytes: Bytes::from_mib(64),
            hosts: None,
            // Illustrative.
            count: 1000,
            smallest: None,
            messages: 1,
            start: Span::ZERO,
            collective: Collective::AllReduce,
            gpus: None,
            flows: None,
            background: Vec::new(),
        }
    }
}

/// Traffic beside what is looked at.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundConfig {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// What each flow carries.
    pub bytes: Bytes,
    /// The first NIC that takes part.
    #[serde(default)]
    pub first: u32,
    /// How many NICs take part. Left out, all from the first on.
    #[serde(default)]
    pub hosts: Option<u32>,
    /// How many flows the random pattern has.
    #[serde(default = "one")]
    pub count: u32,
    /// The least that a flow of the random pattern carries. Left out, all carry `bytes`.
    #[serde(default)]
    pub smallest: Option<Bytes>,
    /// How many messages each flow sends, one after the other.
    #[serde(default = "one")]
    pub messages: u32,
    /// When it begins.
    #[serde(default)]
    pub start: Span,
}

fn one() -> u32 {
    1
}

/// Some bytes from one NIC to another.
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

/// More flows than this are refused: each takes memory in the engine.
pub const MAX_FLOWS: u64 = 1 << 25;

/// What is wrong with synthetic traffic: the key below `[traffic]`, and a sentence.
pub type Wrong = (String, String);

/// What is wrong with the traffic on a fabric with this many NICs.
pub fn check(config: &TrafficConfig, nics: u32) -> Vec<Wrong> {
    parts(config).iter().filter_map(|(path, part)| members(part, nics, path).err()).collect()
}

/// The flows of a pattern and its background on a fabric with this many NICs.
///
/// ```
/// use traffic::pattern::{Pattern, TrafficConfig, flows};
/// let config = TrafficConfig { pattern: Pattern::Incast, hosts: Some(9), ..Default::default() };
/// let flows = flows(&config, 16, 1).unwrap();
/// assert_eq!(flows.len(), 8);
/// assert!(flows.iter().all(|flow| flow.dst == 0));
/// ```
pub fn flows(config: &TrafficConfig, nics: u32, seed: u64) -> Result<Vec<Flow>, Vec<Wrong>> {
    let wrong = check(config, nics);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut flows = Vec::new();
    for (number, (_, part)) in parts(config).iter().enumerate() {
        write(part, nics, Random::new(seed, "pattern", number as u64), &mut flows);
    }
    Ok(flows)
}

/// The pattern, if there is one, and its background, each with where it stands.
fn parts(config: &TrafficConfig) -> Vec<(String, BackgroundConfig)> {
    let main = BackgroundConfig {
        pattern: config.pattern,
        bytes: config.bytes,
        first: 0,
        hosts: config.hosts,
        count: config.count,
        smallest: config.smallest,
        messages: config.messages,
        start: config.start,
    };
    let background = config.background.iter().enumerate();
    let background = background.map(|(at, part)| (format!("background.{at}."), part.clone()));
    let has_pattern = config.flows.is_none() && config.pattern != Pattern::Collective;
    has_pattern.then_some((String::new(), main)).into_iter().chain(background).collect()
}

/// Whether a part of the traffic fits the fabric.
fn members(part: &BackgroundConfig, nics: u32, path: &str) -> Result<(), Wrong> {
    let fault = |key: &str, reason: String| Err((format!("{path}{key}"), reason));
    let BackgroundConfig { pattern, first, hosts, messages, bytes, .. } = *part;
    let left = nics.saturating_sub(first);
    let hosts = hosts.unwrap_or(left);
    if pattern == Pattern::Collective {
        return fault("pattern", "a collective cannot be background".to_owned());
    }
    if left < hosts {
        return fault("hosts", format!("{hosts} hosts, but there are {left}; {left} would fit"));
    }
    if hosts < 2 {
        return fault("hosts", format!("{hosts} hosts have nobody to send to; 2 would"));
    }
    if part.smallest.is_some_and(|smallest| bytes < smallest) {
        return fault("smallest", format!("is above `bytes`, which is {bytes}"));
    }
    if messages == 0 {
        return fault("messages", "is 0; the least is 1".to_owned());
    }
    if bytes == Bytes::ZERO {
        return fault("bytes", "is 0; the least is 1B".to_owned());
    }
    let hosts = u64::from(hosts);
    if pattern == Pattern::AllToAll && MAX_FLOWS < hosts * hosts {
        return fault("hosts", format!("{hosts} hosts make more than {MAX_FLOWS} flows"));
    }
    Ok(())
}

fn write(part: &BackgroundConfig, nics: u32, mut random: Random, flows: &mut Vec<Flow>) {
    let BackgroundConfig { pattern, first, hosts, messages, bytes, start, .. } = *part;
    let hosts = hosts.unwrap_or(nics - first);
    if pattern == Pattern::Random {
        let least = part.smallest.unwrap_or(bytes).get();
        for _ in 0..part.count {
            let src = random.below(hosts.into()) as u32;
            let dst = (src + 1 + random.below(u64::from(hosts) - 1) as u32) % hosts;
            let bytes = Bytes::new(least + random.below(bytes.get() - least + 1));
            flows.push(Flow { src: first + src, dst: first + dst, bytes, start, messages });
        }
        return;
    }
    let mut add = |src: u32, dst: u32| {
        flows.push(Flow { src: first + src, dst: first + dst, bytes, start, messages });
    };
    match pattern {
        Pattern::Permutation => {
            for (src, dst) in derangement(hosts, &mut random).into_iter().enumerate() {
                add(src as u32, dst);
            }
        }
        Pattern::Incast => (1..hosts).for_each(|src| add(src, 0)),
        Pattern::AllToAll => {
            // Everybody begins with the next one, so that nobody is everybody's first.
            for distance in 1..hosts {
                (0..hosts).for_each(|src| add(src, (src + distance) % hosts));
            }
        }
        Pattern::Ring => (0..hosts).for_each(|src| add(src, (src + 1) % hosts)),
        Pattern::Random | Pattern::Collective => {}
    }
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
pub fn transfers(fabric: &Fabric, flows: &[Flow]) -> (Transfers, Vec<crate::OpId>) {
    let mut transfers = Transfers::new();
    let label = transfers.label("flows");
    let mut last = Vec::with_capacity(flows.len());
    for (number, flow) in flows.iter().enumerate() {
        let connection = transfers.connect(Connection {
            from: fabric.nic(flow.src as usize),
            to: fabric.nic(flow.dst as usize),
            channel: number as u32,
            queue_pairs: 0,
        });
        let wait = |transfers: &mut Transfers| {
            transfers.add(OpKind::Wait { span: flow.start }, label, &[])
        };
        let mut before = (flow.start != Span::ZERO).then(|| wait(&mut transfers));
        for _ in 0..flow.messages.max(1) {
            before = Some(transfers.send(connection, flow.bytes, label, before.as_slice()));
        }
        last.extend(before);
    }
    (transfers, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pattern: Pattern, hosts: u32) -> TrafficConfig {
        TrafficConfig { pattern, hosts: Some(hosts), ..TrafficConfig::default() }
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
            let flows = flows(&config(pattern, hosts), 16, 7).unwrap();
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
            let draw = |seed| flows(&config(Pattern::Permutation, hosts), 64, seed).unwrap();
            let mut targets: Vec<u32> = draw(seed).iter().map(|flow| flow.dst).collect();
            assert!(draw(seed).iter().all(|flow| flow.src != flow.dst), "seed {seed}");
            targets.sort_unstable();
            assert_eq!(targets, (0..hosts).collect::<Vec<u32>>(), "seed {seed}");
            assert_eq!(draw(seed), draw(seed));
        }
        let draw = |seed| flows(&config(Pattern::Permutation, 64), 64, seed).unwrap();
        assert_ne!(draw(1), draw(2));
    }

    /// Property: random flows keep to their hosts and sizes, and hang on the seed.
    #[test]
    fn random_flows_keep_their_bounds() {
        let smallest = Some(Bytes::new(100));
        let (bytes, count) = (Bytes::new(1_000), 500);
        let random = TrafficConfig { bytes, count, smallest, ..config(Pattern::Random, 8) };
        let drawn = flows(&random, 16, 1).unwrap();
        assert_eq!(drawn.len(), 500);
        assert!(drawn.iter().all(|flow| flow.src != flow.dst && flow.src < 8 && flow.dst < 8));
        assert!(drawn.iter().all(|flow| (100..=1_000).contains(&flow.bytes.get())));
        let mean = drawn.iter().map(|flow| flow.bytes.as_f64()).sum::<f64>() / 500.0;
        assert!((500.0..600.0).contains(&mean), "{mean}");
        assert_ne!(drawn, flows(&random, 16, 2).unwrap());
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_key() {
        let refusal = |config: &TrafficConfig| flows(config, 16, 0).unwrap_err();
        let keys = |config: &TrafficConfig| {
            refusal(config).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&config(Pattern::Ring, 17)), ["hosts"]);
        assert_eq!(keys(&config(Pattern::Ring, 1)), ["hosts"]);
        let none = TrafficConfig { messages: 0, ..config(Pattern::Ring, 4) };
        assert_eq!(keys(&none), ["messages"]);
        let part = BackgroundConfig {
            pattern: Pattern::Ring,
            bytes: Bytes::from_kib(1),
            first: 15,
            hosts: None,
            count: 1,
            smallest: None,
            messages: 1,
            start: Span::ZERO,
        };
        let crowded = TrafficConfig { background: vec![part], ..config(Pattern::Ring, 4) };
        assert_eq!(keys(&crowded), ["background.0.hosts"]);
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
