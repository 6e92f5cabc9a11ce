#!/usr/bin/env bash
# A rolling upgrade with real processes, under load: a cluster of the program of the
# feature level before (built from the commit below, or from UPGRADE_FROM) is replaced
# process by process by the program of this tree; two processes go back to the old one in
# between; then the level is raised. Every record that was acknowledged must be there,
# once and in order.
# `KEEP=1 scripts/upgrade-test.sh` keeps the directory with the processes' logs.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

from=${UPGRADE_FROM:-aad1d074133581907e1696cadf8b05965544d657}
git cat-file -e "$from^{commit}" 2>/dev/null ||
	die "this clone does not have commit $from, of which the old program is built; if it is a shallow one: git fetch --unshallow"

work=$(mktemp -d)
declare -A pids=()
cleanup() {
	local code=$?
	touch "$work/stop"
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	if [ $code -ne 0 ]; then
		tail -n 5 "$work"/*.log >&2
	fi
	if [ "${KEEP-}" = "" ]; then rm -rf "$work"; else echo "kept: $work"; fi
}
trap cleanup EXIT

build() {
	mkdir "$work/source"
	git archive "$from" | tar -x -C "$work/source"
	(cd "$work/source" && go build -o "$work/old" ./cmd/tailrace)
	go build -o "$work/new" ./cmd/tailrace
}
step "build the program of ${from:0:10} and this one" build
old=$work/old new=$work/new

# Nine ports in a row that no process listens at.
free() {
	local base i
	for _ in $(seq 100); do
		base=$((20000 + RANDOM % 10000))
		for i in $(seq 0 8); do
			if (exec 3<>"/dev/tcp/127.0.0.1/$((base + i))") 2>/dev/null; then continue 2; fi
		done
		echo $base
		return
	done
	die "no free ports"
}
base=$(free)
peers=1=127.0.0.1:$((base + 1)),2=127.0.0.1:$((base + 2)),3=127.0.0.1:$((base + 3))
export TAILRACE_LOG=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2)),127.0.0.1:$((base + 3))

# start ROLE PROGRAM: s1 to s3 are sequencers, n1 to n3 storage nodes.
start() {
	local n=${1:1}
	case $1 in
	s*) "$2" sequencer --id "$n" --peers "$peers" --data "$work/$1" 2>>"$work/$1.log" & ;;
	n*) "$2" storage --sequencers "$TAILRACE_LOG" --listen "127.0.0.1:$((base + 4 + n))" --data "$work/$1" 2>>"$work/$1.log" & ;;
	esac
	pids[$1]=$!
}

end() {
	kill "${pids[$1]}"
	wait "${pids[$1]}" || true
	unset "pids[$1]"
}

# until TITLE COMMAND…: tries for a minute.
until_() {
	local title=$1 begun=$SECONDS
	shift
	until "$@" >"$work/tried" 2>&1; do
		if [ $((SECONDS - begun)) -ge 60 ]; then
			cat "$work/tried" >&2
			die "$title: not within a minute"
		fi
		sleep 0.2
	done
}

# well: every process answers, the sequencers agree who leads.
well() {
	"$new" status >"$work/status" || return 1
	! grep -E 'no answer|no leader' "$work/status" || return 1
	[ "$(grep -cE ' (leads|follows) ' "$work/status")" = 3 ]
}

# replace ROLE PROGRAM
replace() {
	end "$1"
	start "$1" "$2"
	until_ "$1 is back" well
	sleep 2 # what it missed is copied
	echo "$1 runs the $(basename "$2") program"
}

# load WRITER PROGRAM: appends numbered lines, 20 at a time, until there is a file
# stop-WRITER; fails if an append is not acknowledged. The program is what the link
# client-WRITER names.
load() {
	local i=0
	while [ ! -e "$work/stop" ] && [ ! -e "$work/stop-$1" ]; do
		seq -f "$1 %.0f" $i $((i + 19)) | "$work/client-$1" log append --tag load >>"$work/acked-$1" 2>>"$work/load-$1.log" || return 1
		i=$((i + 20))
	done
	echo $i >"$work/sent-$1"
}

for role in s1 s2 s3 n1 n2 n3; do start $role "$old"; done
until_ "the old cluster begins" "$old" log append --tag begin 1
ln -s "$old" "$work/client-a"
ln -s "$new" "$work/client-b"
load a &
pids[a]=$!
load b &
pids[b]=$!
sleep 2

replace n1 "$new"
replace s1 "$new"
replace n1 "$old" # back
replace s1 "$old"
replace s1 "$new"
replace s2 "$new"
replace n1 "$new"
replace n2 "$new"
if "$new" log upgrade --timeout 5s >"$work/upgrade" 2>&1; then
	die "the level was raised beside old processes"
fi
cat "$work/upgrade"
replace s3 "$new"
if "$new" log upgrade >"$work/upgrade" 2>&1; then
	die "the level was raised beside an old storage node and an old client"
fi
cat "$work/upgrade"
grep -q "storage node 127.0.0.1:$((base + 7))" "$work/upgrade" || die "the old storage node is not named"
replace n3 "$new"
touch "$work/stop-a" # the old client
wait "${pids[a]}" || die "an append of the old client failed: $(tail -n 2 "$work/load-a.log")"
unset 'pids[a]'
until_ "it can be raised" "$new" log upgrade --check
cat "$work/tried"
"$new" log upgrade
"$new" log stat | head -8

# New features work, old programs are refused.
"$new" log sequencers list
if timeout 5 "$old" log append --tag load --timeout 3s old >"$work/refused" 2>&1; then
	die "an old client still appends"
fi
tail -n 1 "$work/refused"
for role in n3 s3; do # neither reads the new data
	end $role
	start $role "$old"
	pid=${pids[$role]}
	for _ in $(seq 100); do
		if ! kill -0 "$pid" 2>/dev/null; then break; fi
		sleep 0.1
	done
	if kill "$pid" 2>/dev/null; then
		die "$role runs with the old program again"
	fi
	wait "$pid" && die "$role ended without an error"
	tail -n 1 "$work/$role.log"
	start $role "$new"
	until_ "$role is back" well
done
replace n2 "$new"
sleep 1
touch "$work/stop-b"
wait "${pids[b]}" || die "an append of the new client failed: $(tail -n 2 "$work/load-b.log")"
unset 'pids[b]'

"$new" log read --tag load >"$work/read"
for w in a b; do
	sent=$(cat "$work/sent-$w")
	[ "$(wc -l <"$work/acked-$w")" = "$sent" ] || die "writer $w: $sent lines sent, $(wc -l <"$work/acked-$w") acknowledged"
	grep -oE "\b$w [0-9]+$" "$work/read" >"$work/read-$w" || true
	seq -f "$w %.0f" 0 $((sent - 1)) | cmp - "$work/read-$w" || die "writer $w: what is read is not what was appended"
	echo "writer $w: $sent records, all there, once and in order"
done
echo ok
