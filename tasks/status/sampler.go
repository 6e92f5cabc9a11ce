//go:build !nokeyed

package status

import (
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/route/sketch"
)

// subs is the number of sub-groups of a hash group whose loads are sampled: route.Parts.
const subs = 16

// Sampler has what was sampled of the items of an output stream with slots. Its methods are safe for concurrent use.
type Sampler struct {
	clock func() time.Time

	mu   sync.Mutex
	load *sketch.Load
	at   time.Time // up to when its items have faded

	told *sketch.Sample // of a task in another process: what it has told; nil: it is of this one
}

// Sampler returns the sampler of the task's i-th output stream, which has so many hash groups.
func (s *Status) Sampler(i, groups int) *Sampler {
	if s.Sent[i].keys == nil {
		s.Sent[i].keys = &Sampler{clock: s.clock, load: sketch.NewLoad(groups, subs), at: s.clock()}
	}
	return s.Sent[i].keys
}

// Add adds an item with a key that is in its hash group.
func (s *Sampler) Add(hash uint64, key []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load.Add(hash, key)
}

// Reset forgets everything: the items that follow go by another table.
func (s *Sampler) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load.Reset()
}

// Read returns what was sampled.
func (s *Sampler) Read() sketch.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told != nil {
		return *s.told
	}
	now := s.clock()
	if ms := now.Sub(s.at).Milliseconds(); ms > 0 {
		s.load.Fade(ms)
		s.at = now
	}
	return s.load.Sample()
}
