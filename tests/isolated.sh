#!/usr/bin/env bash
# isolated.sh COMMAND…: runs it in network, PID and mount namespaces of its own. Its only network
# is loopback, and every process in it ends with it. Slurm needs the second address to find itself.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo --preserve-env "$0" "$@"
exec unshare --net --pid --mount --fork --mount-proc --kill-child bash -c \
    'ip link set lo up; ip addr add 10.99.0.1/32 dev lo; exec "$@"' _ "$@"
