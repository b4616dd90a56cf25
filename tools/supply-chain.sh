#!/usr/bin/env bash
# Licences, sources, duplicates and known defects of what fatflow is built from, and a list of it
# (CycloneDX) in target/sbom.json. Installs cargo-deny; needs a network for the advisories.
set -euo pipefail
cd "$(dirname "$0")/.."
# The list looks at licences, sources and digests by itself, so the rest may be missing.
mkdir -p target
python3 tools/sbom.py > target/sbom.json
echo "target/sbom.json has $(grep -c '"purl"' target/sbom.json) components"
command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
cargo deny check licenses bans sources
cargo deny check advisories || echo "advisories: see above, or no database could be had"
