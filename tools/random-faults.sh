#!/bin/sh
# Random faults on random jobs: 500 cases unless told otherwise; each must end, twice with the same
# answer, on two threads. `tools/random-faults.sh 2000` runs more. 50 are part of ./test.sh.
set -eu
cd "$(dirname "$0")/.."
export FATFLOW_RANDOM_FAULTS="${1:-500}"
exec cargo nextest run -p commands --test jobs random_faults_on_random_jobs_end
