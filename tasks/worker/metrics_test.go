package worker

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

type sent []exec.MetricValue

func (sent) Describe(chan<- *prometheus.Desc) {}

func (s sent) Collect(out chan<- prometheus.Metric) {
	for i := range s {
		send(out, &s[i], []string{"j", "st", "0"})
	}
}

// The metrics of a job's functions are Prometheus metrics, whatever their names are.
func TestUserMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(sent{
		{Kind: "counter", Name: "bad input_total", Value: 3},
		{Kind: "gauge", Name: "depth", Labels: []string{"job"}, Values: []string{"a\xff"}, Value: 1.5},
		{Kind: "histogram", Name: "size", Bounds: []float64{1, 4}, Counts: []uint64{1, 2}, Count: 5, Sum: 30},
	})
	families, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, families, 3)
	require.Equal(t, "tailrace_user_bad_input_total", families[0].GetName())
	require.EqualValues(t, 3, families[0].GetMetric()[0].GetCounter().GetValue())
	depth := families[1].GetMetric()[0]
	require.EqualValues(t, 1.5, depth.GetGauge().GetValue())
	require.Equal(t, "user_job", depth.GetLabel()[3].GetName())
	require.Equal(t, "a�", depth.GetLabel()[3].GetValue())
	size := families[2].GetMetric()[0].GetHistogram()
	require.EqualValues(t, 5, size.GetSampleCount())
	require.EqualValues(t, 30, size.GetSampleSum())
	require.EqualValues(t, 3, size.GetBucket()[1].GetCumulativeCount())
}
