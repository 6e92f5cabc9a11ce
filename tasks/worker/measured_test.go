package worker

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/status"
)

// A worker tells what was measured of tasks whose grain is chosen, and of no other, in few bytes.
func TestMeasured(t *testing.T) {
	m := new(status.Measured)
	for i := range m.Task {
		m.Task[i], m.Key[i], m.Held[i], m.Gap[i] = math.MaxUint64, math.MaxUint64-1, math.MaxUint64-2, math.MaxUint64-3
	}
	m.Keys, m.LateByKey, m.LateByStream = math.MaxInt64, math.MaxUint64, 3
	chosen := status.Snapshot{Stage: "sums", Task: 3, Instance: 7, Load: make([]uint64, 1000), Sent: []status.Sent{{ByGroup: make([]uint64, 1000)}}, Measured: m}
	other := chosen
	other.Measured = nil
	told := measured([]autoscale.Reading{autoscale.NewMeasured("job", "job-1", other), autoscale.NewMeasured("job", "job-1", chosen)})
	b, err := json.Marshal(told)
	require.NoError(t, err)
	require.Less(t, len(b), 8<<10)
	var got []autoscale.Reading
	require.NoError(t, json.Unmarshal(b, &got))
	require.Len(t, got, 1)
	require.Equal(t, []string{"job", "job-1"}, []string{got[0].Job, got[0].ID})
	s := got[0].Snapshot()
	require.Equal(t, status.Snapshot{Stage: "sums", Task: 3, Instance: 7, Measured: m}, s)
}
