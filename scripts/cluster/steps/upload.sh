# shellcheck shell=bash
set -euo pipefail
# upload: programs and keys, to those that do not have them.

step_upload() {
	[ -e "$state/version" ] || die "nothing is built yet: the step build comes before"
	[ -n "$dist" ] || dist=$state/dist
	[ -n "${option[insecure]}" ] || make_keys
	each upload_to || die "not all hosts have the programs; run it again when the cause is gone"
	say "upload: $(cat "$state/version") is on all hosts"
}

upload_to() {
	local m=$1 arch sums here_sums data file files
	arch=$(arch_of "$m") || return
	[ -e "$state/sums-$arch" ] || { say "no programs for $arch were built: the step build comes before"; return 1; }
	read -ra data <<<"${machine_data[$m]}"
	remote "$m" claim ${data[@]+"${data[@]}"} || return
	mapfile -t sums <"$state/sums-$arch"
	here_sums=$(remote "$m" sums | cut -d' ' -f2 | tr '\n' ' ') || return
	if [ "$here_sums" != "${sums[0]} ${sums[1]} " ]; then
		file=$(echo "$dist"/tailrace-*-linux-"$arch".tar.gz)
		# shellcheck disable=SC2029 # the home is ours to expand
		open_ssh "$m" "rm -rf '${machine_home[$m]}/bin.new' && mkdir -p '${machine_home[$m]}/bin.new' && tar -xzf - --strip-components=1 -C '${machine_home[$m]}/bin.new'" <"$file" || return
		remote "$m" install_programs "${sums[@]}" || return
	fi
	files=("${machine_home[$m]}/remote.sh" 644 "$(encode <"$here/remote.sh")")
	if [ -z "${option[insecure]}" ]; then
		for file in cert.pem key.pem; do
			files+=("${machine_home[$m]}/tls/$file" 600 "$(encode <"$state/tls/${machine_id[$m]}/$file")")
		done
		files+=("${machine_home[$m]}/tls/ca.pem" 600 "$(encode <"$state/tls/ca.pem")")
	fi
	remote "$m" put "${files[@]}" || return
	[ -n "${option[insecure]}" ] || [ "${machine_launch[$m]}" = process ] || remote "$m" give_keys || return
	record upload "$m" "${sums[*]}"
}
