# Sourced by the other scripts: a known place to stand, and steps with their times.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=$PWD/bin/tools

die() {
	echo "error: $*" >&2
	exit 1
}

# step TITLE COMMAND…: runs it; says how long it took; stops the script if it fails.
step() {
	local title=$1 begun=$SECONDS code=0
	shift
	printf '\n==> %s\n' "$title"
	# A subshell with its own set -e: inside `if` or `||` bash would ignore failures.
	set +e
	(set -e; "$@") </dev/null
	code=$?
	set -e
	timings+=("$(printf '%5ds  %s' $((SECONDS - begun)) "$title")")
	if [ $code -ne 0 ]; then
		report
		die "step \"$title\" failed (exit code $code)"
	fi
}
timings=()

# report prints what each step took.
report() {
	printf '\n'
	printf '%s\n' "${timings[@]}"
}
