#!/bin/sh
# Advice on random scenarios (300, or as many as the first argument says), each run again with five
# seeds that advise did not use. Prints how many fall below their interval; ends with an error if
# more than 15 of 100 do, or if one makes the mean step more than 2 % longer.
set -eu
cd "$(dirname "$0")/.."
FATFLOW_RANDOM_SCENARIOS="${1:-300}" cargo test --release -p commands --test advise -- \
    --nocapture other_seeds_confirm_the_advice_of_random_scenarios
