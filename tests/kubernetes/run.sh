#!/usr/bin/env bash
# run.sh FATFLOW: the manifest for Kubernetes, held against Kubernetes' own schemas.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target="${CARGO_TARGET_DIR:-$here/../../target}"
venv="$(mkdir -p "$target" && cd "$target" && pwd)/clusters"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/../ray/requirements.txt"
. "$here/../sweeps.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step "a manifest, and what its pods would do" \
    "$venv/bin/python" "$here/check.py" "$1" "$work/sweep"
