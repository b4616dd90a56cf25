//! The packet engine's acknowledgements and retransmission against those of a queue pair.
//!
//! The engine runs a message over links that lose packets, alone or sprayed over spines that others
//! fill, so that packets overtake each other. A tap shows every packet with its times. The same
//! arrivals, at the same times, are told to queue pairs: a receiver must answer each with the same
//! acknowledgements and NAKs, a sender must choose the same packet whenever the engine sent one.
//!
//! One thing differs on purpose. At a timeout with selective repeat the engine looks at the
//! receiver's own list of what came early; a queue pair knows what acknowledgements told it. So a
//! lost acknowledgement of an early packet is told all the same, without what it says of others.

use std::collections::{BTreeMap, BTreeSet};

use fabric::Fabric;
use fabric::hardware::{Catalogue, Reorder};
use fabric::routing::Policy;
use fabric::topology::{ClusterConfig, FabricConfig, build};
use packetsim::cc::{CcConfig, Circumstances};
use packetsim::tap::{Carries, Frame};
use packetsim::{MeasureConfig, Settings, Watch, run_recorded};
use roce::queue_pair::{Config, Kind, Memory, Repeat, Work};
use roce::{Aeth, Bth, Headers, NakCode, Opcode, Operation, QueuePair, Syndrome};
use traffic::{Connection, OpKind, Transfers};
use units::{Bytes, Rate, Span, Time};

const PACKETS: u32 = 400;
const MTU: u32 = 4096;
const TIMEOUT: Span = Span::from_ms(1);
/// Times of sending are cut to nanoseconds; packets are 80 ns apart.
const SLACK: Span = Span::from_ps(999);

/// The message that is looked at, and others that fill the spines on its way.
const OVERTAKING: &[[usize; 2]] = &[[0, 4], [1, 5], [2, 7], [8, 6], [9, 7], [10, 5], [11, 6]];

/// Memory that takes and gives everything.
struct Anything;

impl Memory for Anything {
    fn read(&self, _: u32, _: u64, length: usize, to: &mut Vec<u8>) -> bool {
        to.resize(to.len() + length, 0);
        true
    }

    fn write(&mut self, _: u32, _: u64, _: &[u8]) -> bool {
        true
    }
}

/// How both repeat and acknowledge, and whether packets overtake each other.
#[derive(Clone, Copy, Debug)]
struct Case {
    repeat: Repeat,
    sprays: bool,
    loss: f64,
    /// Packets that an acknowledgement is for.
    ack_every: u32,
}

impl Case {
    fn settings(self, seed: u64) -> Settings {
        let mut settings = Settings { loss: self.loss, seed, ..Settings::default() };
        settings.packet.mtu = Bytes::new(MTU.into());
        settings.routing.qps = 1;
        if self.sprays {
            settings.routing.policy = Policy::Spray;
        }
        settings.nic.ack_every = self.ack_every;
        (settings.nic.timeout, settings.nic.retries) = (TIMEOUT, 200);
        (settings.nic.send_latency, settings.nic.receive_latency) = (Span::ZERO, Span::ZERO);
        settings.nic.reorder = match self.repeat {
            Repeat::GoBackN => Reorder::None,
            Repeat::Selective => Reorder::SelectiveRepeat,
        };
        settings.congestion = none();
        settings
    }

    fn fabric(self) -> Fabric {
        let servers = if self.sprays { 12 } else { 2 };
        let cluster = ClusterConfig {
            nodes: Some(servers),
            gpus_per_node: 1,
            nics_per_node: 1,
            ..ClusterConfig::default()
        };
        let mut fabric = FabricConfig::default();
        if self.sprays {
            (fabric.tiers, fabric.radix, fabric.spines) = (Some(2), Some(8), Some(4));
        }
        build(&cluster, &fabric, &Catalogue::default()).unwrap()
    }

    /// What the engine did with one message between two hosts, others beside it where packets are
    /// to overtake each other.
    fn engine(self, fabric: &Fabric, seed: u64) -> Vec<Frame> {
        let mut transfers = Transfers::new();
        let label = transfers.label("test");
        let ways: &[[usize; 2]] = if self.sprays { OVERTAKING } else { &[[0, 1]] };
        for (number, way) in ways.iter().enumerate() {
            let [from, to] = way.map(|gpu| fabric.nic_of(fabric.gpu(gpu)));
            let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
            let more = if number == 0 { 0 } else { 1 << 20 };
            let bytes = Bytes::new(u64::from(PACKETS * MTU + more));
            transfers.add(OpKind::Send { connection, bytes }, label, &[]);
        }
        let (settings, faults) = (self.settings(seed), Default::default());
        let measure = (&MeasureConfig::default(), Some(Bytes::from_mib(4096)));
        let ran =
            run_recorded(fabric, &transfers, &settings, &faults, measure, &mut Watch::default());
        let capture = ran.expect("it runs").1.capture.expect("it was asked for");
        assert_eq!(capture.left_out, 0);
        let frames = capture.frames;
        let is_ours = |frame: &Frame| frame.pair == 0 && frame.key.is_some();
        frames.into_iter().filter(is_ours).collect()
    }

