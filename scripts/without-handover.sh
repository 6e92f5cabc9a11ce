#!/usr/bin/env bash
# Builds, vets and tests what is left when package handover, which moves key groups between running tasks,
# is deleted: the folder and tasks/moves.go, the file that connects it. Nothing in the tree is changed.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

overlay=$(mktemp)
trap 'rm -f "$overlay"' EXIT
printf '"%s":""\n' "$PWD"/tasks/handover/*.go "$PWD/tasks/moves.go" | paste -sd, | sed 's/.*/{"Replace":{&}}/' >"$overlay"
without=(-overlay "$overlay" -tags norescale)

[ -z "$(go list "${without[@]}" ./... | grep -x 'tailrace.dev/tailrace/tasks/handover')" ] || die "package handover is still there"
step build go build "${without[@]}" ./...
step vet go vet "${without[@]}" ./...
step test go test "${without[@]}" -vet=off -count=1 -run TestWithoutHandover ./tasks
