#!/usr/bin/env python3
"""`fatflow observe` beside tshark on captures made here: every operation of reliable and unreliable
connections and of datagrams, notifications, refusals, pauses, tags, IPv6, marks, repeats, and the
same cut short.

    tests/formats/captures.py target/release/fatflow
"""

import collections
import json
import random
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

# Older versions of tshark take payloads for other protocols.
QUIET = ["-o", "infiniband.identify_payload:FALSE", "--disable-protocol", "rpcordma"]
QUIET += ["--disable-protocol", "infiniband.eoib"]
RETH, AETH, IMMEDIATE, ATOMIC, ATOMIC_ACK, DETH = 16, 4, 4, 28, 8, 8
# By opcode of a reliable connection: its verb, and what follows the base header.
RC = {
    0: ("send", 0), 1: ("send", 0), 2: ("send", 0), 3: ("send", IMMEDIATE), 4: ("send", 0),
    5: ("send", IMMEDIATE), 6: ("write", RETH), 7: ("write", 0), 8: ("write", 0),
    9: ("write", IMMEDIATE), 10: ("write", RETH), 11: ("write", RETH + IMMEDIATE),
    12: ("read request", RETH), 13: ("read", AETH), 14: ("read", 0),
    15: ("read", AETH), 16: ("read", AETH), 17: ("answer", AETH),
    18: ("answer", AETH + ATOMIC_ACK), 19: ("atomic", ATOMIC), 20: ("atomic", ATOMIC),
    22: ("send", 4), 23: ("send", 4),
}  # fmt: skip
UC = {0x20 + code: RC[code] for code in range(12)}
UD = {0x64: ("send", DETH), 0x65: ("send", DETH + IMMEDIATE)}
OPCODES = RC | UC | UD
CNP = 0x81
EMPTY = [12, 17, 18, 19, 20]


def checked(header: bytes, udp: bytes, rest: bytes) -> bytes:
    """The invariant check over what no switch changes."""
    masked = bytearray(header)
    if header[0] >> 4 == 4:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    else:
        masked[0] |= 0x0F
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
    masked_rest = bytearray(rest)
    masked_rest[4] = 0xFF
    whole = b"\xff" * 8 + bytes(masked) + udp[:6] + b"\xff\xff" + bytes(masked_rest)
    return struct.pack("<I", zlib.crc32(whole))


def packet(dice: random.Random, at: int, opcode: int, pair: int, psn: int) -> bytes:
    v6, mark = pair % 3 == 2, dice.random() < 0.2
    payload = b"" if opcode in EMPTY else dice.randbytes(dice.choice([64, 256, 1000, 1021]))
    pad = -len(payload) % 4
    flags = pad << 4
    base = struct.pack(">BBHII", opcode, flags, 0xFFFF, pair, psn)
    after = dice.randbytes(OPCODES[opcode][1]) if opcode != CNP else b""
    if opcode == 17:
        # An acknowledgement, a packet out of sequence, a receiver that is not ready.
        after = bytes([dice.choice([0x1F, 0x60, 0x61, 0x20 + 5])]) + dice.randbytes(3)
    elif opcode in (13, 15, 16, 18):
        after = b"\x1f" + after[1:]
    if opcode == CNP:
        base, payload, pad = struct.pack(">BBHII", CNP, 0, 0xFFFF, 0x40000000 | pair, 0), bytes(16), 0
    rest = base + after + payload + bytes(pad)
    udp = struct.pack(">HHHH", 49152 + pair, 4791, 8 + len(rest) + 4, 0)
    tos = 26 << 2 | (3 if mark else 2)
    if v6:
        ip = struct.pack(">IHBB", 6 << 28 | tos << 20, 8 + len(rest) + 4, 17, 64)
        ip += bytes([0xFD] + [0] * 14 + [1 + pair % 4]) + bytes([0xFD] + [0] * 14 + [9])
    else:
        total = 20 + 8 + len(rest) + 4
        ends = bytes([10, 0, 0, 1 + pair % 4]) + bytes([10, 0, 1, 9])
        ip = struct.pack(">BBHHHBBH", 0x45, tos, total, at & 0xFFFF, 0x4000, 64, 17, 0) + ends
        sums = sum(struct.unpack(">10H", ip))
        sums = (sums & 0xFFFF) + (sums >> 16)
        ip = ip[:10] + struct.pack(">H", ~(sums + (sums >> 16)) & 0xFFFF) + ip[12:]
    tag = struct.pack(">HH", 0x8100, 3 << 13 | 100) if pair % 5 == 1 else b""
    kind = b"\x86\xdd" if v6 else b"\x08\x00"
    return bytes(range(12)) + tag + kind + ip + udp + rest + checked(ip, udp, rest)


