#!/usr/bin/env bash
# A host's first start without a host: cloud-init, as Debian has it, takes the user data
# and carries it out in a copy of this machine's root (an overlay, gone afterwards), with
# real packages. systemctl, chronyc and sysctl are written down only: no systemd and no
# time service are there. Called by `scripts/terraform-check.sh --first-start`, which
# makes the file, as root, on Debian, in a mount and host name space of its own:
#
#	unshare -m -u --propagation private scripts/terraform-first-start.sh USER-DATA
set -euo pipefail
user_data=$(realpath -- "${1:?which user data?}")
source "$(dirname "$0")/lib.sh"
[ "$(readlink /proc/self/ns/mnt)" != "$(readlink /proc/1/ns/mnt)" ] || die "this mounts and names things: call it by scripts/terraform-check.sh --first-start"

space=$(mktemp -d)
mount -t tmpfs none "$space"
mkdir "$space"/{upper,work,root}
root=$space/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$space/upper,workdir=$space/work" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/run"
mount -t tmpfs none "$root/dev" # no disk of this machine can be seen
for d in null zero random urandom; do cp -a "/dev/$d" "$root/dev/"; done

within() { chroot "$root" env PATH=/written-down:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
mkdir "$root/written-down"
for c in systemctl chronyc sysctl; do
	printf '#!/bin/bash\necho "%s $*" >>/written-down/log\n' $c >"$root/written-down/$c"
	chmod +x "$root/written-down/$c"
done
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # packages start nothing
chmod +x "$root/usr/sbin/policy-rc.d"

within apt-get -qq update
within apt-get -qq -y --no-install-recommends install cloud-init >"$space/apt" 2>&1 || die "cloud-init: $(tail -5 "$space/apt")"
# Only what our user data asks for: not the disks, users and keys of an image.
cat >"$root/etc/cloud/cloud.cfg" <<'CFG'
datasource_list: [NoCloud, None]
cloud_init_modules: [write-files, set_hostname]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
system_info: {distro: debian, paths: {cloud_dir: /var/lib/cloud/, templates_dir: /etc/cloud/templates/}}
CFG
seed=$root/var/lib/cloud/seed/nocloud
mkdir -p "$seed"
gzip -c "$user_data" >"$seed/user-data" # as EC2 gets it
echo 'instance-id: i-1' >"$seed/meta-data"
{ within cloud-init init && within cloud-init modules --mode=config && within cloud-init modules --mode=final; } >"$space/said" 2>&1 || die "cloud-init: $(tail -20 "$space/said")"
within cloud-init schema --system

grep -m1 '^provisioned: ' "$space/said" || die "the host is not provisioned: $(tail -20 "$space/said")"
[ "$(head -2 "$root/written-down/log" | tail -1)" = "systemctl enable --now tailrace-deadline.timer" ] || die "the safety stop is not the first thing: $(cat "$root/written-down/log")"
grep -qx "systemctl enable --now tailrace-disk.service" "$root/written-down/log" || die "the disk is not mounted: $(cat "$root/written-down/log")"
within id tailrace
for f in terraform/templates/units/*; do cmp "$f" "$root/etc/systemd/system/${f##*/}"; done
[ -s "$root/etc/chrony/conf.d/tailrace.conf" ] || die "chrony was not told of the time service"
[ "$(within tailrace-redis --version | cut -d' ' -f1)" = Redis ] || die "there is no Redis"

# Once more, as after an error: the end of the host's life stays where it was.
deadline=$(cat "$root/etc/tailrace/deadline")
within /usr/local/sbin/tailrace-provision >"$space/said" 2>&1 || die "the second time: $(tail -20 "$space/said")"
[ "$deadline" = "$(cat "$root/etc/tailrace/deadline")" ] || die "the second time moves the deadline"
echo "first start: $(within cloud-init --version 2>&1), all units in place, twice the same"
