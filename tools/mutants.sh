#!/usr/bin/env bash
# Mutation testing of the modules whose numbers matter most, all of it or one shard of it:
# tools/mutants.sh [SHARD/SHARDS]. Installs cargo-mutants; results are in target/mutants.out.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
shard=()
[ $# -eq 0 ] || shard=(--shard "$1")
exec nice -n 19 cargo mutants --output target --test-tool nextest --timeout 120 \
    --file 'crates/units/src/*.rs' --file 'crates/traffic/src/**/*.rs' \
    --file 'crates/flowsim/src/max_min.rs' --file 'crates/packetsim/src/buffer.rs' \
    --file 'crates/packetsim/src/cc/*.rs' --file 'crates/job/src/memory.rs' "${shard[@]}"
