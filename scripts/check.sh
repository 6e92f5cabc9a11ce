#!/usr/bin/env bash
# Everything that must hold before a commit is shared, on a fresh clone: installs
# what is needed, builds, lints, tests, and runs the commands of README.md,
# docs/tutorial.md and docs/tour.md. CI runs exactly this (.ci/run). Two cores take about 16
# minutes, 23 with empty caches; the times of the steps are printed at the end. With --quick, a few minutes: neither the
# suites that kill processes, nor the race detector, nor the documents' commands.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

quick=
case ${1-} in
--quick) quick=1 ;;
"") ;;
-h | --help) sed -n '/^[^#]/q; s/^# //p' scripts/check.sh && exit 0 ;;
*) die "unknown argument $1: scripts/check.sh [--quick | --help]" ;;
esac

# Packages are compiled once for the tests, the programs, the release and the documents' commands:
# a release is static and has no paths in it.
export CGO_ENABLED=0 GOFLAGS=-trimpath

build() {
	go build ./...
	scripts/build.sh
}

step "setup: modules and tools" scripts/setup.sh
step "build" build
step "lint" scripts/lint.sh
step "generated code is up to date" scripts/generate.sh -check
if [ -n "$quick" ]; then
	step "unit tests, without the suites that kill processes" scripts/test.sh --quick
	report
	printf '%5ds  in all: what was looked at holds; scripts/check.sh looks at the rest\n' "$SECONDS"
	exit 0
fi
step "unit tests" scripts/test.sh
step "race detector where goroutines meet" scripts/test.sh --race
# Without the command the configuration is held by internal/cloudtest alone.
if command -v terraform >/dev/null; then
	step "terraform: schema and mocked provider" scripts/terraform-check.sh --quick
fi
step "the commands of README.md, docs/tutorial.md and docs/tour.md" scripts/smoke.sh
report
printf '%5ds  in all: everything holds\n' "$SECONDS"
