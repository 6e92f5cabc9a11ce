package appends

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/lead"
	"tailrace.dev/tailrace/tasks/status"
)

// slow is a log that acknowledges groups when the test says so.
type slow struct {
	sharedlog.Log
	all []*sharedlog.Pending
}

func (l *slow) Append(sharedlog.Group) *sharedlog.Pending {
	l.all = append(l.all, sharedlog.NewPending())
	return l.all[len(l.all)-1]
}

func newAppender() (*slow, *Appender, *int) {
	log, resulted := &slow{}, new(int)
	return log, &Appender{
		Writer: sharedlog.NewWriter(log, "w", sharedlog.Condition{}), Limit: 2, Status: status.New(time.Now, 1),
		Refused:  func(err error) error { return fmt.Errorf("refused: %w", err) },
		Resulted: func() { *resulted++ },
	}, resulted
}

func group(records int) []sharedlog.Record { return make([]sharedlog.Record, records) }

// An appender has as many groups in flight as it may, handles their outcomes in order, and says where each has
// ended.
func TestAppends(t *testing.T) {
	log, a, resulted := newAppender()
	require.Nil(t, a.Oldest())
	require.NoError(t, a.Collect())
	var ends []string
	for i, n := range []int{3, 1} {
		require.NoError(t, a.Append(t.Context(), group(n), true))
		a.Landed(func(at sharedlog.LSN) { ends = append(ends, fmt.Sprint(i, " at ", at)) })
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Append(given, group(1), false), context.Canceled)
	require.Len(t, log.all, 2, "a third group waits")
	log.all[1].Complete(20, nil)
	require.NoError(t, a.Collect())
	require.Empty(t, ends, "the first one is not acknowledged")
	require.EqualValues(t, log.all[0].Done(), a.Oldest())
	log.all[0].Complete(10, nil)
	require.NoError(t, a.Append(t.Context(), group(1), false))
	require.Len(t, log.all, 3)
	require.Equal(t, []string{"0 at 12"}, ends)
	log.all[2].Complete(30, nil)
	require.NoError(t, a.Acknowledged(t.Context()))
	require.Equal(t, []string{"0 at 12", "1 at 20"}, ends)
	require.Zero(t, *resulted, "nothing has output")
	require.EqualValues(t, 3, a.Appends)
	require.EqualValues(t, 3, a.Status.Groups.Load())
	require.Nil(t, a.Oldest())
}

// A commit has results if output was appended with it or before.
func TestResults(t *testing.T) {
	log, a, resulted := newAppender()
	a.Committed()
	for i, c := range []struct{ results, commits, want bool }{{false, true, false}, {true, false, false}, {true, true, true}} {
		a.Results = c.results
		require.NoError(t, a.Append(t.Context(), group(1), c.commits))
		a.Results = true // of the next group
		log.all[i].Complete(sharedlog.LSN(10*i), nil)
		require.NoError(t, a.Collect())
		require.Equal(t, c.want, *resulted == 1, "%d", i)
	}
	a.Committed()
	require.Equal(t, 2, *resulted)
}

// What the log refuses is an error of each way to wait for it.
func TestRefused(t *testing.T) {
	full := errors.New("the disk is full")
	for name, wait := range map[string]func(a *Appender) error{
		"append":       func(a *Appender) error { a.Limit = 1; return a.Append(t.Context(), group(1), true) },
		"collect":      (*Appender).Collect,
		"acknowledged": func(a *Appender) error { return a.Acknowledged(t.Context()) },
	} {
		log, a, resulted := newAppender()
		a.Results = true
		require.NoError(t, a.Append(t.Context(), group(1), true))
		a.Landed(func(sharedlog.LSN) { t.Error("it has not landed") })
		log.all[0].Complete(0, full)
		err := wait(a)
		require.ErrorIs(t, err, full, name)
		require.ErrorContains(t, err, "refused: ", name)
		require.Zero(t, *resulted)
	}
}

// Output is ahead of its consumers until they are behind its last record, or the instance produces no more.
func TestAhead(t *testing.T) {
	d := lead.New(&layout.Layout{
		Plan:    &exec.Plan{Streams: []exec.StreamSpec{{Name: "keys"}}, Stages: []exec.StageSpec{{Name: "source", Outputs: []int{0}}, {Name: "sums", Inputs: []int{0}}}},
		Streams: []layout.Stream{{Groups: 1}}, Stages: []layout.Stage{{Tasks: 1, Groups: 1}, {Tasks: 1, Groups: 1}},
	})
	log, a, _ := newAppender()
	a.Ahead = []lead.Output{lead.Of(d, 0)}
	for i := range 2 {
		a.Ahead[0].Produced(100, a.Appends+1)
		require.NoError(t, a.Append(t.Context(), group(3), true))
		log.all[i].Complete(sharedlog.LSN(10*(i+1)), nil)
		require.NoError(t, a.Collect())
	}
	require.EqualValues(t, 200, d.Ahead(0))
	for _, c := range []struct {
		low  sharedlog.LSN
		want int64
	}{{12, 200}, {13, 100}, {22, 100}} {
		d.Consumed(1, 0, c.low)
		require.NoError(t, a.Collect())
		require.Equal(t, c.want, d.Ahead(0), "it needs nothing below %d", c.low)
	}
	a.ProducesNoMore()
	require.Zero(t, d.Ahead(0))
}
