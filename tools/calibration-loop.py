#!/usr/bin/env python3
"""Closed loop of `observe --calibrate`: hidden constants, noisy tables, constants found again.

    tools/calibration-loop.py target/release/fatflow [CASES] [NOISE]

Every case draws a launch, a hand-over between servers and a rate of the NICs, lets fatflow write the
tables that nccl-tests would print on such a cluster (all-gather on 16 and 64 GPUs), and calibrates
a scenario that knows nothing of them. Ends with 1 if fewer than 90 of 100 intervals hold the truth,
or if one is wider than 15 % to either side.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> int:
    binary = sys.argv[1]
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    noise = sys.argv[3] if len(sys.argv) > 3 else "0.02"
    held: dict[str, int] = {}
    widest: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in range(cases):
            dice = random.Random(case)
            truth = {
                "library.launch": dice.uniform(5, 30),
                "library.crossing": dice.uniform(2, 8),
                "network.nic.pcie": dice.uniform(100, 200),
            }
            units = {"network.nic.pcie": "Gbps"}
            tables = []
            for gpus in (16, 64):
                table = Path(folder) / f"{gpus}.txt"
                command = [binary, "collective", "all_gather", "small-128", "-g", str(gpus), "-b", "1K"]
                command += ["-e", "4G", "--engine", "analytic", "--seed", str(1000 * case + gpus)]
                command += ["--nccl-tests", str(table), "--noise", noise, "--json"]
                for key, value in truth.items():
                    command += ["--set", f"{key}={value}{units.get(key, 'us')}"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                tables.append(str(table))
            command = [binary, "observe", *tables, "--scenario", "small-128", "--json"]
            command += ["--calibrate", str(Path(folder) / "out.toml")]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            found = {one["key"]: one for one in json.loads(answer.stdout)["result"]["calibration"]["constants"]}
            for key, value in truth.items():
                one = found.get(key)
                if one is None:
                    widest[key] = float("inf")
                    continue
                held[key] = held.get(key, 0) + (one["low"] <= value <= one["high"])
                half = (one["high"] - one["low"]) / 2 / one["value"]
                widest[key] = max(widest.get(key, 0.0), half)
    for key in widest:
        print(f"{key}: {held.get(key, 0)} of {cases} held, widest interval ±{100 * widest[key]:.1f} %")
    good = all(0.9 * cases <= held.get(key, 0) and widest[key] <= 0.15 for key in widest)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
