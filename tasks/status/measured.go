//go:build !nokeyed

package status

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/watermark/chooser"
)

// Measured is how far items were out of order.
type Measured = chooser.Measured

// Measured records what the chain of a task whose grain is chosen has measured of its input.
func (s *Status) Measured(of exec.Chain) {
	m, ok := of.(chooser.Measurer)
	if !ok {
		return // a chain of a test
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.measured == nil {
		s.measured = new(Measured)
	}
	m.Measured(s.measured)
}

// late sets how many items were late, by the counters of an instance.
func late(m *Measured, counters map[string]int64) {
	m.LateByKey, m.LateByStream = uint64(counters["late_by_key"]), uint64(counters["late_by_stream"])
}
