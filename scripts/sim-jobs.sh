#!/usr/bin/env bash
# Random jobs against brute force (internal/randjob), with the overlay of the Go runtime
# that makes a seed one run.
#   SEEDS=N          how many seeds (default 1000)     SEED=S   the first (default 1)
#   SEED=S           alone: this one seed, in 20 interleavings
# A failure prints its seed and a smaller job that fails likewise, as a Go test.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
go run ./internal/sim/seeded/overlay -o bin/_overlay
go test -overlay bin/_overlay/overlay.json -tags seeded,keytypes -c -o bin/sim-jobs.test ./internal/randjob
if [ -n "${SEED-}" ]; then
	export TAILRACE_SEED=$SEED
	if [ -n "${SEEDS-}" ]; then export TAILRACE_SEEDS=$SEEDS; fi
else
	export TAILRACE_SEEDS=${SEEDS:-1000}
fi
bin/sim-jobs.test -test.run '^TestJobs$' -test.v -test.timeout 0
