#!/usr/bin/env bash
# The simulator of the embedded log (internal/sim/embedded), with the overlay of the Go
# runtime that makes a seed one run.
#   SEEDS=N          how many seeds (default 100)      SEED=S   the first (default 1)
#   SEED=S           alone: this one seed again
# A failure prints its seed, the end of its story and its plan.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
go run ./internal/sim/seeded/overlay -o bin/_overlay
go test -overlay bin/_overlay/overlay.json -tags seeded -c -o bin/sim-embedded.test ./internal/sim/embedded
if [ -n "${SEED-}" ]; then
	SEEDS=${SEEDS:-1}
fi
TAILRACE_SEED=${SEED:-1} TAILRACE_SEEDS=${SEEDS:-100} bin/sim-embedded.test -test.run '^TestEmbedded$' -test.v -test.timeout 0
