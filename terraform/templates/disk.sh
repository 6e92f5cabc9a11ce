#!/usr/bin/env bash
# Mounts the host's local NVMe disk at $DATA, at every start of the host: an instance
# store keeps its files over a restart and is empty after everything else. Only a disk
# that is blank is formatted; one with our label is mounted as it is; on one with
# anything else on it nothing is touched. Without a local disk, a host that does not
# need one keeps its data on the root disk; one that does is refused, and the services,
# which require this one, do not start.
set -euo pipefail
# shellcheck source=/dev/null
source "${1:-/etc/tailrace/host}"
label=tailrace

fail() {
	echo "error: $(hostname): $*" >&2
	exit 1
}

if ! mountpoint -q "$DATA"; then
	# By model: the order of /dev/nvme* is another one at each start.
	mapfile -t disks < <(lsblk -dnpo NAME,MODEL | awk '/Amazon EC2 NVMe Instance Storage/ { print $1 }' | sort)
	if [ ${#disks[@]} -eq 0 ]; then
		[ "${DISK:?}" != required ] || fail "no local NVMe disk, and this host keeps its data on one: choose an instance type that has it (c5d, c6id, c7gd, i4i)"
		echo "no local NVMe disk: $DATA is on the root disk"
	else
		disk=${disks[0]}
		[ ${#disks[@]} -eq 1 ] || echo "${#disks[@]} local disks, $disk is used"
		# blkid: 0 found something, 2 found nothing; anything else is a disk that does not answer.
		code=0
		found=$(blkid -p -o export "$disk") || code=$?
		case $code in
		0) grep -qx "LABEL=$label" <<<"$found" || fail "$disk holds something that is not ours ($(tr '\n' ' ' <<<"$found")): if it can go, wipefs -a $disk, then systemctl restart tailrace-disk" ;;
		2)
			# Tables are written now, not by the kernel in the middle of a run.
			mkfs.ext4 -q -L "$label" -m 0 -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
			;;
		*) fail "$disk cannot be read (blkid: exit code $code)" ;;
		esac
		mkdir -p "$DATA"
		mount -o noatime "$disk" "$DATA"
		echo "$disk is mounted at $DATA"
	fi
fi
install -d -m 0755 "$DATA"
for role in sequencer storage manager etcd worker redis coordinator; do
	install -d -m 0750 -o tailrace -g tailrace "$DATA/$role"
done
