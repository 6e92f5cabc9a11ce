# shellcheck shell=bash
set -euo pipefail
# collect: draws the report on the control host once more, from all rows, and brings
# results and logs here: STATE/results/NAME, STATE/logs/HOST.

step_collect() {
	local c=${control[0]} name
	[ -e "$state/sweep-name" ] || die "no sweep was run with this state directory: the step sweep comes before"
	name=$(cat "$state/sweep-name")
	each logs_of || say "collect: the logs of these hosts are missing"
	remote "$c" report "${machine_home[$c]}/results/$name" || say "collect: no report could be drawn"
	rm -rf "$state/results/$name.new"
	mkdir -p "$state/results/$name.new"
	open_ssh "$c" "tar -czf - -C '${machine_home[$c]}/results/$name' ." </dev/null | tar -xzf - -C "$state/results/$name.new" || die "the results of $(label "$c") cannot be fetched"
	[ ! -e "$state/marks.jsonl" ] || cp "$state/marks.jsonl" "$state/results/$name.new/"
	rm -rf "$state/results/$name"
	mv "$state/results/$name.new" "$state/results/$name"
	say "collect: $state/results/$name"
	[ ! -e "$state/marks.jsonl" ] || say "collect: hosts were lost during this sweep, see $state/results/$name/marks.jsonl; rows of that time are of a smaller cluster"
}

logs_of() {
	local m=$1 dir=$state/logs/${machine_id[$1]}
	mkdir -p "$dir"
	remote "$m" pack_logs | base64 -d | tar -xzf - -C "$dir"
}
