#!/usr/bin/env python3
"""Draws mutants for tools/mutants.sh, and tells what became of them."""

import collections
import json
import pathlib
import random
import re
import sys


def draw(out: pathlib.Path, count: int, seed: int) -> None:
    names = sorted(mutant["name"] for mutant in json.loads((out / "all.json").read_text()))
    chosen = random.Random(seed).sample(names, min(count, len(names))) if count else names
    print(f"{len(chosen)} of {len(names)} mutants, seed {seed}")
    # Rust's expressions know no escaped space, and TOML's plain strings no quote.
    plain = [re.escape(name).replace("\\ ", " ").replace("'", "\\x27") for name in chosen]
    exact = [f"^{name}$" for name in plain] if count else []
    lines = "".join(f"  '{pattern}',\n" for pattern in exact)
    (out / "sample.toml").write_text(f"examine_re = [\n{lines}]\n")


def module(name: str) -> str:
    path = name.split(":")[0].removeprefix("crates/").replace("/src/", "::").removesuffix(".rs")
    parts = path.split("/")[0].split("::")
    return parts[0] if parts[0] in ("units", "traffic") else "::".join(parts)


def tell(out: pathlib.Path) -> None:
    killed, all_of, survivors = collections.Counter(), collections.Counter(), []
    unviable = 0
    for path in sorted(out.glob("*/mutants.out/outcomes.json")):
        for outcome in json.loads(path.read_text())["outcomes"]:
            if outcome["scenario"] == "Baseline":
                if outcome["summary"] != "Success":
                    print(f"{path}: the tests fail without a mutant: {outcome['summary']}")
                continue
            name = outcome["scenario"]["Mutant"]["name"]
            if outcome["summary"] == "Unviable":
                unviable += 1
                continue
            all_of[module(name)] += 1
            # What runs for ever is noticed too.
            killed[module(name)] += outcome["summary"] in ("CaughtMutant", "Timeout")
            if outcome["summary"] == "MissedMutant":
                survivors.append(name)
    for name in sorted(all_of):
        print(f"{name:20} {killed[name]:5} of {all_of[name]:5}")
    share = 100 * sum(killed.values()) / max(1, sum(all_of.values()))
    print(f"{'all':20} {sum(killed.values()):5} of {sum(all_of.values()):5}  {share:.1f} %")
    print(f"{unviable} others do not compile")
    print("\n".join(f"survives: {name}" for name in sorted(survivors)))


if sys.argv[1] == "draw":
    draw(pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
else:
    tell(pathlib.Path(sys.argv[2]))
