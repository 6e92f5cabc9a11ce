# shellcheck shell=bash
set -euo pipefail
# sweep: runs on the control host, as a process of its own there, so that neither this
# script's end nor a broken connection ends it; started again, the step looks on. Beside
# it, every two seconds, the hosts are looked at: one that is gone, and a process that
# has ended, are written down (marks.jsonl, here and beside the rows).

step_sweep() {
	[ -n "$spec" ] || usage "--spec: which sweep? a YAML file, or the name of a built-in one (nexmark sweep --list)"
	local c=${control[0]} home name rows where args environment
	home=${machine_home[$c]}
	name=$(basename "$spec" .yaml)
	where=$spec
	if [ -e "$spec" ]; then
		where=$home/run/spec-$name.yaml
		remote "$c" put "$where" 644 "$(encode <"$spec")" || die "the spec cannot be brought to $(label "$c")"
	fi
	results=$home/results/$name
	echo "$name" >"$state/sweep-name"
	rm -f "$state/sweep-code"
	environment=$(
		echo "NEXMARK_CLUSTER=${option[cluster]}"
		echo "NEXMARK_CHECKPOINTS=$(checkpoints)"
		[ -n "${option[insecure]}" ] || security NEXMARK "$c"
	)
	# What failed because a host was lost is measured once more when it is back.
	args=$(printf '%s\n' "$home/bin/nexmark" sweep "$where" --out "$results" --log "$(addresses sequencer)" --submit --again)
	if [ -s "$state/marks.jsonl" ] && ! tail -1 "$state/marks.jsonl" | grep -q '"what":"all there"'; then
		rows=$(remote "$c" sweep_state "$results" 0 | sed -n 2p)
		note "$c" "$c" "${rows:-0}" "all there" "the step ready has found everything, and the sweep continues"
	fi
	remote "$c" run_sweep "$(encode <<<"$environment")" "$(encode <<<"$args")" || die "the sweep could not be started on $(label "$c")"
	say "sweep: $name runs on $(label "$c"), results in $results"
	watch_sweep "$c"
}

# watch_sweep C: until the sweep has ended, or a loss ends it. The hosts are looked at
# once more after its end, and one that does not answer then is waited for until it is
# known whether it is lost: it may have been for the last case.
watch_sweep() {
	local c=$1 m line last='' word rest unsure rows=0
	# rows_well: how many rows there were when the host was seen well for the last time.
	local -A misses=() gone=() rows_well=()
	while true; do
		line=$(remote "$c" sweep_state "$results" 1 2>/dev/null) || line=unknown
		[ "$line" = unknown ] || rows=$(sed -n 2p <<<"$line")
		rest=$(tail -n +3 <<<"$line")
		[ -z "$rest" ] || [ "$rest" = "$last" ] || say "sweep: $rest"
		last=$rest
		unsure=''
		look_at_all
		for m in "${!machine_target[@]}"; do
			if [ "$(cat "$tmp/look.$m.code")" = 255 ]; then
				[ -z "${gone[$m]-}" ] || continue
				misses[$m]=$((${misses[$m]-0} + 1))
				# Once may be the network; three times in a row is a host.
				if [ "${misses[$m]}" -lt 3 ]; then
					unsure=yes
				else
					gone[$m]=yes
					lost "$c" "$m" "${rows_well[$m]-0}" host "$(head -1 "$tmp/look.$m.err")"
				fi
				continue
			fi
			if [ -n "${gone[$m]-}" ]; then
				gone[$m]='' && note "$c" "$m" "$rows" back "it answers again"
			fi
			misses[$m]=0
			while read -r word rest; do
				[ -n "$word" ] || continue
				[ "$word" != safety-stop ] || lost_all "$c" "the safety stop of $(label "$m") has ended it at $rest, $max_hours hours after the start (--max-hours)"
				[ -z "${gone[$word]-}" ] || continue
				gone[$word]=yes
				lost "$c" "$m" "${rows_well[$m]-0}" "process $word" "it has ended; its last words are in ${machine_home[$m]}/log/$word.log"
			done <"$tmp/look.$m"
			rows_well[$m]=$rows
		done
		[ -z "${gone[$c]-}" ] || lost_all "$c" "the control host $(label "$c") is lost, and with it the sweep: bring it back and run it again, it resumes if its disk is there"
		case $line in
		ended*)
			if [ -z "$unsure" ]; then
				sweep_ended "$c" "$(head -1 <<<"$line")"
				return
			fi
			;;
		gone*) die "the sweep's process on $(label "$c") is gone and has left no exit code (was the host restarted?): run it again, it resumes" ;;
		esac
		pause 2
	done
}

# sweep_ended C "ended CODE"
sweep_ended() {
	local code=${2#ended }
	echo "$code" >"$state/sweep-code"
	[ "$code" = 0 ] || remote "$1" sweep_state "$results" 20 | tail -n +3 >&2
	case $code in
	0) say "sweep: done" ;;
	1) say "sweep: some cases have failed or are void, the report says which" ;;
	2) die "the sweep does not take its spec or settings; see above" ;;
	*) die "the sweep has ended with exit code $code; see above, and run it again to resume" ;;
	esac
}

look_at_all() {
	local m units
	for m in "${!machine_target[@]}"; do
		mapfile -t units < <(unit_names "$m")
		(
			code=0
			remote "$m" look "${units[@]}" >"$tmp/look.$m" 2>"$tmp/look.$m.err" </dev/null || code=$?
			echo $code >"$tmp/look.$m.code"
		) &
	done
	wait
}

# note C M ROWS WHAT WHY: one line of marks.jsonl, here and beside the rows. It is about
# the rows behind the first ROWS.
note() {
	local line
	line=$(printf '{"time":"%s","host":"%s","runs":"%s","rows":%d,"what":"%s","why":"%s"}' "$(now)" "${machine_target[$2]}" "${machine_lines[$2]}" "$3" "$4" "$(tr -d '"\\' <<<"$5")")
	echo "$line" >>"$state/marks.jsonl"
	remote "$1" append "$results/marks.jsonl" "$(encode <<<"$line")" 2>/dev/null || true
	say "sweep: MARKED: $(label "$2"), $4: $5"
}

# lost C M ROWS WHAT WHY: notes it, and continues or stops, as --on-host-loss says.
lost() {
	note "$@"
	case $on_host_loss in
	go-on) say "sweep: continues without it (--on-host-loss go-on); cases measured from now on are of a smaller cluster" ;;
	stop) lost_all "$1" "$(label "$2"), $4, was lost during the sweep: $5. The sweep was stopped; it is marked in $state/marks.jsonl. Bring the host back and run it again, it goes on; or use --on-host-loss go-on" ;;
	esac
}

# lost_all C WHY: ends what can be reached, and this.
lost_all() {
	remote "$1" end_sweep 2>/dev/null || true
	step_stop || true
	die "$2"
}
