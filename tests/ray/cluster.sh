# A real Ray of a head and two workers on loopback, to be sourced inside `isolated.sh`.
#
#   cluster_up DIR      the head and the workers w1 and w2, with all that they write in DIR
#   worker_up w1        starts a worker, or starts it again
#   power_loss w1       the worker is gone with everything that ran on it
#
# The head has no CPUs: every task runs on a worker.

HEAD=127.0.0.1:6399
export RAY_USAGE_STATS_ENABLED=0
# A node that is gone refuses connections, and is noticed in some seconds, not in a quarter of a
# minute; one that is only slow answers late, and must not count as gone.
export RAY_health_check_initial_delay_ms=2000
export RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=30000
export RAY_health_check_failure_threshold=4
# Nodes share a folder of logs and not their processes. With 200 files open, a node's log monitor
# moves away the logs of processes that it does not see, under those of the other nodes.
export RAY_LOG_MONITOR_MAX_OPEN_FILES=1000000 RAY_LOG_MONITOR_MANY_FILES_THRESHOLD=1000000
ulimit -n "$(ulimit -Hn)"
# Who connects may have to wait for a busy head.
export RAY_gcs_rpc_server_connect_timeout_s=60 RAY_py_gcs_connect_timeout_s=60

cluster_up() {
    CLUSTER=$1
    ray start --head --port=6399 --node-ip-address=127.0.0.1 --num-cpus=0 \
        --memory=1000000000 --object-store-memory=100000000 --include-dashboard=false \
        --disable-usage-stats --temp-dir="$CLUSTER/ray" >"$CLUSTER/head.log" 2>&1 ||
        fail "the head does not come up"
    worker_up w1
    worker_up w2
}

# A worker is a PID namespace. One that does not come up is tried again.
worker_up() {
    local try
    for try in 1 2 3; do
        setsid unshare --pid --fork --mount-proc --kill-child \
            ray start --address=$HEAD --node-ip-address=127.0.0.1 --num-cpus=2 \
            --memory=2000000000 --object-store-memory=100000000 --disable-usage-stats --block \
            >"$CLUSTER/$1.log" 2>&1 </dev/null &
        echo $! >"$CLUSTER/$1.pid"
        disown
        while ! gone "$(cat "$CLUSTER/$1.pid")"; do
            ! grep -q 'Ray runtime started' "$CLUSTER/$1.log" || return 0
            sleep 0.1
        done
    done
    fail "$1 does not come up"
}

power_loss() {
    kill -9 "$(cat "$CLUSTER/$1.pid")"
}
