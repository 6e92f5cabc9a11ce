package faulttest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
)

// appendLines appends n records of each of a few writers, and returns the acknowledged ones.
func appendLines(t *testing.T, log sharedlog.Log, name string, n int) (acknowledged []string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []*sharedlog.Pending
	for i := range 6 {
		w := sharedlog.NewWriter(log, fmt.Sprint(name, i), sharedlog.Condition{})
		for j := range n {
			line := fmt.Sprint(name, i, ".", j)
			acknowledged = append(acknowledged, line)
			all = append(all, w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(line)}))
		}
	}
	for _, p := range all {
		_, err := p.Wait(ctx)
		require.NoError(t, err)
	}
	return acknowledged
}

// lines returns the records in the output of an operator's command.
func lines(out string) (data []string) {
	for line := range strings.Lines(out) {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			data = append(data, text)
		}
	}
	return data
}

// rescue runs the command until its output contains want.
func rescue(t *testing.T, c *proctest.Cluster, want string, args ...string) (out string) {
	t.Helper()
	require.Eventually(t, func() bool {
		out, _ = c.Run(append([]string{"log", "rescue"}, args...)...)
		return strings.Contains(out, want)
	}, patience, 100*time.Millisecond, "%q was to be said", want)
	t.Logf("$ tailrace log rescue %s\n%s", strings.Join(args, " "), out)
	return out
}

// Two of three storage nodes are killed and lose their directories; the third was down before and
// lacks the last acknowledged records. An operator inspects the cluster and rescues what is left,
// readers get an error for the lost records, and the log continues.
func TestRescue(t *testing.T) {
	c := proctest.Start(t, binaries, 3)
	log := c.Open()
	want := appendLines(t, log, "a", 50)
	c.Kill("storage2")
	want = append(want, appendLines(t, log, "b", 50)...)
	require.Eventually(t, func() bool { // storage0 may lack what the two others acknowledged
		out, err := c.Run("status")
		if err != nil {
			return false
		}
		sealed := 0
		for _, line := range strings.Split(out, "\n") {
			if strings.Contains(line, "sealed at") {
				sealed++
				if !strings.Contains(line, c.Storage[0]+" *") {
					return false
				}
			}
		}
		return sealed > 0
	}, patience, 100*time.Millisecond)
	c.Kill("storage1") // appends fail; existing records can be read and trimmed
	require.Eventually(t, func() bool {
		out, err := c.Run("log", "stat")
		return err == nil && strings.Contains(out, ", 0 of them open")
	}, patience, 100*time.Millisecond)
	out, err := c.Run("log", "append", "--tag", "x", "--timeout", "1s", "no")
	require.Error(t, err)
	require.Contains(t, out, "no shard is open")
	out, err = c.Run("log", "read", "--tag", "x")
	require.NoError(t, err, out)
	require.ElementsMatch(t, want, lines(out))
	out, err = c.Run("log", "trim", "--tag", "unused", "--before", "2")
	require.NoError(t, err, out)
	for _, name := range []string{"storage0", "storage1"} {
		c.Kill(name)
		require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, name)))
	}
	c.Restart("storage2")
	rescue(t, c, "does not answer, and may hold what is missing")
	out, err = c.Run("log", "rescue", "--yes")
	require.Error(t, err)
	require.Contains(t, out, "--without")

	out, err = c.Run("log", "rescue", "--without", "127.0.0.1:1", "--without", c.Storage[1], "--yes")
	require.Error(t, err)
	require.Contains(t, out, "--without 127.0.0.1:1: no storage node of the cluster has this address")
	for _, addr := range c.Storage {
		require.Contains(t, out, addr)
	}

	c.Restart("storage0") // with an empty disk
	c.Open()
	rescue(t, c, "nothing was changed", "--without", c.Storage[1])
	out = rescue(t, c, "were given up", "--without", c.Storage[1], "--yes")
	require.Contains(t, out, "records are kept")
	out, err = c.Run("log", "verify")
	require.Error(t, err, "one node does not answer: %s", out)
	require.Contains(t, out, "storage node "+c.Storage[1]+" does not answer: its replicas were not verified (shards: ")
	c.Restart("storage1")

	out, err = c.Run("log", "read", "--tag", "x")
	require.Error(t, err)
	require.Contains(t, out, "were given up (tailrace log rescue)")
	t.Logf("$ tailrace log read --tag x\n%s", out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
	out, err = c.Run("log", "read", "--tag", "x", "--skip-lost")
	require.NoError(t, err)
	left := lines(out)
	require.Subset(t, want, left)
	require.Less(t, len(left), len(want), "something was lost")
	require.NotEmpty(t, left, "what the third one had is there")

	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	more := appendLines(t, log, "c", 20) // the same client continues
	out, err = c.Run("log", "read", "--tag", "x", "--from", fmt.Sprint(tail))
	require.NoError(t, err, out)
	require.ElementsMatch(t, more, lines(out))
	rescue(t, c, "there is nothing to rescue")
	require.Eventually(t, func() bool {
		out, err = c.Run("log", "verify")
		return err == nil
	}, patience, 200*time.Millisecond, "copies are made of what is left: %s", out)
	out, err = c.Run("status")
	require.NoError(t, err)
	require.Contains(t, out, " lost")
}
