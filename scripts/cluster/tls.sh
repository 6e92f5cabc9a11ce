#!/usr/bin/env bash
# Makes the certificates of a cluster:
#
#	scripts/cluster/tls.sh HOSTS DIR
#
# An authority of its own (DIR/ca.pem, DIR/ca-key.pem) and for each address in the file
# HOSTS (lines "role name address ssh-target …") DIR/NAME/{cert,key,ca}.pem; also
# DIR/client/ for whoever runs tailrace from outside. Good for 30 days. Run again it
# makes only what is missing, is of another address or ends within a day.
#
# Not terraform's tls provider: that keeps every private key in the state file, readable,
# wherever the state is. Here a key is in two places: DIR, and the host it is for.
set -euo pipefail
# Files are named by whoever calls: lib.sh goes to the root of the clone.
hosts=$(realpath -m -- "${1:?usage: scripts/cluster/tls.sh HOSTS DIR}") dir=$(realpath -m -- "${2:?usage: scripts/cluster/tls.sh HOSTS DIR}")
source "$(dirname "$0")/../lib.sh"
command -v openssl >/dev/null || die "no openssl command: install it"
[ -r "$hosts" ] || die "$hosts: cannot be read; terraform output -raw hosts_file makes it"
umask 077
mkdir -p "$dir"

# sound FILE: it is there, of this authority, and good for another day.
sound() {
	[ -s "$1" ] && openssl x509 -in "$1" -noout -checkend 86400 >/dev/null && openssl verify -CAfile "$dir/ca.pem" "$1" >/dev/null 2>&1
}

if ! { [ -s "$dir/ca-key.pem" ] && sound "$dir/ca.pem"; }; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=tailrace cluster" \
		-addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign" \
		-keyout "$dir/ca-key.pem" -out "$dir/ca.pem" 2>/dev/null
	echo "authority: $dir/ca.pem"
fi

# issue NAME ADDRESS: DIR/NAME, unless it is sound and for that address.
issue() {
	local d=$dir/$1 names="IP:127.0.0.1,DNS:localhost,DNS:$1"
	if [[ $2 =~ ^[0-9.]+$ || $2 == *:* ]]; then names+=",IP:$2"; else names+=",DNS:$2"; fi
	if sound "$d/cert.pem" && [ -s "$d/key.pem" ] && [ "$(cat "$d/names" 2>/dev/null)" = "$names" ]; then
		return
	fi
	mkdir -p "$d"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$d/key.pem" -out "$d/request.pem" 2>/dev/null
	openssl x509 -req -in "$d/request.pem" -CA "$dir/ca.pem" -CAkey "$dir/ca-key.pem" -set_serial "0x$(openssl rand -hex 16)" -days 30 \
		-extfile <(printf 'subjectAltName=%s\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n' "$names") -out "$d/cert.pem" 2>/dev/null
	rm "$d/request.pem"
	cp "$dir/ca.pem" "$d/ca.pem"
	printf '%s\n' "$names" >"$d/names"
	echo "certificate: $d ($2)"
}

n=0 number=0
declare -A address=()
while read -r role name at _ || [ -n "$role" ]; do
	number=$((number + 1))
	[[ -n $role && $role != \#* ]] || continue
	[[ -n $at && $name =~ ^[A-Za-z0-9][A-Za-z0-9.-]*$ ]] || die "$hosts:$number: want role name address ssh-target [key=value …], with a name of letters, digits, dots and hyphens"
	[ "${address[$name]-$at}" = "$at" ] || die "$hosts:$number: $name has two addresses, ${address[$name]} and $at"
	[ -z "${address[$name]-}" ] || continue
	address[$name]=$at
	issue "$name" "$at"
	n=$((n + 1))
done <"$hosts"
[ $n -gt 0 ] || die "$hosts: no host in it"
issue client localhost
echo "tls: $n hosts in $dir"
