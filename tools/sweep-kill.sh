#!/bin/bash
# Kills `fatflow sweep run` at random times, again and again, and looks whether every case is there
# exactly once afterwards, with the bytes of a run that nobody killed.
#
#   tools/sweep-kill.sh [TIMES] [FATFLOW] [SEEDS]
#
# A sweep has three cases for each seed. A process lives at most as long as the whole sweep takes,
# so that some are killed while they plan, some while they execute or write, some while they merge.
set -eu
times=${1:-100}
fatflow=${2:-target/release/fatflow}
seeds=${3:-1000}
cases=$((3 * seeds))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/grid.toml" <<GRID
from = "small-128"
engine = "flow"
[axes]
"network.routing.qps" = [1, 4, 16]
seed = { from = 0, to = $((seeds - 1)) }
[keep]
measures = ["step_s", "mfu", "links.imbalance"]
GRID
begun=$EPOCHREALTIME
"$fatflow" sweep run "$folder/grid.toml" --out "$folder/whole" --quiet > /dev/null
whole=$(awk -v from="$begun" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')
killed=0
amid=0
round=0
while [ "$killed" -lt "$times" ]; do
    round=$((round + 1))
    while [ "$killed" -lt "$times" ]; do
        "$fatflow" sweep run "$folder/grid.toml" --out "$folder/killed" --quiet > /dev/null 2>&1 &
        child=$!
        sleep "$(awk -v seed="$RANDOM" -v most="$whole" \
            'BEGIN { srand(seed); print 0.01 + most * rand() }')"
        if kill -9 "$child" 2> /dev/null; then
            wait "$child" 2> /dev/null || killed=$((killed + 1))
            [ -z "$(ls "$folder/killed/segments" 2> /dev/null)" ] || amid=$((amid + 1))
        else
            wait "$child"
            break
        fi
    done
    "$fatflow" sweep run "$folder/grid.toml" --out "$folder/killed" --quiet > /dev/null
    "$fatflow" sweep status "$folder/killed" --json > "$folder/status.json"
    for line in "\"cases\": $cases," "\"done\": $cases," '"missing": 0,' '"duplicates": 0,'; do
        grep -q "$line" "$folder/status.json" || { cat "$folder/status.json"; exit 1; }
    done
    cmp "$folder/killed/results.parquet" "$folder/whole/results.parquet"
    rm -rf "$folder/killed"
done
echo "killed $killed times in $round rounds, $amid of them with results on the disk: every case is" \
    "there once, with the bytes of a run that nobody killed"
