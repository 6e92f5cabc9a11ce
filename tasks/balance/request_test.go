package balance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/status"
)

func TestParseWhen(t *testing.T) {
	for text, want := range map[string]When{
		"off":                {},
		"every=20s":          {Every: 20_000},
		"items=10000000":     {Items: 10_000_000},
		"below=0.9":          {Below: 0.9},
		"below=0.9,quiet=1s": {Below: 0.9, Quiet: 1000},
	} {
		w, err := ParseWhen(text)
		require.NoError(t, err)
		require.Equal(t, want, w)
	}
	for _, text := range []string{"", "on", "every", "every=5ms", "every=20", "items=0", "items=1.5", "below=0", "below=1.1", "below=NaN", "quiet=1s", "below=0.9,quiet=0s", "off,quiet=1s", "below=0.9,every=1s", "below=0.9,quiet=1s,quiet=2s"} {
		_, err := ParseWhen(text)
		require.ErrorContains(t, err, "use off, every=20s, items=10000000 or below=0.9", text)
	}
}

// A meter counts what has been sent to the inputs of a stage since its last reading, whichever instance
// and task did so, and nothing else.
func TestMeter(t *testing.T) {
	var m meter
	read := func(all ...status.Snapshot) []int64 {
		s := route.Sample{Tasks: 2, Items: make([]int64, 3)}
		m.sample([]string{"left", "right"}, all, &s)
		return s.Items
	}
	of := func(task int, instance uint64, stream string, items ...uint64) status.Snapshot {
		return status.Snapshot{Stage: "source " + stream, Task: task, Instance: instance, Load: []uint64{9, 9, 9}, Sent: []status.Sent{{Stream: "other", ByGroup: []uint64{5, 5, 5}}, {Stream: stream, ByGroup: items}}}
	}
	require.Equal(t, []int64{0, 0, 0}, read(of(0, 1, "left", 100, 0, 0), of(1, 1, "left", 0, 50, 50)), "how long it took to send those is not known")
	require.Equal(t, []int64{10, 20, 0}, read(of(0, 1, "left", 110, 0, 0), of(1, 1, "left", 0, 70, 50)))
	require.Equal(t, []int64{4, 3, 1}, read(of(0, 2, "left", 4, 3, 0), of(1, 1, "left", 0, 70, 51)), "task 0 was restarted")
	require.Equal(t, []int64{3, 1, 8}, read(of(0, 2, "left", 7, 3, 0), of(0, 1, "right", 0, 1, 8)), "another producer; task 1 does not answer")
	require.Equal(t, []int64{0, 0, 0}, read(of(0, 3, "left", 0, 0, 0), of(0, 1, "right", 0, 1, 2)), "one that starts does not count back")
	require.Equal(t, []int64{2, 0, 9}, read(of(0, 3, "left", 2, 0, 0), of(1, 1, "left", 0, 70, 60)), "task 1 answers again")
}
