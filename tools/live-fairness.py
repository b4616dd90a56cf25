#!/usr/bin/env python3
"""live-fairness.py FATFLOW [SECONDS]: DCQCN's two flows through one uplink, and its objects again.

Two flows share one shaped uplink for so long (10 s unless told), through the software switch and,
where namespaces and nftables are there, through Linux's routers. Of the last half of the run the
mean of what arrived from each is compared; everything that the controls were told and said is given
to fresh objects of the packet engine.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

FATFLOW = sys.argv[1]
SECONDS = float(sys.argv[2]) if 2 < len(sys.argv) else 10
SCENARIO = pathlib.Path(__file__).parent.parent / "scenarios" / "live-two.toml"
# Half of 100 Mbit/s each, with what headers and reactions to marks leave of it.
BYTES = int(SECONDS * 100e6 / 8 / 2 * 0.9)


def run(folder, place):
    flows = folder / "two.csv"
    flows.write_text(f"src,dst,bytes,start_ns\n0,2,{BYTES},0\n1,3,{BYTES},0\n")
    words = f"--on {place} --json --record {folder}/record.jsonl --set traffic.flows={flows}"
    command = [FATFLOW, "live", "traffic", str(SCENARIO), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    row = result["rows"][0]
    assert row["sums_right"], row["packets"]
    arrived = [pair["arrived_packets"] for pair in row["queue_pairs"]]
    # While both send: up to where the first of them has everything.
    last = min(next(at for at, count in enumerate(one) if count == one[-1]) for one in arrived)
    half = [one[last] - one[last // 2] for one in arrived]
    off = max(abs(one / (sum(half) / 2) - 1) for one in half)
    control, packets = row["control"], row["packets"]
    print(
        f"{result['on']}: {row['time_us'] / 1e6:.1f} s, in the last {(last - last // 2) / 10:.1f} s "
        f"{half[0]} and {half[1]} packets, {100 * off:.1f} % from the mean; {packets['marked']} "
        f"marked, {packets['cnps']} CNPs, predicted {row['predicted_packets']['cnps']}; "
        f"{control['same']} of {control['steps']} steps as the packet engine's objects have them",
        flush=True,
    )
    return off <= 0.1 and control["same"] == control["steps"] and 0 < packets["cnps"]


with tempfile.TemporaryDirectory() as name:
    right = [run(pathlib.Path(name), place) for place in ["switch", "namespaces"]]
sys.exit(not all(right))
