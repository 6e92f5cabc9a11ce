#!/usr/bin/env bash
# Format, vet, staticcheck, the syntax of the scripts, shellcheck on those of the cluster. `scripts/lint.sh --fix`
# formats first. The rules of the house are a test: go test ./internal/house.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
[ -x "$tools/staticcheck" ] || scripts/setup.sh

mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.go' ':!*.pb.go')
if [ "${1-}" = --fix ]; then
	"$tools/gofumpt" -w "${files[@]}"
fi
unformatted=$("$tools/gofumpt" -l "${files[@]}")
[ -z "$unformatted" ] || die "not formatted (run scripts/lint.sh --fix):
$unformatted"

go vet ./...
go -C examples/foreign vet ./...
go -C tools/protogen vet ./...
go -C tools/tfschema vet ./...
"$tools/staticcheck" ./...
for script in scripts/*.sh scripts/*/*.sh scripts/cluster/steps/*.sh terraform/templates/*.sh .ci/run; do
	bash -n "$script"
done
shellcheck -x scripts/cluster/*.sh scripts/cluster/steps/*.sh
echo "lint: ${#files[@]} Go files, nothing to say"
