package follow

import (
	"cmp"
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog/logpb"
)

// Members holds the sequencers' addresses: those that the process was given, and those that it
// received from the metalog. So it finds the cluster even after all of the given ones are gone. The
// zero value is usable. Safe for concurrent use.
type Members struct {
	mu    sync.Mutex
	given []string
	known map[uint64]*logpb.Sequencer
	addrs []string
}

// Give sets the addresses that the process was given.
func (m *Members) Give(addrs []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.given = addrs
	m.arrange()
}

// Take records a sequencer of the metalog.
func (m *Members) Take(q *logpb.Sequencer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[uint64]*logpb.Sequencer{}
	}
	m.known[q.GetId()] = q
	m.arrange()
}

// Receive records the sequencers in a reply.
func (m *Members) Receive(r *logpb.FollowReply) {
	for _, q := range r.GetSnapshot().GetSequencers() {
		m.Take(q)
	}
	for _, e := range r.GetEvents() {
		if q := e.GetSequencer(); q != nil {
			m.Take(q)
		}
	}
}

// arrange sorts the addresses in the order in which they are tried. Called with mu held.
func (m *Members) arrange() {
	known := m.rows()
	slices.SortStableFunc(known, func(a, b *logpb.Sequencer) int { return cmp.Compare(a.GetState(), b.GetState()) }) // voters first
	var addrs, removed []string
	for _, q := range known {
		if q.GetState() == logpb.Sequencer_REMOVED {
			removed = append(removed, q.GetAddr())
		} else {
			addrs = append(addrs, q.GetAddr())
		}
	}
	for _, a := range m.given {
		if !slices.Contains(addrs, a) && !slices.Contains(removed, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 { // it knows only removed ones
		addrs = m.given
	}
	m.addrs = addrs
}

// rows returns the known sequencers by ID. Called with mu held.
func (m *Members) rows() (rows []*logpb.Sequencer) {
	for _, q := range m.known {
		rows = append(rows, q)
	}
	slices.SortFunc(rows, func(a, b *logpb.Sequencer) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return rows
}

// Known returns the sequencers of the metalog by ID.
func (m *Members) Known() []*logpb.Sequencer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows()
}

// Addresses returns the addresses in the order in which to try them. The caller must not write to
// the result.
func (m *Members) Addresses() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addrs
}

// Stores returns the stores of all sequencers that were ever known.
func (m *Members) Stores() (stores []uint64) {
	for _, q := range m.Known() {
		if q.GetStoreId() != 0 {
			stores = append(stores, q.GetStoreId())
		}
	}
	return stores
}
