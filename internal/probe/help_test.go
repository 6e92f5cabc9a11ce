package probe

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// What a process serves as a metric's HELP says what it is. A number that only grows is a
// counter, so that tools take its rate.
func TestHelp(t *testing.T) {
	b, err := os.ReadFile("../../scripts/monitoring/metrics.txt")
	require.NoError(t, err)
	listed := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 0 {
			listed[f[0]] = true
			require.NotEmpty(t, Help(f[0]), f[0])
		}
	}
	require.NotEmpty(t, listed)
	for name := range texts() {
		require.True(t, listed[name], name)
	}
	r := prometheus.NewRegistry()
	Labelled(r, "tailrace_task_", []string{"job"}, func(emit func(string, float64, ...string)) {
		emit("items_in_total", 5, "j")
		emit("state_keys", 3, "j")
	})
	got, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, Help("tailrace_task_items_in_total"), got[0].GetHelp())
	require.NotNil(t, got[0].Metric[0].Counter)
	require.NotNil(t, got[1].Metric[0].Gauge)
}
