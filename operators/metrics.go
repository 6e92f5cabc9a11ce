package operators

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// Gauge is a metric that a function sets: the present amount of something.
type Gauge struct{ m metrics }

// Histogram is a metric whose values a function observes.
type Histogram struct{ m metrics }

// NewGauge creates a gauge of the job; it is called in the setup of a function. Setting it requires
// a value for each of its labels. The metrics of a task begin with the task: after a restart
// nothing is set.
//
// The number of combinations of label values is bounded, MostLabels a task: further ones are
// combined under the value OtherLabels. So a label must have few values.
func NewGauge[K comparable, Out any](c *Context[K, Out], name string, labels ...string) *Gauge {
	return &Gauge{newMetrics(c.rt, "gauge", name, nil, labels)}
}

// NewHistogram creates a histogram of the job, with the upper bounds of its buckets, in rising
// order. Labels are as in NewGauge.
func NewHistogram[K comparable, Out any](c *Context[K, Out], name string, bounds []float64, labels ...string) *Histogram {
	if !slices.IsSorted(bounds) {
		c.chain.errs = append(c.chain.errs, fmt.Errorf("%q, histogram %q: its bounds do not rise", c.name, name))
	}
	return &Histogram{newMetrics(c.rt, "histogram", name, bounds, labels)}
}

// Set sets the gauge, with a value for each of its labels.
func (g *Gauge) Set(v float64, labels ...string) { g.m.of(labels).Set(v) }

// Observe adds a value, with a value for each of the histogram's labels.
func (h *Histogram) Observe(v float64, labels ...string) { h.m.of(labels).Observe(v) }

// MostLabels is how many combinations of label values a metric of a task has, and OtherLabels the
// value under which further ones are combined.
const (
	MostLabels  = 100
	OtherLabels = "other"
)

// metrics holds the combinations of labels of a metric of one task.
type metrics struct {
	rt         Runtime
	kind, name string
	bounds     []float64
	labels     []string
	by         map[string]*exec.Metric
	key        []byte
}

func newMetrics(rt Runtime, kind, name string, bounds []float64, labels []string) metrics {
	return metrics{rt: rt, kind: kind, name: name, bounds: slices.Clone(bounds), labels: slices.Clone(labels), by: map[string]*exec.Metric{}}
}

// of returns the metric with these label values.
func (m *metrics) of(values []string) *exec.Metric {
	m.key = m.key[:0]
	for _, v := range values {
		m.key = append(append(m.key, v...), 0)
	}
	if x := m.by[string(m.key)]; x != nil {
		return x
	}
	return m.add(slices.Clone(values))
}

func (m *metrics) add(values []string) *exec.Metric {
	if len(values) != len(m.labels) {
		Fail(fmt.Errorf("%s %q has the labels %q, and was given the values %q", m.kind, m.name, m.labels, values))
	}
	if len(m.by) >= MostLabels && slices.ContainsFunc(values, func(v string) bool { return v != OtherLabels }) {
		other := make([]string, len(values))
		for i := range other {
			other[i] = OtherLabels
		}
		return m.of(other)
	}
	for i, v := range values {
		values[i] = string([]byte(v)) // it may alias an item
	}
	x := exec.NewMetric(exec.MetricValue{
		Kind: m.kind, Name: m.name, Labels: m.labels, Values: values,
		Bounds: m.bounds, Counts: make([]uint64, len(m.bounds)),
	})
	m.by[string(m.key)] = x
	if r, ok := m.rt.(exec.Meters); ok {
		r.Meter(x)
	}
	return x
}
