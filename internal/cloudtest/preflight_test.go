package cloudtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const settings = `ssh_cidr       = "203.0.113.7/32" # home
ssh_public_key = "ssh-ed25519 AAAA you"
`

// aws gives AWS's answers, including the command's own warnings.
const aws = `
echo "warning: this Python is old" >&2
case " $* " in
*" sts get-caller-identity "*)
	[ -z "${OFFLINE-}" ] || { echo 'Could not connect to the endpoint URL: "https://sts.us-east-1.amazonaws.com/"'; exit 255; } >&2
	[ -z "${EXPIRED-}" ] || { echo; echo "An error occurred (ExpiredToken) when calling the GetCallerIdentity operation: The security token included in the request is expired"; exit 254; } >&2
	echo arn:aws:iam::123456789012:user/researcher ;;
*" describe-regions "*) case "$*" in *ap-east-1*) echo not-opted-in ;; *) echo opt-in-not-required ;; esac ;;
*" describe-instance-types "*)
	case "$*" in
	*" c7gd.2xlarge "*) echo "8	arm64	474" ;;
	*" c5.2xlarge "*) echo "8	x86_64	None" ;;
	*" c5d.2xlarge "*) echo "8	x86_64	200" ;;
	*) { echo; echo "An error occurred (InvalidInstanceType) when calling the DescribeInstanceTypes operation: The following supplied instance types do not exist: [c5d.3xlarge]"; exit 254; } >&2 ;;
	esac ;;
*" L-34B43A08 "*) echo 512.0 ;;
*" get-service-quota "*) [ -z "${DENIED-}" ] || { echo "An error occurred (AccessDeniedException) when calling the GetServiceQuota operation: User is not authorized"; exit 254; } >&2
	echo "${QUOTA:-256.0}" ;;
*) echo "not known: $*" >&2; exit 252 ;;
esac`

func preflight(t *testing.T, settings string, online bool, vars ...string) (string, bool) {
	b := newBox(t)
	b.terraform(settings)
	b.command("terraform", "")
	b.command("ssh", "")
	b.command("openssl", "")
	if online {
		b.command("aws", aws)
	}
	b.set("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
	b.set("AWS_SECRET_ACCESS_KEY", "secret")
	b.vars = append(b.vars, vars...)
	return b.run("scripts/cluster/preflight.sh")
}

func TestPreflightPasses(t *testing.T) {
	out, ok := preflight(t, settings, true)
	require.True(t, ok, out)
	require.Equal(t, `account: arn:aws:iam::123456789012:user/researcher
quota: 104 of 256 vCPUs; what else runs in us-east-2 counts too
preflight: nothing stands in the way that can be seen from here
`, out)

	out, ok = preflight(t, settings, false)
	require.True(t, ok, out)
	require.Contains(t, out, "note: no aws command: types are looked up in BOX/terraform/prices.tsv, the quota is not known\n")

	out, ok = preflight(t, settings, true, "DENIED=1")
	require.True(t, ok, "a host that may not read quotas is not refused: %s", out)
	require.Contains(t, out, "note: the quota is not known: An error occurred (AccessDeniedException)")

	out, ok = preflight(t, settings+"spot = true\n", true, "QUOTA=8.0")
	require.True(t, ok, "spot has a quota of its own: %s", out)
	require.Contains(t, out, "104 of 512 vCPUs")
}

func TestPreflightRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		online   bool
		vars     []string
		want     string
	}{
		"no settings":          {"", true, nil, "error: BOX/terraform/terraform.tfvars: no ssh_cidr: see BOX/terraform/terraform.tfvars.example"},
		"half a key":           {settings, true, []string{"AWS_SECRET_ACCESS_KEY="}, "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set"},
		"no credentials":       {settings, true, []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, "error: no AWS credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor AWS_PROFILE, nor a default profile in BOX/.aws/credentials BOX/.aws/config: aws configure, or aws sso login"},
		"no such profile":      {settings, true, []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_PROFILE=lab"}, "error: AWS_PROFILE=lab: no such profile in BOX/.aws/credentials"},
		"expired":              {settings, true, []string{"EXPIRED=1"}, "error: credentials: AWS does not take them: An error occurred (ExpiredToken)"},
		"no network":           {settings, true, []string{"OFFLINE=1"}, "error: AWS cannot be reached: Could not connect to the endpoint URL"},
		"region":               {settings + `region = "us-east-3"` + "\n", true, nil, `error: region "us-east-3": no such region: one of af-south-1`},
		"region of others":     {settings + `region = "ap-east-1"` + "\n", true, nil, "error: region ap-east-1: this account has not opted in to it"},
		"type":                 {settings + `compute_type = "c5d.3xlarge"` + "\n", true, nil, "error: compute_type c5d.3xlarge: us-east-2 has no such instance type: misspelt"},
		"type, without aws":    {settings + `compute_type = "c5d.3xlarge"` + "\n", false, nil, "error: compute_type c5d.3xlarge: not in BOX/terraform/prices.tsv: misspelt?"},
		"no disk":              {settings + `storage_type = "c5.2xlarge"` + "\n", true, nil, "error: storage_type c5.2xlarge has no local disk"},
		"no disk, without aws": {settings + `storage_type = "c5.2xlarge"` + "\n", false, nil, "error: storage_type c5.2xlarge has no local disk"},
		"architecture":         {settings + `input_type = "c7gd.2xlarge"` + "\n", true, nil, "error: input_type c7gd.2xlarge is arm64, and architecture is amd64: change one of them"},
		"quota":                {settings, true, []string{"QUOTA=32.0"}, `error: quota: these hosts have 104 vCPUs, us-east-2 allows this account 32 ("Running On-Demand Standard instances", L-1216C47A)`},
		"count":                {settings + "input_count = many\n", true, nil, `error: BOX/terraform: input_count is "many", not a number`},
	} {
		out, ok := preflight(t, c.settings, c.online, c.vars...)
		require.False(t, ok, "%s: %s", name, out)
		require.Contains(t, out, c.want, name)
		require.Contains(t, out, "to be put right before terraform apply; nothing was started", name)
	}

	// All problems are reported in one run.
	out, _ := preflight(t, `region = "moon"`+"\n"+`storage_type = "c5d"`+"\n", false)
	require.Equal(t, 4, strings.Count(out, "error: ")-1, out)
}

func TestPreflightFindsAProfile(t *testing.T) {
	b := newBox(t)
	b.terraform(settings)
	b.command("terraform", "")
	b.command("ssh", "")
	b.command("openssl", "")
	b.write(".aws/config", "[profile lab]\nregion = us-east-2\n")
	b.set("AWS_PROFILE", "lab")
	out, ok := b.run("scripts/cluster/preflight.sh")
	require.True(t, ok, out)
	b.set("AWS_PROFILE", "la")
	out, ok = b.run("scripts/cluster/preflight.sh")
	require.False(t, ok, out)
}
