//! Captures made here, packet by packet: what is read back is what was written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observe::{Summary, read_bytes};
use proptest::prelude::*;
use roce::packet::{CNP_PAYLOAD, encode_ip};
use roce::{Aeth, Bth, Envelope, Headers, NakCode, Opcode, Operation, Reth, Syndrome};

fn v4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn v6(last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last))
}

/// A packet from one address to another, with an Ethernet header before it.
fn frame(from: IpAddr, to: IpAddr, class: u8, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut envelope = Envelope::new(from, to, 49_152);
    envelope.class = class;
    let mut frame = vec![0x02; 12];
    let kind: u16 = if from.is_ipv4() { 0x0800 } else { 0x86dd };
    frame.extend(kind.to_be_bytes());
    encode_ip(&envelope, headers, payload, &mut frame);
    frame
}

fn headers(operation: Operation, qp: u32, psn: u32) -> Headers {
    let mut headers = Headers::new(Bth::new(Opcode::rc(operation), qp, psn));
    if headers.bth.opcode.has_reth() {
        headers.reth = Some(Reth { address: 0x1000, key: 7, length: 3 * 1024 });
    }
    if headers.bth.opcode.has_aeth() {
        headers.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    }
    if headers.bth.opcode.has_immediate() {
        headers.immediate = Some(5);
    }
    headers
}

/// A WRITE of three packets of 1 KiB, beginning at a sequence number.
fn write(qp: u32, psn: u32, class: u8) -> Vec<Vec<u8>> {
    let steps = [Operation::WriteFirst, Operation::WriteMiddle, Operation::WriteLast];
    let packet = |(at, step): (usize, Operation)| {
        frame(v4(1), v4(2), class, &headers(step, qp, psn + at as u32), &[at as u8; 1024])
    };
    steps.into_iter().enumerate().map(packet).collect()
}

fn nak(psn: u32) -> Vec<u8> {
    let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequence), msn: 0 };
    frame(v4(2), v4(1), 0, &Headers::ack(9, psn, aeth), &[])
}

/// A PFC frame that stops a class, or lets it go on.
fn pfc(class: u8, quanta: u16) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 7, 0x88, 0x08, 1, 1];
    frame.extend((1_u16 << class).to_be_bytes());
    for each in 0..8 {
        frame.extend((if each == class { quanta } else { 0 }).to_be_bytes());
    }
    frame.resize(60, 0);
    frame
}

/// The file of tcpdump, in either order of bytes, with packets cut after so many bytes.
fn pcap(frames: &[Vec<u8>], link: u32, snap: usize, big: bool) -> Vec<u8> {
    let word = |number: u32| if big { number.to_be_bytes() } else { number.to_le_bytes() };
    let half = |number: u16| if big { number.to_be_bytes() } else { number.to_le_bytes() };
    let mut file = Vec::new();
    file.extend(word(0xa1b2_c3d4));
    file.extend(half(2).into_iter().chain(half(4)));
    for number in [0, 0, 65_535, link] {
        file.extend(word(number));
    }
    for (at, frame) in frames.iter().enumerate() {
        let kept = frame.len().min(snap);
        for number in [1, at as u32 * 10, kept as u32, frame.len() as u32] {
            file.extend(word(number));
        }
        file.extend(&frame[..kept]);
    }
    file
}

/// The same packets in the newer form, with times in nanoseconds.
fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = (body.len().next_multiple_of(4) + 12) as u32;
        file.extend(kind.to_le_bytes().into_iter().chain(length.to_le_bytes()));
        file.extend(body);
        file.resize(file.len().next_multiple_of(4), 0);
        file.extend(length.to_le_bytes());
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    block(0x0a0d_0d0a, &section);
    block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0]);
    for (at, frame) in frames.iter().enumerate() {
        let mut body = Vec::new();
        for number in [0, 0, at as u32 * 10_000, frame.len() as u32, frame.len() as u32] {
            body.extend(number.to_le_bytes());
        }
        body.extend(frame);
        block(6, &body);
    }
    file
}

fn read(bytes: &[u8]) -> Summary {
    Summary::of(&read_bytes("it", bytes))
}

/// Everything once: two writes, one marked packet, an ACK, a NAK, a CNP, a pause, IPv6, a tag.
fn everything() -> Vec<Vec<u8>> {
    let mut frames = write(17, 100, 0x6a);
    frames.extend(write(17, 103, 0x6b));
    let ack = Headers::ack(9, 105, Aeth { syndrome: Syndrome::ACK, msn: 2 });
    frames.push(frame(v4(2), v4(1), 0, &ack, &[]));
    frames.push(nak(103));
    frames.push(frame(v4(2), v4(1), 0xc0, &Headers::cnp(9), &CNP_PAYLOAD));
    frames.push(pfc(3, 0xffff));
    frames.push(pfc(3, 0));
    let only = headers(Operation::SendOnlyImmediate, 33, 5);
    frames.push(frame(v6(1), v6(2), 0x68, &only, &[1; 5]));
    let mut tagged = frame(v4(1), v4(3), 0x68, &headers(Operation::ReadRequest, 21, 0), &[]);
    tagged.splice(12..12, [0x81, 0x00, 0x60, 0x05]);
    frames.push(tagged);
    frames
}

