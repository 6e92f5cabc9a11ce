package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
)

// What is appended counts by item and key group, and with all bytes of its records.
func TestSending(t *testing.T) {
	s := New(time.Now, 1)
	s.Output("keys", 3)
	out := exec.NewOutput(3)
	for range 2 {
		out.Add(out.Section(2), 5)
	}
	out.Add(out.Section(0), 1)
	for range 2 {
		s.Sent[0].Add(out, []sharedlog.Record{{Data: make([]byte, 10)}, {Data: make([]byte, 7)}})
	}
	require.Equal(t, []Sent{{"keys", 6, 34, []uint64{2, 0, 4}, nil}}, s.Read("stage", 0).Sent)
}
