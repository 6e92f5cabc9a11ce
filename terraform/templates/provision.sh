#!/usr/bin/env bash
# What a host does at its first start, before any program of ours is on it: the end of
# its life is set, the local disk is mounted, packages are there, the clock is right.
# Run by cloud-init, whose status then says how it went (cloud-init status --wait); can
# be run again. /etc/tailrace/host says what the host is for.
set -euo pipefail
# shellcheck source=/dev/null
source /etc/tailrace/host

# First of all the safety stop: what comes behind it may hang.
[ -s /etc/tailrace/deadline ] || echo $(($(date +%s) + MAX_MINUTES * 60)) >/etc/tailrace/deadline
systemctl daemon-reload
systemctl enable --now tailrace-deadline.timer

id tailrace >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin tailrace
install -d -m 0750 -g tailrace /etc/tailrace/tls

systemctl enable --now tailrace-disk.service

# retry COMMAND…: a mirror that does not answer at once.
retry() {
	for _ in 1 2 3 4 5; do
		"$@" && return
		sleep 5
	done
	echo "error: $* failed five times" >&2
	return 1
}

# Nothing is to update itself in the middle of a run.
systemctl disable --now apt-daily.timer apt-daily-upgrade.timer dnf-makecache.timer >/dev/null 2>&1 || true

need=(chrony)
for p in $PACKAGES; do
	case $OS-$p in
	amazon-redis) need+=(redis6) ;;
	*-redis) need+=(redis-server) ;;
	*) need+=("$p") ;;
	esac
done
if [ "$OS" = amazon ]; then
	retry dnf -q -y install "${need[@]}"
else
	export DEBIAN_FRONTEND=noninteractive
	retry apt-get -q -o DPkg::Lock::Timeout=300 update
	retry apt-get -q -y -o DPkg::Lock::Timeout=300 install "${need[@]}"
fi
# The package's own Redis; ours is tailrace-redis.service, started by the scripts.
systemctl disable --now redis-server.service redis6.service >/dev/null 2>&1 || true
for redis in redis-server redis6-server; do
	if path=$(command -v "$redis"); then ln -sfn "$path" /usr/local/bin/tailrace-redis; fi
done
echo 'vm.overcommit_memory = 1' >/etc/sysctl.d/90-tailrace.conf # Redis forks to write its file anew
sysctl -q -p /etc/sysctl.d/90-tailrace.conf

# Event times of one host are compared with the clock of another: the time service of
# the host's own hypervisor, asked every 16 s. Amazon's image has it already.
if [ "$OS" != amazon ]; then
	printf '%s\n' 'server 169.254.169.123 prefer iburst minpoll 4 maxpoll 4' >/etc/chrony/conf.d/tailrace.conf
	systemctl restart chrony.service
fi
chronyc -n waitsync 60 0.01 0 1 # within 10 ms, for at most a minute

echo "provisioned: $(hostname), data in $DATA, ends at $(date -ud "@$(cat /etc/tailrace/deadline)" +%FT%TZ)"
