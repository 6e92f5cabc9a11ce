package operators

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/internal/process"
)

// Gauge is a metric that a function sets: the present amount of something.
type Gauge struct{ m process.Metrics }

// Histogram is a metric whose values a function observes.
type Histogram struct{ m process.Metrics }

// NewGauge creates a gauge of the job; it is called in the setup of a function. Setting it requires
// a value for each of its labels. The metrics of a task begin with the task: after a restart
// nothing is set.
//
// The number of combinations of label values is bounded, MostLabels a task: further ones are
// combined under the value OtherLabels. So a label must have few values.
func NewGauge[K comparable, Out any](c *Context[K, Out], name string, labels ...string) *Gauge {
	return &Gauge{process.NewMetrics(c.call.RT, "gauge", name, nil, labels)}
}

// NewHistogram creates a histogram of the job, with the upper bounds of its buckets, in rising
// order. Labels are as in NewGauge.
func NewHistogram[K comparable, Out any](c *Context[K, Out], name string, bounds []float64, labels ...string) *Histogram {
	if !slices.IsSorted(bounds) {
		c.chain.Fail(fmt.Errorf("%q, histogram %q: its bounds do not rise", c.call.Name, name))
	}
	return &Histogram{process.NewMetrics(c.call.RT, "histogram", name, bounds, labels)}
}

// Set sets the gauge, with a value for each of its labels.
func (g *Gauge) Set(v float64, labels ...string) { g.m.Of(labels).Set(v) }

// Observe adds a value, with a value for each of the histogram's labels.
func (h *Histogram) Observe(v float64, labels ...string) { h.m.Of(labels).Observe(v) }

// MostLabels is how many combinations of label values a metric of a task has, and OtherLabels the
// value under which further ones are combined.
const (
	MostLabels  = process.MostLabels
	OtherLabels = process.OtherLabels
)
