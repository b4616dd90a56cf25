#!/usr/bin/env bash
# Everything that must hold before a change lands. Installs what it needs on a fresh Debian machine
# with Rust; takes a few minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")"
say() { printf '\n== %s\n' "$*"; }

say "format"
cargo fmt --all --check
# Modules that a macro declares are not found by cargo.
rustfmt --edition 2024 --check crates/packetsim/src/cc/*.rs crates/packetsim/tests/fixtures/*.rs \
    crates/fabric/src/topology/*.rs

say "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings

say "tests"
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace --no-fail-fast
else
    cargo test --workspace --lib --bins --tests
fi

say "examples in the documentation"
cargo test --workspace --doc --quiet

# What the tests have built; all further steps use it.
cargo build --quiet --workspace
built="${CARGO_TARGET_DIR:-target}/debug"

say "the claims of the source documents, as the book tells them"
statements="${CARGO_TARGET_DIR:-target}/statements.md"
if ! { "$built/fatflow" claims --markdown --statements "$statements" | diff docs/claims.md - &&
    diff docs/statements.md "$statements"; }; then
    echo "renew them: fatflow claims --markdown --statements docs/statements.md > docs/claims.md"
    exit 1
fi

say "files for other tools, read by the tools"
formats="${CARGO_TARGET_DIR:-target}/formats"
if [ ! -x "$formats/bin/python" ]; then
    if ! python3 -m venv "$formats"; then
        # Debian's python has no venv of its own.
        tests/install.sh python3-venv
        python3 -m venv --clear "$formats"
    fi
fi
"$formats/bin/pip" install --quiet --disable-pip-version-check -r tests/formats/requirements.txt
"$formats/bin/python" tests/formats/check.py "$built/fatflow"
tests/install.sh tshark
python3 tests/formats/captures.py "$built/fatflow"

say "advice taken by FRR and Slurm; sweeps on Slurm, Ray and Kubernetes"
tests/slurm/run.sh "$built/fatflow"
tests/advise/run.sh "$built/fatflow"
tests/ray/run.sh "$built/fatflow" "$built/lib_native.so"
tests/kubernetes/run.sh "$built/fatflow"

say "real packets: sums, paths, captures, nothing left behind"
tests/live/run.sh "$built/fatflow"

say "the Python package: tests, notebooks, the cells of the book, types"
tests/python/run.sh

say "speed of the packet engine"
cargo bench --quiet -p packetsim --bench speed -- --guard

say "the pages in a real browser"
tests/install.sh chromium
(cd tests/browser && npm ci --silent --no-audit --no-fund && npm test --silent)
