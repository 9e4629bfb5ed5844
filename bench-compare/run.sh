#!/usr/bin/env bash
# Measures everything in docs/performance.md and prints it as markdown:
#
#   bench-compare/run.sh > figures.md
#
# Arguments go to every table, as in `run.sh --rounds 7` or, for a quick look, `run.sh --scale 0.02
# --rounds 1`. RAW=FILE also appends each run as a JSON line. KEYLANE=PROGRAM names the command to
# compare with xargs; without it the command is built if the workspace has it, else left out.
set -euo pipefail
cd "$(dirname "$0")"

FEATURES=${FEATURES-ours,mimalloc}
cargo build --release --features "$FEATURES" >&2
bench=${CARGO_TARGET_DIR:-target}/release/bench

"$bench" machine
for workload in w1 w2 w3 w4 w4-gate w5 w6 jobs jobs-mix jobs-start; do
  "$bench" table "$workload" ${RAW:+--raw "$RAW"} "$@"
done

if [[ -z ${KEYLANE:-} && -d ../crates/keylane-cli ]]; then
  (cd .. && cargo build --profile dist -p keylane-cli >&2)
  KEYLANE=${CARGO_TARGET_DIR:-../target}/dist/keylane
fi
[[ -z ${KEYLANE:-} ]] || KEYLANE=$KEYLANE ./processes.sh
