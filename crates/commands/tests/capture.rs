//! A capture of a run reads back to the run's own numbers, here and in tshark.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use commands::collective::{self, Sizes};
use commands::files::capture::{self, Packets, Wanted};
use commands::observe::beside;
use commands::observe::counted::ComparedCounter;
use commands::packets::Patience;
use commands::run_traffic::{self, Options, Report};
use commands::{Engine, Failure};
use packetsim::Watch;
use packetsim::tap::{Tape, Taped};
use roce::{Icrc, Opcode, Syndrome};
use scenario::{Loaded, Purpose, Request};
use traffic::collective::Collective;
use units::Bytes;

fn loaded(set: &[&str]) -> Loaded {
    let request = Request {
        scenario: Some("../../scenarios/bench/incast-32.toml".to_owned()),
        set: set.iter().map(|text| (*text).to_owned()).collect(),
        ..Request::default()
    };
    scenario::load(&request).expect("it is well-formed")
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fatflow-{}-{name}.pcapng", std::process::id()))
}

fn run(name: &str, set: &[&str], limit: Bytes) -> (Report, PathBuf) {
    let path = file(name);
    let capture = Some(Wanted { path: path.clone(), limit });
    let options = Options { engine: Engine::Packet, capture, ..Options::default() };
    let ran = run_traffic::run(&loaded(set), &options, &mut Watch::default());
    (ran.expect("it can be run").0, path)
}

/// A frame of a file: its interface, its time in nanoseconds, its bytes, and whether it was lost.
struct Block {
    interface: u32,
    at_ns: u64,
    frame: Vec<u8>,
    is_lost: bool,
}

/// The packets of a pcapng file.
fn blocks(path: &Path) -> Vec<Block> {
    let bytes = std::fs::read(path).expect("it was written");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let length = word(at + 4) as usize;
        assert_eq!(word(at + length - 4) as usize, length, "a block at {at}");
        if word(at) == 6 {
            let captured = word(at + 20) as usize;
            let end = at + 28 + captured.next_multiple_of(4);
            all.push(Block {
                interface: word(at + 8),
                at_ns: u64::from(word(at + 12)) << 32 | u64::from(word(at + 16)),
                frame: bytes[at + 28..at + 28 + captured].to_vec(),
                is_lost: word(end) & 0xffff == 1,
            });
        }
        at += length;
    }
    all
}

/// Counts a file by its bytes alone; pauses that begin are told from those that are renewed.
fn counted(blocks: &[Block]) -> (Packets, u64) {
    let mut told = Packets::default();
    let (mut seen, mut paused) = (BTreeSet::new(), BTreeMap::new());
    let mut begun = 0;
    for block in blocks {
        let kind = u16::from_be_bytes([block.frame[12], block.frame[13]]);
        told.lost += u64::from(block.is_lost);
        if kind == 0x8808 {
            let stops = block.frame[18..34].iter().any(|byte| *byte != 0);
            let was = paused.insert(block.interface, stops).unwrap_or(false);
            begun += u64::from(stops && !was);
            told.pauses += u64::from(stops);
            told.resumes += u64::from(!stops);
            continue;
        }
        let total = usize::from(u16::from_be_bytes([block.frame[16], block.frame[17]]));
        let packet = roce::packet::decode_ip(&block.frame[14..14 + total]).expect("RoCEv2");
        assert_eq!(packet.icrc, Icrc::Right);
        let bth = packet.headers.bth;
        match packet.headers.aeth.map(|aeth| aeth.syndrome) {
            _ if bth.opcode == Opcode::CNP => told.cnps += 1,
            Some(Syndrome::Nak(_)) => told.naks += 1,
            Some(_) => told.acks += 1,
            None => {
                assert!(bth.opcode.is_data());
                told.data += 1;
                told.bytes += packet.payload_bytes as u64;
                told.marked += u64::from(packet.envelope.ecn() == 3);
                let key = (packet.envelope.dst, bth.dest_qp, bth.psn);
                told.retransmitted += u64::from(!seen.insert(key));
            }
        }
    }
    (told, begun)
}

/// Marks and notifications; pauses; losses and what is sent again.
const RUNS: [(&str, &[&str]); 3] = [
    ("marks", &["traffic.bytes=256KiB"]),
    (
        "pauses",
        &[
            "traffic.bytes=256KiB",
            "network.congestion.control=none",
            "network.buffer.size=700KB",
            "network.buffer.alpha=0.125",
            "network.buffer.reserved=4096B",
        ],
    ),
    ("losses", &["traffic.bytes=256KiB", "network.pfc.enabled=false", "network.buffer.size=400KB"]),
];

