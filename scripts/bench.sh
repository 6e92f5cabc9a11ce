#!/usr/bin/env bash
# Go benchmarks: scripts/bench.sh [-o FILE] [-b OLD] [packages…]
#   -o FILE  keep the output (default bin/bench.txt)
#   -b OLD   compare with an earlier output (benchstat)
# COUNT (default 6) runs of each, BENCH (default .) chooses by name. The end-to-end
# figures come from `nexmark bench`, see docs/benchmarks.md.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
out=bin/bench.txt old=
while getopts o:b: opt; do
	case $opt in
	o) out=$OPTARG ;;
	b) old=$OPTARG ;;
	*) die "usage: scripts/bench.sh [-o FILE] [-b OLD] [packages…]" ;;
	esac
done
shift $((OPTIND - 1))
[ -x "$tools/benchstat" ] || scripts/setup.sh
mkdir -p "$(dirname "$out")"
go test -run '^$' -bench "${BENCH:-.}" -count "${COUNT:-6}" "${@:-./...}" | tee "$out"
"$tools/benchstat" ${old:+"$old"} "$out"
