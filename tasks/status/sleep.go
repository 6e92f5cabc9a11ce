package status

import (
	"sync/atomic"
	"time"
)

// sleep is for how long a task waits, in ns. The task writes it around each wait.
type sleep struct {
	total atomic.Int64
	since atomic.Int64 // of the present wait; 0: the task does not wait
}

func (s *sleep) begin() {
	s.total.Store(0)
	s.since.Store(0)
}

// read returns the total in ms.
func (s *sleep) read(now time.Time) float64 {
	ns := s.total.Load()
	if since := s.since.Load(); since > 0 {
		ns += max(now.UnixNano()-since, 0)
	}
	return float64(ns) / 1e6
}

// Sleep records that the task is about to wait.
func (s *Status) Sleep() { s.sleep.since.Store(s.clock().UnixNano()) }

// Wake records that the task has waited; item says that there was an item, which waited for its
// key group.
func (s *Status) Wake(item bool) {
	ns := max(s.clock().UnixNano()-s.sleep.since.Swap(0), 0)
	s.sleep.total.Add(ns)
	if item {
		s.Waiting.Add(ns)
	}
}
