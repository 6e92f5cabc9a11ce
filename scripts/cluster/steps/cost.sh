# shellcheck shell=bash
set -euo pipefail
# cost: what the hosts cost until the safety stop ends them, before anything is started.
# Prices are in terraform/prices.tsv (TYPE, USD an hour), the types in the hosts file
# (type=).

step_cost() {
	local m type price total=0 unknown=''
	for m in "${!machine_target[@]}"; do
		type=${machine_type[$m]}
		if [ -z "$type" ]; then
			unknown+=" ${machine_target[$m]}"
			continue
		fi
		price=$(awk -v t="$type" '$1 == t { print $2; exit }' "$root/terraform/prices.tsv" 2>/dev/null)
		if ! [[ $price =~ ^[0-9.]+$ ]]; then
			unknown+=" ${machine_target[$m]} ($type)"
			continue
		fi
		total=$(awk -v a="$total" -v b="$price" 'BEGIN { print a + b }')
	done
	say "cost: ${#machine_target[@]} hosts for at most $max_hours hours: $(awk -v t="$total" -v h="$max_hours" 'BEGIN { printf "%.2f USD (%.2f an hour)", t * h, t }')${unknown:+; without a price:$unknown}"
}
