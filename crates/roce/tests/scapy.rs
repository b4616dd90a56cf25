//! The codec against packets that scapy made (`vectors.py`), and against itself.

use roce::packet::{decode_ip, encode_ip};
use roce::{Aeth, Bth, Deth, Envelope, Headers, Icrc, NakCode, Opcode, Reth, Syndrome};

const VECTORS: &str = include_str!("scapy.txt");

fn vectors() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    VECTORS.lines().map(|line| {
        let (name, digits) = line.split_once(' ').expect("name and digits");
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
        (name, (0..digits.len()).step_by(2).map(byte).collect())
    })
}

fn vector(name: &str) -> Vec<u8> {
    vectors().find(|(known, _)| *known == name).expect("it is there").1
}

/// Oracle: scapy. Every packet has the ICRC that scapy computed, and is written again as it was.
#[test]
fn packets_of_scapy_are_read_and_written_alike() {
    let mut count = 0;
    for (name, bytes) in vectors() {
        let packet = decode_ip(&bytes).expect(name);
        assert_eq!(packet.icrc, Icrc::Right, "{name}");
        assert_eq!(packet.payload.len(), packet.payload_bytes, "{name}");
        let payload: Vec<u8> = (1..=packet.payload_bytes as u8).collect();
        if packet.headers.bth.opcode != Opcode::CNP {
            assert_eq!(packet.payload, payload, "{name}");
            assert!(packet.headers.bth.ack_request, "{name}");
        }
        assert_eq!(packet.headers.bth.dest_qp, 0xab_cdef, "{name}");
        let class = if name.ends_with("ipv4") { 0x69 } else { 0x6a };
        assert_eq!(packet.envelope.class, class, "{name}");
        let mut again = Vec::new();
        encode_ip(&packet.envelope, &packet.headers, packet.payload, &mut again);
        assert_eq!(again, bytes, "{name}");
        count += 1;
    }
    assert_eq!(count, 58);
}

/// Golden: the fields that the script put in.
#[test]
fn headers_have_the_fields_that_were_put_in() {
    let reth = Reth { address: 0x1122_3344_5566_7788, key: 0xa1b2_c3d4, length: 9_000 };
    for family in ["4", "6"] {
        let bytes = |kind: &str| vector(&format!("{kind}-ipv{family}"));
        let headers = |kind: &str| decode_ip(&bytes(kind)).expect(kind).headers;
        let write = headers("rc-write-only-immediate");
        assert_eq!((write.reth, write.immediate), (Some(reth), Some(0xdead_beef)));
        assert_eq!(write.bth.psn, 0xff_fffe);
        assert_eq!(headers("rc-read-request").reth, Some(reth));
        let aeth = |syndrome, msn| Some(Aeth { syndrome, msn });
        assert_eq!(headers("rc-ack").aeth, aeth(Syndrome::ACK, 0xff_ffff));
        assert_eq!(headers("rc-nak").aeth, aeth(Syndrome::Nak(NakCode::PsnSequence), 10));
        assert_eq!(headers("rc-rnr-nak").aeth, aeth(Syndrome::RnrNak { timer: 14 }, 10));
        assert_eq!(headers("rc-atomic-ack").atomic_ack, Some(77));
        assert_eq!(
            headers("rc-compare-swap").atomic.map(|it| (it.value, it.compare)),
            Some((5, 7))
        );
        let deth = Deth { queue_key: 0x8001_0000, src_qp: 0x123 };
        assert_eq!(headers("ud-send-only").deth, Some(deth));
        assert_eq!(headers("xrc-send-only").context, Some(0x42));
        assert_eq!(headers("cnp"), Headers::cnp(0xab_cdef));
    }
    let envelope = decode_ip(&vector("cnp-ipv6")).expect("well formed").envelope;
    assert_eq!((envelope.ttl, envelope.flow_label, envelope.src_port), (60, 0xb_eef5, 0xc123));
    assert_eq!((envelope.dscp(), envelope.ecn()), (26, 2));
}

/// Property: what routers and switches may change leaves the ICRC right, any other bit does not.
#[test]
fn the_icrc_notices_every_bit_that_must_not_change() {
    for (name, may_change) in [
        ("rc-write-only-ipv4", vec![1, 8, 10, 11, 26, 27]),
        ("rc-write-only-ipv6", vec![1, 2, 3, 7, 46, 47]),
    ] {
        let bytes = vector(name);
        let bth = if name.ends_with('4') { 28 } else { 48 };
        for at in 0..bytes.len() * 8 {
            let (byte, bit) = (at / 8, at % 8);
            let mut changed = bytes.clone();
            changed[byte] ^= 1 << bit;
            let Ok(packet) = decode_ip(&changed) else { continue };
            // Of IPv6's first byte the upper half of the traffic class.
            let masked = may_change.contains(&byte) || byte == bth + 4 || (bth == 48 && byte == 0);
            assert_eq!(packet.icrc == Icrc::Right, masked, "{name} byte {byte} bit {bit}");
        }
    }
}

/// Property: a packet that was captured in part is read as far as it goes, and nothing panics.
#[test]
fn beginnings_of_packets_are_read_as_far_as_they_go() {
    for (name, bytes) in vectors() {
        let whole = decode_ip(&bytes).expect(name);
        for length in 0..bytes.len() {
            let Ok(part) = decode_ip(&bytes[..length]) else { continue };
            assert_eq!(part.headers, whole.headers, "{name}");
            assert_eq!(part.payload_bytes, whole.payload_bytes, "{name}");
            assert_eq!(part.icrc, Icrc::NotCheckable, "{name}");
            assert!(whole.payload.starts_with(part.payload), "{name}");
        }
    }
}

/// Property: whatever the bytes, there is an answer.
#[test]
fn random_bytes_are_refused_or_read() {
    let mut random = units::Random::new(1, "bytes", 0);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = vector("rc-write-only-ipv4");
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        match decode_ip(&bytes) {
            Ok(_) => read += 1,
            Err(problem) => {
                assert!(!problem.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(1_000 < read && 1_000 < refused, "{read} {refused}");
}

/// Property: every opcode is written and read with the headers that it asks for.
#[test]
fn every_opcode_is_written_and_read() {
    let v4 = Envelope::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xc000);
    for (payload, opcode) in Opcode::all().enumerate() {
        let mut headers = Headers::new(Bth::new(opcode, 77, 5));
        headers.context = opcode.has_context().then_some(9);
        headers.deth = opcode.has_deth().then_some(Deth { queue_key: 1, src_qp: 2 });
        headers.reth = opcode.has_reth().then(Reth::default);
        headers.atomic = opcode.has_atomic().then(Default::default);
        headers.aeth = opcode.has_aeth().then_some(Aeth { syndrome: Syndrome::ACK, msn: 3 });
        headers.immediate = opcode.has_immediate().then_some(4);
        headers.invalidate = opcode.has_invalidate().then_some(5);
        if !headers.fit_opcode() {
            headers.atomic_ack = Some(6);
        }
        let (payload, mut bytes) = (vec![7; payload], Vec::new());
        encode_ip(&v4, &headers, &payload, &mut bytes);
        let packet = decode_ip(&bytes).expect("well formed");
        assert_eq!((packet.headers, packet.payload), (headers, payload.as_slice()), "{opcode}");
        assert_eq!(packet.icrc, Icrc::Right, "{opcode}");
    }
}