def pause(dice: random.Random) -> bytes:
    lane = dice.choice([3, 4])
    times = [0] * 8
    times[lane] = dice.choice([0, 0xFFFF])
    frame = b"\x01\x80\xc2\x00\x00\x01" + bytes(6) + b"\x88\x08\x01\x01" + struct.pack(">H", 1 << lane)
    return (frame + struct.pack(">8H", *times)).ljust(60, b"\0")


def capture(seed: int) -> list[bytes]:
    dice = random.Random(seed)
    sequence: dict[int, int] = collections.defaultdict(lambda: dice.randrange(1 << 20))
    frames = []
    for at in range(3000):
        draw = dice.random()
        if draw < 0.02:
            frames.append(pause(dice))
        elif draw < 0.05:
            frames.append(packet(dice, at, CNP, 1000 + dice.randrange(8), 0))
        else:
            # Each queue pair has one kind of operation, so that sequence numbers are its own.
            opcode = dice.choice(sorted(OPCODES))
            pair = 16 + opcode
            psn = sequence[pair] if draw < 0.95 else max(sequence[pair] - 1, 0)
            sequence[pair] = max(sequence[pair], psn + 1)
            frames.append(packet(dice, at, opcode, pair, psn & 0xFFFFFF))
    return frames


def pcap(frames: list[bytes], longest: int) -> bytes:
    file = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, longest, 1)
    for at, frame in enumerate(frames):
        kept = frame[:longest]
        file += struct.pack("<IIII", 1, at, len(kept), len(frame)) + kept
    return file


FIELDS = {
    "opcode": "infiniband.bth.opcode", "pair": "infiniband.bth.destqp", "psn": "infiniband.bth.psn",
    "pad": "infiniband.bth.padcnt", "syndrome": "infiniband.aeth.syndrome", "v4": "ip.src",
    "v6": "ipv6.src", "ecn4": "ip.dsfield.ecn", "ecn6": "ipv6.tclass.ecn", "length": "udp.length",
    "pause": "macc.opcode", "lane": "macc.cbfc.enbv.c3", "tag": "vlan.id",
}  # fmt: skip


def told_by_tshark(path: Path) -> dict[str, object]:
    command = ["tshark", *QUIET, "-r", str(path), "-T", "fields", "-E", "occurrence=f"]
    command += [word for field in FIELDS.values() for word in ("-e", field)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    told: collections.Counter[str] = collections.Counter()
    pairs = set()
    for line in lines:
        row = dict(zip(FIELDS, line.split("\t")))
        told["tagged"] += row["tag"] != ""
        if row["pause"]:
            told["pauses"] += 1
            told["pauses of class 3"] += row["lane"] in ("1", "True")
            continue
        if not row["opcode"]:
            continue
        opcode = int(row["opcode"], 0)
        if opcode == CNP:
            told["cnps"] += 1
            continue
        verb, after = OPCODES[opcode]
        if verb == "answer":
            refused = int(row["syndrome"], 0) >> 5
            told["acks" if refused == 0 else "naks"] += 1
            continue
        pairs.add((row["v4"] or row["v6"], int(row["pair"], 0)))
        told[verb] += 1
        if opcode in EMPTY:
            continue
        told["data"] += 1
        told["marked"] += "3" in (row["ecn4"], row["ecn6"])
        told["bytes"] += int(row["length"]) - 8 - 12 - after - 4 - int(row["pad"], 0)
    return {**told, "queue_pairs": len(pairs)}


def told_by_observe(binary: str, path: Path) -> dict[str, object]:
    command = [binary, "observe", str(path), "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(answer)["result"]
    packets, wire = result["packets"], result["capture"]
    assert wire["icrc_wrong"] == wire["malformed"] == 0, wire
    told = {verb: of["packets"] for verb, of in wire["verbs"].items()}
    told |= {key: packets[key] for key in ("data", "acks", "naks", "cnps", "pauses", "marked", "bytes")}
    told["pauses of class 3"] = sum(wire["pauses"]["3"][way] for way in ("xoff", "xon"))
    return told | {"queue_pairs": result["queue_pairs"], "tagged": wire["tagged"]}


def main() -> int:
    binary, wrong = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(3):
            frames = capture(seed)
            for longest in (65535, 128, 96):
                path = Path(folder) / f"{seed}-{longest}.pcap"
                path.write_bytes(pcap(frames, longest))
                theirs, ours = told_by_tshark(path), told_by_observe(binary, path)
                keys = [key for key in theirs if key in ours or theirs[key]]
                differ = {key: (theirs[key], ours.get(key)) for key in keys if theirs[key] != ours.get(key)}
                wrong += bool(differ)
                print(f"capture {seed}, packets of {longest} bytes: {len(keys)} figures, {len(differ)} differ {differ}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
