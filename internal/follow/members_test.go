package follow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

func TestMembers(t *testing.T) {
	var m follow.Members
	m.Give([]string{"a", "b", "c"})
	require.Equal(t, []string{"a", "b", "c"}, m.Addresses())
	require.Empty(t, m.Stores())
	row := func(id uint64, addr string, store uint64, state logpb.Sequencer_State) *logpb.Sequencer {
		return &logpb.Sequencer{Id: id, Addr: addr, StoreId: store, State: state}
	}
	m.Receive(&logpb.FollowReply{Snapshot: &logpb.Snapshot{Sequencers: []*logpb.Sequencer{
		row(1, "b", 11, logpb.Sequencer_VOTER), row(2, "x", 0, logpb.Sequencer_VOTER),
	}}})
	require.Equal(t, []string{"b", "x", "a", "c"}, m.Addresses(), "what the metalog knows first")
	m.Receive(&logpb.FollowReply{Events: []*logpb.Event{
		{Index: 7},
		{Index: 8, What: &logpb.Event_Sequencer{Sequencer: row(0, "l", 10, logpb.Sequencer_LEARNER)}},
		{Index: 9, What: &logpb.Event_Sequencer{Sequencer: row(3, "c", 33, logpb.Sequencer_REMOVED)}},
		{Index: 10, What: &logpb.Event_Sequencer{Sequencer: row(1, "bb", 11, logpb.Sequencer_VOTER)}},
	}})
	require.Equal(t, []string{"bb", "x", "l", "a", "b"}, m.Addresses(), "voters before learners, removed ones not at all")
	require.Equal(t, []uint64{10, 11, 33}, m.Stores())
	require.Len(t, m.Known(), 4)

	var alone follow.Members
	alone.Give([]string{"a"})
	alone.Take(row(1, "a", 1, logpb.Sequencer_REMOVED))
	require.Equal(t, []string{"a"}, alone.Addresses(), "better than none")
}
