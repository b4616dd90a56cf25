#!/usr/bin/env bash
# Fires at every reader, or those named, for so many seconds each: tools/fuzz.sh SECONDS [TARGET …]
# Exits with 1 if anything broke; the inputs are in target/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-300}"
shift || true
cargo build --quiet --release -p fuzz
exec nice -n 19 "${CARGO_TARGET_DIR:-target}/release/fuzz" --seconds "$seconds" --seed "${SEED:-1}" "$@"
