#!/usr/bin/env bash
# Thousands of random scenarios against what must hold: tools/campaign.sh CASES [SEED]
set -euo pipefail
cd "$(dirname "$0")/.."
export FATFLOW_CASES="${1:-5000}" FATFLOW_SEED="${2:-1}"
exec nice -n 19 cargo test --quiet --release -p cli --test campaign -- --nocapture
