#!/usr/bin/env python3
"""Published layouts beside the best that `advise` finds with the same software.

published-layouts.py FATFLOW [BUDGET [ROW...]] writes each row as a scenario (`init --published`),
holds its software and its cluster, leaves tp, cp, pp, vpp, ep and the microbatch free, and prints a
table in Markdown. Ends with an error unless the published layout lies within 8 % of the best found
in at least 8 of 10 rows. Prints too how many layouts a minute closed forms looked at.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = [
    "llama3-405b-8k",
    "llama3-405b-16k",
    "megatron-175b-a100-1024",
    "megatron-175b-a100-3072",
    "megatron-sc21-145.6b",
    "korthikanti-530b-selective",
    "mcore-h100-177b",
    "mcore-h100-462b",
    "bridgeb200-405b-128",
    "deepseek-v3-2048",
]
HELD = [
    "cluster", "fabric", "network", "library", "reliability",
    "job.parallel.sharding", "job.parallel.overlap", "job.recompute", "job.placement", "job.moe",
]
# Schedules that the row's software did not have; interleaving comes and goes with vpp.
OTHER_SOFTWARE = ("zero-bubble", "dualpipe", "gpipe")
CLOSE = 0.08


def layout(parallel, micro):
    """A layout in short."""
    words = [f"TP {parallel['tp']}"]
    for key in ("cp", "pp", "vpp", "ep"):
        if 1 < parallel[key]:
            words.append(f"{key.upper()} {parallel[key]}")
    return ", ".join(words + [f"micro {micro}"])


def ask(fatflow, *words):
    done = subprocess.run([fatflow, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def one(fatflow, budget, row, folder):
    path = str(Path(folder) / f"{row}.toml")
    Path(path).write_text(ask(fatflow, "init", "--published", row))
    held = [word for key in HELD for word in ("--fix", key)]
    words = ["advise", path, "--json", "--seeds", "1", "--budget", budget, *held]
    result = json.loads(ask(fatflow, *words))["result"]
    scenario = json.loads(ask(fatflow, "check", path, "--print", "--json"))["result"]
    values = {value["key"]: value["value"].strip('"') for value in scenario["values"]}
    number = lambda key: int(values.get(f"job.{key}", 1))
    own = {key: number(f"parallel.{key}") for key in ("tp", "cp", "pp", "vpp", "ep")}
    micro = number("batch.micro")
    best, step, name = result["base"]["step_s"], result["base"]["step_s"], "the published one"
    for change in result["changes"]:
        is_other = any(word in text for text in change["set"] for word in OTHER_SOFTWARE)
        if not is_other and change["step_s"] < best:
            best, changed, in_micro = change["step_s"], dict(own), micro
            for key, value in (text.removeprefix("job.").split("=") for text in change["set"]):
                if key.removeprefix("parallel.") in changed:
                    changed[key.removeprefix("parallel.")] = int(value)
                in_micro = int(value) if key == "batch.micro" else in_micro
            name = layout(changed, in_micro)
    return {
        "row": row, "own": layout(own, micro), "step": step, "best": best, "name": name,
        "behind": step / best - 1, "layouts": result["layouts"],
    }


def main():
    fatflow = sys.argv[1]
    budget = sys.argv[2] if 2 < len(sys.argv) else "300s"
    rows = sys.argv[3:] or ROWS
    print("| row | published layout | step | best found | step | behind | fit memory | by flows |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    close, looked, seconds = 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            found = one(fatflow, budget, row, folder)
            layouts = found["layouts"]
            close += found["behind"] <= CLOSE
            looked += layouts["predicted"]
            seconds += layouts["wall_s"]
            print(
                f"| `{found['row']}` | {found['own']} | {found['step']:.3f} s | {found['name']} "
                f"| {found['best']:.3f} s | {100 * found['behind']:.1f} % "
                f"| {layouts['predicted']:,} of {layouts['fit']:,} | {layouts['by_engine']} |",
                flush=True,
            )
    print(f"\n{close} of {len(rows)} lie within {100 * CLOSE:.0f} % of the best found; closed forms "
          f"looked at {60 * looked / max(seconds, 1e-9):,.0f} layouts a minute.")
    if close * 10 < 8 * len(rows):
        sys.exit("too few published layouts are near the best")


main()
