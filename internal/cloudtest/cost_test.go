package cloudtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCost(t *testing.T) {
	b := newBox(t)
	b.terraform(`storage_type="i4i.xlarge"#with a comment
storage_count = 3 // three
  input_count = 0
spot = true
max_hours = 2
`)
	b.set("TF_VAR_storage_count", "9") // a file takes precedence over the environment
	b.set("TF_VAR_compute_count", "2")
	out, ok := b.run("scripts/cluster/cost.sh", "2.5")
	require.True(t, ok, out)
	// 0.384 + 3 × 0.3432 + 2 × 0.384 = 2.1816; 6 × (0.005 + 20 × 0.00011) = 0.0432
	require.Equal(t, `control    1 × c5d.2xlarge      0.3840 USD an hour each
storage    3 × i4i.xlarge       0.3432 USD an hour each
compute    2 × c5d.2xlarge      0.3840 USD an hour each
6 hosts asked for in BOX/terraform, 2.5 h: about 5.56 USD (2.22 an hour; of it 0.04 for root disks and addresses)
spot: usually a third to a half of that
an estimate by BOX/terraform/prices.tsv, traffic not counted: check it against the price list of your region
note: the hosts end themselves after 2 h (max_hours)
`, out)

	// The last file takes precedence.
	b.write("terraform/more.auto.tfvars", "storage_count = 1\n")
	out, ok = b.run("scripts/cluster/cost.sh", "1")
	require.True(t, ok, out)
	require.Contains(t, out, "storage    1 × i4i.xlarge")

	// What exists is counted rather than what is configured.
	b.write("terraform/terraform.tfstate", "{}")
	b.command("terraform", `[ "$*" = "-chdir=$TERRAFORM_DIR output -raw instances" ] && printf 'storage 7 c5d.large 20 demand\n'`)
	out, ok = b.run("scripts/cluster/cost.sh", "1")
	require.True(t, ok, out)
	require.Contains(t, out, "7 hosts made by terraform, 1 h: about 0.72 USD")
}

func TestCostRefuses(t *testing.T) {
	b := newBox(t)
	b.terraform(`compute_type = "c5d.huge"` + "\n")
	for _, args := range [][]string{{}, {"x"}, {"0"}, {"-1"}, {"1", "2"}, {"x", "-"}, {"1", "-", "-"}} {
		out, ok := b.run("scripts/cluster/cost.sh", args...)
		require.False(t, ok, out)
		require.Equal(t, "error: usage: scripts/cluster/cost.sh HOURS [-] (such as 2.5)\n", out, "%q", args)
	}
	out, ok := b.run("scripts/cluster/cost.sh", "1")
	require.False(t, ok, out)
	require.Equal(t, "error: BOX/terraform/prices.tsv has no price for c5d.huge (compute): misspelt? If not, add a line\n", out)
}
