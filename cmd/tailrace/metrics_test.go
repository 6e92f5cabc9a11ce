package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/worker"
)

// job describe shows late items, counters, gauges and histograms of the tasks that have any.
func TestDescribeMetrics(t *testing.T) {
	var out strings.Builder
	metrics(&out, []jobs.Task{{Stage: "quiet"}, {Stage: "s", Task: 1, Status: &worker.TaskStatus{Status: tasks.Status{
		Late: 7, Counters: map[string]int64{"bad_input": 3},
		Metrics: []exec.MetricValue{
			{Kind: "gauge", Name: "depth", Labels: []string{"of"}, Values: []string{"x"}, Value: 1.5},
			{Kind: "histogram", Name: "size", Bounds: []float64{1, 4}, Counts: []uint64{1, 3}, Count: 4, Sum: 10},
		},
	}}}})
	require.Equal(t, []string{
		"STAGE TASK METRIC VALUE", "s 1 late items 7", "s 1 bad_input 3", `s 1 depth{of="x"} 1.5`, "s 1 size 4, mean 2.5, 99 % ≤ 4",
	}, rowsOf(out.String()))
	out.Reset()
	metrics(&out, []jobs.Task{{Stage: "quiet"}})
	require.Empty(t, out.String())
}

// rowsOf returns the lines of a table with single spaces.
func TestStageRates(t *testing.T) {
	in, out := 1234.5, 0.0
	var b strings.Builder
	stageRates(&b, []jobs.Job{
		{Name: "waits", Stages: []jobs.Stage{{Stage: "a"}}},
		{Name: "runs", Running: 1, Stages: []jobs.Stage{{Stage: "a", InPerSecond: &in, OutPerSecond: &out}, {Stage: "b"}}},
	})
	require.Equal(t, []string{"JOB STAGE ITEMS IN/s OUT/s", "runs a 1234 0", "runs b - -"}, rowsOf(b.String()))
	data, err := json.Marshal(jobs.Stage{Stage: "b"})
	require.NoError(t, err)
	require.JSONEq(t, `{"stage": "b", "items_in_per_second": null, "items_out_per_second": null}`, string(data))
}

func rowsOf(table string) (rows []string) {
	for line := range strings.Lines(table) {
		if row := strings.Join(strings.Fields(line), " "); row != "" {
			rows = append(rows, row)
		}
	}
	return rows
}
