#!/usr/bin/env bash
# Regenerates the Go code of the .proto files. `scripts/generate.sh -check` writes
# nothing and fails if what is committed is not what it would write.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
go -C tools/protogen run . -root ../.. -plugins ../protoc "$@"
