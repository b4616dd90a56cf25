//! What comes over a network: packets, the protocol of `live`'s agents, pages of exporters.

use std::path::{Path, PathBuf};

use commands::observe::{http, series};
use live::agent::{AgentOptions, check, parse_hosts};
use live::frame;
use live::plan::{Probe, ProbePlan, RankMessage, RankResult, Task, Traced, WirePlan};
use packetsim::cc::{CcConfig, Circumstances};
use roce::packet::decode_ip;
use roce::queue_pair::{Config, Kind, Memory, QueuePair, Receive, Repeat, Work};
use units::{Bytes, Rate, Span, Time};

use crate::targets::{PACKET, said, text, texts};

/// Answers of exporters.
pub(crate) fn pages() -> Vec<Vec<u8>> {
    texts(&[
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\na{} 12\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\na 12.5\n\r\n0\r\n\r\n",
        "HTTP/1.0 404 Not Found\r\n\r\n",
    ])
}

/// A page as it is fetched, and the counters on it.
pub(crate) fn exporter(input: &[u8]) -> String {
    match http::read_answer(input) {
        Ok(page) => format!("{} counters", series::parse(&page).len().min(3)),
        Err(error) => error.to_string(),
    }
}

/// A WRITE and an acknowledgement, each with its length before it.
pub(crate) fn packets() -> Vec<Vec<u8>> {
    // An acknowledgement: opcode 17, of packet 0, with its AETH.
    let mut acknowledgement = PACKET[..40].to_vec();
    acknowledgement[3] = 48;
    acknowledgement[25] = 28;
    acknowledgement[28] = 17;
    acknowledgement.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    let framed = |packet: &[u8]| [&[packet.len() as u8], packet].concat();
    vec![framed(PACKET), [framed(&acknowledgement), framed(PACKET)].concat()]
}

/// One region of 4 KiB that everybody may read and write.
struct Region(Vec<u8>);

impl Memory for Region {
    fn read(&self, _: u32, address: u64, length: usize, to: &mut Vec<u8>) -> bool {
        let from = usize::try_from(address).ok();
        let part = from.and_then(|from| self.0.get(from..)?.get(..length));
        part.map(|part| to.extend(part)).is_some()
    }

    fn write(&mut self, _: u32, address: u64, bytes: &[u8]) -> bool {
        let Some(at) = usize::try_from(address).ok() else { return false };
        let part = self.0.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
        part.map(|part| part.copy_from_slice(bytes)).is_some()
    }
}

