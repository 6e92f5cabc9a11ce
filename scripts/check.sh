#!/usr/bin/env bash
# Everything that must hold before a commit is shared, on a fresh clone: installs
# what is needed, builds, lints, tests, and runs the README's commands. CI runs
# exactly this (.ci/run). Budget: 20 minutes on two cores with empty caches; the
# times of the steps are printed at the end.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

build() {
	go build ./...
	scripts/build.sh
}

step "setup: modules and tools" scripts/setup.sh
step "build" build
step "lint" scripts/lint.sh
step "generated code is up to date" scripts/generate.sh -check
step "unit tests" scripts/test.sh
step "race detector where goroutines meet" scripts/test.sh --race
# Without the command the configuration is held by internal/cloudtest alone.
if command -v terraform >/dev/null; then
	step "terraform: schema and mocked provider" scripts/terraform-check.sh --quick
fi
step "the README's commands" scripts/smoke.sh
report
printf '%5ds  in all: everything holds\n' "$SECONDS"
