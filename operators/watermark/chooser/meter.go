package chooser

import "math"

// Measurer is a chain of operators whose grain is chosen.
type Measurer interface {
	// Measured sets m to what has been measured since the chain began. It allocates nothing.
	Measured(m *Measured)
}

// Since returns what was measured behind an earlier reading of the same chain.
func (m Measured) Since(from *Measured) Measured {
	m.Task.less(&from.Task)
	m.Key.less(&from.Key)
	m.Held.less(&from.Held)
	m.Gap.less(&from.Gap)
	m.LateByKey -= min(from.LateByKey, m.LateByKey)
	m.LateByStream -= min(from.LateByStream, m.LateByStream)
	return m
}

const (
	// oneOf is how many keys have one whose disorder is measured: each that Sampled reports.
	oneOf = 64
	// slots is how many of those a Meter remembers: a power of two. All of a task with slots × oneOf keys, which is
	// 65 536, at the same time, more or less; of one with more it measures some for a while, and then others.
	slots = 1024
	// patience is how many items of other keys free the slot of one that has none.
	patience = 2
	// producers is how many producers' promises are measured: those of the tasks with the lowest numbers.
	producers = 64
)

// Sampled reports whether the disorder of a key with this hash is measured.
func Sampled(hash uint64) bool { return hash%oneOf == 0 }

// Meter measures the items that come to a task by one input. Inputs are measured apart, for each of them has a clock
// in each of its keys: if one is behind the other, the result waits for it, whatever the grain. Its memory is
// bounded. It decides nothing: what it forgets when a task starts again is measured anew.
type Meter struct {
	begun     bool
	newest    int64 // as of the last Turn
	seen      int64 // the newest of all
	task, key Disorder
	held, gap Disorder
	keys      [slots]sample
	sent      []sent // by producer, as far as there are some
	from      int    // whose items come now
}

// sent is what has come of a producer: its newest item, and its promise.
type sent struct{ newest, promise int64 }

// sample is the newest item of a key.
type sample struct {
	hash   uint64
	newest int64
	left   uint8 // how many items of other keys are left until the slot is free; 0: it is
}

// Task counts items of any keys with these times. Items between two Turns are not compared with each other: they have
// come together, key group by key group.
func (m *Meter) Task(times []int64) {
	newest, seen, inOrder := m.newest, int64(math.MinInt64), uint64(0)
	if !m.begun {
		newest, m.seen = math.MinInt64, math.MinInt64
	}
	for _, t := range times {
		seen = max(seen, t)
		if t >= newest {
			inOrder++
		} else {
			m.task.Add(behind(newest, t))
		}
	}
	m.task[0] += inOrder
	m.begun, m.newest, m.seen = true, newest, max(m.seen, seen)
	if m.from < len(m.sent) {
		s := &m.sent[m.from]
		s.newest = max(s.newest, seen)
	}
}

// From says which producer's items come next, and what it has promised: that there come none that are older. A new promise is
// compared with the items that came before. That is what its source's delay holds back, and what it has not read
// yet does not count. The promise of one that has ended says nothing.
func (m *Meter) From(producer int, promise int64) {
	m.from = producer
	for len(m.sent) <= producer && producer < producers {
		m.sent = append(m.sent, sent{math.MinInt64, math.MinInt64})
	}
	if producer >= len(m.sent) {
		return
	}
	s := &m.sent[producer]
	if promise > s.promise && promise < math.MaxInt64 && s.newest > math.MinInt64 {
		m.held.Add(behind(s.newest, promise))
	}
	s.promise = max(s.promise, promise)
}

// Turn says that the clock of the task has moved, or could have: what comes now is behind what has come.
func (m *Meter) Turn() { m.newest = m.seen }

// Key counts an item of a key that is Sampled. The first one that is remembered of a key says nothing.
func (m *Meter) Key(hash uint64, t int64) {
	s := &m.keys[hash/oneOf%slots]
	switch {
	case s.left > 0 && s.hash == hash:
		m.key.Add(behind(s.newest, t))
		if t >= s.newest {
			m.gap.Add(behind(t, s.newest))
		}
		s.newest = max(s.newest, t)
		s.left = patience
	case s.left > 0:
		s.left--
	default:
		*s = sample{hash, t, patience}
	}
}

// AddTo adds what was measured.
func (m *Meter) AddTo(to *Measured) {
	to.Task.Merge(&m.task)
	to.Key.Merge(&m.key)
	to.Held.Merge(&m.held)
	to.Gap.Merge(&m.gap)
}

// behind returns newest − t, 0 if t is not older. Times may be at both ends of an int64.
func behind(newest, t int64) int64 {
	if t >= newest {
		return 0
	}
	return int64(min(uint64(newest)-uint64(t), 1<<62))
}
