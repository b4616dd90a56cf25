#!/usr/bin/env bash
# Mutation testing of the modules whose numbers matter most: tools/mutants.sh [SAMPLE [SEED]]
# Without SAMPLE all of them, else so many drawn by the seed (1). SHARD=2/8 takes one of several
# equal parts of those. Installs cargo-mutants. Prints for each module how many were killed, and the
# survivors; results are in target/mutants.
#
# One mutant after the other is put in place in a work tree of its own, so that a build is a
# change to what was built for the one before: a few seconds instead of minutes. The tests are
# those of the mutant's own crate, in its documentation too, which must pass beforehand.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
out="$(realpath -m "${CARGO_TARGET_DIR:-target}/mutants")"
[ ! -d "$out/tree" ] || git worktree remove --force "$out/tree"
rm -rf "$out"
mkdir -p "$out"
git worktree add --quiet --detach "$out/tree" HEAD
trap 'git worktree remove --force "$out/tree"' EXIT
cd "$out/tree"
# Kept for the next shard, and apart from other builds, which have other profiles.
export CARGO_TARGET_DIR="$out-built"
# Little optimisation, and none of the exceptions for single crates: builds count here.
sed -i '/^\[profile.dev.package/,/^$/d; /^\[profile.dev\]/,/^$/s/^debug.*/debug = false/' Cargo.toml
# Modules that a macro declares are not found by cargo-mutants.
cc=crates/packetsim/src/cc
for module in "$cc"/*.rs; do
    name="$(basename "$module" .rs)"
    [ "$name" = mod ] || printf '#[cfg(any())]\nmod %s;\n' "$name" >> "$cc/mod.rs"
done
files=(
    --file 'crates/units/src/*.rs' --file 'crates/traffic/src/**/*.rs'
    --file crates/flowsim/src/max_min.rs --file crates/packetsim/src/buffer.rs
    --file "$cc/*.rs" --file crates/job/src/memory.rs
)
cargo mutants --list --json "${files[@]}" > "$out/all.json"
tools/sample-mutants.py draw "$out" "${1:-0}" "${2:-1}"
shard=()
[ -z "${SHARD:-}" ] || shard=(--shard "$SHARD")
export CI=1
run() { # NAME PACKAGES… -- TESTS…
    local name="$1" packages=() tests=()
    shift
    while [ "$1" != -- ]; do
        packages+=(--package "$1")
        shift
    done
    shift
    for word in "$@"; do tests+=("--cargo-arg=$word"); done
    nice -n 19 cargo test --quiet "${packages[@]}" "$@" > "$out/$name-before.log" 2>&1 ||
        { echo "the tests of $name fail without a mutant: $out/$name-before.log" && exit 1; }
    # Exit codes tell of survivors and timeouts too: those are counted below.
    nice -n 19 cargo mutants "${packages[@]}" "${files[@]}" "${shard[@]}" --in-place \
        --baseline skip --config "$out/sample.toml" --output "$out/$name" \
        --timeout "${TIMEOUT:-300}" --build-timeout 1800 --colors never "${tests[@]}" \
        > "$out/$name.log" 2>&1 || true
}
run traffic traffic --
run others units flowsim job --
# Only what packets need of the packet engine's tests.
run packets packetsim -- --lib --test engine --test mechanisms --test pauses \
    --test transports --test infiniband --test powertcp --test controls
tools/sample-mutants.py tell "$out"
