#!/usr/bin/env bash
# run.sh FATFLOW: what `advise` and `place` write, given to the programs that must take it.
#
# FRR's vtysh reads the paths as pbr-maps. A real Slurm of sixteen nodes reads topology.conf, tells
# `place` which nodes are idle, and starts a job on the servers and in the order that `place` chose.
# Installs Debian's frr and Slurm if they are not there; Slurm runs in namespaces of its own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${FATFLOW_ISOLATED:-}" != yes ]; then
    "$here/../install.sh" vtysh=frr slurmctld slurmd srun=slurm-client munged=munge
    fatflow=$(realpath "$1")
    FATFLOW_ISOLATED=yes exec "$here/../isolated.sh" "$here/run.sh" "$fatflow"
fi

fatflow=$1
. "$here/../sweeps.sh"
. "$here/../slurm/cluster.sh"
work=$(mktemp -d /tmp/fatflow-advise.XXXXXX)
chmod 711 "$work"
cd "$work"
trap 'explain_failure; rm -rf "$work"' EXIT
explain() { sinfo --Node >&2 || true; tail -n 20 "$work"/slurm/log/* "$work"/*.log >&2 || true; }

# Files of the change with this name, of a scenario.
written() { # SCENARIO CHANGE DIR
    local flags=(--seeds 1 --fix job --fix fabric --fix library) number
    number=$("$fatflow" advise "$1" "${flags[@]}" --json | python3 -c '
import json, sys
names = [change["name"] for change in json.load(sys.stdin)["result"]["changes"]]
print(names.index(sys.argv[1]) + 1)' "$2")
    "$fatflow" advise "$1" "${flags[@]}" --take "$number" --write "$3" >/dev/null
}

paths_are_frr() {
    local policy
    for policy in "paths by a controller" "pinned paths"; do
        written "$here/../../scenarios/advise/adaptive-routing.toml" "$policy" "$work/paths"
        grep -q 'set nexthop' paths/frr-pbr.conf
        vtysh --dryrun -f paths/frr-pbr.conf >vtysh.log 2>&1 || fail "FRR refuses: $policy"
        [ ! -s vtysh.log ] || fail "FRR complains: $policy"
        # And FRR would have told.
        sed 's/set nexthop/set next-hop/' paths/frr-pbr.conf >wrong.conf
        vtysh --dryrun -f wrong.conf >wrong.txt 2>&1 || true
        grep -q 'Unknown command' wrong.txt || fail "FRR takes what is wrong"
    done
    echo "FRR takes $(grep -c 'set nexthop' paths/frr-pbr.conf) rules"
}

NODES=$(echo node{0..15})
nodes_idle() { [ "$(sinfo --noheader --Node -p low --states=idle 2>/dev/null | wc -l)" = 16 ]; }
eval "plain_$(declare -f slurm_conf)"
slurm_conf() { plain_slurm_conf; echo TopologyPlugin=topology/tree; }

slurm_runs_what_place_chose() {
    local place=("$fatflow" place "$here/job.toml")
    mkdir slurm
    "$fatflow" topo "$here/job.toml" --slurm >slurm/topology.conf
    # What --write makes of a placement is the same tree.
    "$fatflow" advise "$here/job.toml" --seeds 1 --fix job.parallel --fix job.batch \
        --fix job.recompute --fix job.schedule --fix network --fix library --fix fabric \
        --write advised --take 1 >/dev/null
    diff <(grep ^SwitchName advised/topology.conf) <(grep ^SwitchName slurm/topology.conf)
    cluster_up "$work/slurm"
    scontrol show topology >topology.log
    [ "$(grep -c 'Level=0' topology.log)" = 4 ] || fail "Slurm sees another tree"
    # Some servers are not to be had.
    scontrol update nodename=node0,node3,node9 state=drain reason=busy
    sinfo -N | "${place[@]}" --nodes - --hostfile hosts >place.log
    ! grep -qxE 'node(0|3|9)' hosts || fail "place takes what is not free"
    [ "$(wc -l <hosts)" = 16 ] || fail "not a server for every rank"
    SLURM_HOSTFILE=$work/hosts srun --ntasks=16 --distribution=arbitrary \
        bash -c 'echo "$SLURM_PROCID $SLURMD_NODENAME"' >ran.log
    diff hosts <(sort -n ran.log | cut -d' ' -f2) || fail "Slurm ran ranks elsewhere"
    echo "Slurm ran 16 ranks on $(sort -u hosts | wc -l) servers, in the order of place"
}

step "FRR reads the paths" paths_are_frr
step "Slurm runs what place chose" slurm_runs_what_place_chose
