#!/usr/bin/env bash
# Runs the commands of README.md, docs/tutorial.md and docs/tour.md: each ```sh block, as it stands, by its
# own shell in the root of the clone. A block with scripts/check.sh is left out, because
# that is what runs this script; so is one right below a line <!-- not for smoke -->.
# `scripts/smoke.sh FILE…` runs the blocks of other files; `--list` prints them only.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

list=false
if [ "${1-}" = --list ]; then
	list=true
	shift
fi
[ $# -ne 0 ] || set -- README.md docs/tutorial.md docs/tour.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
shopt -s nullglob

for readme in "$@"; do
	[ -r "$readme" ] || die "cannot read $readme"
	rm -f "$scratch"/*
	awk -v dir="$scratch" '
		!open && /^```sh[ \t\r]*$/ { open = 1; skip = marked; text = ""; line = FNR; next }
		open && /^```[ \t\r]*$/    { open = 0
			if (text ~ /scripts\/check\.sh/) skip = 1
			if (!skip) { file = sprintf("%s/%03d-line-%d", dir, ++n, line); printf "%s", text > file; close(file) }
			next }
		open                       { sub(/\r$/, ""); text = text $0 "\n"; next }
		/^[ \t\r]*$/               { next }
		                           { marked = /<!-- not for smoke -->/ }
		END                        { if (open) { print "the block of line " line " is not closed" > "/dev/stderr"; exit 1 } }
	' "$readme" || die "$readme: its blocks cannot be told apart"

	blocks=("$scratch"/*-line-*)
	[ ${#blocks[@]} -ne 0 ] || die "$readme has no \`\`\`sh block to run"
	for block in "${blocks[@]}"; do
		name="$readme, line ${block##*-line-}"
		if $list; then
			printf '# %s\n' "$name"
			cat "$block"
			continue
		fi
		printf -- '--- %s\n' "$name"
		sed 's/^/    /' "$block"
		begun=$SECONDS
		code=0
		timeout 300 bash -euo pipefail "$block" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
		head -5 "$scratch/out"
		if [ $code -ne 0 ]; then
			cat "$scratch/err" >&2
			die "$name: exit code $code"
		fi
		tail -12 "$scratch/err"
		[ -s "$scratch/out" ] || [ -s "$scratch/err" ] || die "$name: it said nothing at all"
		printf -- '--- ok, %d lines, %d s\n' "$(wc -l <"$scratch/out")" $((SECONDS - begun))
	done
done
