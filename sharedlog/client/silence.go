package client

import (
	"sync"
	"time"
)

// silence calls a function when nothing has come over a stream for a while: no message, and not the
// bytes of one on a link so slow that a message takes longer than that.
type silence struct {
	patience time.Duration
	bytes    func() int64

	mu    sync.Mutex
	timer *time.Timer
	last  int64 // bytes, when the silence began
}

// newSilence returns a silence that starts now. end is called once, on another goroutine, unless
// there is something within first, and then within patience, again and again.
func newSilence(first, patience time.Duration, bytes func() int64, end func()) *silence {
	s := &silence{patience: patience, bytes: bytes, last: bytes()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(first, func() {
		if !s.flows() {
			end()
		}
	})
	return s
}

// flows waits on, if enough bytes have come since the silence began.
func (s *silence) flows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.bytes()
	if now-s.last < flow {
		return false
	}
	s.last = now
	s.timer.Reset(s.patience)
	return true
}

// received is called after each message.
func (s *silence) received() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.bytes()
	s.timer.Reset(s.patience)
}

func (s *silence) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer.Stop()
}
