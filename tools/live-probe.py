#!/usr/bin/env python3
"""live-probe.py FATFLOW [SEED]: `fatflow live probe` on 20 random fabrics, against what they are.

Ten of Linux routers in namespaces (which cannot hash the queue pair number), ten of the software
switch, of which every other one does. Needs root or user namespaces.
"""

import json
import random
import subprocess
import sys

FATFLOW = sys.argv[1]
SEED = int(sys.argv[2]) if 2 < len(sys.argv) else 1


def probe(number, rng):
    linux = number < 10
    hashed = not linux and number % 2 == 0
    spines = rng.randint(2, 8)
    function = rng.choice(["murmur3", "crc32", "toeplitz"])
    sets = {
        "cluster.gpus": 2 * spines,
        "fabric.radix": 2 * spines,
        "fabric.spines": spines,
        "seed": rng.randint(1, 10**6),
        "network.routing.hash": "5-tuple+qpn" if hashed else "5-tuple",
        "network.routing.function": "linux" if linux else function,
    }
    command = [FATFLOW, "live", "probe", "scenarios/live-8.toml", "--json"]
    command += ["--on", "namespaces" if linux else "switch", "--burst", "0"]
    command += ["--seed-of-probes", str(rng.randint(1, 10**6))]
    if rng.random() < 0.5:
        command.append("--ipv6")
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    found = json.loads(done.stdout)["result"]
    right = (found["paths"], found["hashes_qpn"]) == (spines, hashed)
    place = ("Linux" if linux else "switch") + (" IPv6" if "--ipv6" in command else "")
    print(
        f"{number + 1:2} {place:11} {spines} paths, number {'' if hashed else 'not '}hashed: found "
        f"{found['paths']}, {found['hashes_qpn']} by {found['rests_on']} queue pairs, "
        f"{found['unanswered']} of {found['probes']} unanswered: {'right' if right else 'WRONG'}",
        flush=True,
    )
    return right


rng = random.Random(SEED)
right = sum(probe(number, rng) for number in range(20))
print(f"{right} of 20")
sys.exit(right != 20)
