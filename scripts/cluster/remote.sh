# shellcheck shell=bash
# What runs on a host: sent over SSH before each command (lib.sh, remote), never
# installed, but for the safety stop. The first two arguments are the host's directory
# and how its roles are launched: as processes of ours, or as systemd units that
# cloud-init has made. Both fill the same four functions: launch, runs, end, words.
#
#   HOME/.tailrace-cluster   this directory is ours; the data directories, one a line
#   HOME/bin, HOME/tls       programs, keys
#   HOME/run/UNIT.{env,args,pid,order}   settings, command line, "PID START BOOT", when to end it
#   HOME/log/UNIT.log        what it says
set -euo pipefail
home=$1 launch=$2
shift 2
marker=$home/.tailrace-cluster
boot=$(cat /proc/sys/kernel/random/boot_id)

fail() {
	echo "$*" >&2
	return 1
}

# pause SECONDS: without a child that outlives us.
pause() { read -rt "$1" <> <(:) || true; }

# started PID: when it began, in ticks since the boot; nothing if it is gone.
started() {
	local stat words
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	read -ra words <<<"${stat##*) }"
	[ "${words[0]}" != Z ] && echo "${words[19]}"
}

# members GROUP: the processes of a process group.
members() {
	local file stat words
	for file in /proc/[0-9]*/stat; do
		stat=$(cat "$file" 2>/dev/null) || continue
		read -ra words <<<"${stat##*) }"
		if [ "${words[2]}" = "$1" ] && [ "${words[0]}" != Z ]; then
			echo "${file//[!0-9]/}"
		fi
	done
}

# A process of ours is the leader of a session. It is known by its pid, the time at
# which it began and the boot: a pid alone may be another process's by now.
runs_process() {
	local pid start at now
	read -r pid start at 2>/dev/null <"$home/run/$1.pid" || return 1
	[ "$at" = "$boot" ] && now=$(started "$pid") && [ "$now" = "$start" ]
}

# It writes down who it is before it becomes the program, so that there is no moment at
# which it runs and no other process knows. keep says that the exit code is to be kept: the shell
# stays then.
launch_process() {
	local unit=$1 keep=${2-}
	mkdir -p "$home/run" "$home/log"
	rm -f "$home/run/$unit.rc"
	# shellcheck disable=SC2016 # for the inner shell
	setsid bash -c '
		home=$1 unit=$2 boot=$3 keep=$4
		stat=$(cat /proc/$$/stat) && read -ra words <<<"${stat##*) }"
		set -a; . "$home/run/$unit.env"; set +a
		mapfile -t command <"$home/run/$unit.args"
		echo "$$ ${words[19]} $boot" >"$home/run/$unit.pid"
		[ -n "$keep" ] || exec "${command[@]}"
		code=0
		"${command[@]}" || code=$?
		echo $code >"$home/run/$unit.rc"
	' launch "$home" "$unit" "$boot" "$keep" </dev/null >>"$home/log/$unit.log" 2>&1 &
	local pid=$!
	until [ -s "$home/run/$unit.pid" ] && runs_process "$unit"; do
		[ ! -e "$home/run/$unit.rc" ] || return 0 # it had little to do
		kill -0 $pid 2>/dev/null || { fail "$unit ended at once: $(tail -3 "$home/log/$unit.log")"; return 1; }
		pause 0.02
	done
}

# end_process UNIT SECONDS: asks, waits, kills.
end_process() {
	local pid _
	runs_process "$1" || { rm -f "$home/run/$1.pid"; return 0; }
	read -r pid _ <"$home/run/$1.pid"
	kill -TERM -- "-$pid" 2>/dev/null || true
	local until=$((SECONDS + $2))
	while [ -n "$(members "$pid")" ]; do
		if [ $SECONDS -ge $until ]; then
			kill -KILL -- "-$pid" 2>/dev/null || true
			until=$((SECONDS + 60))
		fi
		pause 0.05
	done
	rm -f "$home/run/$1.pid"
}

words_process() { cat "$home/log/$1.log"; }

