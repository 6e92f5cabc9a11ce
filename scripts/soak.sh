#!/usr/bin/env bash
# The long tests: those that `go test` skips unless TAILRACE_SOAK is set.
#   scripts/soak.sh          all of them
#   scripts/soak.sh Kill     those whose name matches (SIGKILL at random moments)
# Two cores need from minutes to hours; SOAK_TIMEOUT (default 4h) bounds a package.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
mapfile -t packages < <(git grep -l --untracked TAILRACE_SOAK -- '*_test.go' ':!internal/house' | xargs -r -n1 dirname | sort -u | sed 's|^|./|')
[ ${#packages[@]} -ne 0 ] || die "no test asks for TAILRACE_SOAK"
TAILRACE_SOAK=1 go test -count=1 -v -timeout "${SOAK_TIMEOUT:-4h}" -run "${1:-.}" "${packages[@]}"
