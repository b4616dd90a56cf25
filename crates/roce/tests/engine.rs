//! The packet engine's acknowledgements and retransmission against those of a queue pair.
//!
//! The engine runs a message over links that lose packets, and a tap shows every packet with its
//! time. The same arrivals, at the same times, are told to queue pairs: a receiver must answer each
//! with the same acknowledgement or NAK, a sender must choose the same packet whenever the engine
//! sent one.

use std::collections::BTreeMap;

use fabric::hardware::Catalogue;
use fabric::topology::{ClusterConfig, FabricConfig, build};
use fabric::{Fabric, LinkId};
use packetsim::cc::{CcConfig, Circumstances};
use packetsim::tap::{Carries, Frame};
use packetsim::{MeasureConfig, Settings, Watch, run_recorded};
use roce::queue_pair::{Config, Kind, Memory, Repeat, Work};
use roce::{Bth, Headers, NakCode, Opcode, Operation, QueuePair, Syndrome};
use traffic::{Connection, OpKind, Transfers};
use units::{Bytes, Rate, Span, Time};

const PACKETS: u32 = 400;
const MTU: u32 = 4096;
const TIMEOUT: Span = Span::from_ms(1);
/// Times of sending are found by subtraction, which rounds; packets are 80 ns apart.
const SLACK: Span = Span::from_ns(10);

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

fn settings(loss: f64, seed: u64) -> Settings {
    let mut settings = Settings { loss, seed, ..Settings::default() };
    settings.packet.mtu = Bytes::new(MTU.into());
    settings.routing.qps = 1;
    (settings.nic.ack_every, settings.nic.timeout, settings.nic.retries) = (1, TIMEOUT, 200);
    (settings.nic.send_latency, settings.nic.receive_latency) = (Span::ZERO, Span::ZERO);
    let none = CcConfig::defaults().into_iter().find(|(name, _)| *name == "none");
    settings.congestion = none.expect("it is there").1;
    settings
}

/// What the engine did with one message between two hosts of a leaf.
fn engine(fabric: &Fabric, loss: f64, seed: u64) -> Vec<Frame> {
    let [from, to] = [0, 1].map(|gpu| fabric.nic_of(fabric.gpu(gpu)));
    let mut transfers = Transfers::new();
    let label = transfers.label("test");
    let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
    let bytes = Bytes::new(u64::from(PACKETS * MTU));
    transfers.add(OpKind::Send { connection, bytes }, label, &[]);
    let (settings, faults) = (settings(loss, seed), Default::default());
    let measure = (&MeasureConfig::default(), Some(Bytes::from_mib(64)));
    let ran = run_recorded(fabric, &transfers, &settings, &faults, measure, &mut Watch::default());
    ran.expect("it runs").1.capture.expect("it was asked for").frames
}

fn pair() -> QueuePair {
    let about = Circumstances {
        line: Rate::from_gbps(1_000_000),
        base_rtt: Span::from_us(20),
        hops: 2,
        mtu: Bytes::new(MTU.into()),
    };
    let config = Config {
        mtu: MTU,
        window: 1 << 20,
        ack_every: 1,
        timeout: TIMEOUT,
        retries: 200,
        repeat: Repeat::GoBackN,
        ..Config::new(17)
    };
    let control = settings(0.0, 1).congestion;
    QueuePair::new(config, control.build(&about), control.receiver())
}

fn is_data(frame: &Frame) -> bool {
    matches!(frame.carries, Carries::Data { .. })
}

