#!/usr/bin/env bash
# Hosts on this machine, to rehearse on: directories, each with an address of its own in
# 127.0.0.0/8 and an sshd that listens there, with keys made for it.
#
#   scripts/cluster/local-hosts.sh up DIR [N]      N hosts (3) in DIR; DIR/hosts is the hosts file
#   scripts/cluster/local-hosts.sh up DIR [N] netns   as root: each a network namespace, in 10.0.0.0/8
#   scripts/cluster/local-hosts.sh up DIR [N] systemd   as root: the same, each with a systemd of its own and the
#                                                  units of terraform/templates, started by it
#   scripts/cluster/local-hosts.sh kill DIR HOST   the power of host-N fails: all of its processes and its sshd
#   scripts/cluster/local-hosts.sh boot DIR HOST   its sshd again
#   scripts/cluster/local-hosts.sh down DIR        everything is ended and DIR removed
#
# Every process of a host carries TAILRACE_HOST=DIR/HOST, from its sshd on: that is how
# they are found, and nobody else's is touched.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() {
	say "error: $*"
	exit 1
}

# processes HOST: those that carry its mark, its sshd (which writes its title over its
# environment), and what these have begun.
processes() {
	local file pid stat words
	local -A of=()
	for file in /proc/[0-9]*; do
		pid=${file#/proc/}
		if grep -qzxF "TAILRACE_HOST=$dir/$1" "$file/environ" || grep -qaF "$dir/ssh/$1.config" "$file/cmdline"; then of[$pid]=yes; fi
	done 2>/dev/null
	for file in /proc/[0-9]*/stat /proc/[0-9]*/stat; do # twice: sshd begins one that begins another
		stat=$(cat "$file" 2>/dev/null) || continue
		read -ra words <<<"${stat##*) }"
		[ -z "${of[${words[1]}]-}" ] || of[${file//[!0-9]/}]=yes
	done
	for pid in "${!of[@]}"; do
		[ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || echo "$pid"
	done
}

kill_host() {
	local pids tries
	for ((tries = 0; tries < 100; tries++)); do
		mapfile -t pids < <(processes "$1")
		[ ${#pids[@]} -gt 0 ] || return 0
		kill -KILL "${pids[@]}" 2>/dev/null || true
		read -rt 0.05 <> <(:) || true
	done
	die "$1: processes ${pids[*]} do not end"
}

boot_host() {
	local at within=() tries
	at=$(cat "$dir/ssh/$1.address")
	[ ! -e "$dir/ssh/netns" ] || within=(ip netns exec "$(cat "$dir/ssh/netns")-$1")
	if [ -e "$dir/ssh/units" ]; then
		within+=(unshare --fork --kill-child --pid --mount --cgroup --uts --ipc --mount-proc setsid env TAILRACE_HOST="$dir/$1" bash "$dir/ssh/units/boot" "$dir" "$1")
	else
		within+=(setsid env TAILRACE_HOST="$dir/$1" "$sshd" -D -f "$dir/ssh/$1.config" -E "$dir/ssh/$1.log")
	fi
	"${within[@]}" </dev/null >/dev/null 2>&1 &
	for ((tries = 0; tries < 200; tries++)); do
		(exec 3<>"/dev/tcp/$at/2222") 2>/dev/null && return
		read -rt 0.05 <> <(:) || true
	done
	die "the sshd of $1 does not listen: $(tail -3 "$dir/ssh/$1.log")"
}

# units: what a machine has when cloud-init is done, as far as the scripts and the units
# see it: the units themselves, the user, the directories. What they need of a whole
# system (targets, the disk) is there in name only. /etc and /usr/local are copies on
# write, /run and /mnt are empty, so that nothing reaches this machine's own.
units() {
	local u=$dir/ssh/units t
	mkdir -p "$u"
	cp "$root"/terraform/templates/units/tailrace{@,-worker,-redis}.service "$u/" || die "there are no units in $root/terraform/templates/units"
	for t in sysinit basic shutdown network-online multi-user umount host; do
		printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$t" >"$u/$t.target"
	done
	printf '[Unit]\nDescription=disk\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n' >"$u/tailrace-disk.service"
	cat >"$u/boot" <<-'END'
		dir=$1 host=$2
		set -e
		mount --make-rprivate /
		for d in etc usr/local; do
			mkdir -p "$dir/ssh/$host.over/$d/up" "$dir/ssh/$host.over/$d/work"
			mount -t overlay overlay -o "lowerdir=/$d,upperdir=$dir/ssh/$host.over/$d/up,workdir=$dir/ssh/$host.over/$d/work" "/$d"
		done
		mkdir -p "$dir/ssh/$host.over/mnt"
		mount --bind "$dir/ssh/$host.over/mnt" /mnt
		mount -t tmpfs tmpfs /run
		mkdir -p /run/sshd
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		id tailrace >/dev/null 2>&1 || useradd --system --no-create-home tailrace
		install -d -m 0750 -g tailrace /etc/tailrace/tls
		for role in sequencer storage manager etcd worker redis; do install -d -m 0750 -o tailrace -g tailrace "/mnt/tailrace/$role"; done
		ln -sfn "$(command -v redis-server)" /usr/local/bin/tailrace-redis
		printf '[Unit]\nDefaultDependencies=no\n[Service]\nKillMode=process\nExecStart=%s -D -f %s -E %s\n' "$(command -v sshd || echo /usr/sbin/sshd)" "$dir/ssh/$host.config" "$dir/ssh/$host.log" >/run/sshd.service
		printf '[Unit]\nDefaultDependencies=no\nWants=sshd.service\n' >/run/host.target
		exec env container=other SYSTEMD_UNIT_PATH="/run:$dir/ssh/units" /lib/systemd/systemd --system --unit=host.target --log-target=console --show-status=no >"$dir/ssh/$host.systemd" 2>&1
	END
}

# network: a bridge, and a namespace for each host that is joined to it.
network() {
	local name=$1 i=$2
	ip netns add "$name-host-$i"
	ip link add "$name$i" type veth peer name eth0 netns "$name-host-$i"
	ip link set "$name$i" master "$name" up
	ip -n "$name-host-$i" addr add "$3/24" dev eth0
	ip -n "$name-host-$i" link set eth0 up
	ip -n "$name-host-$i" link set lo up
}

up() {
	local n=${1:-3} kind=${2:-} user net i at more=''
	case $kind in '' | netns | systemd) ;; *) die "$kind: netns, systemd, or nothing" ;; esac
	sshd=$(command -v sshd || command -v /usr/sbin/sshd) || die "no sshd: install it (Debian, Ubuntu: openssh-server)"
	[[ $n =~ ^[1-9]$ ]] || die "$n hosts: 1 to 9"
	[ ! -e "$dir" ] || [ -z "$(ls -A "$dir")" ] || die "$dir is not empty; local-hosts.sh down $dir removes what an earlier up has left"
	mkdir -p "$dir/ssh"
	chmod 700 "$dir/ssh"
	[ "$(id -u)" != 0 ] || mkdir -p /run/sshd # it wants that directory of root
	user=$(id -un)
	ssh-keygen -q -t ed25519 -N '' -C rehearsal -f "$dir/ssh/id"
	net=$((RANDOM % 126 + 65)).$((RANDOM % 250 + 2))
	[ "$kind" != systemd ] || units
	if [ -n "$kind" ]; then
		net=10.$net
		echo "tr${net//[!0-9]/}" | cut -c1-10 >"$dir/ssh/netns"
		ip link add "$(cat "$dir/ssh/netns")" type bridge
		ip addr add "$net.1/24" dev "$(cat "$dir/ssh/netns")"
		ip link set "$(cat "$dir/ssh/netns")" up
	else
		net=127.$net
	fi
	for ((i = 1; i <= n; i++)); do
		at=$net.$((10 + i))
		[ -z "$kind" ] || network "$(cat "$dir/ssh/netns")" "$i" "$at"
		ssh-keygen -q -t ed25519 -N '' -C "host-$i" -f "$dir/ssh/host-$i.key"
		echo "[$at]:2222 $(cut -d' ' -f1,2 "$dir/ssh/host-$i.key.pub")" >>"$dir/ssh/known_hosts"
		echo "$at" >"$dir/ssh/host-$i.address"
		cat >"$dir/ssh/host-$i.config" <<-END
			ListenAddress $at:2222
			HostKey $dir/ssh/host-$i.key
			AuthorizedKeysFile $dir/ssh/id.pub
			PidFile none
			StrictModes no
			UsePAM no
			PasswordAuthentication no
			KbdInteractiveAuthentication no
			PermitRootLogin prohibit-password
			AllowUsers $user
			MaxStartups 100
			SetEnv TAILRACE_HOST=$dir/host-$i
		END
		boot_host "host-$i"
	done
	{
		echo "# Hosts of local-hosts.sh: directories of this machine."
		echo "option identity $dir/ssh/id"
		echo "option known-hosts $dir/ssh/known_hosts"
		command -v redis-server >/dev/null || echo "option checkpoints none"
		[ "$kind" != systemd ] || more=" launch=systemd data=/mnt/tailrace"
		line() { echo "$1 $1-$2 $net.$((10 + $2)) $user@$net.$((10 + $2)) ssh-port=2222 home=$dir/host-$2$more $3"; }
		# nexmark bench --submit reads the rows from outside the job, and on a machine that
		# is everything at once it may come to them after they were trimmed.
		line control 1 TAILRACE_TRIM_INTERVAL=1m
		for ((i = 1; i <= n; i++)); do
			line sequencer "$i" TAILRACE_FSYNC=interval
			line storage "$i" "TAILRACE_MEMORY=128MiB TAILRACE_ZONE=zone-$((i % 3 + 1))"
			# systemd has one worker a host.
			[ "$i" -gt 2 ] || [ "$kind$i" = systemd2 ] || line input "$i" NEXMARK_MEMORY=256MiB
			[ "$i" -eq 1 ] || line compute "$i" NEXMARK_MEMORY=256MiB
		done
	} >"$dir/hosts"
}

down() {
	local i name
	for i in "$dir"/ssh/host-*.address; do
		[ -e "$i" ] || continue
		i=${i##*/} i=${i%.address}
		kill_host "$i"
		if [ -e "$dir/ssh/netns" ]; then
			name=$(cat "$dir/ssh/netns")
			ip netns del "$name-$i" 2>/dev/null || true
		fi
	done
	[ ! -e "$dir/ssh/netns" ] || ip link del "$(cat "$dir/ssh/netns")" 2>/dev/null || true
	rm -rf "${dir:?}"
}

[ $# -ge 2 ] || {
	sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "$0"
	exit 2
}
command=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
shift 2
sshd=$(command -v sshd || echo /usr/sbin/sshd)
case $command in
up) up "$@" ;;
kill) kill_host "$1" ;;
boot) boot_host "$1" ;;
down) down ;;
*) die "there is no command $command" ;;
esac
