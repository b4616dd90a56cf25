"""The error of dense Blackwell steps for each published set of kernel ratios and each fp8 recipe.

    python3 tools/chips.py [--fatflow target/debug/fatflow] [--engine analytic]

Each set is one collector's speeds over its own H200 on equal shapes (aiconfigurator 095f58a). They
take the place of the catalogue's middle (which is 2 % higher in fp8: these are times of layers that
quantise their input too), the rows' unpublished recipe is written into a copy of the
table, and `fatflow validate` scores it. Prints one line for each: mean error, bias, and the bias by
cluster, in percent.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHIPS = ["b200", "gb200"]
RECIPES = ["delayed", "fused", "current", "mx"]

# Speeds by class for B200 and GB200. MXFP8 stands over fp8 with one scale per tensor.
SETS = {
    "middle": {},
    "trtllm 1.3.0rc20": {
        "bf16_large": (1.95, 2.05), "fp8_large": (1.915, 1.933), "fp8_narrow": (1.73, 1.76),
        "fp8_short": (1.60, 1.62), "mxfp8_large": (2.09, 2.24), "mxfp8_narrow": (2.45, 2.53),
        "mxfp8_short": (2.22, 2.27)},
    "trtllm 1.3.0rc10": {
        "bf16_large": (1.96, 2.15), "fp8_large": (1.928, 1.998), "fp8_narrow": (1.75, 1.79),
        "fp8_short": (1.62, 1.65), "mxfp8_large": (1.67, 1.75), "mxfp8_narrow": (1.54, 1.56),
        "mxfp8_short": (1.44, 1.46)},
    "sglang 0.5.14": {
        "bf16_large": (2.06, 2.20), "fp8_large": (1.958, 2.16), "fp8_narrow": (1.73, 1.87),
        "fp8_short": (1.78, 1.90), "mxfp8_large": (2.41, 2.52), "mxfp8_narrow": (1.84, 1.92),
        "mxfp8_short": (1.84, 1.89)},
    "sglang 0.5.10": {
        "bf16_large": (2.08, 2.23), "fp8_large": (1.897, 2.104), "fp8_narrow": (1.72, 1.83),
        "fp8_short": (1.72, 1.82), "mxfp8_large": (1.91, 1.98), "mxfp8_narrow": (1.34, 1.34),
        "mxfp8_short": (1.43, 1.41)},
    "vllm 0.24 (noisy)": {
        "bf16_large": (2.03, 1.97), "fp8_large": (1.976, 2.215), "fp8_narrow": (1.52, 1.62),
        "fp8_short": (1.68, 1.79), "mxfp8_large": (2.03, 1.56)},
}
# Training runs cuDNN's attention; TRT-LLM's is for inference, and its gradient is its forward's
# ratio times what cuDNN's gradient loses.
ATTENTION = {
    "cuDNN": {},
    "TRT-LLM": {"attention_forward": (1.90, 2.11), "attention_backward": (1.82, 2.02)},
}


def catalogue(speeds):
    """The catalogue's two chips with other speeds, as TOML."""
    with open(ROOT / "crates/scenario/data/hardware/gpus.toml", "rb") as handle:
        gpus = tomllib.load(handle)["gpu"]
    lines = []
    for at, chip in enumerate(CHIPS):
        gpu = gpus[chip]
        for key, pair in speeds.items():
            gpu["speed"][key] = {"value": pair[at], "source": "tools/chips.py", "trust": "C"}
        plain = {key: value for key, value in gpu.items() if key != "speed"}
        for table, values in [(f"gpu.{chip}", plain), (f"gpu.{chip}.speed", gpu["speed"])]:
            lines.append(f"[{table}]")
            lines += [f"{key} = {toml(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + " }"
    return json.dumps(value)


def tables(folder):
    """Writes the dense Blackwell rows once for each recipe."""
    with open(ROOT / "validation/training_steps_2.csv", newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["gpu"] in CHIPS and not row["experts"]]
    for recipe in RECIPES:
        with open(folder / f"{recipe}.csv", "w", newline="") as handle:
            writer = csv.DictWriter(handle, rows[0])
            writer.writeheader()
            writer.writerows({**row, "fp8_recipe": recipe} for row in rows)
    return {row["id"]: row["cluster"] for row in rows}


def mean(values):
    values = list(values)
    return 100 * sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fatflow", default=ROOT / "target/debug/fatflow")
    parser.add_argument("--engine", default="analytic")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "rows").mkdir()
        clusters = tables(folder / "rows")
        names = sorted(set(clusters.values()))
        print("| ratios | attention | recipe | mean | bias | " + " | ".join(names) + " |")
        print("|---" * (5 + len(names)) + "|")
        for ratios, speeds in SETS.items():
            for attention, others in ATTENTION.items():
                hardware = folder / "gpus.toml"
                hardware.write_text(catalogue({**speeds, **others}))
                run = subprocess.run(
                    [arguments.fatflow, "validate", folder / "rows", "--engine", arguments.engine,
                     "--catalogue", hardware, "--json"], capture_output=True, text=True)
                for family in json.loads(run.stdout)["result"]["families"]:
                    errors = {case["id"]: case["error"] for case in family["cases"]}
                    biases = [mean(error for id, error in errors.items() if clusters[id] == cluster)
                              for cluster in names]
                    cells = [f"{mean(map(abs, errors.values())):.1f}"]
                    cells += [f"{bias:+.1f}" for bias in [mean(errors.values()), *biases]]
                    print("|", " | ".join([ratios, attention, family["name"], *cells]), "|",
                          flush=True)


if __name__ == "__main__":
    main()
