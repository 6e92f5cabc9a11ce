# shellcheck shell=bash
set -euo pipefail
# stop: the sweep and the workers first, so that they can commit; then all others. Hosts
# that cannot be reached are named: their own safety stop ends them.

step_stop() {
	local code=0
	each stop_on 2 || code=1
	each stop_on 9 || code=1
	stopped=yes
	if [ $code -ne 0 ]; then
		say "not all hosts could be told to stop; on those the safety stop ends everything ${max_hours} hours after the start. End them by hand if they cost money"
		return 1
	fi
	rm -f "$state/started"
	say "stop: nothing runs any more"
}

stop_on() { remote "$1" stop "$2"; }

# clean: the hosts as they were before upload. What was collected stays here.
step_clean() {
	each clean_on || die "not all hosts are clean"
	rm -rf "$state"/{hosts,tls,version,started} "$state"/sums-*
	say "clean: nothing of ours is left on the hosts"
}

clean_on() { remote "$1" clean; }

step_status() {
	local m unit word
	each status_on || true
	for m in "${!machine_target[@]}"; do
		while read -r unit word; do
			printf '%-24s %-28s %s\n' "$unit" "${machine_target[$m]}" "$word"
		done <"$tmp/status_on.$m"
	done
	[ ! -s "$state/marks.jsonl" ] || { echo "marks:" && cat "$state/marks.jsonl"; }
}

status_on() {
	local units
	mapfile -t units < <(unit_args "$1")
	remote "$1" status "${units[@]}"
}