#[test]
fn every_kind_of_packet_is_counted() {
    let frames = everything();
    for file in [pcap(&frames, 1, 9999, false), pcap(&frames, 1, 9999, true), pcapng(&frames)] {
        let summary = read(&file);
        let packets = &summary.packets;
        assert_eq!(summary.sources[0].problems, Vec::<String>::new());
        assert_eq!(summary.sources[0].read, 13);
        assert_eq!((packets.data, packets.acks, packets.naks, packets.cnps), (7, 1, 1, 1));
        assert_eq!((packets.pauses, packets.marked, packets.retransmitted), (2, 3, 0));
        assert_eq!(packets.bytes, 6 * 1024 + 5);
        assert_eq!(summary.queue_pairs, 3);
        let wire = summary.capture.expect("packets");
        assert_eq!((wire.icrc_wrong, wire.malformed, wire.tagged), (0, 0, 1));
        assert_eq!((wire.verbs["write"].messages, wire.verbs["write"].packets), (2, 6));
        assert_eq!((wire.verbs["send"].messages, wire.verbs["read request"].messages), (1, 1));
        assert_eq!((wire.pauses["3"].xoff, wire.pauses["3"].xon), (1, 1));
        assert_eq!(wire.naks["PsnSequence"], 1);
        assert!((wire.seconds - 120e-6).abs() < 1e-9, "{}", wire.seconds);
    }
}

/// Property: a capture that keeps only the beginning of packets says the same of headers and sizes,
/// whether or not the extended headers are in it.
#[test]
fn packets_that_were_cut_still_count() {
    for snap in [58, 64, 96, 128] {
        let summary = read(&pcap(&everything(), 1, snap, false));
        let packets = &summary.packets;
        // The base header of IPv6 begins after 62 bytes.
        let has_sixth = u64::from(74 <= snap);
        assert_eq!((packets.data, packets.bytes), (6 + has_sixth, 6 * 1024 + 5 * has_sixth));
        assert_eq!((packets.cnps, packets.pauses), (1, 2), "{snap}");
        let wire = summary.capture.expect("packets");
        assert!(0 < wire.truncated);
        assert_eq!(wire.icrc_wrong, 0, "{snap}");
    }
}

/// Go back N: the third packet is lost before the capture, the receiver asks, the sender goes back.
#[test]
fn what_is_sent_again_is_told_from_what_is_late() {
    let first = write(17, 100, 0);
    let second = write(17, 103, 0);
    let mut frames = first[..2].to_vec();
    frames.extend(second.clone());
    frames.push(nak(102));
    frames.push(first[2].clone());
    frames.extend(second);
    let summary = read(&pcap(&frames, 1, 9999, false));
    assert_eq!(summary.packets.retransmitted, 4);
    let wire = summary.capture.expect("packets");
    assert_eq!((wire.out_of_order, wire.missing), (0, 0));
    // The same without anybody asking: one came late.
    let swapped = [first[0].clone(), first[2].clone(), first[1].clone()];
    let summary = read(&pcap(&swapped, 1, 9999, false));
    assert_eq!(summary.packets.retransmitted, 0);
    assert_eq!(summary.capture.expect("packets").out_of_order, 1);
}

/// A packet of InfiniBand: a local header, the transport, two checks; alone and in ERF.
#[test]
fn native_packets_are_read_in_both_forms() {
    let whole = frame(v4(1), v4(2), 0, &headers(Operation::SendOnly, 77, 3), &[9; 256]);
    let transport = &whole[14 + 28..];
    let words = ((8 + transport.len()) / 4) as u16;
    let mut packet = vec![0x00, 0x02, 0, 12];
    packet.extend(words.to_be_bytes());
    packet.extend([0, 34]);
    packet.extend(transport);
    packet.extend([0, 0]);
    let mut erf = vec![0; 16];
    erf[8] = 21;
    erf.extend(&packet);
    for file in [pcap(&[packet], 247, 9999, false), pcap(&[erf], 197, 9999, false)] {
        let observed = read_bytes("it", &file);
        assert_eq!((observed.packets.data, observed.packets.bytes), (1, 256));
        assert_eq!(observed.queue_pairs[0].host, "LID 12");
        assert_eq!(
            (observed.queue_pairs[0].peer.as_str(), observed.queue_pairs[0].number),
            ("LID 34", 77)
        );
    }
}

/// LLDP with the PFC and ETS TLVs of IEEE 802.1.
#[test]
fn neighbours_say_their_names_and_classes() {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc];
    frame.extend([2, 7, 4, 2, 0, 0, 0, 0, 1]);
    frame.extend([4, 5, 5, b's', b'w', b'p', b'1']);
    frame.extend([10, 5, b'l', b'e', b'a', b'f', b'1']);
    frame.extend([254, 6, 0, 0x80, 0xc2, 0x0b, 8, 0b0000_1000]);
    frame.extend([0, 0]);
    let summary = read(&pcap(&[frame.clone(), frame], 1, 9999, false));
    let found = &summary.neighbours[0];
    assert_eq!((found.system.as_str(), found.port.as_str()), ("leaf1", "swp1"));
    assert_eq!((found.pfc.as_deref(), found.frames), (Some(&[3_u8][..]), 2));
}

#[test]
fn damage_is_told_with_its_place() {
    let whole = pcap(&everything(), 1, 9999, false);
    let cut = read(&whole[..whole.len() - 1]);
    assert!(cut.sources[0].problems[0].contains("ends in the middle of a packet"), "{cut:?}");
    assert_eq!(cut.sources[0].read, 12);
    let mut long = whole;
    long[24 + 8..24 + 12].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    let long = read(&long);
    assert!(long.sources[0].problems[0].contains("the packet at byte 24 claims"), "{long:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Property: whatever happens to a file, it is read to an answer.
    #[test]
    fn no_bytes_make_it_fall(at in 0_usize..8000, byte: u8, end in 0_usize..9000, ng: bool) {
        let frames = everything();
        let mut file = if ng { pcapng(&frames) } else { pcap(&frames, 1, 9999, false) };
        let place = at % file.len();
        file[place] = byte;
        file.truncate(end.max(30));
        let summary = read(&file);
        prop_assert!(summary.sources.len() == 1);
    }
}
