package status

// Counted is what the operators of a task have counted since its last commit. It is added to the
// Status at the commit, because what is processed again is counted again.
type Counted struct {
	Late     uint64 // items dropped as late
	counters map[string]int64
	// kept is the part of it that stays when the current call fails and is undone.
	kept struct {
		late     uint64
		counters map[string]int64
	}
}

// Count adds to a counter of the job's own.
func (c *Counted) Count(name string, n int64) {
	if c.counters == nil {
		c.counters = make(map[string]int64)
	}
	c.counters[name] += n
}

// Keep keeps the counts so far, at the beginning of a call that may be undone.
func (c *Counted) Keep() {
	c.kept.late += c.Late
	c.Late = 0
	if len(c.counters) == 0 {
		return
	}
	if c.kept.counters == nil {
		c.kept.counters = make(map[string]int64)
	}
	addTo(c.kept.counters, c.counters)
}

// Drop drops the counts since Keep.
func (c *Counted) Drop() {
	c.Late = 0
	clear(c.counters)
}

// Commit adds all counts to the status.
func (c *Counted) Commit(s *Status) {
	c.Keep()
	if c.kept.late > 0 {
		s.Late.Add(c.kept.late)
		c.kept.late = 0
	}
	if len(c.kept.counters) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counters == nil {
		s.counters = make(map[string]int64)
	}
	addTo(s.counters, c.kept.counters)
}

// addTo moves the counts of one map to another.
func addTo(to, from map[string]int64) {
	for name, n := range from {
		to[name] += n
	}
	clear(from)
}
