#!/usr/bin/env bash
# run.sh FATFLOW: real packets between processes of this machine, on loopback and in namespaces of
# their own. tshark and scapy read the captures, nftables marks on Linux's routers; all three are
# installed here. Namespaces that are not allowed are skipped, by name.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fatflow=$(realpath "$1")
"$here/../install.sh" tshark nft=nftables
tools="${CARGO_TARGET_DIR:-$here/../../target}/live"
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check scapy==2.8.0
exec "$tools/bin/python" "$here/check.py" "$fatflow" "$here/../../scenarios/live-8.toml"
