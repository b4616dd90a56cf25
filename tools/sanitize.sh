#!/usr/bin/env bash
# Every reader under AddressSanitizer: tools/sanitize.sh [SECONDS [TARGET …]]
# Needs a nightly toolchain (`rustup toolchain install nightly`); TOOLCHAIN names another. Our code
# has no `unsafe`; this is for the libraries, and for leaks.
set -euo pipefail
cd "$(dirname "$0")/.."
toolchain="${TOOLCHAIN:-nightly}"
seconds="${1:-10}"
shift || true
triple="$(rustc -vV | sed -n 's/^host: //p')"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitized"
RUSTFLAGS=-Zsanitizer=address cargo "+$toolchain" build --quiet --release -p fuzz --target "$triple"
# The sanitizer's shadow takes address space without end, so the fuzzer's own limit is left out.
export FUZZ="$CARGO_TARGET_DIR/$triple/release/fuzz" FUZZ_MEMORY=unlimited
exec tools/fuzz.sh "$seconds" "$@"
