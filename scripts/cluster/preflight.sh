#!/usr/bin/env bash
# Looks for what would stop terraform half-way, before anything is made: settings,
# credentials, region, instance types, quota. Says everything that is wrong at once, each
# with its place and what to do, and then fails.
#
#	scripts/cluster/preflight.sh
#
# With the aws command AWS itself is asked (read only: sts, ec2 describe, service-quotas);
# without it types are looked up in terraform/prices.tsv and the quota is not known.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
source scripts/cluster/settings.sh

export AWS_PAGER="" AWS_MAX_ATTEMPTS=2
problems=0
problem() {
	echo "error: $*" >&2
	problems=$((problems + 1))
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# ask ARGUMENT…: the aws command; what it answers, or why it fails, is in $answer.
ask() {
	answer=$(aws --cli-connect-timeout 5 --cli-read-timeout 20 --output text "$@" 2>"$errors") || {
		answer=$(<"$errors")
		return 1
	}
}
# said: the last line of an answer that is an error.
said() { awk 'NF { line = $0 } END { print line }' <<<"$answer"; }

commands() {
	local c
	for c in terraform ssh openssl; do
		command -v "$c" >/dev/null || problem "no $c command: install it (terraform: 1.9 or newer)"
	done
}

required() {
	local v
	for v in ssh_cidr ssh_public_key; do
		[ -n "$(setting $v)" ] || problem "$terraform_dir/terraform.tfvars: no $v: see $terraform_dir/terraform.tfvars.example"
	done
}

# credentials: where the provider looks for them, in its order. 0 if there are some.
credentials() {
	local profile=${AWS_PROFILE:-} files=("${AWS_SHARED_CREDENTIALS_FILE:-$HOME/.aws/credentials}" "${AWS_CONFIG_FILE:-$HOME/.aws/config}") f
	if [ -n "${AWS_ACCESS_KEY_ID-}${AWS_SECRET_ACCESS_KEY-}" ]; then
		[[ -n ${AWS_ACCESS_KEY_ID-} && -n ${AWS_SECRET_ACCESS_KEY-} ]] && return
		problem "environment: of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set: set both, or neither and AWS_PROFILE"
		return 1
	fi
	[ -z "${AWS_WEB_IDENTITY_TOKEN_FILE-}${AWS_CONTAINER_CREDENTIALS_RELATIVE_URI-}${AWS_CONTAINER_CREDENTIALS_FULL_URI-}" ] || return 0
	for f in "${files[@]}"; do
		[ ! -r "$f" ] || ! grep -qE "^\[(profile +)?${profile:-default}\]" "$f" || return 0
	done
	if [ -n "$profile" ]; then
		problem "AWS_PROFILE=$profile: no such profile in ${files[*]}: aws configure --profile $profile, or name another one"
	else
		problem "no AWS credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor AWS_PROFILE, nor a default profile in ${files[*]}: aws configure, or aws sso login"
	fi
	return 1
}

# On 2026-11-21; a newer one is told by AWS itself if the aws command is there.
regions="af-south-1 ap-east-1 ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2
	ap-southeast-1 ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 ca-central-1 ca-west-1
	eu-central-1 eu-central-2 eu-north-1 eu-south-1 eu-south-2 eu-west-1 eu-west-2 eu-west-3 il-central-1
	me-central-1 me-south-1 mx-central-1 sa-east-1 us-east-1 us-east-2 us-west-1 us-west-2"

region() {
	[[ " $(tr -s '\n\t' ' ' <<<"$regions") " == *" $1 "* ]] || {
		problem "region \"$1\": no such region: one of $(tr -s '\n\t' ' ' <<<"$regions"), without the zone's letter"
		return 1
	}
	$online || return 0
	if ! ask ec2 describe-regions --region us-east-1 --all-regions --region-names "$1" --query 'Regions[0].OptInStatus'; then
		problem "region $1: $(said)"
		return 1
	elif [ "$answer" = not-opted-in ]; then
		problem "region $1: this account has not opted in to it: enable it in the console (Account, AWS Regions), or choose another"
		return 1
	fi
}

# type_of ROLE TYPE: sets vcpus; says what is wrong with the type.
type_of() {
	local role=$1 type=$2 arch disk
	vcpus=0
	if $online; then
		if ! ask ec2 describe-instance-types --region "$region" --instance-types "$type" \
			--query 'InstanceTypes[0].[VCpuInfo.DefaultVCpus, ProcessorInfo.SupportedArchitectures[0], InstanceStorageInfo.TotalSizeInGB]'; then
			if [[ $answer == *InvalidInstanceType* ]]; then
				problem "${role}_type $type: $region has no such instance type: misspelt, or offered elsewhere only (aws ec2 describe-instance-types --region $region)"
			else
				problem "${role}_type $type: $(said)"
			fi
			return 0
		fi
		read -r vcpus arch disk <<<"$answer"
		arch=${arch/x86_64/amd64}
	else
		local line
		line=$(price "$type")
		if [ -z "$line" ]; then
			problem "${role}_type $type: not in $terraform_dir/prices.tsv: misspelt? If not, add a line, or install the aws command so that AWS can be asked"
			return 0
		fi
		IFS=$'\t' read -r _ _ vcpus arch disk <<<"$line"
	fi
	[ "$arch" = "$architecture" ] || problem "${role}_type $type is $arch, and architecture is $architecture: change one of them"
	[[ $role != storage || $disk =~ ^[1-9] ]] || problem "storage_type $type has no local disk, and storage hosts keep the log on one: choose a type with a d (c5d, c6id, c7gd) or of the i families (i4i)"
}

# quota: the vCPUs that an account may have at once of the usual families.
quota() {
	local code=L-1216C47A what="Running On-Demand Standard instances" limit
	if [ "$(setting spot)" = true ]; then
		code=L-34B43A08 what="All Standard Spot Instance Requests"
	fi
	if ! ask service-quotas get-service-quota --region "$region" --service-code ec2 --quota-code "$code" --query Quota.Value; then
		echo "note: the quota is not known: $(said)"
		return
	fi
	limit=${answer%.*}
	if [ "$limit" -lt "$standard" ]; then
		problem "quota: these hosts have $standard vCPUs, $region allows this account $limit (\"$what\", $code): fewer or smaller hosts, or ask for more (aws service-quotas request-service-quota-increase --region $region --service-code ec2 --quota-code $code --desired-value $standard)"
	else
		echo "quota: $standard of $limit vCPUs; what else runs in $region counts too"
	fi
}

commands
required
region=$(setting region) architecture=$(setting architecture)
online=false
if credentials; then
	if ! command -v aws >/dev/null; then
		echo "note: no aws command: types are looked up in $terraform_dir/prices.tsv, the quota is not known"
	elif ask sts get-caller-identity --region us-east-1 --query Arn; then
		online=true
		echo "account: $answer"
	elif [[ $answer == *"Could not connect"* || $answer == *"timeout on"* ]]; then
		problem "AWS cannot be reached: $(said): look at the network, a proxy (HTTPS_PROXY), AWS_ENDPOINT_URL"
	else
		problem "credentials: AWS does not take them: $(said): log in again (aws sso login), or aws configure"
	fi
fi
region "$region" || online=false
hosts=$(instances) || problems=$((problems + 1))
standard=0
while read -r role count type _; do
	[ -n "$role" ] || continue
	type_of "$role" "$type"
	[[ ! $type =~ ^[acdhimrtz][0-9] ]] || standard=$((standard + count * vcpus))
done <<<"$hosts"
! $online || quota
[ $problems -eq 0 ] || die "$problems to be put right before terraform apply; nothing was started"
echo "preflight: nothing stands in the way that can be seen from here"
