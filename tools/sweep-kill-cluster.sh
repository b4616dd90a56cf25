#!/usr/bin/env bash
# sweep-kill-cluster.sh [N [SEED]]: N sweeps (100) on a real Slurm and N on a real Ray, each hit by
# `kill -9` at a random time: a task, a node, whoever submits or drives, a slurmd alone. Afterwards
# every case must be there once, and the table must be a local run's to the byte. Every third or
# fourth is a lost node, which Slurm notices after some seconds: allow a quarter of an hour for 100.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
cargo build --quiet --workspace
export ONLY_KILLS=1
tests/slurm/run.sh "$target/debug/fatflow" "${1:-100}" "${2:-1}"
tests/ray/run.sh "$target/debug/fatflow" "$target/debug/lib_native.so" "${1:-100}" "${2:-1}"
