package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/position"
)

// An instance that must resume in the middle of a record fails if the log no longer has that
// record: the next record does not contain the rest of it.
func TestRecordOfAPartIsMissing(t *testing.T) {
	task := &task{pos: position.Position{Skip: 3, SkipAt: 5}}
	data := envelope.AppendSections(nil, envelope.Data, envelope.Header{}, nil)
	err := task.entry(t.Context(), &sharedlog.Entry{LSN: 7, Record: sharedlog.Record{Data: data}})
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, "the record at LSN 5, of which 3 items are done, is missing from the log")
}
