package driver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
)

// What a rescale has moved is what its stage's tasks have taken over since it was asked for.
func TestMovedSince(t *testing.T) {
	task := func(stage string, n int, instance, fetched uint64, waits ...uint64) tasks.Status {
		m := &tasks.Moved{Fetched: fetched}
		m.Demand.Requests, m.Demand.SubGroups = fetched, 2*fetched
		copy(m.Waits[:], waits)
		return tasks.Status{Stage: stage, Task: n, Instance: instance, Moved: m}
	}
	all := []Rescaled{{Rescaled: tasks.Rescaled{Stage: "keys"}, before: []tasks.Status{
		task("keys", 0, 1, 10, 5), task("keys", 1, 1, 7), {Stage: "keys", Task: 3, Instance: 1},
	}}}
	came(all, []tasks.Status{
		task("keys", 0, 1, 14, 5, 9),                      // 4 more
		task("keys", 1, 2, 3, 0, 0, 1),                    // another instance
		task("keys", 2, 1, 1),                             // a newcomer
		{Stage: "keys", Task: 3, Instance: 1, Moved: nil}, // nothing
		task("others", 0, 1, 100, 100),
	})
	b, err := json.Marshal(all[0].Moved)
	require.NoError(t, err)
	require.JSONEq(t, `{"given": 0, "copied": 0, "fetched": 8, "restored": 0, "bytes": 0, "demand": {"requests": 8, "sub_groups": 16},
		"background": {"requests": 0, "sub_groups": 0}, "waits": 10, "wait_p50_ms": 0.2, "wait_p99_ms": 0.5, "wait_max_ms": 0.5}`, string(b))

	long := make([]uint64, len(tasks.Moved{}.Waits))
	long[len(long)-1] = 1
	all = append(all, Rescaled{Rescaled: tasks.Rescaled{Stage: "keys"}})
	came(all, []tasks.Status{task("keys", 0, 1, 0, long...)})
	require.False(t, all[1].Moved.WaitMaxMS.Seen())
	_, err = json.Marshal(all)
	require.NoError(t, err)

	none := []Rescaled{{Rescaled: tasks.Rescaled{Stage: "keys"}}, {NotDone: "the run had ended"}}
	came(none, []tasks.Status{task("keys", 0, 1, 1, long...)})
	came(none[:1], []tasks.Status{{Stage: "keys"}})
	came(nil, nil)
	require.Nil(t, none[0].Moved)
	require.Nil(t, none[1].Moved)
}
