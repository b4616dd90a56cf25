#!/usr/bin/env bash
# sweep-kill-cluster.sh [N [SEED]]: N times (100) `kill -9` at random times of sweeps on a real
# Slurm, and N on a real Ray: a task, a node, whoever submits or drives, a slurmd alone, several of each
# sweep. Afterwards every case must be there once, and the table must be a local run's to the byte.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
cargo build --quiet --workspace
export ONLY_KILLS=1 FEW=120 HITS=6
tests/slurm/run.sh "$target/debug/fatflow" "${1:-100}" "${2:-1}"
tests/ray/run.sh "$target/debug/fatflow" "$target/debug/lib_native.so" "${1:-100}" "${2:-1}"
