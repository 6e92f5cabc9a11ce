# shellcheck shell=bash
set -euo pipefail
# build: the programs for the hosts' architectures, unless --dist has them.

step_build() {
	local m arch arches=''
	each arch_of || die "the hosts cannot be asked for their architecture"
	for m in "${!machine_target[@]}"; do
		arch=$(cat "$tmp/arch_of.$m")
		case ,$arches, in *,$arch,*) ;; *) arches+=,$arch ;; esac
	done
	if [ -z "$dist" ]; then
		dist=$state/dist
		"$root/scripts/release.sh" --out "$dist" --arch "${arches#,}" >&2
	fi
	for arch in ${arches//,/ }; do programs_of "$arch"; done
	say "build: $(cat "$state/version") for ${arches#,}"
}

arch_of() {
	local facts
	facts=$(remote "$1" facts) || return
	machine_arch "$(awk '$1 == "arch" { print $2 }' <<<"$facts")"
}

# programs_of ARCH: checks the archive, and notes its version and its programs' checksums.
programs_of() {
	local files archive program
	files=("$dist"/tailrace-*-linux-"$1".tar.gz)
	[ -e "${files[0]}" ] || die "$dist has no programs for $1: make release, or leave out --dist"
	[ ${#files[@]} -eq 1 ] || die "$dist has ${#files[@]} builds for $1: remove all but one"
	archive=${files[0]##*/}
	(cd "$dist" && grep -F " $archive" SHA256SUMS | sha256sum -c --quiet) >&2 || die "$dist/$archive is not what SHA256SUMS says: make release"
	for program in tailrace nexmark; do
		tar -xzOf "$dist/$archive" "${archive%.tar.gz}/$program" | sha256sum | cut -d' ' -f1
	done >"$state/sums-$1"
	archive=${archive#tailrace-}
	echo "${archive%-linux-"$1".tar.gz}" >"$state/version"
}
