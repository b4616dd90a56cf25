#!/usr/bin/env bash
# Thousands of random scenarios against what must hold: tools/campaign.sh CASES [SEED]
# JOBS processes side by side (one for each processor), each with 4 GiB and slices of SLICE cases
# (50). CAMPAIGN is the test's binary, if it was built before; then PROGRAM is the program and OTHER
# another build of it that must say the same. Here they are the release and the test profile's.
# FATFLOW_EVERY says which cases the program is asked (every 10th).
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
export FATFLOW_SEED="${2:-1}"
if [ -n "${PROGRAM:-}" ]; then
    FATFLOW_PROGRAM="$(realpath "$PROGRAM")" FATFLOW_OTHER="$(realpath "${OTHER:-$PROGRAM}")"
    export FATFLOW_PROGRAM FATFLOW_OTHER
fi
# Small slices, so that no processor waits long for the others.
slice="${SLICE:-50}"
export FATFLOW_CASES="$slice"
mkdir -p "$target"
log="$target/campaign-$FATFLOW_SEED.log"
ulimit -v 4194304
seq 0 "$slice" $((cases - 1)) |
    nice -n 19 xargs -P "${JOBS:-$(nproc)}" -I{} \
        env FATFLOW_FIRST={} timeout 1800 "$CAMPAIGN" --nocapture --test-threads 1 \
        everything_holds > "$log" 2>&1 || true
grep -vE '^(running|test |$)|campaign: ' "$log" | head -200 || true
awk -v wanted="$cases" -v slice="$slice" '
    # The name of the test stands before it.
    sub(/^.*campaign: /, "campaign: ") {
        cases += $2; ran += $4; asked += $6; failures += $10; cpu += $12; slices++
        if (most < $17) most = $17
        if (slowest < $21) slowest = $21
    }
    END {
        printf "%d cases, %d ran, %d asked of the program, %d failures, ", cases, ran, asked, failures
        printf "%.0f s of processors in the tests, ", cpu
        printf "at most %d MiB, the slowest case %.1f s\n", most, slowest
        missing = int((wanted + slice - 1) / slice) - slices
        if (missing) print missing " slices did not end"
        exit !(failures == 0 && missing == 0)
    }' "$log"
