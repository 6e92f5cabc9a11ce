package status

import (
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// Meter adds a metric. A chain that is rebuilt has new ones.
func (s *Status) Meter(m *exec.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.metrics == nil {
		s.metrics = map[string]*exec.Metric{}
	}
	s.metrics[metricKey(m.Read())] = m
}

// readMetrics returns the values of all metrics, in the order of names and labels. The caller holds
// the lock.
func (s *Status) readMetrics() []exec.MetricValue {
	keys := make([]string, 0, len(s.metrics))
	for k := range s.metrics {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var all []exec.MetricValue
	for _, k := range keys {
		all = append(all, s.metrics[k].Read())
	}
	return all
}

func metricKey(v exec.MetricValue) string {
	key := v.Name + "\x00" + v.Kind
	for _, l := range v.Values {
		key += "\x00" + l
	}
	return key
}
