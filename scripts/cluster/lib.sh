# shellcheck shell=bash
set -euo pipefail
# What the steps have in common: words, SSH, all hosts at once, what is remembered.
# Sourced by cluster.sh, which sets state (the state directory, absolute).

say() { printf '%s\n' "$*" >&2; }
die() {
	say "error: $*"
	exit 1
}
usage() {
	say "error: $* (see scripts/cluster/cluster.sh --help)"
	exit 2
}

# pause SECONDS: without a child that outlives us.
pause() { read -rt "$1" <> <(:) || true; }

# encode: standard input as one word.
encode() { base64 | tr -d '\n'; }

now() { date -u +%FT%TZ; }

# label M: how a host is called in messages.
label() { printf '%s (%s)' "${machine_target[$1]}" "${machine_lines[$1]}"; }

# open_ssh M COMMAND…: runs it there; standard input is its own.
open_ssh() {
	local m=$1
	shift
	ssh "${ssh_options[@]}" -p "${machine_ssh_port[$m]}" "${machine_target[$m]}" "$@" 8>&- 9>&-
}

# remote M COMMAND ARGS…: a command of remote.sh on a host. What SSH itself has to say is
# made into a reason with its remedy; the exit code is 255 then.
remote() {
	local m=$1 code=0 err
	shift
	err=$(mktemp "$tmp/err-XXXXXX")
	open_ssh "$m" "$(printf '%q ' bash -s -- "${machine_home[$m]}" "${machine_launch[$m]}" "$@")" <"$here/remote.sh" 2>"$err" || code=$?
	if [ $code -eq 255 ]; then
		ssh_reason "$m" "$err" >&2
	else
		cat "$err" >&2
	fi
	rm -f "$err"
	return $code
}

ssh_reason() {
	local text at="${machine_target[$1]} port ${machine_ssh_port[$1]}"
	text=$(grep -v '^Warning: Permanently added' "$2" | tail -3)
	case $text in
	*'Host key verification failed'* | *'HOST IDENTIFICATION HAS CHANGED'*)
		echo "ssh $at: the host's key is not the one known of it. If the machine was made anew, remove it from the known hosts: ssh-keygen -R '[${machine_target[$1]#*@}]:${machine_ssh_port[$1]}' -f $known_hosts (for port 22 without brackets and port)" ;;
	*'Permission denied'*)
		echo "ssh $at: permission denied. Is this the right user, and does the machine know your key? Give \`option identity FILE\` in $hosts_file, or load it into ssh-agent" ;;
	*'Connection refused'*)
		echo "ssh $at: connection refused. Nothing listens there: is sshd running, is ssh-port= right?" ;;
	*'timed out'*)
		echo "ssh $at: no answer. Is the machine up, and does its firewall (security group) let your address in?" ;;
	*'Could not resolve'*)
		echo "ssh $at: no such host name" ;;
	*) echo "ssh $at: ${text:-the connection broke}" ;;
	esac
}

# each FUNCTION ARGS…: FUNCTION M ARGS for all hosts at once. What it prints is kept in
# $tmp/FUNCTION.M; what goes wrong is printed with the host's name. Fails if one fails.
each() {
	local f=$1 m pids=() code=0
	shift
	for ((m = 0; m < ${#machine_target[@]}; m++)); do
		(set -e; "$f" "$m" "$@") >"$tmp/$f.$m" 2>"$tmp/$f.$m.err" </dev/null &
		pids+=($!)
	done
	for m in "${!pids[@]}"; do
		if ! wait "${pids[$m]}"; then
			code=1
			failed_on "$m" "$tmp/$f.$m.err"
		fi
	done
	return $code
}

failed_on() {
	if [ -s "$2" ]; then
		sed "s|^|$(label "$1"): |" "$2" >&2
	else
		say "$(label "$1"): failed"
	fi
}

# record STEP M WHAT: the step is done on the host, with this (the programs' checksum).
record() {
	mkdir -p "$state/hosts/${machine_id[$2]}"
	printf '%s %s\n' "$(now)" "$3" >"$state/hosts/${machine_id[$2]}/$1"
}

# unit_args M: "UNIT ADDRESS PORT PROBE" of the host's units, for ready and status.
unit_args() {
	local i
	for i in "${!unit_name[@]}"; do
		[ "${unit_machine[$i]}" != "$1" ] || printf '%s\n' "${unit_name[$i]}" "${unit_address[$i]}" "${unit_probe_port[$i]}" "${unit_probe[$i]}"
	done
}

# unit_names M
unit_names() {
	local i
	for i in "${!unit_name[@]}"; do
		[ "${unit_machine[$i]}" != "$1" ] || printf '%s\n' "${unit_name[$i]}"
	done
}
