package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog/logpb"
)

// The free space is what the node reports now: a full disk has none, and for a node that does not
// answer it is unknown. A removed node is not shown as a node that does not answer.
func TestNodeTable(t *testing.T) {
	leader := &logpb.SequencerStatus{Nodes: []*logpb.NodeStatus{
		{Addr: "full:1", Connected: true, Readonly: true, FreeBytes: 5e6},
		{Addr: "hangs:1", Connected: true, FreeBytes: 7e6, DiskBytes: 8e6},
		{Addr: "left:1", State: logpb.Node_REMOVED, FreeBytes: 7e6},
		{Addr: "well:1", Connected: true, FreeBytes: 1e6},
	}}
	c := &cluster{leader: leader, sequencers: []*logpb.SequencerStatus{leader}, nodes: map[string]*logpb.StorageStatus{
		"full:1": {DiskBytes: 4e6}, "hangs:1": nil, "left:1": nil, "well:1": {FreeBytes: 3e6, DiskBytes: 2e6},
	}}
	rows, err := c.nodeRows()
	require.NoError(t, err)
	var out strings.Builder
	nodeTable(&out, rows)
	var table [][]string
	for line := range strings.Lines(out.String()) {
		f := strings.Fields(strings.ReplaceAll(line, " MB", "MB"))
		table = append(table, []string{f[0], f[2], f[3], f[4]})
	}
	require.Equal(t, [][]string{
		{"NODE", "STATE", "FREE", "ON"}, {"full:1", "read-only", "0.0MB", "4.0MB"}, {"hangs:1", "active", "?", "?"}, {"left:1", "removed", "?", "?"}, {"well:1", "active", "3.0MB", "2.0MB"},
	}, table)

	c.asked = []string{"s:1"}
	out.Reset()
	c.table(&out)
	require.Regexp(t, `hangs:1 +no answer`, out.String())
	require.NotContains(t, out.String(), "left:1")
}

// An operator who drains the last node of a zone is warned about what that means for the replicas.
func TestTheLastNodeOfAZone(t *testing.T) {
	rows := []nodeRow{
		{Addr: "a:1", Zone: "a", State: "draining"},
		{Addr: "b:1", Zone: "b", State: "active"},
		{Addr: "b:2", Zone: "b", State: "read-only"},
		{Addr: "c:1", Zone: "c", State: "active"},
		{Addr: "c:2", Zone: "c", State: "silent"},
		{Addr: "c:3", Zone: "c", State: "draining"},
		{Addr: "n:1", State: "active"},
	}
	require.Contains(t, zoneLost(rows, "a:1"), "a:1 is the last storage node of zone a: its replicas go to the other zones (3), ")
	require.Empty(t, zoneLost(rows, "b:1"))
	require.Contains(t, zoneLost(rows, "c:1"), "the last storage node of zone c", "the others hold no new replicas")
	require.Empty(t, zoneLost(rows, "n:1"), "it is in no zone")
	require.Empty(t, zoneLost(rows, "x:1"))
}
