# shellcheck shell=bash
set -euo pipefail
# sweep: runs on the control host, as a process of its own there, so that neither this
# script's end nor a broken connection ends it; started again, the step looks on. Beside
# it, every two seconds, the hosts are looked at: one that is gone, and a process that
# has ended, are written down (marks.jsonl, here and beside the rows).

step_sweep() {
	[ -n "$spec" ] || usage "--spec: which sweep? a YAML file, or the name of a built-in one (nexmark sweep --list)"
	local c=${control[0]} home name where args environment
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
	args=$(printf '%s\n' "$home/bin/nexmark" sweep "$where" --out "$results" --log "$(addresses sequencer)" --submit)
	remote "$c" run_sweep "$(encode <<<"$environment")" "$(encode <<<"$args")" || die "the sweep could not be started on $(label "$c")"
	say "sweep: $name runs on $(label "$c"), results in $results"
	watch_sweep "$c"
}

# watch_sweep C: until the sweep has ended, or a loss ends it.
watch_sweep() {
	local c=$1 m code line last='' word rest
	local -A misses=() gone=()
	while true; do
		look_at_all
		for m in "${!machine_target[@]}"; do
			if [ "$(cat "$tmp/look.$m.code")" = 255 ]; then
				misses[$m]=$((${misses[$m]-0} + 1))
				# Once may be the network; three times in a row is a host.
				if [ "${misses[$m]}" -ge 3 ] && [ -z "${gone[$m]-}" ]; then
					gone[$m]=yes
					lost "$c" "$m" host "$(head -1 "$tmp/look.$m.err")"
				fi
				continue
			fi
			if [ -n "${gone[$m]-}" ]; then
				gone[$m]='' && note "$c" "$m" back "it answers again"
			fi
			misses[$m]=0
			while read -r word rest; do
				[ -n "$word" ] || continue
				[ "$word" != safety-stop ] || lost_all "$c" "the safety stop of $(label "$m") has ended it at $rest, $max_hours hours after the start (--max-hours)"
				[ -z "${gone[$word]-}" ] || continue
				gone[$word]=yes
				lost "$c" "$m" "process $word" "it has ended; its last words are in ${machine_home[$m]}/log/$word.log"
			done <"$tmp/look.$m"
		done
		if line=$(remote "$c" sweep_state 2>"$tmp/state.err"); then
			rest=$(tail -n +2 <<<"$line")
			[ "$rest" = "$last" ] || say "sweep: $rest"
			last=$rest
			case $line in
			ended*)
				code=$(head -1 <<<"$line") code=${code#ended }
				echo "$code" >"$state/sweep-code"
				[ "$code" = 0 ] || say "$(remote "$c" sweep_state 20 | tail -n +2)"
				case $code in
				0) say "sweep: done" ;;
				1) say "sweep: some cases have failed or are void, the report says which" ;;
				2) die "the sweep does not take its spec or settings; see above" ;;
				*) die "the sweep has ended with exit code $code; see above, and run it again to go on" ;;
				esac
				return 0
				;;
			gone*) die "the sweep's process on $(label "$c") is gone and has left no exit code (was the host restarted?): run it again, it goes on" ;;
			esac
		elif [ -n "${gone[$c]-}" ]; then
			lost_all "$c" "the control host $(label "$c") is lost, and with it the sweep: bring it back and run it again, it goes on if its disk is there"
		fi
		pause 2
	done
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

# note C M WHAT WHY: one line of marks.jsonl, here and beside the rows.
note() {
	local line
	line=$(printf '{"time":"%s","host":"%s","runs":"%s","what":"%s","why":"%s"}' "$(now)" "${machine_target[$2]}" "${machine_lines[$2]}" "$3" "$(tr -d '"\\' <<<"$4")")
	echo "$line" >>"$state/marks.jsonl"
	[ "$2" = "$1" ] || remote "$1" append "$results/marks.jsonl" "$(encode <<<"$line")" 2>/dev/null || true
	say "sweep: MARKED: $(label "$2"), $3: $4"
}

# lost C M WHAT WHY: notes it, and goes on or stops, as --on-host-loss says.
lost() {
	note "$@"
	case $on_host_loss in
	go-on) say "sweep: goes on without it (--on-host-loss go-on); cases measured from now on are of a smaller cluster" ;;
	stop) lost_all "$1" "$(label "$2"), $3, was lost during the sweep: $4. The sweep was stopped; it is marked in $state/marks.jsonl. Bring the host back and run it again, it goes on; or use --on-host-loss go-on" ;;
	esac
}

# lost_all C WHY: ends what can be reached, and this.
lost_all() {
	remote "$1" end_sweep 2>/dev/null || true
	step_stop || true
	die "$2"
}
