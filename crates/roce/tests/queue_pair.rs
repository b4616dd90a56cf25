//! Two queue pairs and a channel that loses, reorders, duplicates and marks: a model says what must
//! be where in the end.

use std::collections::BTreeMap;

use packetsim::cc::{CcConfig, Circumstances};
use proptest::prelude::*;
use roce::header::Headers;
use roce::queue_pair::{
    Broken, Config, Counters, Event, Kind, Memory, QueuePair, Receive, Repeat, Work,
};
use units::{Bytes, Random, Rate, Span, Time};

const MTU: u32 = 64;
/// Keys of the regions of each end.
const SOURCE: u32 = 1;
const SINK: u32 = 2;
const INBOX: u32 = 3;
const READ: u32 = 4;
const REGION: usize = 64 * 1024;

/// Four regions; every byte counts how often it was written.
struct Regions {
    bytes: Vec<Vec<u8>>,
    written: Vec<Vec<u8>>,
}

impl Regions {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, "memory", 0);
        let mut bytes = vec![vec![0; REGION]; 5];
        bytes[SOURCE as usize] = (0..REGION).map(|_| random.next_u64() as u8).collect();
        Self { bytes, written: vec![vec![0; REGION]; 5] }
    }
}

impl Memory for Regions {
    fn read(&self, key: u32, address: u64, length: usize, to: &mut Vec<u8>) -> bool {
        let region = self.bytes.get(key as usize);
        let part = region.and_then(|region| region.get(address as usize..)?.get(..length));
        part.map(|part| to.extend(part)).is_some()
    }

    fn write(&mut self, key: u32, address: u64, bytes: &[u8]) -> bool {
        let (at, key) = (address as usize, key as usize);
        let Some(region) = self.bytes.get_mut(key) else { return false };
        let Some(part) = region.get_mut(at..at + bytes.len()) else { return false };
        part.copy_from_slice(bytes);
        self.written[key][at..at + bytes.len()].iter_mut().for_each(|count| *count += 1);
        true
    }
}

/// What a channel does, in thousandths.
#[derive(Clone, Copy, Debug)]
struct Channel {
    loss: u64,
    duplicate: u64,
    reorder: u64,
    mark: u64,
}

const QUIET: Channel = Channel { loss: 0, duplicate: 0, reorder: 0, mark: 0 };

struct End {
    pair: QueuePair,
    memory: Regions,
    events: Vec<Event>,
}

/// A packet on its way: to which end, what it is, and whether it was marked.
type Flight = (usize, Headers, Vec<u8>, bool);

/// A run of two ends.
struct World {
    ends: [End; 2],
    now: Time,
    wire: BTreeMap<(Time, u64), Flight>,
    count: u64,
    random: Random,
    channel: Channel,
}

fn config(repeat: Repeat) -> Config {
    Config {
        mtu: MTU,
        // Close to the wrap.
        send_psn: 0xff_fff0,
        receive_psn: 0xff_fff0,
        window: 32,
        ack_every: 8,
        timeout: Span::from_ms(5),
        retries: 200,
        repeat,
        ..Config::new(17)
    }
}

impl World {
    fn new(seed: u64, channel: Channel, config: Config, control: &CcConfig) -> Self {
        let about = Circumstances {
            line: Rate::from_gbps(1),
            base_rtt: Span::from_us(20),
            hops: 2,
            mtu: Bytes::new(MTU.into()),
        };
        let end = |number: u64| End {
            pair: QueuePair::new(config, control.build(&about), control.receiver()),
            memory: Regions::new(seed + number),
            events: Vec::new(),
        };
        let random = Random::new(seed, "channel", 0);
        let ends = [end(0), end(1)];
        Self { ends, now: Time::ZERO, wire: BTreeMap::new(), count: 0, random, channel }
    }

    fn chance(&mut self, thousandths: u64) -> bool {
        self.random.below(1000) < thousandths
    }

