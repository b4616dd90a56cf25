#!/usr/bin/env bash
# run.sh FATFLOW: real packets between processes of this machine, on loopback and in namespaces of
# their own. What is not allowed or not installed here is skipped, by name.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/check.py" "$(realpath "$1")" "$here/../../scenarios/live-8.toml"
