#!/usr/bin/env bash
# Installs what building, linting and testing need: Go modules, and the tools of
# tools/lint as bin/tools/*. Go itself and a C compiler (for the race detector) must
# be there; as root on Debian or Ubuntu a missing compiler is installed.
# Everything comes through the Go module proxy on the first run and from the module
# and build caches afterwards.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

command -v go >/dev/null || die "no go command: install Go 1.26 or newer (https://go.dev/dl)"
command -v git >/dev/null || die "no git command"
need=$(awk '$1 == "go" { print $2 }' go.mod)
have=$(go env GOVERSION | sed 's/^go//; s/[^0-9.].*//')
[ "$(printf '%s\n' "$need" "$have" | sort -V | head -1)" = "$need" ] || die "Go $need or newer is needed, this is $have"

if ! command -v "$(go env CC)" >/dev/null; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy gcc libc6-dev
	else
		die "no C compiler ($(go env CC)): the race detector needs one; install gcc"
	fi
fi

if ! command -v redis-server >/dev/null; then # checkpoint stores are tested against it
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy redis-server
	else
		die "no redis-server: install it (Debian, Ubuntu: redis-server)"
	fi
fi

# The cluster's scripts are linted, and tested over SSH, with a clock that goes wrong; the
# alerts in scripts/monitoring are tested with promtool, which Debian has in prometheus.
missing=''
command -v promtool >/dev/null || missing+=' prometheus'
command -v shellcheck >/dev/null || missing+=' shellcheck'
command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || missing+=' openssh-server'
command -v ssh >/dev/null || missing+=' openssh-client'
compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing+=' libfaketime'
if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		# shellcheck disable=SC2086 # package names
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
	else
		die "missing:$missing: install them (Debian's and Ubuntu's names)"
	fi
fi

go mod download
mkdir -p "$tools"
go -C tools/lint build -o "$tools/" tool
