package exec

import (
	"slices"
	"sort"
	"sync"
)

// Metric is a gauge or a histogram with certain label values.
type Metric struct {
	mu sync.Mutex
	v  MetricValue
}

// NewMetric returns a metric with its first value.
func NewMetric(v MetricValue) *Metric { return &Metric{v: v} }

// MetricValue is the value of a Metric at a moment.
type MetricValue struct {
	Kind   string   `json:"kind"` // gauge or histogram
	Name   string   `json:"name"`
	Labels []string `json:"labels,omitempty"`
	Values []string `json:"values,omitempty"` // of the labels
	// Value is a gauge's.
	Value float64 `json:"value,omitempty"`
	// Count, Sum, Bounds and Counts are a histogram's: Counts[i] counts the values in (Bounds[i-1],
	// Bounds[i]].
	Count  uint64    `json:"count,omitempty"`
	Sum    float64   `json:"sum,omitempty"`
	Bounds []float64 `json:"bounds,omitempty"`
	Counts []uint64  `json:"counts,omitempty"`
}

// Read returns the metric's present value.
func (m *Metric) Read() MetricValue {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.v
	v.Counts = slices.Clone(v.Counts)
	return v
}

// Set sets the value of a gauge.
func (m *Metric) Set(v float64) {
	m.mu.Lock()
	m.v.Value = v
	m.mu.Unlock()
}

// Observe adds a value to a histogram.
func (m *Metric) Observe(v float64) {
	m.mu.Lock()
	m.v.Count++
	m.v.Sum += v
	if i := sort.SearchFloat64s(m.v.Bounds, v); i < len(m.v.Counts) {
		m.v.Counts[i]++
	}
	m.mu.Unlock()
}
