#!/usr/bin/env bash
# The whole journey on this machine: scripts/cluster/rehearse.sh [SPEC] [OPTION of cluster.sh…]
# Makes three hosts (local-hosts.sh), runs `cluster.sh all` on them with SPEC (default:
# rehearsal.yaml, two queries under two protocols), cleans them, and removes them. What
# was collected is in ./cluster-run, or --state DIR.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
spec=$here/rehearsal.yaml
if [ $# -gt 0 ] && [ "${1:0:2}" != -- ]; then
	spec=$1
	shift
fi
dir=$(mktemp -d)
trap '"$here/local-hosts.sh" down "$dir"' EXIT
trap 'exit 130' INT TERM
"$here/local-hosts.sh" up "$dir" 3
code=0
"$here/cluster.sh" all --hosts "$dir/hosts" --spec "$spec" "$@" || code=$?
state=()
while [ $# -gt 0 ]; do
	[ "$1" != --state ] || state=(--state "$2")
	shift
done
"$here/cluster.sh" clean --hosts "$dir/hosts" ${state[@]+"${state[@]}"}
exit $code
