package tasks_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/envelope"
)

// forgetful is a log with one reader that skips a record: the first marker 3 of a task of the first
// stage.
type forgetful struct {
	sharedlog.Log
	done atomic.Bool
}

type forgetfulReader struct {
	sharedlog.Reader
	log *forgetful
}

func (f *forgetful) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	r, err := f.Log.NewReader(o)
	return forgetfulReader{r, f}, err
}

func (r forgetfulReader) TryNext() (sharedlog.Batch, error) {
	b, err := r.Reader.TryNext()
	b.Entries = slices.DeleteFunc(slices.Clone(b.Entries), func(e sharedlog.Entry) bool {
		kind, err := envelope.KindOf(e.Data)
		var m envelope.Marker
		return err == nil && kind == envelope.KindMarker && m.Parse(e.Data) == nil && m.Stage == 0 && m.Commit == 3 && r.log.done.CompareAndSwap(false, true)
	})
	return b, err
}

// The error for a gap says whether the log has the record that the task did not receive.
func TestGap(t *testing.T) {
	w := newWorld(3, 3000, 2)
	log := &forgetful{Log: mem.New(mem.Options{})}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := tasks.Run(ctx, log, w.plan(t, filepath.Join(t.TempDir(), "out")), tasks.Options{
		Parallelism: 1, Groups: 2, CommitInterval: time.Millisecond, CommitBytes: 1 << 10, Logger: quiet,
	})
	require.ErrorContains(t, err, "commits are missing from the log")
	require.Regexp(t, `the task's reader began at LSN 1, its position is \d+ \(low \d+\)`, err)
	require.Regexp(t, `the newest marker of keys/0 is \d+, at LSN \d+, of instance 1`, err)
	require.Regexp(t, `another reader from there shows \d+ of its markers below, the first is 1 at LSN \d+, the newest is \d+ at LSN \d+`, err)
	require.Regexp(t, `tag "[^"]+" begins at LSN \d+`, err)
}
