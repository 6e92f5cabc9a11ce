package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// What a marker says of snapshots holds for all groups of the task: also for those that it receives.
func TestReceivedSnapshots(t *testing.T) {
	for _, c := range []struct {
		name                string
		named, kept         sharedlog.LSN
		received            Received
		first               bool
		wantNamed, wantKept sharedlog.LSN
	}{
		{"the task's first groups", 0, 0, Received{Snapshot: 70, Kept: 50}, true, 70, 50},
		{"older than the task's own", 90, 80, Received{Snapshot: 70, Kept: 50}, false, 70, 50},
		{"newer than the task's own", 60, 40, Received{Snapshot: 70, Kept: 50}, false, 60, 40},
		{"no snapshot of them", 60, 40, Received{}, false, 60, 0},
		{"only of them", 0, 0, Received{Snapshot: 70, Kept: 50}, false, sharedlog.First, 0},
		{"none at all", 0, 0, Received{}, false, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := snapshots{named: c.named, kept: c.kept}
			s.received(c.received, c.first)
			require.Equal(t, []sharedlog.LSN{c.wantNamed, c.wantKept}, []sharedlog.LSN{s.named, s.kept})
		})
	}
}
