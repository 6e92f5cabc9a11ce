package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

func TestParseAuto(t *testing.T) {
	a, err := parseAuto("counts", "2..8")
	require.NoError(t, err)
	require.Equal(t, tasks.Autoscale{Stage: "counts", Min: 2, Max: 8}, a)
	a, err = parseAuto("counts", "off")
	require.NoError(t, err)
	require.True(t, a.Off())
	for _, bounds := range []string{"", "2", "0..3", "4..3", "2..x", "on"} {
		_, err := parseAuto("counts", bounds)
		require.ErrorContains(t, err, "write the least and the largest number of tasks, as in 2..8, or off", bounds)
	}
	for _, text := range []string{"2..8", "=2..8"} {
		_, err := parseAutos(nil, []string{text})
		require.ErrorContains(t, err, "write STAGE=MIN..MAX")
	}
}

// Flags that exclude each other, or name nothing, are refused before a cluster is asked.
func TestRescaleUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--auto", "2..8"}, "--stage: which one?"},
		{[]string{"--stage", "s", "--auto", "2..8", "--parallelism", "3"}, "--auto and --parallelism: one of them"},
		{[]string{"--stage", "s", "--auto", "8..2"}, "write the least"},
		{[]string{"--cancel", "--auto", "2..8"}, "--cancel and --auto: one of them"},
		{[]string{"--stage", "s", "--parallelism", "2", "--mode", "quick"}, `--mode "quick": choose one of move, rebuild, stop-stage, order-unaware, gradual`},
		{[]string{"--stage", "s", "--parallelism", "2", "--mode", "restart"}, `--mode "restart": choose one of move`},
	} {
		cmd := newJobRescale()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"job"}, c.args...))
		require.ErrorContains(t, cmd.Execute(), c.want)
	}
}
