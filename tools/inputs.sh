#!/usr/bin/env bash
# The whole product of the test of inputs: every setting, on every engine, under other transports,
# routing policies, congestion controls and topologies than those of the test's own scenarios.
# Takes some minutes for each line; prints what is neither obeyed, refused nor named.
set -uo pipefail
cd "$(dirname "$0")/.."
worlds=(
    ""
    network.transport=infiniband
    network.transport=uec
    network.transport=tcp
    network.transport=iwarp
    network.routing.policy=spray
    network.routing.policy=adaptive
    network.routing.policy=flowlet
    network.routing.policy=reps
    network.routing.qps=4
    network.congestion.control=hpcc
    network.congestion.control=powertcp
    network.congestion.control=swift
    network.congestion.control=timely
    fabric.topology=rail-optimized
    fabric.topology=torus
    fabric.topology=dragonfly
)
failed=0
for world in "${worlds[@]}"; do
    printf '\n== %s\n' "${world:-as it is}"
    FATFLOW_INPUTS_IN="$world" cargo test --release --quiet -p commands --test inputs -- \
        --nocapture 2>&1 | grep -E ' of [0-9]+:|: (Silent|Contradicted|Panicked|Refused)|test result' ||
        failed=1
done
exit "$failed"
