package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An order that waits in the middle of a cut continues from a checkpoint with the next LSN, not
// with the cut's first one.
func TestCheckpointInsideACut(t *testing.T) {
	o := NewOrder(nil)
	o.Hold(Head{Position: 0, Records: 4, Writer: "w", Number: 1})
	o.Cut(10, 100)
	f, ok, err := o.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 100, f.First)
	_, ok, err = o.Next()
	require.NoError(t, err)
	require.False(t, ok, "the sublog is behind")
	again, err := RestoreCheckpoint(o.AppendCheckpoint(nil))
	require.NoError(t, err)
	for _, o := range []*Order{o, again} {
		at, waits := o.Waiting()
		require.True(t, waits)
		require.EqualValues(t, 104, at)
		o.Hold(Head{Position: 4, Records: 6, Writer: "w", Number: 2})
		f, ok, err := o.Next()
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 104, f.First)
	}
}

// A backup holds what it reported last, not the most that it ever reported: it may have lost its
// disk in between (pitfall L8).
func TestABackupThatHasLostItsDisk(t *testing.T) {
	r := NewReplica(nil, true, 2)
	r.Wrote(Head{Position: 0, Records: 5, Writer: "w", Number: 1})
	r.Acked(0, 5)
	r.Acked(1, 5)
	require.EqualValues(t, 5, r.Least())
	r.Acked(0, 0)
	r.Acked(1, 0)
	require.EqualValues(t, 0, r.Least())
	length, _ := r.Report()
	require.Zero(t, length, "one of three holds it")
	r.Acked(1, 5)
	length, news := r.Report()
	require.EqualValues(t, 5, length)
	require.True(t, news)
}

// A sealed replica accepts ordered groups that are missing here, and nothing after them.
func TestFollowsUpToTheSeal(t *testing.T) {
	r := NewReplica(nil, false, 0)
	r.Wrote(Head{Position: 0, Records: 3, Writer: "w", Number: 1})
	r.Cut(5, 10)
	r.Seal(15, 5)
	require.True(t, r.Follows(3))
	r.Wrote(Head{Position: 3, Records: 2, Writer: "w", Number: 2})
	require.False(t, r.Follows(5))
}