    fn pair(self) -> QueuePair {
        let about = Circumstances {
            line: Rate::from_gbps(1_000_000),
            base_rtt: Span::from_us(20),
            hops: 2,
            mtu: Bytes::new(MTU.into()),
        };
        let config = Config {
            mtu: MTU,
            window: 1 << 20,
            ack_every: self.ack_every.into(),
            timeout: TIMEOUT,
            retries: 200,
            repeat: self.repeat,
            ..Config::new(17)
        };
        QueuePair::new(config, none().build(&about), none().receiver())
    }
}

fn none() -> CcConfig {
    let none = CcConfig::defaults().into_iter().find(|(name, _)| *name == "none");
    none.expect("it is there").1
}

fn is_data(frame: &Frame) -> bool {
    matches!(frame.carries, Carries::Data { .. })
}

fn sent_at(frame: &Frame) -> Time {
    frame.sent.expect("nothing is stamped")
}

/// What a receiver said: whether it is an acknowledgement, the number that is expected or missing,
/// and the packet that was answered, if that is told.
type Said = (bool, u32, Option<u32>);

/// What a receiver says to the engine's arrivals.
fn answers(case: Case, frames: &[Frame]) -> Vec<Said> {
    let (mut receiver, mut said) = (case.pair(), Vec::new());
    for frame in frames.iter().filter(|frame| is_data(frame) && !frame.is_lost) {
        let operation = match frame.psn {
            0 => Operation::WriteFirst,
            psn if psn + 1 == PACKETS => Operation::WriteLast,
            _ => Operation::WriteMiddle,
        };
        let mut headers = Headers::new(Bth::new(Opcode::rc(operation), 17, frame.psn));
        headers.bth.ack_request = frame.psn + 1 == PACKETS;
        let length = PACKETS * MTU;
        headers.reth = (frame.psn == 0).then_some(roce::Reth { address: 0, key: 1, length });
        let payload = [0; MTU as usize];
        receiver.on_packet(frame.at, &headers, &payload, frame.is_marked, &mut Anything);
        let mut payload = Vec::new();
        while let Some(answer) = receiver.next_packet(frame.at, &Anything, &mut payload) {
            let aeth = answer.headers.aeth.expect("an acknowledgement has it");
            let psn = answer.headers.bth.psn;
            match aeth.syndrome {
                Syndrome::Ack { .. } => {
                    // What is in order is named by the last of it, which may have come before.
                    let is_early = case.repeat == Repeat::Selective && aeth.msn != psn;
                    let expected = psn.wrapping_add(1) & 0xff_ffff;
                    said.push((true, expected, is_early.then_some(aeth.msn)));
                }
                Syndrome::Nak(NakCode::PsnSequence) => said.push((false, psn, None)),
                other => panic!("{other:?}"),
            }
        }
    }
    said
}

/// By time of sending: the packets with data, which acknowledgements answer.
type Causes = BTreeMap<Time, u32>;

fn causes(frames: &[Frame]) -> Causes {
    let data = frames.iter().filter(|frame| is_data(frame));
    data.map(|frame| (sent_at(frame), frame.psn)).collect()
}

/// What the engine's receiver said.
fn answers_of_engine(case: Case, frames: &[Frame]) -> Vec<Said> {
    let control = frames.iter().filter(|frame| !is_data(frame));
    let causes = causes(frames);
    let said = control.map(|frame| match frame.carries {
        Carries::Ack { .. } => {
            let cause = causes[&sent_at(frame)];
            let is_early = case.repeat == Repeat::Selective && frame.psn <= cause;
            (true, frame.psn, is_early.then_some(cause))
        }
        _ => (false, frame.psn, None),
    });
    said.collect()
}

/// What a sender is told by a packet of the engine's receiver.
fn told(case: Case, causes: &Causes, frame: &Frame, through: &mut u32) -> Option<Headers> {
    let (number, aeth) = match frame.carries {
        Carries::Ack { .. } if frame.is_lost && case.repeat == Repeat::GoBackN => return None,
        Carries::Ack { .. } => {
            if !frame.is_lost {
                *through = (*through).max(frame.psn);
            }
            let msn = causes[&sent_at(frame)];
            (through.wrapping_sub(1), Aeth { syndrome: Syndrome::ACK, msn })
        }
        _ if frame.is_lost => return None,
        _ => (frame.psn, Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequence), msn: 0 }),
    };
    Some(Headers::ack(17, number & 0xff_ffff, aeth))
}

