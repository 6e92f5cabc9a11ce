# shellcheck shell=bash
set -euo pipefail
# start: first makes sure that all hosts have the same programs, then begins the safety
# stop and the roles; ready waits for them.

step_start() {
	[ -e "$state/version" ] || die "nothing is built and uploaded yet: the steps build and upload come before"
	each version_of || die "the hosts cannot be asked for their programs; nothing was started"
	local m sums wrong=0
	for m in "${!machine_target[@]}"; do
		sums=$(cut -d' ' -f2 "$tmp/version_of.$m" | tr '\n' ' ')
		grep -qsxF "$sums" <(for f in "$state"/sums-*; do printf '%s\n' "$(tr '\n' ' ' <"$f")"; done) && continue
		say "$(label "$m"): has another build: $(cut -d' ' -f3- "$tmp/version_of.$m" | paste -sd';' | sed 's/;/; /'), but this run's is $(cat "$state/version"): run the step upload"
		wrong=1
	done
	[ $wrong = 0 ] || die "the hosts do not have the same programs; nothing was started"
	touch "$state/started"
	each limit_on || die "the safety stop could not be set; no role was started"
	each start_on || die "not everything was started; run it again when the cause is gone, or the step stop"
	say "start: ${#unit_name[@]} processes; the hosts end by themselves in $max_hours hours"
}

version_of() { remote "$1" sums; }

limit_on() { remote "$1" limit "$(awk -v h="$max_hours" 'BEGIN { printf "%d", h * 3600 }')"; }

start_on() {
	local m=$1 i units=()
	for i in "${!unit_name[@]}"; do
		[ "${unit_machine[$i]}" = "$m" ] || continue
		units+=("${unit_name[$i]}" "${unit_kind[$i]}" "${unit_order[$i]}" "$(unit_environment "$i" | encode)" "$(unit_command "$i" | encode)")
	done
	remote "$m" start "${units[@]}" || return
	record start "$m" "$(cat "$state/version")"
}

# ready: until every process says that it is, and the cluster as a whole.
step_ready() {
	say "ready: waiting, for ${ready_timeout} s at most"
	if ! each ready_on; then
		local m
		for m in "${!machine_target[@]}"; do
			[ ! -s "$tmp/ready_on.$m" ] || sed "s|^|$(label "$m"): |" "$tmp/ready_on.$m" >&2
		done
		die "not ready after ${ready_timeout} s (--ready-timeout); what they say is in HOME/log on the hosts"
	fi
	say "ready: all ${#unit_name[@]} processes"
}

ready_on() {
	local units
	mapfile -t units < <(unit_args "$1")
	remote "$1" ready "$ready_timeout" "${units[@]}" && return
	say "not ready:"
	return 1
}
