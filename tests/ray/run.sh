#!/usr/bin/env bash
# run.sh FATFLOW LIBRARY [KILLS [SEED]]: sweeps on a real Ray, and what can go wrong with them.
#
# LIBRARY is the Python package's native half (lib_native.so). Installs Ray into a virtual
# environment, and runs a head and two workers in namespaces of their own. KILLS processes (3) are
# killed with `kill -9` at random times, HITS (1) of each sweep. With ONLY_KILLS=1 in the
# environment nothing else is tried.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${FATFLOW_ISOLATED:-}" != yes ]; then
    target="${CARGO_TARGET_DIR:-$here/../../target}"
    venv="$(mkdir -p "$target" && cd "$target" && pwd)/clusters"
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    fatflow=$(realpath "$1")
    library=$(realpath "$2")
    export FATFLOW_ISOLATED=yes FATFLOW_VENV="$venv"
    exec "$here/../isolated.sh" "$here/run.sh" "$fatflow" "$library" "${@:3}"
fi

fatflow=$1
kills=${3:-3}
RANDOM=${4:-$RANDOM}
many=${MANY:-600}
few=${FEW:-400}
. "$here/../sweeps.sh"
. "$here/cluster.sh"
work=$(mktemp -d /tmp/fatflow-ray.XXXXXX)
# Ray's processes still write while this ends; they end with the namespace.
remove() { rm -rf "$work" 2>/dev/null; }
trap 'explain_failure; remove || { sleep 1 && remove; } || true' EXIT
cd "$work"
mkdir package
cp -r "$here/../../python/fatflow" package/
cp "$2" package/fatflow/_native.abi3.so
export PATH=$FATFLOW_VENV/bin:$PATH PYTHONPATH=$work/package PYTHONDONTWRITEBYTECODE=1

# The sweeps' own words, Ray's view of its nodes, and the last words of its processes.
explain() {
    tail -n 20 "$work"/*.log >&2
    timeout 30 ray status --address=$HEAD >&2 || true
    local log
    for log in "$work"/ray/session_latest/logs/{gcs_server,raylet,monitor}*.{out,err}; do
        [ ! -s "$log" ] || { echo "==> $log <==" && grep -v '(INFO)\| I ' "$log" | tail -n 10; } >&2
    done
}

# run DIR GRID: in the background; its output is DIR.log.
run() {
    "$fatflow" sweep run "$2.toml" --out "$1" --ray $HEAD >"$1.log" 2>&1 &
    running=$!
}

# reached DIR N: so many cases are there, or nobody computes any more.
reached() { done_cases "$1" "$2" || ! jobs -pr | grep -qx "$running"; }

ended() {
    wait "$running" || { cat "$1.log"; fail "sweep run of $1"; }
}

a_worker_lost() {
    run many many
    wait_until 120 reached many $((many / 4))
    power_loss w1
    ended many
    worker_up w1
    same_as_local many many
}

not_installed() {
    local said
    if said=$(PYTHONPATH= "$fatflow" sweep run few.toml --out x --ray $HEAD 2>&1); then
        fail "a sweep on Ray without the package"
    fi
    [[ $said == *"pip install 'fatflow[ray]'"* ]] || fail "what to install is not said: $said"
}

all_fail() {
    printf '%s\n' 'from = "small-16"' 'engine = "analytic"' '[set]' '"job.parallel.tp" = 3' \
        '[axes]' 'seed = [0, 1, 2]' '[keep]' 'measures = ["step_s"]' >failing.toml
    local code=0
    "$fatflow" sweep run failing.toml --out failing --ray $HEAD >failing.log 2>&1 || code=$?
    [ $code = 1 ] || fail "a sweep on Ray of which all cases fail ends with $code"
    [ "$(status failing failed)" = 3 ] || fail "three cases failed, and $(status failing failed) are told"
}

not_believed() {
    python "$here/check.py" $HEAD >check.log 2>&1 || fail "tests/ray/check.py"
}

# What `strike` asks for.
begin() { run "$1" few; }

hit() {
    local worker=w$((1 + RANDOM % 2)) process
    case $2 in
        # What runs a task is a process of its own. (Ray's agents are called `ray::` too; without
        # one its node is gone, and nobody would start that again.)
        process)
            process=$(pgrep -f '^ray::(_execute|IDLE)' | shuf -n 1) && kill -9 "$process" 2>/dev/null
            ;;
        node) power_loss $worker && worker_up $worker ;;
        driver)
            process=$(pgrep -f 'fatflow\.ray ' | shuf -n 1) && kill -9 "$process" 2>/dev/null ||
                return 1
            wait "$running" || run "$1" few
            ;;
    esac
}

finish() { ended "$1"; }

step "a Ray of a head and two workers" cluster_up "$work"
step "a local run of $few cases" reference few "$few"
if [ -z "${ONLY_KILLS:-}" ]; then
    step "a local run of $many cases" reference many "$many"
    step "Ray is not installed" not_installed
    step "the commands of the book" commands_of_the_book "$here/../../docs/ray.md"
    step "all cases fail" all_fail
    step "results that are not whole, tasks that fail" not_believed
    step "$many cases, a worker lost" a_worker_lost
fi
step "kill -9 of $kills at random times" strike "$kills" "${HITS:-1}" process node driver
