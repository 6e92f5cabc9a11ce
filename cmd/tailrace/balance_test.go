package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Flags that exclude each other, or name nothing, are refused before a cluster is asked.
func TestBalanceUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--balance", "below=0.9"}, "--stage: which one?"},
		{[]string{"--stage", "s"}, "--balance: when?"},
		{[]string{"--stage", "s", "--balance", "sometimes"}, `"sometimes": use off, every=20s`},
		{[]string{"--stage", "s", "--none", "--balance", "off"}, "--none and --balance: one of them"},
		{[]string{"--stage", "s", "--balance", "off", "--dispatch", "best"}, `there is no dispatch "best"`},
		{[]string{"--stage", "s", "--balance", "off", "--task-weights", "3,x"}, "use numbers above 0"},
		{[]string{"--stage", "s", "--balance", "off", "--task-weights", "3,0"}, "use numbers above 0"},
	} {
		cmd := newJobBalance()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"job"}, c.args...))
		require.ErrorContains(t, cmd.Execute(), c.want)
	}
}
