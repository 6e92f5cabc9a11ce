# Sourced by scripts that must know what terraform/ is set to before, or without,
# anything being there: no terraform, no state, no credentials.
# shellcheck shell=bash
set -euo pipefail
terraform_dir=${TERRAFORM_DIR:-terraform}

# setting NAME: a variable's value, as terraform would take it: terraform.tfvars and
# *.auto.tfvars (the last one counts), else TF_VAR_NAME, else its default. Nothing if it
# has none. Values of one line only; what is given with -var is not seen.
setting() {
	local files=() value variable=TF_VAR_$1
	for f in "$terraform_dir/terraform.tfvars" "$terraform_dir"/*.auto.tfvars; do [ ! -r "$f" ] || files+=("$f"); done
	if [ ${#files[@]} -gt 0 ] && value=$(awk -v name="$1" '
		{ sub(/\r$/, "") }
		$0 ~ "^[ \t]*" name "[ \t]*=" { sub(/^[^=]*=[ \t]*/, ""); found = 1; value = $0 }
		END { if (!found) exit 1; print value }' "${files[@]}"); then
		plain "$value"
	elif [ -n "${!variable-}" ]; then
		printf '%s\n' "${!variable}"
	else
		value=$(awk -v name="$1" '
			$1 == "variable" { inside = $2 == "\"" name "\"" ; if (inside) known = 1 }
			inside && $1 == "default" { sub(/^[^=]*=[ \t]*/, ""); print }
			END { exit !known }' "$terraform_dir/variables.tf") || {
			echo "error: $terraform_dir/variables.tf has no variable $1" >&2
			return 1
		}
		plain "$value"
	fi
}

# plain VALUE: without quotes, or without the comment behind it.
plain() {
	local v=$1
	case $v in
	\"*) v=${v#\"} v=${v%%\"*} ;;
	*) v=${v%%#*} v=${v%%//*} v=${v%"${v##*[![:space:]]}"} ;;
	esac
	printf '%s\n' "$v"
}

# instances: what is to be paid for, as the output of the same name: role, number, type,
# GiB of root disk, spot or demand.
instances() {
	local role count market=demand
	[ "$(setting spot)" != true ] || market=spot
	for role in control storage compute input; do
		count=1 # of control hosts
		[ $role = control ] || count=$(setting ${role}_count)
		[[ $count =~ ^[0-9]+$ ]] || {
			echo "error: $terraform_dir: ${role}_count is \"$count\", not a number" >&2
			return 1
		}
		[ "$count" -eq 0 ] || echo "$role $count $(setting ${role}_type) $(setting root_gib) $market"
	done
}

# price TYPE: its line of prices.tsv, or nothing.
price() {
	awk -F '\t' -v type="$1" '$1 == type' "$terraform_dir/prices.tsv"
}