    fn send(&mut self, from: usize, headers: Headers, payload: &[u8], is_data: bool) {
        if self.chance(self.channel.loss) {
            return;
        }
        let copies = 1 + usize::from(self.chance(self.channel.duplicate));
        for _ in 0..copies {
            let late = if self.chance(self.channel.reorder) { self.random.below(60) } else { 0 };
            let marked = is_data && self.chance(self.channel.mark);
            self.count += 1;
            let at = self.now + Span::from_us(10 + late);
            self.wire.insert((at, self.count), (1 - from, headers, payload.to_vec(), marked));
        }
    }

    /// Until nothing is left to do; `false` if that never comes.
    fn run(&mut self) -> bool {
        let mut payload = Vec::new();
        for _ in 0..400_000 {
            for from in 0..2 {
                let End { pair, memory, events } = &mut self.ends[from];
                pair.on_timer(self.now);
                let packet = pair.next_packet(self.now, memory, &mut payload);
                events.extend(std::iter::from_fn(|| pair.next_event()));
                if let Some(packet) = packet {
                    self.send(from, packet.headers, &payload, packet.is_data);
                }
            }
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let idle = self.ends.iter().all(|end| end.pair.is_idle());
            if arrival.is_none() && idle {
                return true;
            }
            let deadlines = self.ends.iter().filter_map(|end| end.pair.deadline());
            let next = deadlines.chain(arrival).min().expect("somebody waits for something");
            self.now = self.now.max(next);
            while let Some(entry) = self.wire.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to, headers, payload, marked) = entry.remove();
                let End { pair, memory, .. } = &mut self.ends[to];
                pair.on_packet(self.now, &headers, &payload, marked, memory);
            }
        }
        false
    }

    fn counters(&self) -> [Counters; 2] {
        [0, 1].map(|end| self.ends[end].pair.counters())
    }
}

/// What one end wants done.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Send(u32, bool),
    Write(u32, bool),
    Read(u32),
}

fn wish() -> impl Strategy<Value = Wish> {
    let length = prop_oneof![Just(0), 1..MTU, Just(MTU), Just(3 * MTU), 1..20 * MTU];
    (length, 0..3, any::<bool>()).prop_map(|(length, kind, immediate)| match kind {
        0 => Wish::Send(length, immediate),
        1 => Wish::Write(length, immediate),
        _ => Wish::Read(length.max(1)),
    })
}

/// Posts wishes of one end, one after the other in all regions; what the other end must hear.
fn post(world: &mut World, from: usize, wishes: &[Wish], late: bool) -> Vec<(u64, Option<u32>)> {
    let (mut source, mut sink, mut inbox, mut read) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut heard = Vec::new();
    for (id, wish) in wishes.iter().enumerate() {
        let id = id as u64;
        let said = |immediate: bool| immediate.then_some(7 * id as u32);
        let (kind, key, address, length) = match *wish {
            Wish::Send(length, immediate) => {
                let immediate = said(immediate);
                heard.push((u64::from(length), immediate));
                (Kind::Send { immediate }, SOURCE, source, length)
            }
            Wish::Write(length, immediate) => {
                let immediate = said(immediate);
                if immediate.is_some() {
                    heard.push((u64::from(length), immediate));
                }
                (Kind::Write { address: sink, key: SINK, immediate }, SOURCE, source, length)
            }
            Wish::Read(length) => (Kind::Read { address: source, key: SOURCE }, READ, read, length),
        };
        world.ends[from].pair.post(world.now, Work { id, kind, key, address, length });
        match wish {
            Wish::Send(..) => source += u64::from(length),
            Wish::Write(..) => {
                source += u64::from(length);
                sink += u64::from(length);
            }
            Wish::Read(_) => read += u64::from(length),
        }
    }
    for (id, (bytes, _)) in heard.iter().enumerate() {
        // One buffer too few at first, if the receiver is to be late.
        if !(late && id + 1 == heard.len()) {
            let capacity = *bytes as u32;
            let receive = Receive { id: id as u64, key: INBOX, address: inbox, capacity };
            world.ends[1 - from].pair.post_receive(receive);
        }
        inbox += bytes;
    }
    heard
}