/// A queue pair that has sent something, and to which anything comes.
pub(crate) fn queue_pair(input: &[u8]) -> String {
    let about = Circumstances {
        line: Rate::from_gbps(1),
        base_rtt: Span::from_us(20),
        hops: 2,
        mtu: Bytes::new(1024),
    };
    let repeat = match input.first().is_some_and(|first| first % 2 == 1) {
        true => Repeat::Selective,
        false => Repeat::GoBackN,
    };
    let control = CcConfig::default();
    let config = Config { mtu: 1024, repeat, ..Config::new(17) };
    let mut pair = QueuePair::new(config, control.build(&about), control.receiver());
    let mut memory = Region(vec![7; 4096]);
    let work = |id, kind| Work { id, kind, key: 1, address: 0, length: 3000 };
    pair.post(Time::ZERO, work(1, Kind::Write { address: 0, key: 1, immediate: None }));
    pair.post(Time::ZERO, work(2, Kind::Read { address: 0, key: 1 }));
    pair.post_receive(Receive { id: 3, key: 1, address: 0, capacity: 2048 });
    let (mut rest, mut now, mut payload) = (input, Time::ZERO, Vec::new());
    let (mut read, mut sent) = (0, 0);
    while let Some((length, behind)) = rest.split_first() {
        let (packet, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        now += Span::from_us(u64::from(*length));
        pair.on_timer(now);
        if let Ok(decoded) = decode_ip(packet) {
            let headers = &decoded.headers;
            pair.on_packet(now, headers, decoded.payload, length % 3 == 0, &mut memory);
            read += 1;
        }
        while sent < 1000 && pair.next_packet(now, &memory, &mut payload).is_some() {
            sent += 1;
        }
        while pair.next_event().is_some() {}
    }
    let counters = pair.counters();
    format!(
        "{} {} {:?}",
        read.min(9),
        pair.is_idle(),
        [
            counters.acks != 0,
            counters.naks != 0,
            counters.not_ready != 0,
            counters.duplicates != 0,
            counters.early != 0,
            counters.retransmitted != 0,
            counters.notified != 0,
        ]
    )
}

/// Answers of routers to probes, and a pause.
pub(crate) fn answers() -> Vec<Vec<u8>> {
    let mut six = vec![0x60, 0, 0, 0, 0, 40, 58, 64];
    six.extend([0xfd; 32]);
    six.extend([3, 0, 0, 0, 0, 0, 0, 0]);
    six.extend(PACKET);
    let mut four = vec![0x45, 0, 0, 60, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    four.extend([11, 0, 0, 0, 0, 0, 0, 0]);
    four.extend(PACKET);
    vec![four, six, frame::pause(true), frame::pause(false)]
}

/// What a router answers a probe, and the packet that it quotes; or a pause.
pub(crate) fn answer(input: &[u8]) -> String {
    let quoted = frame::read_answer(input);
    let is_packet = quoted.map(|(_, kind, packet)| (kind, decode_ip(packet).is_ok()));
    format!("{is_packet:?} {:?}", frame::read_pause(input))
}

/// Lists of agents.
pub(crate) fn host_seeds() -> Vec<Vec<u8>> {
    texts(&["# agents\n10.0.0.1\n10.0.0.2:99 10.1.0.2 # second\n[fd00::1]:7 fd00::2\nname\n"])
}

/// A list of agents.
pub(crate) fn hosts(input: &[u8]) -> String {
    said(parse_hosts(&text(input), Path::new("hosts")))
}

fn probes() -> ProbePlan {
    let address = [127, 0, 0, 2].into();
    let probe = Probe { src_port: 49_152, dst_qpn: 1, ttl: 1, class: 0, payload: 64 };
    ProbePlan {
        rank: 0,
        address,
        to: address,
        wire: WirePlan::Udp,
        rounds: vec![vec![probe; 2]; 3],
        burst: 2,
        gap_us: 1,
        line_bps: 1_000_000,
        wait_ms: 1,
    }
}

/// What a controller asks an agent to do.
pub(crate) fn tasks() -> Vec<Vec<u8>> {
    let probe = serde_json::to_string(&("run", Task::Probe(probes()))).expect("plain data");
    // A rank of two that sends nothing and waits for nothing.
    let control = serde_json::to_string(&CcConfig::default()).expect("plain data");
    let admission = serde_json::to_string(&packetsim::admission::AdmissionConfig::default());
    let admission = admission.expect("plain data");
    let run = format!(
        "[\"run\",{{\"run\":{{\"rank\":0,\"ranks\":2,\"address\":\"127.0.0.1\",\"wire\":\"udp\",\
         \"offload\":false,\"mtu\":1024,\"window\":64,\"timeout_ms\":200,\"selective\":false,\
         \"control\":{control},\"line_bps\":1000000,\"base_rtt_us\":20,\"hops\":2,\"dscp\":26,\
         \"admission\":{admission},\"reads\":false,\"bytes\":64,\"staging\":0,\"all_pairs\":0,\
         \"pairs\":[],\"sends\":[],\"receives\":[],\"read_parts\":[],\"checks\":[],\
         \"pcap\":null,\"record\":null,\"most_ms\":100}}}}]"
    );
    texts(&[&probe, &run])
}

/// A plan that an agent gets from whoever has its token.
pub(crate) fn task(input: &[u8]) -> String {
    let options = AgentOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        token: String::new(),
        identity: None,
        most_rate: Rate::from_bps(100_000_000),
        most_s: 10,
        program: PathBuf::new(),
    };
    said(check(&options, &text(input)))
}

/// What ranks and probes tell a controller.
pub(crate) fn telling() -> Vec<Vec<u8>> {
    let traced = Traced {
        probe: [0, 1],
        from: [127, 0, 0, 1].into(),
        is_end: true,
        class: 2,
        is_seen: false,
    };
    let all = [
        RankMessage::Ready,
        RankMessage::Done(Box::new(RankResult { rank: 1, ..RankResult::default() })),
        RankMessage::Traced(vec![traced]),
        RankMessage::Text("a".to_owned()),
        RankMessage::Failed("why".to_owned()),
    ];
    all.iter().map(|told| serde_json::to_vec(told).expect("plain data")).collect()
}

/// A line that a rank tells its controller.
pub(crate) fn told(input: &[u8]) -> String {
    said(serde_json::from_slice::<RankMessage>(input))
}