/// What a receiver says to the engine's arrivals: whether it is an acknowledgement, and the number
/// that is expected or missing.
fn answers(frames: &[Frame]) -> Vec<(bool, u32)> {
    let (mut receiver, mut said) = (pair(), Vec::new());
    for frame in frames.iter().filter(|frame| is_data(frame) && !frame.is_lost) {
        let operation = match frame.psn {
            0 => Operation::WriteFirst,
            psn if psn + 1 == PACKETS => Operation::WriteLast,
            _ => Operation::WriteMiddle,
        };
        let mut headers = Headers::new(Bth::new(Opcode::rc(operation), 17, frame.psn));
        headers.bth.ack_request = true;
        let length = PACKETS * MTU;
        headers.reth = (frame.psn == 0).then_some(roce::Reth { address: 0, key: 1, length });
        receiver.on_packet(frame.at, &headers, &[0; MTU as usize], false, &mut Anything);
        let mut payload = Vec::new();
        while let Some(answer) = receiver.next_packet(frame.at, &Anything, &mut payload) {
            let aeth = answer.headers.aeth.expect("an acknowledgement has it");
            match aeth.syndrome {
                Syndrome::Ack { .. } => said.push((true, answer.headers.bth.psn + 1)),
                Syndrome::Nak(NakCode::PsnSequence) => {
                    said.push((false, answer.headers.bth.psn));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    said
}

/// The ways, in picoseconds, from the start of a packet to where the tap notes it: its arrival, or
/// its loss on a link. Some of each are of packets that left one after the other from the start.
fn ways(runs: &[Vec<Frame>], undisturbed: &[Frame]) -> BTreeMap<(bool, LinkId), u64> {
    let arrival = |psn: u32| {
        let frame = undisturbed.iter().find(|frame| is_data(frame) && frame.psn == psn);
        frame.expect("nothing was lost").at.as_ps()
    };
    let each = arrival(1) - arrival(0);
    let mut ways = BTreeMap::new();
    for frame in runs.iter().flatten().filter(|frame| is_data(frame)) {
        let way = frame.at.as_ps() - each * u64::from(frame.psn);
        let least = ways.entry((frame.is_lost, frame.link)).or_insert(way);
        *least = way.min(*least);
    }
    ways
}

/// When each packet of data was sent, and which.
fn sent(frames: &[Frame], ways: &BTreeMap<(bool, LinkId), u64>) -> Vec<(Time, u32)> {
    let time = |frame: &Frame| {
        let way = ways[&(frame.is_lost, frame.link)];
        (Time::from_ps(frame.at.as_ps() - way), frame.psn)
    };
    let mut all: Vec<(Time, u32)> =
        frames.iter().filter(|frame| is_data(frame)).map(time).collect();
    all.sort();
    all
}

/// What a sender sends when the engine did, told what the engine's sender was told.
fn resent(frames: &[Frame], sent: &[(Time, u32)]) -> Vec<u32> {
    let mut sender = pair();
    let kind = Kind::Write { address: 0, key: 1, immediate: None };
    let length = PACKETS * MTU;
    sender.post(Time::ZERO, Work { id: 1, kind, key: 1, address: 0, length });
    let mut told = frames.iter().filter(|frame| !is_data(frame) && !frame.is_lost).peekable();
    let (mut chosen, mut payload) = (Vec::new(), Vec::new());
    for (now, _) in sent {
        while let Some(frame) = told.next_if(|frame| frame.at <= *now + SLACK) {
            let (number, syndrome) = match frame.carries {
                Carries::Ack { .. } => (frame.psn.wrapping_sub(1), Syndrome::ACK),
                _ => (frame.psn, Syndrome::Nak(NakCode::PsnSequence)),
            };
            let aeth = roce::Aeth { syndrome, msn: 0 };
            let headers = Headers::ack(17, number & 0xff_ffff, aeth);
            sender.on_packet(frame.at, &headers, &[], false, &mut Anything);
        }
        sender.on_timer(*now + SLACK);
        let packet = sender.next_packet(*now, &Anything, &mut payload);
        chosen.push(packet.map_or(u32::MAX, |packet| packet.headers.bth.psn));
    }
    chosen
}

#[test]
fn the_engine_and_a_queue_pair_decide_alike() {
    let cluster = ClusterConfig {
        nodes: Some(2),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let fabric = build(&cluster, &FabricConfig::default(), &Catalogue::default()).unwrap();
    let undisturbed = engine(&fabric, 0.0, 1);
    let runs: Vec<Vec<Frame>> = (1..=60).map(|seed| engine(&fabric, 0.02, seed)).collect();
    let ways = ways(&runs, &undisturbed);
    let (mut answered, mut again) = (0, 0);
    for (seed, frames) in (1..).zip(&runs) {
        let mut said = answers(frames);
        let control = frames.iter().filter(|frame| !is_data(frame));
        let mut by_engine: Vec<(bool, u32)> = control
            .map(|frame| (matches!(frame.carries, Carries::Ack { .. }), frame.psn))
            .collect();
        answered += said.len();
        // What is lost is noted earlier than what arrives; numbers only grow.
        said.sort_unstable();
        by_engine.sort_unstable();
        assert_eq!(said, by_engine, "seed {seed}: the receiver");
        let sent = sent(frames, &ways);
        again += sent.len() - PACKETS as usize;
        let by_engine: Vec<u32> = sent.iter().map(|(_, psn)| *psn).collect();
        assert_eq!(resent(frames, &sent), by_engine, "seed {seed}: the sender");
    }
    assert!(10_000 < answered && 1_000 < again, "{answered} answers, {again} sent again");
}
