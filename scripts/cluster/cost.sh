#!/usr/bin/env bash
# What the cluster will cost for so many hours:
#
#	scripts/cluster/cost.sh HOURS
#	scripts/cluster/cost.sh HOURS -
#
# The hosts that terraform has made, if there are any, else those that its settings ask
# for; with - those of standard input, a line each: ROLE NUMBER TYPE GIB-OF-ROOT-DISK
# MARKET (demand, spot). Prices are those of terraform/prices.tsv, which is an estimate.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
source scripts/cluster/settings.sh

hours=${1-}
[[ ($# -eq 1 || $# -eq 2 && $2 == -) && $hours =~ ^[0-9]+(\.[0-9]+)?$ && $hours =~ [1-9] ]] || die "usage: scripts/cluster/cost.sh HOURS [-] (such as 2.5)"

if [ $# -eq 2 ]; then
	made=$(cat)
	from="in the hosts file"
elif [ -s "$terraform_dir/terraform.tfstate" ] && made=$(terraform -chdir="$terraform_dir" output -raw instances 2>/dev/null) && [ -n "$made" ]; then
	from="made by terraform"
else
	made=$(instances)
	from="asked for in $terraform_dir"
fi

rows="" all=0
while read -r role count type gib market; do
	line=$(price "$type")
	[ -n "$line" ] || die "$terraform_dir/prices.tsv has no price for $type ($role): misspelt? If not, add a line"
	usd=$(cut -f2 <<<"$line")
	rows+="$role $count $type $gib $market $usd"$'\n'
	all=$((all + count))
done <<<"$made"

printf '%s' "$rows" | awk -v hours="$hours" -v from="$from" -v file="$terraform_dir/prices.tsv" \
	-v address="$(price public-address | cut -f2)" -v gib="$(price root-disk-gib | cut -f2)" '
	{ printf "%-8s %3d × %-14s %8.4f USD an hour each\n", $1, $2, $3, $6
	  n += $2; hosts += $2 * $6; rest += $2 * (address + $4 * gib); market = $5 }
	END {
	  printf "%d hosts %s, %s h: about %.2f USD (%.2f an hour; of it %.2f for root disks and addresses)\n", n, from, hours, (hosts + rest) * hours, hosts + rest, rest
	  if (market == "spot") print "spot: usually a third to a half of that"
	  print "an estimate by " file ", traffic not counted: check it against the price list of your region"
	}'
# What cluster.sh counts is until its own end, which goes before this one.
[ $# -eq 1 ] || exit 0
limit=$(setting max_hours)
awk -v h="$hours" -v l="$limit" 'BEGIN { exit !(h > l) }' && echo "note: the hosts end themselves after $limit h (max_hours)"
exit 0