/// What must be in the regions in the end.
fn check(world: &World, from: usize, wishes: &[Wish], heard: &[(u64, Option<u32>)]) {
    let (me, other) = (&world.ends[from], &world.ends[1 - from]);
    let done: Vec<u64> = me
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Done { id } => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(done, (0..wishes.len() as u64).collect::<Vec<_>>(), "in order, each once");
    let received: Vec<(u64, Option<u32>)> = other
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Received { bytes, immediate, .. } => Some((*bytes, *immediate)),
            _ => None,
        })
        .collect();
    assert_eq!(received, heard);
    let region = |end: &End, key: u32| end.memory.bytes[key as usize].clone();
    let (mine, theirs) = (region(me, SOURCE), region(other, SOURCE));
    let (mut source, mut sink, mut inbox, mut read) = (0, 0, 0, 0);
    let mut receive = 0;
    for wish in wishes {
        match *wish {
            Wish::Send(length, _) => {
                let length = length as usize;
                let expected = &mine[source..source + length];
                assert_eq!(&region(other, INBOX)[inbox..inbox + length], expected);
                source += length;
                inbox += heard[receive].0 as usize;
                receive += 1;
            }
            Wish::Write(length, immediate) => {
                let length = length as usize;
                let expected = &mine[source..source + length];
                assert_eq!(&region(other, SINK)[sink..sink + length], expected);
                source += length;
                sink += length;
                if immediate {
                    inbox += heard[receive].0 as usize;
                    receive += 1;
                }
            }
            Wish::Read(length) => {
                let length = length as usize;
                let expected = &theirs[source..source + length];
                assert_eq!(&region(me, READ)[read..read + length], expected);
                read += length;
            }
        }
    }
    for (end, key, length) in [(other, SINK, sink), (me, READ, read)] {
        let counts = &end.memory.written[key as usize];
        assert!(counts[..length].iter().all(|count| *count == 1), "every byte once");
        assert!(counts[length..].iter().all(|count| *count == 0), "and no other");
    }
}

fn dcqcn() -> CcConfig {
    let found = CcConfig::defaults().into_iter().find(|(name, _)| *name == "dcqcn");
    found.expect("it is there").1
}

fn none() -> CcConfig {
    let found = CcConfig::defaults().into_iter().find(|(name, _)| *name == "none");
    found.expect("it is there").1
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Whatever the channel does, every byte arrives once and in order, and nothing hangs.
    #[test]
    fn everything_arrives_once_and_in_order(
        seed in any::<u64>().prop_map(|seed| seed >> 1),
        loss in 0_u64..150, duplicate in 0_u64..150, reorder in 0_u64..300, mark in 0_u64..200,
        selective in any::<bool>(),
        controlled in any::<bool>(),
        wishes in [prop::collection::vec(wish(), 0..12), prop::collection::vec(wish(), 0..12)],
    ) {
        let repeat = if selective { Repeat::Selective } else { Repeat::GoBackN };
        let control = if controlled { dcqcn() } else { none() };
        let channel = Channel { loss, duplicate, reorder, mark };
        let mut world = World::new(seed, channel, config(repeat), &control);
        let heard = [0, 1].map(|from| post(&mut world, from, &wishes[from], false));
        prop_assert!(world.run(), "it hangs");
        for from in 0..2 {
            check(&world, from, &wishes[from], &heard[from]);
        }
    }

    /// Nothing is sent twice where nothing is disturbed.
    #[test]
    fn an_undisturbed_run_retransmits_nothing(
        seed in any::<u64>().prop_map(|seed| seed >> 1),
        selective in any::<bool>(),
        wishes in [prop::collection::vec(wish(), 0..12), prop::collection::vec(wish(), 0..12)],
    ) {
        let repeat = if selective { Repeat::Selective } else { Repeat::GoBackN };
        let mut world = World::new(seed, QUIET, config(repeat), &none());
        let heard = [0, 1].map(|from| post(&mut world, from, &wishes[from], false));
        prop_assert!(world.run(), "it hangs");
        for from in 0..2 {
            check(&world, from, &wishes[from], &heard[from]);
            let counters = world.counters()[from];
            prop_assert_eq!((counters.retransmitted, counters.naks, counters.timeouts), (0, 0, 0));
        }
    }
}

