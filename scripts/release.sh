#!/usr/bin/env bash
# Static binaries for other machines: scripts/release.sh [--out DIR] [--arch amd64,arm64]
# DIR (default dist/) gets, for each architecture, tailrace-VERSION-linux-ARCH.tar.gz with
# the programs tailrace and nexmark, and SHA256SUMS. VERSION is `git describe`, with
# -dirty if something is not committed; `tailrace version` prints it. Two builds of one
# commit are equal to the byte, wherever the clone is: paths are trimmed, times are the
# commit's. What an earlier build has left in DIR goes.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

out=dist arches=amd64,arm64
while [ $# -gt 0 ]; do
	case $1 in
	--out) out=${2:?--out: which directory?} && shift 2 ;;
	--arch) arches=${2:?--arch: amd64, arm64, or both with a comma} && shift 2 ;;
	*) die "usage: scripts/release.sh [--out DIR] [--arch amd64,arm64]" ;;
	esac
done
git rev-parse --git-dir >/dev/null 2>&1 || die "no git repository here: a release is named after its commit"
version=$(git describe --tags --always)
state=clean
if [ -n "$(git status --porcelain)" ]; then version+=-dirty state=dirty; fi # files not yet added too
stamp=$version,$(git rev-parse HEAD),$(TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd),$state
epoch=$(git log -1 --format=%ct)

mkdir -p "$out"
scratch=$(mktemp -d "$out/.build-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
for arch in ${arches//,/ }; do
	case $arch in amd64 | arm64) ;; *) die "--arch $arch: use amd64, arm64, or both with a comma" ;; esac
	name=tailrace-$version-linux-$arch
	mkdir "$scratch/$name"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOFLAGS='' go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X tailrace.dev/tailrace/internal/build.stamp=$stamp" -o "$scratch/$name/" ./cmd/tailrace ./cmd/nexmark
	cp LICENSE "$scratch/$name/"
	tar -C "$scratch" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode='u+rwX,go+rX,go-w' -cf - "$name" | gzip -n -6 >"$scratch/$name.tar.gz"
	rm -r "${scratch:?}/$name"
done
(cd "$scratch" && sha256sum ./*.tar.gz | sed 's| \./| |' >SHA256SUMS)
rm -f "$out"/tailrace-*.tar.gz
mv "$scratch"/*.tar.gz "$scratch/SHA256SUMS" "$out/"
cat "$out/SHA256SUMS"
