#!/bin/sh
# The same flows through SimGrid and through the flow engine: results and processor times of both.
#
#   benches/peers/run.sh [CASE ...]
#
# Without cases: three small random networks, whose finish times must agree to 1e-6, and the
# all-to-all of 256 hosts on one switch. `all-to-all-256` (two tiers under ECMP; SimGrid needs a
# minute), `mix-20000` and `all-to-all-1024` (hours) are cases too. SimGrid runs with an actor for each
# host; simgrid.cpp says which other drivers there are. Installs libsimgrid-dev and g++ where they are
# missing (Debian).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${TMPDIR:-/tmp}/fatflow-peers
mkdir -p "$work"

if ! dpkg -s libsimgrid-dev g++ >/dev/null 2>&1; then
    sudo=$(command -v sudo || true)
    $sudo apt-get install -y --no-install-recommends libsimgrid-dev g++
fi
g++ -O2 -std=c++17 -o "$work/simgrid" "$here/simgrid.cpp" -lsimgrid
cd "$here/../.."
cargo bench -q -p flowsim --bench peers --no-run
ours() { cargo bench -q -p flowsim --bench peers -- "$@"; }

[ $# -gt 0 ] || set -- random-20 random-200 random-2000 symmetric-256
printf '%-16s %12s %12s %8s %12s %12s %12s\n' case 'ours (s)' 'SimGrid (s)' times \
    'ours (MB)' 'SimGrid (MB)' difference
for case in "$@"; do
    ours write "$case" "$work/$case.txt"
    us=$(ours run "$work/$case.txt" "$work/$case.ours")
    them=$("$work/simgrid" "$work/$case.txt" "$work/$case.theirs" hosts 2>"$work/$case.log")
    difference=$(ours compare "$work/$case.ours" "$work/$case.theirs")
    echo "$case $us $them $difference" | awk '{
        printf "%-16s %12.3f %12.3f %8.0f %12.1f %12.1f %12s\n",
            $1, $2, $4, $4 / ($2 > 0.001 ? $2 : 0.001), $3 / 1e6, $5 / 1e6, $6 }'
done
