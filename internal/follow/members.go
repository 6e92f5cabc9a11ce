package follow

import (
	"cmp"
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog/logpb"
)

// Members are the sequencers' addresses: those that a process was given, and those that
// the metalog names, which it follows. So it finds the cluster when all of the first are
// gone. The zero value is usable. Safe for concurrent use.
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

// Take takes what the metalog says of a sequencer.
func (m *Members) Take(q *logpb.Sequencer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[uint64]*logpb.Sequencer{}
	}
	m.known[q.GetId()] = q
	m.arrange()
}

// Receive takes what a reply says of sequencers.
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

// arrange puts the addresses in the order in which they are tried; mu is held.
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
	if len(addrs) == 0 { // it has heard of nobody but removed ones
		addrs = m.given
	}
	m.addrs = addrs
}

// rows returns what is known, by ID; mu is held.
func (m *Members) rows() (rows []*logpb.Sequencer) {
	for _, q := range m.known {
		rows = append(rows, q)
	}
	slices.SortFunc(rows, func(a, b *logpb.Sequencer) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return rows
}

// Known returns what the metalog says of sequencers, by ID.
func (m *Members) Known() []*logpb.Sequencer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows()
}

// Addresses returns the addresses in the order in which they are to be tried; read only.
func (m *Members) Addresses() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addrs
}

// Stores returns the stores of the sequencers that were ever known.
func (m *Members) Stores() (stores []uint64) {
	for _, q := range m.Known() {
		if q.GetStoreId() != 0 {
			stores = append(stores, q.GetStoreId())
		}
	}
	return stores
}
