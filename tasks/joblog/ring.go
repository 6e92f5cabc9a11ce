package joblog

import (
	"sync"
	"time"
)

// Entry is an entry of the job log.
type Entry struct {
	At   time.Time `json:"at"`
	Job  string    `json:"job,omitempty"` // its name; empty: about no job in particular
	Who  string    `json:"who"`           // the worker or manager
	Text string    `json:"text"`
}

// Ring keeps the newest entries in a ring buffer. The zero Ring is empty and ready to use; it is
// safe for concurrent use.
type Ring struct {
	mu   sync.Mutex
	ring []Entry
	next int
}

// kept is the capacity of a Ring: some 300 KiB.
const kept = 2000

// Add adds an entry; it replaces the oldest if the ring is full.
func (r *Ring) Add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < kept {
		r.ring = append(r.ring, e)
		return
	}
	r.ring[r.next] = e
	r.next = (r.next + 1) % kept
}

// All returns the entries, oldest first.
func (r *Ring) All() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append([]Entry(nil), r.ring[r.next:]...), r.ring[:r.next]...)
}
