package storetest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// Mem is a store in memory, simple enough to be obviously right. It can lose its last writes, like
// a replica that takes over without them. Safe for concurrent use.
type Mem struct {
	mu     sync.Mutex
	groups map[checkpoint.Group]*memGroup
	down   error
}

type memGroup struct {
	token  sharedlog.LSN
	now    memState
	before memState // the last write that moved the position
}

type memState struct {
	at      sharedlog.LSN
	entries map[string]string
}

// NewMem returns an empty store.
func NewMem() *Mem { return &Mem{groups: map[checkpoint.Group]*memGroup{}} }

// Forget undoes the last write of every group.
func (m *Mem) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.groups {
		g.now = memState{g.before.at, maps.Clone(g.before.entries)}
	}
}

// Down makes every call fail with err, until Down(nil).
func (m *Mem) Down(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = err
}

func (m *Mem) group(g checkpoint.Group) *memGroup {
	if m.groups[g] == nil {
		m.groups[g] = &memGroup{now: memState{entries: map[string]string{}}, before: memState{entries: map[string]string{}}}
	}
	return m.groups[g]
}

// Begin implements checkpoint.Store.
func (m *Mem) Begin(_ context.Context, g checkpoint.Group, token sharedlog.LSN) (sharedlog.LSN, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return 0, m.down
	}
	s := m.group(g)
	if token < s.token {
		return 0, fmt.Errorf("%v: %w", g, checkpoint.ErrFenced)
	}
	s.token = token
	return s.now.at, nil
}

// Clear implements checkpoint.Store.
func (m *Mem) Clear(_ context.Context, g checkpoint.Group, token sharedlog.LSN) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return m.down
	}
	s := m.group(g)
	if token < s.token {
		return fmt.Errorf("%v: %w", g, checkpoint.ErrFenced)
	}
	s.token, s.before, s.now = token, s.now, memState{entries: map[string]string{}}
	return nil
}

// Write implements checkpoint.Store.
func (m *Mem) Write(_ context.Context, ws []checkpoint.Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return m.down
	}
	for _, w := range ws {
		s := m.group(w.Group)
		switch {
		case w.Token < s.token:
			return fmt.Errorf("%v: %w", w.Group, checkpoint.ErrFenced)
		case w.From != s.now.at:
			return fmt.Errorf("%v: %w", w.Group, checkpoint.ErrMoved)
		}
		s.before = memState{s.now.at, maps.Clone(s.now.entries)}
		for _, e := range w.Entries {
			if e.Value == nil {
				delete(s.now.entries, string(e.Key))
			} else {
				s.now.entries[string(e.Key)] = string(e.Value)
			}
		}
		s.now.at = w.To
	}
	return nil
}

// Load implements checkpoint.Store.
func (m *Mem) Load(_ context.Context, g checkpoint.Group, f func([]checkpoint.Entry) error) (sharedlog.LSN, error) {
	m.mu.Lock()
	if m.down != nil {
		defer m.mu.Unlock()
		return 0, m.down
	}
	s := m.group(g)
	at, all := s.now.at, maps.Clone(s.now.entries)
	m.mu.Unlock()
	for k, v := range all {
		if err := f([]checkpoint.Entry{{Key: []byte(k), Value: []byte(v)}}); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// LossWindow implements checkpoint.Store.
func (m *Mem) LossWindow() time.Duration { return 0 }

// Drop implements checkpoint.Store.
func (m *Mem) Drop(_ context.Context, job string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for g := range m.groups {
		if g.Job == job {
			delete(m.groups, g)
		}
	}
	return m.down
}

// Close implements checkpoint.Store; the store can be used on.
func (m *Mem) Close() error { return nil }
