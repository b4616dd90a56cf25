#!/usr/bin/env python3
"""Closed loop of `observe --calibrate`: hidden constants, noisy files, constants found again.

    tools/calibration-loop.py target/release/fatflow [CASES] [NOISE]

Every case draws a launch, a hand-over between servers, a rate of the NICs, how long each kind of
kernel takes, jitter, the share of overlapped exchanges that stays exposed, and settings: queue pairs
of a connection, the size of packets, NICs of a server. fatflow writes what such a cluster would: for
all-gather on 16 and 128 GPUs the tables of nccl-tests, the logs of NCCL and the counters of the NICs
every 20 ms, and the traces of PyTorch's profiler on one rank of each server. A scenario that knows
nothing of them is calibrated. Ends with 1 if fewer than 90 of 100 intervals hold the truth, if one
of a latency or rate is wider than 15 % to either side, or if a setting is not found.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

UNITS = {
    "library.launch": "us",
    "library.crossing": "us",
    "network.nic.pcie": "Gbps",
    "network.packet.mtu": "B",
}
RATES = ["library.launch", "library.crossing", "network.nic.pcie"]
RATES += ["software.product_time", "software.attention_time", "software.memory_time"]
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
    counted = exact = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in range(cases):
            dice = random.Random(case)
            network = {
                "library.launch": dice.uniform(5, 30),
                "library.crossing": dice.uniform(2, 8),
                "network.nic.pcie": dice.uniform(100, 200),
            }
            software = {
                "software.product_time": dice.uniform(0.8, 1.5),
                "software.attention_time": dice.uniform(0.8, 1.5),
                "software.memory_time": dice.uniform(0.8, 1.5),
                "jitter.mean": dice.uniform(0.005, 0.05),
                "software.tensor_exposed": dice.uniform(0.1, 0.9),
            }
            settings = {
                "network.routing.qps": dice.choice([1, 2, 4, 8]),
                "network.packet.mtu": dice.choice([1024, 2048, 4096]),
                "cluster.nics_per_node": dice.choice([4, 8]),
            }
            hidden = [word for key, value in (network | settings).items() for word in setting(key, value)]
            files = []
            for gpus in (16, 128):
                table, log, counters = (folder / f"{gpus}.{end}" for end in ("txt", "log", "om"))
                command = [binary, "collective", "all_gather", "small-128", "-g", str(gpus), "-b", "1K"]
                command += ["-e", "4G", "--engine", "analytic", "--seed", str(1000 * case + gpus)]
                command += ["--nccl-tests", str(table), "--noise", noise, "--json", *hidden]
                command += ["--nccl-log", str(log), "--counters", str(counters), "--counters-every", "20ms"]
                command += ["--counters-start", str(1767225600 + 60 * gpus)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                files += [str(table), str(log), str(counters)]
            traces = folder / "traces"
            command = [binary, "run", "small-128", "--engine", "analytic", "--seed", str(case), "--json"]
            command += ["--profile", str(traces), "--profile-noise", noise, *OVERLAP, *hidden]
            command += [word for key, value in software.items() for word in setting(key, value)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            files.append(str(traces))
            command = [binary, "observe", *files, "--scenario", "small-128", "--json", *OVERLAP]
            command += ["--calibrate", str(folder / "out.toml")]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            calibration = json.loads(answer.stdout)["result"]["calibration"]
            found = {one["key"]: one for one in calibration["constants"]}
            for key, value in (network | software).items():
                one = found.get(key)
                if one is None:
                    refused[key] = refused.get(key, 0) + 1
                    continue
                held[key] = held.get(key, 0) + (one["low"] <= value <= one["high"])
                half = (one["high"] - one["low"]) / 2 / one["value"]
                widest[key] = max(widest.get(key, 0.0), half)
            said = {one["key"]: one["value"].strip('"') for one in calibration["settings"]}
            exact += all(said.get(key) == f"{value}{UNITS.get(key, '')}" for key, value in settings.items())
            counted += any(remark.startswith("network.nic.pcie") for remark in calibration.get("remarks", []))
    for key in widest:
        print(f"{key}: {held[key]} of {cases} held, widest interval ±{100 * widest[key]:.1f} %")
    for key, count in refused.items():
        print(f"{key}: refused in {count} of {cases}, which do not determine it")
    print(f"settings of logs: all right in {exact} of {cases}")
    print(f"counters of NICs agree in {counted} of {cases}")
    narrow = all(key not in refused and widest[key] <= 0.15 for key in RATES)
    good = all(0.9 * (cases - refused.get(key, 0)) <= count for key, count in held.items())
    return 0 if narrow and good and exact == cases and 0.9 * cases <= counted else 1


if __name__ == "__main__":
    sys.exit(main())
