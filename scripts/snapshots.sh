#!/usr/bin/env bash
# What snapshots cost: the table of docs/lab/2026-11-22-snapshots.md.
# Latency at about half of what can be taken, without and with, in turns. About five
# minutes. SNAPSHOT_BYTES=0 makes them by the interval alone.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
scripts/build.sh
run() {
	bin/nexmark bench --emit eager --snapshot-bytes "${SNAPSHOT_BYTES:-512MiB}" --warmup 12s --duration "${DURATION:-24s}" "$@" 2>&1 | grep -E 'consumed|visible'
}
for round in 1 2; do
	for how in "--checkpoints none" "--checkpoints pebble"; do
		for what in "--query 5 --rate ${Q5:-1800000}" "--query 8 --rate ${Q8:-2500000}" "--workload count --keys 10000000 --memory 4GiB --rate ${COUNT:-500000}"; do
			echo "# round $round: $what $how"
			# shellcheck disable=SC2086 # flags
			run $what $how
		done
	done
done
