package runtime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// From where the change log is kept, as snapshots are made.
func TestHistory(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	h := &history{interval: 10 * time.Second, moments: []moment{{5, time.Time{}}, {30, at(0)}}}
	for _, c := range []struct {
		second int
		made   sharedlog.LSN
		kept   sharedlog.LSN
		why    string
	}{
		{1, 40, 5, "30 was found a second ago: it may have been written just before"},
		{9, 50, 5, "still"},
		{10, 60, 30, "30 has been there for an interval"},
		{12, 70, 40, "40 too; 50 is three seconds old"},
		{60, 80, 70, "all but the newest are old"},
		{61, 90, 70, "80 is not"},
	} {
		require.Equal(t, c.kept, h.wrote(c.made, at(c.second)), c.why)
	}
}
