#!/usr/bin/env bash
# Writes the requirements of the Python tests again, all that they need with digests, from the few
# that are named: tests/*/requirements.in. Needs a network.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${CARGO_TARGET_DIR:-target}/lock"
[ -x "$venv/bin/uv" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet uv; }
for names in tests/*/requirements.in; do
    locked="${names%.in}.txt"
    echo "# Made by tools/lock-python.sh from requirements.in: all that is installed, by digest." \
        > "$locked.new"
    "$venv/bin/uv" pip compile --quiet --no-header --no-annotate --universal --generate-hashes \
        --python-version 3.11 "$names" >> "$locked.new"
    mv "$locked.new" "$locked"
done