# Units of systemd: terraform/templates/units has them, cloud-init puts them there. They
# find the programs in /usr/local/bin, settings and keys below /etc/tailrace, and run as
# the user tailrace.
root() { if [ "$launch" = systemd ] && [ "$(id -u)" != 0 ]; then sudo -n "$@"; else "$@"; fi; }
role() { case $1 in compute | input) echo worker ;; *) echo "$1" ;; esac; }
service() {
	case $(role "$1") in
	worker | redis) echo "tailrace-$(role "$1").service" ;;
	*) echo "tailrace@$1.service" ;;
	esac
}
kind() { cat "$home/run/$1.kind"; }
runs_systemd() { [ -e "$home/run/$1.kind" ] && systemctl is-active --quiet "$(service "$(kind "$1")")"; }
launch_systemd() {
	local env
	env=/etc/tailrace/$(role "$(kind "$1")").env
	if [ "$(kind "$1")" = redis ]; then
		echo "REDIS_ARGS=$(sed -n "/^--bind\$/,\$p" "$home/run/$1.args" | sed "s|^$home/tls/|/etc/tailrace/tls/|" | tr '\n' ' ')" | root install -m 0600 /dev/stdin "$env"
	else
		sed "s|=$home/tls/|=/etc/tailrace/tls/|" "$home/run/$1.env" | root install -m 0600 /dev/stdin "$env"
	fi
	root systemctl restart "$(service "$(kind "$1")")"
}
end_systemd() { root systemctl stop "$(service "$(kind "$1")")"; }
words_systemd() { root journalctl --no-pager -o cat -u "$(service "$(kind "$1")")"; }

# The sweep and the safety stop are no roles: they are processes everywhere.
how() { case $1 in sweep | safety-stop) echo process ;; *) echo "$launch" ;; esac; }
runs() { "runs_$(how "$1")" "$1"; }
units() {
	local file
	for file in "$home"/run/*.order; do
		[ -e "$file" ] || continue
		file=${file##*/}
		echo "${file%.order}"
	done
}

# empty DIR: there is nothing in it, but for what a new file system has.
empty() { [ -z "$(root find "$1" -mindepth 1 -maxdepth 1 ! -name lost+found 2>/dev/null)" ]; }

# --- commands ---

# facts: what check wants to know.
facts() {
	echo "arch $(uname -m)"
	echo "system $(uname -s)"
	echo "bash ${BASH_VERSINFO[0]}"
	if [ "$launch" = systemd ]; then
		command -v systemctl >/dev/null && systemctl show --property=Version >/dev/null 2>&1 && echo "systemd yes"
		! root true 2>/dev/null || { echo "sudo yes" && root install -d -o "$(id -un)" "$home"; }
	fi
	if mkdir -p "$home" 2>/dev/null && touch "$home/.writable" 2>/dev/null; then
		rm -f "$home/.writable"
		echo "free-mib $(df -Pm "$home" | awk 'NR == 2 { print $4 }')"
	else
		echo "unwritable $home"
	fi
	! command -v redis-server tailrace-redis >/dev/null || echo "redis yes"
	[ -e "$marker" ] || empty "$home" || echo "strange $home"
	rmdir "$home" 2>/dev/null || true # of another user, perhaps, and then it stays
}

# has_service KIND…: says which units there are not.
has_service() {
	local kind
	for kind; do
		systemctl cat "$(service "$kind")" >/dev/null 2>&1 || echo "there is no $(service "$kind")"
	done
}

# data DIR…: says which are not to be used.
data() {
	local dir at
	for dir; do
		grep -qxF "$dir" "$marker" 2>/dev/null && continue
		empty "$dir" || { echo "strange $dir"; continue; }
		[ "$launch" = process ] || continue # systemd's are made by cloud-init, for another user
		at=$dir
		while [ ! -e "$at" ]; do at=$(dirname "$at"); done
		[ -w "$at" ] && [ -d "$at" ] || echo "unwritable $dir"
	done
}

