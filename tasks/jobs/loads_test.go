package jobs

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/status"
)

// Of what workers tell, Loads takes the newest instance of each task, of this job and not of one that
// had its name, with the loads that the JSON of a status leaves out.
func TestReadings(t *testing.T) {
	reading := func(job, id, stage string, task int, instance uint64) autoscale.Reading {
		return autoscale.NewReading(job, id, status.Snapshot{
			Stage: stage, Task: task, Instance: instance, Load: []uint64{instance}, Sent: []status.Sent{{Stream: "rows", ByGroup: []uint64{instance}}},
		})
	}
	newest := newestOf{}
	for _, worker := range [][]autoscale.Reading{
		{reading("job", "job-2", "counts", 0, 7), reading("job", "job-2", "counts", 1, 3), reading("job", "job-2", "rows", 2, 9)},
		{reading("job", "job-2", "counts", 0, 6), reading("job", "job-2", "counts", 1, 4), reading("job", "job-1", "counts", 0, 9), reading("other", "job-2", "counts", 3, 9)},
	} {
		b, err := json.Marshal(worker)
		require.NoError(t, err)
		var sent []autoscale.Reading
		require.NoError(t, json.Unmarshal(b, &sent))
		newest.add("job", "job-2", sent)
	}
	require.Len(t, newest, 3)
	require.EqualValues(t, 7, newest[taskOf{"counts", 0}].Instance)
	require.EqualValues(t, 9, newest[taskOf{"rows", 2}].Instance)
	one := newest[taskOf{"counts", 1}]
	require.EqualValues(t, 4, one.Instance)
	require.Equal(t, []uint64{4}, one.Load)
	require.Equal(t, []status.Sent{{Stream: "rows", ByGroup: []uint64{4}}}, one.Sent)
}
