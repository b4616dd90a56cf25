#!/usr/bin/env python3
"""live-multipath.py FATFLOW [SEEDS]: Linux's multipath routing against the prediction.

For every seed, 1, 4 and 16 queue pairs, hash policies 1 and 3, IPv4 and IPv6: a ring all-gather in
namespaces; the kernel is asked hop by hop which way each queue pair takes, and the bytes of every
uplink are counted; with policy 3 over IPv6 packets are traced instead. All queue pairs must take
the predicted uplink. The share of the fullest uplink is held against balls in bins. Needs root or
user namespaces.
"""

import json
import random
import statistics
import subprocess
import sys

FATFLOW = sys.argv[1]
SEEDS = int(sys.argv[2]) if 2 < len(sys.argv) else 30


def run(seed, pairs, function, family):
    command = [FATFLOW, "live", "all_to_all", "scenarios/live-8.toml", "-b", "64K", "-e", "64K"]
    command += ["--on", "namespaces", "--json", "--set", f"seed={seed}"]
    command += ["--set", f"network.routing.qps={pairs}"]
    command += ["--set", f"network.routing.function={function}", *family]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    result = json.loads(done.stdout)["result"]
    assert "namespaces" in result["on"], result["findings"]
    return result["rows"][0]


def trace(seed, pairs, function):
    """The same by `live probe`: `ip route get` does not hash as forwarding does with policy 3 over
    IPv6, so the packets themselves are followed."""
    command = [FATFLOW, "live", "probe", "scenarios/live-8.toml", "--on", "namespaces", "--ipv6"]
    command += ["--json", "--burst", "0", "--same-ports", "0", "--queue-pairs", str(32 * pairs)]
    command += ["--set", f"seed={seed}", "--set", f"network.routing.function={function}"]
    command += ["--seed-of-probes", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    found = json.loads(done.stdout)["result"]
    right, known = found["as_predicted"]
    flows = [path["queue_pairs"] for path in found["taken"]]
    return right, known, max(flows) / sum(flows), sum(flows)


def fullest(row):
    """The fullest spine's share of the queue pairs that cross one."""
    spines = [pair["path"][1] for pair in row["queue_pairs"] if len(pair["path"]) == 3]
    return max(spines.count(spine) for spine in set(spines)) / len(spines), len(spines)


def balls(count, bins=4, tries=4000):
    """Mean and deviation of the fullest of `bins`, as a share of `count` balls."""
    rng = random.Random(1)
    shares = []
    for _ in range(tries):
        thrown = [0] * bins
        for _ in range(count):
            thrown[rng.randrange(bins)] += 1
        shares.append(max(thrown) / count)
    shares.sort()
    return statistics.mean(shares), statistics.pstdev(shares)


total = right = 0
for family in [[], ["--ipv6"]]:
    for function in ["linux", "linux-custom"]:
        for pairs in [1, 4, 16]:
            shares, flows = [], 0
            for seed in range(1, SEEDS + 1):
                if family and function == "linux-custom":
                    good, known, share, flows = trace(seed, pairs, function)
                    total, right = total + known, right + good
                    shares.append(share)
                    continue
                row = run(seed, pairs, function, family)
                as_predicted, known = row["paths_as_predicted"]
                assert known == len(row["queue_pairs"])
                assert row["sums_right"]
                total, right = total + known, right + as_predicted
                share, flows = fullest(row)
                shares.append(share)
            mean, deviation = balls(flows)
            error = deviation / SEEDS**0.5
            name = f"{'IPv6' if family else 'IPv4'}, policy {3 if 'custom' in function else 1}"
            print(
                f"{name}, {pairs} queue pairs: {right} of {total} so far as predicted; fullest of "
                f"four {statistics.mean(shares):.3f}, balls in bins {mean:.3f} ± {error:.3f} "
                f"({flows} flows)",
                flush=True,
            )
print(f"{right} of {total} queue pairs take the predicted uplink")
sys.exit(right != total)
