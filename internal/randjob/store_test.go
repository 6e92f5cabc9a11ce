package randjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// lossWindow is for how long the store in memory may lose what it was given.
const lossWindow = 5 * time.Millisecond

// memStore is a store of snapshots in memory, which outlives processes. It can be away, and
// it can lose the newest writes, as a replica does that takes over.
type memStore struct {
	mu     sync.Mutex
	groups map[checkpoint.Group]*memGroup
	away   bool
}

type memGroup struct {
	token sharedlog.LSN
	// states are those that the group has gone through and may go back to; the last one is
	// what it is.
	states []memState
}

type memState struct {
	at      sharedlog.LSN
	made    time.Time
	entries map[string]string
}

var errAway = errors.New("the store of snapshots is away")

func newMemStore() *memStore { return &memStore{groups: map[checkpoint.Group]*memGroup{}} }

func (m *memStore) setAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}

// forget takes back what was written less than `lossWindow` ago.
func (m *memStore) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.groups {
		for n := len(g.states); n > 1 && time.Since(g.states[n-1].made) < lossWindow; n-- {
			g.states = g.states[:n-1]
		}
	}
}

func (m *memStore) lock() error {
	m.mu.Lock()
	if m.away {
		m.mu.Unlock()
		return errAway
	}
	return nil
}

func (m *memStore) group(g checkpoint.Group) *memGroup {
	if m.groups[g] == nil {
		m.groups[g] = &memGroup{states: []memState{{}}}
	}
	return m.groups[g]
}

func (g *memGroup) now() *memState { return &g.states[len(g.states)-1] }

// Begin implements checkpoint.Store.
func (m *memStore) Begin(_ context.Context, name checkpoint.Group, token sharedlog.LSN) (sharedlog.LSN, error) {
	if err := m.lock(); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	g := m.group(name)
	if token < g.token {
		return 0, fmt.Errorf("%v: %w", name, checkpoint.ErrFenced)
	}
	g.token = token
	return g.now().at, nil
}

// Clear implements checkpoint.Store.
func (m *memStore) Clear(_ context.Context, name checkpoint.Group, token sharedlog.LSN) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	g := m.group(name)
	if token < g.token {
		return fmt.Errorf("%v: %w", name, checkpoint.ErrFenced)
	}
	g.token = token
	g.states = append(g.states, memState{made: time.Now()})
	return nil
}

// Write implements checkpoint.Store.
func (m *memStore) Write(_ context.Context, ws []checkpoint.Write) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, w := range ws {
		g := m.group(w.Group)
		switch {
		case w.Token < g.token:
			return fmt.Errorf("%v: %w", w.Group, checkpoint.ErrFenced)
		case w.From != g.now().at:
			return fmt.Errorf("%v: %w", w.Group, checkpoint.ErrMoved)
		}
		next := memState{at: w.To, made: time.Now(), entries: maps.Clone(g.now().entries)}
		if next.entries == nil {
			next.entries = map[string]string{}
		}
		for _, e := range w.Entries {
			if e.Value == nil {
				delete(next.entries, string(e.Key))
			} else {
				next.entries[string(e.Key)] = string(e.Value)
			}
		}
		for len(g.states) > 1 && time.Since(g.states[1].made) >= lossWindow {
			g.states = g.states[1:]
		}
		g.states = append(g.states, next)
	}
	return nil
}

// Load implements checkpoint.Store.
func (m *memStore) Load(_ context.Context, name checkpoint.Group, f func([]checkpoint.Entry) error) (sharedlog.LSN, error) {
	if err := m.lock(); err != nil {
		return 0, err
	}
	now := *m.group(name).now() // its entries are never changed
	m.mu.Unlock()
	for k, v := range now.entries {
		if err := f([]checkpoint.Entry{{Key: []byte(k), Value: []byte(v)}}); err != nil {
			return 0, err
		}
	}
	return now.at, nil
}

// LossWindow implements checkpoint.Store.
func (m *memStore) LossWindow() time.Duration { return lossWindow }

// Drop implements checkpoint.Store.
func (m *memStore) Drop(_ context.Context, job string) error {
	if err := m.lock(); err != nil {
		return err
	}
	defer m.mu.Unlock()
	maps.DeleteFunc(m.groups, func(g checkpoint.Group, _ *memGroup) bool { return g.Job == job })
	return nil
}

// Close implements checkpoint.Store.
func (m *memStore) Close() error { return nil }

// processStore is a process's view of a store.
type processStore struct {
	p *process
	checkpoint.Store
}

func (s processStore) Begin(ctx context.Context, g checkpoint.Group, token sharedlog.LSN) (at sharedlog.LSN, err error) {
	err = s.p.touch(func() error {
		at, err = s.Store.Begin(ctx, g, token)
		return err
	})
	return at, err
}

func (s processStore) Clear(ctx context.Context, g checkpoint.Group, token sharedlog.LSN) error {
	return s.p.touch(func() error { return s.Store.Clear(ctx, g, token) })
}

func (s processStore) Write(ctx context.Context, ws []checkpoint.Write) error {
	return s.p.touch(func() error { return s.Store.Write(ctx, ws) })
}

func (s processStore) Drop(ctx context.Context, job string) error {
	return s.p.touch(func() error { return s.Store.Drop(ctx, job) })
}
