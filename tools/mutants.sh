#!/usr/bin/env bash
# Mutation testing of the modules whose numbers matter most: tools/mutants.sh [SAMPLE [SEED]]
# Without SAMPLE all of them, else so many drawn by the seed (1). SHARD=2/8 takes one of several
# equal parts of those. JOBS at once (half of the processors). Installs cargo-mutants. Prints for
# each module how many were killed, and the survivors; results are in target/mutants.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
out="${CARGO_TARGET_DIR:-target}/mutants"
rm -rf "$out"
mkdir -p "$out"
files=(
    --file 'crates/units/src/*.rs' --file 'crates/traffic/src/**/*.rs'
    --file crates/flowsim/src/max_min.rs --file crates/packetsim/src/buffer.rs
    --file 'crates/packetsim/src/cc/*.rs' --file crates/job/src/memory.rs
)
cargo mutants --list --json "${files[@]}" > "$out/all.json"
tools/sample-mutants.py draw "$out" "${1:-0}" "${2:-1}"
shard=()
[ -z "${SHARD:-}" ] || shard=(--shard "$SHARD")
export CARGO_PROFILE_DEV_DEBUG=0 CI=1
jobs="${JOBS:-$((($(nproc) + 1) / 2))}"
run() { # NAME JOBS PACKAGES… -- TESTS…
    local name="$1" jobs="$2" packages=() tests=()
    shift 2
    while [ "$1" != -- ]; do
        packages+=(--package "$1")
        shift
    done
    shift
    for word in "$@"; do tests+=("--cargo-arg=$word"); done
    # Exit codes tell of survivors and timeouts too: those are counted below.
    nice -n 19 cargo mutants "${packages[@]}" "${files[@]}" "${shard[@]}" --jobs "$jobs" \
        --config "$out/sample.toml" --output "$out/$name" --timeout "${TIMEOUT:-120}" \
        --colors never "${tests[@]}" > "$out/$name.log" 2>&1 || true
}
# Only what packets need of the packet engine's tests, beside the others' all.
run packets "$((jobs - jobs / 2))" packetsim -- --lib --test engine --test mechanisms \
    --test pauses --test transports --test infiniband --test powertcp --test controls &
run others "$((jobs / 2 > 0 ? jobs / 2 : 1))" units traffic flowsim job -- --lib --tests
wait
tools/sample-mutants.py tell "$out"
