# shellcheck shell=bash
set -euo pipefail
# cost: what the hosts cost until the safety stop ends them, before anything is started:
# those of the hosts file that have a type=, counted by scripts/cluster/cost.sh as on
# demand, with the root disks that terraform is set to. An estimate that cannot be made
# keeps nobody from going on.

step_cost() {
	local m gib rows='' without=0
	gib=$(source "$here/settings.sh" && terraform_dir=${TERRAFORM_DIR:-$root/terraform} && setting root_gib) || die "terraform/variables.tf: no root_gib"
	for m in "${!machine_target[@]}"; do
		if [ -n "${machine_type[$m]}" ]; then
			rows+="${machine_lines[$m]%%[-,]*} 1 ${machine_type[$m]} $gib demand"$'\n'
		else
			without=$((without + 1))
		fi
	done
	[ $without -eq 0 ] || say "cost: $without of ${#machine_target[@]} hosts have no type= in $hosts_file and are not counted"
	[ -n "$rows" ] || return 0
	sort <<<"${rows%$'\n'}" | uniq -c | awk '{ print $2, $1, $4, $5, $6 }' | "$here/cost.sh" "$max_hours" - >&2 || say "cost: no estimate"
}