/// What a sender sends when the engine did, told what the engine's sender was told; the first
/// packet that is another, if there is one. What arrives in the nanosecond of a packet's sending
/// comes before it, but for those in `after`.
fn resent(case: Case, frames: &[Frame], sent: &[(Time, u32)], after: &BTreeSet<usize>) -> Resent {
    let mut sender = case.pair();
    let kind = Kind::Write { address: 0, key: 1, immediate: None };
    let length = PACKETS * MTU;
    sender.post(Time::ZERO, Work { id: 1, kind, key: 1, address: 0, length });
    let control = frames.iter().enumerate().filter(|(_, frame)| !is_data(frame));
    let mut control = control.peekable();
    let (causes, mut payload, mut through) = (causes(frames), Vec::new(), 0);
    let mut tied: Option<(usize, usize)> = None;
    for (step, (now, psn)) in sent.iter().enumerate() {
        let is_before = |(at, frame): &(usize, &Frame)| {
            frame.at < *now || frame.at <= *now + SLACK && !after.contains(at)
        };
        while let Some((at, frame)) = control.next_if(is_before) {
            tied = (*now <= frame.at).then_some((step, at)).or(tied);
            if let Some(headers) = told(case, &causes, frame, &mut through) {
                sender.on_packet(frame.at, &headers, &[], false, &mut Anything);
            }
        }
        sender.on_timer(*now + SLACK);
        let packet = sender.next_packet(*now, &Anything, &mut payload);
        let chosen = packet.map(|packet| packet.headers.bth.psn);
        if chosen != Some(*psn) {
            // The order may have counted a step later.
            let tied = tied.filter(|(before, _)| step <= before + 1).map(|(_, at)| at);
            return Resent::Other { step, chosen, tied };
        }
    }
    Resent::Alike
}

/// What came out of a comparison.
#[derive(Debug)]
enum Resent {
    Alike,
    /// Another packet at this step, and what had arrived in the nanosecond of this or the last.
    Other {
        step: usize,
        chosen: Option<u32>,
        tied: Option<usize>,
    },
}

/// Whether the sender chooses as the engine did, in one order of what happens in a nanosecond; how
/// often the order had to be the other.
fn sender_agrees(case: Case, frames: &[Frame], sent: &[(Time, u32)], seed: u64) -> usize {
    let mut after = BTreeSet::new();
    loop {
        match resent(case, frames, sent, &after) {
            Resent::Alike => return after.len(),
            Resent::Other { tied: Some(at), .. } => assert!(after.insert(at)),
            Resent::Other { step, chosen, .. } => {
                let engine = sent[step];
                panic!("{case:?}, seed {seed}: {chosen:?} instead of {engine:?}, step {step}");
            }
        }
    }
}

/// Runs a case with so many seeds: answers, packets sent again, packets that came early.
fn compare(case: Case, seeds: u64) -> [usize; 3] {
    let fabric = case.fabric();
    let (mut answered, mut again, mut early) = (0, 0, 0);
    for seed in 1..=seeds {
        let frames = case.engine(&fabric, seed);
        let (mut said, mut by_engine) = (answers(case, &frames), answers_of_engine(case, &frames));
        answered += said.len();
        // What is lost is noted earlier than what arrives.
        said.sort_unstable();
        by_engine.sort_unstable();
        let differ = said.iter().zip(&by_engine).find(|(one, other)| one != other);
        assert_eq!((differ, said.len()), (None, by_engine.len()), "{case:?}, seed {seed}");
        let data = frames.iter().filter(|frame| is_data(frame));
        let mut sent: Vec<(Time, u32)> =
            data.clone().map(|frame| (sent_at(frame), frame.psn)).collect();
        sent.sort();
        again += sent.len() - PACKETS as usize;
        let arrived: Vec<u32> = data.filter(|frame| !frame.is_lost).map(|one| one.psn).collect();
        early += arrived.windows(2).filter(|two| two[0] + 1 < two[1]).count();
        let ties = sender_agrees(case, &frames, &sent, seed);
        // A packet takes 84 ns: by chance one in 84 shares its nanosecond with something.
        assert!(ties <= sent.len() / 40, "{case:?}, seed {seed}: {ties} of {} steps", sent.len());
    }
    [answered, again, early]
}

#[test]
fn the_engine_and_a_queue_pair_decide_alike() {
    for repeat in [Repeat::GoBackN, Repeat::Selective] {
        for (ack_every, least) in [(1, 10_000), (4, 3_000)] {
            let case = Case { repeat, sprays: false, loss: 0.02, ack_every };
            let [answered, again, _] = compare(case, 60);
            assert!(least < answered && 500 < again, "{answered} answers, {again} sent again");
        }
    }
}

#[test]
fn they_decide_alike_when_packets_overtake_each_other() {
    for repeat in [Repeat::GoBackN, Repeat::Selective] {
        for (loss, ack_every) in [(0.0, 1), (0.005, 1), (0.0, 4), (0.005, 4)] {
            let case = Case { repeat, sprays: true, loss, ack_every };
            let [answered, again, early] = compare(case, 8);
            assert!(1_000 < answered && 100 < again, "{answered} answers, {again} sent again");
            assert!(100 < early, "{early} packets came early");
        }
    }
}
