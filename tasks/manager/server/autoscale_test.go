package server

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/status"
)

// Of what workers tell, a scaler takes the newest instance of each task of its stage, of this job and not
// of one that had its name, with the load that the JSON of a status leaves out.
func TestReadings(t *testing.T) {
	s := scaler{scaled: scaled{"job", "job-2", autoscale.Request{Stage: "counts", Min: 1, Max: 2}}}
	reading := func(job, id, stage string, task int, instance uint64) autoscale.Reading {
		return autoscale.Reading{Job: job, ID: id, Status: status.Snapshot{Stage: stage, Task: task, Instance: instance}, Load: []uint64{instance}}
	}
	newest := map[int]status.Snapshot{}
	for _, worker := range [][]autoscale.Reading{
		{reading("job", "job-2", "counts", 0, 7), reading("job", "job-2", "counts", 1, 3), reading("job", "job-2", "rows", 2, 9)},
		{reading("job", "job-2", "counts", 0, 6), reading("job", "job-2", "counts", 1, 4), reading("job", "job-1", "counts", 0, 9), reading("other", "job-2", "counts", 3, 9)},
	} {
		b, err := json.Marshal(worker)
		require.NoError(t, err)
		var sent []autoscale.Reading
		require.NoError(t, json.Unmarshal(b, &sent))
		s.add(newest, sent)
	}
	require.Len(t, newest, 2)
	require.EqualValues(t, 7, newest[0].Instance)
	require.EqualValues(t, 4, newest[1].Instance)
	require.Equal(t, []uint64{4}, newest[1].Load)
}
