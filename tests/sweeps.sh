# What the tests of sweeps on clusters share, to be sourced; $fatflow is the binary.

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# For `trap … EXIT`: whatever ended a test early, what there is to know is said.
explain_failure() {
    local code=$?
    [ $code != 0 ] || return 0
    echo "FAILED with exit code $code after $SECONDS s in: ${step:-the beginning}" >&2
    echo "load: $(cat /proc/loadavg)" >&2
    ! declare -F explain >/dev/null || explain
}

# step NAME COMMAND…: runs it, and says how long it took.
step() {
    local start=$EPOCHREALTIME
    step=$1
    "${@:2}"
    awk -v what="$1" -v from="$start" -v to="$EPOCHREALTIME" \
        'BEGIN { printf "   %-56s %6.1f s\n", what, to - from }'
}

# wait_until SECONDS COMMAND…: until it succeeds; in vain is a failure. A machine that does many
# other things gets several times as long: it is only waited for what will not come.
wait_until() {
    local end=$((SECONDS + $1 * ${FATFLOW_PATIENCE:-4}))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "waited in vain for: $*"
        sleep 0.1
    done
}

# reference NAME CASES: a grid of so many cases in NAME.toml, and its results of a local run.
reference() {
    cat >"$1.toml" <<GRID
from = "small-16"
engine = "analytic"

[axes]
"network.routing.qps" = [1, 2, 4, 8]
seed = { from = 0, to = $(($2 / 4 - 1)) }

[keep]
measures = ["step_s", "mfu"]
GRID
    "$fatflow" sweep run "$1.toml" --out "local-$1" --quiet >/dev/null
}

# status DIR KEY: a number of `sweep status`.
status() {
    "$fatflow" sweep status "$1" --json 2>/dev/null |
        sed -n "s/^ *\"$2\": \([0-9]*\),*\$/\1/p" | grep . || echo 0
}

# done_cases DIR N: at least so many cases are there.
done_cases() { [ "$(status "$1" done)" -ge "$2" ]; }

gone() { ! kill -0 "$1" 2>/dev/null; }

# same_as_local DIR NAME: every case is there once, and the table is the local run's to the byte.
same_as_local() {
    "$fatflow" sweep merge "$1" >/dev/null || fail "$1 lacks cases"
    [ "$(status "$1" missing)$(status "$1" failed)" = 00 ] || fail "$1 has no result of some cases"
    cmp "$1/results.parquet" "local-$2/results.parquet" || fail "$1 differs from a local run"
}

# strike KILLS HITS KIND…: sweeps of the grid `few`, each hit HITS times at random by `kill -9` of
# the next kind, until so many processes were killed. What is asked of the test: `begin NAME`,
# `hit NAME KIND` (fails if there was nothing to kill) and `finish NAME`.
strike() {
    local kills=$1 hits=$2 struck=0 sweeps=0 turn=0 i name at times
    shift 2
    while [ $struck -lt "$kills" ]; do
        name=kill-$sweeps
        sweeps=$((sweeps + 1))
        times=()
        for ((i = 0; i < hits; i++)); do times+=($((RANDOM % few))); done
        begin "$name"
        for at in $(printf '%s\n' "${times[@]}" | sort -n); do
            [ $struck -lt "$kills" ] || break
            wait_until 120 done_cases "$name" "$at"
            sleep "0.$((RANDOM % 10))"
            kind=${@:turn++ % $# + 1:1}
            ! hit "$name" "$kind" || struck=$((struck + 1))
        done
        finish "$name"
        same_as_local "$name" few
        rm -rf "$name"
        echo "   $struck of $kills killed, the last one a $kind; $sweeps sweeps are whole" \
            "($SECONDS s)"
    done
}

# commands_of_the_book PAGE: its grid, commands and Python, in a folder of their own.
commands_of_the_book() {
    mkdir book
    cd book
    awk '/^```/ { on = ($0 == "```toml grid.toml") } on && !/^```/' "$1" >grid.toml
    awk '/^```/ { on = ($0 == "```sh") } on && !/^```/' "$1" >commands
    [ -s grid.toml ] && [ -s commands ] || fail "no commands in $1"
    while read -r line; do
        PATH=$(dirname "$fatflow"):$PATH bash -e -c "$line" >log 2>&1 </dev/null ||
            { cat log; fail "$line"; }
    done <commands
    awk '/^```/ { on = ($0 == "```python") } on && !/^```/' "$1" >cell.py
    [ ! -s cell.py ] || python3 cell.py >log 2>&1 || { cat log; fail "the Python of $1"; }
    cd ..
}
