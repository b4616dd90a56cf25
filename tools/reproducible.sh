#!/usr/bin/env bash
# Builds the release twice, in two folders with other names, and compares: one hash or exit code 1.
set -euo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
for place in one another-place; do
    git worktree add --quiet --detach "$work/$place" HEAD
    (
        cd "$work/$place"
        export CARGO_TARGET_DIR="$work/$place/target" SOURCE_DATE_EPOCH=0
        # Folders must not get into the binary.
        export RUSTFLAGS="--remap-path-prefix=$work/$place=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
        cargo build --quiet --locked --release -p cli
    )
    sha256sum "$work/$place/target/release/fatflow" | cut -d' ' -f1 | tee -a "$work/hashes"
    git worktree remove --force "$work/$place"
done
[ "$(sort -u "$work/hashes" | wc -l)" = 1 ] && echo "the same twice"
