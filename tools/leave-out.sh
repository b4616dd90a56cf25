#!/bin/sh
# Sets every constant that published measurements set again, without each cluster in turn, and
# renews what follows from it: validation/left_out.toml, validation/residuals.csv (the errors that
# intervals are made from) and validation/ratchet.toml. Takes some minutes on two cores.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --quiet
target/release/fatflow validate --leave-out validation
# The binary holds both files.
cargo build --release --quiet
target/release/fatflow validate --write-ratchet validation/ratchet.toml > /dev/null
