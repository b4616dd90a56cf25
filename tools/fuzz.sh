#!/usr/bin/env bash
# Fires at every reader, or those named, for so many seconds of a processor each:
# tools/fuzz.sh SECONDS [TARGET …]
# JOBS processes side by side (one for each processor), each target in SHARDS of them (1) with seeds
# from SEED (1) on. FUZZ is a binary that was built before; OUT (target/fuzz) keeps what breaks a
# reader. Prints the sums of each target; exits with 1 if anything broke.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-300}"
shift || true
if [ -z "${FUZZ:-}" ]; then
    cargo build --quiet --release -p fuzz
    FUZZ="${CARGO_TARGET_DIR:-target}/release/fuzz"
fi
out="${OUT:-target/fuzz}"
mkdir -p "$out"
mapfile -t targets < <("$FUZZ" --list)
[ $# -eq 0 ] || targets=("$@")
first="${SEED:-1}"
for ((shard = first; shard < first + ${SHARDS:-1}; shard++)); do
    printf "$shard %s\n" "${targets[@]}"
done |
    nice -n 19 xargs -P "${JOBS:-$(nproc)}" -L 1 \
        sh -c 'timeout "$3" "$0" --seconds "$1" --out "$2" --seed "$4" "$5" || true' \
        "$FUZZ" "$seconds" "$out" $((3600 + 100 * seconds)) > "$out/log-$first"
grep -A 1 '^FIND' "$out/log-$first" || true
awk -v wanted="${#targets[@]}" -v shards="${SHARDS:-1}" '
    NF == 5 && $2 + 0 == $2 { executions[$1] += $2; cpu[$1] += $3; finds[$1] += $5; ended++ }
    /^FIND/ { found++ }
    END {
        printf "%-16s %12s %8s %6s\n", "target", "executions", "CPU s", "finds"
        for (name in executions) {
            all += executions[name]; time += cpu[name]
            printf "%-16s %12d %8.0f %6d\n", name, executions[name], cpu[name], finds[name] | "sort"
        }
        close("sort")
        printf "%-16s %12d %8.0f %6d\n", "all", all, time, found
        # A process that its own watch ended, or that waited for ever, prints no line of sums.
        if (ended < wanted * shards) print wanted * shards - ended " processes did not end"
        exit !(found == 0 && ended == wanted * shards)
    }' "$out/log-$first"