# listening UNIT ADDRESS PORT…: says at which of these somebody else listens, as
# "UNIT PORT who".
listening() {
	local unit address port hex inode who pid fd
	while [ $# -gt 0 ]; do
		unit=$1 address=$2 port=$3
		shift 3
		runs "$unit" && continue
		hex=$(awk -v FS=. '{ printf "%02X%02X%02X%02X", $4, $3, $2, $1 }' <<<"$address")
		inode=$(awk -v at="$hex" -v port="$(printf %04X "$port")" '
			$4 == "0A" { split($2, a, ":"); if (a[2] == port && (a[1] == at || a[1] ~ /^0*$/)) { print $10; exit } }' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
		[ -n "$inode" ] || continue
		who="a process of another user"
		for fd in /proc/[0-9]*/fd/*; do
			if [ "$(readlink "$fd" 2>/dev/null)" = "socket:[$inode]" ]; then
				pid=${fd#/proc/} pid=${pid%%/*}
				who="$(cat "/proc/$pid/comm") (pid $pid)"
				break
			fi
		done
		echo "$unit $port $who"
	done
}

# claim DATA…: this directory and these are ours from now on.
claim() {
	local dir
	mkdir -p "$home/run" "$home/log"
	touch "$marker"
	for dir; do
		[ "$launch" = systemd ] || mkdir -p "$dir"
		grep -qxF "$dir" "$marker" || echo "$dir" >>"$marker"
	done
}

# sums: checksums and versions of the programs that are here.
sums() {
	local program
	for program in tailrace nexmark; do
		if [ -x "$home/bin/$program" ]; then
			echo "$program $(sha256sum <"$home/bin/$program" | cut -d' ' -f1) $("$home/bin/$program" version 2>&1 | head -1)"
		else
			echo "$program none nothing"
		fi
	done
}

# install_programs SUM SUM: what has come into bin.new becomes bin, if it is whole.
install_programs() {
	local program sum
	for program in tailrace nexmark; do
		sum=$1
		shift
		[ "$(sha256sum <"$home/bin.new/$program" | cut -d' ' -f1)" = "$sum" ] || fail "$program has not arrived whole; run the step again" || return 1
	done
	mkdir -p "$home/bin"
	mv -f "$home"/bin.new/* "$home/bin/"
	[ "$launch" = process ] || root install -m 0755 "$home/bin/tailrace" "$home/bin/nexmark" /usr/local/bin/
	rmdir "$home/bin.new"
}

# put PATH MODE BASE64 …: files, each at once or not at all.
put() {
	while [ $# -gt 0 ]; do
		mkdir -p "$(dirname "$1")"
		(umask 077 && base64 -d <<<"$3" >"$1.new")
		chmod "$2" "$1.new"
		mv "$1.new" "$1"
		shift 3
	done
}

# give_keys: to where the units look for them.
give_keys() {
	root install -o tailrace -m 0600 -t /etc/tailrace/tls "$home"/tls/{cert,key,ca}.pem
}

# start UNIT KIND ORDER ENV ARGS …: begins each, unless it runs with the same settings
# and the same programs already. ENV and ARGS are base64.
start() {
	while [ $# -gt 0 ]; do
		start_unit "$@" || return
		shift 5
	done
}

start_unit() {
	local unit=$1 kind=$2 order=$3 same
	same=$({ echo "$4 $5"; stat -c '%i %s %Y' "$home"/bin/*; } | sha256sum)
	if runs "$unit" && [ "$(cat "$home/run/$unit.same" 2>/dev/null)" = "$same" ]; then
		return
	fi
	put "$home/run/$unit.env" 600 "$4"
	put "$home/run/$unit.args" 600 "$5"
	echo "$kind" >"$home/run/$unit.kind"
	echo "$order" >"$home/run/$unit.order"
	if runs "$unit"; then "end_$(how "$unit")" "$unit" 15; fi
	echo "$same" >"$home/run/$unit.same"
	"launch_$(how "$unit")" "$unit"
}

# run_sweep ENV ARGS: begins the sweep, unless it runs.
run_sweep() {
	! runs sweep || return 0
	put "$home/run/sweep.env" 600 "$1"
	put "$home/run/sweep.args" 600 "$2"
	echo 1 >"$home/run/sweep.order"
	launch_process sweep keep
}

# sweep_state DIR N: "runs", "ended CODE" or "gone"; how many rows there are; the last N
# lines it has said.
sweep_state() {
	if runs sweep; then
		echo runs
	elif [ -e "$home/run/sweep.rc" ]; then
		echo "ended $(cat "$home/run/sweep.rc")"
	else
		echo gone
	fi
	wc -l 2>/dev/null <"$1/rows.jsonl" || echo 0
	tail -n "$2" "$home/log/sweep.log" 2>/dev/null || true
}

# end_sweep: lets it write down what it has.
end_sweep() { end_process sweep 30; }

# pack_logs: what all units have said, as base64 of a tar.gz.
pack_logs() {
	local unit
	for unit in $(units); do
		[ "$(how "$unit")" = process ] || words_systemd "$unit" >"$home/log/$unit.log" 2>/dev/null || true
	done
	tar -czf - -C "$home/log" . | base64
}

# append PATH BASE64: to a file.
append() {
	mkdir -p "$(dirname "$1")"
	base64 -d <<<"$2" >>"$1"
}

# report DIR: draws the figures again from the rows that there are.
report() {
	(
		set -a
		# shellcheck source=/dev/null
		. "$home/run/sweep.env"
		"$home/bin/nexmark" sweep report "$1"
	)
}

# limit SECONDS: ends everything here then, whoever is gone by that time; a machine with
# systemd switches itself off, which ends what it costs.
limit() {
	end_process safety-stop 5
	rm -f "$home/run/stopped"
	if [ "$launch" = systemd ]; then # tailrace-deadline.timer asks for it every minute
		echo $((EPOCHSECONDS + $1)) | root install -m 0644 /dev/stdin /etc/tailrace/deadline
		return
	fi
	: >"$home/run/safety-stop.env"
	printf '%s\n' bash "$home/remote.sh" "$home" "$launch" watch_clock $((EPOCHSECONDS + $1)) >"$home/run/safety-stop.args"
	echo 9 >"$home/run/safety-stop.order"
	launch_process safety-stop
}

watch_clock() {
	local unit
	while [ "$EPOCHSECONDS" -lt "$1" ]; do pause 1; done
	date -u +%FT%TZ >"$home/run/stopped"
	for unit in $(units); do
		[ "$unit" = safety-stop ] || "end_$(how "$unit")" "$unit" 10
	done
	rm -f "$home/run/safety-stop.pid"
}

# get ADDRESS PORT PATH: the status and the body's first line.
get() {
	timeout 3 bash -c '
		exec 3<>"/dev/tcp/$1/$2" || exit
		printf "GET %s HTTP/1.0\r\n\r\n" "$3" >&3
		read -r _ code _ <&3
		while IFS= read -r line <&3 && [ -n "${line%$'"'\r'"'}" ]; do :; done
		read -r line <&3
		echo "$code $line"' get "$@" 2>/dev/null || true
}

# ready_now UNIT ADDRESS PORT PROBE: nothing if it is, else why not.
ready_now() {
	local answer
	if ! runs "$1"; then
		echo "it does not run; its last words: $("words_$(how "$1")" "$1" 2>/dev/null | tail -3)"
		return
	fi
	case $4 in
	http)
		answer=$(get "$2" "$3" /readyz)
		case $answer in
		200*) ;;
		'') echo "nothing answers at http://$2:$3/readyz" ;;
		*) echo "${answer#* }" ;;
		esac
		;;
	tcp) timeout 3 bash -c 'exec 3<>"/dev/tcp/$1/$2"' tcp "$2" "$3" 2>/dev/null || echo "nothing listens at $2:$3" ;;
	esac
}

# ready SECONDS UNIT ADDRESS PORT PROBE…: waits until all are; at the end says which are
# not. One that has ended will not be: it is not waited for.
ready() {
	local until=$((SECONDS + $1)) why bad gone
	shift
	local all=("$@")
	while true; do
		bad='' gone=false
		set -- "${all[@]}"
		while [ $# -gt 0 ]; do
			why=$(ready_now "$1" "$2" "$3" "$4")
			if [ -n "$why" ]; then
				bad+="$1: $why"$'\n'
				runs "$1" || gone=true
			fi
			shift 4
		done
		[ -n "$bad" ] || return 0
		if $gone || [ $SECONDS -ge $until ]; then
			printf %s "$bad"
			return 1
		fi
		pause 0.1
	done
}

# look UNIT…: those that do not run, one a line, and why if it is known.
look() {
	local unit
	[ ! -e "$home/run/stopped" ] || echo "safety-stop $(cat "$home/run/stopped")"
	for unit; do runs "$unit" || echo "$unit"; done
}

# status UNIT ADDRESS PORT PROBE…
status() {
	local why
	while [ $# -gt 0 ]; do
		why=$(ready_now "$1" "$2" "$3" "$4" | head -1)
		echo "$1 ${why:-ready}"
		shift 4
	done
}

# stop ORDER: ends what has at most that order, side by side.
stop() {
	local unit pids=() pid code=0
	for unit in $(units); do
		[ "$(cat "$home/run/$unit.order")" -le "$1" ] || continue
		"end_$(how "$unit")" "$unit" 15 &
		pids+=($!)
	done
	for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || code=1; done
	return $code
}

# clean: takes away what claim has made ours.
clean() {
	local unit dir
	[ -e "$marker" ] || return 0
	for unit in $(units); do
		! runs "$unit" || fail "$unit still runs; stop it first" || return 1
	done
	while read -r dir; do
		[ ! -d "$dir" ] || root find "$dir" -mindepth 1 -delete
		[ "$launch" = systemd ] || rmdir "$dir" 2>/dev/null || true
		case $dir in "$home"/*) rmdir "$(dirname "$dir")" 2>/dev/null || true ;; esac
	done <"$marker"
	[ "$launch" = process ] || root bash -c 'rm -f /usr/local/bin/{tailrace,nexmark} /etc/tailrace/*.env /etc/tailrace/tls/*.pem'
	rm -rf "${home:?}"/{bin,bin.new,tls,run,log,results,remote.sh} "$marker"
	rmdir "$home" 2>/dev/null || true
}

main() { "$@"; }
main "$@" </dev/null
