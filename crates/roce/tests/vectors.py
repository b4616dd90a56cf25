#!/usr/bin/env python3
"""Writes scapy.txt: packets made, and their ICRC computed, by scapy's RoCE layer (pip install scapy).

Each line: name, IP packet in hexadecimal. The test in scapy.rs knows what is in them."""

import struct

from scapy.all import IP, UDP, IPv6, Raw, raw
from scapy.contrib.roce import AETH, BTH, CNPPadding

RETH = struct.pack(">QII", 0x1122334455667788, 0xA1B2C3D4, 9000)
IMMEDIATE = struct.pack(">I", 0xDEADBEEF)
DETH = struct.pack(">II", 0x80010000, 0x000123)
ATOMIC = struct.pack(">QIQQ", 0x1122334455667788, 0xA1B2C3D4, 5, 7)
WORD = struct.pack(">I", 0x00000042)

# name, opcode, headers behind the BTH, bytes of payload
KINDS = [
    ("rc-send-first", 0x00, b"", 8), ("rc-send-middle", 0x01, b"", 12),
    ("rc-send-last", 0x02, b"", 5), ("rc-send-last-immediate", 0x03, IMMEDIATE, 6),
    ("rc-send-only", 0x04, b"", 7), ("rc-send-only-immediate", 0x05, IMMEDIATE, 0),
    ("rc-write-first", 0x06, RETH, 16), ("rc-write-middle", 0x07, b"", 16),
    ("rc-write-last", 0x08, b"", 1), ("rc-write-last-immediate", 0x09, IMMEDIATE, 2),
    ("rc-write-only", 0x0A, RETH, 3), ("rc-write-only-immediate", 0x0B, RETH + IMMEDIATE, 4),
    ("rc-read-request", 0x0C, RETH, 0), ("rc-read-first", 0x0D, AETH(syndrome=31, msn=9), 8),
    ("rc-read-middle", 0x0E, b"", 8), ("rc-read-last", 0x0F, AETH(syndrome=31, msn=9), 8),
    ("rc-read-only", 0x10, AETH(syndrome=31, msn=9), 9),
    ("rc-ack", 0x11, AETH(syndrome=31, msn=0xFFFFFF), 0),
    ("rc-nak", 0x11, AETH(syndrome=0x60, msn=10), 0),
    ("rc-rnr-nak", 0x11, AETH(syndrome=0x2E, msn=10), 0),
    ("rc-atomic-ack", 0x12, raw(AETH(syndrome=31, msn=11)) + struct.pack(">Q", 77), 0),
    ("rc-compare-swap", 0x13, ATOMIC, 0), ("rc-fetch-add", 0x14, ATOMIC, 0),
    ("rc-send-only-invalidate", 0x17, WORD, 4), ("uc-write-only", 0x2A, RETH, 4),
    ("ud-send-only", 0x64, DETH, 10), ("ud-send-only-immediate", 0x65, DETH + IMMEDIATE, 4),
    ("xrc-send-only", 0xA4, WORD, 4), ("cnp", 0x81, None, 0),
]


def packet(ip, port, opcode, extension, payload):
    pad = -payload % 4
    cnp = extension is None
    bth = BTH(opcode=opcode, migreq=1, padcount=pad, pkey=0xFFFF, dqpn=0xABCDEF, psn=0 if cnp else 0xFFFFFE,
              ackreq=0 if cnp else 1, becn=1 if cnp else 0, solicited=0)
    whole = ip / UDP(sport=port, dport=4791, chksum=0) / bth
    if cnp:
        return whole / CNPPadding()
    body = raw(extension) if not isinstance(extension, bytes) else extension
    if isinstance(extension, AETH):
        whole = whole / extension
        body = b""
    return whole / Raw(body + bytes(range(1, payload + 1)) + bytes(pad))


def main():
    families = [
        ("4", lambda: IP(src="10.0.0.2", dst="10.0.1.3", tos=0x69, ttl=61, id=0, flags="DF")),
        ("6", lambda: IPv6(src="fd00::2", dst="fd00:1::3", tc=0x6A, hlim=60, fl=0xBEEF5)),
    ]
    for name, opcode, extension, payload in KINDS:
        for family, ip in families:
            made = packet(ip(), 0xC123, opcode, extension, payload)
            print(f"{name}-ipv{family} {raw(made).hex()}")


main()
