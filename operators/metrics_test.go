package operators_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// metricsOf runs a job whose function measures its items, and returns what it has measured.
func metricsOf(t require.TestingT, items []optest.Timed[hit]) []exec.MetricValue {
	job := operators.NewJob("metrics")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
	measured := operators.Process(in, "measure", func(c *operators.Context[string, string]) operators.Handler[hit] {
		last := operators.NewGauge(c, "last", "key")
		sizes := operators.NewHistogram(c, "sizes", []float64{1, 4})
		return operators.Handler[hit]{Item: func(h *hit) {
			last.Set(float64(h.N), h.Key)
			sizes.Observe(float64(h.N))
		}}
	})
	_, report := runRows(t, job, values(measured), optest.Options{NoReplay: true})
	return report.Metrics
}

// A gauge has its newest value by label, a histogram the number of values by bucket.
func TestMetrics(t *testing.T) {
	ms := metricsOf(t, []optest.Timed[hit]{sec(1, 1), sec(2, 4), sec(3, 9), sec(4, 2, "x")})
	require.ElementsMatch(t, []exec.MetricValue{
		{Kind: "gauge", Name: "last", Labels: []string{"key"}, Values: []string{"k"}, Value: 9, Counts: []uint64{}},
		{Kind: "gauge", Name: "last", Labels: []string{"key"}, Values: []string{"x"}, Value: 2, Counts: []uint64{}},
		{Kind: "histogram", Name: "sizes", Values: []string{}, Bounds: []float64{1, 4}, Counts: []uint64{1, 2}, Count: 4, Sum: 16},
	}, normal(ms))
}

// normal makes what is empty an empty slice.
func normal(ms []exec.MetricValue) []exec.MetricValue {
	for i := range ms {
		m := &ms[i]
		if m.Counts == nil {
			m.Counts = []uint64{}
		}
		if m.Kind == "histogram" && m.Values == nil {
			m.Values = []string{}
		}
		if len(m.Labels) == 0 {
			m.Labels = nil
		}
		if len(m.Bounds) == 0 {
			m.Bounds = nil
		}
	}
	return ms
}

// The combinations of labels are bounded; those that are too many are one.
func TestMetricLabels(t *testing.T) {
	var items []optest.Timed[hit]
	for i := range int64(1000) {
		items = append(items, optest.At(i, hit{fmt.Sprint("key", i), i}))
	}
	other := 0
	ms := metricsOf(t, items)
	for _, m := range ms {
		if m.Name == "last" && m.Values[0] == operators.OtherLabels {
			other++
			require.EqualValues(t, 999, m.Value)
		}
	}
	require.Equal(t, 1, other)
	require.Len(t, ms, operators.MostLabels+2)
}

// The values of two labels are told apart, and there are as many as labels.
func TestMetricOfTwoLabels(t *testing.T) {
	measure := func(set func(g *operators.Gauge)) []exec.MetricValue {
		job := operators.NewJob("metrics")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(0, []optest.Timed[hit]{sec(1, 1)}), hitSerde), "k", serde.String, byKey)
		_, report := runRows(t, job, values(operators.Process(in, "measure", func(c *operators.Context[string, string]) operators.Handler[hit] {
			g := operators.NewGauge(c, "g", "one", "two")
			return operators.Handler[hit]{Item: func(*hit) { set(g) }}
		})), optest.Options{})
		return report.Metrics
	}
	require.Len(t, measure(func(g *operators.Gauge) {
		g.Set(1, "ab", "c")
		g.Set(2, "a", "bc")
		g.Set(3, "ab", "c")
	}), 2)
	for _, labels := range [][]string{nil, {"a"}, {"a", "b", "c"}} {
		require.Panics(t, func() { measure(func(g *operators.Gauge) { g.Set(1, labels...) }) })
	}
}

func TestHistogramBoundsRise(t *testing.T) {
	job := operators.NewJob("metrics")
	in := operators.KeyBy(operators.FromSource(job, "src", optest.Items[hit](0, nil), hitSerde), "k", serde.String, byKey)
	p := operators.Process(in, "p", func(c *operators.Context[string, string]) operators.Handler[hit] {
		operators.NewHistogram(c, "h", []float64{2, 1})
		return operators.Handler[hit]{}
	})
	operators.ToSink(p, "out", nothing[operators.KV[string, string]]())
	_, err := job.Plan()
	require.ErrorContains(t, err, `"p", histogram "h": its bounds do not rise`)
}

func ExampleNewGauge() {
	job := operators.NewJob("gauge")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	show(job, operators.Process(byName, "p", func(c *operators.Context[string, int64]) operators.Handler[hit] {
		last := operators.NewGauge(c, "last_click_ms", "name")
		clicks := operators.NewHistogram(c, "clicked", []float64{1, 2, 5})
		return operators.Handler[hit]{Item: func(h *hit) {
			last.Set(float64(c.Time()), h.Key) // tailrace_user_last_click_ms{user_name="ann"}
			clicks.Observe(float64(h.N))
		}}
	}), func(*operators.KV[string, int64]) string { return "" })
	// Output:
}
