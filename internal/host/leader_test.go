package host_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// Storage nodes and clients follow the metalog at the leader, which sends it first, also at the
// next leader. A cut then reaches them after one message and one write.
func TestAllFollowTheLeader(t *testing.T) {
	c := newLocal(t, 3, 3)
	l := c.open(t)
	defer l.Close()
	d, err := transport.NewDialer(transport.Options{Cluster: "test"})
	require.NoError(t, err)
	defer d.Close()
	// settled waits until all follow the leader, and returns which one that is.
	settled := func() (leader int) {
		require.Eventually(t, func() bool {
			leader = -1
			var followers []string
			for i, addr := range c.sequencers {
				s := new(logpb.SequencerStatus)
				if d.Call(t.Context(), addr, "sequencer/status", new(logpb.StatusRequest), s) != nil {
					continue
				}
				if s.GetLeader().GetMe() {
					leader = i
				}
				followers = append(followers, fmt.Sprintf("%v %d %d", s.GetLeader().GetMe(), s.GetFollowers(), s.GetClientFollowers()))
			}
			slices.Sort(followers)
			followers = slices.Compact(followers)
			return slices.Equal(followers, []string{"false 0 0", "true 3 1"})
		}, 2*time.Minute, 10*time.Millisecond)
		return leader
	}
	leader := settled()
	append_ := func(i int) {
		_, err := sharedlog.NewWriter(l, fmt.Sprint("w", i), sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}}).Wait(t.Context())
		require.NoError(t, err)
	}
	for i := range 5 {
		append_(i)
	}
	c.end(fmt.Sprint("sequencer", leader))
	require.NotEqual(t, leader, settled())
	for i := range 5 {
		append_(5 + i)
	}
}
