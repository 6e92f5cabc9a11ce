#!/usr/bin/env bash
# A cluster on several hosts over SSH, from build to report:
#
#   scripts/cluster/cluster.sh COMMAND --hosts FILE [--state DIR] […]
#
#   all       cost, check, build, upload, start, ready, sweep, collect, stop
#   cost      what the hosts cost until the safety stop
#   check     are the hosts there, and fit? Changes nothing
#   build     static programs for the hosts' architectures (scripts/release.sh)
#   upload    programs and keys, to hosts that do not have them
#   start     the safety stop, then all roles; what runs already is left alone
#   ready     waits until every process says so at /readyz
#   sweep     nexmark sweep on the control host, the hosts being looked at meanwhile
#   collect   report, rows and logs, into the state directory
#   status    what runs
#   stop      ends everything on the hosts, workers first
#   clean     takes away what upload and the roles have left there
#
#   --hosts FILE           the hosts (its format: hosts.sh; terraform output -raw hosts_file)
#   --state DIR            what is remembered and collected (./cluster-run). Killed and
#                          started again with the same one, everything resumes
#   --spec SPEC            of the sweep: a YAML file, or a built-in (nexmark sweep --list)
#   --dist DIR             take the programs from there (make release) instead of building
#   --max-hours H          the hosts end everything by themselves after that time (6)
#   --on-host-loss WHAT    a host is lost during the sweep: stop (default) or go-on
#   --ready-timeout S      seconds until everything must be ready (120)
#   --max-skew MS          how far clocks may be apart, milliseconds (50)
#   --min-free MIB         what must be free in each host's directory (2048)
#
# Each command can be given again at any time. Exit codes: 0 done, 1 failed, 2 bad usage.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ "${BASH_VERSINFO[0]}" -lt 5 ]; then
	echo "error: this is bash $BASH_VERSION: 5 or newer is wanted" >&2
	exit 2
fi
for file in "$here"/{lib,hosts,keys}.sh "$here"/steps/*.sh; do
	# shellcheck source=/dev/null
	source "$file"
done

# What is not used in this file is used by the steps.
# shellcheck disable=SC2034
settings() {
	hosts_file='' state=./cluster-run spec='' dist='' max_hours=6 on_host_loss=stop ready_timeout=120 max_skew=50 min_free=2048
	while [ $# -gt 0 ]; do
		[ $# -ge 2 ] || usage "$1: a value is missing"
		case $1 in
		--hosts) hosts_file=$2 ;;
		--state) state=$2 ;;
		--spec) spec=$2 ;;
		--dist) dist=$(cd "$2" 2>/dev/null && pwd) || usage "--dist $2: no such directory" ;;
		--max-hours) max_hours=$2 ;;
		--on-host-loss) on_host_loss=$2 ;;
		--ready-timeout) ready_timeout=$2 ;;
		--max-skew) max_skew=$2 ;;
		--min-free) min_free=$2 ;;
		*) usage "$1: there is no such option" ;;
		esac
		shift 2
	done
	[ -n "$hosts_file" ] || usage "--hosts: which hosts? terraform output -raw hosts_file prints those of EC2, scripts/cluster/rehearse.sh makes some of this machine"
	[[ $max_hours =~ ^[0-9]+(\.[0-9]+)?$ ]] && [ "$(awk -v h="$max_hours" 'BEGIN { print (h * 3600 >= 1) }')" = 1 ] || usage "--max-hours $max_hours: a number of hours"
	case $on_host_loss in stop | go-on) ;; *) usage "--on-host-loss $on_host_loss: stop or go-on" ;; esac
	[[ $ready_timeout =~ ^[0-9]+$ ]] || usage "--ready-timeout $ready_timeout: a number of seconds"
	[[ $max_skew =~ ^[0-9]+$ ]] || usage "--max-skew $max_skew: a number of milliseconds"
	[[ $min_free =~ ^[0-9]+$ ]] || usage "--min-free $min_free: a number of MiB"
}

all() {
	[ -n "$spec" ] || usage "--spec: which sweep? a YAML file, or the name of a built-in one (nexmark sweep --list)"
	step_cost
	step_check
	step_build
	# From here on whatever goes wrong is not left running; SIGKILL is what the safety
	# stop is for.
	trap 'code=$?; trap - EXIT; if [ -e "$state/started" ] && [ -z "$stopped" ]; then say "stopping what runs"; step_stop || true; fi; rm -rf "$tmp"; exit $code' EXIT
	step_upload
	step_start
	step_ready
	step_sweep
	step_collect
	step_stop || die "the sweep is done and collected, but not all hosts could be told to stop"
	[ "$(cat "$state/sweep-code")" = 0 ] || die "some cases have failed or are void: see $state/results/$(cat "$state/sweep-name")/report.html"
}

case ${1-} in
'' | -h | --help | help)
	sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "$0"
	exit 0
	;;
all | cost | check | build | upload | start | ready | sweep | collect | status | stop | clean) command=$1 ;;
*) usage "there is no command $1" ;;
esac
shift
settings "$@"
mkdir -p "$state"
state=$(cd "$state" && pwd)
# Ctrl-C and SIGTERM go the way of an error: the EXIT trap.
trap 'exit 130' INT TERM
tmp=$(mktemp -d) stopped=''
trap 'rm -rf "$tmp"' EXIT
read_hosts "$hosts_file"
if [ "$command" != status ] && command -v flock >/dev/null; then
	exec 9>"$state/lock"
	flock -w 30 9 || die "$state: another cluster.sh works with this state directory; wait for it, or use another --state"
fi
if [ "$command" = all ]; then all; else "step_$command"; fi
