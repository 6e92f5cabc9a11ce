# shellcheck shell=bash
set -euo pipefail
# check: are the hosts there, and fit? Looks at all of them, says all that is wrong, and
# changes nothing.

step_check() {
	local m code=0 slow=''
	each check_host || code=1
	[ $code -ne 0 ] || check_clocks || code=1
	[ $code -eq 0 ] || die "$hosts_file: the hosts are not ready for this; nothing was started"
	say "check: ${#machine_target[@]} hosts, ${#unit_name[@]} processes: nothing stands in the way"
}

check_host() {
	local m=$1 facts key value i bad=0 data line listening=()
	local -A f=()
	facts=$(remote "$m" facts) || return
	while read -r key value; do f[$key]=$value; done <<<"$facts"
	wrong() { say "$*" && bad=1; }
	[ "${f[system]-}" = Linux ] || wrong "it runs ${f[system]-nothing known}: Linux is wanted"
	machine_arch "${f[arch]-}" >/dev/null || wrong "its architecture is ${f[arch]}: programs are built for x86_64 (amd64) and aarch64 (arm64)"
	[ "${f[bash]-0}" -ge 5 ] || wrong "its bash is version ${f[bash]-unknown}: 5 or newer is wanted"
	[ -z "${f[unwritable]-}" ] || wrong "${f[unwritable]} cannot be written to by this user: give another home= in $hosts_file, or make it: sudo install -d -o USER ${f[unwritable]}"
	[ -z "${f[strange]-}" ] || wrong "${f[strange]} holds files that are not of this cluster: give another home= in $hosts_file, or empty it"
	[ -z "${f[free-mib]-}" ] || [ "${f[free-mib]}" -ge "$min_free" ] || wrong "${machine_home[$m]}: ${f[free-mib]} MiB are free, $min_free are wanted (--min-free): make room, or give another home= and data="
	if [ "${machine_launch[$m]}" = systemd ]; then
		[ -n "${f[systemd]-}" ] || wrong "there is no systemd: put launch=process into $hosts_file"
		[ -n "${f[sudo]-}" ] || wrong "sudo asks for a password: units cannot be started; let this user use sudo, or put launch=process into $hosts_file"
	fi
	for i in "${!unit_name[@]}"; do
		[ "${unit_machine[$i]}" = "$m" ] || continue
		if [ "${unit_kind[$i]}" = redis ] && [ -z "${f[redis]-}" ]; then
			wrong "there is no redis-server, which keeps the snapshots: install it (Debian, Ubuntu: redis-server), or put \`option checkpoints none\` into $hosts_file"
		fi
		if [[ ${unit_address[$i]} =~ ^[0-9.]+$ ]]; then
			listening+=("${unit_name[$i]}" "${unit_address[$i]}" "${unit_port[$i]}")
			[ "${unit_port[$i]}" = "${unit_probe_port[$i]}" ] || listening+=("${unit_name[$i]}" "${unit_address[$i]}" "${unit_probe_port[$i]}")
		fi
	done
	local unit port who dir out
	out=$(remote "$m" listening "${listening[@]}") || return
	while read -r unit port who; do
		[ -z "$unit" ] || wrong "port $port, which $unit is to have, is in use by $who: end that, or give another port in $hosts_file"
	done <<<"$out"
	read -ra data <<<"${machine_data[$m]}"
	out=$(remote "$m" data ${data[@]+"${data[@]}"}) || return
	while read -r key dir; do
		case $key in
		unwritable) wrong "$dir cannot be made by this user: give another data= in $hosts_file" ;;
		strange) wrong "$dir holds files that are not of this cluster: give another data= in $hosts_file, or empty it" ;;
		esac
	done <<<"$out"
	if [ "${machine_launch[$m]}" = systemd ]; then
		mapfile -t data < <(for i in "${!unit_name[@]}"; do [ "${unit_machine[$i]}" != "$m" ] || echo "${unit_kind[$i]}"; done)
		out=$(remote "$m" has_service "${data[@]}") || return
		while read -r line; do
			[ -z "$line" ] || wrong "$line: has cloud-init finished (cloud-init status --wait)? Without cloud-init put launch=process into $hosts_file"
		done <<<"$out"
	fi
	[ $bad = 0 ] || return 1
	echo "${f[arch]}"
}

# machine_arch MACHINE: as Go calls it.
machine_arch() {
	case $1 in
	x86_64) echo amd64 ;;
	aarch64 | arm64) echo arm64 ;;
	*) return 1 ;;
	esac
}

# check_clocks: how far the hosts' clocks are apart; each is compared with ours.
check_clocks() {
	each clock_of || return
	local m
	for m in "${!machine_target[@]}"; do
		echo "$(cat "$tmp/clock_of.$m") $(label "$m")"
	done | sort -n | awk -v most="$max_skew" '
		NR == 1 { low = $1; error = $2; sub(/^[^ ]+ [^ ]+ /, ""); first = $0; next }
		{ high = $1; other = $2; sub(/^[^ ]+ [^ ]+ /, ""); last = $0 }
		END {
			apart = (high - low) / 1000; unsure = (error + other) / 1000
			if (NR > 1 && apart - unsure > most) {
				printf "the clocks of %s and %s are %.1f ms apart (give or take %.1f), %s are allowed (--max-skew): let chrony or systemd-timesyncd set them\n", first, last, apart, unsure, most > "/dev/stderr"
				exit 1
			}
		}'
}

# clock_of M: "OFFSET ERROR" in microseconds, by the shortest of ten exchanges.
clock_of() {
	local reply before after i best='' offset
	# date takes "now" for each line, so that no time goes into starting it.
	coproc clock { open_ssh "$1" 'stdbuf -oL date -f - +%s%N' 2>/dev/null; }
	# shellcheck disable=SC2154 # coproc sets it
	for ((i = 0; i < 10; i++)); do
		before=${EPOCHREALTIME/[.,]/}
		echo now >&"${clock[1]}"
		read -rt 10 reply <&"${clock[0]}" || return
		after=${EPOCHREALTIME/[.,]/}
		reply=$((reply / 1000))
		if [ -z "$best" ] || [ $((after - before)) -lt "$best" ]; then
			best=$((after - before))
			offset=$((reply - (before + after) / 2))
		fi
	done
	eval "exec ${clock[1]}>&-"
	echo "$offset $((best / 2))"
}
