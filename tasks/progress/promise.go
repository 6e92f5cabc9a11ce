package progress

import "tailrace.dev/tailrace/tasks/envelope"

// Promise is what a task's markers say to its consumers about what follows them.
type Promise struct {
	// Time: no item that follows has a lower event time.
	Time int64
	// Idle: the task has nothing to say about event time. Ended: nothing follows.
	Idle, Ended bool
	// Drained is the savepoint for which the task has stopped, 0: none.
	Drained uint64
}

// Put enters the promise in a marker.
func (p *Promise) Put(m *envelope.Marker) {
	m.Watermark, m.Idle, m.Ended, m.Drained = p.Time, p.Idle, p.Ended, p.Drained
}

// Lowest returns what all producers together promise (invariant 4), without savepoints.
func (t *Table) Lowest() Promise {
	return Promise{Time: t.watermark, Idle: t.Idle(), Ended: t.Ended()}
}
