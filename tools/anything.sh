#!/usr/bin/env bash
# Random settings by the thousand: the packet engine with threads and repetition against without, and everything else that
# crates/packetsim/tests/anything.rs holds. ./test.sh runs some hundred seeds; this runs as many as are asked for, in slices,
# on so many processes, with assertions on. Usage: tools/anything.sh [SEEDS [PROCESSES]]
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-10000} processes=${2:-2} slice=250
binary=$(cargo test -p packetsim --test anything --no-run --message-format=json 2>/dev/null |
    grep -o '"executable":"[^"]*anything[^"]*"' | tail -1 | cut -d'"' -f4)
echo "$(git rev-parse --short HEAD): $seeds seeds in slices of $slice"
seq 0 "$slice" $((seeds - 1)) | xargs -P "$processes" -I{} bash -c '
    if ! out=$(ANYTHING_SEEDS={}..$(({} + '"$slice"')) "'"$binary"'" --nocapture --test-threads=1 2>&1); then
        echo "$out" | tail -20
        exit 255
    fi
    echo "$out" | grep -E "seeds (jumped|were divided)"' |
    awk '/jumped/ { j += $1; n += $3 } /divided/ { d += $1 } { print > "/dev/stderr" }
         END { printf "%d of %d seeds jumped, %d runs were divided, all agree\n", j, n, d }'
