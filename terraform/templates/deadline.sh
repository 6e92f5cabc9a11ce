#!/usr/bin/env bash
# Ends the host when its time is over, asked every minute by a timer: switched off, an
# instance of this cluster is terminated. /etc/tailrace/deadline holds the moment, in
# seconds since 1970: to give a run longer, write a later one into it. A file that is
# missing or unreadable counts as over.
set -euo pipefail
file=${1:-/etc/tailrace/deadline}
deadline=$(cat "$file" 2>/dev/null) || deadline=0
[[ $deadline =~ ^[0-9]+$ ]] || deadline=0
left=$((deadline - $(date +%s)))
if [ "$left" -le 0 ]; then
	echo "the time of this host is over ($file): it switches itself off"
	systemctl poweroff
elif [ "$left" -le 600 ]; then
	echo "this host switches itself off in $left s; a later moment in $file prevents it"
fi
