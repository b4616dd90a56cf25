#!/usr/bin/env bash
# Thousands of random scenarios against what must hold: tools/campaign.sh CASES [SEED]
# JOBS processes side by side (one for each processor), each with 4 GiB. CAMPAIGN and PROGRAM are
# binaries that were built before, OTHER another build of the program that must say the same: here
# the test profile's, beside the release. EVERY says which cases the program is asked (every 10th).
set -euo pipefail
cd "$(dirname "$0")/.."
cases="${1:-5000}"
target="${CARGO_TARGET_DIR:-target}"
if [ -z "${CAMPAIGN:-}" ]; then
    cargo build --quiet --bin fatflow
    cargo build --quiet --release --bin fatflow
    OTHER="$target/debug/fatflow" PROGRAM="$target/release/fatflow"
    CAMPAIGN="$(cargo test --release -p cli --test campaign --no-run 2>&1 |
        sed -n 's/.*(\(.*campaign-[0-9a-f]*\)).*/\1/p')"
fi
FATFLOW_PROGRAM="$(realpath "$PROGRAM")" FATFLOW_OTHER="$(realpath "${OTHER:-$PROGRAM}")"
export FATFLOW_PROGRAM FATFLOW_OTHER FATFLOW_SEED="${2:-1}" FATFLOW_EVERY="${EVERY:-10}"
# Small slices, so that no processor waits long for the others.
slice="${SLICE:-50}"
export FATFLOW_CASES="$slice"
log="$target/campaign-$FATFLOW_SEED.log"
ulimit -v 4194304
seq 0 "$slice" $((cases - 1)) |
    nice -n 19 xargs -P "${JOBS:-$(nproc)}" -I{} \
        env FATFLOW_FIRST={} timeout 1800 "$CAMPAIGN" --nocapture --test-threads 1 > "$log" 2>&1 ||
    true
grep -vE '^(running|test |campaign: |$)' "$log" | head -200 || true
awk -v wanted="$cases" -v slice="$slice" '
    /^campaign: / {
        cases += $2; ran += $4; asked += $6; failures += $10; cpu += $12; slices++
        if (most < $17) most = $17
        for (i = 1; i < NF; i++) if ($i == "slowest" && slowest < $(i + 1)) slowest = $(i + 1)
    }
    END {
        printf "%d cases, %d ran, %d asked of the program, %d failures, ", cases, ran, asked, failures
        printf "%.0f s of processors in the tests, at most %d MiB, slowest case %.1f s\n", cpu, most, slowest
        missing = int((wanted + slice - 1) / slice) - slices
        if (missing) print missing " slices did not end"
        exit !(failures == 0 && missing == 0)
    }' "$log"