/// A receiver without a buffer says so; the message arrives when one is posted.
#[test]
fn a_receiver_that_is_not_ready_delays_the_message() {
    let mut world = World::new(1, QUIET, config(Repeat::GoBackN), &none());
    let wishes = [Wish::Send(3 * MTU, false)];
    let heard = post(&mut world, 0, &wishes, true);
    let End { pair, memory, .. } = &mut world.ends[0];
    let mut payload = Vec::new();
    let packet = pair.next_packet(Time::ZERO, memory, &mut payload).expect("a first packet");
    world.send(0, packet.headers, &payload, true);
    let (_, (_, headers, payload, _)) = world.wire.pop_first().expect("on its way");
    let End { pair, memory, .. } = &mut world.ends[1];
    pair.on_packet(Time::ZERO, &headers, &payload, false, memory);
    assert_eq!(pair.counters().not_ready, 1);
    let capacity = heard[0].0 as u32;
    pair.post_receive(Receive { id: 0, key: INBOX, address: 0, capacity });
    assert!(world.run());
    check(&world, 0, &wishes, &heard);
    // 1.28 ms is what the default timer asks for.
    assert!(Time::from_ps(1_280_000_000) <= world.now);
}

/// A receiver that is gone is given up after as many retries as were agreed, and not before.
#[test]
fn silence_ends_the_connection_after_all_retries() {
    let channel = Channel { loss: 1000, ..QUIET };
    let mut world =
        World::new(1, channel, Config { retries: 3, ..config(Repeat::GoBackN) }, &none());
    post(&mut world, 0, &[Wish::Write(10, false)], false);
    assert!(world.run());
    assert_eq!(world.ends[0].events, [Event::Broken(Broken::Silence)]);
    assert_eq!(world.counters()[0].retransmitted, 3);
    assert_eq!(world.now, Time::from_ps(4 * 5_000_000_000));
}

/// Memory that a key does not open is refused, by either end.
#[test]
fn foreign_memory_is_refused() {
    let mut world = World::new(1, QUIET, config(Repeat::GoBackN), &none());
    let kind = Kind::Write { address: REGION as u64, key: SINK, immediate: None };
    world.ends[0].pair.post(Time::ZERO, Work { id: 1, kind, key: SOURCE, address: 0, length: 8 });
    assert!(world.run());
    let refused = Broken::Refused(roce::NakCode::RemoteAccess);
    assert_eq!(world.ends[0].events, [Event::Broken(refused)]);
    assert_eq!(world.ends[1].events, [Event::Broken(refused)]);
}

/// Marks come back as notifications, and the control slows down.
#[test]
fn marks_slow_the_sender() {
    let channel = Channel { mark: 1000, ..QUIET };
    let mut world = World::new(1, channel, config(Repeat::GoBackN), &dcqcn());
    let line = world.ends[0].pair.limit().rate;
    post(&mut world, 0, &[Wish::Write(200 * MTU, false)], false);
    assert!(world.run());
    let [sender, receiver] = world.counters();
    assert_eq!((sender.retransmitted, receiver.marked), (0, 200));
    assert!(0 < receiver.cnps && receiver.cnps == sender.notified);
    assert!(world.ends[0].pair.limit().rate < line);
}