/// Oracle: the counters of the engine, which the capture does not use.
#[test]
fn a_capture_reads_back_to_the_runs_own_numbers() {
    for (name, set) in RUNS {
        let (report, path) = run(name, set, Bytes::from_mib(256));
        let blocks = blocks(&path);
        let told = report.capture.as_ref().expect("it was asked for");
        let (read, begun) = counted(&blocks);
        assert_eq!(read, told.packets, "{name}");
        assert_eq!((told.cut, told.under_way), (0, 0), "{name}");
        let length = std::fs::metadata(&path).expect("it was written").len();
        assert_eq!(told.file_bytes, length, "{name}");
        assert_eq!(read.data, report.packets, "{name}");
        assert_eq!(read.retransmitted, report.retransmits, "{name}");
        assert_eq!(read.lost, report.drops, "{name}");
        assert_eq!(read.cnps, report.cnps, "{name}");
        assert_eq!(begun, report.pfc.pauses, "{name}");
        let summary =
            commands::observe::run(std::slice::from_ref(&path), &observe::Watch::default()).summary;
        let beside = beside::compare(&summary, &loaded(set), Engine::Packet, &mut Watch::default());
        let beside = beside.expect("it can be predicted");
        // The run's own ways: what its links between leaves and the rest carried.
        let uplinks = beside.uplinks.expect("there are flows");
        assert!(uplinks.own_addresses && uplinks.unreachable == 0, "{name}: {uplinks:?}");
        let again = loaded(set);
        let fabric = again.fabric();
        let options = Options { engine: Engine::Packet, ..Options::default() };
        let (_, _, outcome) =
            run_traffic::run(&again, &options, &mut Watch::default()).expect("it can be run");
        for seen in &uplinks.busiest {
            let mut links = fabric.links().ids();
            let link = links.find(|link| fabric.link_name(*link) == seen.link).expect("it is one");
            assert_eq!(u64::from(outcome.links[link].flows), seen.flows, "{name}: {seen:?}");
        }
        assert!(!uplinks.busiest.is_empty(), "{name}");
        let rows = beside.counters;
        assert!(2 <= rows.len(), "{name}");
        let is_equal = |row: &ComparedCounter| {
            row.measured == row.predicted
                || row.counter == "payload bytes" && 0 < report.retransmits
        };
        assert!(rows.iter().all(is_equal), "{name}: {rows:?}");
        if report.retransmits == 0 {
            assert_eq!(read.bytes, report.bytes, "{name}");
        }
        assert!(blocks.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns), "{name}: in order");
        match name {
            "marks" => assert!(0 < read.marked && 0 < read.cnps, "{name}: {read:?}"),
            "pauses" => assert!(0 < read.pauses && 0 < read.resumes, "{name}: {read:?}"),
            _ => assert!(0 < read.lost && 0 < read.naks && 0 < read.retransmitted, "{read:?}"),
        }
        std::fs::remove_file(path).expect("it is there");
    }
}

/// Property: capturing changes nothing, and a limit cuts the end off and says so.
#[test]
fn a_limit_cuts_the_end_and_says_so() {
    let (name, set) = RUNS[0];
    let (whole, path) = run("whole", set, Bytes::from_mib(256));
    let all = blocks(&path);
    let (cut, short) = run("cut", set, Bytes::from_kib(200));
    let some = blocks(&short);
    assert_eq!(whole.digest, cut.digest, "{name}");
    let plain = Options { engine: Engine::Packet, ..Options::default() };
    let plain = run_traffic::run(&loaded(set), &plain, &mut Watch::default()).expect("it runs").0;
    assert_eq!(plain.digest, cut.digest, "{name}");
    let told = cut.capture.expect("it was asked for");
    assert!(told.file_bytes <= 200 << 10 && 190 << 10 < told.file_bytes, "{told:?}");
    assert_eq!(told.cut as usize + some.len(), all.len());
    assert!(some.iter().zip(&all).all(|(a, b)| a.frame == b.frame && a.at_ns == b.at_ns));
    [path, short].iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
}

