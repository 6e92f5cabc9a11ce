# shellcheck shell=bash
set -euo pipefail
# Keys for the run: an authority, and a certificate for each host with its addresses.
# They stay in STATE/tls, readable by you only; the authority's key leaves this machine
# never. Good for 30 days: a run that is longer has other troubles.

make_keys() {
	local m dir name names address
	command -v openssl >/dev/null || die "no openssl command, which makes the keys: install it, or put \`option insecure\` into $hosts_file if the network is trusted"
	(
		umask 077
		mkdir -p "$state/tls"
		if ! openssl x509 -checkend 86400 -noout -in "$state/tls/ca.pem" >/dev/null 2>&1; then
			quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=tailrace ${option[cluster]}" \
				-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -keyout "$state/tls/ca.key" -out "$state/tls/ca.pem.new"
			mv "$state/tls/ca.pem.new" "$state/tls/ca.pem"
		fi
		for m in "${!machine_target[@]}"; do
			dir=$state/tls/${machine_id[$m]}
			names=''
			for address in $(tr ' ' '\n' <<<"${machine_addresses[$m]} 127.0.0.1" | sort -u); do
				if [[ $address =~ ^[0-9.]+$ ]]; then names+=,IP:$address; else names+=,DNS:$address; fi
			done
			# One that is of this authority and these addresses stays.
			if [ "$(cat "$dir/names" 2>/dev/null)" = "$names" ] && openssl verify -CAfile "$state/tls/ca.pem" "$dir/cert.pem" >/dev/null 2>&1; then
				continue
			fi
			mkdir -p "$dir"
			name=${machine_id[$m]}
			quietly openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=${name:0:60}" -keyout "$dir/key.pem" -out "$dir/request.pem"
			quietly openssl x509 -req -in "$dir/request.pem" -CA "$state/tls/ca.pem" -CAkey "$state/tls/ca.key" -CAcreateserial -days 30 -out "$dir/cert.pem" \
				-extfile <(printf 'subjectAltName=%s\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n' "${names#,}")
			echo "$names" >"$dir/names"
		done
	)
}

quietly() {
	local out
	out=$("$@" 2>&1) || die "$*: $out"
}
