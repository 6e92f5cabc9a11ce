package balance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/status"
)

func TestParseWhen(t *testing.T) {
	for text, want := range map[string]route.When{
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

// A meter counts what was processed since its last reading, whichever instance and task did so.
func TestMeter(t *testing.T) {
	var m meter
	read := func(tasks int, all ...status.Snapshot) ([]int64, []int64) {
		s := route.Sample{Tasks: tasks, Items: make([]int64, 3)}
		by := m.sample("keys", all, &s)
		return s.Items, by
	}
	of := func(task int, instance uint64, load ...uint64) status.Snapshot {
		return status.Snapshot{Stage: "keys", Task: task, Instance: instance, Load: load}
	}
	items, by := read(2, of(0, 1, 100, 0, 0), of(1, 1, 0, 50, 50))
	require.Equal(t, []int64{0, 0, 0}, items, "how long it took to process those is not known")
	require.Equal(t, []int64{0, 0}, by)
	items, by = read(2, of(0, 1, 110, 0, 0), of(1, 1, 0, 70, 50), status.Snapshot{Stage: "rows", Load: []uint64{9, 9, 9}})
	require.Equal(t, []int64{10, 20, 0}, items)
	require.Equal(t, []int64{10, 20}, by)
	items, by = read(2, of(0, 2, 4, 3, 0), of(1, 1, 0, 70, 51)) // task 0 was restarted, and owns group 1
	require.Equal(t, []int64{4, 3, 1}, items)
	require.Equal(t, []int64{7, 1}, by)
	items, by = read(1, of(0, 2, 5, 3, 0), of(1, 1, 0, 70, 60)) // task 1 has left
	require.Equal(t, []int64{1, 0, 0}, items)
	require.Equal(t, []int64{1}, by)
	items, _ = read(2, of(0, 2, 5, 3, 0), of(1, 2, 0, 0, 8)) // and come back
	require.Equal(t, []int64{0, 0, 8}, items)
}
