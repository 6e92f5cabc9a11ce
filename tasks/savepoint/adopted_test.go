package savepoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/tags"
)

// All tasks have adopted the table that the savepoint has, and no newer one; a task that has ended has no state.
func TestFinishWantsTheTable(t *testing.T) {
	for _, c := range []struct {
		slots int
		last  envelope.Marker
		err   string
	}{
		{1, envelope.Marker{Adopted: 3, Drained: 7}, ""},
		{1, envelope.Marker{Adopted: 2, Drained: 7}, `stage "s", task 0 stopped with routing table 2, not with 3`},
		{1, envelope.Marker{Adopted: 4, Drained: 7}, `stage "s", task 0 stopped with routing table 4, not with 3`},
		{1, envelope.Marker{Adopted: 2, Ended: true}, ""},
		{0, envelope.Marker{Drained: 7}, ""},
	} {
		log, store := mem.New(mem.Options{}), storetest.NewMem()
		owner := sharedlog.Condition{Key: tags.InstanceKey("j", "s", 0), Value: []byte("1")}
		_, err := log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
		require.NoError(t, err)
		c.last.Job, c.last.Instance, c.last.Commit = "j", 1, 1
		_, err = sharedlog.NewWriter(log, "w", owner).Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Task("j", "s", 0)}, Data: c.last.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
		m, _, err := savepoint.New(t.Context(), log, store, savepoint.Job{
			Name: "j", ID: "j", Committed: committed,
			Stages: []savepoint.JobStage{{Name: "s", Tasks: 1, Changes: []sharedlog.Tag{"changes/0"}, Owner: []int{0}, Slots: c.slots, Epoch: 3}},
		}, "p", 7)
		require.NoError(t, err)
		_, err = m.Finish(t.Context())
		if c.err == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.err)
		_, err = savepoint.Find(t.Context(), store, "p")
		require.ErrorIs(t, err, savepoint.ErrNone)
	}
}
