package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/balance"
)

// The command computes each combination of what its flags list, and refuses what makes no sense.
func TestBalance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "balance.json")
	code, stderr := nexmark(t, "balance", "--tasks=8", "--key-groups=256", "--keys=1e3,20000", "--key-ids=sequential,prefix", "--key-weights=uniform,zipf:0.8", "--dispatch=hash,least-count", "--json="+file)
	require.Zero(t, code, stderr)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var all []balance.Result
	require.NoError(t, json.Unmarshal(b, &all))
	require.Len(t, all, 16)
	for i := 0; i < len(all); i += 2 {
		require.Equal(t, "hash", all[i].Dispatch)
		require.Equal(t, "least-count", all[i+1].Dispatch)
		require.Greater(t, all[i+1].Degree, all[i].Degree, "%+v", all[i])
		require.Less(t, all[i+1].Extra, all[i].Extra)
	}
	for _, c := range []struct{ flag, want string }{
		{"--keys=0", "use whole numbers from 1 to 16777216"},
		{"--keys=1e9", "use whole numbers from 1 to 16777216"},
		{"--key-ids=random", "use sequential or prefix"},
		{"--key-weights=zipf", "use uniform or zipf:S"},
		{"--dispatch=best", `there is no dispatch "best"; use hash, least-key`},
		{"--tasks=300", "300 tasks, 256 key groups: each task needs one"},
		{"--key-groups=0", "key groups: 0 is out of bounds 1 to 1024"},
		{"--key-groups=100000000", "key groups: 100000000 is out of bounds 1 to 1024"},
		{"--slots=100000000", "there are at most 16384 together"},
		{"--task-weights=3,1", "2 weights for 8 tasks"},
		{"--task-weights=0", "use numbers above 0"},
		{"--task-weights=NaN,1,1,1,1,1,1,1", "use numbers above 0"},
		{"--task-weights=Inf,1,1,1,1,1,1,1", "task weight +Inf: use numbers above 0, from 0.001 to 1000, as 3,1,1"},
		{"--dispatch=", "--dispatch: it is empty"},
		{"--key-ids=", "--key-ids: it is empty"},
		{"--key-weights=", "--key-weights: it is empty"},
		{"more", `unexpected argument "more"`},
	} {
		code, stderr := nexmark(t, "balance", c.flag)
		require.Equal(t, 2, code, c.flag)
		require.Contains(t, stderr, c.want)
	}
}
