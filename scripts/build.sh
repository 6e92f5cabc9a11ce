#!/usr/bin/env bash
# Builds the programs of cmd/ into bin/.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
mkdir -p bin
for dir in cmd/*/; do
	go build -o "bin/$(basename "$dir")" "./$dir"
done
