package driver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/tasks"
)

// What is reported of the clocks of keys is counted over all tasks, and 0 if nothing was late; without such
// clocks it is absent.
func TestReportedClocks(t *testing.T) {
	text := func(own map[string]string, all ...tasks.Status) string {
		w, err := workload.ByName("kw")
		require.NoError(t, err)
		p := &workload.Params{Own: own}
		r := Report{Clocks: (&job{workload: w, params: p, input: &workload.Input{}}).clocks()}
		for i := range all {
			if r.Clocks != nil {
				r.Clocks.add(&all[i])
			}
		}
		b, err := json.Marshal(r)
		require.NoError(t, err)
		back := Report{}
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, r.Clocks, back.Clocks)
		return string(b)
	}
	one := tasks.Status{Counters: map[string]int64{"late_by_key": 3, "late_by_stream": 4}}
	key := map[string]string{"grain": "key", "key-delay": "200ms"}
	require.Contains(t, text(key, one, one), `"grain":"key","key_delay_ms":200,"late_by_key":6,"late_by_stream":8`)
	require.Contains(t, text(key), `"grain":"key","key_delay_ms":200,"late_by_key":0,"late_by_stream":0`)
	for _, name := range []string{"grain", "key_delay_ms", "late_by"} {
		require.NotContains(t, text(map[string]string{"grain": "task"}, one), name)
		require.NotContains(t, text(nil, one), name)
	}
}