/// Both sizes of a collective stand in one file, one behind the other, each with queue pairs of its
/// own: nothing seems to be sent again.
#[test]
fn runs_stand_one_behind_the_other() {
    let (engine, collective) = (Engine::Packet, Collective::AllGather);
    let request = Request {
        scenario: Some("small-16".to_owned()),
        purpose: Purpose::Collective(engine, collective),
        ..Request::default()
    };
    let loaded = scenario::load(&request).expect("it is well-formed");
    let sizes = Sizes { min: Bytes::from_kib(256), max: Bytes::from_kib(512), factor: 2 };
    let (patience, gpus) = (Patience::Usual, None);
    let options = collective::Options { engine, patience, collective, sizes, gpus, iterations: 1 };
    let limit = Bytes::from_mib(256);
    let mut watch = Watch { tape: Some(Tape::new(limit)), ..Watch::default() };
    collective::run(&loaded, &options, &mut watch).expect("it runs");
    let runs = watch.tape.expect("it was given").runs;
    let wanted = Wanted { path: file("runs"), limit };
    capture::refuse(&loaded, engine, &wanted).expect("it can be captured");
    let told = capture::write(&loaded, &runs, &wanted).expect("it can be written");
    assert_eq!((told.runs, told.cut, told.under_way), (2, 0, 0));
    assert_eq!(told.packets.data, runs.iter().map(|run| run.sent).sum::<u64>());
    let times: Vec<u64> = blocks(&wanted.path).iter().map(|block| block.at_ns).collect();
    assert!(times.is_sorted(), "runs overlap");
    let read = observe::read(&[&wanted.path], &observe::Watch::default());
    let Packets { data, acks, marked, retransmitted, bytes, .. } = told.packets;
    let again = &read.packets;
    assert_eq!((again.data, again.acks, again.marked), (data, acks, marked));
    assert_eq!((again.retransmitted, again.bytes), (retransmitted, bytes));
    assert_eq!((retransmitted, read.wire.icrc_wrong), (0, 0));
    // What is left of a tape limits what is kept.
    let mut watch = Watch { tape: Some(Tape::new(Bytes::from_kib(300))), ..Watch::default() };
    collective::run(&loaded, &options, &mut watch).expect("it runs");
    let short = watch.tape.expect("it was given").runs;
    let kept = |runs: &[Taped]| runs.iter().map(|run| run.capture.bytes).sum::<u64>();
    assert!(kept(&short) <= 300 << 10 && 300 << 10 < kept(&runs), "{}", kept(&short));
    assert!(short.iter().all(|run| 0 < run.capture.left_out));
    std::fs::remove_file(wanted.path).expect("it is there");
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let refused = |set: &[&str], engine| {
        let capture = Some(Wanted { path: file("none"), limit: Bytes::from_mib(1) });
        let options = Options { engine, capture, ..Options::default() };
        match run_traffic::run(&loaded(set), &options, &mut Watch::default()) {
            Err(Failure::Usage(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&[], Engine::Flow).contains("--engine packet"));
    let transport = refused(&["network.transport=infiniband"], Engine::Packet);
    assert!(transport.contains("network.transport"), "{transport}");
    let verb = refused(&["network.nic.verb=read"], Engine::Packet);
    assert!(verb.contains("network.nic.verb"), "{verb}");
}

/// Agreement: tshark finds the same packets, and nothing malformed. Skipped where there is none.
#[test]
fn tshark_reads_a_capture() {
    if Command::new("tshark").arg("--version").output().is_err() {
        #[expect(clippy::print_stderr, reason = "what is skipped is named")]
        {
            eprintln!("skipped: tshark is not installed");
        }
        return;
    }
    let (_, set) = RUNS[0];
    let (report, path) = run("tshark", set, Bytes::from_mib(256));
    let count = |filter: &str| {
        let path = path.to_str().expect("a name of letters");
        let fields = ["-T", "fields", "-e", "frame.number"];
        shown_lines(Command::new("tshark").args(["-r", path, "-Y", filter]).args(fields)) as u64
    };
    let packets = report.capture.as_ref().expect("it was asked for").packets;
    assert_eq!(count("infiniband.bth.opcode == 0x11"), packets.acks + packets.naks);
    assert_eq!(count("infiniband.bth.opcode == 0x81"), packets.cnps);
    assert_eq!(count("infiniband.bth.opcode < 0x11"), packets.data);
    assert_eq!(count("infiniband.bth.opcode < 0x11 && ip.dsfield.ecn == 3"), packets.marked);
    assert_eq!(count("_ws.malformed || ip.checksum.status == \"Bad\""), 0);
    std::fs::remove_file(path).expect("it is there");
}

fn shown_lines(command: &mut Command) -> usize {
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}
