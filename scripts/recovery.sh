#!/usr/bin/env bash
# How state comes back: the tables of docs/lab/2026-11-22-recovery.md. A task of
# query 8 (four tasks a stage) loses its memory; without snapshots, with, with a standby.
# About seven minutes; AT=300s is the paper's.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
scripts/build.sh
at=${AT:-30}
for rate in ${RATES:-100000 300000 600000}; do
	for how in "--checkpoints none" "" "--standbys 1"; do
		echo "# query 8 at $rate/s, failure after $at s ${how:-with snapshots}"
		# shellcheck disable=SC2086 # how is flags
		bin/nexmark bench --query 8 --rate "$rate" --parallelism 4 --emit eager --commit-interval 10ms --warmup 5s --duration $((at + 10))s \
			--fail-at "${at}s" $how 2>&1 | grep -E 'recovery|consumed'
	done
done
