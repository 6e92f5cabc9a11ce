#!/usr/bin/env bash
# An endless job: scripts/endless.sh [query] [rate] [minutes]
# Query 5 by default, with snapshots and trimming, at a steady rate; every 30 s (or a
# twentieth of the time) memory, disk and latency are printed. Fails if memory or disk
# in the last quarter is above 1.3 times that of the second: they are to be flat.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

query=${1:-5} rate=${2:-400000} minutes=${3:-30}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/nexmark" ./cmd/nexmark
seconds=$((minutes * 60))
every=$((seconds < 600 ? seconds / 20 : 30))
"$dir/nexmark" bench --query "$query" --rate "$rate" --duration "${seconds}s" --warmup 10s --emit eager \
	--data "$dir/data" --json "$dir/report" > "$dir/out" 2>&1 &
pid=$!
printf '%8s %10s %10s  %s\n' seconds 'rss MiB' 'disk MiB' live
start=$SECONDS
while sleep "$every" && kill -0 $pid 2>/dev/null; do # a sample each time
	at=$((SECONDS - start))
	rss=$(($(awk '/VmRSS/ { print $2 }' "/proc/$pid/status" 2>/dev/null || echo 0) / 1024))
	disk=$(($(du -sk "$dir/data" | cut -f1) / 1024))
	echo "$at $rss $disk" >> "$dir/samples"
	printf '%8d %10d %10d  %s\n' "$at" "$rss" "$disk" "$(tail -1 "$dir/out" | cut -c1-120)"
done
wait $pid || die "$(tail -3 "$dir/out")"
tail -6 "$dir/out"
awk -v total="$seconds" '
	$1 > total / 4 && $1 <= total / 2 { if ($2 > r1) r1 = $2; if ($3 > d1) d1 = $3 }
	$1 > total * 3 / 4                { if ($2 > r2) r2 = $2; if ($3 > d2) d2 = $3 }
	END {
		printf "most in the second quarter: %d MiB of memory, %d MiB on disk; in the last: %d, %d\n", r1, d1, r2, d2
		if (r2 > 1.3 * r1 || d2 > 1.3 * d1) { print "not flat"; exit 1 }
	}' "$dir/samples"
