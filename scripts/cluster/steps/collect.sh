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
	[ ! -e "$state/marks.jsonl" ] || mark_rows "$state/results/$name.new"
	rm -rf "$state/results/$name"
	mv "$state/results/$name.new" "$state/results/$name"
	say "collect: $state/results/$name"
	[ ! -e "$state/marks.jsonl" ] || say "collect: hosts were lost during this sweep, see $state/results/$name/marks.jsonl; rows of that time are of a smaller cluster and say \"marked\""
}

# mark_rows DIR: the rows that came while somebody was lost get "marked". They are
# counted, not timed: the row that is being measured at the loss is the next one.
mark_rows() {
	cp "$state/marks.jsonl" "$1/"
	awk '
		FNR == NR {
			what = $0; sub(/.*"what":"/, "", what); sub(/".*/, "", what)
			rows = $0; sub(/.*"rows":/, "", rows)
			if (what == "back" && open > 0) open--
			else if (what == "all there") open = 0
			else if (open++ == 0) { from[++n] = rows + 0; to[n] = -1; next }
			if (open == 0 && n) to[n] = rows + 0
			next
		}
		{
			for (i = 1; i <= n; i++) if (FNR > from[i] && (to[i] < 0 || FNR <= to[i])) { sub(/}$/, ",\"marked\":\"measured while a host or a role was lost\"}"); break }
			print
		}' "$1/marks.jsonl" "$1/rows.jsonl" >"$1/rows.jsonl.new"
	mv "$1/rows.jsonl.new" "$1/rows.jsonl"
}

logs_of() {
	local m=$1 dir=$state/logs/${machine_id[$1]} logs
	mkdir -p "$dir"
	logs=$(remote "$m" pack_logs) || return
	base64 -d <<<"$logs" | tar -xzf - -C "$dir"
}
