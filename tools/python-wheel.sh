#!/usr/bin/env bash
# Makes the release wheel as `pip install .` does in a fresh clone, and tries it: its size, and
# whether it works in an environment that has nothing else. Another Python may be named:
# tools/python-wheel.sh python3.9
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

git clone --quiet . "$folder/clone"
"$python" -m venv "$folder/venv"
pip="$folder/venv/bin/pip"
begun=$SECONDS
"$pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" "$folder/clone"
wheel="$(ls "$folder"/*.whl)"
size="$(stat -c %s "$wheel")"
echo "$(basename "$wheel"): $size bytes, built in $((SECONDS - begun)) s"
[ "$size" -lt 30000000 ] || { echo "larger than 30 MB"; exit 1; }
"$pip" install --quiet --disable-pip-version-check "$wheel"
cd "$folder"
venv/bin/python -c 'import fatflow; print(fatflow.__version__, fatflow.Scenario.preset("small-16").run().step_s)'
