#!/usr/bin/env python3
"""Closed loop of `observe --calibrate`: hidden constants, noisy files, constants found again.

    tools/calibration-loop.py target/release/fatflow [CASES] [NOISE]

Every case draws a launch, a hand-over between servers, a rate of the NICs, how long kernels take,
jitter, and the share of overlapped exchanges that stays exposed. fatflow writes what such a cluster
would: the tables of nccl-tests (all-gather on 16 and 128 GPUs) and the traces of PyTorch's profiler
on one rank of each server. A scenario that knows nothing of them is calibrated. Ends with 1 if fewer
than 90 of 100 intervals hold the truth, or if one of a latency or rate is wider than 15 % to either
side.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

UNITS = {"library.launch": "us", "library.crossing": "us", "network.nic.pcie": "Gbps"}
OVERLAP = ["--set", 'job.parallel.overlap=["dp", "pp", "tp"]']


def setting(key: str, value: float) -> list[str]:
    return ["--set", f"{key}={value}{UNITS.get(key, '')}"]


def main() -> int:
    binary = sys.argv[1]
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    noise = sys.argv[3] if len(sys.argv) > 3 else "0.02"
    held: dict[str, int] = {}
    refused: dict[str, int] = {}
    widest: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in range(cases):
            dice = random.Random(case)
            network = {
                "library.launch": dice.uniform(5, 30),
                "library.crossing": dice.uniform(2, 8),
                "network.nic.pcie": dice.uniform(100, 200),
            }
            software = {
                "software.kernel_time": dice.uniform(0.8, 1.5),
                "jitter.mean": dice.uniform(0.005, 0.05),
                "software.tensor_exposed": dice.uniform(0.1, 0.9),
            }
            hidden = [word for key, value in network.items() for word in setting(key, value)]
            files = []
            for gpus in (16, 128):
                table = Path(folder) / f"{gpus}.txt"
                command = [binary, "collective", "all_gather", "small-128", "-g", str(gpus), "-b", "1K"]
                command += ["-e", "4G", "--engine", "analytic", "--seed", str(1000 * case + gpus)]
                command += ["--nccl-tests", str(table), "--noise", noise, "--json", *hidden]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                files.append(str(table))
            traces = Path(folder) / "traces"
            command = [binary, "run", "small-128", "--engine", "analytic", "--seed", str(case), "--json"]
            command += ["--profile", str(traces), "--profile-noise", noise, *OVERLAP, *hidden]
            command += [word for key, value in software.items() for word in setting(key, value)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            files.append(str(traces))
            command = [binary, "observe", *files, "--scenario", "small-128", "--json", *OVERLAP]
            command += ["--calibrate", str(Path(folder) / "out.toml")]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            found = {one["key"]: one for one in json.loads(answer.stdout)["result"]["calibration"]["constants"]}
            for key, value in (network | software).items():
                one = found.get(key)
                if one is None:
                    refused[key] = refused.get(key, 0) + 1
                    continue
                held[key] = held.get(key, 0) + (one["low"] <= value <= one["high"])
                half = (one["high"] - one["low"]) / 2 / one["value"]
                widest[key] = max(widest.get(key, 0.0), half)
    for key in widest:
        print(f"{key}: {held[key]} of {cases} held, widest interval ±{100 * widest[key]:.1f} %")
    for key, count in refused.items():
        print(f"{key}: refused in {count} of {cases}, which do not determine it")
    narrow = all(key not in refused and widest[key] <= 0.15 for key in UNITS)
    good = all(0.9 * (cases - refused.get(key, 0)) <= count for key, count in held.items())
    return 0 if narrow and good else 1


if __name__ == "__main__":
    sys.exit(main())
