#!/usr/bin/env bash
# The simulator that runs the real servers (internal/sim/servers), with the overlay of the
# Go runtime that makes a seed one run.
#   SEEDS=N          how many seeds (default 100)      SEED=S   the first (default 1)
#   SEED=S           alone: this one seed again
#   PLAN=FILE        a plan that a failure has written, again
#   VERBOSE=1        its story has all that the servers log
# A failure prints its seed, how to run it again, and where its story is; a smaller plan
# that fails in the same way follows.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
go run ./internal/sim/seeded/overlay -o bin/_overlay
go test -overlay bin/_overlay/overlay.json -tags seeded -c -o bin/sim-servers.test ./internal/sim/servers
run=TestServers
if [ -n "${PLAN-}" ]; then
	run=TestAgain
	export TAILRACE_SIM_PLAN=$PLAN
elif [ -n "${SEED-}" ]; then
	export TAILRACE_SEED=$SEED
	if [ -n "${SEEDS-}" ]; then export TAILRACE_SEEDS=$SEEDS; fi
else
	export TAILRACE_SEEDS=${SEEDS:-100}
fi
if [ -n "${VERBOSE-}" ]; then export TAILRACE_SIM_VERBOSE=1; fi
export TAILRACE_SIM_JOBS=${TAILRACE_SIM_JOBS:-$(nproc)}
bin/sim-servers.test -test.run "^$run\$" -test.v -test.timeout 0
