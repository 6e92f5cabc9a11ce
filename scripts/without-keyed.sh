#!/usr/bin/env bash
# Builds, vets and tests what is left when the files that scripts/without-keyed.txt lists are deleted: clocks
# of keys, what balances key groups by load, slots and their routing tables. Nothing in the tree is changed.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

overlay=$(mktemp)
trap 'rm -f "$overlay"' EXIT

gone=()
while read -r pattern; do
	case $pattern in '' | '#'*) continue ;; esac
	[ ! -d "$pattern" ] || pattern+='/*.go'
	for file in $pattern; do
		[ -f "$file" ] || die "scripts/without-keyed.txt: there is no file $pattern"
		gone+=("$PWD/$file")
	done
done <scripts/without-keyed.txt
printf '"%s":""\n' "${gone[@]}" | paste -sd, | sed 's/.*/{"Replace":{&}}/' >"$overlay"
without=(-overlay "$overlay" -tags nokeyed)

left=$(go list "${without[@]}" ./...)
for package in operators/watermark operators/watermark/chooser operators/route operators/route/sketch operators/route/epoch nexmark/balance; do
	! grep -qx "tailrace.dev/tailrace/$package" <<<"$left" || die "package $package is still there"
done
step build go build "${without[@]}" ./...
step vet go vet "${without[@]}" ./...
step test go test "${without[@]}" -vet=off -count=1 -run TestWithoutKeyed ./tasks ./cmd/nexmark
report
