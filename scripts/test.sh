#!/usr/bin/env bash
# Unit tests: scripts/test.sh [--race | --quick] [packages and flags of go test]
# With --quick, and no packages named, all but the suites that start and kill processes.
# With --race, and no packages named, those in which goroutines are started run
# under the race detector; found by looking, so there is no list to forget. Not the
# fault suites and the commands: what runs there are processes, which would not be
# instrumented (TAILRACE_RACE=1 builds those with the detector), and to build them here compiles
# everything once more; nor random jobs, which take a minute to compile.
# Packages are not vetted here, but by scripts/lint.sh.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

# Which cells of the large matrices run (proctest.Drawn): others with each commit; `make matrices` runs
# all. The list of them is outside the module, so that it does not keep go from caching the tests' results.
head=$(git rev-parse HEAD 2>/dev/null) || head=0000000
export TAILRACE_DRAW=${TAILRACE_DRAW:-$((16#${head:0:7}))}
export TAILRACE_DRAWN=${TMPDIR:-/tmp}/tailrace-drawn.$UID.$TAILRACE_DRAW
: >"$TAILRACE_DRAWN"
trap 'rm -f "$TAILRACE_DRAWN"' EXIT

tasks_pid=
timeout=60m # of a package: it ends what hangs, and a busy machine may take long
# A third of these tests' time is compiling them, and a quarter of that was the compiler's garbage
# collection. The keys of the build cache do not depend on -toolexec=env.
flags=("-toolexec=env GOGC=300") race= quick=
case ${1-} in
--race) flags+=(-race) race=1 && shift ;;
--quick) quick=1 && shift ;;
esac
args=("$@")
if [ ${#args[@]} -eq 0 ]; then
	args=(./...)
	if [ -n "$quick" ]; then
		flags+=(-short) # fewer rounds of what is random
		mapfile -t args < <(go list ./... | grep -vE '/(faulttest|jobtest|clustertest|cmd/nexmark)$')
	fi
	if [ -n "$race" ]; then
		mapfile -t args < <(git grep -lE --untracked '^\s*(go func\(|go [a-z][A-Za-z.]*\(|.*\.Go\(func)' -- '*.go' ':!tools' ':!cmd' ':!internal/mutant' ':!internal/randjob' ':!nexmark/query' ':(exclude,glob)tasks/*.go' | xargs -n1 dirname | sort -u | sed 's|^|./|' |
			xargs go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}')
		[ ${#args[@]} -ne 0 ] || die "no package starts goroutines: the search is broken"
		printf 'race: %s\n' "${args[*]}"
		# The detector needs C. Not the C library of zstd, which takes half a minute to compile.
		export CGO_ENABLED=1
		# And fewer rounds of what is random: all of them run without the detector.
		flags+=(-tags pebblegozstd -short)
		# The whole of tasks takes a quarter of an hour here; these of its tests are about
		# goroutines. They are compiled while the other packages' tests wait.
		tasks=$(mktemp)
		trap '[ -z "$tasks_pid" ] || kill "$tasks_pid" || true; rm -f "$TAILRACE_DRAWN" "$tasks"' EXIT
		go test "${flags[@]}" -vet=off -timeout "$timeout" -run 'StopCommits|Zombie|TestAnswers/.*/4/8|TestSavepoint[A-Z]|TestFailed|TestAsked' ./tasks >"$tasks" 2>&1 &
		tasks_pid=$!
		# What is killed in these are processes, or they are about size or damaged bytes, or
		# there are hundreds of a kind, of which some are enough: they are slow here.
		flags+=(-skip '^TestKilled|^TestRandomDamage$|^TestPowerCut|^TestMendIsCutShort$|^TestEveryByteOfTheList$|^TestDamage|^TestTrims(MakeRoom|PassOnAFullDisk)$|^TestFullDisk$|^TestAnswers$|^TestShardsAreReplacedAtASize$')
		export TAILRACE_SEEDS=1 # of the simulator of the servers
	fi
fi
# Each line of go test, with how many of the packages have ended and the time since the
# start. go test shows packages in their order: one that ends early waits for its turn.
# What failed is told once more at the end: the tests with the first lines of what they
# say, and those that were running when a package was ended.
progress() {
	local total=$1 ended=0 begun=$SECONDS line more=0 failed=()
	while IFS= read -r line; do
		case $line in
		"ok  "* | "?   "* | FAIL[[:space:]]*)
			ended=$((ended + 1))
			printf '%4ds %3d/%d  %s\n' $((SECONDS - begun)) "$ended" "$total" "$line"
			;;
		*) printf '%s\n' "$line" ;;
		esac
		case $line in
		*"--- FAIL: "* | *"[FAIL]"* | "panic: "* | "fatal error: "* | *"WARNING: DATA RACE"*)
			failed+=("$line")
			more=3
			;;
		*"running tests:"*)
			failed+=("$line")
			more=6
			;;
		FAIL[[:space:]]*)
			failed+=("$line")
			more=0
			;;
		"ok  "* | "?   "*) more=0 ;;
		*)
			if [ "$more" -gt 0 ] && [ -n "${line//[[:space:]]/}" ]; then
				failed+=("${line:0:300}")
				more=$((more - 1))
			fi
			;;
		esac
	done
	if [ ${#failed[@]} -ne 0 ]; then
		printf '\nfailed (whole above):\n'
		printf '%s\n' "${failed[@]}" | head -n 40
	fi
}
total=$(go list "${args[@]}" 2>/dev/null | wc -l) || total=0
code=0
if [ "$total" -gt 1 ]; then
	# One package more at a time than there are processors: the suites that kill processes wait.
	go test ${flags[@]+"${flags[@]}"} -vet=off -p $(($(nproc) + 1)) -timeout "$timeout" "${args[@]}" 2>&1 | progress "$total" || code=$?
else
	go test ${flags[@]+"${flags[@]}"} -timeout "$timeout" "${args[@]}" || code=$?
fi
if [ -n "$tasks_pid" ]; then
	wait "$tasks_pid" || code=$?
	tasks_pid=
	cat "$tasks"
fi
if [ -s "$TAILRACE_DRAWN" ]; then
	printf '\nof the matrices, TAILRACE_DRAW=%s took these cells:\n' "$TAILRACE_DRAW"
	sort "$TAILRACE_DRAWN"
fi
exit "$code"
