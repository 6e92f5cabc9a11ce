#!/usr/bin/env bash
# How cost grows: the table of docs/lab/2026-11-21-growth.md. About ten minutes.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
scripts/build.sh
run() {
	echo "# nexmark bench $*"
	bin/nexmark bench --warmup 2s --duration "${DURATION:-4s}" "$@" 2>&1 | grep -v ', trial '
}
for p in 1 2; do run --queries 1,5 --rate max --parallelism $p; done
for g in 8 64 512; do run --queries 1,4,5 --rate max --key-groups $g; done
for g in 8 64 512; do run --queries 1,4,5 --rate 100000 --commit-interval 1ms --emit eager --key-groups $g; done
for r in 100000 500000 1000000 2000000 3000000 4000000 5000000; do run --queries 1,5 --rate $r --emit eager --commit-interval 10ms; done
