#!/usr/bin/env bash
# What can be known of terraform/ without an AWS account and without the real provider:
# its form, that every argument is one of hashicorp/aws with the right type (against the
# schema in tools/tfschema), that its tests pass under a mocked provider, and that the
# mistakes in terraform/tests/mutations.tsv are caught.
#
#	scripts/terraform-check.sh             # the above, about a minute
#	scripts/terraform-check.sh --quick     # without the mistakes, 10 s: what CI runs
#	scripts/terraform-check.sh --linters   # tflint and checkov too: minutes at first
#	scripts/terraform-check.sh --first-start  # as root on Debian: cloud-init takes the user data
#	scripts/terraform-check.sh --schema    # is the schema what the npm package says?
#
# All is done in a copy: the stand-in provider must never meet a real .terraform or its
# lock file.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

command -v terraform >/dev/null || die "no terraform command: install 1.9 or newer (https://developer.hashicorp.com/terraform/install)"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset "${!TF_@}" # nothing of the caller's: TF_VAR_*, TF_DATA_DIR, TF_CLI_ARGS
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_CLI_CONFIG_FILE=$scratch/config.tfrc

# schema_is_current: tools/tfschema/provider/aws.json is what extract makes of the package.
schema_is_current() {
	local package=@cdktf/provider-aws@21.22.1 json=tools/tfschema/provider/aws.json names
	(cd "$scratch" && npm pack --silent "$package" >/dev/null && tar xzf ./*.tgz)
	mapfile -t names < <(sed -nE '/^ "data"/,$ s/^  "aws_(\w+)": .*/data-aws-\1/p; /^ "resources"/,/^ "data"/ s/^  "aws_(\w+)": .*/\1/p' "$json" | sort | tr _ -)
	[ ${#names[@]} -gt 0 ] || die "$json names no resource"
	go -C tools/tfschema run ./extract -package "$scratch/package" "${names[@]}" >"$scratch/aws.json"
	cmp "$scratch/aws.json" "$json" || die "$json is not what tools/tfschema/extract makes of $package"
	echo "schema: ${#names[@]} resources and data sources, as in $package"
}

# prepare makes the stand-in provider, and a copy of terraform/ that uses it.
prepare() {
	local stub=$tools/tfschema-provider version
	go -C tools/tfschema build -o "$stub" ./provider
	version=$("$stub" -version)
	local dir="$scratch/mirror/registry.terraform.io/hashicorp/aws/$version/$(go env GOOS)_$(go env GOARCH)"
	mkdir -p "$dir"
	cp "$stub" "$dir/terraform-provider-aws_v$version"
	printf 'provider_installation {\n  filesystem_mirror {\n    path = "%s/mirror"\n  }\n}\n' "$scratch" >"$TF_CLI_CONFIG_FILE"
	mkdir -p "$scratch/copy"
	git ls-files --cached --others --exclude-standard terraform | while read -r f; do [ ! -e "$f" ] || cp --parents "$f" "$scratch/copy/"; done
	copy=$scratch/copy/terraform
	terraform -chdir="$copy" init -input=false -no-color >"$scratch/init" 2>&1 || die "terraform init: $(cat "$scratch/init")"
}

form() {
	TF_CLI_CONFIG_FILE=/dev/null terraform fmt -check -diff -recursive terraform || die "not formatted: terraform fmt -recursive terraform"
}

# validate DIR: terraform validate, where a warning counts too.
validate() {
	local out
	out=$(terraform -chdir="$1" validate -no-color 2>&1) || { printf '%s\n' "$out"; return 1; }
	! grep -q Warning <<<"$out" || { printf '%s\n' "$out"; return 1; }
}

tests() {
	terraform -chdir="$copy" test -no-color >"$scratch/tests" 2>&1 || { cat "$scratch/tests"; return 1; }
	tail -1 "$scratch/tests"
}

# units: what systemd says of them; the programs that they start are not here.
units() {
	local dir=$scratch/units u out
	mkdir -p "$dir"
	cp terraform/templates/units/* "$dir"
	mv "$dir/tailrace@.service" "$dir/tailrace@storage.service"
	sed -i -E 's#/usr/local/s?bin/[a-z-]+#/bin/true#' "$dir"/*
	out=$(SYSTEMD_UNIT_PATH=$dir: systemd-analyze verify "$dir"/* 2>&1) && [ -z "$out" ] || die "$out"
	for u in "$dir"/*; do basename "$u"; done | xargs
}

# mutations applies the mistakes one by one. Each must be refused by what is to notice
# it, with the words that name it.
mutations() {
	local name by file from to want out n=0 mutant=$scratch/mutant
	while IFS=$'\t' read -r name by file from to want; do
		[[ -n $name && $name != \#* ]] || continue
		rm -rf "$mutant"
		cp -r "$copy" "$mutant"
		[ "$to" != - ] || to=
		grep -qF -- "$from" "$mutant/$file" || die "mutation \"$name\": $file has no \"$from\" any more: bring terraform/tests/mutations.tsv up to date"
		FROM=$from TO=$to perl -0pi -e 's/\Q$ENV{FROM}\E/$ENV{TO}/' "$mutant/$file"
		if [ "$by" = validate ]; then
			! out=$(validate "$mutant") || die "mutation \"$name\" is not noticed by validate ($file: $from -> $to)"
		else
			out=$(validate "$mutant") || die "mutation \"$name\" is noticed by validate, not by tests of $by: $out"
			! out=$(terraform -chdir="$mutant" test -no-color -filter="tests/$by.tftest.hcl" 2>&1) || die "mutation \"$name\" is not noticed by tests/$by.tftest.hcl ($file: $from -> $to)"
		fi
		tr -s ' \n│╷╵' ' ' <<<"$out" | grep -qF -- "$want" || die "mutation \"$name\" is refused, but without \"$want\":
$out"
		n=$((n + 1))
	done <terraform/tests/mutations.tsv
	[ $n -gt 0 ] || die "terraform/tests/mutations.tsv holds no mutation"
	echo "$n mistakes, each noticed"
}

# first_start: see scripts/terraform-first-start.sh. The control host's: it has packages.
first_start() {
	local key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHyGcbZtL1IxkZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ0mZ nobody"
	echo 'base64encode(local.user_data["control-1"])' |
		TF_VAR_ssh_cidr=203.0.113.7/32 TF_VAR_ssh_public_key=$key terraform -chdir="$copy" console | tr -d '"\n' | base64 -d >"$scratch/user-data"
	unshare -m -u --propagation private scripts/terraform-first-start.sh "$scratch/user-data"
}

linters() {
	[ -x "$tools/tflint" ] || go -C tools/tflint build -o "$tools/" tool
	"$tools/tflint" --chdir="$copy" --config="$PWD/tools/tflint/tflint.hcl"
	echo "tflint: nothing to say"
	if [ ! -x "$tools/checkov/bin/checkov" ]; then
		python3 -m venv "$tools/checkov"
		"$tools/checkov/bin/pip" install -q checkov==3.3.30
	fi
	local out
	out=$("$tools/checkov/bin/checkov" -d "$copy" --skip-path tests --framework terraform --skip-download --compact --quiet) || die "checkov: $out"
	! grep -q 'Parsing errors: [1-9]' <<<"$out" || die "checkov does not read all files: $out" # what it cannot read it does not check
	printf 'checkov: %s\n' "$(grep 'Passed checks' <<<"$out")"
}

case ${1-} in
'' | --quick | --linters | --first-start) ;;
--schema)
	schema_is_current
	exit
	;;
*) die "$1: use --quick, --linters, --first-start, --schema or nothing" ;;
esac
prepare
if [ "${1-}" = --first-start ]; then
	step "a host's first start" first_start
	exit
fi
step "terraform fmt" form
step "terraform validate: the provider's argument schema" validate "$copy"
step "terraform test: mocked provider" tests
if command -v systemd-analyze >/dev/null; then
	step "systemd units" units
fi
[ "${1-}" = --quick ] || step "mistakes are noticed" mutations
[ "${1-}" != --linters ] || step "tflint and checkov" linters
report
