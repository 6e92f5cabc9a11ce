package process

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// MostLabels is how many combinations of label values a metric of a task has, and OtherLabels the
// value under which further ones are combined.
const (
	MostLabels  = 100
	OtherLabels = "other"
)

// Metrics holds the combinations of labels of a metric of one task.
type Metrics struct {
	rt         exec.Runtime
	kind, name string
	bounds     []float64
	labels     []string
	by         map[string]*exec.Metric
	key        []byte
}

// NewMetrics returns a metric without values.
func NewMetrics(rt exec.Runtime, kind, name string, bounds []float64, labels []string) Metrics {
	return Metrics{rt: rt, kind: kind, name: name, bounds: slices.Clone(bounds), labels: slices.Clone(labels), by: map[string]*exec.Metric{}}
}

// Of returns the metric with these label values.
func (m *Metrics) Of(values []string) *exec.Metric {
	m.key = m.key[:0]
	for _, v := range values {
		m.key = append(append(m.key, v...), 0)
	}
	if x := m.by[string(m.key)]; x != nil {
		return x
	}
	return m.add(slices.Clone(values))
}

func (m *Metrics) add(values []string) *exec.Metric {
	if len(values) != len(m.labels) {
		exec.Abort(fmt.Errorf("%s %q has the labels %q, and was given the values %q", m.kind, m.name, m.labels, values))
	}
	if len(m.by) >= MostLabels && slices.ContainsFunc(values, func(v string) bool { return v != OtherLabels }) {
		other := make([]string, len(values))
		for i := range other {
			other[i] = OtherLabels
		}
		return m.Of(other)
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
