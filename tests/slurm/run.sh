#!/usr/bin/env bash
# run.sh FATFLOW [KILLS [SEED]]: sweeps on a real Slurm, and everything that can go wrong with them.
#
# Installs Debian's Slurm if it is not there, and runs it in namespaces of its own. KILLS processes
# (3) are killed with `kill -9` at random times, HITS (1) of each sweep. With ONLY_KILLS=1 in the
# environment nothing else is tried.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${FATFLOW_ISOLATED:-}" != yes ]; then
    "$here/../install.sh" slurmctld slurmd sbatch=slurm-client munged=munge
    fatflow=$(realpath "$1")
    FATFLOW_ISOLATED=yes exec "$here/../isolated.sh" "$here/run.sh" "$fatflow" "${@:2}"
fi

fatflow=$1
kills=${2:-3}
many=${MANY:-2000}
few=${FEW:-400}
RANDOM=${3:-$RANDOM}
. "$here/../sweeps.sh"
. "$here/cluster.sh"
work=$(mktemp -d /tmp/fatflow-slurm.XXXXXX)
chmod 711 "$work"
cd "$work"
# A small disk, which the nodes must see too: theirs are namespaces of their own.
mkdir full
mount -t tmpfs -o size=1m tmpfs full
trap 'explain_failure; umount --lazy "$work/full"; rm -rf "$work"' EXIT

# How often tasks were put back into the queue.
requeued() { scontrol show job | awk -F 'Restarts=' '{ sum += $2 } END { print sum + 0 }'; }
is_requeued() { [ "$(requeued)" -gt "$1" ]; }
has_tasks() { [ -n "$(tasks_of "$1")" ]; }
explain() { squeue --array --states=all >&2; sinfo --Node >&2; tail -n 20 "$work"/*.log >&2; }
no_jobs() { [ "$(squeue --noheader | wc -l)" = 0 ]; }

# submit DIR GRID [FLAGS]: in the background; its output is DIR.log.
submit() {
    "$fatflow" sweep submit --slurm "$2.toml" --out "$1" --partition low "${@:3}" >"$1.log" 2>&1 &
    submitting=$!
}

submitted() {
    wait "$submitting" || { cat "$1.log"; fail "sweep submit of $1"; }
}

preemption_and_node_loss() {
    local before
    submit many many --shards 16
    wait_until 120 done_cases many $((many / 20))
    sbatch --quiet --partition=high --nodes=2 --exclusive --output=/dev/null --wrap 'sleep 1'
    wait_until 60 is_requeued 0
    wait_until 120 done_cases many $((many * 2 / 5))
    wait_until 60 has_tasks n1
    before=$(requeued)
    power_loss n1
    wait_until 60 is_requeued "$before"
    node_up n1
    submitted many
    same_as_local many many
}

# The daemon dies and its tasks do not. They are stopped until others have done their work, and then
# write what they have, over and beside it.
double_execution() {
    local before old
    before=$(requeued)
    submit twice many --shards 16
    wait_until 120 done_cases twice $((many / 20))
    wait_until 60 has_tasks n1
    old=$(tasks_of n1)
    kill_slurmd n1
    kill -STOP $old
    # An administrator may be faster than Slurm's own patience.
    scontrol update nodename=n1 state=down reason='slurmd does not answer'
    wait_until 120 is_requeued "$before"
    submitted twice
    kill -CONT $old
    for pid in $old; do wait_until 120 gone "$pid"; done
    restart_slurmd n1
    same_as_local twice many
    [ "$(status twice duplicates)" -gt 0 ] || fail "nothing was executed twice"
}

full_disk() {
    submit full few --shards 4
    wait_until 60 done_cases full 10
    cat /dev/zero >full/filler 2>/dev/null || true
    if wait "$submitting"; then fail "a full disk was not noticed"; fi
    grep -q 'the disk is full' full.log || { cat full.log; fail "a full disk is not said"; }
    rm full/filler
    submit full few
    submitted full
    same_as_local full few
}

cancelled() {
    submit cancelled few --shards 8
    wait_until 120 done_cases cancelled 10
    scancel --name="$(squeue --noheader --format=%j | head -1)"
    if wait "$submitting"; then fail "cancelled tasks were submitted again"; fi
    grep -q 'tasks were cancelled' cancelled.log || { cat cancelled.log; fail "it is not said"; }
    submit cancelled few
    submitted cancelled
    same_as_local cancelled few
}

# What `strike` asks for.
begin() { submit "$1" few --shards 12; }

hit() {
    local node=n$((1 + RANDOM % 2)) task
    case $2 in
        task) task=$(pgrep -f 'sweep exec' | shuf -n 1) && kill -9 "$task" 2>/dev/null ;;
        node) power_loss $node && sleep 1 && node_up $node ;;
        slurmd) kill_slurmd $node && sleep 4 && restart_slurmd $node ;;
        submit)
            kill -9 "$submitting" 2>/dev/null || return 1
            wait "$submitting" 2>/dev/null || true
            submit "$1" few
            ;;
    esac
}

finish() {
    submitted "$1"
    wait_until 120 no_jobs
    wait_until 120 nodes_idle
}

"$fatflow" sweep submit --slurm /dev/null --out x >/dev/null 2>&1 && fail "an empty grid is taken"
step "a Slurm of two nodes" cluster_up "$work/cluster"
step "a local run of $few cases" reference few "$few"
if [ -z "${ONLY_KILLS:-}" ]; then
    step "a local run of $many cases" reference many "$many"
    step "the commands of the book" commands_of_the_book "$here/../../docs/slurm.md"
    step "$many cases, the array preempted, a node lost" preemption_and_node_loss
    wait_until 120 nodes_idle
    step "a slurmd lost: tasks that run twice" double_execution
    wait_until 120 nodes_idle
    step "a full disk" full_disk
    step "cancelled by hand" cancelled
fi
step "kill -9 of $kills at random times" strike "$kills" "${HITS:-1}" task node submit slurmd
