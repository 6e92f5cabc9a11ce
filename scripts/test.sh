#!/usr/bin/env bash
# Unit tests: scripts/test.sh [--race] [packages and flags of go test]
# With --race, and no packages named, those in which goroutines are started run
# under the race detector; found by looking, so there is no list to forget. Not the
# fault suites and cmd/nexmark: what runs there are processes, which would not be
# instrumented (TAILRACE_RACE=1 builds those with the detector).
set -euo pipefail
source "$(dirname "$0")/lib.sh"

timeout=60m # of a package: it ends what hangs, and a busy machine may take long
race=()
if [ "${1-}" = --race ]; then
	race=(-race)
	shift
fi
args=("$@")
if [ ${#args[@]} -eq 0 ]; then
	args=(./...)
	if [ ${#race[@]} -ne 0 ]; then
		mapfile -t args < <(git grep -lE --untracked '^\s*(go func\(|go [a-z][A-Za-z.]*\(|.*\.Go\(func)' -- '*.go' ':!tools' ':!cmd/nexmark' ':!internal/mutant' ':!cmd/tailrace/faulttest' ':!cmd/tailrace/jobtest' ':!cmd/tailrace/clustertest' ':(exclude,glob)tasks/*.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')
		[ ${#args[@]} -ne 0 ] || die "no package starts goroutines: the search is broken"
		printf 'race: %s\n' "${args[*]}"
		# The whole of tasks takes a quarter of an hour here; these of its tests are about
		# goroutines.
		go test -race -timeout "$timeout" -run 'StopCommits|Zombie|TestAnswers/.*/4/8|TestSavepoint[A-Z]|TestFailed|TestAsked' ./tasks
		# What is killed in these are processes, or they are about size or damaged bytes, or
		# there are hundreds of a kind, of which some are enough: they are slow here.
		race+=(-skip '^TestKilled|^TestRandomDamage$|^TestPowerCut|^TestMendIsCutShort$|^TestEveryByteOfTheList$|^TestDamage|^TestTrims(MakeRoom|PassOnAFullDisk)$|^TestAnswers$')
		export TAILRACE_SEEDS=1 # of the simulator of the servers
	fi
fi
go test ${race[@]+"${race[@]}"} -timeout "$timeout" "${args[@]}"
