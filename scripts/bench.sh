#!/usr/bin/env bash
# Go benchmarks, and a short table of the eight queries: scripts/bench.sh [-o FILE] [-b OLD] [packages…]
#   -o FILE  keep the benchmarks' output (default bin/bench.txt)
#   -b OLD   compare with an earlier output (benchstat)
# COUNT (default 3) runs of each, BENCH (default .) chooses by name. With packages or
# BENCH given, only these are run and there is no table. Under ten minutes in all.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
out=bin/bench.txt old='' table=true
while getopts o:b: opt; do
	case $opt in
	o) out=$OPTARG ;;
	b) old=$OPTARG ;;
	*) die "usage: scripts/bench.sh [-o FILE] [-b OLD] [packages…]" ;;
	esac
done
shift $((OPTIND - 1))
if [ $# -gt 0 ] || [ -n "${BENCH-}" ]; then table=false; fi
[ -x "$tools/benchstat" ] || scripts/setup.sh
mkdir -p "$(dirname "$out")"
go test -run '^$' -bench "${BENCH:-.}" -benchtime 0.5s -count "${COUNT:-3}" "${@:-./...}" | grep -v 'no test files' | tee "$out"
"$tools/benchstat" ${old:+"$old"} "$out"
if $table; then
	scripts/build.sh
	bin/nexmark bench --queries 1-8 --rate max --warmup 2s --duration 3s
	bin/nexmark bench --queries 1-8 --rate 100000 --warmup 1s --duration 3s --commit-interval 10ms --emit eager
fi
