package retention

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/tags"
)

// overtaken is a log in which something happens after each of the first few reads of its tail.
type overtaken struct {
	sharedlog.Log
	times int
	then  func()
}

func (l *overtaken) Tail(ctx context.Context) (sharedlog.LSN, error) {
	tail, err := l.Log.Tail(ctx)
	if l.times > 0 {
		l.times--
		l.then()
	}
	return tail, err
}

// A task commits, and another process trims its log up to the new marker, between the read of the tail
// and that of the marker: ReadPoints finds the new marker. It does not look forever for the markers of
// a job that was deleted.
func TestPointsWhileTrimmed(t *testing.T) {
	plan := &exec.Plan{Streams: []exec.StreamSpec{{Name: "rows"}}, Stages: []exec.StageSpec{{Name: "source", Partitions: 1, Outputs: []int{0}}}}
	l, err := layout.New(plan, "j", 4, 1)
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
	w.Force = true
	tag := tags.Task("j", "source", 0)
	var newest sharedlog.LSN
	commit := func() {
		m := envelope.Marker{Commit: uint64(newest)}
		newest, err = w.Append(sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: m.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
	}
	commit()
	points, err := ReadPoints(t.Context(), &overtaken{log, 5, func() {
		commit()
		require.NoError(t, log.Trim(t.Context(), tag, newest))
	}}, l)
	require.NoError(t, err)
	at := map[string]sharedlog.LSN{}
	for _, p := range points {
		at[p.What] = p.Before
	}
	require.Equal(t, newest, at["log of source/0"])

	require.NoError(t, log.Trim(t.Context(), tag, newest+1))
	_, err = ReadPoints(t.Context(), log, l)
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
}
